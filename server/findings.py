"""A search as a person reads it: what was found, grouped by the entity it belongs to."""

from __future__ import annotations

import msgspec

from memlog.settings import Mode
from memlog.state import State
from projections.search import Hit
from server.service import Opened

LINES_MAX = 5


class Group(msgspec.Struct, frozen=True):
    """An entity, the facts of it that matched best first, and its best score."""

    name: str
    kind: str
    id: str
    score: float
    lines: list[str]


class Findings(msgspec.Struct, frozen=True):
    groups: list[Group]
    notice: str | None


def findings(opened: Opened, query: str, mode: Mode, limit: int) -> Findings:
    """The best `limit` groups for `query`, each with up to `LINES_MAX` of its facts."""
    found = opened.searcher.search(query, mode=mode)
    by_entity: dict[str, list[Hit]] = {}
    for hit in found.hits:
        by_entity.setdefault(hit.entity, []).append(hit)
    groups: list[Group] = []
    with opened.project.read() as state:
        for entity_id, hits in by_entity.items():
            group = _group(entity_id, hits, state)
            if group is not None:
                groups.append(group)
            if len(groups) == limit:
                break
    return Findings(groups, found.notice)


def _group(entity_id: str, hits: list[Hit], state: State) -> Group | None:
    entity = state.entity(entity_id)
    if entity is None:
        return None
    lines: list[str] = []
    for hit in hits:
        row = state.observation(hit.ref) if hit.kind == "observation" else None
        if row is not None and len(lines) < LINES_MAX:
            lines.append(row.content)
    return Group(entity.name, entity.entity_type, entity.id, round(hits[0].score, 4), lines)
