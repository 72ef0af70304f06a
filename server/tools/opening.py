"""Toolset `graph`, entities by name: all of them while they fit an answer, else in pages.

Each name is answered for on one page. A page of several tells only the newest of an entity that is too long for an
answer; opened alone, it is told from the newest on, page by page, to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec import Meta, field

from memlog.canonical import canonical
from memlog.commands import ITEMS_MAX, EntityName
from memlog.patience import held
from memlog.rows import Entity
from memlog.state import State
from memlog.storage.gates import SMALL_CALLS
from server.answering.cursors import Count, CursorText, Id, Position, write_cursor
from server.answering.cutting import within_budget
from server.answering.moments import AsOf, start_of
from server.answering.nearest import closest_names
from server.answering.portions import NEWEST, OPEN_ALONE, Before, cut_notice, portion, view_portion
from server.answering.views import Blame, EntityView, RelationView, view_relation
from server.registry import Arguments, Call, Result, tool

GO_ON = "Pass nextCursor as cursor for what is older."


class OpenNodes(Arguments, frozen=True):
    names: Annotated[Sequence[EntityName], Meta(max_length=ITEMS_MAX, examples=[["john-doe"]])]
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)
    provenance: Blame = False


class OpenNodesResult(Result, frozen=True):
    """`suggestions` gives, for a name that was not found, the closest that exist."""

    project: str
    entities: list[EntityView]
    relations: list[RelationView]
    not_found: list[str] = field(name="notFound")
    suggestions: dict[str, list[str]] = field(default_factory=dict)
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _Cursor(msgspec.Struct, array_like=True):
    """As of `position`, the names from `reached` on; of an entity opened alone, what is older than these."""

    position: Position | None
    reached: Count = 0
    fact: Count = NEWEST.fact
    edge: Id = NEWEST.edge


class _Opened(msgspec.Struct):
    """What there is under the name at `rank`: an entity with relations not told before it, or nothing."""

    rank: int
    name: str
    entity: EntityView | None = None
    relations: list[RelationView] = []
    rest: Before | None = None

    @property
    def told(self) -> list[object]:
        return [*self.relations, self.name if self.entity is None else self.entity]


@tool("graph", "Open entities by name")
def open_nodes(call: Call, arguments: OpenNodes) -> OpenNodesResult:
    """Get entities by exact name, with their facts and relations. Example: {"names": ["john-doe"]}"""
    project, opened = call.open(arguments)
    start = start_of(_Cursor, arguments, opened)
    with held(SMALL_CALLS), opened.project.read(start.position) as state:
        wanted = _wanted(arguments.names, state)
        found = _opened(wanted, start, state, state if arguments.provenance else None)
        page = list(within_budget(found, told=lambda each: each.told))
        missing = [each.name for each in page if each.entity is None]
        suggestions = closest_names(missing, state)
        following = _following(page, len(wanted), state.position)
    entities = [each.entity for each in page if each.entity is not None]
    edges = [edge for each in page for edge in each.relations]
    return OpenNodesResult(
        project=project,
        entities=entities,
        relations=sorted(edges, key=attrgetter("id")),
        not_found=missing,
        suggestions=suggestions,
        next_cursor=write_cursor(following, opened.project_id, arguments),
        notice=cut_notice(entities, OPEN_ALONE if len(wanted) > 1 else GO_ON, call.session),
    )


def _wanted(names: Sequence[str], state: State) -> list[tuple[str, Entity | None]]:
    """Each name once, and each entity once, by whichever of its names."""
    found: dict[str, tuple[str, Entity | None]] = {}
    for name in names:
        entity = state.entity_named(name)
        found.setdefault(canonical(name) if entity is None else entity.id, (name, entity))
    return list(found.values())


def _opened(
    wanted: Sequence[tuple[str, Entity | None]],
    start: _Cursor,
    state: State,
    blamed: State | None,
) -> Iterator[_Opened]:
    told: set[str] = set()
    alone, before = len(wanted) == 1, Before(start.fact, start.edge)
    for rank in range(start.reached, len(wanted)):
        name, row = wanted[rank]
        if row is None:
            yield _Opened(rank, name)
            continue
        part = portion(state.known_of(row), blamed, alone=alone, before=before)
        view = view_portion(EntityView, part, blamed)
        edges = [edge for edge in part.edges if edge.id not in told]
        told |= {edge.id for edge in edges}
        shown = [view_relation(edge, blamed) for edge in edges]
        yield _Opened(rank, name, view, shown, part.rest if alone else None)


def _following(page: Sequence[_Opened], count: int, position: int) -> _Cursor | None:
    """Where the next page begins, if there is one."""
    if not page:
        return None
    last = page[-1]
    if last.rest is not None:
        return _Cursor(position, last.rank, *last.rest)
    return _Cursor(position, last.rank + 1) if last.rank + 1 < count else None
