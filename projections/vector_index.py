"""Vectors in memory, searched by inner product with FAISS: one by one while few, by a graph when many.

A number of a vector is kept in sixteen bits, as two bytes. The upper bytes are FAISS's: with them alone it
proposes some more rows than are wanted, in a third of the time that whole numbers take. The lower ones lie
beside it, and are looked at for what was proposed; by both together a cosine is right to a few millionths.
Up to `GRAPH_FROM_ROWS` rows FAISS compares every selected row. Beyond, an HNSW graph proposes, unless so
few rows are selected that comparing them all is cheaper. That matters for filters: a graph that must step
over unselected rows finds less the fewer are selected, so it is given proportionally more steps, and up to
the point where those cost as much as the truth.

Promises: the index is a function of the sequence of rows, not of the batches in which they came or of
how often it was saved and loaded. FAISS draws a node's level from a generator whose state it does not
save, and reorders the nodes of one `add`; so levels are computed from the row's number and rows are
linked one at a time, which takes no longer. A cosine is computed in one way for all callers, from the
stored vector alone, and so is the same whichever way a row was found.

The sixteen bits span three times the largest number of the first row, which suits whatever embedder it is of;
what is beyond is cut to that.

Left to others: which rows may be found (`vector_rows`), and taking turns: `add` alone, the rest shared.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import faiss as faiss_module
import numpy as np
from numpy.typing import NDArray

from memlog.errors import EmbeddingError
from projections.vector_rows import Ids, Selection

GRAPH_FROM_ROWS = 40_000
"""Where the graph takes over. Comparing so many rows of 384 numbers takes 0.8 ms, and the graph as long at any
size; linking a row costs a quarter of a millisecond."""

GRAPH_NEIGHBOURS = 32
GRAPH_BUILD_STEPS = 80
GRAPH_SEARCH_STEPS_MIN = 64
GRAPH_STEPS_TIMES = 4 / 3
"""So many steps in the graph for each row that it is to propose."""

GRAPH_LEVEL_MAX = 5
ROWS_COMPARED_PER_STEP = 100
"""What one step in the graph costs, in rows compared: measured between 90 and 160."""

TIES = 16
"""Candidates beyond the limit, among which the last bits of FAISS's distances may not decide."""

PROPOSED_TIMES = 1.5
"""So many times what is wanted is proposed by the upper bytes. Of 30,000 rows, 1.3 times missed none of the first
116 in a hundred searches; 1 time missed three in each."""

COMPARED_WHOLE_MAX = 512
"""So few rows are compared by both bytes at once."""

LARGEST_TIMES = np.float32(3)
UPPER_MAX = 127
NUMBER_MAX = UPPER_MAX * 256
ZERO = 128
"""What FAISS adds to an upper byte, so that it is not below 0."""

SLICE_ROWS = 512
"""So many at a time are taken apart: what that needs besides is small beside them."""

LARGEST_BYTES = 4

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int16]

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
        self._upper: Any = _storage(dimensions)
        self._lower = np.empty((0, dimensions), np.int8)
        self._largest = np.float32(0)
        """The number that is kept as `NUMBER_MAX`; 0 while there is none but 0."""
        self._graph: Any = None
        self._graph_storage: Any = None
        self._merged = False

    @property
    def count(self) -> int:
        return int(self._upper.ntotal)

    def add(self, vectors: Vectors) -> None:
        """Appends rows; `vectors` are as `accepted` returns them.

        Between half of `graph_from_rows` and the whole, each row that comes links two, so that the
        graph is complete when it is first needed and no single write pays for all of it.
        """
        if len(vectors) == 0:
            return
        if not self._largest:  # nor is there any for the vector zero
            saying = vectors[vectors.any(axis=1)][:1]
            self._largest = LARGEST_TIMES * np.abs(saying).max(initial=np.float32(0))
        scaled = np.rint(vectors * (NUMBER_MAX / self._unit))
        self._append(np.clip(scaled, -NUMBER_MAX, NUMBER_MAX).astype(np.int16))

    def nearest(self, query: Vectors, selection: Selection, limit: int) -> tuple[Ids, Vectors]:
        """At least the `limit` nearest of the selected rows where there are so many, and their cosines.

        In no order, and some more than asked for: the caller breaks ties.
        """
        wanted = min(limit + TIES, len(selection.rows))
        if wanted <= 0:
            return selection.rows[:0], np.empty(0, dtype=np.float32)
        found = self._proposed(query, selection, wanted)
        cosines = self.cosines(query, found)
        if len(found) > wanted:
            best = np.argpartition(-cosines, wanted - 1)[:wanted]
            found, cosines = found[best], cosines[best]
        return found, cosines

    def cosines(self, query: Vectors, rows: Ids) -> Vectors:
        """The cosine of each of `rows` to the query: inner products of unit vectors, within -1..1.

        Each is the sum of one row's products, so it does not depend on which rows are asked with it,
        as a matrix product's last bits would.
        """
        if len(rows) == 0:
            return np.empty(0, dtype=np.float32)
        numbers = self._upper_bytes[rows].astype(np.float32)  # exact: they are below 2 ** 24
        numbers -= ZERO
        numbers *= 256
        numbers += self._lower[rows]
        sums: Vectors = np.vecdot(numbers, query)
        cosines: Vectors = np.clip(sums * (self._largest / NUMBER_MAX), -1.0, 1.0)
        return cosines

    @property
    def _unit(self) -> np.float32:
        return self._largest or np.float32(1)

    # -- the ways of finding

    def _proposed(self, query: Vectors, selection: Selection, wanted: int) -> Ids:
        """Rows among which the `wanted` nearest are."""
        count = min(math.ceil(PROPOSED_TIMES * wanted), len(selection.rows))
        if len(selection.rows) <= max(count, COMPARED_WHOLE_MAX):
            return selection.rows
        scaled = np.rint(query * (UPPER_MAX / self._unit))
        asked = np.clip(scaled, -UPPER_MAX, UPPER_MAX)[np.newaxis]
        found = self._by_graph(asked, selection, count)
        if found is None or len(found) < count:
            found = self._compared(asked, selection, count)
        return found

    def _compared(self, asked: Vectors, selection: Selection, count: int) -> Ids:
        faiss.omp_set_num_threads(1)  # of this thread; it takes all else, for one query too
        chosen = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(selection.bitmap))
        return _ids(self._upper.search(asked, count, params=chosen))

    def _by_graph(self, asked: Vectors, selection: Selection, count: int) -> Ids | None:
        """What the graph finds; None where it is not complete or comparing is cheaper."""
        if selection.total < self._graph_from_rows or not self._merged:
            return None
        share = len(selection.rows) / selection.total
        steps = math.ceil(max(GRAPH_SEARCH_STEPS_MIN, GRAPH_STEPS_TIMES * count) / share)
        if len(selection.rows) <= steps * ROWS_COMPARED_PER_STEP:
            return None
        chosen = faiss.SearchParametersHNSW(
            efSearch=steps, sel=faiss.IDSelectorBitmap(selection.bitmap)
        )
        return _ids(self._graph.search(asked, count, params=chosen))

    # -- numbers

    def _append(self, numbers: Numbers) -> None:
        """What fails on the way is done again: rows count when FAISS has them."""
        start, stop = self.count, self.count + len(numbers)
        if stop > len(self._lower):
            grown = np.empty((max(stop, 2 * start), self.dimensions), np.int8)
            grown[:start] = self._lower[:start]
            self._lower = grown
        upper = _upper(numbers)
        self._lower[start:stop] = numbers - upper * 256
        if self._merged:
            self._link(upper)
        else:
            self._upper.add(upper.astype(np.float32))
            self._catch_up_graph()

    def _numbers(self, rows: Ids | slice) -> Numbers:
        """Of each of the rows, times `NUMBER_MAX / _largest`."""
        numbers = self._upper_bytes[rows].astype(np.int16)
        numbers -= ZERO
        numbers *= 256
        numbers += self._lower[rows]
        return numbers

    @property
    def _upper_bytes(self) -> NDArray[np.uint8]:
        """FAISS's own memory, good until rows are added."""
        stored: NDArray[np.uint8] = faiss.rev_swig_ptr(
            self._upper.codes.data(), self.count * self.dimensions
        )
        return stored.reshape(self.count, self.dimensions)

    # -- the graph

    def _catch_up_graph(self) -> None:
        """Links as many rows as a graph should have next to this many vectors, and no more."""
        target = min(self.count, 2 * self.count - self._graph_from_rows)
        linked = 0 if self._graph is None else int(self._graph.ntotal)
        while linked < target:
            step = min(SLICE_ROWS, target - linked)
            self._link(_upper(self._numbers(slice(linked, linked + step))))
            linked += step
        if self._graph is not None and linked == self.count:
            self._upper = faiss.downcast_index(self._graph.storage)
            self._merged = True

    def _link(self, upper: Numbers) -> None:
        if self._graph is None:
            self._graph = faiss.IndexHNSWSQ(
                self.dimensions, QUANTIZER, GRAPH_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT
            )
            self._graph.hnsw.efConstruction = GRAPH_BUILD_STEPS
        levels = self._graph.hnsw.levels
        for row, vector in enumerate(upper.astype(np.float32), int(self._graph.ntotal)):
            # FAISS takes a level that is there already; one may be, after an addition that failed.
            if levels.size() == row:
                levels.push_back(1 + _level(row))
            self._graph.add(vector[np.newaxis])

    # -- snapshots

    def numbers_bytes(self, count: int) -> bytes:
        """The first `count` vectors: `_largest` as float32, then int16, row after row."""
        return self._largest.tobytes() + self._numbers(slice(count)).tobytes()

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
        stored = memoryview(numbers)
        if len(stored) < LARGEST_BYTES or (len(stored) - LARGEST_BYTES) % (2 * dimensions):
            raise ValueError(f"{len(stored)} bytes are no vectors of {dimensions}")
        index._largest = np.frombuffer(stored[:LARGEST_BYTES], np.float32)[0]
        rows = np.frombuffer(stored[LARGEST_BYTES:], np.int16).reshape(-1, dimensions)
        index._lower = np.empty(rows.shape, np.int8)
        index._upper.codes.resize(
            rows.size
        )  # at once: grown by slices, it leaves holds of half its size
        index._upper.ntotal = len(rows)
        upper_bytes = index._upper_bytes
        for start in range(0, len(rows), SLICE_ROWS):
            stop = start + SLICE_ROWS
            upper = _upper(rows[start:stop])
            index._lower[start:stop] = rows[start:stop] - upper * 256
            upper_bytes[start:stop] = upper + ZERO
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
        storage = self._upper
        if rows < self.count:
            storage = _storage(self.dimensions)
            storage.add(_upper(self._numbers(slice(rows))).astype(np.float32))
        # FAISS holds the pointer only; the reference kept here holds the vectors.
        graph.storage = self._graph_storage = storage
        self._graph = graph


def _storage(dimensions: int) -> Any:
    return faiss.IndexScalarQuantizer(dimensions, QUANTIZER, faiss.METRIC_INNER_PRODUCT)


def _upper(numbers: Numbers) -> Numbers:
    """The upper byte of each, to the nearest: what is left is within -128..127."""
    upper: Numbers = (numbers + 128) >> 8
    return upper


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
