"""Memories as answers show them, and the ways to find and list them; shared by facts and records."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import NamedTuple

import msgspec

from memlog.decisions.memories import FACT
from memlog.errors import EmbeddingError
from memlog.events import MemoryMerged, MemoryStored
from memlog.projects.project import Outcome
from memlog.rows import Memory, type_label
from memlog.state import State
from projections.documents import Kind
from projections.search.searcher import Hit
from server.answering.cursors import Born, Position
from server.answering.rankings import Ranking
from server.opened import Opened

MEMORY_KINDS: frozenset[Kind] = frozenset({"memory"})
SIMILAR_MAX = 5


class Ranked(NamedTuple):
    """A memory that was found, its rank in what was found, and how relevant it is, 0..1."""

    row: Memory
    rank: int
    relevance: float


def found_memories(ranking: Ranking, limit: int, state: State) -> list[Ranked]:
    """Up to `limit` memories of the page that are active in `state`, best first. None is more relevant than what
    stands before it, for clients of other memory servers read the order of a list from these numbers."""
    falling = accumulate((_relevance(hit) for _, hit in ranking.things), min)
    each = enumerate(zip(ranking.things, falling, strict=True))
    rows = (
        Ranked(row, rank, relevance)
        for rank, ((memory_id, _), relevance) in islice(each, ranking.start.offset, None)
        if (row := state.memory(memory_id)) is not None and row.active
    )
    return list(islice(rows, limit))


class Older(msgspec.Struct, array_like=True):
    """A cursor: the list as of `position`, of memories born before `born`."""

    position: Position | None
    born: Born | None = None


def _relevance(hit: Hit) -> float:
    """How relevant a hit is on its own: its cosine, or how much of the query its words cover."""
    return _share(max(hit.cosine, hit.part, hit.score))


def _share(number: float) -> float:
    """0..1, to four places."""
    return round(min(1.0, max(0.0, number)), 4)


def stored(outcome: Outcome) -> Memory:
    """The memory that a command stored, or saved again."""
    for entry in outcome.entries:
        if isinstance(entry.event, (MemoryStored, MemoryMerged)):
            row = outcome.after.memory(entry.event.memory_id)
            assert row is not None, "it was stored in this very transaction"
            return row
    raise AssertionError("storing a memory always appends an event")


class Similar(NamedTuple):
    """Active facts whose meaning is near, nearest first, each with its cosine; why there could be more; and whether any
    were looked for."""

    facts: list[tuple[Memory, float]]
    notice: str | None
    looked: bool = True


def similar_facts(opened: Opened, text: str, cosine_min: float) -> Similar:
    """Those near `text`. Looked up before it is stored, so it never finds itself."""
    try:
        hits, notice = opened.searcher.nearest(
            text, kinds=MEMORY_KINDS, labels=(type_label(FACT),), limit=SIMILAR_MAX
        )
    except EmbeddingError as error:
        told = f"Similar memories were not looked for: {error.message}"
        return Similar([], told, looked=False)
    near = [hit for hit in hits if hit.cosine >= cosine_min]
    with opened.project.read() as state:
        rows = ((state.memory(hit.ref), _share(hit.cosine)) for hit in near)
        facts = [(row, cosine) for row, cosine in rows if row is not None and row.active]
    return Similar(facts, notice and f"Similar memories may be missing. {notice}")
