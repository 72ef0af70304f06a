"""Late interaction: how well a text answers a question, word by word.

Each word of the question looks for the word piece of the text that is nearest to it in its own context
(the sum of maximal cosines of ColBERT: Khattab, Zaharia 2020), and counts by how rare it is among the
texts of the project, as in BM25. Cosines below `COSINE_FLOOR` are of words that have nothing to do with
each other, and count nothing. What one text of a conversation has not, the one right before or after it
may have: a question is often named in one turn and answered in the next. Likewise a passage of a long text and
those beside it. So the best of the neighbours counts too, a little less. And what a text is known to have by other
means, as a date that it writes in another way, or a word with a slip, it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from projections.embedding.pieces import Asked, unpack
from projections.search.ranking import Scores
from projections.text import analysis
from projections.text.dates import dates
from projections.vectors.columns import Places

COSINE_FLOOR = 0.4
BESIDE_SHARE = 0.9


def interaction(
    asked: Asked,
    weight: Scores,
    stored: Sequence[bytes | None],
    beside: Iterable[Places],
    said: NDArray[np.bool_] | None = None,
) -> Scores:
    """The score 0..1 of each text, float32 (texts,); NaN for those whose pieces are not `stored`.

    `beside` holds arrays (texts,) of the place of a neighbour among these texts, -1 where there is none; `said`
    (texts, pieces) says which pieces of the question a text is known to have, in whatever words.
    """
    scores = np.full(len(stored), np.nan, np.float32)
    places = np.array([place for place, text in enumerate(stored) if text], np.int64)
    counting = weight > 0
    if len(places) == 0 or not counting.any():
        return scores
    pieces = unpack([text for text in stored if text])
    cosines = pieces.cosines(asked.vectors[counting])
    # One more row stands for the neighbour that is not there, and for one without pieces.
    best = np.zeros((len(stored) + 1, cosines.shape[1]), np.float32)
    best[places] = np.maximum.reduceat(cosines, pieces.starts, axis=0)
    best = np.maximum(best - COSINE_FLOOR, 0.0) / (1.0 - COSINE_FLOOR)
    if said is not None:
        best[:-1][said[:, counting]] = 1.0
    with_beside = best[:-1]
    for neighbours in beside:
        with_beside = np.maximum(with_beside, BESIDE_SHARE * best[neighbours])
    counted = weight[counting] / weight[counting].sum()
    # Not by BLAS, whose kernels for so few columns were once heard to warn of values that are none of these.
    scores[places] = np.einsum("tp,p->t", with_beside, counted)[places]
    return scores


class Known(NamedTuple):
    """Pieces of the question, (pieces,), and the documents that are known to have them, in whatever words."""

    pieces: NDArray[np.bool_]
    refs: frozenset[str]

    def among(self, refs: Sequence[str]) -> NDArray[np.bool_]:
        """Which of these documents have which pieces, (documents, pieces)."""
        having = np.array([ref in self.refs for ref in refs], np.bool_)
        return np.logical_and.outer(having, self.pieces)


def words_in_pieces(asked: Asked) -> dict[str, NDArray[np.bool_]]:
    """The words of a question that the model reads in several pieces, as it does most slips, and which those are."""
    numbers, said = np.array(asked.numbers), dict(zip(asked.numbers, asked.words, strict=True))
    pieces = Counter(asked.numbers)
    return {said[number]: numbers == number for number in said if pieces[number] > 1}


def date_pieces(asked: Asked) -> NDArray[np.bool_]:
    """Which pieces of the question name a date, (pieces,)."""
    plain = map(analysis.spaced, map(analysis.normalise, asked.words))
    spoken = {
        number: word for number, word in zip(asked.numbers, plain, strict=True) if word.isalnum()
    }
    numbers = list(spoken)
    places = [place for date in dates([*spoken.values()]) for place in date.places]
    return np.isin(asked.numbers, [numbers[place] for place in places])
