"""What is different between two states of one project: things that came, went, or became other.

Pure, and about what a reader would notice: a version that took another's place is one change, and times
of last change, versions and positions are none. Costs one reading of both states, and memory for what is different
between them only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal, TypeVar

import msgspec

from memlog.canonical import text_of
from memlog.rows import Entity, Memory, Observation, Relation
from memlog.state import State

Kind = Literal["entity", "observation", "relation", "memory"]
How = Literal["added", "removed", "changed"]


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is different. `was` and `now` say in words what it was and is; None for not there."""

    kind: Kind
    how: How
    id: str
    was: str | None = None
    now: str | None = None


Thing = TypeVar("Thing", Entity, Observation, Relation, Memory)
Versioned = TypeVar("Versioned", Observation, Memory)


_ID: Callable[[Entity], str] = attrgetter("id")

_UNTOLD = frozenset(
    {"id", "created_us", "updated_us", "born", "thread", "version", "supersedes"}
    | {"superseded_by", "deleted_us"}
)
"""What is no difference to a reader, or is one of another kind: all else that a row holds is told."""

_IN_WORDS: dict[Kind, frozenset[str]] = {
    "entity": frozenset({"name", "entity_type"}),
    "observation": frozenset({"entity_id", "content"}),
    "relation": frozenset({"source", "relation_type", "target"}),
    "memory": frozenset({"memory_type", "content"}),
}
"""What the words for a row say already."""

_LISTED: dict[str, Callable[[Sequence[str]], str]] = {
    "aliases": lambda names: f"also {', '.join(names)}" if names else "no other names",
    "tags": lambda tags: f"tags {', '.join(tags)}" if tags else "no tags",
}


def differences(before: State, after: State) -> Iterator[Difference]:
    """From `before` to `after`: entities, observations, relations, memories, each by order of birth."""
    old, new = _unequal(before, after, State.entities, State.entity)
    yield from _compared("entity", old, new, _entity_in_words, _entity_in_words)
    facts, facts_now = _unequal_facts(before, after)
    yield from _compared(
        "observation",
        facts,
        _under_first_ids(facts_now, facts, after.observation),
        lambda row: _observation_in_words(row, before),
        lambda row: _observation_in_words(row, after),
    )
    edges, edges_now = _unequal(before, after, State.relations, State.relation)
    of_edge = attrgetter("text")
    yield from _compared("relation", edges, edges_now, of_edge, of_edge)
    memories, memories_now = _unequal(before, after, State.memories, State.memory)
    memories_now = _under_first_ids(memories_now, memories, after.memory)
    yield from _compared("memory", memories, memories_now, _memory_in_words, _memory_in_words)


def _unequal(
    before: State,
    after: State,
    every: Callable[[State], Iterable[Thing]],
    find: Callable[[State, str], Thing | None],
) -> tuple[dict[str, Thing], dict[str, Thing]]:
    """The rows of either that the other does not have just so, by id."""
    old = {row.id: row for row in every(before) if find(after, row.id) != row}
    new = {row.id: row for row in every(after) if find(before, row.id) != row}
    return old, new


def _unequal_facts(
    before: State, after: State
) -> tuple[dict[str, Observation], dict[str, Observation]]:
    """The same of what is said of the entities, entity by entity."""
    old: dict[str, Observation] = {}
    new: dict[str, Observation] = {}
    for entity in _either(before.entities(), after.entities()):
        said, said_now = _facts(entity, before), _facts(entity, after)
        old |= {each: row for each, row in said.items() if said_now.get(each) != row}
        new |= {each: row for each, row in said_now.items() if said.get(each) != row}
    return old, new


def _either(before: Iterable[Entity], after: Iterable[Entity]) -> Iterator[str]:
    """The ids of those that are in one of two, each once; both are in order of id."""
    for entity_id, _ in groupby(merge(*(map(_ID, each) for each in (before, after)))):
        yield entity_id


def _facts(entity_id: str, state: State) -> dict[str, Observation]:
    lives = state.entity(entity_id) is not None
    return {row.id: row for row in state.observations(entity_id)} if lives else {}


def _under_first_ids(
    new: Mapping[str, Versioned],
    old: Mapping[str, Versioned],
    find: Callable[[str], Versioned | None],
) -> dict[str, Versioned]:
    """The new rows, those that took the place of an old one under the old one's id."""
    moved = {}
    for row in new.values():
        first: Versioned | None = row
        while first is not None and first.id not in old and first.supersedes is not None:
            first = find(first.supersedes)
        took_over = first is not None and first.id in old and first.id not in new
        moved[first.id if took_over and first is not None else row.id] = row
    return moved


def _compared(
    kind: Kind,
    old: Mapping[str, Thing],
    new: Mapping[str, Thing],
    old_in_words: Callable[[Thing], str],
    new_in_words: Callable[[Thing], str],
) -> Iterator[Difference]:
    for thing_id in sorted({*old, *new}):
        was, now = old.get(thing_id), new.get(thing_id)
        if was is None and now is not None:
            yield Difference(kind, "added", thing_id, None, new_in_words(now))
        elif was is not None and now is None:
            yield Difference(kind, "removed", thing_id, old_in_words(was), None)
        elif was is not None and now is not None and _told(was) != _told(now):
            said = old_in_words(was), new_in_words(now)
            if said[0] == said[1]:
                said = _with_the_rest(kind, was, said[0]), _with_the_rest(kind, now, said[1])
            yield Difference(kind, "changed", thing_id, *said)


def _told(row: Any) -> dict[str, Any]:
    """What a reader is told of a row."""
    return {name: getattr(row, name) for name in row.__struct_fields__ if name not in _UNTOLD}


def _with_the_rest(kind: Kind, row: Any, said: str) -> str:
    """For rows whose words are the same on both sides: whatever else they hold."""
    held = {name: value for name, value in _told(row).items() if name not in _IN_WORDS[kind]}
    lists = [_LISTED[name](held.pop(name)) for name in _LISTED if name in held]
    others = (
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in held.items()
    )
    return ", ".join((said, *lists, *others))


def _entity_in_words(row: Entity) -> str:
    return f"{row.name} ({row.entity_type})"


def _observation_in_words(row: Observation, state: State) -> str:
    entity = state.entity(row.entity_id)
    assert entity is not None, "only what is said of living entities is compared"
    return f"{entity.name}: {row.content}"


def _memory_in_words(row: Memory) -> str:
    return f"{row.memory_type}: {text_of(row.content)}"
