"""Toolset `graph`, the three tools that read: the whole graph, a search, entities by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, field

from memlog.canonical import canonical
from memlog.closest import closest
from memlog.commands import ITEMS_MAX, EntityName
from memlog.gates import SMALL_CALLS
from memlog.settings import Mode
from memlog.state import Entity, State
from projections.documents import Kind
from projections.search import DEPTH, Found, Hit
from server.moments import AsOf, position_of
from server.registry import Arguments, Call, Result, tool
from server.views import (
    Blame,
    EntityView,
    RelationView,
    View,
    read_cursor,
    view_entity,
    view_entity_as,
    view_relation,
    within_budget,
    write_cursor,
)

GRAPH_KINDS: frozenset[Kind] = frozenset({"entity", "observation"})
LIMIT_MAX = 1_000
SEARCH_LIMIT = 25
DOCUMENTS_PER_ENTITY = 4
"""How many documents are looked at for each entity wanted: several are often of the same one."""

DEEPER_TIMES = 4
QUERY_CHARACTERS_MAX = 10_000
SUGGESTED_FOR_MAX = 10

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX)]
Item = TypeVar("Item")
CursorText = Annotated[str, Meta(description="nextCursor of the answer before")]


class GraphResult(Result, frozen=True):
    project: str
    entities: list[EntityView]
    relations: list[RelationView]
    next_cursor: str | None = field(name="nextCursor", default=None)


# -- read_graph


class ReadGraph(Arguments, frozen=True):
    limit: Limit | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class _GraphCursor(msgspec.Struct, array_like=True):
    """The graph as of `position`, beyond the entity and the relation with these ids."""

    position: int
    entity: str
    relation: str


@tool("graph", "Read the whole graph")
def read_graph(call: Call, arguments: ReadGraph) -> GraphResult:
    """Read the whole graph, page by page: entities, then relations. Prefer search_nodes. Example: {}"""
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    start = _GraphCursor(-1, "", "")
    if arguments.cursor is not None:
        start = read_cursor(arguments.cursor, _GraphCursor, opened.project.folder.name)
        at = start.position
    with opened.project.read(at) as state:
        blame = arguments.provenance
        entities = (
            view_entity(row, state, blame=blame) for row in state.entities(after=start.entity)
        )
        relations = (
            view_relation(row, state, blame=blame) for row in state.relations(after=start.relation)
        )
        items: Iterator[EntityView | RelationView] = chain(entities, relations)
        if arguments.limit is None:
            page, more = _cut(items)
        else:
            page = list(islice(items, arguments.limit))
            more = next(items, None) is not None
        end = _end(page, start, state.position)
    return GraphResult(
        project=project,
        entities=_only(EntityView, page),
        relations=_only(RelationView, page),
        next_cursor=write_cursor(end, opened.project.folder.name) if more else None,
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


def _cut(
    items: Iterator[EntityView | RelationView],
) -> tuple[list[EntityView | RelationView], bool]:
    """As many items as an answer holds, and whether there are more."""
    taken = 0

    def counted() -> Iterator[EntityView | RelationView]:
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    page = list(within_budget(counted()))
    return page, taken > len(page)


# -- search_nodes


class SearchNodes(Arguments, frozen=True):
    query: Annotated[
        str,
        Meta(
            max_length=QUERY_CHARACTERS_MAX,
            description='Words or a question; AND, OR, NOT, "phrases", prefix* and ( ) work',
            examples=["dark mode editors"],
        ),
    ]
    limit: Limit | None = None
    mode: Annotated[Mode | None, Meta(description="By words, by meaning, or both (hybrid)")] = None
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


class _SearchCursor(msgspec.Struct, array_like=True):
    """The same search as of `position`, so many candidates deep, beyond the first `offset` entities.

    A deeper search orders anew; so what a search of depth `told` found was told on pages before, and
    the pages of this one leave it out.
    """

    position: int | None
    offset: int
    depth: int
    told: int = 0

    def after(self, position: int, reached: int, *, more: bool) -> _SearchCursor:
        if more:
            return _SearchCursor(position, reached, self.depth, self.told)
        return _SearchCursor(position, 0, self.depth * DEEPER_TIMES, self.depth)


@tool("graph", "Search the graph")
def search_nodes(call: Call, arguments: SearchNodes) -> SearchNodesResult:
    """Find entities by words, meaning or a part of a name, type or fact; the best first.

    Use it before answering from memory. Each comes with its facts and relations.
    Example: {"query": "who prefers dark mode in editors"}
    """
    project, opened = call.open(arguments)
    if arguments.cursor is None:
        at = position_of(arguments.as_of, opened.project)
        cursor = _SearchCursor(at, 0, max(DEPTH, DOCUMENTS_PER_ENTITY * (arguments.limit or 0)))
    else:
        cursor = read_cursor(arguments.cursor, _SearchCursor, opened.project.folder.name)

    def search(depth: int) -> Found:
        mode = arguments.mode or call.service.settings.search_mode
        return opened.searcher.search(
            arguments.query, mode=mode, at=cursor.position, kinds=GRAPH_KINDS, depth=depth
        )

    found = search(cursor.depth)
    told = _by_entity(search(cursor.told).hits) if cursor.told else {}
    ranked = [each for each in _by_entity(found.hits).items() if each[0] not in told]
    blame = arguments.provenance
    with SMALL_CALLS, opened.project.read(cursor.position) as state:
        bundles = _bundles(
            ranked,
            cursor.offset,
            state,
            blame,
            lambda row, score: view_entity_as(
                FoundEntity, row, state, blame=blame, score=_shown(score)
            ),
        )
        page = list(_page(bundles, arguments.limit, SEARCH_LIMIT))
        position = state.position
    reached = page[-1].rank + 1 if page else len(ranked)
    more = reached < len(ranked)
    following = cursor.after(position, reached, more=more)
    return SearchNodesResult(
        project=project,
        entities=[bundle.entity for bundle in page],
        relations=_relations(page),
        next_cursor=write_cursor(following, opened.project.folder.name)
        if more or found.deeper
        else None,
        notice=found.notice,
    )


def _by_entity(hits: Iterable[Hit]) -> dict[str, float]:
    """Entities by their best document, best first."""
    best: dict[str, float] = {}
    for hit in hits:
        best.setdefault(hit.entity, hit.score)
    return best


def _shown(score: float) -> float:
    """At most 1."""
    return round(min(score, 1.0), 4)


# -- open_nodes


class OpenNodes(Arguments, frozen=True):
    names: Annotated[Sequence[EntityName], Meta(max_length=ITEMS_MAX, examples=[["john-doe"]])]
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class OpenNodesResult(Result, frozen=True):
    """`suggestions` gives, for a name that was not found, the closest that exist."""

    project: str
    entities: list[EntityView]
    relations: list[RelationView]
    not_found: list[str] = field(name="notFound")
    suggestions: dict[str, list[str]] = field(default_factory=dict)


@tool("graph", "Open entities by name")
def open_nodes(call: Call, arguments: OpenNodes) -> OpenNodesResult:
    """Get entities by exact name, with their facts and relations. Example: {"names": ["john-doe"]}"""
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    with SMALL_CALLS, opened.project.read(at) as state:
        found: dict[str, float] = {}
        missing = []
        for name in {canonical(name): name for name in arguments.names}.values():
            entity_id = state.entity_id_of(name)
            if entity_id is None:
                missing.append(name)
            else:
                found[entity_id] = 1.0
        blame = arguments.provenance
        opened_page = list(
            _bundles(
                list(found.items()),
                0,
                state,
                blame,
                lambda row, score: view_entity(row, state, blame=blame),
            )
        )
        suggestions = _closest_names(missing, state)
    return OpenNodesResult(
        project=project,
        entities=[bundle.entity for bundle in opened_page],
        relations=_relations(opened_page),
        not_found=missing,
        suggestions=suggestions,
    )


def _closest_names(missing: Sequence[str], state: State) -> dict[str, list[str]]:
    if not missing:
        return {}
    names = [entity.name for entity in state.entities()]
    near = {name: closest(name, names) for name in missing[:SUGGESTED_FOR_MAX]}
    return {name: found for name, found in near.items() if found}


# -- shared


class _Bundle(msgspec.Struct, Generic[View]):
    """An entity with the relations that touch it, and its place in the order asked for."""

    rank: int
    entity: View
    relations: list[RelationView]


def _bundles(
    ranked: Sequence[tuple[str, float]],
    offset: int,
    state: State,
    blame: bool,
    view: Callable[[Entity, float], View],
) -> Iterator[_Bundle[View]]:
    """What is still there of the ranked entities, from `offset` on: the state has the last word."""
    for rank in range(offset, len(ranked)):
        entity_id, score = ranked[rank]
        row = state.entity(entity_id)
        if row is not None:
            edges = [
                view_relation(edge, state, blame=blame)
                for edge in state.relations_touching(row.name)
            ]
            yield _Bundle(rank, view(row, score), edges)


def _page(
    bundles: Iterable[_Bundle[View]], limit: int | None, usual: int
) -> Iterator[_Bundle[View]]:
    """`limit` of them where the caller said so; else the usual number, cut to what an answer holds."""
    return islice(bundles, limit) if limit else within_budget(islice(bundles, usual))


def _relations(bundles: Iterable[_Bundle[Any]]) -> list[RelationView]:
    """The relations of all bundles, each once, in order of creation."""
    found = {edge.id: edge for bundle in bundles for edge in bundle.relations}
    return [found[key] for key in sorted(found)]
