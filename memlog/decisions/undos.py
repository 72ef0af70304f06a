"""The log as an undo sees it: what each command did, what is undone of it, and by which undos."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from memlog.codec import Entry
from memlog.commands import Undo
from memlog.context import Context
from memlog.decisions.depending import Later
from memlog.decisions.restoring import is_gone
from memlog.decisions.touching import row_positions
from memlog.errors import InvalidParameter
from memlog.events import CommandUndone, Erased, ProjectArchived, ProjectCreated, ProjectRestored
from memlog.state import State

SEARCHED_BACK_MAX = 100_000
"""How far back the last commands of a thread or an actor are looked for, in entries that have to be read."""


class Undos:
    """The log as an undo sees it, which reads each entry once, however often it goes back over them."""

    def __init__(self, state: State, context: Context) -> None:
        self.context = context
        self.brought_back: set[int] = set()
        """What was undone until the undo that is being made came to it: it may be undone again."""
        self.later = Later(state)
        self._head = context.head()
        self._spans: dict[int, tuple[int, int] | None] = {}
        self._commands: dict[int, tuple[int, int]] = {}
        self._given_back: dict[bytes, dict[tuple[int, int], int]] = {}
        self._latest_undos: dict[tuple[int, int], int] = {}
        self._undone: dict[int, int] = {}
        """What is undone, and where it was."""
        self._left_some: dict[int, bool] = {}
        """Where the undo would take something back, until another is made."""
        self._standing: set[int] = set()
        self._seen_from = self._head + 1
        """From there on it is known what is undone, and which undos stand."""
        self._undos_seen: dict[tuple[int, int], int] = {}
        """The latest of them by what it took back."""

    def span(self, position: int) -> tuple[int, int] | None:
        """The first and last position of what was undone at `position`; None where nothing was."""
        if position not in self._spans:
            entry = self.context.entry_at(position)
            event = None if entry is None else entry.event
            undone = (event.first, event.last) if isinstance(event, CommandUndone) else None
            self._spans[position] = undone
        return self._spans[position]

    def taken_back_by(self, position: int) -> Iterator[int]:
        """What the undo at `position` took back; of an undo of an undo, what that had taken back, too."""
        while (span := self.span(position)) is not None:
            yield from _reach(span)
            position = span[0]

    def undone(self, entry: Entry) -> bool:
        """Whether it is undone, by an undo that is not undone itself."""
        undone = False
        while (latest := self._undo_of(entry)) is not None:
            undone = not undone
            entry = latest
        return undone

    def _undo_of(self, entry: Entry) -> Entry | None:
        """The latest undo of an entry: with its command, or alone, as it is with an undo."""
        latest = max(map(self._latest_undo, {self._command(entry), self.at_once(entry)}))
        return self.context.entry_at(latest) if latest else None

    def at_once(self, entry: Entry) -> tuple[int, int]:
        """The first and last position of what is undone with an entry: its command; of an undo it alone, as the undos
        of a command are undone one by one."""
        position = entry.position
        undo = isinstance(entry.event, CommandUndone)
        return (position, position) if undo else self._command(entry)

    def _command(self, entry: Entry) -> tuple[int, int]:
        if entry.position > self._head:  # of the one that is under way
            return self._head + 1, self.context.head()
        if entry.position not in self._commands:
            first, last = span_of(entry, self.context)
            self._commands.update(dict.fromkeys(range(first, last + 1), (first, last)))
        return self._commands[entry.position]

    def _latest_undo(self, span: tuple[int, int]) -> int:
        """The latest undo of just this span; 0 where there is none. Where the log was not gone over that far, it is
        found by the rows that it gave back."""
        if span in self._undos_seen or self._seen_from <= span[1] + 1:
            return self._undos_seen.get(span, 0)
        if span not in self._latest_undos:
            touched = map(self.later.state.touched, range(span[0], span[1] + 1))
            keys = {key for each in touched for key in each}
            latest = max((self._undos_at(key).get(span, 0) for key in keys), default=0)
            self._latest_undos[span] = latest
        return self._latest_undos[span]

    def _undos_at(self, key: bytes) -> dict[tuple[int, int], int]:
        """The latest undo of each span that gave back the row, by span. Read once: a row that was undone and brought
        back again and again has as many."""
        if key not in self._given_back:
            positions = sorted(row_positions(key, self.later.state))
            spans = ((self.span(position), position) for position in positions)
            self._given_back[key] = {span: position for span, position in spans if span is not None}
        return self._given_back[key]

    def commands(self, positions: set[int], last: int) -> set[int]:
        """Those of `positions`, beyond `last`, at which a command did something that is not undone."""
        if positions:
            self.look_back(last + 1)
        return {each for each in positions if each not in self._undone} - self._standing

    def undos(self, positions: set[int], last: int) -> set[int]:
        """Those at which stands an undo that is in the way. One that took back what is beyond `last` itself is not: the
        advice to undo it would lead back to where it was made, and so on in circles."""
        self.look_back(last + 1)
        undos = {each for each in self._standing & positions if self._goes_back_to(last, each)}
        undos = set(filter(self.leaves_some, undos))
        undos = undos or set(filter(self.leaves_some, self._that_left_some(positions)))
        return {each for each in undos if each <= self._head}

    def not_gone(self, positions: set[int], last: int) -> set[int]:
        """Those of `commands` up to the latest of which something is left that an undo would take back."""
        there = sorted(self.commands(positions, last))
        while there and not self.leaves_some(there[-1]):
            there.pop()
        return set(there)

    def leaves_some(self, position: int) -> bool:
        """Whether its undo would take something back."""
        if position not in self._left_some:
            entry = self.context.entry_at(position)
            assert entry is not None, "what changed a row is in the log"
            first, last = self.at_once(entry)
            left = not self.undone(entry) and not is_gone(first, last, self.later.state)
            self._left_some.update(dict.fromkeys(range(first, last + 1), left))
        return self._left_some[position]

    def _goes_back_to(self, last: int, undo: int) -> bool:
        span = self.span(undo)
        return span is not None and span[0] <= last

    def _that_left_some(self, positions: set[int]) -> set[int]:
        """The undos of commands of which something is there all the same: it was gone then, and another undo brought
        it back. Where such an undo is undone, all of its command can be."""
        undone = positions & self._undone.keys()
        commands = {each for each in undone if self.span(each) is None}
        return {self._undone[each] for each in commands} - positions

    def note(self) -> None:
        """The undo at the head was made a moment ago."""
        position = self.context.head()
        span = self.span(position)
        assert span is not None, "what was made is an undo"
        self.later.note(position)
        self._left_some.clear()
        if not self._standing.isdisjoint(_reach(span)):
            self._look_again(span[1])
        self._undos_seen[span] = position
        self._undone.update(dict.fromkeys(_reach(span), position))
        self._standing.add(position)

    def commands_back(self, command: Undo) -> Iterator[Entry]:
        """An entry of each command that an undo means, that changed something and was not undone, the newest first.

        What is undone between one and the next is of no concern: it stands further up.
        """
        passed: set[int] = set()
        back = range(self._head, 0, -1)
        there = (each for each in back if each not in passed and self._stands(each))
        for position in islice(there, SEARCHED_BACK_MAX):
            entry = self.context.entry_at(position)
            if entry is None or isinstance(entry.event, (CommandUndone, Erased)):
                continue
            if is_meant(entry, command):
                first, last = span_of(entry, self.context)
                passed.update(range(first, last + 1))
                yield entry

    def _stands(self, position: int) -> bool:
        """Whether it is not undone, be it an undo or not."""
        self.look_back(position)
        return position not in self._undone

    def look_back(self, position: int) -> None:
        """Goes over the log back to there, the newest first: the later undos tell which of the earlier ones stand."""
        while self._seen_from > position:
            self._seen_from -= 1
            if (span := self.span(self._seen_from)) is None:
                continue
            self._undos_seen.setdefault(span, self._seen_from)
            if self._seen_from not in self._undone:
                self._standing.add(self._seen_from)
                for each in _reach(span):
                    self._undone.setdefault(each, self._seen_from)

    def _look_again(self, last: int) -> None:
        """Forgets which undos up to `last` stand, as one of them does no more. What later ones took back stays so."""
        for undo in self._standing.intersection(range(self._seen_from, last + 1)):
            self._standing.remove(undo)
            for each in _reach(self.span(undo)):
                if self._undone.get(each) == undo:
                    del self._undone[each]
        self._seen_from = max(self._seen_from, last + 1)


def _reach(span: tuple[int, int] | None) -> range:
    """The positions of what was undone."""
    return range(0) if span is None else range(span[0], span[1] + 1)


def is_meant(entry: Entry, command: Undo) -> bool:
    """Whether it is of those that a command undoes whose it is to undo, and may be undone."""
    by_whom = command.thread in (None, entry.thread) and command.actor in (None, entry.actor)
    return by_whom and not is_of_the_project(entry)


def existing(position: int, context: Context) -> Entry:
    """The entry there. Raises InvalidParameter."""
    entry = context.entry_at(position)
    if entry is None:
        raise InvalidParameter(
            f"There is no position {position} in the log",
            suggestion="Call get_history to see what happened and where.",
        )
    return entry


def span_of(entry: Entry, context: Context) -> tuple[int, int]:
    """The first and last position of the command that `entry` belongs to."""
    return _end_of_command(entry, -1, context), _end_of_command(entry, 1, context)


def _end_of_command(entry: Entry, step: int, context: Context) -> int:
    """Its last position in one direction. An erased entry no longer tells its command: one between two
    of a command is taken to be of it, which changes nothing, for nothing of it is left to undo."""
    end = position = entry.position
    while (other := context.entry_at(position + step)) is not None:
        position += step
        if other.command_id == entry.command_id:
            end = position
        elif not isinstance(other.event, Erased):
            break
    return end


def is_of_the_project(entry: Entry | None) -> bool:
    return entry is not None and isinstance(
        entry.event, (ProjectCreated, ProjectArchived, ProjectRestored)
    )


def no_more(there: int, command: Undo, head: int) -> InvalidParameter:
    """Where there are fewer commands to undo than were asked for."""
    whose = f" of thread '{command.thread}'" if command.thread is not None else ""
    whose += f" by '{command.actor}'" if command.actor is not None else ""
    if command.since is not None:
        whose += f" after position {command.since}"
    elif head > SEARCHED_BACK_MAX:
        whose += f" among the newest {SEARCHED_BACK_MAX:,} entries"
    if not there:
        return InvalidParameter(
            f"There is no command{whose} to undo",
            suggestion="Call get_history to see what happened; an undo is undone by its position.",
        )
    are = "is 1 command" if there == 1 else f"are {there} commands"
    return InvalidParameter(
        f"There {are}{whose} to undo, not {command.last}; nothing was undone",
        suggestion=f"Pass last={there} to undo all there is.",
    )
