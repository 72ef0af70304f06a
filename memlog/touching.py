"""Where in the log something was touched: the positions of all that ever happened to it.

Read from the versions that the timeline keeps, so it costs what the thing's own history costs, not what
the log's length does.
"""

from __future__ import annotations

from memlog import state as tables
from memlog.state import State, decode_entity


def entity_ids(name: str, state: State) -> list[str]:
    """The ids of the entities that have or ever had this name, the oldest first; also deleted ones."""
    named = (version.value.decode() for version in state.versions(tables.name_key(name)))
    return list(dict.fromkeys(named))


def entity_positions(entity_id: str, state: State) -> set[int]:
    """Positions at which the entity, its observations or its relations were changed."""
    encoded = entity_id.encode()
    names = {decode_entity(each.value).name for each in state.versions(b"E" + encoded)}
    found: set[int] = set()
    for table in (b"E", b"O", b"H"):
        found |= _positions(table + encoded, state)
    first = min(found, default=0)
    for name in names:
        for prefix in (tables.leaving_key(name), tables.arriving_key(name)):
            found.update(each for each in _positions(prefix, state) if each >= first)
    return found


def memory_positions(memory_id: str, state: State) -> set[int]:
    return _positions(tables.memory_key(memory_id), state)


def _positions(prefix: bytes, state: State) -> set[int]:
    """Where rows under `prefix` came to be, changed or went."""
    found = set()
    for version in state.versions(prefix):
        found.add(version.since)
        if version.until is not None:
            found.add(version.until)
    return found
