"""Vectors in memory, searched by inner product with FAISS: one by one while few, by a graph when many.

A number of a vector is kept in a byte: a quarter of the memory of float32, and compared three times as fast. So
that one step of a byte suits whatever embedder a vector is of, even one that has a few large dimensions or leaves
most empty, a vector is first mixed: signs that look random, then a discrete Fourier transform, which is orthogonal
and so changes no cosine (the fast Johnson-Lindenstrauss transform of Ailon and Chazelle, 2006, without leaving
anything out). Its d numbers are then spread nearly as a normal distribution of deviation 1 / sqrt(d), and the 255
steps span `DEVIATIONS` of these to either side. Rounding to a step adds an error of DEVIATIONS / 127 / sqrt(12 d)
to a cosine (one standard deviation: 0.0006 at 384 dimensions), far less than what tells texts apart
(docs/search.md). FAISS rounds the question as well, so it proposes some more than are wanted, and these are
compared with the question as it is.

Up to `GRAPH_FROM_ROWS` rows FAISS compares every selected row. Beyond, an HNSW graph proposes, unless so
few rows are selected that comparing them all is cheaper. That matters for filters: a graph that must step
over unselected rows finds less the fewer are selected, so it is given proportionally more steps, and up to
the point where those cost as much as the truth.

Promises: the index is a function of the sequence of rows, not of the batches in which they came or of
how often it was saved and loaded. FAISS draws a node's level from a generator whose state it does not
save, and reorders the nodes of one `add`; so levels are computed from the row's number and rows are
linked one at a time, which takes no longer. A cosine is computed in one way for all callers, from the
stored vector alone, and so is the same whichever way a row was found.

Left to others: which rows may be found (`vector_rows`), and taking turns: `add` alone, the rest shared.
"""

from __future__ import annotations

import logging
import math
from functools import cache
from hashlib import shake_256
from typing import Any

import faiss as faiss_module
import numpy as np
from numpy.typing import NDArray

from memlog.errors import EmbeddingError
from projections.vector_rows import Ids, Selection

GRAPH_FROM_ROWS = 40_000
"""Where the graph takes over. Comparing so many rows of 384 numbers takes twice as long as the graph does at any size;
linking a row takes as long as comparing some 10,000."""

GRAPH_NEIGHBOURS = 24
GRAPH_BUILD_STEPS = 120
GRAPH_SEARCH_STEPS_MIN = 80
GRAPH_STEPS_TIMES = 1.7
"""So many steps in the graph for each row that is wanted: of 160,000 rows it then finds 91 of the 100 nearest. What
other numbers cost stands in docs/search.md."""

GRAPH_LEVEL_MAX = 5
ROWS_COMPARED_PER_STEP = 100
"""What one step in the graph costs, in rows compared: measured between 90 and 160."""

SPARE_MIN, SPARE_SHARE = 16, 0.25
"""Candidates beyond the limit, among which the rounding of the question may not decide."""

DEVIATIONS = 5.0
STEPS_MAX = 127
ZERO = 128
"""What FAISS adds to a number of steps, so that it is not below 0."""

SLICE_ROWS = 512
"""So many at a time are taken apart: what that needs besides is small beside them."""

Vectors = NDArray[np.float32]

faiss: Any = faiss_module  # its stubs know neither the keyword arguments nor half of the classes
QUANTIZER = faiss.ScalarQuantizer.QT_8bit_direct_signed

log = logging.getLogger("memlog.vectors")


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

    def __init__(self, dimensions: int, graph_from_rows: int | None = None) -> None:
        self.dimensions = dimensions
        self._graph_from_rows = GRAPH_FROM_ROWS if graph_from_rows is None else graph_from_rows
        self._stored: Any = _storage(dimensions)
        self._step = np.float32(DEVIATIONS / math.sqrt(dimensions) / STEPS_MAX)
        self._graph: Any = None
        self._graph_storage: Any = None
        self._merged = False

    @property
    def count(self) -> int:
        return int(self._stored.ntotal)

    def add(self, vectors: Vectors) -> None:
        """Appends rows; `vectors` are as `accepted` returns them.

        Between half of `graph_from_rows` and the whole, each row that comes links two, so that the
        graph is complete when it is first needed and no single write pays for all of it.
        """
        if len(vectors) == 0:
            return
        steps = np.rint(_mixed(vectors) / self._step)
        self._append(np.clip(steps, -STEPS_MAX, STEPS_MAX))

    def asked(self, query: Vectors) -> Vectors:
        """A query as the rows are asked with it: what its numbers count for each step of theirs."""
        asked: Vectors = _mixed(query) * self._step
        return asked

    def nearest(self, asked: Vectors, selection: Selection, limit: int) -> tuple[Ids, Vectors]:
        """At least the `limit` nearest of the selected rows where there are so many, and their cosines.

        In no order, and some more than asked for: the caller breaks ties.
        """
        spare = max(SPARE_MIN, math.ceil(SPARE_SHARE * limit))
        wanted = min(limit + spare, selection.count)
        if limit <= 0 or wanted == 0:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        found = self._proposed(asked, selection, wanted)
        return found, self.cosines(asked, found)

    def cosines(self, asked: Vectors, rows: Ids) -> Vectors:
        """The cosine of each of `rows` to the query: inner products of unit vectors, within -1..1.

        Each is the sum of one row's products, so it does not depend on which rows are asked with it,
        as a matrix product's last bits would.
        """
        if len(rows) == 0:
            return np.empty(0, dtype=np.float32)
        sums = np.vecdot(self._codes[rows].astype(np.float32), asked) - ZERO * asked.sum()
        cosines: Vectors = np.clip(sums, -1.0, 1.0)
        return cosines

    # -- the ways of finding

    def _proposed(self, asked: Vectors, selection: Selection, wanted: int) -> Ids:
        """The `wanted` rows that are nearest to the query in whole numbers."""
        if selection.count <= wanted:
            return selection.rows
        whole = _whole(asked)[np.newaxis]
        found = self._by_graph(whole, selection, wanted)
        if found is None or len(found) < wanted:
            found = self._compared(whole, selection, wanted)
        return found

    def _compared(self, whole: Vectors, selection: Selection, count: int) -> Ids:
        faiss.omp_set_num_threads(1)  # of this thread; it takes all else, for one query too
        chosen = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(selection.bitmap))
        return _ids(self._stored.search(whole, count, params=chosen))

    def _by_graph(self, whole: Vectors, selection: Selection, count: int) -> Ids | None:
        """What the graph finds; None where it is not complete or comparing is cheaper."""
        if selection.total < self._graph_from_rows or not self._merged:
            return None
        share = selection.count / selection.total
        steps = math.ceil(max(GRAPH_SEARCH_STEPS_MIN, GRAPH_STEPS_TIMES * count) / share)
        if selection.count <= steps * ROWS_COMPARED_PER_STEP:
            return None
        chosen = faiss.SearchParametersHNSW(
            efSearch=steps, sel=faiss.IDSelectorBitmap(selection.bitmap)
        )
        return _ids(self._graph.search(whole, count, params=chosen))

    # -- numbers

    def _append(self, steps: Vectors) -> None:
        """What fails on the way is done again: rows count when FAISS has them."""
        if self._merged:
            self._link(steps)
        else:
            self._stored.add(steps)
            self._catch_up_graph()

    @property
    def _codes(self) -> NDArray[np.uint8]:
        """The steps of each row, `ZERO` added: FAISS's own memory, good until rows are added."""
        stored: NDArray[np.uint8] = faiss.rev_swig_ptr(
            self._stored.codes.data(), self.count * self.dimensions
        )
        return stored.reshape(self.count, self.dimensions)

    def _steps(self, start: int, stop: int) -> Vectors:
        steps: Vectors = self._codes[start:stop].astype(np.float32)
        steps -= ZERO
        return steps

    # -- the graph

    def _catch_up_graph(self) -> None:
        """Links as many rows as a graph should have next to this many vectors, and no more."""
        target = min(self.count, 2 * self.count - self._graph_from_rows)
        linked = 0 if self._graph is None else int(self._graph.ntotal)
        while linked < target:
            step = min(SLICE_ROWS, target - linked)
            self._link(self._steps(linked, linked + step))
            linked += step
        if self._graph is not None and linked == self.count:
            self._stored = faiss.downcast_index(self._graph.storage)
            self._merged = True

    def _link(self, steps: Vectors) -> None:
        if self._graph is None:
            self._graph = faiss.IndexHNSWSQ(
                self.dimensions, QUANTIZER, GRAPH_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT
            )
            self._graph.hnsw.efConstruction = GRAPH_BUILD_STEPS
        # Of this thread: a second one would be woken for each row, and have nothing to do.
        faiss.omp_set_num_threads(1)
        levels = self._graph.hnsw.levels
        for row, vector in enumerate(steps, int(self._graph.ntotal)):
            # FAISS takes a level that is there already; one may be, after an addition that failed.
            if levels.size() == row:
                levels.push_back(1 + _level(row))
            self._graph.add(vector[np.newaxis])

    # -- snapshots

    def numbers_bytes(self, count: int) -> bytes:
        """The first `count` vectors, row after row, a byte a number."""
        return self._codes[:count].tobytes()

    def graph_bytes(self) -> bytes:
        """The graph without its vectors, in FAISS's format; empty where there is none."""
        if self._graph is None:
            return b""
        stored: NDArray[np.uint8] = faiss.serialize_index(self._graph, faiss.IO_FLAG_SKIP_STORAGE)
        return stored.tobytes()

    @classmethod
    def restored(
        cls,
        dimensions: int,
        numbers: bytes | memoryview,
        graph: bytes | memoryview,
        graph_from_rows: int | None = None,
    ) -> VectorIndex:
        """The index of `numbers_bytes` and `graph_bytes`. Raises ValueError where they are no vectors.

        A graph that this FAISS does not read, or of other rows than it should have now, is built anew.
        """
        index = cls(dimensions, graph_from_rows)
        stored = np.frombuffer(numbers, np.uint8)
        if len(stored) % dimensions:
            raise ValueError(f"{len(stored)} bytes are no vectors of {dimensions}")
        index._stored.codes.resize(len(stored))
        index._stored.ntotal = len(stored) // dimensions
        index._codes[:] = stored.reshape(-1, dimensions)
        index._adopt(graph)
        index._catch_up_graph()
        return index

    def _adopt(self, stored: bytes | memoryview) -> None:
        rows = min(self.count, max(0, 2 * self.count - self._graph_from_rows))
        if len(stored) == 0 or rows == 0:
            return
        try:
            graph = faiss.deserialize_index(np.frombuffer(stored, dtype=np.uint8))
        except RuntimeError as error:
            log.warning("the graph over the vectors cannot be read and is built anew: %s", error)
            return
        if (graph.ntotal, graph.d) != (rows, self.dimensions):
            return
        storage = self._stored
        if rows < self.count:
            storage = _storage(self.dimensions)
            storage.add(self._steps(0, rows))
        # FAISS holds the pointer only; the reference kept here holds the vectors.
        graph.storage = self._graph_storage = storage
        self._graph = graph


def _storage(dimensions: int) -> Any:
    return faiss.IndexScalarQuantizer(dimensions, QUANTIZER, faiss.METRIC_INNER_PRODUCT)


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


def _whole(asked: Vectors) -> Vectors:
    """As whole numbers, the largest `STEPS_MAX`: of a query, too, FAISS takes a byte a number."""
    whole: Vectors = np.rint(asked * (STEPS_MAX / (np.abs(asked).max() or np.float32(1))))
    return whole


def _ids(found: tuple[Any, Any]) -> Ids:
    """The rows of a search of one query; FAISS fills up with -1."""
    rows: Ids = found[1][0]
    return rows[rows >= 0]


def _level(row: int) -> int:
    """The highest level of a node: floor(-ln(u) / ln M) with u uniform in (0, 1] (Malkov, Yashunin:
    "Efficient and robust approximate nearest neighbor search using HNSW graphs", 2018), u being the
    row's number mixed by splitmix64 (Steele, Lea, Flood 2014).
    """
    mask = 2**64 - 1
    mixed = (row + 1) * 0x9E3779B97F4A7C15 & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    mixed ^= mixed >> 31
    uniform = (mixed + 1) / 2**64
    return min(GRAPH_LEVEL_MAX, int(-math.log(uniform) / math.log(GRAPH_NEIGHBOURS)))
