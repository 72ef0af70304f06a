"""What stands in the way of taking back a stretch of the log: the later entries that depend on it.

Rows tell most of it: one that was changed again, in a way that cannot be kept, blocks. What rows refer to
tells the rest. An entity is not taken from under its facts and relations, a relation does not come back to
a name that its entity no longer has, and a memory is not listed by what it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from memlog.canonical import canonical
from memlog.restoring import Blocked, Restored, changes_after, restore
from memlog.state import (
    Entity,
    Memory,
    Observation,
    Relation,
    State,
    decode_entity,
    decode_memory,
    decode_observation,
    decode_relation,
    entity_key,
    name_key,
    observation_key,
    relation_key,
)

Rows = Mapping[bytes, bytes | None]
"""Rows as they are to be, by key; None for no row."""


def blockers(first: int, last: int, state: State) -> set[int]:
    """Positions of later entries that depend on what is to be undone."""
    rows = list(restore(first, last, state))
    found: set[int] = set()
    for each in rows:
        if isinstance(each, Blocked):
            found |= changes_after(each.key, last, state)
    changed = {each.key: each.value for each in rows if isinstance(each, Restored)}
    for key, value in changed.items():
        if key[:1] == b"E" and value is None:
            found |= _left_behind(key[1:].decode(), last, state)
        elif key[:1] == b"E" and value is not None:
            found |= _left_at_name(decode_entity(value), changed, last, state)
        elif key[:1] == b"O" and value is not None:
            owner = b"E" + key[1:-8]
            if changed.get(owner, state.row(owner)) is None:
                found |= changes_after(owner, last, state)
        elif key[:1] == b"R" and value is not None:
            found |= _moved(key, last, state)
            found |= _renamed(decode_relation(value), changed, first, last, state)
        elif key[:1] == b"M" and value is not None:
            found |= _listed_otherwise(key, first, last, state)
    return found


def at_odds(first: int, last: int, state: State) -> set[int]:
    """Positions of later entries that leave no place for what would stand again: they said the same fact
    since, or related a name to something that was to be a former name again.

    Apart from `blockers`: an undo that went ahead before such were refused stays as it is when a purge
    walks through the log.
    """
    rows = {
        each.key: each.value for each in restore(first, last, state) if isinstance(each, Restored)
    }
    found: set[int] = set()
    for key, value in rows.items():
        if key[:1] == b"O" and value is not None and state.row(key) is None:
            found |= _said_since(decode_observation(value), rows, last, state)
        elif key[:1] == b"E" and value is not None:
            for name in _named_again(decode_entity(value), state):
                found |= _related_since(name, rows, last, state)
    return found


def _said_since(fact: Observation, changed: Rows, last: int, state: State) -> set[int]:
    text = canonical(fact.content)
    keys = (
        observation_key(row.entity_id, row.born)
        for row in state.observations(fact.entity_id)
        if canonical(row.content) == text
    )
    return {p for key in keys if key not in changed for p in changes_after(key, last, state)}


def _named_again(entity: Entity, state: State) -> set[str]:
    """The former names of an entity, as it is to be, that it does not have now."""
    now = state.entity(entity.id)
    known = () if now is None else (now.name, *now.aliases)
    return set(map(canonical, entity.aliases)) - set(map(canonical, known))


def _related_since(name: str, changed: Rows, last: int, state: State) -> set[int]:
    keys = (relation_key(row.id) for row in state.relations_touching(name))
    return {p for key in keys if key not in changed for p in changes_after(key, last, state)}


def _left_behind(entity_id: str, last: int, state: State) -> set[int]:
    """Positions at which what belongs to an entity that is to go was added later."""
    entity = state.entity(entity_id)
    if entity is None:
        return set()
    births = [row.born for row in state.observations(entity_id)]
    births += [row.born for row in state.relations_touching(entity.name)]
    return {born for born in births if born > last}


def _left_at_name(entity: Entity, changed: Rows, last: int, state: State) -> set[int]:
    """Positions at which relations came to the name that an entity is to give up."""
    now = state.entity(entity.id)
    if now is None or canonical(now.name) == canonical(entity.name):
        return set()
    waited = {row.id for row in state.at(last).relations_touching(now.name)}
    keys = (
        relation_key(row.id)
        for row in state.relations_touching(now.name)
        if row.id not in waited and relation_key(row.id) not in changed
    )
    return {position for key in keys for position in changes_after(key, last, state)}


def _moved(key: bytes, last: int, state: State) -> set[int]:
    """Positions at which an end of a relation changed: what refers to both of its ends cannot be merged."""
    same = state.at(last).row(key) == state.row(key)
    return set() if same else changes_after(key, last, state)


def _renamed(relation: Relation, changed: Rows, first: int, last: int, state: State) -> set[int]:
    """Positions at which an end of a relation that is to stand again got another name."""
    found: set[int] = set()
    for end in (relation.source, relation.target):
        now = changed.get(name_key(end), state.row(name_key(end)))
        before = state.at(first - 1).row(name_key(end))
        for entity_id in {each for each in (now, before) if each is not None}:
            key = entity_key(entity_id.decode())
            row = changed.get(key, state.row(key))
            if row is None or canonical(decode_entity(row).name) == canonical(end):
                continue
            found |= changes_after(name_key(end), last, state)
            found |= {
                position
                for position in changes_after(key, last, state)
                if _name_at(key, position - 1, state) != _name_at(key, position, state)
            }
    return found


def _name_at(key: bytes, position: int, state: State) -> str | None:
    row = state.at(position).row(key)
    return None if row is None else decode_entity(row).name


def _listed_otherwise(key: bytes, first: int, last: int, state: State) -> set[int]:
    """Positions at which it changed again where a memory is listed: by which labels, and whether at all."""
    was, became, now = (
        None if row is None else _listing(decode_memory(row))
        for row in (state.at(first - 1).row(key), state.at(last).row(key), state.row(key))
    )
    return changes_after(key, last, state) if became not in (was, now) else set()


def _listing(memory: Memory) -> tuple[str | None, int | None, tuple[str, ...]]:
    return memory.superseded_by, memory.deleted_us, memory.tags
