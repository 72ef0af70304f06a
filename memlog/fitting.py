"""Whether an event can happen in what is left of a state, where entries before it were erased or lost."""

from __future__ import annotations

from memlog import events
from memlog.depending import Later, blockers
from memlog.state import State


def fits(event: events.Event, left: State, gone: set[int]) -> bool:
    """Whether what the event speaks of is there, in what is left when the entries at `gone` are."""
    match event:
        case events.EntityCreated(name=name):
            return left.entity_id_of(name) is None
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
            return _belongs(observation_id, left) and _lives(entity_id, left)
        case events.RelationAdded():
            between = left.relation_between(event.source, event.relation_type, event.target)
            return between is None
        case events.RelationDeleted(relation_id=relation_id):
            return left.relation(relation_id) is not None
        case events.MemoryMerged(memory_id=memory_id) | events.MemoryDeleted(memory_id=memory_id):
            return left.memory(memory_id) is not None
        case events.MemorySuperseded(memory_id=memory_id, superseded_by=superseded_by):
            return None not in (left.memory(memory_id), left.memory(superseded_by))
        case events.CommandUndone(first=first, last=last):
            whole = gone.issuperset(range(first, last + 1))
            return not whole and not blockers(first, last, left, Later(left))
        case _:
            return True


def _lives(entity_id: str, left: State) -> bool:
    return left.entity(entity_id) is not None


def _belongs(observation_id: str, left: State) -> bool:
    row = left.observation(observation_id)
    return row is not None and _lives(row.entity_id, left)
