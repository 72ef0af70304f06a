"""Search: three ways of finding joined into one order, after both indexes have seen the head of the log.

A document is found by its words (BM25), by its meaning (cosine of embeddings) or because the query is
a part of it (substring). The best of what was found are looked at closely, word by word (`late`), together
with what was written down right beside them in the same conversation; `ranking` orders them all.
A document found by neither words nor part counts only with a cosine of at least `COSINE_MIN`, or beside
one that was found; so a query that nothing answers finds nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from memlog.errors import EmbeddingError, StorageError
from memlog.settings import Mode
from projections.candidates import Candidate
from projections.documents import Kind
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.query import Query, parse
from projections.text import TextProjector
from projections.vectors import VectorHit

DEPTH = 100
COSINE_MIN = 0.35
PATIENCE_SECONDS: dict[Mode, float] = {"hybrid": 2.0, "semantic": 20.0}
"""How long a search waits for texts to be embedded; the rest is searched by words, and it says so."""


class Hit(msgspec.Struct, frozen=True):
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


class Searcher:
    """Searches the documents of one project."""

    def __init__(self, projections: Projections, embeddings: Embeddings) -> None:
        self._projections = projections
        self._embeddings = embeddings

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
        from projections.closely import ordered

        parsed = parse(query)
        scope = _Scope(at, kinds, labels, depth)
        candidates: dict[str, Candidate] = {}
        notice, deeper = None, False
        if mode != "semantic":
            deeper = self._by_words(query, parsed, candidates, scope)
        if mode != "text" and parsed.is_plain and query.strip():
            try:
                deeper |= self._by_meaning(query, candidates, scope, PATIENCE_SECONDS[mode])
                notice = self._not_yet_embedded()
                if mode == "hybrid":
                    closely = self._closely(query, candidates, scope)
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
    ) -> list[VectorHit]:
        """The documents nearest in meaning, best first, however far. Raises EmbeddingError.

        `text` is about to be a document itself, so its vector is kept where the projection will look.
        """
        vector = self._embeddings.get().vectors([text])[0]
        vectors = self._projections.vectors()
        return vectors.search(vector, at=at, limit=limit, kinds=kinds, labels=labels)

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
            found = candidates.setdefault(hit.ref, Candidate(hit.kind, hit.ref, hit.entity))
            found.bm25 = hit.score
        if not parsed.is_plain:
            return len(worded) == depth
        parts = text.substring(query, at=at, limit=depth, kinds=kinds, labels=labels)
        for hit in parts:
            found = candidates.setdefault(hit.ref, Candidate(hit.kind, hit.ref, hit.entity))
            found.part = hit.score
        return depth in (len(worded), len(parts))

    def _by_meaning(
        self,
        query: str,
        candidates: dict[str, Candidate],
        scope: _Scope,
        patience_seconds: float,
    ) -> bool:
        """Adds what is near in meaning; whether there may be more further down."""
        at, kinds, labels, depth = scope
        vector = self._embeddings.get().query_vector(query)
        vectors = self._projections.vectors(patience_seconds)
        for ref, cosine in vectors.cosines(vector, list(candidates), at=at).items():
            candidates[ref].cosine = cosine
        near = vectors.search(vector, at=at, limit=depth, kinds=kinds, labels=labels)
        for hit in near:
            if hit.cosine < COSINE_MIN:
                return False
            found = candidates.setdefault(hit.ref, Candidate(hit.kind, hit.ref, hit.entity))
            found.cosine = hit.cosine
        return len(near) == depth

    def _closely(
        self, query: str, candidates: dict[str, Candidate], scope: _Scope
    ) -> list[Candidate]:
        from projections.closely import ordered_closely

        return ordered_closely(
            query,
            candidates,
            self._embeddings.get(),
            self._projections.vectors(0.0),
            self._projections.text().rarity,
            at=scope.at,
            kinds=scope.kinds,
            labels=scope.labels,
        )

    def _not_yet_embedded(self) -> str | None:
        """A sentence where some texts have no vectors yet."""
        behind = self._projections.behind("vectors")
        if not behind:
            return None
        return (
            f"The newest {behind} events are searched by words only: their texts are still being "
            "turned into vectors. Ask again in a while to search them by meaning too."
        )


def _hit(found: Candidate) -> Hit:
    return Hit(
        found.kind,
        found.ref,
        found.entity,
        max(found.score, 0.0),
        found.bm25,
        0.0 if math.isnan(found.cosine) else found.cosine,
        found.part,
        0.0 if math.isnan(found.late) else found.late,
    )
