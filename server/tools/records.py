"""Toolset `records`: structured memories with types and tags, saved once however often they are sent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any

from msgspec import Meta, field

from memlog.closest import did_you_mean
from memlog.commands import ITEMS_MAX, CreateMemory, Tag, TypeName
from memlog.errors import LimitExceeded, Problem, refusal, shorten
from memlog.events import MemoryStored
from memlog.projects.project import Outcome
from memlog.rows import Memory, labels_of
from memlog.settings import Settings
from memlog.state import State
from memlog.times import iso
from projections.documents import thread_labels
from projections.search.searcher import DEPTH
from server.addresses import item_uri
from server.answering.cursors import CursorText, write_cursor
from server.answering.cutting import said, together, within_budget
from server.answering.findings import GRAPH_KINDS, told_elsewhere
from server.answering.memories import (
    MEMORY_KINDS,
    Older,
    found_memories,
    stored,
)
from server.answering.moments import AsOf, NewSince, beyond, start_of
from server.answering.nearest import silent_thread
from server.answering.packing import one_line
from server.answering.rankings import Deep, QueryText, ranked
from server.answering.views import Blame, Provenance, view_provenance
from server.registry import Arguments, Call, Link, Result, WroteThread, tool

Tags = Annotated[list[Tag], Meta(max_length=ITEMS_MAX, description="All of these")]
LABELS_READ_MAX = 1_000
"""Among so many, what was meant by a type or tag that nothing has is looked for."""


class RecordView(Result, frozen=True):
    """A record without its content, which `resources/read` of its uri gives."""

    id: str
    uri: str
    type: str
    similarity: float | None
    tags: list[str]
    created_at: str = field(name="createdAt")
    provenance: Provenance | None = None


class CreateMemoryResult(Result, frozen=True, omit_defaults=False):
    """`created` is false where the same record was there and was updated."""

    project: str
    id: str
    uri: str
    created: bool
    type: str
    tags: list[str]
    confidence: float
    created_at: str = field(name="createdAt")
    updated_at: str = field(name="updatedAt")


def _view(
    row: Memory, call: Call, similarity: float | None = None, blamed: State | None = None
) -> RecordView:
    return RecordView(
        id=row.id,
        uri=_uri(row, call),
        type=row.memory_type,
        similarity=similarity,
        tags=list(row.tags),
        created_at=iso(row.created_us),
        provenance=view_provenance(row, blamed),
    )


def _uri(row: Memory, call: Call) -> str:
    return item_uri(row.id, call.project, call.session.active)


@tool("records", "Save a record", writes=True)
def memory_create(call: Call, arguments: CreateMemory) -> CreateMemoryResult:
    """Save a structured record (decision, note, runbook, …). Saving the same again makes no second one.

    The same type, source and content unite their tags and keep the higher confidence.
    Example: {"type": "decision", "content": {"summary": "Adopt blue/green"}, "source": "chat://session-1",
    "tags": ["project:shop"], "confidence": 0.9}
    """

    def answer(outcome: Outcome) -> CreateMemoryResult:
        row = stored(outcome)
        return CreateMemoryResult(
            project=call.project,
            id=row.id,
            uri=_uri(row, call),
            created=any(outcome.events(MemoryStored)),
            type=row.memory_type,
            tags=list(row.tags),
            confidence=row.confidence,
            created_at=iso(row.created_us),
            updated_at=iso(row.updated_us),
        )

    return call.execute(arguments, answer, CreateMemoryResult)


class MemorySearch(Arguments, frozen=True):
    query: Annotated[QueryText, Meta(examples=["deployment checklist"])]
    type: TypeName | None = None
    tags: Tags = field(default_factory=list)
    thread_id: WroteThread | None = field(name="threadId", default=None)
    since: NewSince | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class RecordsResult(Result, frozen=True):
    project: str
    results: list[RecordView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _RecordsCursor(Deep):
    pass


def _links(result: RecordsResult) -> list[Link]:
    return [Link(view.uri, f"{one_line(view.type)} {view.id}") for view in result.results]


@tool("records", "Search records", links=_links)
def memory_search(call: Call, arguments: MemorySearch) -> RecordsResult:
    """Search records by meaning and words, narrowed by type and tags; read what you need by its link.

    Example: {"query": "rollback steps", "type": "runbook", "tags": ["project:shop"], "limit": 5}
    """
    project, opened = call.open(arguments)
    limit = limit_of(call.service.settings, arguments.limit)
    start = start_of(_RecordsCursor, arguments, opened, max(DEPTH, limit))
    wanted = labels_of(arguments.type, arguments.tags)
    since = beyond(arguments.since, opened.project, start.position)
    ranking = ranked(
        opened.searcher,
        start,
        arguments.query,
        kinds=MEMORY_KINDS,
        labels=(*wanted, *thread_labels(arguments.thread_id)),
        since=since,
    )
    with opened.project.read(ranking.position) as state:
        blamed = state if arguments.provenance else None
        found = found_memories(ranking, limit, state)
        views = [_view(each.row, call, each.relevance, blamed) for each in found]
        lacking = None if views else lacking_labels(wanted, state)
        position = state.position
    views = _told(views, arguments.limit)
    following = ranking.following(position, found[len(views) - 1].rank if views else None)
    silent = None if views else silent_thread(arguments.thread_id, opened)
    if silent is None and not views and not wanted:
        silent = told_elsewhere(ranking, GRAPH_KINDS, call.session, arguments.cursor)
    return RecordsResult(
        project=project,
        results=views,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=together(ranking.found.notice, lacking, silent),
    )


class MemoryList(Arguments, frozen=True):
    type: TypeName | None = None
    tags: Tags = field(default_factory=list)
    thread_id: WroteThread | None = field(name="threadId", default=None)
    limit: Annotated[int, Meta(ge=1)] | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


@tool("records", "List records", links=_links)
def memory_list(call: Call, arguments: MemoryList) -> RecordsResult:
    """List records by type and tags, the newest first, without a query. Example: {"type": "todo"}"""
    return list_records(call, arguments)


def list_records(call: Call, arguments: MemoryList, usual: int | None = None) -> RecordsResult:
    """What `memory_list` answers; `usual` is how many are listed where no limit is named, if not as for that."""
    project, opened = call.open(arguments)
    limit = limit_of(call.service.settings, arguments.limit, usual)
    start = start_of(Older, arguments, opened)
    with opened.project.read(start.position) as state:
        wanted = labels_of(arguments.type, arguments.tags)
        listed = state.memories(wanted, start.born, arguments.thread_id)
        rows = list(islice(listed, limit + 1))
        lacking = None if rows else lacking_labels(wanted, state)
        position = state.position
        blamed = state if arguments.provenance else None
        views = [_view(row, call, blamed=blamed) for row in rows[:limit]]
    views = _told(views, arguments.limit)
    more = len(rows) > len(views)
    following = Older(position, rows[len(views) - 1].born) if more else None
    silent = None if rows else silent_thread(arguments.thread_id, opened)
    return RecordsResult(
        project=project,
        results=views,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=together(lacking, silent),
    )


def _told(views: list[RecordView], limit: int | None) -> list[RecordView]:
    """All of them where the caller asked for a number, else what an answer holds."""
    return list(within_budget(views)) if limit is None else views


def lacking_labels(wanted: Sequence[str], state: State) -> str | None:
    """Which of the labels asked for no record has, and what was perhaps meant: they are compared to the letter. Or
    that none has them all."""
    told: list[str] = []
    for label in wanted:
        if next(state.memories((label,)), None) is None:
            kind, _, value = label.partition(":")
            known = (each.partition(":") for each in islice(state.labels(), LABELS_READ_MAX))
            near = did_you_mean(value, [name for of, _, name in known if of == kind])
            told.append(f"No record has the {_shown(label)}.{f' {near}' if near else ''}")
    if not told and len(wanted) > 1 and next(state.memories(wanted), None) is None:
        all_of = ", ".join(said([*map(_shown, wanted)], "of these"))
        return f"No record has all of {all_of}, though there are records with each of them. Ask with fewer."
    return together(*said(told, "that are unknown"))


def _shown(label: str) -> str:
    kind, _, value = label.partition(":")
    return f"{kind} '{shorten(value)}'"


def record_content(row: Memory) -> dict[str, Any]:
    """The whole record, as `resources/read` gives it."""
    return {
        "id": row.id,
        "type": row.memory_type,
        "content": row.content,
        "source": row.source,
        "confidence": row.confidence,
        "tags": list(row.tags),
        "createdAt": iso(row.created_us),
        "updatedAt": iso(row.updated_us),
        "supersedes": row.supersedes,
        "supersededBy": row.superseded_by,
        "deletedAt": None if row.deleted_us is None else iso(row.deleted_us),
    }


def limit_of(settings: Settings, wanted: int | None, usual: int | None = None) -> int:
    """How many records a list has. Raises LimitExceeded where more are wanted than the server gives."""
    if wanted is None:
        return min(usual or settings.search_limit, settings.search_limit_max)
    if wanted > settings.search_limit_max:
        problem = Problem(
            "limit",
            f"limit is {wanted}. Max {settings.search_limit_max}.",
            "Ask for less, or page with memory_list and its cursor.",
            wanted,
        )
        raise refusal([(LimitExceeded, problem)])
    return wanted
