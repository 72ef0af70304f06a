"""Search: three ways of finding joined into one order, after both indexes have seen the head of the log.

A document is found by its words (BM25), by its meaning (cosine of embeddings) or because the query is
a part of it (substring). The best of what was found are looked at closely, word by word (`late`), together
with what was written down right beside them in the same conversation; `ranking` orders them all.
What a question means is told by its rare words more than by others (`weighing`).
A document found by neither words nor part counts only with a cosine of at least `COSINE_MIN`, or beside
one that was found; so a query that nothing answers finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from memlog.errors import EmbeddingError, StorageError
from memlog.patience import require_patience
from memlog.settings import Mode
from projections.asking import Meanwhile
from projections.documents import Kind
from projections.embedding import CachedEmbedder
from projections.embedding.computing import nothing
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.previous import Meaning
from projections.query import Query, parse
from projections.text import TextProjector
from projections.things import TextHit
from projections.vectors import VectorHit, VectorProjector

if TYPE_CHECKING:
    from projections.candidates import Candidates
    from projections.closely import Ranking
    from projections.embedding.embedder import Vectors
    from projections.vector_look import Look
    from projections.vector_rows import Ids

DEPTH = 60
"""How many documents each way of finding brings. Of more, hardly any ends up among the best (docs/search.md)."""

COSINE_MIN, POINTED_COSINE_MIN = 0.35, 0.30
"""Of the vector that the model gave the question, and of one that its rare words point, which lies further from all
texts."""

PATIENCE_SECONDS: dict[Mode, float] = {"hybrid": 2.0, "semantic": 20.0}
"""How long a search waits for texts to be embedded; the rest is searched by words, and it says so."""
WAITED_EVENTS_MAX = 500
BEHIND_SECONDS = 0.5
"""How long it waits where so many events are behind that most of their texts cannot be embedded in time: after
an import, or when the embedder was changed. What was embedded before comes out of the cache by then, so a
process that starts has all of it. Where those of the embedder before serve, only the first search waits."""
PREVIOUS_SECONDS = 0.1
"""How long it takes up stored vectors of the embedder before, which serve meanwhile."""
ROWS_MANY = 100_000
"""From so many on, comparing them takes longer than waking a thread that looks for the words meanwhile."""

LOADING_SECONDS: dict[Mode, float] = {"hybrid": 8.0, "semantic": 45.0}
"""How long it waits for an embedder that is being loaded, from when that began: most take less than one."""


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
    find more."""

    hits: list[Hit]
    notice: str | None = None
    deeper: bool = False


class _Scope(NamedTuple):
    at: int | None
    kinds: frozenset[Kind] | None
    labels: tuple[str, ...]
    depth: int


class _Worded(NamedTuple):
    """What has the words, and what has the query as a part, each best first; whether there may be more further
    down."""

    words: list[TextHit]
    parts: list[TextHit]
    deeper: bool


_NOTHING = _Worded([], [], False)


class _Question(NamedTuple):
    """What is turned into a vector, and forgotten."""

    text: str

    def vector(self, embedder: CachedEmbedder) -> Vectors:
        return embedder.query_vector(self.text)

    @contextmanager
    def on_its_way(self, embedder: CachedEmbedder) -> Iterator[Callable[[], Vectors]]:
        """Around what embeds other texts, most likely: how to have the vector then."""
        if embedder.has_pieces:
            with embedder.taking_along(self.text):
                yield partial(self.vector, embedder)
        else:  # an endpoint may take its time for the others
            yield Meanwhile(self.vector, embedder).begin().result


class _Text(NamedTuple):
    """What is about to be a document: its vector is kept."""

    text: str

    def vector(self, embedder: CachedEmbedder) -> Vectors:
        vectors: Vectors = embedder.vectors([self.text])[0]
        return vectors

    @contextmanager
    def on_its_way(self, embedder: CachedEmbedder) -> Iterator[Callable[[], Vectors]]:
        yield Meanwhile(self.vector, embedder).begin().result


class _Asked(NamedTuple):
    """The question as a vector, what to search with it, and in what respect that is not all there is."""

    vector: Vectors
    meaning: Meaning
    notice: str | None
    cosine_min: float = COSINE_MIN


class _Near(NamedTuple):
    """What is nearest to the question in meaning, best first, and how to look further."""

    asked: _Asked
    look: Look
    rows: Ids
    cosines: Vectors


class Searcher:
    """Searches the documents of one project. `lagging` is called where texts wait to be embedded."""

    def __init__(
        self, projections: Projections, embeddings: Embeddings, lagging: Callable[[], None]
    ) -> None:
        self._projections = projections
        self._embeddings = embeddings
        self._lagging = lagging
        self._has_waited = False

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        at: int | None = None,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        depth: int = 0,
    ) -> Found:
        """Everything relevant among the best `DEPTH` of each way, or `depth` where that is more, best first.

        Reads everything that was committed before the call. Raises EmbeddingError only where
        `semantic` was asked for and cannot be had; `hybrid` then goes by words and says so.
        """
        scope = _Scope(at, kinds, labels, max(DEPTH, depth))
        parsed = parse(query)
        by_words = partial(self._by_words, query, parsed, scope)
        if mode == "text" or not parsed.is_plain or not query.strip():
            _, worded = by_words()
            return Found(_hits_by_words(worded), None, worded.deeper)
        ask = partial(self._asked, _Question(query), mode)
        words = Meanwhile(by_words)
        meanwhile, look = (
            (nothing, _unlooked) if mode == "semantic" else (words.begin, words.result)
        )
        asking = self._embeddings.asking
        # In a list, to be taken out: an exception would keep this frame, the frame its future, that the exception.
        begun = [asking.begin(ask, mode, meanwhile)]
        looked = None if begun[0].done() else look()
        try:
            asked = asking.answer(begun.pop(), mode)
            if asked.meaning.vectors.rows >= ROWS_MANY:
                meanwhile()
            near = _near(self._pointed(query, asked, looked and looked[0]), scope)
        except EmbeddingError as error:
            if mode == "semantic":
                raise
            notice = f"Searched by words only: {error.message}"
        else:
            text, worded = looked or look()
            return self._by_meaning(query, text, worded, near, scope)
        _, worded = looked or look()
        return Found(_hits_by_words(worded), notice, worded.deeper)

    def nearest(
        self,
        text: str,
        *,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        limit: int,
    ) -> tuple[list[VectorHit], str | None]:
        """The documents nearest in meaning, best first, however far, and a notice where texts are not embedded
        yet. Raises EmbeddingError.

        `text` is about to be a document itself, so its vector is kept where the projection will look.
        """
        asking = self._embeddings.asking
        ask = partial(self._asked, _Text(text), "hybrid")
        asked = asking.answer(asking.begin(ask, "hybrid"), "hybrid")
        found = asked.meaning.vectors.search(asked.vector, limit=limit, kinds=kinds, labels=labels)
        return found, asked.notice

    def _by_words(self, query: str, parsed: Query, scope: _Scope) -> tuple[TextProjector, _Worded]:
        text = self._projections.text_ahead()
        if text.is_ahead:
            self._lagging()
        try:
            return text, _found_in(text, query, parsed, scope)
        except StorageError as error:  # reading needs nothing of the disk: the index is damaged
            self._projections.mend("text", error)
        text = self._projections.text()
        return text, _found_in(text, query, parsed, scope)

    def _by_meaning(
        self, query: str, text: TextProjector | None, worded: _Worded, near: _Near, scope: _Scope
    ) -> Found:
        """What was found by words, in `text` if they were looked for, and what is near in meaning."""
        from projections.candidates import Candidates
        from projections.closely import ordered, ordered_closely

        candidates = Candidates()
        candidates.add_worded(worded.words)
        candidates.add_parts(worded.parts)
        deeper = _add_near(near, candidates, scope) or worded.deeper
        asked = near.asked
        if text is None:
            return Found(_hits(candidates, ordered(candidates)), asked.notice, deeper)
        closely = ordered_closely(
            query,
            candidates,
            asked.meaning.embedder,
            near.look,
            text.rarity,
            kinds=scope.kinds,
            labels=scope.labels,
        )
        return Found(_hits(candidates, closely), asked.notice, deeper)

    def _pointed(self, query: str, asked: _Asked, text: TextProjector | None) -> _Asked:
        """With the vector that the question's rare words give it; as it is where `text`, which knows what is rare, is
        damaged: the next search by words mends it."""
        from projections.weighing import pointed

        _, pieces = asked.meaning.embedder.query(query)
        if pieces is None:
            return asked
        with suppress(StorageError):
            text = text or self._projections.text_ahead()
            vector = pointed(asked.vector, pieces, text.rarity)
            if vector is not None:
                return asked._replace(vector=vector, cosine_min=POINTED_COSINE_MIN)
        return asked

    def _asked(self, wanted: _Question | _Text, mode: Mode) -> _Asked:
        """What to search with: the present embedder, or the one before while that reaches further."""
        try:
            present, head = self._asked_present(wanted, mode)
        except EmbeddingError as error:
            if self._embeddings.switched_off:
                raise
            before = self._asked_before(wanted)
            if before is None:
                raise
            return before._replace(notice=f"{before.notice}: {error.message}")
        position = present.meaning.vectors.position
        if position >= head:
            return present
        before = self._asked_before(wanted)
        if before is not None and before.meaning.vectors.position > position:
            return before._replace(
                notice=f"{before.notice}, while the present one, {present.meaning.embedder.key}, is "
                f"embedding: its vectors are there for {position} of {head} events."
            )
        return present._replace(
            notice=f"The newest {head - position} events are searched by words only: their texts are still "
            "being turned into vectors. Ask again in a while to search them by meaning too."
        )

    def _asked_present(self, wanted: _Question | _Text, mode: Mode) -> tuple[_Asked, int]:
        """With the present embedder; and the head of the log, which its vectors have seen if there was time."""
        embedder = self._embeddings.soon(LOADING_SECONDS[mode])
        vectors, head = self._projections.vectors_so_far()
        if vectors.position == head:
            return _Asked(wanted.vector(embedder), Meaning(embedder, vectors), None), head
        require_patience()
        self._lagging()
        with wanted.on_its_way(embedder) as vector:
            vectors = self._caught_up(head - vectors.position, mode)
        return _Asked(vector(), Meaning(embedder, vectors), None), head

    def _caught_up(self, behind: int, mode: Mode) -> VectorProjector:
        """The vectors, as far as a search waits for so many events."""
        patience_seconds = PATIENCE_SECONDS[mode]
        if behind > WAITED_EVENTS_MAX:
            others_serve = self._projections.previous(PREVIOUS_SECONDS) is not None
            if mode == "hybrid" or others_serve:
                patience_seconds = 0.0 if others_serve and self._has_waited else BEHIND_SECONDS
            self._has_waited = True
        return self._projections.vectors(patience_seconds)

    def _asked_before(self, wanted: _Question | _Text) -> _Asked | None:
        meaning = self._projections.previous(PREVIOUS_SECONDS)
        if meaning is None:
            return None
        try:
            vector = wanted.vector(meaning.embedder)
        except EmbeddingError:
            return None
        return _Asked(
            vector,
            meaning,
            f"Searched by meaning with the embedder before, {meaning.embedder.key}, up to event "
            f"{meaning.vectors.position}",
        )


def _found_in(text: TextProjector, query: str, parsed: Query, scope: _Scope) -> _Worded:
    at, kinds, labels, depth = scope
    words = text.search(parsed, at=at, limit=depth, kinds=kinds, labels=labels)
    if not parsed.is_plain:
        return _Worded(words, [], len(words) == depth)
    parts = text.substring(query, at=at, limit=depth, kinds=kinds, labels=labels)
    return _Worded(words, parts, depth in (len(words), len(parts)))


def _unlooked() -> tuple[None, _Worded]:
    """Where words do not count."""
    return None, _NOTHING


def _near(asked: _Asked, scope: _Scope) -> _Near:
    look = asked.meaning.vectors.look(asked.vector, scope.at)
    return _Near(asked, look, *look.nearest(scope.depth, scope.kinds, scope.labels))


def _add_near(near: _Near, candidates: Candidates, scope: _Scope) -> bool:
    """Adds what is near in meaning; whether there may be more further down."""
    look, rows, cosines = near.look, near.rows, near.cosines
    candidates.row = look.rows_of(candidates.refs)
    candidates.cosine = look.cosines(candidates.row).astype(float)
    count = int((cosines >= near.asked.cosine_min).sum())
    known = set(candidates.row.tolist())
    new = [place for place, row in enumerate(rows[:count].tolist()) if row not in known]
    candidates.add(look.described(rows[new]), cosine=cosines[new], row=rows[new])
    return count == scope.depth


def _hits_by_words(worded: _Worded) -> list[Hit]:
    """Where nothing is known of meaning: what `_hits` makes of it, without columns for so little."""
    from projections.ranking import PART_WEIGHT, SCORE_MAX, WORDS_ALONE_WEIGHT

    most = worded.words[0].score if worded.words else 1.0
    of_words, of_part = WORDS_ALONE_WEIGHT / most / SCORE_MAX, PART_WEIGHT / SCORE_MAX
    parts = {hit.ref: hit.score for hit in worded.parts}
    found = [(hit, hit.score, parts.pop(hit.ref, 0.0)) for hit in worded.words]
    found += [(hit, 0.0, hit.score) for hit in worded.parts if hit.ref in parts]
    scored = [(of_words * bm25 + of_part * part, hit, bm25, part) for hit, bm25, part in found]
    hits = [
        Hit(hit.kind, hit.ref, hit.entity, score, score, bm25, part=part)
        for score, hit, bm25, part in scored
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.ref)) if worded.parts else hits


def _hits(candidates: Candidates, ranking: Ranking) -> list[Hit]:
    import numpy as np

    from projections.ranking import told

    places, known = ranking.places, candidates.cosine[ranking.places]
    each, cosines = places.tolist(), np.where(np.isnan(known), 0, known)
    columns = (
        ranking.scores.clip(0),
        told(ranking.scores, cosines),
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
