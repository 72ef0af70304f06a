"""Vectors in memory, the nearest of which are found: proposed by short codes, then compared.

A number of a vector is kept in a byte: a quarter of the memory of float32. So that one step of a byte suits whatever
embedder a vector is of, even one that has a few large dimensions or leaves most empty, a vector is first mixed: signs
that look random, then a discrete Fourier transform, which is orthogonal and so changes no cosine (the fast
Johnson-Lindenstrauss transform of Ailon and Chazelle, 2006, without leaving anything out). Its d numbers are then
spread nearly as a normal distribution of deviation 1 / sqrt(d), and the 255 steps span `DEVIATIONS` of these to either
side. Rounding to a step adds an error of DEVIATIONS / 127 / sqrt(12 d) to a cosine (one standard deviation: 0.0006 at
384 dimensions), far less than what tells texts apart (docs/search.md).

Where more rows are selected than would be compared anyway, their codes (`codes`) say which are: some times as
many as are wanted. That takes as long as there are rows, for each of them the time that it takes to read its code, and
no longer where few are selected; nothing has to be linked, balanced or learnt when a row comes
(docs/decisions/0016-the-nearest-vectors-are-proposed-by-short-codes.md).

Promises: the index is a function of the sequence of rows, not of the batches in which they came or of how often it was
saved and loaded. A cosine is computed in one way for all callers, from the stored vector alone, and so is the same
whichever way a row was found.

Left to others: which rows may be found (`rows`), and taking turns: `add` alone, the rest shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from hashlib import shake_256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memlog.errors import EmbeddingError
from projections.vectors.codes import Codes, Steps
from projections.vectors.columns import Ids
from projections.vectors.rows import Selection

COMPARED_MIN, COMPARED_TIMES = 300, 6
"""So many rows are compared, for each that is wanted. What is found with more and with fewer stands in
docs/search.md."""

WIDENED_TIMES = 16
"""So many times as many are compared where most of them are equal, and may hide others, or are of few documents."""

DEVIATIONS = 5.0
STEPS_MAX = 127
CENTRED_AT = (256, 2_048, 16_384)
"""When there are so many rows, the codes are of what they do not have in common; until then all are compared."""

ROWS_MIN = 64
"""There is room for so many from the first on."""

Vectors = NDArray[np.float32]


def accepted(vectors: Any, count: int, dimensions: int) -> Vectors:
    """What an embedder returned, in the shape that the index takes; or EmbeddingError."""
    given = np.asarray(vectors, dtype=np.float32)
    if given.shape != (count, dimensions):
        raise EmbeddingError(
            f"The embedder returned vectors of shape {given.shape} for {count} texts; "
            f"{(count, dimensions)} was expected",
            suggestion="Check that the configured model has the number of dimensions it claims.",
        )
    if not np.isfinite(given).all():
        raise EmbeddingError("The embedder returned a vector with numbers that are not finite")
    return np.ascontiguousarray(given)


def accepted_query(vector: Any, dimensions: int) -> Vectors:
    """A vector to search by, of shape (dimensions,); or EmbeddingError."""
    query = np.ascontiguousarray(vector, dtype=np.float32)
    if query.shape != (dimensions,):
        raise EmbeddingError(
            f"A query vector of shape {query.shape} cannot be compared with {dimensions} dimensions",
            suggestion="Embed the query with the model that embedded the documents.",
        )
    return query


class VectorIndex:
    """Vectors by row number, 0 and up without a gap."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self.count = 0
        self._step = np.float32(DEVIATIONS / math.sqrt(dimensions) / STEPS_MAX)
        self._room: Steps = np.empty((0, dimensions), np.int8)
        self._codes: Codes | None = None

    def add(self, vectors: Vectors) -> None:
        """Appends rows; `vectors` are as `accepted` returns them. What fails on the way is done again."""
        stop = self.count + len(vectors)
        self._make_room(stop)
        steps = np.rint(_mixed(vectors) / self._step)
        self._room[self.count : stop] = np.clip(steps, -STEPS_MAX, STEPS_MAX)
        self._code(stop)
        self.count = stop

    def _make_room(self, rows: int) -> None:
        """For so many rows, and as many more, which take no memory until they come."""
        if rows > len(self._room):
            room = np.empty((max(ROWS_MIN, 2 * rows), self.dimensions), np.int8)
            room[: self.count] = self._room[: self.count]
            self._room = room

    def asked(self, query: Vectors) -> Vectors:
        """A query as the rows are asked with it: what its numbers count for each step of theirs."""
        asked: Vectors = _mixed(query) * self._step
        return asked

    def nearest(
        self,
        asked: Vectors,
        selection: Selection,
        limit: int,
        documents: Callable[[Ids], Ids] | None = None,
    ) -> tuple[Ids, Vectors]:
        """The `limit` nearest of the selected rows and their cosines, best first, of equals the older one; of those
        that are of one document, as `documents` tells where any are, the best."""
        wanted = max(COMPARED_MIN, COMPARED_TIMES * limit)
        rows, cosines = self._compared(asked, selection, wanted, documents)
        alike = 2 * np.count_nonzero(np.diff(cosines)) < len(rows)
        if wanted < selection.count and (alike or len(rows) < limit):
            rows, cosines = self._compared(asked, selection, WIDENED_TIMES * wanted, documents)
        return rows[:limit], cosines[:limit]

    def _compared(
        self,
        asked: Vectors,
        selection: Selection,
        wanted: int,
        documents: Callable[[Ids], Ids] | None,
    ) -> tuple[Ids, Vectors]:
        """The `wanted` selected rows that are most likely nearest, in the same order."""
        if selection.count <= wanted or self._codes is None:
            rows = selection.rows
        else:
            rows = np.sort(self._codes.proposed(asked, selection, wanted))
        rows, cosines = self.in_order(asked, rows)
        if documents is None:
            return rows, cosines
        first = np.sort(np.unique(documents(rows), return_index=True)[1])
        return rows[first], cosines[first]

    def in_order(self, asked: Vectors, rows: Ids) -> tuple[Ids, Vectors]:
        """These rows, which ascend, and their cosines, best first."""
        cosines = self.cosines(asked, rows)
        order = np.argsort(-cosines, kind="stable")
        return rows[order], cosines[order]

    def cosines(self, asked: Vectors, rows: Ids) -> Vectors:
        """The cosine of each of `rows` to the query: inner products of unit vectors, within -1..1.

        Each is the sum of one row's products, so it does not depend on which rows are asked with it,
        as a matrix product's last bits would.
        """
        if len(rows) == 0:
            return np.empty(0, dtype=np.float32)
        sums = np.vecdot(self._room[rows].astype(np.float32), asked)
        cosines: Vectors = np.clip(sums, -1.0, 1.0)
        return cosines

    # -- codes

    def _code(self, stop: int) -> None:
        """Gives all rows up to `stop` codes, once there are enough of them."""
        codes = self._begun(stop)
        self._codes = None  # where the next line fails, none of them can be relied on
        if codes is not None:
            codes.add(self._room[codes.count : stop])
        self._codes = codes

    def _begun(self, stop: int) -> Codes | None:
        """The codes there are, or empty ones where so many rows have others."""
        first = max((count for count in CENTRED_AT if count <= stop), default=0)
        if first == 0 or (self._codes is not None and self._codes.of_first == first):
            return self._codes
        return Codes(self._room[:first])

    # -- snapshots

    def numbers_bytes(self, count: int) -> bytes:
        """The first `count` vectors, row after row, a byte a number."""
        return self._room[:count].tobytes()

    def codes_bytes(self) -> bytes:
        """The codes of all rows; empty where there are none as yet."""
        return b"" if self._codes is None else self._codes.to_bytes()

    @classmethod
    def restored(
        cls, dimensions: int, numbers: bytes | memoryview, codes: bytes | memoryview
    ) -> VectorIndex:
        """The index of `numbers_bytes` and `codes_bytes`. Raises ValueError where they are no vectors.

        Codes that this FAISS does not read, or of other rows, are made anew.
        """
        index = cls(dimensions)
        stored = np.frombuffer(numbers, np.int8)
        if len(stored) % dimensions:
            raise ValueError(f"{len(stored)} bytes are no vectors of {dimensions}")
        rows = stored.reshape(-1, dimensions)
        index._make_room(len(rows))
        index._room[: len(rows)] = rows
        index.count = len(rows)
        index._codes = index._begun(index.count)
        if index._codes is not None:
            index._codes.adopt(codes, index.count)
            index._code(index.count)
        return index


def _mixed(vectors: Vectors) -> Vectors:
    """Vectors (..., d) turned in space, all alike, so that no few of their numbers hold most of them."""
    dimensions = vectors.shape[-1]
    waves = np.fft.rfft(vectors * _signs(dimensions), norm="ortho")
    pairs = (dimensions + 1) // 2
    mixed: Vectors = np.empty(vectors.shape, np.float32)
    mixed[..., 0] = waves[..., 0].real
    mixed[..., 1:pairs] = math.sqrt(2) * waves[..., 1:pairs].real
    mixed[..., pairs : 2 * pairs - 1] = math.sqrt(2) * waves[..., 1:pairs].imag
    if dimensions % 2 == 0:
        mixed[..., -1] = waves[..., -1].real
    return mixed


@cache
def _signs(dimensions: int) -> Vectors:
    """float32 (dimensions,) of 1 and -1: the bits of SHAKE-256 (FIPS 202) of nothing."""
    drawn = np.frombuffer(shake_256().digest(-(-dimensions // 8)), np.uint8)
    signs: Vectors = 1 - 2 * np.unpackbits(drawn)[:dimensions].astype(np.float32)
    return signs
