"""One search's look at the vectors: rows by number, from the first question to the last.

A search asks for the nearest documents, for the cosines of others, and for what was written down beside the
best of them. Between these it keeps rows, not refs, so that each document is looked up once. A row keeps its
number as long as its table is there, which this holds on to; a row that dies meanwhile is still told.

Of a document that has several passages the one that is nearest to the question speaks for it, however it was found:
its row is the only one that is told. What stands right beside it in the document is told for the words that it has.

Left to others: when to let the writer in between (`turns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from projections.documents import Scope
from projections.vectors.columns import NO_ROW, Ids, Places
from projections.vectors.index import VectorIndex, Vectors
from projections.vectors.rows import Described, Rows
from projections.vectors.turns import Turns

COMPARED_TIMES = 4
"""So many times as many documents as are wanted are compared with a long text as a whole."""


class Surroundings(NamedTuple):
    """Documents, and what there is to know about them; `Places` are into `rows`, -1 where there is none."""

    rows: Ids
    """Those that were asked about, then those that came in."""
    new: int
    """So many of them came in."""
    close: Places
    """The leading ones and what stands right beside them, ascending."""
    keys: list[bytes]
    """Under which the pieces of the texts of the close ones are stored, then those of the passages beside these."""
    beside_close: tuple[Places, ...]
    """Of each of these texts what stands right before it, and after it, counted among them: another of the close ones,
    or a passage of the same document."""
    asking: NDArray[np.float32]
    """How much of each text are questions, 0..1."""
    named: NDArray[np.float32]
    """How much of the name of the document's entity is in the question, 0..1, of that which has the most of it."""
    beside: Mapping[int, Places]
    """By distance, what was written down so many places before (below 0) or after each."""


class Look:
    """What is in the scope of a search, beside the vector of its question."""

    def __init__(
        self, asked: Vectors, rows: Rows, index: VectorIndex, turns: Turns, scope: Scope
    ) -> None:
        self._asked = asked
        self._rows = rows
        self._index = index
        self._turns = turns
        self._scope = scope

    def rows_of(self, refs: Iterable[str]) -> Ids:
        """The row of each, `NO_ROW` where it does not live."""
        with self._turns.reading():
            rows = self._rows.living_rows(refs, self._scope.at)
            known = rows != NO_ROW
            rows[known] = self._speaking(rows[known])
            return rows

    def described(self, rows: Ids) -> Described:
        """The documents of these rows."""
        with self._turns.reading():
            return self._rows.described(rows)

    def cosines(self, rows: Ids) -> Vectors:
        """Of each row; NaN where there is none."""
        found = np.full(len(rows), np.nan, np.float32)
        known = rows != NO_ROW
        with self._turns.reading():
            found[known] = self._index.cosines(self._asked, rows[known])
        return found

    def nearest(self, limit: int) -> tuple[Ids, Vectors]:
        """The `limit` nearest rows and their cosines, best first, of equals the older one."""
        with self._turns.reading():
            selection = self._rows.select(self._scope)
            if not self._rows.has_passages:
                return self._index.nearest(self._asked, selection, limit)
            documents = self._rows.documents
            rows, _ = self._index.nearest(self._asked, selection, limit, documents)
            rows = np.sort(self._speaking(documents(rows)))  # it may not be one that was proposed
            return self._index.in_order(self._asked, rows)

    def documents(self, limit: int) -> Ids:
        """The documents of the `limit` nearest rows, by the row of their first passage."""
        rows, _ = self.nearest(limit)
        with self._turns.reading():
            return self._rows.documents(rows)

    def of_passages(self, documents: Ids) -> tuple[Vectors, Ids]:
        """The cosines of all their passages, one after another, and where those of each document begin."""
        with self._turns.reading():
            rows, starts = self._passages(documents)
            return self._index.cosines(self._asked, rows), starts

    def _passages(self, documents: Ids) -> tuple[Ids, Ids]:
        """The rows of all passages of each, and where among them those of each begin."""
        counts = self._rows.passages(documents)
        starts: Ids = counts.cumsum() - counts
        rows: Ids = np.repeat(documents - starts, counts) + np.arange(counts.sum())
        return rows, starts

    def _speaking(self, documents: Ids) -> Ids:
        """For each the row of its passage that is nearest to the question, of equals the first."""
        if not self._rows.has_passages:
            return documents
        rows, starts = self._passages(documents)
        if len(rows) == len(documents):
            return documents
        counts = np.diff(starts, append=len(rows))
        cosines = self._index.cosines(self._asked, rows)
        best = np.repeat(np.maximum.reduceat(cosines, starts), counts) == cosines
        whose = np.repeat(np.arange(len(counts)), counts)[best]
        speaking: Ids = rows[best][np.unique(whose, return_index=True)[1]]
        return speaking

    def surroundings(
        self, rows: Ids, *, leading: int, reach: int, words: frozenset[str]
    ) -> Surroundings:
        """About those of `rows` that there are; and after them what was written down in the same conversation
        right beside one of the first `leading`, if it is in the scope. `words` are those of the question,
        `reach` is how far neighbours may stand.
        """
        table, at = self._rows, self._scope.at
        own, first = rows[rows != NO_ROW], rows[:leading]
        first = first[first != NO_ROW]
        with self._turns.reading():
            new = table.companions(table.documents(first), at)
            if len(new):
                new = np.setdiff1d(new, table.documents(own))
                new = self._speaking(new[table.fit(new, self._scope)])
            every = np.concatenate([own, new])
            documents = table.documents(every)
            around = table.around(documents, reach, at)
            found = _places(documents)(np.concatenate([*around.values()]))
            beside = dict(zip(around, found.reshape(len(around), len(every)), strict=True))
            close = np.arange(len(first))
            close = np.unique(np.concatenate([close, *(beside[side][close] for side in (-1, 1))]))
            close = close[close >= 0]
            among_close = _places(close)
            neighbours = among_close(beside[-1][close]), among_close(beside[1][close])
            texts, beside_close = self._with_passages(every[close], neighbours)
            return Surroundings(
                every,
                len(new),
                close,
                table.keys(texts),
                beside_close,
                table.asking(every),
                table.named(every, words, at),
                beside,
            )

    def _with_passages(
        self, rows: Ids, neighbours: tuple[Places, ...]
    ) -> tuple[Ids, tuple[Places, ...]]:
        """Rows and after them the passages right before and after each in the same document; and by what stands beside
        each, their `neighbours` and these passages, counted among all of them."""
        if not self._rows.has_passages:
            return rows, neighbours
        passages = self._rows.passages_beside(rows)
        more = np.concatenate(passages)
        texts = np.concatenate([rows, more[more != NO_ROW]])
        lends_nothing = np.full(len(texts) - len(rows), NO_ROW)
        beside = (*neighbours, *map(_places(texts), passages))
        return texts, tuple(np.concatenate([each, lends_nothing]) for each in beside)


def most_alike(looks: Sequence[Look], limit: int) -> tuple[Ids, Vectors]:
    """The `limit` documents that are most like a text as a whole, and how like, -1..1, best first, of equals the older
    one; `looks` are those by each of its passages.

    They are of those that are among the nearest to the most passages. A passage is as like another text as the nearest
    passage there, and a text as its passages are on the average; what the other text says besides counts likewise, and
    the lesser of the two is told. Of two short texts it is the cosine.
    """
    near = np.concatenate([look.documents(limit) for look in looks])
    documents, times = np.unique(near, return_counts=True)
    documents = np.sort(documents[np.argsort(-times, kind="stable")[: COMPARED_TIMES * limit]])
    if len(documents) == 0:
        return documents, np.empty(0, np.float32)
    each, (starts, *_) = zip(*(look.of_passages(documents) for look in looks), strict=True)
    cosines = np.stack(each)
    counts = np.diff(starts, append=cosines.shape[1])
    said_there = np.maximum.reduceat(cosines, starts, axis=1).mean(axis=0)
    said_here = np.add.reduceat(cosines.max(axis=0), starts) / counts
    alike = np.minimum(said_there, said_here).astype(np.float32)
    best = np.argsort(-alike, kind="stable")[:limit]
    return documents[best], alike[best]


def _places(among: Sequence[int] | Places) -> Callable[[Places], Places]:
    """Tells where each of other numbers stands in `among`, which are distinct; -1 where it does not."""
    order = np.argsort(among)
    ascending = np.asarray(among)[order]

    def places(wanted: Places) -> Places:
        if len(ascending) == 0 or (len(wanted) and wanted.max() < 0):
            return wanted
        found = ascending.searchsorted(wanted)
        found[found == len(ascending)] = 0
        there: Places = np.where(ascending[found] == wanted, order[found], -1)
        return there

    return places
