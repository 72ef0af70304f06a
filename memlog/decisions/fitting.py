"""Whether an event can happen in what is left of a state, where entries before it were erased or lost, and what has to
happen first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from memlog import events
from memlog.canonical import canonical
from memlog.decisions.depending import Later, Stretch
from memlog.decisions.merging import handed_over, without_doubles
from memlog.state import State


def fits(event: events.Event, left: State, gone: set[int]) -> bool:
    """Whether what the event speaks of is there, in what is left when the entries at `gone` are."""
    match event:
        case events.EntityCreated(entity_id=entity_id, name=name):
            return not _lives(entity_id, left) and left.entity_id_of(name) is None
        case events.EntityRenamed(entity_id=entity_id, name=name):
            return _lives(entity_id, left) and left.entity_id_of(name) in (None, entity_id)
        case events.EntityMerged(entity_id=entity_id, into=into):
            return _lives(entity_id, left) and _lives(into, left)
        case (
            events.EntityTypeChanged(entity_id=entity_id)
            | events.EntityDeleted(entity_id=entity_id)
            | events.EntityRated(entity_id=entity_id)
            | events.ObservationAdded(entity_id=entity_id)
        ):
            return _lives(entity_id, left)
        case (
            events.ObservationSuperseded(supersedes=observation_id)
            | events.ObservationDeleted(observation_id=observation_id)
        ):
            return _belongs(observation_id, left)
        case events.ObservationMoved(observation_id=observation_id, entity_id=entity_id):
            row = left.observation(observation_id)
            living = row is not None and row.living  # what a lost undo brought back is not
            return living and _belongs(observation_id, left) and _lives(entity_id, left)
        case events.RelationAdded():
            between = left.relation_between(event.source, event.relation_type, event.target)
            return between is None
        case events.RelationDeleted(relation_id=relation_id):
            return left.relation(relation_id) is not None
        case events.MemoryMerged(memory_id=memory_id):
            memory = left.memory(memory_id)
            return memory is not None and memory.active  # likewise
        case events.MemoryDeleted(memory_id=memory_id):
            return left.memory(memory_id) is not None
        case events.MemorySuperseded(memory_id=memory_id, superseded_by=superseded_by):
            successor = left.memory(superseded_by)
            newest = successor is not None and successor.superseded_by is None
            return newest and left.memory(memory_id) is not None  # of no circle, then
        case events.CommandUndone(first=first, last=last):
            whole = gone.issuperset(range(first, last + 1))
            return not whole and not Stretch(first, last, Later(left)).blockers()
        case (
            events.MemoryStored()
            | events.ProjectCreated()
            | events.ProjectArchived()
            | events.ProjectRestored()
        ):
            return True
        case _:
            assert_never(event)


def missing_before(event: events.Event, left: State) -> Iterator[events.Event]:
    """What a command said before an event that fits, and what is left does not know of: without it, facts stay at an
    entity that goes, and two relations become one and the same."""
    match event:
        case events.EntityDeleted(entity_id=entity_id):
            for row in left.said(entity_id):
                yield events.ObservationDeleted(row.id)
        case events.EntityMerged(entity_id=entity_id, into=into):
            entity, other = left.entity(entity_id), left.entity(into)
            if entity is not None and other is not None:
                yield from handed_over(entity, other, left)
        case events.EntityRenamed(entity_id=entity_id, name=name):
            entity = left.entity(entity_id)
            if entity is not None:
                yield from without_doubles(entity.name, name, left)


def by_present_names(event: events.Event, left: State) -> events.Event:
    """The same, where a relation is added to a name that is a former one, for what gave it back is gone: relations are
    at present names."""
    match event:
        case events.RelationAdded(source=source, target=target):
            ends = [(name, left.current_name(name)) for name in (source, target)]
            named = [now if canonical(now) != canonical(was) else was for was, now in ends]
            return msgspec.structs.replace(event, source=named[0], target=named[1])
        case _:
            return event


def may_precede(event: events.Event, then: State, now: State) -> bool:
    """Whether what was missing `now` may have happened `then`: what it speaks of was there, and is as it was."""
    match event:
        case events.ObservationMoved(observation_id=observation_id, entity_id=entity_id):
            same = then.observation(observation_id) == now.observation(observation_id)
            return same and _lives(entity_id, then)
        case events.ObservationDeleted(observation_id=observation_id):
            return then.observation(observation_id) == now.observation(observation_id)
        case events.RelationDeleted(relation_id=relation_id):
            return then.relation(relation_id) == now.relation(relation_id)
        case _:
            return False


def _lives(entity_id: str, left: State) -> bool:
    return left.entity(entity_id) is not None


def _belongs(observation_id: str, left: State) -> bool:
    row = left.observation(observation_id)
    return row is not None and _lives(row.entity_id, left)
