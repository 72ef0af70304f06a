"""Toolset `facts`: single facts that supersede each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated

from msgspec import Meta, field

from memlog.canonical import canonical, text_of
from memlog.commands import StoreMemory, SupersedeMemory
from memlog.decisions.memories import FACT, predecessors
from memlog.projects.project import Outcome
from memlog.rows import Memory, type_label
from memlog.state import State
from memlog.times import iso
from projections.documents import thread_labels
from projections.search.searcher import DEPTH
from server.answering.cursors import CursorText, write_cursor
from server.answering.cutting import Room, together, within_budget
from server.answering.findings import GRAPH_KINDS, told_elsewhere
from server.answering.memories import (
    MEMORY_KINDS,
    Older,
    found_memories,
    similar_facts,
    stored,
)
from server.answering.moments import AsOf, NewSince, beyond, start_of
from server.answering.nearest import silent_thread
from server.answering.rankings import Deep, QueryText, ranked
from server.answering.views import Blame, Provenance, view_provenance
from server.opened import Opened
from server.registry import Arguments, Call, Result, WroteThread, tool
from server.usage import Usage

LOOKS_MAX = 4
"""How often similar facts are looked for where others are stored at the same moment."""

OVERTAKEN = "Similar memories may be missing: others were stored at the same moment. search_memories finds them."


class FactView(Result, frozen=True):
    """A memory as clients of other memory servers know it, in snake_case."""

    id: str
    content: str
    confidence: float
    source: str
    created_at: str
    updated_at: str
    accessed_at: str
    supersedes: str | None = None
    superseded_by: str | None = None
    relevance_score: float | None = None
    provenance: Provenance | None = None


def _view(
    row: Memory, usage: Usage, relevance: float | None = None, blamed: State | None = None
) -> FactView:
    return FactView(
        id=row.id,
        content=text_of(row.content),
        confidence=row.confidence,
        source=row.source,
        created_at=iso(row.created_us),
        updated_at=iso(row.updated_us),
        accessed_at=iso(max(usage.accessed_us(row.id), row.created_us)),
        supersedes=row.supersedes,
        superseded_by=row.superseded_by,
        relevance_score=relevance,
        provenance=view_provenance(row, blamed),
    )


class StoreMemoryResult(Result, frozen=True, omit_defaults=False):
    project: str
    created: FactView
    similar: list[FactView]
    action_required: str | None
    notice: str | None = None


class _Overtaken(Exception):
    """Another fact was stored after similar ones were looked for, and before this one."""


@tool("facts", "Store a fact", writes=True, idempotent=False)
def store_memory(call: Call, arguments: StoreMemory) -> StoreMemoryResult:
    """Store one fact to remember it. Always succeeds; returns similar ones it might outdate.

    ALWAYS look at action_required, the call that marks the outdated one; leave it if both are true.
    Example: {"content": "User moved to Austin", "source": "explicit"}
    """
    _, opened = call.open(arguments)
    for _ in range(LOOKS_MAX - 1):
        with suppress(_Overtaken):
            return _store(call, arguments, opened)
    return _store(call, arguments, opened, whatever=True)


def _store(
    call: Call, arguments: StoreMemory, opened: Opened, *, whatever: bool = False
) -> StoreMemoryResult:
    """Looks for similar facts, and stores this one. Raises _Overtaken, with nothing written, where one of those stored
    meanwhile may be similar; `whatever` stores it all the same, and says so."""
    head = opened.project.head()
    found, notice, looked = similar_facts(
        opened, arguments.content, call.service.settings.similar_min
    )

    def answer(outcome: Outcome) -> StoreMemoryResult:
        row = stored(outcome)
        overtaken = looked and _newest_but(row, outcome.after) > head
        if overtaken and not whatever:
            raise _Overtaken
        rows = ((outcome.after.memory(old.id), cosine) for old, cosine in found)
        near = [(old, cosine) for old, cosine in rows if old is not None and old.active]
        action = None
        if near:
            action = (
                f'Call supersede_memory("{near[0][0].id}", "{row.id}") '
                "to mark the old memory as outdated."
            )
        usage, room = call.service.usage, Room()
        (created,) = room.take([_view(row, usage)], "created")
        similar = [_view(old, usage, cosine) for old, cosine in near]
        return StoreMemoryResult(
            project=call.project,
            created=created,
            similar=room.take(similar, "similar memories"),
            action_required=action,
            notice=room.notice(
                "search_memories finds them.",
                notice,
                OVERTAKEN if overtaken else None,
                _outdated_before(row, [old for old, _ in near], outcome.after),
            ),
        )

    return call.execute(arguments, answer, StoreMemoryResult)


def _outdated_before(row: Memory, similar: Iterable[Memory], state: State) -> str | None:
    """That one of the similar facts was once put in the place of one that said the same: whoever stores it again may
    not know that."""
    for newer in similar:
        said = (canonical(text_of(older.content)) for older in predecessors(newer, state))
        if canonical(text_of(row.content)) in said:
            return (
                f"This was marked as outdated by {newer.id} before. If that one is true still, call instead "
                f'supersede_memory("{row.id}", "{newer.id}").'
            )
    return None


def _newest_but(row: Memory, state: State) -> int:
    """When the newest fact came into being, but for this one; 0 where there is none."""
    others = (each.born for each in state.memories((type_label(FACT),)) if each.id != row.id)
    return next(others, 0)


class SupersedeMemoryResult(Result, frozen=True):
    project: str
    success: bool
    message: str


@tool("facts", "Mark a fact as outdated", writes=True)
def supersede_memory(call: Call, arguments: SupersedeMemory) -> SupersedeMemoryResult:
    """Mark an old memory as outdated by a newer one. Call it when store_memory suggests it.

    The old one leaves every list and search. mem://item/{id} still reads it.
    Example: {"old_memory_id": "mem_01h2xcejqtf2nbrexx3vqjhp41", "new_memory_id": "mem_01h455vb4pex5vsknk084sn02q"}
    """
    project, _ = call.open(arguments)
    result = SupersedeMemoryResult(
        project=project,
        success=True,
        message=f"Memory {arguments.old_memory_id} marked as superseded by {arguments.new_memory_id}",
    )
    return call.execute(arguments, lambda _: result, SupersedeMemoryResult)


class SearchMemories(Arguments, frozen=True):
    query: Annotated[QueryText, Meta(examples=["where does the user live"])]
    limit: Annotated[int, Meta(ge=1, le=20)] = 5
    thread_id: WroteThread | None = field(name="threadId", default=None)
    since: NewSince | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class FactsResult(Result, frozen=True):
    project: str
    memories: list[FactView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _FactsCursor(Deep):
    pass


@tool("facts", "Search facts")
def search_memories(call: Call, arguments: SearchMemories) -> FactsResult:
    """Search memories by meaning and by words; outdated ones are left out.

    Use it before answering from what you know of the user. Example: {"query": "Where does the user live?"}
    """
    project, opened = call.open(arguments)
    start = start_of(_FactsCursor, arguments, opened, DEPTH)
    since = beyond(arguments.since, opened.project, start.position)
    ranking = ranked(
        opened.searcher,
        start,
        arguments.query,
        kinds=MEMORY_KINDS,
        labels=thread_labels(arguments.thread_id),
        since=since,
    )
    usage = call.service.usage
    with opened.project.read(ranking.position) as state:
        blamed = state if arguments.provenance else None
        found = found_memories(ranking, arguments.limit, state)
        views = [_view(each.row, usage, each.relevance, blamed) for each in found]
        position = state.position
    shown = list(within_budget(views))
    usage.read(view.id for view in shown)
    last = found[len(shown) - 1].rank if shown else None
    following = ranking.following(position, last)
    silent = None
    if not shown:
        silent = silent_thread(arguments.thread_id, opened) or told_elsewhere(
            ranking, GRAPH_KINDS, call.session, arguments.cursor
        )
    return FactsResult(
        project=project,
        memories=shown,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=together(_cut(views, shown), ranking.found.notice, silent),
    )


class ListRecentMemories(Arguments, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    thread_id: WroteThread | None = field(name="threadId", default=None)
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


@tool("facts", "List recent facts")
def list_recent_memories(call: Call, arguments: ListRecentMemories) -> FactsResult:
    """List the memories stored last, the newest first; outdated ones are left out. Example: {"limit": 5}"""
    project, opened = call.open(arguments)
    start = start_of(Older, arguments, opened)
    usage = call.service.usage
    with opened.project.read(start.position) as state:
        blamed = state if arguments.provenance else None
        listed = state.memories(before=start.born, thread=arguments.thread_id)
        rows = list(islice(listed, arguments.limit + 1))
        views = [_view(row, usage, blamed=blamed) for row in rows[: arguments.limit]]
        position = state.position
    shown = list(within_budget(views))
    usage.read(view.id for view in shown)
    more = len(rows) > len(shown)
    following = Older(position, rows[len(shown) - 1].born) if more else None
    return FactsResult(
        project=project,
        memories=shown,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=_cut(views, shown) if shown else silent_thread(arguments.thread_id, opened),
    )


def _cut(views: Sequence[FactView], shown: Sequence[FactView]) -> str | None:
    """How many of those asked for the answer does not hold."""
    left_out = len(views) - len(shown)
    if not left_out:
        return None
    return f"{left_out} more did not fit into the answer: nextCursor goes on with them."
