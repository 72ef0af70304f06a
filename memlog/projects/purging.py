"""What has to be erased so that a thing is as if it had never been: which entries, decided from the log.

An entity goes with all its names, its observations, its relations and the entities that became part of it; a name
that was none's goes with the relations at it; a memory goes alone, and what it had superseded stands again. Entries
that refer to what goes, go. What remains is evolved anew while the log is walked, and an entry that does not fit what
remains goes too: an undo of which nothing is left to undo, or that could no longer be carried out. So the log that is
left replays without exception to a state that knows nothing of what was purged. The text of other facts is not
touched; the plan names those that still speak of it.

Left to others: erasing, which `Project.erase` does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, assert_never

import msgspec

from memlog import events
from memlog.blank import UNSEEN
from memlog.canonical import canonical, plain, strings
from memlog.codec import Entry
from memlog.decisions.fitting import fits
from memlog.decisions.memories import FACT, missing_memory
from memlog.decisions.names import missing_entity
from memlog.decisions.touching import entity_ids, entity_rows, memory_positions, names_at_last
from memlog.errors import InvalidParameter, Refusal, refuse
from memlog.evolve import evolve
from memlog.log import Log
from memlog.rows import touching_key
from memlog.scripts import UNSPACED
from memlog.state import State
from memlog.storage.drafts import Draft

_LETTER = rf"[^\W_{UNSPACED}]"
"""A letter or figure of a script in which words stand apart."""


class Target(msgspec.Struct, frozen=True):
    """What to purge: entities by any of their names, deleted ones too, or names that only relations have; and memories
    by id."""

    entities: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """`positions` to erase, how many of which kind; the ids and names that go. `mentions` are positions of entries
    that stay and whose text holds a name that goes."""

    positions: frozenset[int]
    kinds: dict[str, int]
    names: tuple[str, ...]
    entities: frozenset[str]
    memories: frozenset[str]
    mentions: tuple[int, ...]


def plan(log: Log, state: State, target: Target, left: Draft) -> Plan:
    """The plan for a log and its present state; in `left`, which is empty before, the state that will be.

    Raises EntityNotFound or MemoryNotFound.
    """
    if not target.entities and not target.memories:
        raise InvalidParameter(
            "There is nothing to purge", suggestion="Name an entity or the id of a memory."
        )
    purge = _Purge(state, _entities(target, state), target, left)
    for entry in log.read():
        purge.see(entry)
    return purge.plan()


# -- what goes


def _entities(target: Target, state: State) -> frozenset[str]:
    """The ids of the entities that go: the living by their present names, deleted ones by any name.

    With each go the entities that are not there any more and bore one of its names: those that were merged
    into it, and those that were deleted before it took the name.
    """
    missing: list[Refusal] = []
    wanted: list[str] = []
    for name in target.entities:
        found = _bearers(name, state)
        wanted += found
        if not found and not _is_loose_end(name, state):
            missing.append(missing_entity(name, "entity", state))
    for memory_id in target.memories:
        if not memory_positions(memory_id, state):
            missing.append(missing_memory(memory_id, "memory", state))
    refuse(missing)
    found_ids: set[str] = set()
    while wanted:
        entity_id = wanted.pop()
        if entity_id not in found_ids:
            found_ids.add(entity_id)
            for name in names_at_last(entity_id, state):
                bore = entity_ids(name, state)
                wanted += [each for each in bore if state.entity(each) is None]
    return frozenset(found_ids)


def _bearers(name: str, state: State) -> list[str]:
    living = state.entity_id_of(name)
    return [
        entity_id
        for entity_id in entity_ids(name, state)
        if entity_id == living or state.entity(entity_id) is None
    ]


def _is_loose_end(name: str, state: State) -> bool:
    """Whether a relation was ever added at this name while no entity had it."""
    begun = {each.since for each in state.versions(touching_key(name))}
    return any(
        relation.born == position
        for position in sorted(begun)
        if state.at(position - 1).entity_id_of(name) is None
        for relation in state.at(position).relations_touching(name)
    )


def _names(entity_ids: Iterable[str], state: State) -> dict[str, str]:
    """Every name that the entities ever had, by its canonical form."""
    names: dict[str, str] = {}
    for entity_id in entity_ids:
        for row in entity_rows(entity_id, state):
            names |= {canonical(name): name for name in (row.name, *row.aliases)}
    return names


def _texts(event: events.Event) -> list[Any]:
    """What somebody wrote: neither the ids of an event nor its numbers, nor what every fact has as its source."""
    if isinstance(event, events.MemoryStored) and event.memory_type == FACT:
        return [event.content]
    said = (getattr(event, field) for field in _written(type(event)))
    return [each for each in said if not isinstance(each, (int, float))]


@cache
def _written(kind: type[events.Event]) -> tuple[str, ...]:
    """Its fields but for ids, in which a short name may stand by chance."""
    return tuple(each.name for each in msgspec.structs.fields(kind) if each.type != events.Id)


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """What finds one of the names in a folded text: as a word, where words end with a space or a sign."""
    ways = []
    for name in filter(None, map(_folded, names)):
        begins = rf"(?<!{_LETTER})" if re.match(_LETTER, name) else ""
        ends = rf"(?!{_LETTER})" if re.match(_LETTER, name[-1:]) else ""
        ways.append(f"{begins}{re.escape(name)}{ends}")
    return re.compile("|".join(ways)) if ways else None


def _folded(text: str) -> str:
    return " ".join(UNSEEN.sub("", plain(text)).split())


class _Purge:
    """A walk through the log, deciding for each entry whether it goes."""

    def __init__(self, state: State, entities: frozenset[str], target: Target, left: Draft) -> None:
        self._state = state
        self._entities = entities
        self._memories = frozenset(target.memories)
        self._names = {canonical(name): name for name in target.entities}
        self._names |= _names(entities, state)
        self._named = _any_of(self._names)
        self._left = left
        self._positions: set[int] = set()
        self._gone: set[int] = set()
        """The same, and what was erased before."""
        self._kinds: Counter[str] = Counter()
        self._mentions: list[int] = []

    def see(self, entry: Entry) -> None:
        if isinstance(entry.event, events.Erased):
            self._gone.add(entry.position)
            return
        left = self._left.timeline
        if self._goes(entry) or not fits(entry.event, State(left), self._gone):
            self._positions.add(entry.position)
            self._gone.add(entry.position)
            self._kinds[events.name_of(entry.event)] += 1
        else:
            evolve(left, entry)
            self._left.changed()
            self._look_for_names(entry.position, entry.event)

    def plan(self) -> Plan:
        return Plan(
            frozenset(self._positions),
            dict(self._kinds.most_common()),
            tuple(sorted(self._names.values())),
            self._entities,
            self._memories,
            tuple(self._mentions),
        )

    def _look_for_names(self, position: int, event: events.Event) -> None:
        said = strings(msgspec.to_builtins(_texts(event)))
        if self._named is not None and any(map(self._named.search, map(_folded, said))):
            self._mentions.append(position)

    def _goes(self, entry: Entry) -> bool:
        """Whether the entry says something of what goes. One that takes back what somebody said fits no more once that
        is gone."""
        match entry.event:
            case (
                events.EntityCreated(entity_id=entity_id)
                | events.EntityTypeChanged(entity_id=entity_id)
                | events.EntityDeleted(entity_id=entity_id)
                | events.EntityRated(entity_id=entity_id)
                | events.EntityRenamed(entity_id=entity_id)
                | events.ObservationAdded(entity_id=entity_id)
                | events.ObservationMoved(entity_id=entity_id)
            ):
                return entity_id in self._entities
            case events.EntityMerged(entity_id=gone, into=into):
                return gone in self._entities or into in self._entities
            case events.ObservationSuperseded(supersedes=old):
                return self._owned(old, entry.position)
            case events.RelationAdded(source=source, target=target):
                return any(self._meant(name, entry.position) for name in (source, target))
            case (
                events.MemoryStored(memory_id=memory_id)
                | events.MemoryMerged(memory_id=memory_id)
                | events.MemoryDeleted(memory_id=memory_id)
            ):
                return memory_id in self._memories
            case events.MemorySuperseded(memory_id=memory_id, superseded_by=superseded_by):
                return memory_id in self._memories or superseded_by in self._memories
            case (
                events.ObservationDeleted()
                | events.RelationDeleted()
                | events.CommandUndone()
                | events.ProjectCreated()
                | events.ProjectArchived()
                | events.ProjectRestored()
                | events.Erased()
            ):
                return False
            case event:
                assert_never(event)

    def _owned(self, observation_id: str, position: int) -> bool:
        """Whether the observation was, at that position, one of an entity that goes."""
        row = self._state.at(position - 1).observation(observation_id)
        return row is not None and row.entity_id in self._entities

    def _meant(self, name: str, position: int) -> bool:
        """Whether the name, at that position, was that of an entity that goes, or of none as yet."""
        if canonical(name) not in self._names:
            return False
        meant = self._state.at(position - 1).entity_id_of(name)
        return meant is None or meant in self._entities
