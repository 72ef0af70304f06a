"""The living facts of the entities that a command is about, each entity's read once.

A command of a thousand items would else read an entity of thousands of facts for each of them. What its own events do
to the facts is noted as they are made, so it sees its own effects here as in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memlog.canonical import canonical
from memlog.events import Event, ObservationAdded, ObservationDeleted, ObservationSuperseded
from memlog.state import Said, State


class Facts:
    """Facts of one entity, found by id and by text; in the order in which they were given or came."""

    def __init__(self, rows: Iterable[Said]) -> None:
        self._rows = {row.id: row for row in rows}
        self._said: dict[str, list[str]] = {}
        """The ids of the facts that say a text, by its canonical form."""
        for row in self._rows.values():
            self._said.setdefault(canonical(row.content), []).append(row.id)

    def contents(self) -> Iterator[str]:
        return (row.content for row in self._rows.values())

    def say(self, text: str) -> bool:
        return canonical(text) in self._said

    def saying(self, text: str) -> list[Said]:
        """Those that say exactly this: one, but for what old merges left."""
        return [self._rows[each] for each in self._said.get(canonical(text), ())]

    def meant_by(self, wanted: str) -> list[Said]:
        """Those whose id or exact text is `wanted`."""
        said = self.saying(wanted)
        named = self._rows.get(wanted)
        if named is None or not said:
            return said if named is None else [named]
        return [row for row in self._rows.values() if row is named or row in said]

    def find(self, wanted: str) -> Said | None:
        """The first of these."""
        return next(iter(self.meant_by(wanted)), None)

    def noting(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events, all about this entity, and what they do to its facts."""
        for event in events:
            yield event
            match event:
                case ObservationAdded():
                    self._add(Said(event.observation_id, event.entity_id, event.content))
                case ObservationSuperseded():
                    entity_id = self._drop(event.supersedes).entity_id
                    self._add(Said(event.observation_id, entity_id, event.content))
                case ObservationDeleted():
                    self._drop(event.observation_id)
                case _:
                    pass

    def _add(self, row: Said) -> None:
        self._rows[row.id] = row
        self._said.setdefault(canonical(row.content), []).append(row.id)

    def _drop(self, observation_id: str) -> Said:
        row = self._rows.pop(observation_id)
        text = canonical(row.content)
        self._said[text].remove(observation_id)
        if not self._said[text]:
            del self._said[text]
        return row


class Known:
    """The facts of each entity that a command has asked for."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._facts: dict[str, Facts] = {}

    def of(self, entity_id: str) -> Facts:
        if entity_id not in self._facts:
            self._facts[entity_id] = Facts(self._state.said(entity_id))
        return self._facts[entity_id]

    def forget(self, entity_id: str) -> None:
        """What is known of an entity is read again when it is next asked for."""
        self._facts.pop(entity_id, None)
