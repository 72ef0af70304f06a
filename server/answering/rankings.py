"""Pages of what a search found: things in the order of their best documents.

Behind what a search of one depth found, a deeper one finds more. It orders anew, so the pages that come of it leave
out what the search before it found: all of that was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, NamedTuple, Self

import msgspec
from msgspec import Meta

from memlog.settings import Mode
from projections.documents import Kind, Scope
from projections.search.searcher import Found, Hit, Searcher
from server.answering.cursors import Count, Position
from server.input.kinds import SEARCHED

DEEPER_TIMES = 4

QUERY_CHARACTERS_MAX = 1_000

QueryText = Annotated[
    str, Meta(min_length=1, max_length=QUERY_CHARACTERS_MAX, extra={SEARCHED: True})
]
"""What a search for facts and records takes."""


class Deep(msgspec.Struct, array_like=True):
    """A cursor: the same search as of `position`, so many candidates deep, beyond the first `offset` things of those
    that a search of depth `told` does not find."""

    position: Position | None
    depth: Count
    offset: Count = 0
    told: Count = 0

    def beyond(self, position: int, reached: int) -> Self:
        return msgspec.structs.replace(self, position=position, offset=reached)

    def deeper(self, position: int | None) -> Self:
        depth = self.depth * DEEPER_TIMES
        return type(self)(position=position, depth=depth, told=self.depth)


class Ranking(NamedTuple):
    """What is still to be told from `start` on, best first: entities and memories by id, each with its best hit; where
    else the `rest` may be, and whether such a search finds anything in a scope."""

    start: Deep
    things: list[tuple[str, Hit]]
    found: Found
    rest: Scope
    finds_any: Callable[[Scope], bool]

    @property
    def position(self) -> int | None:
        """As of which it is told."""
        return self.found.position if self.start.position is None else self.start.position

    def following(self, position: int, last: int | None) -> Deep | None:
        """The cursor of the page behind the one whose last thing has this rank (None: it has none), if there is
        more."""
        if last is not None and last + 1 < len(self.things):
            return self.start.beyond(position, last + 1)
        more = self.found.deeper and self.finds_any(self.rest)
        return self.start.deeper(position) if more else None


def ranked(
    searcher: Searcher,
    start: Deep,
    query: str,
    *,
    kinds: frozenset[Kind],
    labels: tuple[str, ...] = (),
    since: int = 0,
    mode: Mode = "hybrid",
) -> Ranking:
    """What the page at `start` is taken from. Where that search finds nothing but what was told, as more facts of an
    entity that has very many, it is what the first deeper one finds that finds more."""
    search = partial(searcher.search, query, mode=mode)
    search = partial(search, at=start.position, kinds=kinds, labels=labels, since=since)
    told = best_of_each(search(depth=start.told).hits) if start.told else {}
    while True:
        found = search(depth=start.depth)
        best = best_of_each(found.hits)
        things = [each for each in best.items() if each[0] not in told]
        if things or not found.deeper:
            rest = Scope(start.position, kinds, labels, since, but=frozenset(told).union(best))
            return Ranking(start, things, found, rest, partial(searcher.finds_any, query, mode))
        told, start = best, start.deeper(start.position)


def best_of_each(hits: Iterable[Hit]) -> dict[str, Hit]:
    """Each entity and each memory that was found, by id, with its best document; best first."""
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(hit.entity or hit.ref, hit)
    return best
