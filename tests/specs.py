"""Given these events, when this command, then those events: the decider's specs read so.

Ids in specs are small and readable: the n-th id of a kind is its prefix and n.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import pytest

from memlog.codec import GENESIS, Entry
from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.decider import decide
from memlog.errors import MemlogError
from memlog.events import Event, ProjectCreated
from memlog.evolve import evolve
from memlog.ids import Prefix
from memlog.state import State
from memlog.storage.tables import MemoryRows, Timeline

NEW_PROJECT = ProjectCreated("prj_1", "default", "")
SECOND_US = 1_000_000


class Numbered:
    """A source of ids that counts: ent_1, ent_2, obs_1, …"""

    def __init__(self, start: int = 0) -> None:
        self._counts: Counter[str] = Counter()
        self._start = start

    def __call__(self, prefix: Prefix) -> str:
        self._counts[prefix] += 1
        return f"{prefix}_{self._start + self._counts[prefix]}"


class Given:
    """A project in memory with these events behind it; the project's creation goes without saying."""

    def __init__(self, *events: Event, context: Context | None = None) -> None:
        self.timeline = Timeline(MemoryRows(), MemoryRows())
        self.context = context or Context()
        self.position = 0
        for event in (NEW_PROJECT, *events):
            self.happen(event)

    def happen(self, event: Event, thread: str | None = None) -> None:
        self.position += 1
        time_us = self.position * SECOND_US
        entry = Entry(self.position, time_us, "cmd_1", thread, None, event, GENESIS)
        evolve(self.timeline, entry)

    def state(self, at: int | None = None) -> State:
        return State(self.timeline if at is None else self.timeline.at(at), at or self.position)

    def run(self, command: AnyCommand) -> list[Event]:
        """The events of `command`, each evolved before the next is asked for."""
        context = msgspec.structs.replace(self.context, new_id=Numbered(start=100))
        events = []
        for event in decide(command, self.state(), context):
            self.happen(event)
            events.append(event)
        return events

    def when(self, command: AnyCommand) -> Then:
        return Then(self, command)


class Then:
    def __init__(self, given: Given, command: AnyCommand) -> None:
        self._given = given
        self._command = command

    def then(self, *expected: Event) -> Given:
        assert self._given.run(self._command) == list(expected)
        return self._given

    def refused(self, kind: type[MemlogError], *words: str) -> MemlogError:
        """Refused with this error, before any event; its text and problems hold the words."""
        happened = self._given.position
        with pytest.raises(MemlogError) as caught:
            self._given.run(self._command)
        assert type(caught.value) is kind
        assert self._given.position == happened
        said = " ".join(_said(caught.value))
        for word in words:
            assert word in said
        return caught.value


def _said(error: MemlogError) -> Sequence[str]:
    texts = [error.message, error.suggestion or ""]
    for problem in error.problems:
        texts += [problem.path, problem.problem, problem.suggestion or ""]
    return texts
