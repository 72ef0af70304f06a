"""Short codes of vectors, all of them compared at once: which rows are worth comparing as they are.

A code is a product quantiser's of four bits (Jegou, Douze, Schmid: "Product quantization for nearest neighbor
search", 2011), whose centroids are given, not learnt. `index` has turned vectors so that the numbers of each are
spread as a normal distribution, whatever embedder they are of; and what the first of them have in common is taken away:
it tells none from another, and is most of what some embedders return. So a number is kept as the nearest of the levels
that lose least of such a distribution (Max: "Quantizing for minimum distortion", 1960), and four bits are four numbers
of two levels, two of four, or one of sixteen: the more numbers a vector has, the less each of them must tell. FAISS
adds up what each code counts for a question, for 32 rows at a time, out of tables that fit into registers (Andre,
Kermarrec, Le Scouarnec: "Cache locality is not enough", 2015).

Promises: the codes are a function of the sequence of rows, and what is proposed is one of the codes, the question and
the selection. A row that is not selected is never proposed.

Left to others: comparing what is proposed (`index`), and taking turns: `add` alone, the rest shared.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Any

import faiss as faiss_module
import numpy as np
from numpy.typing import NDArray

from projections.vectors.columns import Ids
from projections.vectors.rows import Selection

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

LEVELS: dict[int, tuple[float, ...]] = {
    1: (0.7980,),
    2: (0.4528, 1.510),
    4: (0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733),
}
"""By bits a number: the levels above 0, in deviations (Max, table I); those below are the same."""

ERRORS = {1: 0.3634, 2: 0.1175, 4: 0.00954}
"""By bits a number: the square of how far the nearest level is from it, in the mean, in squared deviations (Max)."""

CODE_BITS = 4

ONE_BIT_FROM, TWO_BITS_FROM = 384, 128
"""From so many numbers on, so many bits tell enough."""

SLICE_ROWS = 4_096
"""So many at a time are turned into codes: what that needs besides is small beside them."""

Steps = NDArray[np.int8]

faiss: Any = faiss_module  # its stubs know neither the keyword arguments nor half of the classes

log = logging.getLogger("memlog.vectors")


class Codes:
    """Codes by row number, 0 and up without a gap. `first` are rows (n, dimensions) that are like those to come."""

    def __init__(self, first: Steps) -> None:
        self.of_first = len(first)
        self._common: Vectors = first.mean(axis=0, dtype=np.float64).astype(np.float32)
        self._direction = self._common / (np.linalg.norm(self._common) or np.float32(1))
        bits = _bits(first.shape[1])
        together = CODE_BITS // bits
        codes = -(-first.shape[1] // together)
        self._missing = codes * together - first.shape[1]
        # FAISS selects rows only in the lists of an inverted file: this one has a single list, that of the vector 0.
        self._lists = faiss.IndexFlatIP(codes * together)
        self._lists.add(np.zeros((1, codes * together), np.float32))
        self._index: Any = faiss.IndexIVFPQFastScan(
            self._lists, codes * together, 1, codes, CODE_BITS, faiss.METRIC_INNER_PRODUCT
        )
        self._index.by_residual = False
        numbers = first - self._common
        deviation = _deviation(numbers)
        self._trusted = _trusted(_deviation(numbers @ self._direction) / deviation, ERRORS[bits])
        centroids = np.tile(deviation * _centroids(bits), (codes, 1, 1))
        faiss.copy_array_to_vector(centroids.ravel(), self._index.pq.centroids)
        self._index.is_trained = True

    @property
    def count(self) -> int:
        return int(self._index.ntotal)

    def add(self, rows: Steps) -> None:
        """Appends rows (n, dimensions)."""
        _by_this_thread()
        for start in range(0, len(rows), SLICE_ROWS):
            self._index.add(self._whole(rows[start : start + SLICE_ROWS] - self._common))

    def proposed(self, asked: Vectors, selection: Selection, count: int) -> Ids:
        """The `count` of the selected rows whose codes have the largest inner product with `asked`, (dimensions,)."""
        _by_this_thread()
        asked = asked - (1 - self._trusted) * (asked @ self._direction) * self._direction
        some = selection.count < selection.total
        chosen = faiss.IDSelectorBitmap(selection.bitmap) if some else None
        searched = faiss.SearchParametersIVF(nprobe=1, sel=chosen)
        _, found = self._index.search(self._whole(asked[np.newaxis]), count, params=searched)
        rows: Ids = found[0]
        return rows[rows >= 0]  # FAISS fills up with -1

    def _whole(self, vectors: Vectors) -> Vectors:
        """Filled up to whole codes."""
        return np.pad(vectors, ((0, 0), (0, self._missing))) if self._missing else vectors

    # -- snapshots

    def to_bytes(self) -> bytes:
        """In FAISS's format."""
        stored: NDArray[np.uint8] = faiss.serialize_index(self._index)
        return stored.tobytes()

    def adopt(self, stored: bytes | memoryview, count: int) -> None:
        """Takes over what `to_bytes` made of `count` rows with the same first ones, if it is that."""
        try:
            read = faiss.deserialize_index(np.frombuffer(stored, dtype=np.uint8))
        except RuntimeError as error:
            log.warning("the codes of the vectors cannot be read and are made anew: %s", error)
            return
        mine = self._index
        if type(read) is type(mine) and (read.ntotal, read.d, read.M) == (count, mine.d, mine.M):
            self._index = read


def _bits(dimensions: int) -> int:
    """For a number of a vector that has so many."""
    if dimensions >= ONE_BIT_FROM:
        return 1
    return 2 if dimensions >= TWO_BITS_FROM else 4


def _deviation(numbers: Vectors) -> np.float32:
    """From 0, of all together; 1 where they are all 0."""
    deviation = np.sqrt(np.square(numbers, dtype=np.float64).mean())
    return np.float32(deviation or 1)


def _trusted(deviation: np.float32, error: float) -> float:
    """How much of a question counts that has the direction of what is taken away, 0..0.6, where rows have `deviation`
    along it and 1 in the mean.

    Questions have much of that direction, and so count the errors of codes along it many times. What codes tell of
    numbers of variance v is worth w = v / ((1 - error) v + error) of itself (the best linear estimate from what such
    levels keep). But rows of unit length that have more of this direction have less of all others, of which short codes
    do not tell how much: w / (1 + w) is worth more than w, and than none (docs/decisions/0016).
    """
    variance = float(deviation) ** 2
    return variance / ((2 - error) * variance + error)


def _centroids(bits: int) -> Vectors:
    """float32 (2 ** CODE_BITS, numbers of a code), in deviations."""
    above = LEVELS[bits]
    levels = [*(-level for level in reversed(above)), *above]
    return np.array([*itertools.product(levels, repeat=CODE_BITS // bits)], np.float32)


def _by_this_thread() -> None:
    """FAISS would take all others for one question too; this is said of each thread that asks."""
    faiss.omp_set_num_threads(1)
