"""What each word of a question counts, and the vector that makes of the question.

A word counts the more the rarer it is among the texts of the project, as in BM25: for what is compared word by word
(`late`), and for what the question means as a whole. The model's own vector is the plain mean of all pieces, [CLS] and
[SEP] among them, and most words of a question say nothing of what is asked for. Texts keep the plain mean: what is
rare changes with every text that comes, and a vector is stored once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from projections.embedding.pieces import Asked

OWN_SHARE = 0.3
"""Of the model's own vector: without it less is found that the question has no rare word for."""

Numbers = NDArray[np.float32]


def weights(asked: Asked, rarity: Callable[[str], float]) -> Numbers:
    """What each piece of the question counts: the rarity of its word, shared among the word's pieces.

    Words of no rarity (stop words, punctuation) count nothing, unless there are no others.
    """
    pieces = Counter(asked.numbers)
    shares = [
        rarity(word) / pieces[number]
        for word, number in zip(asked.words, asked.numbers, strict=True)
    ]
    found = np.array(shares, np.float32)
    return found if found.any() else np.ones(len(found), np.float32)


def pointed(own: Numbers, asked: Asked, counted: Numbers) -> Numbers | None:
    """The vector of a question, float32 (width,), of unit length: the mean of its pieces, each as much as it counts,
    and a share of its `own`, from the model. None where it has no pieces."""
    if len(counted) == 0:
        return None
    weighed = _unit(counted @ asked.states.astype(np.float32))
    return _unit(OWN_SHARE * own + (1 - OWN_SHARE) * weighed)


def _unit(vector: Numbers) -> Numbers:
    scaled: Numbers = vector / np.linalg.norm(vector)
    return scaled
