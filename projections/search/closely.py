"""Looking closely at the best of what was found, and at what was written down right beside it.

Everything here is a refinement: a document without vectors as yet, or without those of its pieces, is ordered
by what else there is. Left to others: finding the candidates (`searcher`), what makes a score (`ranking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projections.embedding.pieces import Asked
from projections.search.candidates import Candidates
from projections.search.late import Known, interaction
from projections.search.questions import Posed
from projections.search.ranking import LENT_REACH, Features, Scores, scores
from projections.text import analysis
from projections.vectors.columns import NO_ROW, Places
from projections.vectors.look import Look, Surroundings

CLOSE_MAX = 40
"""How many of the candidates are looked at, besides what is beside them. Fewer find less, more find as much and take
longer (docs/search.md)."""

WITHIN_LETTERS_MIN = 4
"""From how many letters on a word is taken to be told by a longer one that has it: three stand in many that have
nothing to do with it, as `orm` in `platform`."""

FORM_SHARE = 0.9
"""How much of such a word those are taken to have that have another form of it, beside those that have it."""


class Ranking(NamedTuple):
    """The places of candidates, best first, equals by ref; the score of each in this order, and its late
    interaction, NaN where that is not known."""

    places: Places
    scores: Scores
    late: Scores


def ordered(candidates: Candidates) -> Ranking:
    """The candidates by what is known of them already. Those that hold the query whole count as the best by its
    words."""
    candidates.bm25[_whole(candidates)] = candidates.bm25.max(initial=0.0) or 1.0
    every = np.arange(len(candidates))
    late = np.full(len(candidates), np.nan, np.float32)
    return _ranked(candidates, every, late, _features(candidates, every))


def ordered_closely(
    query: str,
    candidates: Candidates,
    look: Look,
    asked: Posed,
    known: Sequence[Known],
) -> Ranking:
    """The candidates and what came in beside them, which is added to them. What the pieces of the query count is known,
    where there are any; and of some which documents have them, in whatever words."""
    having = _having(candidates, asked.pieces)
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
    late[around.close] = _late(candidates, every[around.close], around, asked, known)
    _raise(late, np.append(having, np.zeros(around.new, np.float32))[every])
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


def _late(
    candidates: Candidates,
    close: Places,
    around: Surroundings,
    asked: Posed,
    known: Sequence[Known],
) -> Scores:
    """The late interaction of the candidates that are looked at, at these places; NaN where it is not known."""
    if asked.pieces is None or asked.counted is None:
        return np.full(len(close), np.nan, np.float32)
    stored = asked.meaning.embedder.pieces(around.keys)
    said = None
    if known:
        refs = [candidates.refs[place] for place in close.tolist()]
        said = np.zeros((len(stored), len(asked.counted)), np.bool_)
        said[: len(refs)] = np.logical_or.reduce([each.among(refs) for each in known])
    found = interaction(asked.pieces, asked.counted, stored, around.beside_close, said)
    return found[: len(close)]


def _whole(candidates: Candidates) -> NDArray[np.bool_]:
    """Those that hold the query as it was typed, signs and all: that have words of it or, where none of them does, all.
    Of a word within longer ones that tells nothing."""
    holding = candidates.part > 0
    worded = holding & (candidates.bm25 > 0)
    return worded if worded.any() else holding


def _having(candidates: Candidates, asked: Asked | None) -> Scores:
    """How much of the query candidates have at least, 0..1: all of it those that have words of it and hold it as it was
    typed.

    Of one word that the model reads in pieces, as one of another language or a slip: all that hold it, be it within a
    longer word, and most of it those that have another form of it, or a word near to it; where none holds it these have
    all. Pieces say little of what a word means, and what is near to them less.
    """
    worded, holding = candidates.bm25 > 0, candidates.part > 0
    if asked is None or not _is_one_in_pieces(asked):
        return (worded & holding).astype(np.float32)
    if not holding.any():
        return worded.astype(np.float32)
    return np.where(holding, 1.0, np.where(worded, FORM_SHARE, 0.0)).astype(np.float32)


def _is_one_in_pieces(asked: Asked) -> bool:
    """Marks around it are no words, as a question's."""
    pieces = zip(asked.numbers, asked.words, strict=True)
    worded = [each for each in pieces if any(map(str.isalnum, each[1]))]
    return len(worded) > len({*worded}) == 1 and len(worded[0][1]) >= WITHIN_LETTERS_MIN


def _raise(late: Scores, having: Scores) -> None:
    """What has the whole query answers as well, word by word, as the best that was looked at."""
    known = (having > 0) & ~np.isnan(late)
    if known.any():
        late[known] = np.maximum(late[known], having[known] * np.nanmax(late))


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
