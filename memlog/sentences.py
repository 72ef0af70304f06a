"""Events in plain words, for people and models who read the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from memlog import events
from memlog.canonical import text_of
from memlog.codec import Entry
from memlog.state import State

SHOWN_CHARACTERS_MAX = 200
CUT = "…'"
"""How a content ends that is longer."""


def sentence(entry: Entry, state_at: Callable[[int], State]) -> str:
    """What the entry says, with names as they stood when it was written."""
    before = state_at(entry.position - 1)
    match entry.event:
        case events.ProjectCreated() as event:
            return f"project '{event.name}' was created"
        case events.ProjectArchived():
            return "the project was archived"
        case events.ProjectRestored():
            return "the project was restored"
        case events.EntityCreated() as event:
            return f"'{event.name}' ({event.entity_type}) was created"
        case events.EntityTypeChanged() as event:
            name = _name(event.entity_id, before)
            return f"{name} became a {event.entity_type}"
        case events.EntityDeleted() as event:
            return f"{_name(event.entity_id, before)} was deleted"
        case events.ObservationAdded() as event:
            return f"{_name(event.entity_id, before)}: '{event.content}' was added"
        case events.ObservationSuperseded() as event:
            owner, old = _observation(event.supersedes, before)
            return f"{owner}: '{old}' was superseded by '{event.content}'"
        case events.ObservationDeleted() as event:
            owner, old = _observation(event.observation_id, before)
            return f"{owner}: '{old}' was deleted"
        case events.RelationAdded() as event:
            edge = f"'{event.source}' {event.relation_type} '{event.target}'"
            return f"relation {edge} was added"
        case events.RelationDeleted() as event:
            row = before.relation(event.relation_id)
            edge = (
                f"'{row.source}' {row.relation_type} '{row.target}'" if row else event.relation_id
            )
            return f"relation {edge} was deleted"
        case events.EntityRated() as event:
            name = _name(event.entity_id, before)
            return f"{name} has importance {event.importance:g}, confidence {event.confidence:g}"
        case events.EntityRenamed() as event:
            return f"{_name(event.entity_id, before)} was renamed to '{event.name}'"
        case events.EntityMerged() as event:
            into = _name(event.into, before)
            return f"{_name(event.entity_id, before)} was merged into {into}"
        case events.ObservationMoved() as event:
            owner, text = _observation(event.observation_id, before)
            return f"{owner}: '{text}' was moved to {_name(event.entity_id, before)}"
        case events.CommandUndone() as event:
            return f"what {positions(event.first, event.last)} changed was undone"
        case events.MemoryStored() as event:
            return f"{event.memory_type} {_quoted(event.content)} was stored"
        case events.MemoryMerged() as event:
            return f"{_memory(event.memory_id, before)} was saved again"
        case events.MemorySuperseded() as event:
            old, new = (_memory(each, before) for each in (event.memory_id, event.superseded_by))
            return f"{old} was superseded by {new}"
        case events.MemoryDeleted() as event:
            return f"{_memory(event.memory_id, before)} was deleted"
        case events.Erased(lost=lost):
            return f"what happened here was {'lost with a damage' if lost else 'erased for good'}"
        case event:
            assert_never(event)


def positions(first: int, last: int) -> str:
    return f"position {first}" if first == last else f"positions {first} to {last}"


def _name(entity_id: str, state: State) -> str:
    entity = state.entity(entity_id)
    return f"'{entity.name}'" if entity else entity_id


def _observation(observation_id: str, state: State) -> tuple[str, str]:
    """The owner's name and the text of an observation."""
    row = state.observation(observation_id)
    if row is None:
        return "?", observation_id
    return _name(row.entity_id, state), row.content


def _memory(memory_id: str, state: State) -> str:
    row = state.memory(memory_id)
    return f"{row.memory_type} {_quoted(row.content)}" if row else memory_id


def _quoted(content: str | dict[str, Any]) -> str:
    text = text_of(content)
    return (
        f"'{text}'" if len(text) <= SHOWN_CHARACTERS_MAX else f"'{text[:SHOWN_CHARACTERS_MAX]}{CUT}"
    )
