"""One committed state of the text index, and the two questions asked of it: by words and by part (`text_part`).

**By words.** Each word of the query stands for the set of documents that have it, and weighs

    idf = ln(1 + (N - n + 0.5) / (n + 0.5))                  N documents, n of them in the set

as in BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009). A document scores

    Σ idf · (1 + 1/3 if the word occurs more than once) · 100 / (100 + words in the document)

which is BM25 with its frequency curve cut to two steps and a fixed average length: with k1 = 1.2 and
b = 0.75, 69 words. The index's own BM25 was not taken: it counts deleted copies until a merge drops
them, so its ranks depend on how the log was cut into batches. Here n and N count exactly, and idf is
a multiple of 1/1024, so that sums are exact in single precision: an index that grew ranks as one
rebuilt. It costs nothing: on three conversations of LoCoMo recall@1 / 10 / 50 is 34.7 / 64.7 / 78.9,
against 31.6 / 63.6 / 78.6 with plain BM25, which punishes long turns too much.
N and n count retired documents too, so a score is the same whatever position is asked for.

Operators join things, not texts (`query`): the texts that have any of the words are ranked as above, and of
their entities those stay that satisfy the query with all their texts.
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Any, get_args

import tantivy
from tantivy import FieldType, Occur

from memlog.gates import SMALL_CALLS
from memlog.patience import Held, require_time
from projections import analysis
from projections.documents import Document, Kind
from projections.layers import Searching
from projections.query import (
    Leaf,
    Phrase,
    Prefix,
    Query,
    Words,
    wanted,
)
from projections.text_part import candidates, holding
from projections.text_rows import LENGTH_MAX, LENGTH_PIVOT, RETIRED, Row, decode_head, decode_row
from projections.things import TextHit, best_of_things, satisfied_by_nothing

TERMS_MAX = 64
"""Distinct words of one run of plain words that are looked up; the rest of a longer run is dropped."""

PREFIX_MAX = 64
"""Characters of a prefix that count; the index refuses expressions of more than 1,000 states."""

MISSPELT_LETTERS_MIN, MISSPELT_TWICE_LETTERS_MIN = 4, 8
"""From how many letters on a word that no text has may be one letter away from what was meant, and two."""

MISSPELT_SHARE = 0.5
REPEATED_SHARE = 1 / 3
TIES_SPARE = 8
_GRAIN = 1 / 1024

KINDS = frozenset(get_args(Kind))

_Clauses = list[tuple[Occur, tantivy.Query]]


class TextSnapshot:
    """Answers from one commit, whatever is committed meanwhile; any number of threads may ask."""

    def __init__(self, schema: tantivy.Schema, searcher: Searching, position: int) -> None:
        self._schema = schema
        self.searcher = searcher
        self.position = position
        self._rarities: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._retired = self._term("slot", RETIRED)
        self._of_kind = {kind: self._term("kind", kind) for kind in KINDS}
        self._documents = searcher.num_docs - (position > 0)  # one of them is the checkpoint

    def search(
        self,
        query: Query,
        *,
        at: int | None,
        limit: int,
        kinds: frozenset[Kind] | None,
        labels: tuple[str, ...],
    ) -> list[TextHit]:
        """The best texts that have any of what is wanted, of things that are as the query says."""
        if limit < 1:
            return []

        def narrowed(*clauses: tuple[Occur, tantivy.Query]) -> tantivy.Query:
            return tantivy.Query.boolean_query(self._narrowed(list(clauses), at, kinds, labels))

        root = query.root
        if isinstance(root, Words | Phrase | Prefix):
            asked = self._leaf(root, at, alone=True)
            return [] if asked is None else self._best(narrowed((Occur.Must, asked)), limit)
        leaves = [found for leaf in wanted(root) if (found := self._leaf(leaf, at)) is not None]
        clauses: _Clauses = [(Occur.Should, leaf) for leaf in leaves]
        if satisfied_by_nothing(root, lambda leaf: self._leaf(leaf, at) is None):
            clauses.append((Occur.Should, self._everything()))
        asked = _joined(clauses)
        if asked is None:
            return []
        texts = narrowed((Occur.Must, asked))

        def having(leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
            found = self._leaf(leaf, at)
            if found is None:
                return None
            among = tantivy.Query.term_set_query(self._schema, "thing", list(things))
            query = narrowed((Occur.Must, found), (Occur.Must, among))
            require_time()
            hits = self.searcher.search(query, self._room(), count=False).hits
            rows = [self._row(address) for _, address in hits]
            return frozenset(row.entity or row.ref for row in rows)

        return best_of_things(root, lambda asked: self._best(texts, asked), having, limit)

    def substring(
        self,
        needle: str,
        *,
        at: int | None,
        limit: int,
        kinds: frozenset[Kind] | None,
        labels: tuple[str, ...],
    ) -> list[TextHit]:
        needle = analysis.normalise(needle)
        if not needle or limit < 1:
            return []
        clauses = candidates(self._schema, self.searcher, needle)
        narrowed = tantivy.Query.boolean_query(self._narrowed(clauses, at, kinds, labels))
        return holding(self.searcher, needle, narrowed, limit)

    def rarity(self, word: str) -> float:
        """The idf of a word as a search by words counts it; 0 of stop words and of what is no word."""
        if word not in self._rarities:
            plain = analysis.spaced(analysis.normalise(word)).strip()
            stems = [] if plain in analysis.STOP_WORDS else analysis.stemming.analyze(plain)
            found = [self._idf(self._having_stem(stem)) for stem in stems]
            self._rarities[word] = max(found, default=0.0)
        return self._rarities[word]

    def living(self, ref: str) -> Document | None:
        """The document now living under `ref`, its text normalised."""
        hits = self.searcher.search(self._term("slot", ref), 1, count=False).hits
        if not hits:
            return None
        row = self._row(hits[0][1])
        return Document(row.kind, row.ref, row.entity, row.text, row.labels, row.born)

    # -- a query as the index understands it

    def _leaf(self, leaf: Leaf, at: int | None, *, alone: bool = False) -> tantivy.Query | None:
        """None where there is nothing to look up."""
        match leaf:
            case Words(text):
                return self._any_of(text, at, keep_stop_words=alone)
            case Phrase(text):
                return self._phrase(self._exact(text))
            case Prefix(text):
                return self._prefix(self._exact(text))

    def _any_of(self, text: str, at: int | None, *, keep_stop_words: bool) -> tantivy.Query | None:
        """Any word of `text`. One like `X-4471-b` is its words, and more where they stand together."""
        stems: dict[str, None] = {}
        stop_stems: dict[str, None] = {}
        identifiers: list[list[str]] = []
        for chunk in analysis.spaced(analysis.normalise(text)).split():
            telling = 0
            plain = analysis.exact.analyze(chunk)
            for word, stem in zip(plain, analysis.stemming.analyze(chunk), strict=True):
                telling += word not in analysis.STOP_WORDS
                (stop_stems if word in analysis.STOP_WORDS else stems)[stem] = None
            if telling > 1:
                identifiers.append(plain)
            if len(stems) >= TERMS_MAX:
                break
        if not stems and keep_stop_words:
            stems = stop_stems
        clauses: _Clauses = []
        for stem in list(stems)[:TERMS_MAX]:
            clauses += self._word(stem, at)
        for plain in identifiers[:TERMS_MAX]:
            phrase = self._phrase(plain)
            if phrase is not None:
                clauses.append((Occur.Should, phrase))
        return _joined(clauses)

    def _word(self, stem: str, at: int | None) -> _Clauses:
        documents = self._term("words", stem)
        having = self._having_stem(stem)
        if having == 0 or (at is not None and not self._having(self._born_by(documents, at))):
            # As it would have been then: nobody had said the word. It is looked up all the same, in vain:
            # a part of a query that finds nothing is not one that asks for nothing.
            return self._misspelt(stem) or [(Occur.Should, documents)]
        idf = self._idf(having)
        again = _scored(self._term("repeated", stem), idf * REPEATED_SHARE)
        return [(Occur.Should, _scored(documents, idf)), (Occur.Should, again)]

    def _misspelt(self, stem: str) -> _Clauses:
        """The words that a word which no text has may have been meant for: one or two letters away."""
        if len(stem) < MISSPELT_LETTERS_MIN or not stem.isalpha():
            return []
        distance = 1 if len(stem) < MISSPELT_TWICE_LETTERS_MIN else 2
        near = tantivy.Query.fuzzy_term_query(
            self._schema, "words", stem, distance=distance, transposition_cost_one=True
        )
        having = self._having(near)
        return [(Occur.Should, _scored(near, self._idf(having) * MISSPELT_SHARE))] if having else []

    def _exact(self, text: str) -> list[str]:
        return analysis.exact.analyze(analysis.spaced(analysis.normalise(text)))[:TERMS_MAX]

    def _phrase(self, words: list[str]) -> tantivy.Query | None:
        if not words:
            return None
        if len(words) == 1:
            documents = self._term("exact", words[0])
        else:
            documents = tantivy.Query.phrase_query(self._schema, "exact", list(words))
        return _scored(documents, self._idf(self._having(documents)))

    def _prefix(self, words: list[str]) -> tantivy.Query | None:
        """Words consist of letters and digits, which mean themselves in a regular expression."""
        if not words:
            return None
        if len(words) == 1:
            documents = tantivy.Query.regex_query(
                self._schema, "exact", f"{words[0][:PREFIX_MAX]}.*"
            )
        else:
            patterns = [*words[:-1], f"{words[-1][:PREFIX_MAX]}.*"]
            documents = tantivy.Query.regex_phrase_query(self._schema, "exact", list(patterns))
        return _scored(documents, self._idf(self._having(documents)))

    def _having_stem(self, stem: str) -> int:
        """How many documents have a stem; a question asks for each more than once."""
        if stem not in self._counts:
            self._counts[stem] = self._having(self._term("words", stem))
        return self._counts[stem]

    def _having(self, documents: tantivy.Query) -> int:
        require_time()
        found = self.searcher.search(documents, 1, count=True)
        having: int = found.count
        return having

    def _born_by(self, documents: tantivy.Query, at: int) -> tantivy.Query:
        born = tantivy.Query.range_query(self._schema, "born", FieldType.Integer, upper_bound=at)
        return tantivy.Query.boolean_query([(Occur.Must, documents), (Occur.Must, born)])

    def _idf(self, having: int) -> float:
        return math.log(1 + (self._documents - having + 0.5) / (having + 0.5))

    def _term(self, field: str, value: str) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, "basic")

    def _everything(self) -> tantivy.Query:
        """All documents, and not the checkpoint, which was never born."""
        return _scored(
            tantivy.Query.range_query(self._schema, "born", FieldType.Integer, lower_bound=1), 0
        )

    def _narrowed(
        self,
        clauses: _Clauses,
        at: int | None,
        kinds: frozenset[Kind] | None,
        labels: tuple[str, ...],
    ) -> _Clauses:
        """The clauses, for documents alive at `at` only, of one of `kinds`, with every one of `labels`."""
        if at is None:
            clauses.append((Occur.MustNot, self._retired))
        else:
            for field, low, high in (("born", None, at), ("died", at + 1, None)):
                span = tantivy.Query.range_query(
                    self._schema, field, FieldType.Integer, lower_bound=low, upper_bound=high
                )
                clauses.append((Occur.Must, tantivy.Query.const_score_query(span, 0.0)))
        if kinds is not None:
            # What is not wanted has the shorter lists: nearly all documents are of the graph.
            for kind in sorted(KINDS - kinds):
                clauses.append((Occur.MustNot, self._of_kind[kind]))
        for label in labels:
            labelled = self._term("labels", label)
            clauses.append((Occur.Must, tantivy.Query.const_score_query(labelled, 0.0)))
        return clauses

    def digest(self) -> str:
        """SHA-256 over every document, living or retired, whatever the order they were added in."""
        addresses = [hit[1] for hit in self.searcher.search(self._everything(), self._room()).hits]
        died = self.searcher.fast_field_values("died", addresses)
        rows = sorted(
            self.searcher.doc(address)["row"][0] + str(position).encode()
            for address, position in zip(addresses, died, strict=True)
        )
        hashed = sha256()
        for row in rows:
            hashed.update(len(row).to_bytes(4, "big") + row)
        return hashed.hexdigest()

    def _room(self) -> int:
        return max(self.searcher.num_docs, 1)

    # -- hits

    def _best(self, query: tantivy.Query, limit: int) -> list[TextHit]:
        """The best `limit`, cut by ref where scores tie: so far down must one look, not only to the cut."""
        asked = limit + TIES_SPARE
        while True:
            require_time()
            found = self.searcher.search(query, asked, count=False, weight_by_field="weight").hits
            if len(found) < asked or found[-1][0] < found[limit - 1][0]:
                break
            asked *= 4
        if len(found) > limit:
            found = [hit for hit in found if hit[0] >= found[limit - 1][0]]
        scale = LENGTH_PIVOT / (LENGTH_PIVOT + LENGTH_MAX)
        document = self.searcher.doc
        with Held(SMALL_CALLS):
            heads = [decode_head(document(address)["row"][0]) for _, address in found]
        hits = [
            TextHit(head.ref, head.kind, head.entity, score * scale)
            for (score, _), head in zip(found, heads, strict=True)
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.ref))
        return hits[:limit]

    def _row(self, address: Any) -> Row:
        return decode_row(self.searcher.doc(address)["row"][0])


def _scored(documents: tantivy.Query, score: float) -> tantivy.Query:
    """The documents, each with `score` to the nearest multiple of 1/1024 above 0."""
    return tantivy.Query.const_score_query(documents, max(round(score / _GRAIN), 1) * _GRAIN)


def _joined(clauses: _Clauses) -> tantivy.Query | None:
    return tantivy.Query.boolean_query(clauses) if clauses else None
