"""The vectors of a text's word pieces, small enough to keep beside the vector of the whole.

A piece's vector is the model's last hidden state, which the pass that makes the pooled vector has made
anyhow. It is projected onto `DIMENSIONS` directions, scaled to length one and rounded to a byte a number:
98 bytes a piece instead of 1,536. On LoCoMo that costs nothing that can be measured (docs/search.md).

The directions are in a file because they are part of the stored format: another basis would make the
stored bytes lie. `basis` tells how they were found.

Format of a text's pieces: float16[n] scales, then int8[n][DIMENSIONS], little-endian; a piece is its row
times its scale. [CLS] and [SEP] are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.embedding.embedder import Vectors

DIMENSIONS = 96
PIECE_BYTES = DIMENSIONS + 2
DIRECTIONS = Path(__file__).with_name("pieces.float16")
INT8_MAX = 127


class Asked(msgspec.Struct, frozen=True):
    """The pieces of a question: float32 (pieces, DIMENSIONS) of unit length, and of each the word it is
    part of, as it stands in the question."""

    vectors: Vectors
    words: tuple[str, ...]
    numbers: tuple[int, ...]
    """Of the word of each piece, by which a word that is said twice is two."""


class Packed(msgspec.Struct, frozen=True):
    """The pieces of several texts after one another, int8 (pieces, DIMENSIONS), their scales (pieces,), and
    where each text begins."""

    numbers: NDArray[np.int8]
    scales: Vectors
    starts: NDArray[np.int64]


def reduced(states: Vectors) -> Vectors:
    """Hidden states (pieces, width) in `DIMENSIONS` dimensions, of unit length."""
    import numpy as np

    projected = states @ directions()
    lengths = np.linalg.norm(projected, axis=1, keepdims=True)
    unit: Vectors = projected / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit


def pack(texts: Sequence[Vectors]) -> list[bytes]:
    """The hidden states (pieces, width) of each text as they are stored."""
    import numpy as np

    unit = reduced(np.concatenate(texts))
    scales = (np.abs(unit).max(axis=1, keepdims=True) / INT8_MAX).astype("<f2")
    smallest = np.finfo(np.float16).tiny
    numbers = np.rint(unit / np.maximum(scales.astype(np.float32), smallest))
    rounded = np.clip(numbers, -INT8_MAX, INT8_MAX).astype(np.int8)
    stops = np.cumsum([len(text) for text in texts]).tolist()
    return [
        scales[start:stop].tobytes() + rounded[start:stop].tobytes()
        for start, stop in zip([0, *stops], stops, strict=False)
    ]


def unpack(stored: Sequence[bytes]) -> Packed:
    """The pieces of texts that have at least one each."""
    import numpy as np

    counts = [len(text) // PIECE_BYTES for text in stored]
    scales = b"".join([text[: 2 * count] for text, count in zip(stored, counts, strict=True)])
    numbers = b"".join([text[2 * count :] for text, count in zip(stored, counts, strict=True)])
    rows = np.frombuffer(numbers, np.int8).reshape(-1, DIMENSIONS)
    starts = np.zeros(len(counts), np.int64)
    np.cumsum(counts[:-1], out=starts[1:])
    return Packed(rows, np.frombuffer(scales, "<f2").astype(np.float32), starts)


@cache
def directions() -> Vectors:
    """float32 (width, DIMENSIONS), orthonormal to within the rounding of float16."""
    import numpy as np

    stored = np.frombuffer(DIRECTIONS.read_bytes(), "<f2").astype(np.float32)
    return np.ascontiguousarray(stored.reshape(DIMENSIONS, -1).T)
