"""Decisions about undo: what stands in the way of each command that is meant, and what is undone for it first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from memlog.codec import Entry
from memlog.commands import Undo
from memlog.context import Context
from memlog.decisions.depending import Stretch
from memlog.decisions.since import Since
from memlog.decisions.undos import (
    Undos,
    existing,
    is_of_the_project,
    no_more,
    span_of,
)
from memlog.errors import Conflict, InvalidParameter, Problem
from memlog.events import CommandUndone, Erased, Event, name_of
from memlog.sentences import positions
from memlog.state import State

CASCADE = "Pass cascade=true to undo those first, or undo them one by one."
BY_HAND = "Cascade takes back no undo: do it by position, or write anew what is wanted."
ANEW = "What undos brought back stands in the way, and no undo takes it away: write anew what is wanted."


def undo(command: Undo, state: State, context: Context) -> Iterator[Event]:
    undos = Undos(state, context)
    if command.position is not None:
        at = existing(command.position, context)
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
        raise no_more(there, command, context.head())


def _undo_since(since: int, command: Undo, state: State, context: Context) -> Iterator[Event]:
    """Undoes all that was done after a position, undos as well, the latest first: so nothing is in the way but what
    others did, where only some of it is meant."""
    undos = Undos(state, context)
    meant = Since(since, command, undos)
    left = meant.left(state)
    undos.look_back(since + 1)
    if all(undos.undone(existing(position, context)) for position in left):
        raise no_more(0, command, context.head())
    for position in reversed(left):
        entry = existing(position, context)
        undos.look_back(position + 1)
        if undos.undone(entry) or meant.stays_undone(entry, undos):
            continue
        yield from _undo_command(entry, command.cascade, undos)
        undos.brought_back.update(undos.taken_back_by(position))


def undone(entries: Iterable[Entry]) -> list[int]:
    """The positions of what these entries took back."""
    spans = [entry.event for entry in entries if isinstance(entry.event, CommandUndone)]
    return [position for each in spans for position in range(each.first, each.last + 1)]


def _each_undo(entry: Entry, context: Context) -> list[Entry]:
    """The undos of the command that an entry belongs to, the latest first: each is undone by itself, for together they
    may come to nothing, and an undo that changes nothing is not noted. Where the command was no undo, the entry."""
    if not isinstance(entry.event, CommandUndone):
        return [entry]
    first, last = span_of(entry, context)
    entries = map(context.entry_at, range(last, first - 1, -1))
    return [each for each in entries if each and isinstance(each.event, CommandUndone)]


def _undo_command(entry: Entry, cascade: bool, undos: Undos) -> Iterator[Event]:
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

    def __init__(self, entry: Entry, undos: Undos, asked: bool = True) -> None:
        context = undos.context
        if isinstance(entry.event, Erased):
            raise InvalidParameter(
                f"What happened at position {entry.position} was "
                + ("lost with a damage" if entry.event.lost else "erased for good"),
                suggestion="Call get_history to see what is left.",
            )
        self.span = first, last = undos.at_once(entry)
        if any(is_of_the_project(context.entry_at(each)) for each in range(first, last + 1)):
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
        start, end = span_of(latest, undos.context)
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
