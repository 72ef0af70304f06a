"""A search as a person reads it: entities with the facts that matched, facts and records, together."""

from __future__ import annotations

from itertools import islice

import msgspec

from memlog.canonical import text_of
from memlog.settings import Mode
from memlog.state import State
from memlog.times import day
from projections.documents import Kind, thread_labels
from projections.search.searcher import Hit
from server.advice import followable
from server.answering.cutting import together
from server.answering.nearest import silent_thread
from server.answering.rankings import Ranking
from server.opened import Opened
from server.session import Session

LINES_MAX = 5

GRAPH_KINDS: frozenset[Kind] = frozenset({"entity", "observation"})

IN_MEMORIES = "No entity is found, but a fact or record is: call search_memories."
IN_GRAPH = "No fact or record is found, but an entity is: call search_nodes."


class Group(msgspec.Struct, frozen=True):
    """An entity with the facts of it that matched, best first, and the day (UTC) on which each was written; or a
    memory, or a relation that leaves no entity, under its text."""

    name: str
    kind: str
    id: str
    score: float
    lines: list[str]
    days: list[str]


class Findings(msgspec.Struct, frozen=True):
    groups: list[Group]
    notice: str | None


def findings(
    opened: Opened,
    query: str,
    mode: Mode,
    limit: int,
    kinds: frozenset[Kind] | None = None,
    thread: str | None = None,
    since: int = 0,
) -> Findings:
    """The best `limit` groups for `query`, each with up to `LINES_MAX` of its facts; of what is newer than the position
    `since`, and if there is a `thread`, of what it wrote."""
    found = opened.searcher.search(
        query,
        mode=mode,
        kinds=kinds,
        labels=thread_labels(thread),
        since=since,
        depth=LINES_MAX * limit,
    )
    grouped: dict[str, list[Hit]] = {}
    for hit in found.hits:
        grouped.setdefault(hit.entity or hit.ref, []).append(hit)
    groups: list[Group] = []
    with opened.project.read(found.position) as state:
        for thing_id, hits in grouped.items():
            group = _group(thing_id, hits, state) or _alone(hits[0], state)
            if group is not None:
                groups.append(group)
            if len(groups) == limit:
                break
    silent = None if groups else silent_thread(thread, opened)
    return Findings(groups, opened.noticed(together(found.notice, silent)))


def told_elsewhere(
    ranking: Ranking, kinds: frozenset[Kind], session: Session, cursor: str | None
) -> str | None:
    """Of a search that found nothing of its own kinds: that something of these others is found, and which tool finds
    that; None for a later page, which has a `cursor`, or who is not offered that tool."""
    told = IN_MEMORIES if "memory" in kinds else IN_GRAPH
    if cursor is not None or not followable(session, told):
        return None
    elsewhere = ranking.rest._replace(kinds=kinds, but=frozenset())
    return told if ranking.finds_any(elsewhere) else None


def _alone(hit: Hit, state: State) -> Group | None:
    """A memory, or a relation that leaves no entity, under what it says."""
    if hit.kind == "relation":
        line = _line(hit, state)
        return (
            None if line is None else Group(line[0], hit.kind, hit.ref, round(hit.told, 4), [], [])
        )
    row = state.memory(hit.ref)
    if row is None or not row.active:
        return None
    kind = " ".join((row.memory_type, *row.tags))
    return Group(text_of(row.content), kind, row.id, round(hit.told, 4), [], [])


def _group(entity_id: str, hits: list[Hit], state: State) -> Group | None:
    entity = state.entity(entity_id)
    if entity is None:
        return None
    told = list(islice((line for hit in hits if (line := _line(hit, state))), LINES_MAX))
    lines, days = [line for line, _ in told], [day(time_us) for _, time_us in told]
    return Group(entity.name, entity.entity_type, entity.id, round(hits[0].told, 4), lines, days)


def _line(hit: Hit, state: State) -> tuple[str, int] | None:
    """What was found of an entity, besides its name, and when it was written."""
    if hit.kind == "relation" and (edge := state.relation(hit.ref)) is not None:
        return edge.text, edge.created_us
    if hit.kind == "observation" and (fact := state.observation(hit.ref)) is not None:
        return fact.content, fact.created_us
    return None
