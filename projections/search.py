"""Search: three ways of finding joined into one order, after both indexes have seen the head of the log.

A document is found by its words (BM25), by its meaning (cosine of embeddings) or because the query is
a part of it (substring). The best of what was found are looked at closely, word by word (`late`), together
with what was written down right beside them in the same conversation; `ranking` orders them all.
A document found by neither words nor part counts only with a cosine of at least `COSINE_MIN`, or beside
one that was found; so a query that nothing answers finds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from memlog.errors import EmbeddingError, StorageError
from memlog.settings import Mode
from projections.candidates import Candidate
from projections.documents import Kind
from projections.embedding import CachedEmbedder
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.previous import Meaning
from projections.query import Query, parse
from projections.text import TextProjector
from projections.things import TextHit
from projections.vectors import VectorHit

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors
    from projections.vector_look import Look

DEPTH = 100
COSINE_MIN = 0.35
PATIENCE_SECONDS: dict[Mode, float] = {"hybrid": 2.0, "semantic": 20.0}
"""How long a search waits for texts to be embedded; the rest is searched by words, and it says so."""
WAITED_EVENTS_MAX = 500
BEHIND_SECONDS = 0.5
"""How long it waits where so many events are behind that most of their texts cannot be embedded in time: after
an import, or when the embedder was changed. What was embedded before comes out of the cache by then, so a
process that starts has all of it."""
PREVIOUS_SECONDS = 0.1
"""How long it takes up stored vectors of the embedder before, which serve meanwhile."""


MEANWHILE: Executor = ThreadPoolExecutor(32, "meanwhile")
"""Where a question is turned into a vector, and the vectors catch up, while its words are looked for."""


class Hit(msgspec.Struct, frozen=True, gc=False):
    """A document that was found, with its joined score, 0..1, and those it was made of."""

    kind: Kind
    ref: str
    entity: str
    score: float
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


class _Asked(NamedTuple):
    """The question as a vector, what to search with it, and in what respect that is not all there is."""

    vector: Vectors
    meaning: Meaning
    notice: str | None


class Searcher:
    """Searches the documents of one project. `lagging` is called where texts wait to be embedded."""

    def __init__(
        self, projections: Projections, embeddings: Embeddings, lagging: Callable[[], None]
    ) -> None:
        self._projections = projections
        self._embeddings = embeddings
        self._lagging = lagging

    def search(
        self,
        query: str,
        *,
        mode: Mode = "hybrid",
        at: int | None = None,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        depth: int = DEPTH,
    ) -> Found:
        """Everything relevant among the best `depth` of each way, best first.

        Reads everything that was committed before the call. Raises EmbeddingError only where
        `semantic` was asked for and cannot be had; `hybrid` then goes by words and says so.
        """
        found = self._search(query, mode, _Scope(at, kinds, labels, depth))
        damage = self._projections.damage()
        return found if damage is None else msgspec.structs.replace(found, notice=damage.message)

    def _search(self, query: str, mode: Mode, scope: _Scope) -> Found:
        from projections.closely import ordered, ordered_closely

        parsed = parse(query)
        candidates: dict[str, Candidate] = {}
        notice, deeper = None, False
        by_meaning = mode != "text" and parsed.is_plain and bool(query.strip())
        ask: Callable[[], _Asked] = partial(
            self._asked, lambda embedder: embedder.query_vector(query), mode
        )
        if mode == "hybrid" and by_meaning:
            ask = MEANWHILE.submit(ask).result
        if mode != "semantic":
            deeper = self._by_words(query, parsed, candidates, scope)
        if by_meaning:
            try:
                asked = ask()
                notice = asked.notice
                look = asked.meaning.vectors.look(asked.vector, scope.at)
                deeper |= self._by_meaning(look, candidates, scope)
                if mode == "hybrid":
                    closely = ordered_closely(
                        query,
                        candidates,
                        asked.meaning.embedder,
                        look,
                        self._projections.text().rarity,
                        kinds=scope.kinds,
                        labels=scope.labels,
                    )
                    return Found([_hit(each) for each in closely], notice, deeper)
            except EmbeddingError as error:
                if mode == "semantic":
                    raise
                notice = f"Searched by words only: {error.message}"
        return Found([_hit(each) for each in ordered(candidates)], notice, deeper)

    def nearest(
        self,
        text: str,
        *,
        at: int | None = None,
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
        limit: int,
    ) -> tuple[list[VectorHit], str | None]:
        """The documents nearest in meaning, best first, however far, and a notice where texts are not embedded
        yet. Raises EmbeddingError.

        `text` is about to be a document itself, so its vector is kept where the projection will look.
        """
        vector, meaning, notice = self._asked(
            lambda embedder: embedder.vectors([text])[0], "hybrid"
        )
        return meaning.vectors.search(
            vector, at=at, limit=limit, kinds=kinds, labels=labels
        ), notice

    def _by_words(
        self, query: str, parsed: Query, candidates: dict[str, Candidate], scope: _Scope
    ) -> bool:
        """Adds what has the words, or the query as a part; whether there may be more further down."""
        text = self._projections.text()
        try:
            return self._found_in(text, query, parsed, candidates, scope)
        except StorageError as error:  # reading needs nothing of the disk: the index is damaged
            self._projections.mend("text", error)
        return self._found_in(self._projections.text(), query, parsed, candidates, scope)

    def _found_in(
        self,
        text: TextProjector,
        query: str,
        parsed: Query,
        candidates: dict[str, Candidate],
        scope: _Scope,
    ) -> bool:
        at, kinds, labels, depth = scope
        worded = text.search(parsed, at=at, limit=depth, kinds=kinds, labels=labels)
        for hit in worded:
            candidates[hit.ref] = Candidate(hit.kind, hit.ref, hit.entity, hit.score)
        if not parsed.is_plain:
            return len(worded) == depth
        parts = text.substring(query, at=at, limit=depth, kinds=kinds, labels=labels)
        for hit in parts:
            _of(candidates, hit).part = hit.score
        return depth in (len(worded), len(parts))

    def _by_meaning(self, look: Look, candidates: dict[str, Candidate], scope: _Scope) -> bool:
        """Adds what is near in meaning; whether there may be more further down."""
        import numpy as np

        own = look.rows_of(candidates)
        cosines = look.cosines(own).tolist()
        for found, row, cosine in zip(candidates.values(), own.tolist(), cosines, strict=True):
            found.row, found.cosine = row, cosine
        near, near_cosines = look.nearest(scope.depth, scope.kinds, scope.labels)
        count = int((near_cosines >= COSINE_MIN).sum())
        new = np.isin(near[:count], own, invert=True)
        rows, cosines = near[:count][new], near_cosines[:count][new].tolist()
        described = zip(look.described(rows), rows.tolist(), cosines, strict=True)
        for (ref, kind, entity), row, cosine in described:
            candidates[ref] = Candidate(kind, ref, entity, cosine=cosine, row=row)
        return count == scope.depth

    def _asked(self, vector_of: Callable[[CachedEmbedder], Vectors], mode: Mode) -> _Asked:
        """What to search with: the present embedder, or the one before while that reaches further."""
        try:
            present = self._asked_present(vector_of, mode)
        except EmbeddingError as error:
            if self._embeddings.switched_off:
                raise
            before = self._asked_before(vector_of)
            if before is None:
                raise
            return before._replace(notice=f"{before.notice}: {error.message}")
        head, position = self._projections.head(), present.meaning.vectors.position
        if position >= head:
            return present
        before = self._asked_before(vector_of)
        if before is not None and before.meaning.vectors.position > position:
            return before._replace(
                notice=f"{before.notice}, while the present one, {present.meaning.embedder.key}, is "
                f"embedding: its vectors are there for {position} of {head} events."
            )
        return present._replace(
            notice=f"The newest {head - position} events are searched by words only: their texts are still "
            "being turned into vectors. Ask again in a while to search them by meaning too."
        )

    def _asked_present(self, vector_of: Callable[[CachedEmbedder], Vectors], mode: Mode) -> _Asked:
        embedder = self._embeddings.get()
        vector = vector_of(embedder)
        behind = self._projections.behind("vectors")
        if behind:
            self._lagging()
        patience_seconds = PATIENCE_SECONDS[mode]
        if behind > WAITED_EVENTS_MAX:
            if self._projections.previous(PREVIOUS_SECONDS) is not None:
                patience_seconds = 0.0
            elif mode == "hybrid":
                patience_seconds = BEHIND_SECONDS
        return _Asked(vector, Meaning(embedder, self._projections.vectors(patience_seconds)), None)

    def _asked_before(self, vector_of: Callable[[CachedEmbedder], Vectors]) -> _Asked | None:
        meaning = self._projections.previous(PREVIOUS_SECONDS)
        if meaning is None:
            return None
        try:
            vector = vector_of(meaning.embedder)
        except EmbeddingError:
            return None
        return _Asked(
            vector,
            meaning,
            f"Searched by meaning with the embedder before, {meaning.embedder.key}, up to event "
            f"{meaning.vectors.position}",
        )


def _of(candidates: dict[str, Candidate], hit: TextHit) -> Candidate:
    """The candidate of a hit, which is one from now on."""
    found = candidates.get(hit.ref)
    if found is None:
        found = candidates[hit.ref] = Candidate(hit.kind, hit.ref, hit.entity)
    return found


def _hit(found: Candidate) -> Hit:
    cosine, late = found.cosine, found.late
    return Hit(
        found.kind,
        found.ref,
        found.entity,
        found.score if found.score > 0 else 0.0,
        found.bm25,
        0.0 if isnan(cosine) else cosine,
        found.part,
        0.0 if isnan(late) else late,
    )
