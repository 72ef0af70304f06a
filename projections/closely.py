"""Looking closely at the best of what was found, and at what was written down right beside it.

Everything here is a refinement: a document without vectors as yet, or without those of its pieces, is ordered
by what else there is. Left to others: finding the candidates (`search`), what makes a score (`ranking`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from projections import analysis
from projections.candidates import Candidate
from projections.documents import Kind
from projections.embedding import CachedEmbedder
from projections.late import interaction, weights
from projections.ranking import BESIDE_SHARES, Features, scores
from projections.vector_look import Look, Surroundings

CLOSE_MAX = 75
"""How many of the candidates are looked at, besides what is beside them. Fewer find less (docs/search.md)."""


def ordered(candidates: Mapping[str, Candidate]) -> list[Candidate]:
    """The candidates by what is known of them already, best first, equals by ref."""
    found = list(candidates.values())
    return _ranked(found, _features(found))


def ordered_closely(
    query: str,
    candidates: Mapping[str, Candidate],
    embedder: CachedEmbedder,
    look: Look,
    rarity: Callable[[str], float],
    *,
    kinds: Collection[Kind] | None,
    labels: Collection[str],
) -> list[Candidate]:
    """The candidates and what came in beside them, best first. `rarity` is a word's, 0 if it says nothing."""
    first = ordered(candidates)
    around = look.surroundings(
        np.array([each.row for each in first], np.int64),
        leading=CLOSE_MAX,
        reach=max(BESIDE_SHARES),
        words=frozenset(analysis.words(analysis.spaced(analysis.normalise(query)))),
        kinds=kinds,
        labels=labels,
    )
    known = [each for each in first if each.row >= 0]
    if around.new:
        rows = around.rows[-around.new :]
        described = zip(look.described(rows), look.cosines(rows).tolist(), strict=True)
        known += [
            Candidate(kind, ref, entity, cosine=cosine) for (ref, kind, entity), cosine in described
        ]
    rest = [each for each in first if each.row < 0]
    _, asked = embedder.query(query)
    if asked is not None:
        stored = embedder.pieces(around.keys)
        found = interaction(asked, weights(asked, rarity), stored, around.beside_close)
        for place, score in zip(around.close.tolist(), found.tolist(), strict=True):
            known[place].late = score
    every = known + rest
    leading_of_rest = sum(each.row < 0 for each in first[:CLOSE_MAX])
    return _ranked(every, _features(every, around, leading_of_rest))


def _features(
    found: Sequence[Candidate], around: Surroundings | None = None, leading_of_rest: int = 0
) -> Features:
    """The candidates begin with those that `around` is about, in its order. Of the rest, which have no vector
    as yet, the first few would have been looked at.
    """
    known = Features(
        bm25=np.array([each.bm25 for each in found], np.float32),
        cosine=np.array([each.cosine for each in found], np.float32),
        part=np.array([each.part for each in found], np.float32),
    )
    if around is None:
        return known
    close = np.zeros(len(found), np.bool_)
    close[around.close] = True
    close[len(around.rows) : len(around.rows) + leading_of_rest] = True
    return Features(
        known.bm25,
        known.cosine,
        known.part,
        late=np.array([each.late for each in found], np.float32),
        close=close,
        beside=around.beside,
        named=around.named,
        asking=around.asking,
    )


def _ranked(found: list[Candidate], features: Features) -> list[Candidate]:
    scored = scores(features).tolist()
    for each, score in zip(found, scored, strict=True):
        each.score = score
    order = sorted([(-each.score, each.ref, place) for place, each in enumerate(found)])
    return [found[place] for _, _, place in order]
