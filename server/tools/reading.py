"""Toolset `graph`, two of the three tools that read: the whole graph, and a search; `opening` has the third."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, field

from memlog.patience import held
from memlog.settings import Mode
from memlog.state import State
from memlog.storage.gates import SMALL_CALLS
from projections.documents import thread_labels
from projections.search.searcher import DEPTH, Hit
from server.answering.cursors import CursorText, Id, Limit, Position, write_cursor
from server.answering.cutting import page_of, together, within_budget
from server.answering.findings import GRAPH_KINDS, told_elsewhere
from server.answering.memories import MEMORY_KINDS
from server.answering.moments import AsOf, start_of
from server.answering.nearest import silent_thread
from server.answering.portions import (
    OPEN_ALONE,
    cut_notice,
    portion,
    portion_of_facts,
    view_portion,
)
from server.answering.rankings import Deep, Ranking, ranked
from server.answering.views import Blame, EntityView, RelationView, view_relation
from server.input.kinds import SEARCHED
from server.registry import Arguments, Call, Result, WroteThread, tool

SEARCH_LIMIT = 25
LOT = 8
"""So many entities are read at first: each may have thousands of facts, and fill the answer alone."""

DOCUMENTS_PER_ENTITY = 4
"""How many documents are looked at for each entity wanted: several are often of the same one."""

QUERY_CHARACTERS_MAX = 10_000

Item = TypeVar("Item")


class GraphResult(Result, frozen=True):
    project: str
    entities: list[EntityView]
    relations: list[RelationView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


# -- read_graph


class ReadGraph(Arguments, frozen=True):
    limit: Limit | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class _GraphCursor(msgspec.Struct, array_like=True):
    """The graph as of `position`, beyond the entity and the relation with these ids."""

    position: Position | None
    entity: Id = ""
    relation: Id = ""


@tool("graph", "Read the whole graph")
def read_graph(call: Call, arguments: ReadGraph) -> GraphResult:
    """Read the whole graph, page by page: entities, then relations. Prefer search_nodes. Example: {}"""
    project, opened = call.open(arguments)
    start = start_of(_GraphCursor, arguments, opened)
    with opened.project.read(start.position) as state:
        blamed = state if arguments.provenance else None
        entities = (
            view_portion(EntityView, portion_of_facts(row, state, blamed), blamed)
            for row in state.entities(after=start.entity)
        )
        relations = (view_relation(row, blamed) for row in state.relations(after=start.relation))
        items: Iterator[EntityView | RelationView] = chain(entities, relations)
        page, more = page_of(items, arguments.limit)
        end = _end(page, start, state.position)
    told = _only(EntityView, page)
    return GraphResult(
        project=project,
        entities=told,
        relations=_only(RelationView, page),
        next_cursor=write_cursor(end, opened.project_id, arguments) if more else None,
        notice=cut_notice(told, OPEN_ALONE, call.session),
    )


def _end(
    page: Sequence[EntityView | RelationView], start: _GraphCursor, position: int
) -> _GraphCursor:
    """Where the next page begins."""
    entities, relations = _only(EntityView, page), _only(RelationView, page)
    return _GraphCursor(
        position,
        entities[-1].id if entities else start.entity,
        relations[-1].id if relations else start.relation,
    )


def _only(kind: type[Item], page: Iterable[object]) -> list[Item]:
    return [item for item in page if isinstance(item, kind)]


# -- search_nodes


class SearchNodes(Arguments, frozen=True):
    query: Annotated[
        str,
        Meta(
            max_length=QUERY_CHARACTERS_MAX,
            description='Words or a question; AND, OR, NOT, "phrases", prefix* and ( ) work',
            examples=["dark mode editors"],
            extra={SEARCHED: True},
        ),
    ]
    limit: Limit | None = None
    mode: Annotated[Mode | None, Meta(description="By words, by meaning, or both (hybrid)")] = None
    thread_id: WroteThread | None = field(name="threadId", default=None)
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class FoundEntity(EntityView, frozen=True, kw_only=True):
    score: float


class SearchNodesResult(Result, frozen=True):
    project: str
    entities: list[FoundEntity]
    relations: list[RelationView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _SearchCursor(Deep):
    pass


@tool("graph", "Search the graph")
def search_nodes(call: Call, arguments: SearchNodes) -> SearchNodesResult:
    """Find entities by words, meaning or a part of a name, type or fact; the best first.

    Use it before answering from memory. Each comes with its facts and relations.
    Example: {"query": "who prefers dark mode in editors"}
    """
    project, opened = call.open(arguments)
    mode = arguments.mode or call.service.settings.search_mode
    arguments = msgspec.structs.replace(arguments, mode=mode)
    depth = max(DEPTH, DOCUMENTS_PER_ENTITY * (arguments.limit or 0))
    cursor = start_of(_SearchCursor, arguments, opened, depth)
    wrote = thread_labels(arguments.thread_id)
    ranking = ranked(
        opened.searcher, cursor, arguments.query, kinds=GRAPH_KINDS, labels=wrote, mode=mode
    )
    with held(SMALL_CALLS), opened.project.read(ranking.position) as state:
        most = arguments.limit or SEARCH_LIMIT
        blamed = state if arguments.provenance else None
        page = list(_page(_bundles(ranking, most, state, blamed), arguments.limit))
        position = state.position
    following = ranking.following(position, page[-1].rank if page else None)
    told_whole = [each for bundle in page for each in bundle.told]
    entities = _only(FoundEntity, told_whole)
    silent = None
    if not page:
        silent = silent_thread(arguments.thread_id, opened) or told_elsewhere(
            ranking, MEMORY_KINDS, call.session, arguments.cursor
        )
    return SearchNodesResult(
        project=project,
        entities=entities,
        relations=_in_order(_only(RelationView, told_whole)),
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=together(
            cut_notice(entities, OPEN_ALONE, call.session), ranking.found.notice, silent
        ),
    )


class _Bundle(msgspec.Struct):
    """An entity and the relations that touch it, as they are told; and its rank in what was found."""

    rank: int
    told: list[FoundEntity | RelationView]


def _bundles(ranking: Ranking, most: int, state: State, blamed: State | None) -> Iterator[_Bundle]:
    """What is still there of the ranked entities: the state has the last word. `most` of them are wanted, and as many
    are read, in two lots."""
    first = partial(_facts_found, ranking.found.hits)
    start, lot = ranking.start.offset, min(most, LOT)
    while next_ones := ranking.things[start : start + lot]:
        found = state.known(entity_id for entity_id, _ in next_ones)
        for rank, (known, (_, best)) in enumerate(zip(found, next_ones, strict=True), start):
            if known is not None:
                told = portion(known, blamed, first=first)
                view = view_portion(FoundEntity, told, blamed, score=round(min(best.told, 1.0), 4))
                edges = [view_relation(edge, blamed) for edge in told.edges]
                yield _Bundle(rank, [view, *edges])
        start, lot = start + lot, max(most - lot, 1)


def _facts_found(hits: Sequence[Hit], entity_id: str) -> list[str]:
    """The observations of an entity that were found, best first."""
    return [hit.ref for hit in hits if hit.entity == entity_id and hit.kind == "observation"]


def _page(bundles: Iterable[_Bundle], limit: int | None) -> Iterator[_Bundle]:
    """`limit` of them where the caller said so; else the usual number, cut to what an answer holds."""
    if limit:
        return islice(bundles, limit)
    usual = islice(bundles, SEARCH_LIMIT)
    return within_budget(usual, told=attrgetter("told"))


def _in_order(relations: Iterable[RelationView]) -> list[RelationView]:
    """Each once, in order of creation."""
    found = {edge.id: edge for edge in relations}
    return [found[key] for key in sorted(found)]
