"""What is stored of a state: the rows of its tables, and the keys under which they stand.

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

Who puts rows there is `evolve`; who reads them, as a rule, `State`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from memlog.canonical import canonical, canonical_json
from memlog.storage.tables import newest_first, place

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

    @property
    def text(self) -> str:
        """Who does what to whom."""
        return f"{self.source} {self.relation_type} {self.target}"


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


def labels_of(memory_type: str | None, tags: Iterable[str]) -> tuple[str, ...]:
    """Those that a memory of this type with all of these tags has; the rarest kind first, tags."""
    found = tuple(f"tag:{tag}" for tag in tags)
    return (*found, type_label(memory_type)) if memory_type else found


encode_row = msgspec.msgpack.Encoder().encode
decode_project = msgspec.msgpack.Decoder(Project).decode
decode_entity = msgspec.msgpack.Decoder(Entity).decode
decode_named = msgspec.msgpack.Decoder(Named).decode
decode_observation = msgspec.msgpack.Decoder(Observation).decode
decode_said = msgspec.msgpack.Decoder(Said).decode
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


def facts_key(entity_id: str) -> bytes:
    """The beginning of the keys of its living observations."""
    return b"O" + entity_id.encode()


def observation_key(entity_id: str, born: int) -> bytes:
    return facts_key(entity_id) + place(born)


def retired_facts_key(entity_id: str) -> bytes:
    """The beginning of the keys of its retired observations."""
    return b"H" + entity_id.encode()


def retired_key(entity_id: str, born: int) -> bytes:
    return retired_facts_key(entity_id) + place(born)


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
