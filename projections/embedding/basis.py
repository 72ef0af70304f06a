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

from projections.embedding.minilm import MiniLM
from projections.embedding.pieces import DIMENSIONS, DIRECTIONS
from projections.embedding.weights import Weights, find_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def common_words(model: MiniLM) -> list[str]:
    """Of the model's vocabulary, the commonest first."""
    return [
        word
        for word in model.vocabulary()
        if word.isascii() and word.isalpha() and len(word) >= WORD_CHARACTERS_MIN
    ][:WORDS]


def drawn(words: Sequence[str], texts: int, words_each: int) -> list[str]:
    """Rows of words drawn at random, the same ones every time."""
    rows = np.random.default_rng(SEED).integers(0, len(words), (texts, words_each))
    return [" ".join(words[each] for each in row) for row in rows]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        model = MiniLM(Weights(find_folder(None, Path(folder))), Path(folder), float32=True)
        texts = drawn(common_words(model), TEXTS, TEXT_WORDS)
        states = np.concatenate(list(model.states(texts)))
    DIRECTIONS.write_bytes(principal(states).astype("<f2").tobytes())


if __name__ == "__main__":
    main()
