"""What stands in the way of taking back a stretch of the log: the later entries that depend on it.

Rows tell most of it: one that was changed again, in a way that cannot be kept, blocks. What rows refer to
tells the rest. An entity is not taken from under its facts and relations, a relation does not come back to
a name that its entity no longer has, and a memory is not listed by what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

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
    later = _Later(last, state)
    found: set[int] = set()
    for each in rows:
        if isinstance(each, Blocked):
            found |= later.changes(each.key)
    changed = {each.key: each.value for each in rows if isinstance(each, Restored)}
    for key, value in changed.items():
        if key[:1] == b"E" and value is None:
            found |= _left_behind(key[1:].decode(), last, state)
        elif key[:1] == b"E" and value is not None:
            found |= _left_at_name(decode_entity(value), changed, last, state, later)
        elif key[:1] == b"O" and value is not None:
            owner = b"E" + key[1:-8]
            if changed.get(owner, state.row(owner)) is None:
                found |= later.changes(owner)
        elif key[:1] == b"R" and value is not None:
            found |= _moved(key, last, state, later)
            found |= _renamed(decode_relation(value), changed, first, state, later)
        elif key[:1] == b"M" and value is not None:
            found |= _listed_otherwise(key, first, last, state, later)
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
    later, facts = _Later(last, state), _FactsByText(state)
    found: set[int] = set()
    for key, value in rows.items():
        if key[:1] == b"O" and value is not None and state.row(key) is None:
            keys = facts.saying_as(decode_observation(value))
            found.update(*(later.changes(each) for each in keys if each not in rows))
        elif key[:1] == b"E" and value is not None:
            for name in _named_again(decode_entity(value), state):
                found |= _related_since(name, rows, state, later)
    return found


class _Later:
    """Where rows were changed beyond `last`, found once for each: all that belongs to an entity asks for its row."""

    def __init__(self, last: int, state: State) -> None:
        self._last, self._state = last, state
        self._changes: dict[bytes, Set[int]] = {}
        self._renames: dict[bytes, Set[int]] = {}

    def changes(self, key: bytes) -> Set[int]:
        if key not in self._changes:
            self._changes[key] = changes_after(key, self._last, self._state)
        return self._changes[key]

    def renames(self, key: bytes) -> Set[int]:
        """Those at which the entity got another name."""
        if key not in self._renames:
            self._renames[key] = {
                position
                for position in self.changes(key)
                if self._name_at(key, position - 1) != self._name_at(key, position)
            }
        return self._renames[key]

    def _name_at(self, key: bytes, position: int) -> str | None:
        row = self._state.at(position).row(key)
        return None if row is None else decode_entity(row).name


class _FactsByText:
    """The living facts of entities, each entity's read once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._keys: dict[str, dict[str, list[bytes]]] = {}

    def saying_as(self, fact: Observation) -> list[bytes]:
        """The keys of those that say of the entity what `fact` says of it."""
        if fact.entity_id not in self._keys:
            by_text = self._keys[fact.entity_id] = {}
            for row in self._state.observations(fact.entity_id):
                key = observation_key(row.entity_id, row.born)
                by_text.setdefault(canonical(row.content), []).append(key)
        return self._keys[fact.entity_id].get(canonical(fact.content), [])


def _named_again(entity: Entity, state: State) -> set[str]:
    """The former names of an entity, as it is to be, that it does not have now."""
    now = state.entity(entity.id)
    known = () if now is None else (now.name, *now.aliases)
    return set(map(canonical, entity.aliases)) - set(map(canonical, known))


def _related_since(name: str, changed: Rows, state: State, later: _Later) -> set[int]:
    keys = (relation_key(row.id) for row in state.relations_touching(name))
    return {p for key in keys if key not in changed for p in later.changes(key)}


def _left_behind(entity_id: str, last: int, state: State) -> set[int]:
    """Positions at which what belongs to an entity that is to go was added later."""
    entity = state.entity(entity_id)
    if entity is None:
        return set()
    births = [row.born for row in state.observations(entity_id)]
    births += [row.born for row in state.relations_touching(entity.name)]
    return {born for born in births if born > last}


def _left_at_name(
    entity: Entity, changed: Rows, last: int, state: State, later: _Later
) -> set[int]:
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
    return {position for key in keys for position in later.changes(key)}


def _moved(key: bytes, last: int, state: State, later: _Later) -> Set[int]:
    """Positions at which an end of a relation changed: what refers to both of its ends cannot be merged."""
    same = state.at(last).row(key) == state.row(key)
    return set() if same else later.changes(key)


def _renamed(
    relation: Relation, changed: Rows, first: int, state: State, later: _Later
) -> set[int]:
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
            found |= later.changes(name_key(end)) | later.renames(key)
    return found


def _listed_otherwise(key: bytes, first: int, last: int, state: State, later: _Later) -> Set[int]:
    """Positions at which it changed again where a memory is listed: by which labels, and whether at all."""
    was, became, now = (
        None if row is None else _listing(decode_memory(row))
        for row in (state.at(first - 1).row(key), state.at(last).row(key), state.row(key))
    )
    return later.changes(key) if became not in (was, now) else set()


def _listing(memory: Memory) -> tuple[str | None, int | None, tuple[str, ...]]:
    return memory.superseded_by, memory.deleted_us, memory.tags
