"""One committed state of the text index, and the two questions asked of it: by words and by part (`part`).

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
from collections.abc import Sequence
from functools import cache, partial

from memlog.patience import require_time
from projections.documents import KINDS, Scope
from projections.query import Leaf, Phrase, Prefix, Query, Words, wanted
from projections.text import analysis
from projections.text.clauses import (
    EVERYTHING,
    AnyTerm,
    Clause,
    InOrder,
    Joined,
    Near,
    Part,
    Scored,
    Span,
    Term,
)
from projections.text.layers import Searching
from projections.text.part import holding
from projections.text.rows import LENGTH_MAX, LENGTH_PIVOT, RETIRED, Row
from projections.things import TextHit, best_of_things, satisfied_by_nothing

TERMS_MAX = 64
"""Distinct words of one run of plain words that are looked up; the rest of a longer run is dropped."""

PREFIX_MAX = 64
"""Characters of a prefix that count; the index refuses expressions of more than 1,000 states."""

MISSPELT_LETTERS_MIN, MISSPELT_TWICE_LETTERS_MIN = 4, 8
"""From how many letters on a word that no text has may be one letter away from what was meant, and two."""

THINGS_FEW = 100
"""Of more things than these, those that have a word are looked for among the texts that have it, if these are fewer."""

MISSPELT_LETTERS_MAX = 64
"""Longer ones are no words: what finds those near to one grows with it, to a hundred megabytes for 10,000 letters."""

MISSPELT_SHARE = 0.5
UNKNOWN_SHARE = 0.5
"""Of its rarity, for a word that no text has: it would count as the rarest of all, though it tells no text from
another. What a question is wrapped in, as a greeting or a plea, is of such words; so is what has another word there."""
REPEATED_SHARE = 1 / 3
TIES_SPARE = 8
_GRAIN = 1 / 1024

_RETIRED = Term("slot", RETIRED)


class TextSnapshot:
    """Answers from one state of the texts, whatever is written meanwhile; any number of threads may ask."""

    def __init__(self, texts: Searching, position: int) -> None:
        self.texts = texts
        self.position = position
        self._rarities: dict[str, float] = {}

    def search(self, query: Query, scope: Scope, limit: int) -> list[TextHit]:
        """The best texts that have any of what is wanted, of things that are as the query says."""
        if limit < 1:
            return []

        def narrowed(*clauses: Clause) -> Clause:
            return _narrowed(clauses, scope)

        root, at = query.root, scope.at
        if isinstance(root, Words | Phrase | Prefix):
            asked = self._leaf(root, at=at, alone=True)
            return [] if asked is None else self._best(narrowed(asked), limit)

        looked_up = cache(partial(self._leaf, at=at))
        stop_words_only = all(looked_up(leaf, alone=False) is None for leaf in wanted(root))
        clause = partial(looked_up, alone=stop_words_only)

        leaves = [found for leaf in wanted(root) if (found := clause(leaf)) is not None]
        if satisfied_by_nothing(root, lambda leaf: clause(leaf) is None):
            leaves.append(_scored(EVERYTHING, 0))
        if not leaves:
            return []
        texts = narrowed(Joined(should=tuple(leaves)))

        def having(leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
            found = clause(leaf)
            if found is None:
                return None
            require_time()
            if len(things) > THINGS_FEW and self._having(found) < len(things):
                among = narrowed(found)
            else:
                among = narrowed(found, AnyTerm("thing", tuple(things)))
            heads = self.texts.heads(self.texts.having(among))
            return frozenset(head.entity or head.ref for head in heads) & things

        return best_of_things(root, lambda asked: self._best(texts, asked), having, limit)

    def substring(self, needle: str, scope: Scope, limit: int) -> list[TextHit]:
        needle = analysis.normalise(needle)
        if not needle or limit < 1:
            return []
        return holding(self.texts, needle, _narrowed([Part(needle)], scope), limit)

    def rarity(self, word: str) -> float:
        """The idf of a word as a search by words counts it, a share of it where no text has the word; 0 of stop words
        and of what is no word."""
        if word not in self._rarities:
            plain = analysis.spaced(analysis.normalise(word)).strip()
            stems = [] if plain in analysis.STOP_WORDS else analysis.stemming.analyze(plain)
            counts = [self._having(Term("words", stem)) for stem in stems]
            found = [self._idf(having) * (1 if having else UNKNOWN_SHARE) for having in counts]
            self._rarities[word] = max(found, default=0.0)
        return self._rarities[word]

    def things(self, scope: Scope, most: int) -> set[str] | None:
        """The ids of what the documents in the scope are of, entities and memories; None where these documents are more
        than `most`."""
        found = self.texts.having(_narrowed([EVERYTHING], scope), most + 1)
        if len(found) > most:
            return None
        return {head.entity or head.ref for head in self.texts.heads(found)}

    def living(self, ref: str) -> Row | None:
        """The document now living under `ref`."""
        found = self.texts.having(Term("slot", ref), 1)
        return self.texts.row(found[0]) if found else None

    # -- a query as the index understands it

    def _leaf(self, leaf: Leaf, *, at: int | None, alone: bool) -> Clause | None:
        """None where there is nothing to look up."""
        match leaf:
            case Words(text):
                return self._any_of(text, at, keep_stop_words=alone)
            case Phrase(text):
                words = self._exact(text)
                return self._phrase(words) if words else self._symbols(text)
            case Prefix(text):
                words = self._exact(text)
                words[-1:] = [word[:PREFIX_MAX] for word in words[-1:]]
                return self._phrase(words, begins=True) if words else self._symbols(text)

    def _any_of(self, text: str, at: int | None, *, keep_stop_words: bool) -> Clause | None:
        """Any word of `text`, or emoji. A word like `X-4471-b` is its words, and more where they stand together."""
        stems: dict[str, None] = {}
        stop_stems: dict[str, None] = {}
        identifiers: list[list[str]] = []
        symbols: dict[str, None] = {}
        for chunk in analysis.spaced(analysis.normalise(text)).split():
            symbols |= dict.fromkeys(analysis.symbols(chunk))
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
        clauses: list[Clause] = []
        for stem in list(stems)[:TERMS_MAX]:
            clauses += self._word(stem, at)
        clauses += [self._phrase(plain) for plain in identifiers[:TERMS_MAX]]
        clauses += [self._anywhere(symbol) for symbol in list(symbols)[:TERMS_MAX]]
        return Joined(should=tuple(clauses)) if clauses else None

    def _word(self, stem: str, at: int | None) -> list[Clause]:
        if analysis.is_unpaired(stem):
            return [self._anywhere(stem)]
        documents = Term("words", stem)
        having = self._having(documents)
        if having == 0 or (at is not None and not self._having(_born_by(documents, at))):
            # As it would have been then: nobody had said the word. It is looked up all the same, in vain:
            # a part of a query that finds nothing is not one that asks for nothing.
            return self._misspelt(stem) or [documents]
        idf = self._idf(having)
        return [_scored(documents, idf), _scored(Term("repeated", stem), idf * REPEATED_SHARE)]

    def _misspelt(self, stem: str) -> list[Clause]:
        """The words that a word which no text has may have been meant for: one or two letters away."""
        if not MISSPELT_LETTERS_MIN <= len(stem) <= MISSPELT_LETTERS_MAX or not stem.isalpha():
            return []
        near = Near(stem, 1 if len(stem) < MISSPELT_TWICE_LETTERS_MIN else 2)
        having = self._having(near)
        return [_scored(near, self._idf(having) * MISSPELT_SHARE)] if having else []

    def _exact(self, text: str) -> list[str]:
        return analysis.exact.analyze(analysis.spaced(analysis.normalise(text)))[:TERMS_MAX]

    def _symbols(self, text: str) -> Clause | None:
        """All those of a text that has no word."""
        chunks = analysis.normalise(text).split()
        symbols = dict.fromkeys(each for chunk in chunks for each in analysis.symbols(chunk))
        every = tuple(self._anywhere(symbol) for symbol in list(symbols)[:TERMS_MAX])
        return Joined(must=every) if every else None

    def _anywhere(self, needle: str) -> Clause:
        anywhere = Part(needle)
        return _scored(anywhere, self._idf(self._having(anywhere)))

    def _phrase(self, words: list[str], *, begins: bool = False) -> Clause:
        if len(words) == 1 and not begins and analysis.is_unpaired(words[0]):
            return self._anywhere(words[0])
        phrase = InOrder(tuple(words), begins)
        return _scored(phrase, self._idf(self._having(phrase)))

    def _having(self, documents: Clause) -> int:
        require_time()
        return self.texts.count(documents)

    def _idf(self, having: int) -> float:
        return math.log(1 + (self.texts.documents - having + 0.5) / (having + 0.5))

    # -- hits

    def _best(self, asked: Clause, limit: int) -> list[TextHit]:
        """The best `limit`, cut by ref where scores tie: so far down must one look, not only to the cut."""
        depth = limit + TIES_SPARE
        while True:
            require_time()
            found = self.texts.best(asked, depth)
            if len(found) < depth or found[-1][0] < found[limit - 1][0]:
                break
            depth *= 4
        if len(found) > limit:
            found = [hit for hit in found if hit[0] >= found[limit - 1][0]]
        scale = LENGTH_PIVOT / (LENGTH_PIVOT + LENGTH_MAX)
        heads = self.texts.heads([address for _, address in found])
        hits = [
            TextHit(head.ref, head.kind, head.entity, score * scale)
            for (score, _), head in zip(found, heads, strict=True)
        ]
        if len({score for score, _ in found}) < len(found):
            hits.sort(key=lambda hit: (-hit.score, hit.ref))
        return hits[:limit]


def _narrowed(clauses: Sequence[Clause], scope: Scope) -> Clause:
    """All of the clauses, for documents in the scope only."""
    at, kinds, labels, since = scope
    must, without = list(clauses), []
    if at is None:
        without.append(_RETIRED)
    else:
        spans = Span("born", high=at), Span("died", low=at + 1)
        must += [Scored(span, 0.0) for span in spans]
    if since:
        must.append(Scored(Span("born", low=since + 1), 0.0))
    if kinds is not None:
        # What is not wanted has the shorter lists: nearly all documents are of the graph.
        without += [Term("kind", kind) for kind in KINDS if kind not in kinds]
    must += [Scored(Term("labels", label), 0.0) for label in labels]
    return Joined(must=tuple(must), without=tuple(without))


def _born_by(documents: Clause, at: int) -> Clause:
    return Joined(must=(documents, Span("born", high=at)))


def _scored(documents: Clause, score: float) -> Clause:
    """The documents, each with `score` to the nearest multiple of 1/1024 above 0."""
    return Scored(documents, max(round(score / _GRAIN), 1) * _GRAIN)
