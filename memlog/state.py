"""The state of one project: what is true at a position, read from tables. Only `evolve` writes it.

What stands in them, and under which keys, is `rows`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from memlog.canonical import canonical
from memlog.rows import (
    ARRIVES,
    LEAVES,
    PROJECT_KEY,
    Entity,
    Memory,
    Observation,
    Project,
    Relation,
    Said,
    alike_key,
    decode_entity,
    decode_memory,
    decode_named,
    decode_observation,
    decode_project,
    decode_relation,
    decode_said,
    edge_key,
    entity_key,
    facts_key,
    label_key,
    memory_key,
    name_key,
    observation_index_key,
    relation_key,
    retired_facts_key,
    saying_key,
    text_key,
    thread_key,
    touching_key,
    updated_us,
)
from memlog.storage.tables import Reader, Version, newest_first, place


class Edges:
    """Relations by their ids, in order of creation, each read when it is come to: a hub has thousands, of which an
    answer tells a few. One that has no row is passed over."""

    def __init__(self, ids: Sequence[str], relation: Callable[[str], Relation | None]) -> None:
        self.ids = ids
        self._relation = relation

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Relation]:
        return self._read(self.ids)

    def __reversed__(self) -> Iterator[Relation]:
        return self._read(reversed(self.ids))

    def before(self, relation_id: str) -> Edges:
        """Those that came before one."""
        return Edges(self.ids[: bisect_left(self.ids, relation_id)], self._relation)

    def _read(self, ids: Iterable[str]) -> Iterator[Relation]:
        for relation_id in ids:
            row = self._relation(relation_id)
            if row is not None:
                yield row


class Known(NamedTuple):
    """An entity, what is said of it, and the relations that touch it, each in order of creation."""

    entity: Entity
    observations: list[Observation]
    relations: Edges


class State:
    """Reads of the tables as they stand at one moment. Nothing here raises for what is missing."""

    def __init__(
        self,
        tables: Reader,
        position: int = 0,
        entry_at: Callable[[int], Any] = lambda position: None,
    ) -> None:
        self._tables = tables
        self.position = position
        """The position as of which this is the state, where the reader has to know."""
        self.entry_at = entry_at
        """The log's entry at a position, in the same snapshot, where the state comes with its log."""

    def at(self, position: int) -> State:
        """The state as it stood after `position`."""
        return State(self._tables.at(position), position)

    def row(self, key: bytes) -> bytes | None:
        """A row as it is stored; for those who work on rows of any table."""
        return self._tables.get(key)

    def keys(self, prefix: bytes) -> list[bytes]:
        """Those of the rows under `prefix`."""
        return [key for key, _ in self._tables.under(prefix)]

    def touched(self, position: int) -> list[bytes]:
        """The keys that the entry at `position` changed."""
        return self._tables.touched(position)

    def versions(self, prefix: bytes) -> Iterator[Version]:
        """Every value that rows under `prefix` ever had, whatever moment this is the state of."""
        return self._tables.versions(prefix)

    def project(self) -> Project | None:
        row = self._tables.get(PROJECT_KEY)
        return None if row is None else decode_project(row)

    def entity(self, entity_id: str) -> Entity | None:
        row = self._tables.get(entity_key(entity_id))
        return None if row is None else decode_entity(row)

    def entity_id_of(self, name: str) -> str | None:
        found = self._tables.get(name_key(name))
        return None if found is None else found.decode()

    def entity_named(self, name: str) -> Entity | None:
        """Raises DecodeError where the name is that of an entity that has no row: one of the two is damaged."""
        entity_id = self.entity_id_of(name)
        if entity_id is None:
            return None
        entity = self.entity(entity_id)
        if entity is None:
            raise msgspec.DecodeError(f"the entity {entity_id} has a name and no row")
        return entity

    def current_name(self, name: str) -> str:
        """The name of the entity that has or had this one; the name itself where none has."""
        entity = self.entity_named(name)
        return name if entity is None else entity.name

    def entities(self, after: str = "") -> Iterator[Entity]:
        """Living entities by id, that is in the order of their creation, beyond the id `after`."""
        start = b"E" + after.encode() + b"\0" if after else b""
        for _, row in self._tables.scan(b"E", start):
            yield decode_entity(row)

    def names(self) -> Iterator[str]:
        """Those of the living entities, in the order of `entities`."""
        for _, row in self._tables.scan(b"E"):
            yield decode_named(row).name

    def observations(self, entity_id: str) -> list[Observation]:
        return [decode_observation(row) for _, row in self._tables.under(facts_key(entity_id))]

    def known_of(self, row: Entity) -> Known:
        return Known(row, self.observations(row.id), self.edges_at(text_key(row.name)))

    def known(self, entity_ids: Iterable[str]) -> Iterator[Known | None]:
        """What is known of each of some entities; None for one that does not live. Table by table, which is quicker
        than one after the other."""
        under = self._tables.under
        rows = [self.entity(entity_id) for entity_id in entity_ids]
        living = [row for row in rows if row is not None]
        facts = iter([under(facts_key(row.id)) for row in living])
        edges = iter([under(touching_key(row.name)) for row in living])
        for row in rows:
            if row is None:
                yield None
                continue
            said = [decode_observation(stored) for _, stored in next(facts)]
            yield Known(row, said, self._edges(next(edges)))

    def said(self, entity_id: str) -> list[Said]:
        """What the entity's living observations say, in the order they were added."""
        return [decode_said(row) for _, row in self._tables.under(facts_key(entity_id))]

    def saying(self, entity_id: str, content: str) -> list[Observation]:
        """The entity's living observations that say just this, in the order they were added: one, but for what old
        merges left."""
        listed = self._tables.under(saying_key(entity_id, content))
        if not listed:
            return []
        return self._saying(content, facts_key(entity_id), (key[-8:] for key, _ in listed))

    def has_retired(self, entity_id: str) -> bool:
        """Whether it has retired observations."""
        return next(self._tables.scan(retired_facts_key(entity_id)), None) is not None

    def retired_saying(self, entity_id: str, content: str) -> list[Observation]:
        """Its retired observations that said just this while they were facts of it, in the order they were added."""
        said = self.versions(saying_key(entity_id, content))
        places = sorted({version.key[-8:] for version in said})
        return self._saying(content, retired_facts_key(entity_id), places)

    def _saying(self, content: str, prefix: bytes, places: Iterable[bytes]) -> list[Observation]:
        """Those of the rows at these places under `prefix` that say just this: the key tells it by a hash."""
        stored = [self._tables.get(prefix + each) for each in places]
        rows = [decode_observation(row) for row in stored if row is not None]
        text = canonical(content)
        return [row for row in rows if canonical(row.content) == text]

    def updated_us(self, row: Entity) -> int:
        """When the entity, or what is known of it, was last changed."""
        last = islice(self._tables.back(facts_key(row.id)), 1)
        return updated_us(row, [decode_observation(stored) for _, stored in last])

    def retired_observations(self, entity_id: str) -> list[Observation]:
        rows = self._tables.under(retired_facts_key(entity_id))
        return [decode_observation(row) for _, row in rows]

    def every_observation(self, entity_id: str, after: int = 0) -> Iterator[Observation]:
        """Its observations, living and retired, born beyond a position, in the order they were added; read as they are
        asked for."""
        tables = (facts_key(entity_id), retired_facts_key(entity_id))
        rows = (self._tables.scan(prefix, prefix + place(after + 1)) for prefix in tables)
        for _, row in merge(*rows, key=lambda row: row[0][-8:]):
            yield decode_observation(row)

    def observation(self, observation_id: str) -> Observation | None:
        """The observation with this id, living or retired."""
        key = self._tables.get(observation_index_key(observation_id))
        row = None if key is None else self._tables.get(key)
        return None if row is None else decode_observation(row)

    def relation(self, relation_id: str) -> Relation | None:
        row = self._tables.get(relation_key(relation_id))
        return None if row is None else decode_relation(row)

    def relation_between(self, source: str, relation_type: str, target: str) -> Relation | None:
        """The relation between two names; names that entities had before count as theirs."""
        edge = edge_key(self.current_name(source), relation_type, self.current_name(target))
        relation_id = self._tables.get(edge)
        return None if relation_id is None else self.relation(relation_id.decode())

    def relations(self, after: str = "") -> Iterator[Relation]:
        start = b"R" + after.encode() + b"\0" if after else b""
        for _, row in self._tables.scan(b"R", start):
            yield decode_relation(row)

    def relations_from(self, name: str) -> list[Relation]:
        return [row for row, _ in self._touching(name, ARRIVES)]

    def relations_to(self, name: str) -> list[Relation]:
        return [row for row, _ in self._touching(name, LEAVES)]

    def relations_touching(self, name: str) -> list[Relation]:
        """Relations with at least one end at `name`, each once, in order of creation."""
        return list(self.edges_at(text_key(name)))

    def edges_at(self, key: bytes) -> Edges:
        """The same, for the hash of a name, each read when it is come to."""
        return self._edges(self._tables.under(b"T" + key))

    def _edges(self, listed: Sequence[tuple[bytes, bytes]]) -> Edges:
        """Those of some rows of table T."""
        ids = [key[17:].decode() for key, _ in listed]  # fails where the row is none
        return Edges(ids, self.relation)

    def neighbours(self, name: str) -> Iterator[str]:
        """The names at the other ends of its relations, some more than once; read as they are asked for."""
        for row, end in self._touching(name):
            yield row.source if end == ARRIVES else row.target

    def memory(self, memory_id: str) -> Memory | None:
        """The memory with this id, active or not."""
        row = self._tables.get(memory_key(memory_id))
        return None if row is None else decode_memory(row)

    def memory_like(
        self, memory_type: str, source: str, content: str | dict[str, Any]
    ) -> Memory | None:
        """The newest active memory that says the same, whatever the spelling of its JSON."""
        alike = alike_key(memory_type, source, content)
        found = next(self._tables.scan(alike), None)
        return None if found is None else self.memory(found[0][len(alike) + 8 :].decode())

    def memories(
        self,
        labels: Sequence[str] = (),
        before: int | None = None,
        thread: str | None = None,
    ) -> Iterator[Memory]:
        """Active memories that have all the labels, the newest first; born before a position, and written by a
        thread."""
        prefix = label_key(labels[0]) if labels else b"A"
        if thread is not None:
            prefix = thread_key(thread)
        start = b"" if before is None else prefix + newest_first(before - 1)
        for key, _ in self._tables.scan(prefix, start):
            row = self.memory(key[len(prefix) + 8 :].decode())
            if row is None or (thread is not None and row.thread != thread):
                continue
            if set(labels) <= set(row.labels):
                yield row

    def memory_ids(self, beginning: str) -> Iterator[str]:
        """The ids of all memories, active or not, that begin so, the oldest first."""
        for key, _ in self._tables.scan(memory_key(beginning)):
            yield key[1:].decode()

    def labels(self) -> Iterator[str]:
        """Every label that an active memory has, each once, in no order that means anything.

        Costs two seeks a label however many memories have it: the rows of one are skipped at once.
        """
        start = b"L"
        while (found := next(self._tables.scan(b"L", start), None)) is not None:
            hashed, memory_id = found[0][1:17], found[0][25:].decode()
            row = self.memory(memory_id)
            yield from (each for each in row.labels if text_key(each) == hashed) if row else ()
            start = found[0][:17] + b"\xff" * 9  # beyond every eight bytes and an id behind them

    def _touching(self, name: str, without: bytes = b"") -> Iterator[tuple[Relation, bytes]]:
        """Relations that do something else at `name`, and what."""
        for key, end in self._tables.scan(touching_key(name)):
            row = None if end == without else self.relation(key[17:].decode())
            if row is not None:
                yield row, end
