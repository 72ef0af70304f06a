"""Toolset `facts`: single facts that supersede each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

from msgspec import Meta, field

from memlog.canonical import text_of
from memlog.commands import StoreMemory, SupersedeMemory
from memlog.projects.project import Outcome
from memlog.state import Memory
from memlog.times import iso
from server.advice import followable
from server.answering.cutting import Room, together, within_budget
from server.answering.memories import MEMORY_KINDS, found_memories, similar_facts, stored
from server.answering.moments import AsOf, position_of
from server.answering.views import Blame, Provenance, view_provenance
from server.input.wording import SEARCHED
from server.registry import Arguments, Call, Result, tool

QUERY_CHARACTERS_MAX = 1_000


class FactView(Result, frozen=True):
    """A memory as the seed's clients know it, in snake_case."""

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


def view_fact(
    row: Memory,
    accessed_us: int,
    relevance: float | None = None,
    provenance: Provenance | None = None,
) -> FactView:
    return FactView(
        id=row.id,
        content=text_of(row.content),
        confidence=row.confidence,
        source=row.source,
        created_at=iso(row.created_us),
        updated_at=iso(row.updated_us),
        accessed_at=iso(max(accessed_us, row.created_us)),
        supersedes=row.supersedes,
        superseded_by=row.superseded_by,
        relevance_score=relevance,
        provenance=provenance,
    )


class StoreMemoryResult(Result, frozen=True, omit_defaults=False):
    project: str
    created: FactView
    similar: list[FactView]
    action_required: str | None
    notice: str | None = None


@tool("facts", "Store a fact", writes=True, idempotent=False)
def store_memory(call: Call, arguments: StoreMemory) -> StoreMemoryResult:
    """Store one fact. Always succeeds, and returns similar memories that might be outdated by it.

    ALWAYS look at action_required: it names the call that marks the outdated one.
    Example: {"content": "User moved to Austin", "source": "explicit"}
    """
    project, opened = call.open(arguments)
    near, notice = similar_facts(opened, arguments.content, call.service.settings.similar_min)

    def answer(outcome: Outcome) -> StoreMemoryResult:
        row = stored(outcome)
        action = None
        if near:
            action = (
                f'Call supersede_memory("{near[0][0].id}", "{row.id}") '
                "to mark the old memory as outdated."
            )
        usage, room = call.service.usage, Room()
        (created,) = room.take([view_fact(row, row.created_us)], "created")
        similar = [view_fact(old, usage.accessed_us(old.id), cosine) for old, cosine in near]
        return StoreMemoryResult(
            project=project,
            created=created,
            similar=room.take(similar, "similar memories"),
            action_required=action,
            notice=room.notice("search_memories finds them.", notice),
        )

    return call.execute(opened, arguments, answer, StoreMemoryResult)


class SupersedeMemoryResult(Result, frozen=True):
    project: str
    success: bool
    message: str


@tool("facts", "Mark a fact as outdated", writes=True)
def supersede_memory(call: Call, arguments: SupersedeMemory) -> SupersedeMemoryResult:
    """Mark an old memory as outdated by a newer one. Call it when store_memory suggests it.

    The old one leaves every list and search; mem://item/{id} still reads it.
    Example: {"old_memory_id": "mem_01h2xcejqtf2nbrexx3vqjhp41", "new_memory_id": "mem_01h455vb4pex5vsknk084sn02q"}
    """
    project, opened = call.open(arguments)
    result = SupersedeMemoryResult(
        project=project,
        success=True,
        message=f"Memory {arguments.old_memory_id} marked as superseded by {arguments.new_memory_id}",
    )
    return call.execute(opened, arguments, lambda _: result, SupersedeMemoryResult)


class SearchMemories(Arguments, frozen=True):
    query: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=QUERY_CHARACTERS_MAX,
            examples=["where does the user live"],
            extra={SEARCHED: True},
        ),
    ]
    limit: Annotated[int, Meta(ge=1, le=20)] = 5
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class FactsResult(Result, frozen=True):
    project: str
    memories: list[FactView]
    notice: str | None = None


@tool("facts", "Search facts")
def search_memories(call: Call, arguments: SearchMemories) -> FactsResult:
    """Search memories by meaning and by words; outdated ones are left out.

    Use it before answering from what you know of the user. Example: {"query": "Where does the user live?"}
    """
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    found = opened.searcher.search(
        arguments.query, at=at, kinds=MEMORY_KINDS, depth=arguments.limit
    )
    usage = call.service.usage
    with opened.project.read(at) as state:
        blamed = state if arguments.provenance else None
        rows = found_memories(found.hits, state, arguments.limit)
        views = [
            view_fact(row, usage.accessed_us(row.id), relevance, view_provenance(row, blamed))
            for row, relevance in rows
        ]
    usage.read(row.id for row, _ in rows)
    return _facts(call, project, views, found.notice)


class ListRecentMemories(Arguments, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=50)] = 10
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


@tool("facts", "List recent facts")
def list_recent_memories(call: Call, arguments: ListRecentMemories) -> FactsResult:
    """List the memories stored last, the newest first; outdated ones are left out. Example: {"limit": 5}"""
    project, opened = call.open(arguments)
    usage = call.service.usage
    with opened.project.read(position_of(arguments.as_of, opened.project)) as state:
        blamed = state if arguments.provenance else None
        rows = list(islice(state.memories(), arguments.limit))
        views = [
            view_fact(row, usage.accessed_us(row.id), provenance=view_provenance(row, blamed))
            for row in rows
        ]
    usage.read(row.id for row in rows)
    return _facts(call, project, views)


def _facts(
    call: Call, project: str, views: Sequence[FactView], notice: str | None = None
) -> FactsResult:
    """As many as an answer holds; how many it does not hold is said."""
    shown = list(within_budget(views))
    left_out = len(views) - len(shown)
    if left_out:
        said = f"{left_out} more did not fit into the answer."
        notice = together(said, followable(call.session, "memory_list has their links."), notice)
    return FactsResult(project=project, memories=shown, notice=notice)
