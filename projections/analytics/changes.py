"""What one entry of the log changed in the state, as far as analytics count it, whatever entry it is.

It asks which rows the entry touched and compares them, before it and after it; it does not ask what
kind of event it was. So an event of tomorrow, or one that takes back others, counts right without
being known here.

A relation counts at each of its ends that lives: as degree where both do, else as broken. When a name
comes to mean an entity, or ceases to, the relations at that name are counted anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from memlog.canonical import characters
from memlog.codec import Entry
from memlog.commands import SAVED_OBSERVATION_MAX
from memlog.rows import (
    ROW_TYPES,
    Entity,
    Memory,
    Observation,
    Relation,
    observation_key,
    text_key,
)
from memlog.state import State
from projections.analytics.tables import Counts, Effect, What

_DECODE: dict[bytes, Callable[[bytes], Any]] = {
    table: msgspec.msgpack.Decoder(kind).decode for table, kind in ROW_TYPES.items()
}
_COMPARED = frozenset({b"E", b"O", b"R", b"M"})
_NAMES = b"N"
_NEW = Counts(id="", born=0, updated_us=0, importance=0)

_Pair = tuple[Any, Any]
"""A row before and after the entry; None where there is none."""


class Change(msgspec.Struct):
    """What is to be added to the counts of an entity."""

    observations: int = 0
    degree: int = 0
    broken: int = 0


class Changes:
    """What the entry at `position` changed. Entities are named by their births."""

    def __init__(self, entry: Entry, state_at: Callable[[int], State]) -> None:
        position = entry.position
        self._before, self._after = _Side(state_at(position - 1)), _Side(state_at(position))
        self._time_us = entry.time_us
        self._sides = ((self._before, -1), (self._after, 1))
        self.entities: dict[int, Entity | None] = {}
        """Those whose own row changed, as they are after the entry."""
        self._facts: set[int] = set()
        """Those whose observations changed."""
        self.counts: dict[int, Change] = defaultdict(Change)
        self.touched: set[int] = set()
        """Those that were changed themselves or in their observations, or got or lost a relation."""
        self.types: dict[tuple[What, str], int] = defaultdict(int)
        self.atomic = 0
        self.relations = 0
        self.waiting: set[bytes] = set()
        """The hashes of names at which relations, that were looked at, now lead to nobody."""
        self.names = False
        """Whether a name came to mean another entity, or none."""
        self._compare(self._after.state.touched(position))

    def effect(self, counted: Callable[[int], Counts | None]) -> Effect:
        """The changes, with what they make of the counts that are known by birth."""
        rows = []
        for born in sorted({*self.entities, *self.counts}):
            old = counted(born)
            new = self._changed(born, old)
            if new != old:
                rows.append((old, new))
        types = [(what, of_type, change) for (what, of_type), change in self.types.items()]
        return Effect(rows, self.touched, types, self.atomic, self.relations, self.waiting)

    def _changed(self, born: int, old: Counts | None) -> Counts | None:
        """The counts of an entity after the entry; None where it does not live."""
        row = self.entities.get(born, old)
        if row is None:
            return None
        base, change = old or _NEW, self.counts[born]
        return Counts(
            id=row.id,
            born=born,
            updated_us=self._updated_us(row),
            importance=row.importance,
            observations=base.observations + change.observations,
            degree=base.degree + change.degree,
            broken=base.broken + change.broken,
        )

    def _updated_us(self, row: Entity | Counts) -> int:
        if row.born not in self.entities and row.born not in self._facts:
            return row.updated_us
        entity = self._after.entity(row.id)
        assert entity is not None, "it lives after the entry"
        if entity.updated_us == self._time_us:  # no fact is newer: they need not be read
            return entity.updated_us
        return self._after.state.updated_us(entity)

    def _compare(self, keys: list[bytes]) -> None:
        relations: dict[str, _Pair | None] = {}
        for key in keys:
            table = key[:1]
            if table == _NAMES:
                self.names = True
                for relation in self._after.state.edges_at(key[1:]):
                    relations.setdefault(relation.id)
            elif table in _COMPARED:
                was, became = (side.state.row(key) for side, _ in self._sides)
                if was != became:
                    pair = _decoded(table, was), _decoded(table, became)
                    if table == b"E":
                        self._entity(pair)
                    elif table == b"O":
                        self._observation(pair)
                    elif table == b"R":
                        relations[key[1:].decode()] = pair
                    else:
                        self._memory(pair)
        for relation_id, found in relations.items():
            self._relation(relation_id, found)

    def _entity(self, pair: tuple[Entity | None, Entity | None]) -> None:
        for row, (_, change) in zip(pair, self._sides, strict=True):
            if row is not None:
                self.entities[row.born] = pair[1]
                self.touched.add(row.born)
                self.types["entity", row.entity_type] += change
                if None in pair:
                    self._facts_left(row.id)

    def _facts_left(self, entity_id: str) -> None:
        """Counts what is said of an entity that comes or goes alone: a repair left facts behind, if what took them
        along was lost, until it began to put that back."""
        before, after = self._before.state, self._after.state
        for fact in after.observations(entity_id):
            key = observation_key(entity_id, fact.born)
            if before.row(key) == after.row(key):
                self._observation((fact, fact))

    def _observation(self, pair: tuple[Observation | None, Observation | None]) -> None:
        """A fact counts while its entity lives."""
        for row, (side, change) in zip(pair, self._sides, strict=True):
            owner = None if row is None else side.entity(row.entity_id)
            if row is not None and owner is not None:
                self.counts[owner.born].observations += change
                self._facts.add(owner.born)
                self.touched.add(owner.born)
                if characters(row.content) <= SAVED_OBSERVATION_MAX:
                    self.atomic += change

    def _memory(self, pair: tuple[Memory | None, Memory | None]) -> None:
        for row, (_, change) in zip(pair, self._sides, strict=True):
            if row is not None:
                self.types[_condition(row), row.memory_type] += change

    def _relation(self, relation_id: str, pair: _Pair | None) -> None:
        """Counts it anew at its ends; `pair` is None where its own row did not change."""
        for place, (side, change) in enumerate(self._sides):
            row = pair[place] if pair else side.state.relation(relation_id)
            if row is None:
                continue
            births, whole = side.ends(row)
            for born in births:
                if whole:
                    self.counts[born].degree += change
                else:
                    self.counts[born].broken += change
            if side is self._after and not whole:
                self.waiting |= side.nobodies(row)
            if pair is not None:
                self.relations += change
                if None in pair:
                    self.touched |= births


class _Side:
    """The state on one side of the entry, each entity read once."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._entities: dict[str, Entity | None] = {}

    def entity(self, entity_id: str) -> Entity | None:
        if entity_id not in self._entities:
            self._entities[entity_id] = self.state.entity(entity_id)
        return self._entities[entity_id]

    def nobodies(self, relation: Relation) -> set[bytes]:
        """The hashes of those of its names that mean nobody."""
        names = (relation.source, relation.target)
        return {text_key(name) for name in names if self.state.entity_id_of(name) is None}

    def ends(self, relation: Relation) -> tuple[set[int], bool]:
        """The births of the entities at its ends, and whether both ends live."""
        ids = [self.state.entity_id_of(name) for name in (relation.source, relation.target)]
        rows = [None if entity_id is None else self.entity(entity_id) for entity_id in ids]
        return {row.born for row in rows if row is not None}, None not in rows


def _decoded(table: bytes, row: bytes | None) -> Any:
    return None if row is None else _DECODE[table](row)


def _condition(row: Memory) -> What:
    if row.deleted_us is not None:
        return "deleted"
    return "active" if row.superseded_by is None else "superseded"
