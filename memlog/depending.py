"""What stands in the way of taking back a stretch of the log: the later entries that depend on it.

Rows tell most of it: one that was changed again, in a way that cannot be kept, blocks. What rows refer to
tells the rest. An entity is not taken from under its facts and relations, a relation does not come back to
a name that its entity no longer has, and a memory is not listed by what it was.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Set
from functools import partial
from operator import neg

from memlog.canonical import canonical
from memlog.restoring import changed_at, restore
from memlog.state import (
    Entity,
    Memory,
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
    touching_key,
)

TOUCHING_BYTES = len(touching_key(""))

Rows = Mapping[bytes, bytes | None]
"""Rows as they are to be, by key; None for no row."""


def blockers(first: int, last: int, state: State, later: Later) -> set[int]:
    """Positions of later entries that depend on what is to be undone."""
    changed, blocked = restore(first, last, state)
    found: set[int] = set()
    for key in blocked:
        found |= later.changes(key, last)
    for key, value in changed.items():
        table = key[:1]
        if value is None:
            if table == b"E":
                found |= _left_behind(key[1:].decode(), last, state, later)
        elif table == b"E":
            found |= _left_at_name(decode_entity(value), changed, last, state, later)
        elif table == b"O":
            owner = b"E" + key[1:-8]
            if changed.get(owner, state.row(owner)) is None:
                found |= later.changes(owner, last)
        elif table == b"R":
            found |= _moved(key, last, state, later)
            found |= _renamed(decode_relation(value), changed, first, last, state, later)
        elif table == b"M":
            found |= _listed_otherwise(key, first, last, state, later)
    return found


def at_odds(first: int, last: int, state: State, later: Later) -> set[int]:
    """Positions of later entries that leave no place for what would stand again: they said the same fact
    since, or related a name to something that was to be a former name again.

    Apart from `blockers`: an undo that went ahead before such were refused stays as it is when a purge
    walks through the log.
    """
    rows = restore(first, last, state).rows
    found: set[int] = set()
    for key, value in rows.items():
        if key[:1] == b"O" and value is not None and state.row(key) is None:
            fact = decode_observation(value)
            said = state.saying(fact.entity_id, fact.content)
            keys = (observation_key(fact.entity_id, each.born) for each in said)
            found.update(*(later.changes(each, last) for each in keys if each not in rows))
        elif key[:1] == b"E" and value is not None:
            for name in _named_again(decode_entity(value), state):
                found |= _related_since(name, rows, last, state, later)
    return found


class Later:
    """Where rows were changed, and what was born, beyond a position. One undo may go over many commands, and asks
    about the same rows for each: they are read once, and then followed through what the undo itself changes."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._changes: dict[bytes, _Judged] = {}
        self._renames: dict[bytes, _Judged] = {}
        self._births: dict[bytes, dict[bytes, int]] = {}
        self._waited: dict[tuple[bytes, int], set[bytes]] = {}

    def changes(self, key: bytes, last: int) -> Set[int]:
        if key not in self._changes:
            self._changes[key] = _Judged(
                self.made(key), partial(changed_at, key, state=self._state)
            )
        return self._changes[key].beyond(last)

    def renames(self, key: bytes, last: int) -> Set[int]:
        """Those at which the entity got another name."""
        if key not in self._renames:
            self._renames[key] = _Judged(self.made(key), partial(self._renamed_at, key))
        return self._renames[key].beyond(last)

    def facts_born(self, entity_id: str, last: int) -> set[int]:
        """Where the living facts of an entity were added."""
        prefix = observation_key(entity_id, 0)[:-8]
        if prefix not in self._births:
            rows = self._state.observations(entity_id)
            self._births[prefix] = {observation_key(entity_id, row.born): row.born for row in rows}
        return {born for born in self._births[prefix].values() if born > last}

    def relations_born(self, name: str, last: int) -> set[int]:
        """Where the living relations that touch a name were added."""
        return {born for born in self._touching(name).values() if born > last}

    def relations_come(self, name: str, last: int) -> list[bytes]:
        """The keys of those that touch a name now and did not at `last`."""
        known = touching_key(name), last
        if known not in self._waited:
            rows = self._state.at(last).relations_touching(name)
            self._waited[known] = {touching_key(name, row.id) for row in rows}
        waited = self._waited[known]
        return [
            relation_key(key[TOUCHING_BYTES:].decode())
            for key in self._touching(name)
            if key not in waited
        ]

    def _touching(self, name: str) -> dict[bytes, int]:
        prefix = touching_key(name)
        if prefix not in self._births:
            rows = self._state.relations_touching(name)
            self._births[prefix] = {touching_key(name, row.id): row.born for row in rows}
        return self._births[prefix]

    def note(self, position: int) -> None:
        """An entry was added at `position`, beyond all others."""
        for key in self._state.touched(position):
            for judged in (self._changes.get(key), self._renames.get(key)):
                if judged is not None:
                    judged.note(position)
            living = self._births.get(key[:-8] if key[:1] == b"O" else key[:TOUCHING_BYTES])
            if living is None:
                continue
            born = self._born(key)
            if born is None:
                living.pop(key, None)
            else:
                living[key] = born

    def _born(self, key: bytes) -> int | None:
        if self._state.row(key) is None:
            return None
        if key[:1] == b"O":
            return int.from_bytes(key[-8:], "big")
        row = self._state.relation(key[TOUCHING_BYTES:].decode())
        return None if row is None else row.born

    def made(self, key: bytes) -> set[int]:
        """The positions at which the row was made, changed or taken away."""
        kept = (each for each in self._state.versions(key) if each.key == key)
        return {position for each in kept for position in (each.since, each.until) if position}

    def _renamed_at(self, key: bytes, position: int) -> bool:
        return self._name_at(key, position - 1) != self._name_at(key, position)

    def _name_at(self, key: bytes, position: int) -> str | None:
        row = self._state.at(position).row(key)
        return None if row is None else decode_entity(row).name


class _Judged:
    """Those of some positions at which something is so; each is judged once, and only when it is asked for."""

    def __init__(self, positions: Set[int], judge: Callable[[int], bool]) -> None:
        self._open = sorted(positions)
        self._judge = judge
        self._older: list[int] = []  # the newest first
        self._newer: list[int] = []

    def note(self, position: int) -> None:
        """One beyond all others."""
        if self._judge(position):
            self._newer.append(position)

    def beyond(self, last: int) -> Set[int]:
        while self._open and self._open[-1] > last:
            position = self._open.pop()
            if self._judge(position):
                self._older.append(position)
        count = bisect_left(self._older, -last, key=neg)
        return {*self._older[:count], *self._newer}


def _named_again(entity: Entity, state: State) -> set[str]:
    """The former names of an entity, as it is to be, that it does not have now."""
    now = state.entity(entity.id)
    known = () if now is None else (now.name, *now.aliases)
    return set(map(canonical, entity.aliases)) - set(map(canonical, known))


def _related_since(name: str, changed: Rows, last: int, state: State, later: Later) -> set[int]:
    keys = (relation_key(row.id) for row in state.relations_touching(name))
    return {p for key in keys if key not in changed for p in later.changes(key, last)}


def _left_behind(entity_id: str, last: int, state: State, later: Later) -> set[int]:
    """Positions at which what belongs to an entity that is to go was added later."""
    entity = state.entity(entity_id)
    if entity is None:
        return set()
    return later.facts_born(entity_id, last) | later.relations_born(entity.name, last)


def _left_at_name(entity: Entity, changed: Rows, last: int, state: State, later: Later) -> set[int]:
    """Positions at which relations came to the name that an entity is to give up."""
    now = state.entity(entity.id)
    if now is None or canonical(now.name) == canonical(entity.name):
        return set()
    keys = later.relations_come(now.name, last)
    return {position for key in keys if key not in changed for position in later.changes(key, last)}


def _moved(key: bytes, last: int, state: State, later: Later) -> Set[int]:
    """Positions at which an end of a relation changed: what refers to both of its ends cannot be merged."""
    same = state.at(last).row(key) == state.row(key)
    return set() if same else later.changes(key, last)


def _renamed(
    relation: Relation, changed: Rows, first: int, last: int, state: State, later: Later
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
            found |= later.changes(name_key(end), last) | later.renames(key, last)
    return found


def _listed_otherwise(key: bytes, first: int, last: int, state: State, later: Later) -> Set[int]:
    """Positions at which it changed again where a memory is listed: by which labels, and whether at all."""
    was, became, now = (
        None if row is None else _listing(decode_memory(row))
        for row in (state.at(first - 1).row(key), state.at(last).row(key), state.row(key))
    )
    return later.changes(key, last) if became not in (was, now) else set()


def _listing(memory: Memory) -> tuple[str | None, int | None, tuple[str, ...]]:
    return memory.superseded_by, memory.deleted_us, memory.tags
