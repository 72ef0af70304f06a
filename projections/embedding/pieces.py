"""The vectors of a text's word pieces, small enough to keep beside the vector of the whole.

A piece's vector is the model's last hidden state, which the pass that makes the pooled vector has made
anyhow. Projected onto `DIMENSIONS` directions and rounded to four bits a number it is 50 bytes instead of
1,536. On LoCoMo that costs nothing that can be measured (docs/search.md).

The directions are in a file because they are part of the stored format: another basis would make the
stored bytes lie. `basis` tells how they were found.

Format of a text's pieces: float16[n] scales, then uint8[n][DIMENSIONS / 2], little-endian: the lower four
bits of byte i are number i, the upper ones number i + DIMENSIONS / 2, each plus `ZERO`. A piece is its
numbers times its scale, a vector of unit length. [CLS] and [SEP] are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from projections.embedding.shipped import shipped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.embedding.embedder import Vectors

DIMENSIONS = 96
PIECE_BYTES = DIMENSIONS // 2 + 2
DIRECTIONS = Path(__file__).with_name("pieces.float16")
ZERO, LEVEL_MAX = 8, 7
SMALLEST = 1e-12


class Asked(msgspec.Struct, frozen=True):
    """The pieces of a question: float32 (pieces, DIMENSIONS) of unit length, and of each the word it is
    part of, as it stands in the question."""

    vectors: Vectors
    words: tuple[str, ...]
    numbers: tuple[int, ...]
    """Of the word of each piece, by which a word that is said twice is two."""
    states: NDArray[np.float16]
    """The last hidden states of the pieces, (pieces, width)."""


class Packed(msgspec.Struct, frozen=True):
    """The pieces of several texts after one another: both halves of their numbers as they are stored, float32
    (pieces, DIMENSIONS / 2), their scales (pieces,), and where each text begins."""

    lower: Vectors
    upper: Vectors
    scales: Vectors
    starts: NDArray[np.int64]

    def cosines(self, asked: Vectors) -> Vectors:
        """Of each piece to each of the vectors `asked`, float32 (pieces, asked)."""
        import numpy as np

        half = DIMENSIONS // 2
        cosines: Vectors = self.lower @ asked[:, :half].T
        cosines += self.upper @ asked[:, half:].T
        cosines -= ZERO * asked.sum(axis=1)
        cosines *= self.scales[:, np.newaxis]
        return cosines


def unit(states: Vectors) -> Vectors:
    """Vectors (pieces, DIMENSIONS), each scaled to length one."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", states, states))[:, np.newaxis]
    scaled: Vectors = states / np.maximum(lengths, SMALLEST)
    return scaled


def pack(texts: Sequence[Vectors]) -> list[bytes]:
    """The vectors (pieces, DIMENSIONS) of each text, of any length, as they are stored."""
    import numpy as np

    if not texts:
        return []
    states = np.concatenate(texts)
    largest = np.abs(states).max(axis=1, keepdims=True)
    numbers = np.rint(states * (LEVEL_MAX / np.maximum(largest, SMALLEST)))
    lengths = np.sqrt(np.einsum("ij,ij->i", numbers, numbers))
    scales = (1 / np.maximum(lengths, 1)).astype("<f2")
    lower, upper = np.split((numbers + ZERO).astype(np.uint8), 2, axis=1)
    halves = lower | upper << 4
    stops = np.cumsum([len(text) for text in texts]).tolist()
    return [
        scales[start:stop].tobytes() + halves[start:stop].tobytes()
        for start, stop in zip([0, *stops], stops, strict=False)
    ]


def unpack(stored: Sequence[bytes]) -> Packed:
    """The pieces of texts that have at least one each."""
    import numpy as np

    counts = [len(text) // PIECE_BYTES for text in stored]
    scales = b"".join([text[: 2 * count] for text, count in zip(stored, counts, strict=True)])
    numbers = b"".join([text[2 * count :] for text, count in zip(stored, counts, strict=True)])
    halves = np.frombuffer(numbers, np.uint8).reshape(-1, DIMENSIONS // 2)
    lower, upper = (halves & 15).astype(np.float32), (halves >> 4).astype(np.float32)
    starts = np.zeros(len(counts), np.int64)
    np.cumsum(counts[:-1], out=starts[1:])
    return Packed(lower, upper, np.frombuffer(scales, "<f2").astype(np.float32), starts)


@cache
def directions() -> Vectors:
    """float32 (width, DIMENSIONS), orthonormal to within the rounding of float16."""
    import numpy as np

    return np.ascontiguousarray(shipped(DIRECTIONS).reshape(DIMENSIONS, -1).T)
