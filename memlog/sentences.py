"""Events in plain words, for people and models who read the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, assert_never

from memlog import events
from memlog.canonical import text_of
from memlog.codec import Entry
from memlog.rows import Relation
from memlog.state import State

SHOWN_CHARACTERS_MAX = 200
CUT = "…'"
"""How a content ends that is longer."""


def sentence(entry: Entry, state_at: Callable[[int], State], shown: int | None = None) -> str:
    """What the entry says, with names as they stood when it was written. Of each name and text it tells so many
    characters as are `shown`, all where that is None; of a memory no more than SHOWN_CHARACTERS_MAX."""
    words = _Words(state_at(entry.position - 1), shown)
    match entry.event:
        case events.ProjectCreated() as event:
            return f"project {words.quoted(event.name)} was created"
        case events.ProjectArchived():
            return "the project was archived"
        case events.ProjectRestored():
            return "the project was restored"
        case events.EntityCreated() as event:
            return f"{words.quoted(event.name)} ({event.entity_type}) was created"
        case events.EntityTypeChanged() as event:
            return f"{words.name(event.entity_id)} became a {event.entity_type}"
        case events.EntityDeleted() as event:
            return f"{words.name(event.entity_id)} was deleted"
        case events.ObservationAdded() as event:
            return f"{words.name(event.entity_id)}: {words.quoted(event.content)} was added"
        case events.ObservationSuperseded() as event:
            old = words.observation(event.supersedes)
            return f"{old} was superseded by {words.quoted(event.content)}"
        case events.ObservationDeleted() as event:
            return f"{words.observation(event.observation_id)} was deleted"
        case events.RelationAdded() as event:
            return f"relation {words.edge(event)} was added"
        case events.RelationDeleted() as event:
            row = words.before.relation(event.relation_id)
            return f"relation {words.edge(row) if row else event.relation_id} was deleted"
        case events.EntityRated() as event:
            name = words.name(event.entity_id)
            return f"{name} has importance {event.importance:g}, confidence {event.confidence:g}"
        case events.EntityRenamed() as event:
            return f"{words.name(event.entity_id)} was renamed to {words.quoted(event.name)}"
        case events.EntityMerged() as event:
            return f"{words.name(event.entity_id)} was merged into {words.name(event.into)}"
        case events.ObservationMoved() as event:
            fact = words.observation(event.observation_id)
            return f"{fact} was moved to {words.name(event.entity_id)}"
        case events.CommandUndone() as event:
            return f"what {positions(event.first, event.last)} changed was undone"
        case events.MemoryStored() as event:
            return f"{event.memory_type} {words.content(event.content)} was stored"
        case events.MemoryMerged() as event:
            return f"{words.memory(event.memory_id)} was saved again"
        case events.MemorySuperseded() as event:
            old, new = map(words.memory, (event.memory_id, event.superseded_by))
            return f"{old} was superseded by {new}"
        case events.MemoryDeleted() as event:
            return f"{words.memory(event.memory_id)} was deleted"
        case events.Erased(lost=lost):
            return f"what happened here was {'lost with a damage' if lost else 'erased for good'}"
        case event:
            assert_never(event)


def positions(first: int, last: int) -> str:
    return f"position {first}" if first == last else f"positions {first} to {last}"


class _Words(NamedTuple):
    """Names and texts as they stood `before`, in quotation marks."""

    before: State
    shown: int | None

    def quoted(self, text: str) -> str:
        cut = self.shown is not None and len(text) > self.shown
        return f"'{text[: self.shown]}{CUT}" if cut else f"'{text}'"

    def name(self, entity_id: str) -> str:
        entity = self.before.entity(entity_id)
        return self.quoted(entity.name) if entity else entity_id

    def observation(self, observation_id: str) -> str:
        """With the name of its owner."""
        row = self.before.observation(observation_id)
        if row is None:
            return f"?: '{observation_id}'"
        return f"{self.name(row.entity_id)}: {self.quoted(row.content)}"

    def edge(self, row: Relation | events.RelationAdded) -> str:
        return f"{self.quoted(row.source)} {row.relation_type} {self.quoted(row.target)}"

    def memory(self, memory_id: str) -> str:
        row = self.before.memory(memory_id)
        return f"{row.memory_type} {self.content(row.content)}" if row else memory_id

    def content(self, content: str | dict[str, Any]) -> str:
        """That of a memory."""
        shown = SHOWN_CHARACTERS_MAX if self.shown is None else self.shown
        return self._replace(shown=min(shown, SHOWN_CHARACTERS_MAX)).quoted(text_of(content))
