"""Search: three ways of finding joined into one order, after both indexes have seen the head of the log.

A document is found by its words (BM25), by its meaning (cosine of embeddings) or because the query is
a part of it (substring). The best of what was found are looked at closely, word by word (`late`), together
with what was written down right beside them in the same conversation; `ranking` orders them all.
A document found by neither words nor part counts only with a cosine of at least `Posed.cosine_min`, or beside
one that was found; so a query that nothing answers finds nothing.

Left to others: the question as a vector, and which vectors it is compared with (`questions`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from memlog.errors import EmbeddingError, StorageError
from memlog.settings import Mode
from projections.documents import Kind, Scope
from projections.embedding.computing import nothing
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.query import Query, parse
from projections.search.asking import Meanwhile
from projections.search.questions import Posed, Question, Questions, Text
from projections.text.part import APART_MIN, forms, needle_of
from projections.text.projector import TextProjector
from projections.text.snapshot import TextSnapshot
from projections.things import TextHit
from projections.vectors.projector import VectorHit

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors
    from projections.search.candidates import Candidates
    from projections.search.closely import Ranking
    from projections.search.late import Known
    from projections.vectors.columns import Ids
    from projections.vectors.look import Look

DEPTH = 60
"""How many documents each way of finding brings. Of more, hardly any ends up among the best (docs/search.md)."""

TEXTS_OF_A_THING = 4
"""So many texts are looked at, for each thing that was found by a part alone, to see how well it has the words."""

SLIPS_MAX = 8
"""Of the words that may be slips, so many are looked up once more."""

ROWS_MANY = 100_000
"""From so many on, comparing them takes longer than waking a thread for it. This one looks for the words meanwhile:
that runs Python between many short calls, where two threads take the interpreter from each other at every one."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A document that was found, with its joined score, 0..1, that which answers tell, and those it was made of."""

    kind: Kind
    ref: str
    entity: str
    score: float
    told: float
    bm25: float = 0.0
    cosine: float = 0.0
    part: float = 0.0
    late: float = 0.0


class Found(msgspec.Struct, frozen=True):
    """Hits, best first; a notice where the search was poorer than asked for; whether a deeper one may
    find more; as of which position words were looked for, if they were. Who tells what was found reads the state as
    of then."""

    hits: list[Hit]
    notice: str | None = None
    deeper: bool = False
    position: int | None = None


class _Worded(NamedTuple):
    """What has the words, and what has the query as a part, each best first; whether there may be more further
    down; where they were looked for, and as of which position; and which of those that have words have a date that the
    query names."""

    words: list[TextHit]
    parts: list[TextHit]
    deeper: bool
    text: TextProjector | None = None
    position: int | None = None
    dated: frozenset[str] = frozenset()


_NOTHING = _Worded([], [], False)
"""Where words do not count."""

_STRICT = (
    'Nothing is as the query demands it by its AND, OR, NOT, "phrase" or prefix*. Without these, any of its '
    "words is enough."
)


_WORDLESS = "The query has no word to search by. To see all there is, read or list it instead."


class _Near(NamedTuple):
    """What is nearest to the question in meaning, best first, and how to look further."""

    asked: Posed
    look: Look
    rows: Ids
    cosines: Vectors


class Searcher:
    """Searches the documents of one project. `lagging` is called where texts wait to be embedded."""

    def __init__(
        self, projections: Projections, embeddings: Embeddings, lagging: Callable[[], None]
    ) -> None:
        self._projections = projections
        self._lagging = lagging
        self._questions = Questions(projections, embeddings, lagging)

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        at: int | None = None,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        since: int = 0,
        depth: int = 0,
    ) -> Found:
        """Everything relevant among the best `DEPTH` of each way, or `depth` where that is more, best first; in the
        `Scope` of the other arguments.

        Reads everything that was committed before the call. Raises EmbeddingError only where
        `semantic` was asked for and cannot be had; `hybrid` then goes by words and says so.
        """
        return self._search(query, mode, Scope(at, kinds, labels, since), max(DEPTH, depth))

    def finds_any(self, query: str, mode: Mode, scope: Scope) -> bool:
        """Whether a `search` finds anything in a scope, for less than it takes to say what. Raises as that does."""
        return bool(self._search(query, mode, scope, 1).hits)

    def _search(self, query: str, mode: Mode, scope: Scope, depth: int) -> Found:
        at, parsed = scope.at, parse(query)
        by_words = partial(self._by_words, query, parsed, scope, depth)
        wordless = not any(map(str.isalnum, query))
        means_nothing = mode == "hybrid" and wordless
        if mode == "text" or not parsed.is_plain or not query.strip() or means_nothing:
            worded = by_words()
            hits = _hits_by_words(worded)
            poor = _WORDLESS if wordless else None if parsed.is_plain else _STRICT
            return Found(hits, None if hits else poor, worded.deeper, worded.position)
        words = Meanwhile(by_words)
        looked = _NOTHING if mode == "semantic" else None
        questions = self._questions
        # In a list, to be taken out: an exception would keep this frame, the frame its future, that the exception.
        question = Question(questions.understood(query, at))
        begun = [questions.begin(question, mode, at, nothing if looked else words.begin)]
        if looked is None and not begun[0].done():
            looked = words.result()
        try:
            asked = questions.answer(begun.pop(), mode)
            side_by_side = asked.meaning.vectors.rows >= ROWS_MANY and not words.was_begun
            if looked is None and not (side_by_side or words.is_under_way):
                looked = words.result()
            asked = questions.pointed(asked, looked and looked.text, at)
            nearest = Meanwhile(_near, asked, scope, depth)
            if looked is None and side_by_side:
                nearest.begin()
                looked = words.result()
            near = nearest.result()
        except EmbeddingError as error:
            if mode == "semantic":
                raise
            notice = f"Searched by words only: {error.message}"
        else:
            return _by_meaning(query, looked or words.result(), near, scope, depth)
        worded = looked or words.result()
        return Found(_hits_by_words(worded), notice, worded.deeper, worded.position)

    def nearest(
        self,
        text: str,
        *,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        limit: int,
    ) -> tuple[list[VectorHit], str | None]:
        """The documents most like a text in meaning, best first, however far, and a notice where texts are not embedded
        yet. Raises EmbeddingError.

        `text` is about to be a document itself, so its vectors are kept where the projection will look.
        """
        questions = self._questions
        asked = questions.answer(questions.begin(Text(text), "hybrid"), "hybrid")
        found = asked.meaning.vectors.alike(
            asked.vector, Scope(kinds=kinds, labels=labels), limit=limit
        )
        return found, asked.notice

    def _by_words(self, query: str, parsed: Query, scope: Scope, depth: int) -> _Worded:
        text = self._projections.text_ahead()
        if text.is_ahead:
            self._lagging()
        try:
            return _found_in(text, query, parsed, scope, depth)
        except StorageError as error:  # reading needs nothing of the disk: the index is damaged
            self._projections.mend("text", error)
        return _found_in(self._projections.text(), query, parsed, scope, depth)


def _found_in(text: TextProjector, query: str, parsed: Query, scope: Scope, depth: int) -> _Worded:
    with text.asked() as texts:
        words = texts.search(parsed, scope, limit=depth)
        parts = _holding(texts, query, parsed, scope, depth)
        deeper = depth in (len(words), len(parts))
        if parsed.is_plain and len(words) == depth:
            words += _by_words_of_parts(texts, parsed, scope, words, parts)
        dated = texts.dated(parsed, scope, frozenset(hit.thing for hit in words))
    return _Worded(words, parts, deeper, text, texts.position, dated)


def _holding(
    texts: TextSnapshot, query: str, parsed: Query, scope: Scope, depth: int
) -> list[TextHit]:
    """What holds the query as it was typed; where nothing does, what has an identifier in another form, apart from
    other letters: `onCall` is not in `person called`. A phrase has no other form."""
    holding = texts.substring(needle_of(query), scope, limit=depth)
    if holding or not parsed.is_plain:
        return holding
    found = (texts.substring(form, scope, limit=depth) for form in forms(query))
    apart = ([hit for hit in hits if hit.score >= APART_MIN] for hits in found)
    return next(filter(None, apart), [])


def _by_words_of_parts(
    texts: TextSnapshot,
    parsed: Query,
    scope: Scope,
    words: list[TextHit],
    parts: list[TextHit],
) -> list[TextHit]:
    """Those of `parts` that have the words, and are beyond the best that do: where these differ by a stop word alone,
    as `Team A` from many a `Team 7`, what the query names may be anywhere among them."""
    known = {hit.ref for hit in words}
    beyond = {hit.ref: hit.thing for hit in parts if hit.ref not in known}
    if not beyond:
        return []
    limit = TEXTS_OF_A_THING * len(beyond)
    found = texts.search(parsed, scope, limit=limit, of=frozenset(beyond.values()))
    return [hit for hit in found if hit.ref in beyond]


def _near(asked: Posed, scope: Scope, depth: int) -> _Near:
    look = asked.meaning.vectors.look(asked.vector, scope)
    return _Near(asked, look, *look.nearest(depth))


def _by_meaning(query: str, worded: _Worded, near: _Near, scope: Scope, depth: int) -> Found:
    """What was found by words and what is near in meaning, looked at closely where words count."""
    from projections.search.candidates import Candidates
    from projections.search.closely import ordered, ordered_closely

    candidates = Candidates()
    candidates.add_worded(worded.words)
    candidates.add_parts(worded.parts)
    deeper = _add_near(near, candidates, depth) or worded.deeper
    asked = near.asked
    if not candidates.refs:
        return Found([], asked.notice, position=worded.position)
    if worded.text is None:
        return Found(_hits(candidates, ordered(candidates)), asked.notice, deeper)
    if asked.counted is None and asked.pieces is not None:  # no text was at hand
        from projections.search.weighing import weights

        with worded.text.asked() as texts:
            counted = weights(asked.pieces, partial(texts.rarity, at=scope.at))
        asked = asked._replace(counted=counted)
    known = _known(asked, worded, scope)
    closely = ordered_closely(query, candidates, near.look, asked, known)
    return Found(_hits(candidates, closely), asked.notice, deeper, worded.position)


def _known(asked: Posed, worded: _Worded, scope: Scope) -> list[Known]:
    """Which documents have some pieces of the question in other words: its dates, and what it says with a slip. Where
    it is one word, all it was found by is known already."""
    from projections.search.late import Known, date_pieces, words_in_pieces

    if asked.pieces is None or worded.text is None:
        return []
    known = [Known(date_pieces(asked.pieces), worded.dated)] if worded.dated else []
    things = frozenset(hit.thing for hit in worded.words)
    if things and len({*asked.pieces.numbers}) > 1:
        slips = islice(words_in_pieces(asked.pieces).items(), SLIPS_MAX)
        with suppress(StorageError), worded.text.asked() as texts:  # a refinement
            for word, pieces in slips:
                if meant := texts.meant(word, scope, things):
                    known.append(Known(pieces, meant))
    return known


def _add_near(near: _Near, candidates: Candidates, depth: int) -> bool:
    """Adds what is near in meaning; whether there may be more further down."""
    look, rows, cosines = near.look, near.rows, near.cosines
    candidates.row = look.rows_of(candidates.refs)
    candidates.cosine = look.cosines(candidates.row).astype(float)
    count = int((cosines >= near.asked.cosine_min).sum())
    known = set(candidates.row.tolist())
    new = [place for place, row in enumerate(rows[:count].tolist()) if row not in known]
    candidates.add(look.described(rows[new]), cosine=cosines[new], row=rows[new])
    return count == depth


def _hits_by_words(worded: _Worded) -> list[Hit]:
    """Where nothing is known of meaning: what `_hits` makes of it, without columns for so little. What holds the query
    as it was typed has it as well as the best, as in `closely`."""
    from projections.search.ranking import PART_WEIGHT, SCORE_MAX, WORDS_ALONE_WEIGHT

    most = worded.words[0].score if worded.words else 1.0
    of_words, of_part = WORDS_ALONE_WEIGHT / most / SCORE_MAX, PART_WEIGHT / SCORE_MAX
    words = {hit.ref: hit.score for hit in worded.words}
    parts = {hit.ref: hit.score for hit in worded.parts}
    whole = words.keys() & parts.keys() or parts.keys()
    hits = []
    for hit in {hit.ref: hit for hit in (*worded.words, *worded.parts)}.values():
        bm25 = most if hit.ref in whole else words.get(hit.ref, 0.0)
        part = parts.get(hit.ref, 0.0)
        score = of_words * bm25 + of_part * part
        hits.append(Hit(hit.kind, hit.ref, hit.entity, score, score, bm25, part=part))
    return sorted(hits, key=lambda hit: (-hit.score, hit.ref)) if parts else hits


def _hits(candidates: Candidates, ranking: Ranking) -> list[Hit]:
    import numpy as np

    from projections.search.ranking import shown

    places, known = ranking.places, candidates.cosine[ranking.places]
    each, cosines = places.tolist(), np.where(np.isnan(known), 0, known)
    columns = (
        ranking.scores.clip(0),
        shown(ranking.scores, cosines),
        candidates.bm25[places],
        cosines,
        candidates.part[places],
        np.where(np.isnan(ranking.late), 0, ranking.late),
    )
    return list(
        map(
            Hit,
            [candidates.kinds[place] for place in each],
            [candidates.refs[place] for place in each],
            [candidates.entities[place] for place in each],
            *(column.tolist() for column in columns),
        )
    )
