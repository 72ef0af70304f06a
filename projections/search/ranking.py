"""How what was found is ordered: everything that speaks for a document as one number.

A document scores the convex combination of what speaks for it (Bruch, Gai, Ingber: "An Analysis of Fusion
Functions for Hybrid Retrieval", 2023): its words, its meaning, the question as a part of it, and, for those
that were looked at closely, late interaction (`late`); each brought to 0..1 among the candidates of this
question. To that comes a bonus where its entity is named in the question; as far as it asks rather than tells, a
deduction; and a share of the score of the best that was written down just before or after it.

The numbers were tuned on LoCoMo, leaving out one conversation at a time; docs/search.md has the table
of what each is worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from projections.vectors.columns import Places

FIRST_WEIGHTS = {"words": 0.40, "meaning": 0.40}
"""While nothing was looked at closely."""

CLOSE_WEIGHTS = {"words": 0.20, "meaning": 0.10, "late": 0.70}
PART_WEIGHT = 0.40
LENT_SHARE, LENT_REACH = 0.20, 2
"""Of its score, to what was written down so many places before or after it at most. Of several, the best lends: the sum
of all made much of what stands amid much that is a little alike."""

RANGE_MIN = np.float32(0.2)
"""Candidates whose cosines, or late interactions, lie closer together than this differ by no more than what
they do: spread over 0..1 they would turn noise into a verdict."""

NAMED_BONUS = 0.25
ASKING_DEDUCTION = 0.10
WORDS_ALONE_WEIGHT = sum(FIRST_WEIGHTS.values())
"""While nothing is known of meaning: it is taken to be as near as the words are."""

SCORE_MAX = (1 + PART_WEIGHT + NAMED_BONUS) * (1 + LENT_SHARE)

Scores = NDArray[np.float32]


class Features(msgspec.Struct, frozen=True):
    """What speaks for each of n candidates, arrays (n,); NaN where it is not known.

    `late` is None where nothing was looked at; `close` says what was. The last three are known for the first
    so many of the candidates only.
    """

    bm25: Scores
    cosine: Scores
    part: Scores
    late: Scores | None = None
    close: NDArray[np.bool_] | None = None
    beside: Mapping[int, Places] = {}
    """By distance, the place of the neighbour among the candidates, -1 where there is none."""
    named: Scores | None = None
    asking: Scores | None = None


def scores(features: Features) -> Scores:
    """The score of each candidate, at most 1."""
    found = _combined(features)
    if features.named is not None:
        found[: len(features.named)] += NAMED_BONUS * features.named
    if features.asking is not None:
        found[: len(features.asking)] -= ASKING_DEDUCTION * features.asking
    if features.beside:
        lending = np.append(found, np.float32(0))  # what stands at -1 lends nothing
        best = lending[np.stack([*features.beside.values()])].max(axis=0)
        found[: len(best)] += LENT_SHARE * best.clip(0)
    scaled: Scores = found / np.float32(SCORE_MAX)
    return scaled


def shown(ordered: Scores, cosines: NDArray[np.floating[Any]]) -> Scores:
    """Scores as answers show them, best first: never rising, and each at least what the cosine weighs by itself. Else
    the last hit, or an only one, would show 0, as if it matched nothing."""
    least = CLOSE_WEIGHTS["meaning"] / SCORE_MAX * cosines
    falling: Scores = np.minimum.accumulate(np.maximum(ordered, least).clip(0))
    return falling


def _combined(features: Features) -> Scores:
    words = features.bm25 / np.float32(features.bm25.max(initial=0.0) or 1.0)
    meaning = _spread(features.cosine, words)
    part = np.float32(PART_WEIGHT) * features.part
    if features.late is None or features.close is None or np.isnan(features.late).all():
        weight = FIRST_WEIGHTS
        combined: Scores = weight["words"] * words + weight["meaning"] * meaning + part
        return combined
    weight = CLOSE_WEIGHTS
    combined = weight["words"] * words + weight["meaning"] * meaning
    # A text whose pieces are missing is taken to answer as well by them as by all else.
    otherwise = combined / (weight["words"] + weight["meaning"])
    late = np.where(features.close, _spread(features.late, otherwise), 0.0)
    combined = combined + weight["late"] * late.astype(np.float32) + part
    return combined


def _spread(values: Scores, otherwise: Scores) -> Scores:
    """Brought to 0..1 where they lie `RANGE_MIN` or more apart, else to what the best is by itself, and the others as
    far below it as they are; `otherwise` where they are not known."""
    unknown = np.isnan(values)
    some = bool(unknown.any())
    known = values[~unknown] if some else values
    if len(known) == 0:
        return otherwise
    low, high = known.min(), known.max()
    scale = max(high - low, RANGE_MIN)
    best = max((high - low) / scale, high)
    spread: Scores = best - (high - values) / scale
    return np.where(unknown, otherwise, spread) if some else spread
