"""Decisions about undo: which commands are meant, what stands in the way of each, and what is undone for it first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from memlog.codec import Entry
from memlog.commands import Undo
from memlog.context import Context
from memlog.decisions.depending import Later, Stretch
from memlog.decisions.restoring import is_gone, told_apart
from memlog.decisions.touching import row_positions
from memlog.errors import Conflict, InvalidParameter, Problem
from memlog.events import (
    CommandUndone,
    Erased,
    Event,
    ProjectArchived,
    ProjectCreated,
    ProjectRestored,
    name_of,
)
from memlog.sentences import positions
from memlog.state import State

CASCADE = "Pass cascade=true to undo those first, or undo them one by one."
BY_HAND = "Cascade takes back no undo: do it by position, or write anew what is wanted."
ANEW = "What undos brought back stands in the way, and no undo takes it away: write anew what is wanted."
SEARCHED_BACK_MAX = 100_000
"""How far back the last commands of a thread or an actor are looked for, in entries that have to be read."""


def undo(command: Undo, state: State, context: Context) -> Iterator[Event]:
    undos = _Undos(state, context)
    if command.position is not None:
        at = _entry_at(command.position, context)
        for each in _each_undo(at, context):
            if not undos.undone(each):
                yield from _undo_command(each, command.cascade, undos)
        return
    if command.since is not None:
        yield from _undo_since(command.since, command, state, context)
        return
    there = 0
    for entry in islice(undos.commands_back(command), command.last):
        there += 1
        yield from _undo_command(entry, command.cascade, undos)
    if there < command.last:
        raise _no_more(there, command, context.head())


def _undo_since(since: int, command: Undo, state: State, context: Context) -> Iterator[Event]:
    """Undoes all that was done after a position, undos as well, the latest first: so nothing is in the way but what
    others did, where only some of it is meant."""
    undos = _Undos(state, context)
    meant = _meant_since(since, command, undos)
    of_all = command.thread is None and command.actor is None
    left = _left_since(since, meant, state) if of_all else _not_undone_since(meant)
    if all(undos.undone(_entry_at(position, context)) for position in left):
        raise _no_more(0, command, context.head())
    for position in reversed(left):
        entry = _entry_at(position, context)
        if undos.undone(entry) or (not of_all and _stays_undone(entry, since, meant, undos)):
            continue
        yield from _undo_command(entry, command.cascade, undos)
        if isinstance(entry.event, CommandUndone):  # what is known of undos holds no more
            brought_back = range(entry.event.first, entry.event.last + 1)
            undos = _Undos(state, context, undos.brought_back.union(brought_back))


class _Meant(NamedTuple):
    """What is undone at once, and of an undo what it took back."""

    position: int
    at_once: tuple[int, int]
    took_back: tuple[int, int] | None


def _meant_since(since: int, command: Undo, undos: _Undos) -> list[_Meant]:
    """All that `command` means after `since`, the oldest first; not what was begun before."""
    context, meant = undos.context, list[_Meant]()
    for position in range(since + 1, context.head() + 1):
        entry = context.entry_at(position)
        if entry is None or isinstance(entry.event, Erased) or not _is_meant(entry, command):
            continue
        at_once = undos.at_once(entry)
        if at_once[0] == position:  # else it is told already, or begun before `since`
            meant.append(_Meant(position, at_once, undos.span(position)))
    return meant


def _left_since(since: int, meant: list[_Meant], state: State) -> list[int]:
    """The positions of what is meant behind the last one at which all was as it was at `since`: so an undo of all that
    is made again has nothing to do."""
    before, changed, position = state.at(since), set[bytes](), since
    left: list[int] = []
    for each in meant:
        left.append(each.position)
        while position < each.at_once[1]:
            position += 1
            after = state.at(position)
            for key in state.touched(position):
                differs = told_apart(key, before.row(key), after.row(key))
                (changed.add if differs else changed.discard)(key)
        if not changed:
            left.clear()
    return left


def _not_undone_since(meant: list[_Meant]) -> list[int]:
    """The positions of all but undos of what is meant itself, where only some of what happened is: what they took back
    is to be gone, and need not come back beside what others wrote since."""
    there = {each.at_once for each in meant}
    return [each.position for each in meant if each.took_back not in there]


def _stays_undone(undo: Entry, since: int, meant: list[_Meant], undos: _Undos) -> bool:
    """Whether an undo took back what somebody built on what is meant, which is gone: it could not stand alone."""
    took_back = undos.span(undo.position)
    if took_back is None or took_back[0] <= since:
        return False
    stretch = Stretch(undo.position, undo.position, undos.later)
    standing = stretch.blockers() or stretch.at_odds() or stretch.loose_ends()
    there = {each.at_once for each in meant}
    kept = {each.position for each in meant if each.took_back}
    return bool(standing) and all(each in kept or undos.span(each) in there for each in standing)


def _is_meant(entry: Entry, command: Undo) -> bool:
    by_whom = command.thread in (None, entry.thread) and command.actor in (None, entry.actor)
    return by_whom and not _is_of_the_project(entry)


def undone(entries: Iterable[Entry]) -> list[int]:
    """The positions of what these entries took back."""
    spans = [entry.event for entry in entries if isinstance(entry.event, CommandUndone)]
    return [position for each in spans for position in range(each.first, each.last + 1)]


def _no_more(there: int, command: Undo, head: int) -> InvalidParameter:
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


class _Undos:
    """The log as an undo sees it, which reads each entry once, however often it goes back over them."""

    def __init__(
        self, state: State, context: Context, brought_back: frozenset[int] = frozenset()
    ) -> None:
        self.context = context
        self.brought_back = brought_back
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
        if entry.position not in self._commands:
            first, last = _span(entry, self.context)
            self._commands.update(dict.fromkeys(range(first, last + 1), (first, last)))
        return self._commands[entry.position]

    def _latest_undo(self, span: tuple[int, int]) -> int:
        """The latest undo of just this span; 0 where there is none. Where the log was not gone over that far, it is
        found by the rows that it gave back."""
        if self._seen_from <= span[1] + 1:
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
            self._look_back(last + 1)
        return {each for each in positions if each not in self._undone} - self._standing

    def undos(self, positions: set[int], last: int) -> set[int]:
        """Those at which stands an undo that is in the way. One that took back what is beyond `last` itself is not: the
        advice to undo it would lead back to where it was made, and so on in circles."""
        self._look_back(last + 1)
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
        """The undo at the head was made a moment ago. If it took back one that stood it was the last: a cascade
        takes back none."""
        position = self.context.head()
        self.later.note(position)
        self._left_some.clear()
        self._see(position)

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
            if _is_meant(entry, command):
                first, last = _span(entry, self.context)
                passed.update(range(first, last + 1))
                yield entry

    def _stands(self, position: int) -> bool:
        """Whether it is not undone, be it an undo or not."""
        self._look_back(position)
        return position not in self._undone

    def _look_back(self, position: int) -> None:
        while self._seen_from > position:
            self._seen_from -= 1
            self._see(self._seen_from)

    def _see(self, position: int) -> None:
        span = self.span(position)
        if span is None:
            return
        self._undos_seen[span] = max(position, self._undos_seen.get(span, 0))
        if position not in self._undone:
            self._undone.update(dict.fromkeys(range(span[0], span[1] + 1), position))
            self._standing.add(position)


def _entry_at(position: int, context: Context) -> Entry:
    entry = context.entry_at(position)
    if entry is None:
        raise InvalidParameter(
            f"There is no position {position} in the log",
            suggestion="Call get_history to see what happened and where.",
        )
    return entry


def _each_undo(entry: Entry, context: Context) -> list[Entry]:
    """The undos of the command that an entry belongs to, the latest first: each is undone by itself, for together they
    may come to nothing, and an undo that changes nothing is not noted. Where the command was no undo, the entry."""
    if not isinstance(entry.event, CommandUndone):
        return [entry]
    first, last = _span(entry, context)
    entries = map(context.entry_at, range(last, first - 1, -1))
    return [each for each in entries if each and isinstance(each.event, CommandUndone)]


def _undo_command(entry: Entry, cascade: bool, undos: _Undos) -> Iterator[Event]:
    undoing = [_Undoing(entry, undos)]
    while undoing:  # not by recursion: one may stand in the way of the other a thousand deep
        first, last = undoing[-1].span
        stretch = Stretch(first, last, undos.later)
        standing = stretch.blockers() or stretch.at_odds()
        if undos.context.strict_relations:
            standing = standing or stretch.loose_ends()
        if standing := standing or undos.not_gone(stretch.relied_on(), last):
            latest = undoing[-1].latest_of(standing, cascade)
            undoing.append(_Undoing(latest, undos, asked=False))
            continue
        undoing.pop()
        if stretch.rows:
            yield CommandUndone(first, last)
            undos.note()


class _Undoing:
    """One command that is to be undone, and what of later ones was undone for it."""

    def __init__(self, entry: Entry, undos: _Undos, asked: bool = True) -> None:
        context = undos.context
        if isinstance(entry.event, Erased):
            raise InvalidParameter(
                f"What happened at position {entry.position} was "
                + ("lost with a damage" if entry.event.lost else "erased for good"),
                suggestion="Call get_history to see what is left.",
            )
        self.span = first, last = undos.at_once(entry)
        if any(_is_of_the_project(context.entry_at(each)) for each in range(first, last + 1)):
            raise InvalidParameter(
                f"Position {entry.position} is about the life of the project, which undo does not change",
                suggestion="Use archive_project and restore_project.",
            )
        self._undos, self._asked = undos, asked
        self._tried: set[int] = set()

    def latest_of(self, standing: set[int], cascade: bool) -> Entry:
        """The latest command of those in the way. Raises Conflict where it is not to be undone or that did not help."""
        undos, (_, last) = self._undos, self.span
        commands = undos.commands(standing, last) - self._tried
        if not commands or not (cascade or commands <= undos.brought_back):
            raise self._refusal(commands, standing)
        latest = undos.context.entry_at(max(commands))
        assert latest is not None, "what changed a row is in the log"
        start, end = _span(latest, undos.context)
        self._tried.update(range(start, end + 1))
        return latest

    def _refusal(self, commands: set[int], standing: set[int]) -> Conflict:
        undos, (first, last) = self._undos, self.span
        commands = set(filter(undos.leaves_some, commands - undos.brought_back))
        undoing = set() if commands else undos.undos(standing, last)
        advice = CASCADE if commands else BY_HAND if undoing else self._advice_alone()
        return _depended_on(first, last, commands or undoing, advice, undos.context)

    def _advice_alone(self) -> str:
        """What to do where nothing is left in the way that could be named."""
        if self._asked:
            return ANEW
        # what a cascade took back a moment ago stands in the way
        return f'Undo it first: {{"position": {self.span[0]}}}. Then try this again.'


def _span(entry: Entry, context: Context) -> tuple[int, int]:
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


def _is_of_the_project(entry: Entry | None) -> bool:
    return entry is not None and isinstance(
        entry.event, (ProjectCreated, ProjectArchived, ProjectRestored)
    )


def _depended_on(
    first: int, last: int, blockers: set[int], suggestion: str, context: Context
) -> Conflict:
    named: dict[str, Problem] = {}  # each command once, however much of it depends
    for position in sorted(blockers):
        entry = context.entry_at(position)
        assert entry is not None, "what changed a row is in the log"
        done = name_of(entry.event).replace("_", " ")
        problem = Problem(
            f"position {position}",
            f"Command {entry.command_id} depends on it ({done})",
            f'Undo it first: {{"position": {position}}}.',
        )
        named.setdefault(entry.command_id, problem)
    return Conflict(
        f"What {positions(first, last)} did cannot be undone alone: later commands depend on it",
        suggestion=suggestion,
        problems=list(named.values()),
    )
