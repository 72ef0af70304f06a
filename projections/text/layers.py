"""Texts that are asked by clauses, and two lots of them asked as one.

Promised is what one lot with the documents of both would answer, hits that tie aside: a document's score does not
depend on what else is in its lot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from projections.text.clauses import Clause, Joined
from projections.text.rows import Head, Row

Found = list[tuple[float, Any]]
"""What orders a document, and its address, which is of whoever was asked."""


class Searching(Protocol):
    """Documents, living and retired."""

    @property
    def documents(self) -> int:
        """How many there are."""
        ...

    def count(self, clause: Clause) -> int: ...

    def best(self, clause: Clause, limit: int) -> Found:
        """Those with the highest score times their weight (`rows.weight`), best first."""
        ...

    def smallest(self, clause: Clause, limit: int) -> Found:
        """Those of the least size (`rows.size`), the smallest first."""
        ...

    def having(self, clause: Clause, limit: int | None = None) -> list[Any]:
        """The addresses of all, or of some, in no order."""
        ...

    def heads(self, addresses: Sequence[Any]) -> Sequence[Head | Row]: ...

    def row(self, address: Any) -> Row: ...


class Address(NamedTuple):
    layer: Searching
    within: Any


class Layers:
    """Two as one: what is below but for what is `hidden` there, and what lies above it."""

    def __init__(self, below: Searching, above: Searching, hidden: Clause | None) -> None:
        self._below, self._above, self._hidden = below, above, hidden
        self.documents = below.documents - self._hidden_of() + above.documents

    def count(self, clause: Clause) -> int:
        return self._below.count(clause) - self._hidden_of(clause) + self._above.count(clause)

    def best(self, clause: Clause, limit: int) -> Found:
        found = _of(self._below, self._below.best(self._seen(clause), limit))
        found += _of(self._above, self._above.best(clause, limit))
        return sorted(found, key=lambda hit: -hit[0])[:limit]

    def smallest(self, clause: Clause, limit: int) -> Found:
        found = _of(self._below, self._below.smallest(self._seen(clause), limit))
        found += _of(self._above, self._above.smallest(clause, limit))
        return sorted(found, key=lambda hit: hit[0])[:limit]

    def having(self, clause: Clause, limit: int | None = None) -> list[Address]:
        asked = (self._above, clause), (self._below, self._seen(clause))
        return [Address(layer, at) for layer, seen in asked for at in layer.having(seen, limit)]

    def heads(self, addresses: Sequence[Address]) -> list[Head | Row]:
        """Of each layer at once."""
        heads: dict[int, Head | Row] = {}
        for layer in (self._below, self._above):
            places = [at for at, address in enumerate(addresses) if address.layer is layer]
            heads |= zip(places, layer.heads([addresses[at].within for at in places]), strict=True)
        return [heads[at] for at in range(len(addresses))]

    def row(self, address: Address) -> Row:
        return address.layer.row(address.within)

    def _seen(self, clause: Clause) -> Clause:
        """The clause for what is below."""
        if self._hidden is None:
            return clause
        return Joined(must=(clause,), without=(self._hidden,))

    def _hidden_of(self, *clauses: Clause) -> int:
        if self._hidden is None:
            return 0
        return self._below.count(Joined(must=(*clauses, self._hidden)))


def _of(layer: Searching, found: Found) -> Found:
    return [(value, Address(layer, within)) for value, within in found]
