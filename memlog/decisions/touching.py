"""Where in the log something was touched: the positions of all that ever happened to it.

Read from the versions that the timeline keeps, so it costs what the thing's own history costs, not what
the log's length does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from memlog.rows import (
    Entity,
    decode_entity,
    decode_named,
    entity_key,
    memory_key,
    name_key,
    touching_key,
)
from memlog.state import State
from memlog.storage.tables import Version


def entity_ids(name: str, state: State) -> list[str]:
    """The ids of the entities that have or ever had this name, the oldest first; also deleted ones."""
    named = (version.value.decode() for version in state.versions(name_key(name)))
    return list(dict.fromkeys(named))


def entity_rows(entity_id: str, state: State) -> Iterator[Entity]:
    """The entity as it ever was, its last form last; read as they are asked for, as each has all names before it."""
    return (decode_entity(each.value) for each in state.versions(entity_key(entity_id)))


def names_at_last(entity_id: str, state: State) -> tuple[str, ...]:
    """The name of the entity in its last form, and those it had before."""
    last = deque(state.versions(entity_key(entity_id)), 1)
    rows = (decode_entity(each.value) for each in last)
    return tuple(name for row in rows for name in (row.name, *row.aliases))


def gone_at(name: str, state: State) -> int | None:
    """Where an entity last lost this name, deleted or undone; None where none had it before the moment of `state`."""
    ends = (version.until for version in state.versions(name_key(name)))
    past = [
        end for end in ends if end is not None and (not state.position or end <= state.position)
    ]
    return max(past, default=None)


def came_after(position: int, name: str, state: State) -> int | None:
    """Where an entity first got this name after `position`; None where none did."""
    begins = (version.since for version in state.versions(name_key(name)))
    return min((begin for begin in begins if begin > position), default=None)


def positions_of_name(name: str, state: State) -> set[int]:
    """All that happened to the entities that have or ever had this name, and to those merged into them."""
    found: set[int] = set()
    for entity_id in entity_ids(name, state):
        for each in (entity_id, *_merged_into(entity_id, state)):
            found |= entity_positions(each, state)
    return found


def _merged_into(entity_id: str, state: State) -> set[str]:
    """The ids of the entities that became part of this one and were not split off again.

    A name passes from one entity straight to another only where the two were merged, or split.
    """
    found: set[str] = set()
    for name in names_at_last(entity_id, state)[1:]:
        bearers = list(state.versions(name_key(name)))[::-1]
        for later, before in pairwise(bearers):
            bearer = later.value.decode()
            if before.until == later.since and (bearer == entity_id or bearer in found):
                found.add(before.value.decode())
    return {each for each in found - {entity_id} if state.entity(each) is None}


def entity_positions(entity_id: str, state: State) -> set[int]:
    """Positions at which the entity, its observations or its relations were changed."""
    found: set[int] = set()
    for table in (b"E", b"O", b"H"):
        found |= row_positions(table + entity_id.encode(), state)
    first = min(found, default=0)
    versions = state.versions(entity_key(entity_id))
    for name in {decode_named(each.value).name for each in versions}:
        touched = row_positions(touching_key(name), state)
        found.update(each for each in touched if each >= first)
    return found


def memory_positions(memory_id: str, state: State) -> set[int]:
    """All that happened to the memory of this very id, be it there or undone; nothing for the beginning of an id."""
    key = memory_key(memory_id)
    return _positions(each for each in state.versions(key) if each.key == key)


def row_positions(prefix: bytes, state: State) -> set[int]:
    """Where rows under `prefix` came to be, changed or went."""
    return _positions(state.versions(prefix))


def _positions(versions: Iterable[Version]) -> set[int]:
    found = set()
    for version in versions:
        found.add(version.since)
        if version.until is not None:
            found.add(version.until)
    return found
