"""Queries with operators: which things are as they say, a thing being an entity with all its texts, or a memory.

Left to others: looking up texts, and scoring them (`text.snapshot`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from projections.documents import Kind
from projections.query import And, Leaf, Node, Not, Or


class TextHit(msgspec.Struct, frozen=True, gc=False):
    """A document that was found. Scores compare within one search only; those by part are 0..1."""

    ref: str
    kind: Kind
    entity: str
    score: float

    @property
    def thing(self) -> str:
        return self.entity or self.ref


Having = Callable[[Leaf, frozenset[str]], frozenset[str] | None]
"""Which of some things have a leaf in any of their texts; None where there is nothing to look up."""


class Sought(Protocol):
    """The texts that have any of what is wanted, and which things have what."""

    def best(self, limit: int, things: frozenset[str] | None = None) -> list[TextHit]:
        """So many of all texts, or of those of some things, best first."""
        ...

    def having(self, leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
        """As `Having`."""
        ...

    def count(self, leaf: Leaf) -> int | None:
        """How many texts have a leaf; None where there is nothing to look up."""
        ...

    def things(self, leaf: Leaf) -> frozenset[str]:
        """What the texts that have a leaf are of."""
        ...


def best_of_things(root: Node, sought: Sought, limit: int) -> list[TextHit]:
    """The `limit` best texts whose things are as `root` says.

    Few things are looked at where most fit. Where hardly any does, all are that have the rarest of what each must have,
    if there is such a thing; else all there are.
    """
    counts = {leaf: sought.count(leaf) for leaf in _needed(root)}
    known = [(count, leaf) for leaf, count in counts.items() if count is not None]
    texts, rarest = min(known, key=lambda each: each[0], default=(0, None))
    asked = limit
    while rarest is None or asked <= texts:
        hits = sought.best(asked)
        fitting = satisfying(root, frozenset(hit.thing for hit in hits), sought.having)
        kept = [hit for hit in hits if fitting is None or hit.thing in fitting]
        if len(kept) >= limit or len(hits) < asked:
            return kept[:limit]
        asked *= 4
    fitting = satisfying(root, sought.things(rarest), sought.having)
    return sought.best(limit, fitting) if fitting else []


def _needed(node: Node) -> Iterator[Leaf]:
    """What everything that fits must have in one of its texts, as far as it is told by a leaf alone."""
    match node:
        case And(parts):
            for part in parts:
                yield from _needed(part)
        case Or() | Not():
            pass
        case _:
            yield node


def satisfied_by_nothing(root: Node, says_nothing: Callable[[Leaf], bool]) -> bool:
    """Whether a thing that has none of the leaves is as `root` says: then all there are must be looked at."""

    def having(leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
        return None if says_nothing(leaf) else frozenset()

    return bool(satisfying(root, frozenset({"a thing"}), having))


def satisfying(node: Node, things: frozenset[str], having: Having) -> frozenset[str] | None:
    """Which of `things` are as the query says.

    None where a part has nothing to look up, such as a stop word, and so says nothing.
    """
    match node:
        case And(parts):
            return _as_all_say(parts, things, having)
        case Or(parts):
            return _as_any_says(parts, things, having)
        case Not(part):
            kept_out = satisfying(part, things, having)
            return None if kept_out is None else things - kept_out
        case _:
            return having(node, things)


def _as_all_say(
    parts: Sequence[Node], things: frozenset[str], having: Having
) -> frozenset[str] | None:
    """Each part is asked about what is left by those before it only."""
    fitting: frozenset[str] | None = None
    for part in dict.fromkeys(parts):
        left = things if fitting is None else fitting
        told = satisfying(part, left, having)
        fitting = fitting if told is None else told
        if fitting is not None and not fitting:
            break
    return fitting


def _as_any_says(
    parts: Sequence[Node], things: frozenset[str], having: Having
) -> frozenset[str] | None:
    """Each part is asked about what fits none of those before it only."""
    fitting: frozenset[str] | None = None
    for part in dict.fromkeys(parts):
        told = satisfying(part, things - (fitting or frozenset()), having)
        if told is not None:
            fitting = told | (fitting or frozenset())
        if fitting is not None and fitting == things:
            break
    return fitting
