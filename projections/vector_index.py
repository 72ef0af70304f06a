"""Vectors in memory, searched by inner product with FAISS: exactly while few, by a graph when many.

Up to `GRAPH_FROM_ROWS` rows every selected row is compared (flat). Beyond, an HNSW graph proposes the
candidates, unless so few rows are selected that comparing them all is cheaper; then the answer is exact
again. That matters for filters: a graph that must step over unselected rows finds less the fewer are
selected, so it is given proportionally more steps, and up to the point where those cost as much as the
truth.

Promises: the index is a function of the sequence of rows, not of the batches in which they came or of
how often it was saved and loaded. FAISS draws a node's level from a generator whose state it does not
save, and reorders the nodes of one `add`; so levels are computed from the row's number and rows are
linked one at a time, which takes no longer. A cosine is computed in one way for all callers, from the
stored vector alone, and so is the same whichever way a row was found.

Vectors are rounded through float16 as they come in; that makes float16 in a snapshot lossless. FAISS
starts threads of its own only for many queries or additions in one call, which never happen here
(`omp_set_num_threads` would hold for the calling thread only).

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

GRAPH_FROM_ROWS = 30_000
"""Where the graph takes over: where it is as quick as comparing all for the 200 hits that a search asks for.
Measured side by side with 384 dimensions on one busy core, in ms of its time, all compared / graph:
10,000 rows 1.1 / 1.5; 20,000 2.5 / 3.3; 30,000 3.3 / 3.0; 50,000 4.6 / 3.1; 100,000 8.1 / 3.3. For 10 hits the
graph takes 0.8 and wins from some 8,000 rows, by less than embedding the query costs; but linking a row
costs 0.25 to 0.6, and below this number answers are exact."""

GRAPH_NEIGHBOURS = 32
GRAPH_BUILD_STEPS = 80
GRAPH_SEARCH_STEPS_MIN = 64
GRAPH_LEVEL_MAX = 5
ROWS_COMPARED_PER_STEP = 32
"""What one step in the graph costs, in rows compared exactly: measured between 22 and 64."""

TIES = 16
"""Candidates beyond the limit, among which the last bits of FAISS's distances may not decide."""

SLICE_ROWS = 8_192

Vectors = NDArray[np.float32]

faiss: Any = faiss_module  # its stubs know neither the keyword arguments nor half of the classes

log = logging.getLogger("memlog.vectors")


def accepted(vectors: Any, count: int, dimensions: int) -> Vectors:
    """What an embedder returned, in the shape and precision of the index; or EmbeddingError."""
    given = np.asarray(vectors, dtype=np.float32)
    if given.shape != (count, dimensions):
        raise EmbeddingError(
            f"The embedder returned vectors of shape {given.shape} for {count} texts; "
            f"{(count, dimensions)} was expected",
            suggestion="Check that the configured model has the number of dimensions it claims.",
        )
    rounded = np.ascontiguousarray(given.astype(np.float16).astype(np.float32))
    if not np.isfinite(rounded).all():
        raise EmbeddingError("The embedder returned a vector with numbers that are not finite")
    return rounded


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
        self._flat: Any = faiss.IndexFlatIP(dimensions)
        self._graph: Any = None
        self._storage: Any = None
        self._merged = False

    @property
    def count(self) -> int:
        return int(self._flat.ntotal)

    def add(self, vectors: Vectors) -> None:
        """Appends rows; `vectors` are as `accepted` returns them.

        Between half of `graph_from_rows` and the whole, each row that comes links two, so that the
        graph is complete when it is first needed and no single write pays for all of it.
        """
        if self._merged:
            self._link(vectors)
            return
        self._flat.add(vectors)
        self._catch_up_graph()

    def nearest(self, query: Vectors, selection: Selection, limit: int) -> tuple[Ids, Vectors]:
        """At least the `limit` nearest of the selected rows where there are so many, and their cosines.

        In no order, and some more than asked for: the caller breaks ties.
        """
        wanted = min(limit + TIES, len(selection.rows))
        if wanted <= 0:
            return selection.rows[:0], np.empty(0, dtype=np.float32)
        found = self._proposed(query, selection, wanted)
        if found is None or len(found) < wanted:
            found = self._compared(query, selection, wanted)
        return found, self.cosines(query, found)

    def cosines(self, query: Vectors, rows: Ids) -> Vectors:
        """The cosine of each of `rows` to the query: inner products of unit vectors, within -1..1.

        Each is the sum of one row's products, so it does not depend on which rows are asked with it,
        as a matrix product's last bits would.
        """
        if len(rows) == 0:
            return np.empty(0, dtype=np.float32)
        vectors: Vectors = self._flat.reconstruct_batch(rows)
        sums: Vectors = (vectors * query).sum(axis=1)
        return np.clip(sums, -1.0, 1.0)

    # -- the two ways of finding

    def _compared(self, query: Vectors, selection: Selection, wanted: int) -> Ids:
        chosen = faiss.SearchParameters(sel=faiss.IDSelectorArray(selection.rows))
        return _ids(self._flat.search(query[np.newaxis], wanted, params=chosen))

    def _proposed(self, query: Vectors, selection: Selection, wanted: int) -> Ids | None:
        """What the graph finds; None where it is not complete or comparing is cheaper."""
        if selection.total < self._graph_from_rows or not self._merged:
            return None
        share = len(selection.rows) / selection.total
        steps = math.ceil(max(GRAPH_SEARCH_STEPS_MIN, 2 * wanted) / share)
        if len(selection.rows) <= steps * ROWS_COMPARED_PER_STEP:
            return None
        chosen = faiss.SearchParametersHNSW(
            efSearch=steps, sel=faiss.IDSelectorBitmap(selection.bitmap)
        )
        return _ids(self._graph.search(query[np.newaxis], wanted, params=chosen))

    # -- the graph

    def _catch_up_graph(self) -> None:
        """Links as many rows as a graph should have next to this many vectors, and no more."""
        target = min(self.count, 2 * self.count - self._graph_from_rows)
        linked = 0 if self._graph is None else int(self._graph.ntotal)
        while linked < target:
            step = min(SLICE_ROWS, target - linked)
            self._link(self._flat.reconstruct_n(linked, step))
            linked += step
        if self._graph is not None and linked == self.count:
            self._flat = faiss.downcast_index(self._graph.storage)
            self._merged = True

    def _link(self, vectors: Vectors) -> None:
        if self._graph is None:
            self._graph = faiss.IndexHNSWFlat(
                self.dimensions, GRAPH_NEIGHBOURS, faiss.METRIC_INNER_PRODUCT
            )
            self._graph.hnsw.efConstruction = GRAPH_BUILD_STEPS
        levels = self._graph.hnsw.levels
        for row, vector in enumerate(vectors, int(self._graph.ntotal)):
            # FAISS takes a level that is there already; one may be, after an addition that failed.
            if levels.size() == row:
                levels.push_back(1 + _level(row))
            self._graph.add(vector[np.newaxis])

    # -- snapshots

    def halves(self, count: int) -> bytes:
        """The first `count` vectors as float16, row after row."""
        halves = np.empty((count, self.dimensions), dtype=np.float16)
        for start in range(0, count, SLICE_ROWS):
            stop = min(count, start + SLICE_ROWS)
            halves[start:stop] = self._flat.reconstruct_n(start, stop - start)
        return halves.tobytes()

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
        halves: bytes | memoryview,
        graph: bytes | memoryview,
        graph_from_rows: int | None = None,
    ) -> VectorIndex:
        """The index of `halves` and `graph_bytes`. Raises ValueError where they are no vectors.

        A graph that this FAISS does not read, or of other rows than it should have now, is built anew.
        """
        index = cls(dimensions, graph_from_rows)
        vectors = np.frombuffer(halves, dtype=np.float16)
        if len(vectors) % dimensions:
            raise ValueError(f"{len(vectors)} numbers are no vectors of {dimensions}")
        # In one piece: FAISS then takes as much memory as it needs, where slices make it grow by copying.
        index._flat.add(vectors.reshape(-1, dimensions).astype(np.float32))
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
        storage = self._flat
        if rows < self.count:
            storage = faiss.IndexFlatIP(self.dimensions)
            storage.add(self._flat.reconstruct_n(0, rows))
        # FAISS holds the pointer only; the reference kept here holds the vectors.
        graph.storage = self._storage = storage
        self._graph = graph


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
