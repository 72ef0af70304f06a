"""Two indexes asked as one.

Promises what one index with the documents of both would answer, hits that tie aside: whoever asks must give each
document a score that does not depend on what else is in its index.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import msgspec
import tantivy
from tantivy import Occur, Order


class Searching(Protocol):
    """What is asked of an index: tantivy's `Searcher`, or several as one. Addresses are its own."""

    @property
    def num_docs(self) -> int: ...

    def search(
        self,
        query: tantivy.Query,
        limit: int,
        count: bool = True,
        order_by_field: str | None = None,
        offset: int = 0,
        order: Order = Order.Desc,
        weight_by_field: str | None = None,
    ) -> Any: ...

    def doc(self, address: Any, /) -> tantivy.Document: ...

    def fast_field_values(self, field: str, addresses: list[Any], /) -> list[Any]: ...

    def terms_with_prefix(self, field: str, prefix: str, /) -> list[tuple[str, int]]: ...


class Address(NamedTuple):
    searcher: Searching
    within: Any


class Found(msgspec.Struct, frozen=True):
    """What tantivy's `SearchResult` tells."""

    hits: list[tuple[float, Address]]
    count: int


class Layers:
    """Two indexes as one: what is below but for what is `hidden` there, and what lies above it."""

    def __init__(self, below: Searching, above: Searching, hidden: tantivy.Query) -> None:
        self._below, self._above, self._hidden = below, above, hidden
        self.num_docs = below.num_docs - below.search(hidden, 1).count + above.num_docs

    def search(
        self,
        query: tantivy.Query,
        limit: int,
        count: bool = True,
        order_by_field: str | None = None,
        offset: int = 0,
        order: Order = Order.Desc,
        weight_by_field: str | None = None,
    ) -> Found:
        below = tantivy.Query.boolean_query([(Occur.Must, query), (Occur.MustNot, self._hidden)])
        hits: list[tuple[float, Address]] = []
        total = 0
        for searcher, asked in ((self._below, below), (self._above, query)):
            found = searcher.search(
                asked,
                offset + limit,
                count=count,
                order_by_field=order_by_field,
                order=order,
                weight_by_field=weight_by_field,
            )
            hits += [(value, Address(searcher, address)) for value, address in found.hits]
            total += found.count or 0
        hits.sort(key=lambda hit: hit[0], reverse=order == Order.Desc)
        return Found(hits[offset : offset + limit], total)

    def doc(self, address: Address, /) -> tantivy.Document:
        return address.searcher.doc(address.within)

    def fast_field_values(self, field: str, addresses: list[Address], /) -> list[Any]:
        return [at.searcher.fast_field_values(field, [at.within])[0] for at in addresses]

    def terms_with_prefix(self, field: str, prefix: str, /) -> list[tuple[str, int]]:
        """A term of both is there twice."""
        layers = (self._below, self._above)
        return [term for each in layers for term in each.terms_with_prefix(field, prefix)]
