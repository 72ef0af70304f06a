"""Looking closely at the best of what was found, and at what was written down right beside it.

Everything here is a refinement: a document without vectors as yet, or without those of its pieces, is ordered
by what else there is. Left to others: finding the candidates (`searcher`), what makes a score (`ranking`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from projections.search.candidates import Candidates
from projections.search.late import date_pieces, interaction
from projections.search.questions import Posed
from projections.search.ranking import LENT_REACH, Features, Scores, scores
from projections.text import analysis
from projections.vectors.columns import NO_ROW, Places
from projections.vectors.look import Look

CLOSE_MAX = 40
"""How many of the candidates are looked at, besides what is beside them. Fewer find less, more find as much and take
longer (docs/search.md)."""


class Ranking(NamedTuple):
    """The places of candidates, best first, equals by ref; the score of each in this order, and its late
    interaction, NaN where that is not known."""

    places: Places
    scores: Scores
    late: Scores


def ordered(candidates: Candidates) -> Ranking:
    """The candidates by what is known of them already."""
    every = np.arange(len(candidates))
    late = np.full(len(candidates), np.nan, np.float32)
    return _ranked(candidates, every, late, _features(candidates, every))


def ordered_closely(
    query: str,
    candidates: Candidates,
    look: Look,
    asked: Posed,
    dated: frozenset[str],
) -> Ranking:
    """The candidates and what came in beside them, which they are told. What the pieces of the query count is known,
    where there are any; and which documents are `dated` as the query says, in whatever words."""
    first = ordered(candidates).places
    rows = candidates.row[first]
    around = look.surroundings(
        rows,
        leading=CLOSE_MAX,
        reach=LENT_REACH,
        words=frozenset(analysis.words(analysis.spaced(analysis.normalise(query)))),
    )
    own, rest = first[rows != NO_ROW], first[rows == NO_ROW]
    new = np.arange(len(candidates), len(candidates) + around.new)
    if around.new:
        beside = around.rows[-around.new :]
        candidates.add(look.described(beside), cosine=look.cosines(beside), row=beside)
    every = np.concatenate([own, new, rest])
    late = np.full(len(every), np.nan, np.float32)
    if asked.pieces is not None and asked.counted is not None:
        stored = asked.meaning.embedder.pieces(around.keys)
        close_ones = every[around.close].tolist()
        named = np.zeros(len(stored), np.bool_)
        named[: len(close_ones)] = [candidates.refs[place] in dated for place in close_ones]
        said = np.outer(named, date_pieces(asked.pieces)) if named.any() else None
        answering = interaction(asked.pieces, asked.counted, stored, around.beside_close, said)
        late[around.close] = answering[: len(around.close)]
        _raise_holders(late, candidates, every)
    close = np.zeros(len(every), np.bool_)
    close[around.close] = True
    # Of those that have no vector as yet, the first few would have been looked at.
    leading_of_rest = int((rows[:CLOSE_MAX] == NO_ROW).sum())
    close[len(around.rows) : len(around.rows) + leading_of_rest] = True
    features = _features(
        candidates,
        every,
        late=late,
        close=close,
        beside=around.beside,
        named=around.named,
        asking=around.asking,
    )
    return _ranked(candidates, every, late, features)


def _raise_holders(late: Scores, candidates: Candidates, places: Places) -> None:
    """What has the words of the query and holds it as it was typed has every word of it: word by word, nothing that was
    looked at answers better."""
    holds = (candidates.part[places] > 0) & (candidates.bm25[places] > 0) & ~np.isnan(late)
    if holds.any():
        late[holds] = np.nanmax(late)


def _features(candidates: Candidates, places: Places, **looked_at: Any) -> Features:
    return Features(
        bm25=candidates.bm25[places].astype(np.float32),
        cosine=candidates.cosine[places].astype(np.float32),
        part=candidates.part[places].astype(np.float32),
        **looked_at,
    )


def _ranked(candidates: Candidates, places: Places, late: Scores, features: Features) -> Ranking:
    scored = scores(features)
    order = np.argsort(-scored, kind="stable")
    if (np.diff(scored[order]) == 0).any():
        refs = [candidates.refs[place] for place in places.tolist()]
        order = np.array(sorted(order.tolist(), key=lambda at: (-scored[at], refs[at])), np.int64)
    return Ranking(places[order], scored[order], late[order])
