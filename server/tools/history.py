"""Toolset `history`: what happened, to whom it happened, and taking it back."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, field

from memlog.codec import Entry
from memlog.commands import (
    EntityName,
    ForgetMemory,
    MemoryId,
    MergeEntities,
    RenameEntity,
    Undo,
    UpdateObservation,
)
from memlog.decisions.facts import Facts
from memlog.decisions.graph import in_short
from memlog.decisions.memories import missing_memory
from memlog.decisions.names import leads_to_itself, missing_entity
from memlog.decisions.touching import memory_positions, positions_of_name
from memlog.decisions.undoing import undone
from memlog.errors import InvalidParameter, Problem, StorageError, refusal, refuse
from memlog.events import MemoryDeleted, ObservationSuperseded, RelationDeleted
from memlog.projects.project import Outcome
from memlog.sentences import sentence
from memlog.state import State
from memlog.times import iso
from projections.analytics.tables import scope_of
from server.advice import followable
from server.answering.cursors import Count, CursorText, Limit, read_cursor, write_cursor
from server.answering.cutting import page_of, said, together, within_budget
from server.answering.moments import AllSince, Since, end_of, position_of
from server.answering.nearest import require_thread, silent_thread
from server.answering.portions import OPEN_ALONE, cut_notice, portion, view_portion
from server.answering.views import EntityView, RelationView, view_relation
from server.opened import Opened
from server.registry import Arguments, Call, Result, ThreadId, tool

UNDONE_SHOWN_MAX = 50
LAST_MAX = 100
NOTHING_TO_UNDO = "Nothing to undo: it is as it was before already."


# -- get_history


class GetHistory(Arguments, frozen=True):
    entity_name: EntityName | None = field(name="entityName", default=None)
    memory_id: MemoryId | None = field(name="memoryId", default=None)
    thread_id: ThreadId | None = field(name="threadId", default=None)
    since: Since | None = None
    limit: Limit | None = None
    cursor: CursorText | None = None


class Happened(Result, frozen=True):
    """One event in plain words."""

    position: int
    time: str
    says: str
    command: str
    thread: str | None = None
    actor: str | None = None


class HistoryResult(Result, frozen=True):
    project: str
    events: list[Happened]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _Before(msgspec.Struct, array_like=True):
    """Events below `position`."""

    position: Count = 2**63 - 1


@tool("history", "Show what happened")
def get_history(call: Call, arguments: GetHistory) -> HistoryResult:
    """Show what happened to an entity, a memory, or in the whole project, newest first, in plain words.

    Each event has its position (for asOf), time, thread and command. undo {"position": 12} takes a command back.
    Example: {"entityName": "john-doe"}
    """
    if arguments.entity_name is not None and arguments.memory_id is not None:
        problem = Problem(
            "memoryId",
            "entityName and memoryId exclude each other",
            "Ask for the history of one, then for that of the other.",
            arguments.memory_id,
        )
        raise refusal([(InvalidParameter, problem)])
    project, opened = call.open(arguments)
    start = read_cursor(_Before, opened.project_id, arguments) or _Before()
    since = position_of(arguments.since, opened.project, "since") or 0
    wrote = _stretch(arguments.thread_id, opened)
    with opened.project.snapshot() as (log, state_at):
        state = state_at(log.position())
        before = start.position
        if wrote is not None:
            since = max(since, log.position_at(wrote.from_us - 1))
            before = min(before, wrote.last + 1)
        entries = (
            entry
            for entry in log.newest_first(_positions(arguments, state), before=before, after=since)
            if arguments.thread_id in (None, entry.thread)
        )
        events = (happened(entry, state) for entry in entries)
        page, more = page_of(events, arguments.limit)
    following = _Before(page[-1].position) if more else None
    cursor = write_cursor(following, opened.project_id, arguments)
    notice = None if page else silent_thread(arguments.thread_id, opened)
    return HistoryResult(project=project, events=page, next_cursor=cursor, notice=notice)


class _Stretch(NamedTuple):
    """From when on, and up to which position, somebody wrote."""

    from_us: int
    last: int


def _stretch(thread: str | None, opened: Opened) -> _Stretch | None:
    """In which part of the log a thread wrote; None where there is no thread, or that cannot be counted now."""
    if thread is None:
        return None
    try:
        with opened.projections.analytics().read() as counted:
            row = counted.thread(scope_of(thread))
    except StorageError:
        return None
    return _Stretch(0, 0) if row is None else _Stretch(row.first_us, row.last_position)


def happened(entry: Entry, state: State) -> Happened:
    return Happened(
        position=entry.position,
        time=iso(entry.time_us),
        says=sentence(entry, state.at),
        command=entry.command_id,
        thread=entry.thread,
        actor=entry.actor,
    )


def _positions(wanted: GetHistory, state: State) -> set[int] | None:
    """Where what was asked for was touched; None where nothing in particular was asked for."""
    if wanted.memory_id is not None:
        positions = memory_positions(wanted.memory_id, state)
        if not positions:
            raise refusal([missing_memory(wanted.memory_id, "memoryId", state)])
        return positions
    if wanted.entity_name is None:
        return None
    positions = positions_of_name(wanted.entity_name, state)
    if not positions:
        raise refusal([missing_entity(wanted.entity_name, "entityName", state)])
    return positions


# -- undo


class UndoArguments(Arguments, frozen=True):
    position: (
        Annotated[int, Meta(ge=1, description="Any position of the command to undo")] | None
    ) = None
    last: Annotated[
        int, Meta(ge=1, le=LAST_MAX, description="How many of the last commands (of threadId)")
    ] = 1
    since: AllSince | None = None
    cascade: Annotated[bool, Meta(description="Undo what depends on it first")] = False
    dry_run: Annotated[bool, Meta(description="Only tell what would be undone")] = field(
        name="dryRun", default=False
    )


class UndoResult(Result, frozen=True, omit_defaults=False):
    """`undone` tells what is as if it had not happened; `position` undoes the undo."""

    project: str
    dry_run: bool = field(name="dryRun")
    position: int | None
    undone: list[Happened]
    left_out: int = field(name="leftOut")
    notice: str | None = None


@tool("history", "Undo", writes=True, destructive=True, idempotent=False)
def undo(call: Call, arguments: UndoArguments) -> UndoResult:
    """Take back the last command, the one at a position, or all since a moment; whatever they were. The undo can
    itself be undone.

    Refused where later commands depend on it, unless cascade. Try dryRun first.
    Example: {"dryRun": true}
    """
    _require_one_way(arguments)
    project, opened = call.open(arguments)
    command = Undo(
        position=arguments.position,
        last=arguments.last,
        since=end_of(arguments.since, opened.project, "since"),
        thread=call.origin.thread if arguments.position is None else None,
        cascade=arguments.cascade,
    )

    def answer(outcome: Outcome) -> UndoResult:
        positions = undone(outcome.entries)
        entries = map(outcome.after.entry_at, positions[:UNDONE_SHOWN_MAX])
        told = (happened(entry, outcome.after) for entry in entries if entry is not None)
        shown = list(within_budget(told))
        left_out = len(positions) - len(shown)
        return UndoResult(
            project=project,
            dry_run=arguments.dry_run,
            position=outcome.entries[-1].position
            if outcome.entries and not arguments.dry_run
            else None,
            undone=shown,
            left_out=left_out,
            notice=_undo_notice(left_out, len(positions), command),
        )

    require_thread(command.thread, opened)
    if arguments.dry_run:
        return opened.project.rehearse(command, call.service.store.context, answer)
    return call.execute(command, answer, UndoResult)


def _require_one_way(arguments: UndoArguments) -> None:
    """Raises InvalidParameter where it is said in two ways what is to be undone."""
    usual = {"position": None, "last": 1, "since": None}
    given = [name for name, value in usual.items() if getattr(arguments, name) != value]
    first, *more = given or [""]
    mend = (
        "Pass position for one command, last for the newest ones, or since for all after a moment."
    )
    refuse(
        (
            InvalidParameter,
            Problem(name, f"{first} and {name} exclude each other", mend, getattr(arguments, name)),
        )
        for name in more
    )


def _undo_notice(left_out: int, count: int, command: Undo) -> str | None:
    if not count:
        return nothing_to_undo(command)
    if not left_out:
        return None
    return f"{left_out:,} of the {count:,} events concerned are not shown here: get_history tells them all."


def nothing_to_undo(command: Undo) -> str:
    """That it is as it was before; and how those before are reached, where the last ones were meant and are left."""
    by_number = command.position is None and command.since is None
    if not by_number or command.last == LAST_MAX:
        return NOTHING_TO_UNDO
    return f"{NOTHING_TO_UNDO} Pass last={command.last + 1} to go one command further back."


# -- rename and merge


class NamedEntity(EntityView, frozen=True, kw_only=True):
    """An entity with its relations, after its name changed."""

    relations: list[RelationView]


class NamedEntityResult(Result, frozen=True):
    project: str
    entity: NamedEntity
    notice: str | None = None


def _named(name: str, call: Call, command: RenameEntity | MergeEntities) -> NamedEntityResult:
    """Makes the command true, and tells the entity that has this name then."""

    def answer(outcome: Outcome) -> NamedEntityResult:
        row = outcome.after.entity_named(name)
        assert row is not None, "it was renamed or merged into in this very transaction"
        told = portion(outcome.after.known_of(row))
        relations = [view_relation(each) for each in told.edges]
        view = view_portion(NamedEntity, told, relations=relations)
        back = f'To take it back: undo {{"position": {outcome.before.position + 1}}}.'
        gone = said(_went(outcome), "relations that are no more", followable(call.session, back))
        notice = together(cut_notice([view], OPEN_ALONE, call.session), *gone)
        return NamedEntityResult(project=call.project, entity=view, notice=notice)

    return call.execute(command, answer, NamedEntityResult)


def _went(outcome: Outcome) -> list[str]:
    """Which relations are no more, for both ends are one entity by now; not those that it has from before."""
    deleted = (
        outcome.before.relation(each.relation_id) for each in outcome.events(RelationDeleted)
    )
    return [
        f"The relation '{in_short(row)}' is no more: it would lead from the entity to itself."
        for row in deleted
        if row is not None and leads_to_itself(row.source, row.target, outcome.after)
    ]


@tool("history", "Rename an entity or change its type", writes=True)
def rename_entity(call: Call, arguments: RenameEntity) -> NamedEntityResult:
    """Give an entity another name or type. Facts, relations and history follow; the old name still finds it.

    Example: {"name": "jon", "newName": "john-doe"}
    """
    return _named(arguments.new_name or arguments.name, call, arguments)


@tool("history", "Merge entities", writes=True, destructive=True)
def merge_entities(call: Call, arguments: MergeEntities) -> NamedEntityResult:
    """Make one entity of several that are the same: facts and relations unite, their names become aliases.

    undo splits them again. Example: {"names": ["jon", "J. Doe"], "into": "john-doe"}
    """
    return _named(arguments.into, call, arguments)


# -- facts


class UpdateObservationResult(Result, frozen=True, omit_defaults=False):
    project: str
    entity_name: str = field(name="entityName")
    id: str
    content: str
    version: int
    supersedes: str | None


@tool("history", "Correct a fact", writes=True)
def update_observation(call: Call, arguments: UpdateObservation) -> UpdateObservationResult:
    """Replace a fact of an entity by a new version; the old one stays in the history.

    Example: {"entityName": "john-doe", "observation": "Lives in Rome", "newContent": "Lives in Oslo"}
    """

    def answer(outcome: Outcome) -> UpdateObservationResult:
        new = [event.observation_id for event in outcome.events(ObservationSuperseded)]
        entity = outcome.after.entity_named(arguments.entity_name)
        assert entity is not None, "the decision found it"
        facts = Facts(outcome.after, entity.id)
        row = facts.find(new[0] if new else arguments.observation)
        if row is None:  # it says so already
            (row, *_) = facts.saying(arguments.new_content)
        return UpdateObservationResult(
            project=call.project,
            entity_name=entity.name,
            id=row.id,
            content=row.content,
            version=row.version,
            supersedes=row.supersedes,
        )

    return call.execute(arguments, answer, UpdateObservationResult)


class ForgetMemoryResult(Result, frozen=True):
    project: str
    success: bool
    message: str


@tool("history", "Forget a memory", writes=True, destructive=True)
def forget_memory(call: Call, arguments: ForgetMemory) -> ForgetMemoryResult:
    """Take a fact or record out of every list and search; undo brings it back.

    Example: {"id": "mem_01h455vb4pex5vsknk084sn02q"}
    """

    def answer(outcome: Outcome) -> ForgetMemoryResult:
        gone = any(outcome.events(MemoryDeleted))
        message = f"Memory {arguments.id} {'was forgotten' if gone else 'was forgotten before'}"
        outdated = _stays_outdated(arguments.id, outcome.after)
        return ForgetMemoryResult(
            project=call.project, success=True, message=together(message, outdated) or message
        )

    return call.execute(arguments, answer, ForgetMemoryResult)


def _stays_outdated(forgotten: str, state: State) -> str | None:
    """Which memory gave way to one that was forgotten, and so is found no more either."""
    row = state.memory(forgotten)
    newest = row is not None and row.superseded_by is None
    old = state.memory(row.supersedes) if row and newest and row.supersedes else None
    if old is None or old.superseded_by != forgotten or old.deleted_us is not None:
        return None
    back = f'undo {{"position": {max(memory_positions(old.id, state))}}} brings that back.'
    return f"Memory {old.id}, which it had superseded, stays outdated: {back}"
