"""Toolset `knowledge`: entities by their properties."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, field

from memlog.closest import did_you_mean
from memlog.commands import Share
from memlog.errors import StorageError, shorten
from memlog.rows import Entity
from memlog.state import State
from memlog.times import parse_iso
from projections.documents import Kind, Scope, kind_label, thread_labels
from server.answering.cursors import CursorText, Id, Limit, Position, write_cursor
from server.answering.cutting import page_of, together
from server.answering.findings import GRAPH_KINDS
from server.answering.moments import AsOf, Time, start_of
from server.answering.nearest import silent_thread
from server.answering.portions import OPEN_ALONE, cut_notice, portion_of_facts, view_portion
from server.answering.views import Blame, EntityView
from server.opened import Opened
from server.registry import Arguments, Call, Result, ThreadId, tool

LOOKED_UP_MAX = 2_000
"""Of more entities of a type, or documents that a thread wrote, the next page is found sooner by going through all."""

ENTITIES: frozenset[Kind] = frozenset({"entity"})


class QueryNodes(Arguments, frozen=True):
    entity_type: str | None = field(name="entityType", default=None)
    thread_id: ThreadId | None = field(name="threadId", default=None)
    min_importance: Share | None = field(name="minImportance", default=None)
    max_importance: Share | None = field(name="maxImportance", default=None)
    min_confidence: Share | None = field(name="minConfidence", default=None)
    max_confidence: Share | None = field(name="maxConfidence", default=None)
    created_after: Annotated[Time, Meta(description="ISO UTC time")] | None = field(
        name="createdAfter", default=None
    )
    updated_after: Time | None = field(name="updatedAfter", default=None)
    limit: Limit | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class NodeView(EntityView, frozen=True, kw_only=True):
    importance: float
    confidence: float


class QueryNodesResult(Result, frozen=True):
    project: str
    entities: list[NodeView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _NodesCursor(msgspec.Struct, array_like=True):
    """The entities as of `position`, beyond the one with this id."""

    position: Position | None
    entity: Id = ""


@tool("knowledge", "List entities by their properties")
def query_nodes(call: Call, arguments: QueryNodes) -> QueryNodesResult:
    """List entities by type, thread, importance, confidence or time, in the order of creation.

    Example: {"entityType": "Person", "minImportance": 0.8}
    """
    project, opened = call.open(arguments)
    start = start_of(_NodesCursor, arguments, opened)
    created_us = _moment(arguments.created_after, "createdAfter")
    updated_us = _moment(arguments.updated_after, "updatedAfter")
    few = _few(arguments, opened, start.position)
    with opened.project.read(start.position) as state:
        blamed = state if arguments.provenance else None
        matching = (
            _node(row, state, blamed)
            for row in _entities(state, start.entity, few)
            if _fits(row, arguments) and row.created_us > created_us
            if row.updated_us > updated_us or state.updated_us(row) > updated_us
            if _of_thread(row, arguments.thread_id, state)
        )
        page, more = page_of(matching, arguments.limit)
        position = state.position
        lacking = None if page else _crossed(arguments) or _lacking(arguments.entity_type, state)
    following = _NodesCursor(position, page[-1].id) if more else None
    silent = None if page else silent_thread(arguments.thread_id, opened)
    return QueryNodesResult(
        project=project,
        entities=page,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=together(cut_notice(page, OPEN_ALONE, call.session), lacking, silent),
    )


def _crossed(wanted: QueryNodes) -> str | None:
    """That nothing can fit, where a least value is above the greatest."""
    bounds = (
        ("Importance", wanted.min_importance, wanted.max_importance),
        ("Confidence", wanted.min_confidence, wanted.max_confidence),
    )
    return together(
        *(
            f"No entity can fit: min{name} {low:g} is above max{name} {high:g}."
            for name, low, high in bounds
            if low is not None and high is not None and low > high
        )
    )


def _lacking(wanted: str | None, state: State) -> str | None:
    """That no entity is of the type asked for, and which was perhaps meant."""
    if wanted is None:
        return None
    known = {kind_label(row.entity_type): row.entity_type for row in state.entities()}
    if kind_label(wanted) in known:
        return None
    return together(
        f"No entity has the type '{shorten(wanted)}'.", did_you_mean(wanted, known.values())
    )


def _moment(text: str | None, path: str) -> int:
    return -1 if text is None else parse_iso(text, path)


def _fits(row: Entity, wanted: QueryNodes) -> bool:
    kind = wanted.entity_type
    low, high = wanted.min_importance, wanted.max_importance
    sure, unsure = wanted.min_confidence, wanted.max_confidence
    return (
        (kind is None or kind_label(row.entity_type) == kind_label(kind))
        and (low is None or row.importance >= low)
        and (high is None or row.importance <= high)
        and (sure is None or row.confidence >= sure)
        and (unsure is None or row.confidence <= unsure)
    )


def _few(wanted: QueryNodes, opened: Opened, at: int | None) -> frozenset[str] | None:
    """Those of the type, and those of which the thread wrote anything, where these are few; else they are found on the
    way. For a type alone nobody waits for the index: going through all entities takes less."""
    scopes = []
    if wanted.entity_type is not None:
        scopes.append(Scope(at, ENTITIES, (kind_label(wanted.entity_type),)))
    if wanted.thread_id is not None:
        scopes.append(Scope(at, GRAPH_KINDS, thread_labels(wanted.thread_id)))
    if not scopes:
        return None
    projections = opened.projections
    waits = wanted.thread_id is not None
    try:
        text = projections.text_ahead() if waits else projections.text_at_hand()
        if text is None:
            return None
        with text.asked() as texts:
            found = [texts.things(scope, LOOKED_UP_MAX) for scope in scopes]
    except StorageError:
        return None
    known = [each for each in found if each is not None]
    return frozenset.intersection(*known) if known else None


def _entities(state: State, after: str, few: frozenset[str] | None) -> Iterator[Entity]:
    """All of them, or a few; beyond an id, and in the order of these."""
    if few is None:
        yield from state.entities(after=after)
        return
    for entity_id in sorted(each for each in few if each > after):
        row = state.entity(entity_id)
        if row is not None:
            yield row


def _of_thread(row: Entity, thread: str | None, state: State) -> bool:
    """Whether the thread made the entity or any of its facts."""
    if thread is None or row.thread == thread:
        return True
    return any(observation.thread == thread for observation in state.observations(row.id))


def _node(row: Entity, state: State, blamed: State | None) -> NodeView:
    told = portion_of_facts(row, state, blamed)
    return view_portion(
        NodeView, told, blamed, importance=row.importance, confidence=row.confidence
    )
