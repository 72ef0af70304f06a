"""Toolset `history`: what is new since a conversation was last here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, field

from memlog import events
from memlog.codec import Entry
from memlog.errors import invalid_at
from memlog.log import Log
from memlog.projects.project import Project
from memlog.sentences import CUT, sentence
from memlog.state import State
from memlog.times import iso
from server.answering.moments import Since, in_the_future, lies_ahead, parse_moment
from server.answering.packing import BYTES_PER_TOKEN, clipped, line_bytes_max, one_line, size
from server.registry import Arguments, Call, Result, tool
from server.tools.recalling import BUDGET, Budget

READ_AHEAD = 2
"""How many budgets of sentences are looked at, so that those which later ones repeat can be dropped."""

UNDONE_TOLD_MAX, UNDONE_DEEP_MAX = 5, 3
"""How much is told of what an undo took back, and how far where that was an undo, too."""

TEXT_SHARES = (0.85, 0.45, 0.3, 0.2, 0.1)
"""Of a line that is too long, each name and text gets such a part, the largest with which it fits."""

_encode = msgspec.json.Encoder().encode


class ChangesSince(Arguments, frozen=True):
    since: Annotated[Since, Meta(examples=[0])]
    budget_tokens: Budget = field(name="budgetTokens", default=BUDGET)


class ChangedBy(Result, frozen=True):
    """A command: when, in which thread and by whose token (over HTTP) the lines were written from this position on, up
    to the next command."""

    position: int
    time: str
    thread: str | None = None
    actor: str | None = None


class ChangesResult(Result, frozen=True, omit_defaults=False):
    """Each line of `text` begins with its position. `position` is what to pass as `since` next; `more` events lie
    beyond it."""

    project: str
    text: str
    commands: list[ChangedBy]
    position: int
    more: int
    notice: str | None = None


class _Change(NamedTuple):
    line: str
    entry: Entry


@tool("history", "See what changed")
def changes_since(call: Call, arguments: ChangesSince) -> ChangesResult:
    """What is new, superseded or gone since a position or time, the newest last, each with its position.

    Pass the `position` of the answer next time, at once where `more` is not 0. Example: {"since": 0}
    """
    project, opened = call.open(arguments)
    since = _since(arguments.since, opened.project)
    with opened.project.snapshot() as (log, state_at):
        head = log.position()
        changes, position = _changes(log, state_at, since, arguments.budget_tokens)
    shown = list(_fitting(changes, head, arguments.budget_tokens))
    if len(shown) < len(changes):
        position = shown[-1].entry.position
    lines = [change.line for change in shown]
    if position < head:
        lines.append(_footer(head - position, position))
    commands: dict[str, ChangedBy] = {}
    for change in shown:
        commands.setdefault(change.entry.command_id, _changed_by(change.entry))
    return ChangesResult(
        project=project,
        text="\n".join(lines),
        commands=list(commands.values()),
        position=position,
        more=head - position,
        notice=_not_yet(arguments.since, opened.project),
    )


def _since(moment: int | str, project: Project) -> int:
    if isinstance(moment, str) and not moment.isdecimal():
        return project.position_at(parse_moment(moment, "since"))
    position, head = int(moment), project.head()
    if 0 <= position <= head:
        return position
    problem = f"position {position} is not in the log, which ends at {head}"
    suggestion = "Pass the `position` of an earlier answer, a time, or 0 for everything."
    raise invalid_at("since", problem, suggestion, position)


def _not_yet(moment: int | str, project: Project) -> str | None:
    """Since a moment that has not come nothing has changed, which looks like the end of the log."""
    if isinstance(moment, int) or moment.isdecimal():
        return None
    if not lies_ahead(parse_moment(moment, "since"), project):
        return None
    return in_the_future(moment)


def _changes(
    log: Log, state_at: Callable[[int], State], since: int, budget_tokens: int
) -> tuple[list[_Change], int]:
    """What a first stretch of the log says, nothing twice, and the position it reaches."""
    room = budget_tokens * BYTES_PER_TOKEN * READ_AHEAD
    read: list[tuple[Entry, str]] = []
    for entry in log.read(since):
        read.append((entry, _says(entry, log, state_at)))
        room -= size(clipped(read[-1][1], budget_tokens)) + 1
        if room < 0:
            break
    later: set[str] = set()
    changes = []
    for entry, says in reversed(read):
        said = _said(entry, says)
        if not later & {said, _begun(entry)}:
            line = f"{entry.position}. {_line(entry, says, log, state_at, budget_tokens)}"
            changes.append(_Change(line, entry))
        later |= {said, *_told_again(entry)}
    return changes[::-1], read[-1][0].position if read else since


def _line(
    entry: Entry, says: str, log: Log, state_at: Callable[[int], State], budget_tokens: int
) -> str:
    """What an entry says as a line. Where it is too long its texts are cut, and what happened to them is told still."""
    most = line_bytes_max(budget_tokens)
    for share in TEXT_SHARES:
        if size(one_line(says)) <= most:
            break
        says = _says(entry, log, state_at, shown=int(most * share))
    return clipped(says, budget_tokens)


def _says(
    entry: Entry,
    log: Log,
    state_at: Callable[[int], State],
    deep: int = UNDONE_DEEP_MAX,
    shown: int | None = None,
) -> str:
    """What an entry says; an undo with what it took back, which may lie before all that is told here."""
    says, event = sentence(entry, state_at, shown), entry.event
    if not isinstance(event, events.CommandUndone) or not deep:
        return says
    undone = map(log.entry, range(event.first, min(event.last + 1, event.first + UNDONE_TOLD_MAX)))
    told = [_says(each, log, state_at, deep - 1, shown) for each in undone if each is not None]
    if more := event.last - event.first + 1 - len(told):
        told.append(f"and {more} more")
    return f"{says}: {'; '.join(told)}"


def _said(entry: Entry, says: str) -> str:
    """What two entries that tell the same have in common. A memory whose beginning alone is told is not another one."""
    if CUT not in says:
        return says
    match entry.event:
        case (
            events.MemoryStored()
            | events.MemoryMerged()
            | events.MemorySuperseded()
            | events.MemoryDeleted()
        ) as event:
            return f"{event.memory_id} {says}"
    return says


def _begun(entry: Entry) -> str:
    """The id of what an event brought into being and its sentence tells whole."""
    match entry.event:
        case events.EntityCreated() as event:
            return event.entity_id
        case events.ObservationAdded() as event:
            return event.observation_id
        case events.RelationAdded() as event:
            return event.relation_id
        case events.MemoryStored() as event:
            return event.memory_id
    return ""


def _told_again(entry: Entry) -> tuple[str, ...]:
    """The ids of things that the sentence of an event tells whole, though they began before."""
    match entry.event:
        case events.EntityDeleted() as event:
            return (event.entity_id,)
        case events.ObservationSuperseded() as event:
            return (event.supersedes,)
        case events.ObservationDeleted() | events.ObservationMoved() as event:
            return (event.observation_id,)
        case events.RelationDeleted() as event:
            return (event.relation_id,)
        case events.MemorySuperseded() as event:
            return (event.memory_id, event.superseded_by)
        case events.MemoryDeleted() | events.MemoryMerged() as event:
            return (event.memory_id,)
    return ()


def _changed_by(entry: Entry) -> ChangedBy:
    return ChangedBy(
        position=entry.position,
        time=iso(entry.time_us),
        thread=entry.thread,
        actor=entry.actor,
    )


def _fitting(changes: Sequence[_Change], head: int, budget_tokens: int) -> Iterator[_Change]:
    """The first of them that fit together with their commands, with room for saying that there are more; at least
    one."""
    room = budget_tokens * BYTES_PER_TOKEN - size(_footer(head, head))
    command = None
    for change in changes:
        room -= size(change.line) + 1
        if change.entry.command_id != command:
            room -= len(_encode(_changed_by(change.entry))) + 1
        if room < 0 and command is not None:
            return
        command = change.entry.command_id
        yield change


def _footer(more: int, position: int) -> str:
    return f"… {more} more: ask again with since={position}"
