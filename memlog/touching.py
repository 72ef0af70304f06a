"""Where in the log something was touched: the positions of all that ever happened to it.

Read from the images that the timeline keeps, so it costs what the thing's own history costs, not what
the log's length does.
"""

from __future__ import annotations

from memlog import state as tables
from memlog.state import ABSENT_ROW, Entity, State, decode_entity


def entity_ids(name: str, state: State) -> list[str]:
    """The ids of the entities that have or ever had this name, the oldest first; also deleted ones."""
    key = tables.name_key(name)
    ids = [image.decode() for _, _, image in state.images(key) if image != ABSENT_ROW]
    current = state.entity_id_of(name)
    return list(dict.fromkeys([*ids, *([current] if current else [])]))


def entity_positions(entity_id: str, state: State) -> set[int]:
    """Positions at which the entity, its observations or its relations were changed."""
    encoded = entity_id.encode()
    found = set()
    names = set()
    for _, position, image in state.images(b"E" + encoded):
        found.add(position)
        if image != ABSENT_ROW:
            names.add(decode_entity(image).name)
    living: Entity | None = state.entity(entity_id)
    if living is not None:
        names.add(living.name)
    for table in (b"O", b"H"):
        found.update(position for _, position, _ in state.images(table + encoded))
    first = min(found, default=0)
    for name in names:
        for table in (tables.leaving_key(name), tables.arriving_key(name)):
            found.update(position for _, position, _ in state.images(table) if position >= first)
    return found


def memory_positions(memory_id: str, state: State) -> set[int]:
    return {position for _, position, _ in state.images(tables.memory_key(memory_id))}
