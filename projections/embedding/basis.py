"""`python -m projections.embedding.basis`: finds the directions onto which `pieces` projects, and writes them.

They are the principal directions of what the model makes of its own vocabulary: rows of its common words,
drawn at random, are embedded, and the vectors of their pieces decomposed. So no text of anybody's is in
them, and none of what they are measured with; those found in conversations did no better.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from projections.embedding.embedder import EmbedderSpec
from projections.embedding.minilm import open_minilm
from projections.embedding.pieces import DIMENSIONS, DIRECTIONS

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

WORDS, WORD_CHARACTERS_MIN = 8_000, 3
TEXTS, TEXT_WORDS = 1_500, 12
SEED = 1


def principal(states: Vectors) -> Vectors:
    """The `DIMENSIONS` orthonormal directions, as rows, that keep most of these vectors' squared lengths.

    The sign of each is free; here its largest number is positive.
    """
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    found = np.linalg.eigh((unit.T @ unit).astype(np.float64))[1][:, ::-1][:, :DIMENSIONS].T
    largest = np.abs(found).argmax(axis=1)[:, np.newaxis]
    signed: Vectors = (found * np.sign(np.take_along_axis(found, largest, axis=1))).astype(
        np.float32
    )
    return signed


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = open_minilm(EmbedderSpec(backend="minilm", cache_dir=Path(folder)))
        common = [
            word
            for word in model.vocabulary()
            if word.isascii() and word.isalpha() and len(word) >= WORD_CHARACTERS_MIN
        ][:WORDS]
        drawn = np.random.default_rng(SEED).integers(0, len(common), (TEXTS, TEXT_WORDS))
        texts = [" ".join(common[each] for each in row) for row in drawn]
        states = np.concatenate(list(model.states(texts)))
    DIRECTIONS.write_bytes(principal(states).astype("<f2").tobytes())


if __name__ == "__main__":
    main()
