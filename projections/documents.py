"""What is searched: the documents that live and die as the log is read.

An entity is found under `name (type)` and the names that it had before, an observation under `entity name: content`, a
memory under all the strings in it, a relation under its type, for the names at its ends are those of entities. A
document never changes: when the name in it changes, it dies and is born anew. Which documents an entry brings into
being or ends depends on the entry and on the state as it stood then, never on the present; so every
projection sees the same documents, whenever it reads the log.

A document bears the label of the thread that wrote what is found under it, whoever renamed or moved that since, and an
entity that of its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeVar, assert_never, get_args

import msgspec

from memlog import events
from memlog.canonical import canonical, strings
from memlog.codec import Entry
from memlog.rows import Entity, Memory, Observation, Relation, decode_observation
from memlog.state import State
from projections.passages import passages

NEVER = 2**63 - 1
"""Where a document that lives has not died: the indexes keep an end for each."""

Kind = Literal["entity", "observation", "memory", "relation"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""In an order that snapshots of vectors rely on."""

WORDED_ONLY: frozenset[Kind] = frozenset({"relation"})
"""Found by words and not by meaning: of few types there are many relations, and a vector of each would say the same."""


NAMES_MAX = 8
"""Of the names that an entity had before, a question may call it by so many, the last ones."""

_FORMERLY = ", formerly "


class Scope(NamedTuple):
    """Which documents are searched: those alive `at` a position (None: now), of one of `kinds`, with every one of
    `labels`, that were born after the position `since`, and belong to none of the things in `but`, entities and
    memories by id."""

    at: int | None = None
    kinds: frozenset[Kind] | None = None
    labels: tuple[str, ...] = ()
    since: int = 0
    but: frozenset[str] = frozenset()


NOW = Scope()


class Document(msgspec.Struct, frozen=True, gc=False):
    """One text under which something is found, living from the position `born` on.

    `ref` is the id of the thing, `entity` the id of the entity it belongs to (or empty), `labels` the exact terms a
    search may be narrowed to, `names` what the entity is called; and of an entity itself, what it, or one that it took
    over, was called before. `written` is there where the thing was written down just then, and not where it changed its
    name or its place.
    """

    kind: Kind
    ref: str
    entity: str
    text: str
    labels: tuple[str, ...]
    born: int
    names: tuple[str, ...] = ()
    written: Written | None = None

    @property
    def passages(self) -> list[str]:
        """What is embedded of it."""
        return passages(self.text, *self.names[:1])


@lru_cache(maxsize=1_000)
def thread_labels(thread: str | None) -> tuple[str, ...]:
    """The label of all that a thread wrote; none where there is no thread."""
    return () if thread is None else (f"thread:{thread}",)


def kind_label(entity_type: str) -> str:
    """The label of the entities of a type, however it is written."""
    return f"is:{canonical(entity_type).casefold()}"


class Written(msgspec.Struct, frozen=True, gc=False):
    """When, in microseconds since 1970, and in which thread of the client's."""

    time_us: int
    thread: str | None


class Born(msgspec.Struct, frozen=True, gc=False):
    document: Document

    @property
    def position(self) -> int:
        return self.document.born


class Died(msgspec.Struct, frozen=True, gc=False):
    """The living document of `ref` ended: it lived in born <= p < position."""

    ref: str
    position: int


Change = Born | Died

Row = TypeVar("Row", Entity, Memory, Observation)

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def changes(entries: Iterable[Entry], state_at: Callable[[int], State]) -> Iterator[Change]:
    """The births and deaths that `entries` bring, in the order of the log."""
    names: dict[str, str] = {}
    """Of entities, by id, as far as they were met: the state is asked once for each."""
    for entry in entries:
        position = entry.position
        match entry.event:
            case events.ObservationAdded() as event:
                entity_id, thread = event.entity_id, entry.thread
                if entity_id not in names:
                    names[entity_id] = _present(state_at(position).entity(entity_id)).name
                ids = entity_id, event.observation_id
                yield Born(
                    _observation(*ids, names[entity_id], event.content, thread, position, entry)
                )
            case events.EntityCreated() as event:
                names[event.entity_id] = event.name
                ids = event.entity_id, event.name
                yield Born(_entity(*ids, event.entity_type, entry.thread, position))
            case events.EntityTypeChanged() as event:
                entity = _present(state_at(position).entity(event.entity_id))
                yield Died(entity.id, position)
                yield Born(_described(entity, position))
            case events.EntityDeleted() as event:
                yield Died(event.entity_id, position)
                # A repair left facts behind, if what took them along was lost, until it began to put that back.
                for left in state_at(position).observations(event.entity_id):
                    yield Died(left.id, position)
            case events.ObservationSuperseded() as event:
                yield Died(event.supersedes, position)
                yield Born(_observed(event.observation_id, state_at(position), position, entry))
            case events.ObservationDeleted() as event:
                yield Died(event.observation_id, position)
            case events.EntityRenamed() | events.EntityMerged() | events.CommandUndone():
                names.clear()
                yield from _differences(position, state_at)
            case events.MemoryMerged():
                yield from _differences(position, state_at)
            case events.ObservationMoved() as event:
                yield Died(event.observation_id, position)
                yield Born(_observed(event.observation_id, state_at(position), position))
            case events.MemoryStored() as event:
                memory = _present(state_at(position).memory(event.memory_id))
                yield Born(_memory(memory, position, entry))
            case events.MemorySuperseded() | events.MemoryDeleted() as event:
                yield Died(event.memory_id, position)
            case events.RelationAdded() as event:
                state = state_at(position)
                yield Born(_relation(event.relation_id, event, entry.thread, state, position))
            case events.RelationDeleted() as event:
                yield Died(event.relation_id, position)
            case (
                events.EntityRated()
                | events.ProjectCreated()
                | events.ProjectArchived()
                | events.ProjectRestored()
                | events.Erased()
            ):
                pass
            case event:
                assert_never(event)


def texts_about(
    ids: Collection[str], entries: Iterable[Entry], state_at: Callable[[int], State]
) -> set[str]:
    """Every text under which entities, their observations, or memories with these ids were ever found, and the passages
    of each; and of an entity the text without former names, for earlier versions of memlog embedded that."""
    every = (each.document for each in changes(entries, state_at) if isinstance(each, Born))
    about = (each for each in every if not {each.ref, each.entity}.isdisjoint(ids))
    found = ((each.text, each.text.partition(_FORMERLY)[0], *each.passages) for each in about)
    return {text for texts in found for text in texts}


def _differences(position: int, state_at: Callable[[int], State]) -> Iterator[Change]:
    """What an entry that works on rows of any kind ended and began: its documents before and after."""
    before, after = state_at(position - 1), state_at(position)
    keys = after.touched(position)
    facts = _facts_found_otherwise(keys, before, after)
    ended, begun = (_touched(keys, facts, state, position) for state in (before, after))
    for ref, document in ended.items():
        if ref not in begun or not _alike(document, begun[ref]):
            yield Died(ref, position)
    for ref, document in begun.items():
        if ref not in ended or not _alike(document, ended[ref]):
            yield Born(document)


def _alike(one: Document, other: Document) -> bool:
    """Whether they are found in the same way, at the same entity: another may have the same name."""
    return (one.entity, one.text, one.labels) == (other.entity, other.text, other.labels)


def _facts_found_otherwise(
    keys: Sequence[bytes], before: State, after: State
) -> dict[str, list[bytes] | None]:
    """By entity with a row among `keys`: the keys of its facts that are there too, in order of birth; None for all its
    facts, where it came, went or got another name, which is in the text of each."""
    facts: dict[str, list[bytes] | None] = {}
    for key in sorted(keys):  # the row of an entity before its facts
        entity_id = _id_in(key)
        if key[:1] == b"E":
            renamed = _name(entity_id, before) != _name(entity_id, after)
            facts[entity_id] = None if renamed else []
        elif key[:1] == b"O":
            some = facts.setdefault(entity_id, [])
            if some is not None:
                some.append(key)
    return facts


def _id_in(key: bytes) -> str:
    return key[1:31].decode("ascii", "replace")


def _name(entity_id: str, state: State) -> str | None:
    entity = state.entity(entity_id)
    return None if entity is None else entity.name


def _touched(
    keys: Sequence[bytes],
    facts: Mapping[str, Sequence[bytes] | None],
    state: State,
    position: int,
) -> dict[str, Document]:
    """The documents, as `state` has them, of all things whose rows the entry changed."""
    found: dict[str, Document] = {}
    for key in keys:
        kind, name = key[:1], _id_in(key)
        if kind == b"M":
            memory = state.memory(name)
            if memory is not None and memory.active:
                found[name] = _memory(memory, position)
        elif kind == b"R":
            relation = state.relation(name)
            if relation is not None:
                found[name] = _relation(name, relation, relation.thread, state, position)
        elif kind in (b"E", b"O") and name not in found:  # once, however many of its facts changed
            found.update(_of_entity(name, facts[name], state, position))
    return found


def _of_entity(
    entity_id: str, facts: Sequence[bytes] | None, state: State, position: int
) -> Iterator[tuple[str, Document]]:
    """An entity and its observations under some keys, or all of them."""
    entity = state.entity(entity_id)
    if entity is None:
        return
    yield entity_id, _described(entity, position)
    if facts is None:
        rows = state.observations(entity_id)
    else:
        stored = map(state.row, facts)
        rows = [decode_observation(row) for row in stored if row is not None]
    for row in rows:
        yield row.id, _told(row, entity.name, position)


def _described(row: Entity, born: int) -> Document:
    return _entity(row.id, row.name, row.entity_type, row.thread, born, row.aliases)


def _entity(
    entity_id: str,
    name: str,
    kind: str,
    thread: str | None,
    born: int,
    aliases: Sequence[str] = (),
) -> Document:
    text, labels = f"{name} ({kind})", (kind_label(kind), *thread_labels(thread))
    if aliases:
        text = f"{text}{_FORMERLY}{', '.join(aliases)}"
    names = (name, *aliases[-NAMES_MAX:])
    return Document("entity", entity_id, entity_id, text, labels, born, names)


def _observed(
    observation_id: str, state: State, position: int, entry: Entry | None = None
) -> Document:
    """The document of a fact as the state has it; `entry` as in `_observation`."""
    row = _present(state.observation(observation_id))
    name = _present(state.entity(row.entity_id)).name
    return _told(row, name, position, entry)


def _told(row: Observation, name: str, born: int, entry: Entry | None = None) -> Document:
    return _observation(row.entity_id, row.id, name, row.content, row.thread, born, entry)


def _observation(
    entity_id: str,
    observation_id: str,
    name: str,
    content: str,
    thread: str | None,
    born: int,
    entry: Entry | None = None,
) -> Document:
    """`entry` is the one that wrote it down, where one did just then."""
    text, labels, written = f"{name}: {content}", thread_labels(thread), _written(entry)
    return Document("observation", observation_id, entity_id, text, labels, born, (name,), written)


def _memory(row: Memory, born: int, entry: Entry | None = None) -> Document:
    """A memory is found under every string in its content, keys included."""
    text = " ".join(strings(row.content))
    labels = (*row.labels, *thread_labels(row.thread))
    return Document("memory", row.id, "", text, labels, born, (), _written(entry))


def _relation(
    relation_id: str,
    told: Relation | events.RelationAdded,
    thread: str | None,
    state: State,
    born: int,
) -> Document:
    """A relation belongs to the entity that it leaves, if there is one."""
    whole = told.relation_type
    parts = _HUMP.sub(" ", whole)
    text = whole if parts == whole else f"{whole} {parts}"
    leaves = state.entity_id_of(told.source) or ""
    return Document("relation", relation_id, leaves, text, thread_labels(thread), born)


def _written(entry: Entry | None) -> Written | None:
    return None if entry is None else Written(entry.time_us, entry.thread)


def _present(row: Row | None) -> Row:
    assert row is not None, "the state as of an entry holds what the entry speaks of"
    return row
