"""The state of one project: what is true at a position, read from tables. Only `evolve` writes it.

Tables, by first byte of the key (text keys are hashed to 16 bytes, so that any name fits):

    P                                  the project itself
    E entity id                        living entities
    N hash(name)                       name -> entity id
    O entity id, position of birth     living observations, in the order they were added
    C entity id, hash(content), birth  the same by what they say, in eight bytes
    I observation id                   -> its key under O or H
    H entity id, position of birth     retired observations: superseded or deleted
    R relation id                      living relations
    K hash(from, type, to)             -> relation id
    T hash(name), relation id          relations that touch a name, and which of their ends it is
    M memory id                        all memories: active, superseded and deleted
    A newest first, memory id          active memories
    L hash(label), newest first, id    active memories with a type or a tag
    B hash(thread), newest first, id   active memories that a thread wrote
    X hash(content), newest first, id  active memories by type, source and content, as one hash
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec

from memlog.canonical import canonical, canonical_json
from memlog.storage.tables import Reader, Version, newest_first, place

Status = Literal["active", "archived"]


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Base of what is stored in a table; changing a row's fields means a new STATE_VERSION."""


class Project(Row, frozen=True):
    id: str
    name: str
    description: str
    status: Status
    created_us: int
    updated_us: int


class Named(Row, frozen=True):
    """The beginning of an `Entity`, where no more is asked for."""

    id: str
    name: str


class Entity(Named, frozen=True):
    entity_type: str
    created_us: int
    updated_us: int
    """When it was last changed, the coming of new facts aside; `updated_us` (the function) knows of these."""
    born: int
    thread: str | None
    confidence: float
    importance: float
    aliases: tuple[str, ...] = ()
    """Names it had before, under which it is still found."""


class Said(Row, frozen=True):
    """The beginning of an `Observation`, where no more is asked for."""

    id: str
    entity_id: str
    content: str


class Observation(Said, frozen=True):
    created_us: int
    born: int
    version: int
    supersedes: str | None
    superseded_by: str | None
    deleted_us: int | None
    thread: str | None
    confidence: float
    importance: float

    @property
    def living(self) -> bool:
        return self.superseded_by is None and self.deleted_us is None


class Relation(Row, frozen=True):
    id: str
    source: str
    target: str
    relation_type: str
    created_us: int
    born: int
    thread: str | None
    importance: float


class Memory(Row, frozen=True):
    """A fact or a record. `content` is a text or a JSON object."""

    id: str
    memory_type: str
    content: str | dict[str, Any]
    source: str
    confidence: float
    tags: tuple[str, ...]
    created_us: int
    updated_us: int
    born: int
    thread: str | None
    supersedes: str | None
    superseded_by: str | None
    deleted_us: int | None

    @property
    def active(self) -> bool:
        return self.superseded_by is None and self.deleted_us is None

    @property
    def labels(self) -> tuple[str, ...]:
        """The exact terms it can be listed and searched by."""
        return (type_label(self.memory_type), *(f"tag:{tag}" for tag in self.tags))


def type_label(memory_type: str) -> str:
    """One term for a type, whatever its Unicode form."""
    return f"type:{canonical(memory_type)}"


encode_row = msgspec.msgpack.Encoder().encode
_project = msgspec.msgpack.Decoder(Project).decode
decode_entity = msgspec.msgpack.Decoder(Entity).decode
_decode_named = msgspec.msgpack.Decoder(Named).decode
decode_observation = msgspec.msgpack.Decoder(Observation).decode
_decode_said = msgspec.msgpack.Decoder(Said).decode
decode_relation = msgspec.msgpack.Decoder(Relation).decode
decode_memory = msgspec.msgpack.Decoder(Memory).decode

ROW_TYPES: dict[bytes, type[Row]] = {
    b"P": Project,
    b"E": Entity,
    b"O": Observation,
    b"H": Observation,
    b"R": Relation,
    b"M": Memory,
}
"""What the rows of a table are; tables not listed hold plain references."""

PROJECT_KEY = b"P"
LEAVES, ARRIVES, LOOP = b"\x01", b"\x02", b"\x03"
"""What a relation does at a name that it touches."""


def updated_us(row: Entity, facts: Sequence[Observation]) -> int:
    """When an entity was last changed, or the last of its living observations, in order of birth, was added.

    An observation that is added leaves the entity's row alone: it is the commonest thing to happen.
    """
    return max(row.updated_us, facts[-1].created_us) if facts else row.updated_us


@lru_cache(8_192)
def text_key(*parts: str) -> bytes:
    """Sixteen bytes for a few short texts, such as a name, which is looked up several times in a row."""
    return hashed(*parts)


def hashed(*parts: str) -> bytes:
    """Sixteen bytes for any texts: BLAKE2b over their canonical forms, each with its length."""
    data = [canonical(part).encode() for part in parts]
    whole = b"".join([len(each).to_bytes(8, "big") + each for each in data])
    return blake2b(whole, digest_size=16).digest()


def entity_key(entity_id: str) -> bytes:
    return b"E" + entity_id.encode()


def name_key(name: str) -> bytes:
    return b"N" + text_key(name)


def observation_key(entity_id: str, born: int) -> bytes:
    return b"O" + entity_id.encode() + place(born)


def retired_key(entity_id: str, born: int) -> bytes:
    return b"H" + entity_id.encode() + place(born)


def saying_key(entity_id: str, content: str) -> bytes:
    """With the `place` of its birth behind it, that of an observation that says so, most likely."""
    said = blake2b(canonical(content).encode(), digest_size=8).digest()
    return b"C" + entity_id.encode() + said


def observation_index_key(observation_id: str) -> bytes:
    return b"I" + observation_id.encode()


def relation_key(relation_id: str) -> bytes:
    return b"R" + relation_id.encode()


def edge_key(source: str, relation_type: str, target: str) -> bytes:
    return b"K" + text_key(source, relation_type, target)


def touching_key(name: str, relation_id: str = "") -> bytes:
    return b"T" + text_key(name) + relation_id.encode()


def touching(row: Relation) -> dict[bytes, bytes]:
    """The keys under which a relation is found at its ends, and what stands there; one where it is a loop."""
    leaving, arriving = (touching_key(name, row.id) for name in (row.source, row.target))
    return {leaving: LOOP} if leaving == arriving else {leaving: LEAVES, arriving: ARRIVES}


def memory_key(memory_id: str) -> bytes:
    return b"M" + memory_id.encode()


def alike_key(memory_type: str, source: str, content: str | dict[str, Any]) -> bytes:
    """With `newest_first` of its birth and its id behind it, that of a memory that says so."""
    return b"X" + hashed(memory_type, source, canonical_json(content))


def label_key(label: str) -> bytes:
    """The beginning of the keys of those that bear it."""
    return b"L" + text_key(label)


def thread_key(thread: str) -> bytes:
    return b"B" + text_key(thread)


def listed_keys(row: Memory) -> list[bytes]:
    """The keys under which a memory is found while it is active."""
    prefixes = [b"A", *map(label_key, row.labels)]
    if row.thread is not None:
        prefixes.append(thread_key(row.thread))
    prefixes.append(alike_key(row.memory_type, row.source, row.content))
    place_in_order = newest_first(row.born) + row.id.encode()
    return [prefix + place_in_order for prefix in prefixes]


class Known(NamedTuple):
    """An entity, what is said of it, and the relations that touch it, each in order of creation."""

    entity: Entity
    observations: list[Observation]
    relations: list[Relation]


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
        return None if row is None else _project(row)

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
            yield _decode_named(row).name

    def observations(self, entity_id: str) -> list[Observation]:
        prefix = b"O" + entity_id.encode()
        return [decode_observation(row) for _, row in self._tables.under(prefix)]

    def known_of(self, row: Entity) -> Known:
        return Known(row, self.observations(row.id), self.relations_touching(row.name))

    def known(self, entity_ids: Iterable[str]) -> Iterator[Known | None]:
        """What is known of each of some entities; None for one that does not live. Table by table, which is quicker
        than one after the other."""
        under = self._tables.under
        rows = [self.entity(entity_id) for entity_id in entity_ids]
        living = [row for row in rows if row is not None]
        facts = iter([under(b"O" + row.id.encode()) for row in living])
        edges = iter([under(touching_key(row.name)) for row in living])
        for row in rows:
            if row is None:
                yield None
                continue
            said = [decode_observation(stored) for _, stored in next(facts)]
            yield Known(row, said, self._relations_listed(next(edges)))

    def said(self, entity_id: str) -> list[Said]:
        """What the entity's living observations say, in the order they were added."""
        return [_decode_said(row) for _, row in self._tables.under(b"O" + entity_id.encode())]

    def saying(self, entity_id: str, content: str) -> list[Observation]:
        """The entity's living observations that say just this, in the order they were added: one, but for what old
        merges left."""
        listed = self._tables.under(saying_key(entity_id, content))
        if not listed:
            return []
        living, text = b"O" + entity_id.encode(), canonical(content)
        stored = [self._tables.get(living + key[-8:]) for key, _ in listed]
        rows = [decode_observation(row) for row in stored if row is not None]
        return [row for row in rows if canonical(row.content) == text]

    def updated_us(self, row: Entity) -> int:
        """When the entity, or what is known of it, was last changed."""
        facts = self._tables.under(b"O" + row.id.encode())
        return updated_us(row, [decode_observation(stored) for _, stored in facts[-1:]])

    def retired_observations(self, entity_id: str) -> list[Observation]:
        prefix = b"H" + entity_id.encode()
        return [decode_observation(row) for _, row in self._tables.under(prefix)]

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
        return self.relations_at(text_key(name))

    def relations_at(self, key: bytes) -> list[Relation]:
        """The same, for the hash of a name."""
        return self._relations_listed(self._tables.under(b"T" + key))

    def _relations_listed(self, listed: Sequence[tuple[bytes, bytes]]) -> list[Relation]:
        """Those of some rows of table T."""
        ids = [key[17:].decode() for key, _ in listed]  # fails where the row is none
        return [row for relation_id in ids if (row := self.relation(relation_id)) is not None]

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
