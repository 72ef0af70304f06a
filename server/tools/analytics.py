"""Toolset `knowledge`, its analytics: what changed, what matters, what is connected, what is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Annotated, Literal

from msgspec import Meta, field

from memlog.rows import Entity
from memlog.state import State
from memlog.times import iso
from projections.analytics.tables import Analytics, Counts, Order, Reason
from server.advice import followable
from server.answering.cutting import together, within_budget
from server.answering.moments import AsOf, position_of
from server.answering.nearest import silent_thread
from server.registry import Arguments, Call, Result, ThreadId, tool

EACH, EACH_MAX = 10, 100
CONNECTED_TO_MAX = 25
CONNECTED_CHARACTERS_MAX = 2_000
RELATIONS_READ_MAX = 250
"""How many relations of an entity are read to find so many names; parallel ones lead to the same."""
_UNNAMED = (
    f"connectedTo leaves some out: it names {CONNECTED_TO_MAX} at most, fewer where names are long."
)
_ALL_NAMED = "open_nodes with the name of such an entity shows all its relations."


class GetAnalytics(Arguments, frozen=True):
    thread_id: Annotated[ThreadId, Meta(description="Only entities this thread touched")] | None = (
        field(name="threadId", default=None)
    )
    limit: Annotated[int, Meta(ge=1, le=EACH_MAX, description="Entities in each list")] = EACH
    as_of: AsOf | None = field(name="asOf", default=None)


class Listed(Result, frozen=True):
    """An entity in any of the lists."""

    entity_name: str = field(name="entityName")
    entity_type: str = field(name="entityType")


class RecentChange(Listed, frozen=True):
    last_modified: str = field(name="lastModified")
    change_type: Literal["created", "updated"] = field(name="changeType")


class Important(Listed, frozen=True):
    importance: float
    observation_count: int = field(name="observationCount")


class Connected(Listed, frozen=True):
    """`relationCount` counts relations to entities that exist; `connectedTo` names up to 25 of these, fewer
    where names are long."""

    relation_count: int = field(name="relationCount")
    connected_to: list[str] = field(name="connectedTo")


class Orphaned(Listed, frozen=True):
    """`broken_relation`: one of its relations leads to an entity that does not exist."""

    reason: Reason


class AnalyticsResult(Result, frozen=True):
    project: str
    recent_changes: list[RecentChange]
    top_important: list[Important]
    most_connected: list[Connected]
    orphaned_entities: list[Orphaned]
    notice: str | None = None


@tool("knowledge", "See what changed, matters and is missing")
def get_analytics(call: Call, arguments: GetAnalytics) -> AnalyticsResult:
    """Show the entities changed last, the most important, the most connected, and the orphans to be mended.

    An orphan has no relation (no_relations) or one that leads nowhere (broken_relation). Example: {"limit": 5}
    """
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    analytics = opened.projections.analytics()
    # The project first: see AnalyticsProjector. What is written meanwhile is in one and not yet in the other: both
    # are read as of the earlier.
    with opened.project.read(at) as now, analytics.read(now.position) as counted:
        state = now if counted.position == now.position else now.at(counted.position)
        top = partial(_top, arguments=arguments, counted=counted, state=state)
        recent = [_recent(row, counts.updated_us) for row, counts in top("recent")]
        important = [_important(*each) for each in top("important")]
        connected, unnamed = _connected(top("connected"), state)
        orphaned = [
            _orphaned(row, reason) for row, counts in top("orphaned") if (reason := counts.orphaned)
        ]
    return AnalyticsResult(
        project=project,
        recent_changes=recent,
        top_important=important,
        most_connected=connected,
        orphaned_entities=orphaned,
        notice=together(
            None if recent else silent_thread(arguments.thread_id, opened),
            _UNNAMED if unnamed else None,
            followable(call.session, _ALL_NAMED) if unnamed else None,
        ),
    )


def _top(
    order: Order, arguments: GetAnalytics, counted: Analytics, state: State
) -> Iterator[tuple[Entity, Counts]]:
    """The first of a ranking, with the entity as the state knows it."""
    ranked = counted.ranked(order, arguments.thread_id)
    known = ((state.entity(counts.id), counts) for counts in ranked)
    living = ((row, counts) for row, counts in known if row is not None)
    return islice(living, arguments.limit)


def _recent(row: Entity, updated_us: int) -> RecentChange:
    return RecentChange(
        entity_name=row.name,
        entity_type=row.entity_type,
        last_modified=iso(updated_us),
        change_type="created" if updated_us == row.created_us else "updated",
    )


def _important(row: Entity, counts: Counts) -> Important:
    return Important(
        entity_name=row.name,
        entity_type=row.entity_type,
        importance=row.importance,
        observation_count=counts.observations,
    )


def _connected(
    ranked: Iterable[tuple[Entity, Counts]], state: State
) -> tuple[list[Connected], bool]:
    """The entities with the names of others, and whether one of them may have more than are named."""
    shown, unnamed = [], False
    for row, counts in ranked:
        names, cut = _connected_to(row, state)
        unnamed |= cut
        shown.append(
            Connected(
                entity_name=row.name,
                entity_type=row.entity_type,
                relation_count=counts.degree,
                connected_to=names,
            )
        )
    return shown, unnamed


def _connected_to(row: Entity, state: State) -> tuple[list[str], bool]:
    """Entities at the other ends of its relations, each once, the oldest relation first; whether there may be more."""
    found: dict[str, None] = {}
    ends = state.neighbours(row.name)
    for name in islice(ends, RELATIONS_READ_MAX):
        other = state.entity_named(name)
        if other is not None and other.id != row.id:
            found[other.name] = None
        if len(found) > CONNECTED_TO_MAX:
            break
    named = list(within_budget(islice(found, CONNECTED_TO_MAX), most=CONNECTED_CHARACTERS_MAX))
    return named, len(named) < len(found) or next(ends, None) is not None


def _orphaned(row: Entity, reason: Reason) -> Orphaned:
    return Orphaned(entity_name=row.name, entity_type=row.entity_type, reason=reason)
