"""One state of the texts, and the two questions asked of it: by words and by part (`part`). They are on disk, or the
newest of them in memory (`layers`).

**By words.** Each word of the query stands for the set of documents that have it, and weighs its idf (`leaves`). A
document scores

    Σ idf · (1 + 1/3 if the word occurs more than once) · 100 / (100 + words in the document)

which is BM25 with its frequency curve cut to two steps and a fixed average length: with k1 = 1.2 and
b = 0.75, 69 words. The index's own BM25 was not taken: it counts deleted copies until a merge drops
them, so its ranks depend on how the log was cut into batches. Here an index that grew ranks as one
rebuilt. It costs nothing: on three conversations of LoCoMo recall@1 / 10 / 50 is 34.7 / 64.7 / 78.9,
against 31.6 / 63.6 / 78.6 with plain BM25, which punishes long turns too much.

Operators join things, not texts (`things`): the texts that have any of the words are ranked as above, and of
their entities those stay that satisfy the query with all their texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

from memlog.patience import require_time
from projections.documents import KINDS, NOW, Scope
from projections.query import Leaf, Phrase, Prefix, Query, Words, wanted
from projections.text import analysis
from projections.text.clauses import EVERYTHING, AnyTerm, Clause, Joined, Part, Scored, Span, Term
from projections.text.layers import Searching
from projections.text.leaves import Leaves, dated, scored
from projections.text.part import holding
from projections.text.rows import LENGTH_MAX, LENGTH_PIVOT, RETIRED, Row
from projections.things import TextHit, best_of_things, satisfied_by_nothing

THINGS_FEW = 100
"""Of more things than these, those that have a word are looked for among the texts that have it, if these are fewer."""

TIES_SPARE = 8
POSITIONS_KEPT = 8
"""As of so many positions it is kept how rare words were."""
WORDS_KEPT_MAX = 10_000
"""Of each of these, about so much: a state of the texts may be asked for weeks, and always for other words."""

_RETIRED = Term("slot", RETIRED)


class TextSnapshot:
    """Answers from one state of the texts, whatever is written meanwhile; any number of threads may ask."""

    def __init__(self, texts: Searching, position: int) -> None:
        self.texts = texts
        self.position = position
        self._kept: dict[int | None, Leaves] = {}

    def search(
        self, query: Query, scope: Scope = NOW, *, limit: int, of: frozenset[str] | None = None
    ) -> list[TextHit]:
        """The best `limit` texts that have any of what is wanted, of things that are as the query says, best first,
        ties by ref; for a query of words alone `of` some things, by their ids, where they are given."""
        if limit < 1:
            return []

        root, leaves = query.root, self._leaves(scope.at)
        if isinstance(root, Words | Phrase | Prefix):
            asked = leaves.clause(root, alone=True, loosely=True)
            if asked is None:
                return []
            return self.best(_narrowed([asked, *_among(of)], scope), limit)

        looked_up = cache(leaves.clause)
        stop_words_only = all(looked_up(leaf, alone=False) is None for leaf in wanted(root))
        clause = partial(looked_up, alone=stop_words_only)

        any_of = [found for leaf in wanted(root) if (found := clause(leaf)) is not None]
        if satisfied_by_nothing(root, lambda leaf: clause(leaf) is None):
            any_of.append(scored(EVERYTHING, 0))
        if not any_of:
            return []
        sought = _Sought(self, Joined(should=tuple(any_of)), clause, scope)
        return best_of_things(root, sought, limit)

    def dated(self, query: Query, scope: Scope, of: frozenset[str]) -> frozenset[str]:
        """Of a query of words alone: the refs of the documents of these things that have a date which it names."""
        root = query.root
        return self._refs(dated(root.text) if isinstance(root, Words) else None, scope, of)

    def meant(self, word: str, scope: Scope, of: frozenset[str]) -> frozenset[str]:
        """The refs of the documents of these things that have what a word is a slip of."""
        return self._refs(self._leaves(scope.at).slip(word), scope, of)

    def _refs(self, asked: Clause | None, scope: Scope, of: frozenset[str]) -> frozenset[str]:
        if asked is None:
            return frozenset()
        require_time()
        found = self.texts.having(_narrowed([asked, *_among(of)], scope))
        return frozenset(head.ref for head in self.texts.heads(found))

    def substring(self, needle: str, scope: Scope = NOW, *, limit: int) -> list[TextHit]:
        """Texts that hold `needle`, case and width aside; scores as in `part.part_score`.

        They are looked for among the shortest candidates, `CHECKED_MAX` more than `limit`, and no further than it takes
        to find `limit`.
        """
        needle = analysis.normalise(needle)
        if not needle or limit < 1:
            return []
        return holding(self.texts, needle, _narrowed([Part(needle)], scope), limit)

    def rarity(self, word: str, at: int | None = None) -> float:
        """How rare a word is among the texts, as `Leaves.rarity` says; among those there were `at` a position."""
        return self._leaves(at).rarity(word)

    def says(self, word: str, at: int | None = None) -> bool:
        """Whether some text has a word, in any form of the same stem; or had it `at` a position."""
        return self._leaves(at).says(word)

    def things(self, scope: Scope, most: int) -> frozenset[str] | None:
        """The ids of what the documents in the scope are of, entities and memories; None where these documents are more
        than `most`."""
        within = _narrowed([EVERYTHING], scope)
        return None if self.texts.count(within) > most else self.of(within)

    def living(self, ref: str) -> Row | None:
        """The document now living under `ref`."""
        found = self.texts.having(Term("slot", ref), 1)
        return self.texts.row(found[0]) if found else None

    def _leaves(self, at: int | None) -> Leaves:
        leaves = self._kept.get(at)
        if leaves is None or leaves.kept > WORDS_KEPT_MAX:
            if len(self._kept) >= POSITIONS_KEPT:
                self._kept = {}
            leaves = self._kept[at] = Leaves(self.texts, at)
        return leaves

    def of(self, asked: Clause) -> frozenset[str]:
        """The ids of what these documents are of."""
        heads = self.texts.heads(self.texts.having(asked))
        return frozenset(head.entity or head.ref for head in heads)

    # -- hits

    def best(self, asked: Clause, limit: int) -> list[TextHit]:
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


class _Sought:
    """The texts of a snapshot that have any of what a query wants, in its scope, and the things they are of."""

    def __init__(
        self,
        snapshot: TextSnapshot,
        wanted: Clause,
        clause: Callable[[Leaf], Clause | None],
        scope: Scope,
    ) -> None:
        self._snapshot = snapshot
        self._texts = snapshot.texts
        self._wanted = wanted
        self._clause = clause
        self._scope = scope

    def best(self, limit: int, things: frozenset[str] | None = None) -> list[TextHit]:
        sought = [self._wanted, *_among(things)]
        return self._snapshot.best(_narrowed(sought, self._scope), limit)

    def having(self, leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
        found = self._clause(leaf)
        if found is None:
            return None
        require_time()
        if len(things) > THINGS_FEW and self._texts.count(found) < len(things):
            return self._of(found) & things
        return self._of(found, AnyTerm("thing", tuple(things))) & things

    def count(self, leaf: Leaf) -> int | None:
        found = self._clause(leaf)
        return None if found is None else self._texts.count(_narrowed([found], self._scope))

    def things(self, leaf: Leaf) -> frozenset[str]:
        found = self._clause(leaf)
        return frozenset() if found is None else self._of(found)

    def _of(self, *clauses: Clause) -> frozenset[str]:
        return self._snapshot.of(_narrowed(clauses, self._scope))


def _among(things: frozenset[str] | None) -> list[Clause]:
    """For documents of these things only, where they are given."""
    return [] if things is None else [Scored(AnyTerm("thing", tuple(things)), 0.0)]


def _narrowed(clauses: Sequence[Clause], scope: Scope) -> Clause:
    """All of the clauses, for documents in the scope only."""
    at, kinds, labels, since, but = scope
    must: list[Clause] = list(clauses)
    without: list[Clause] = []
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
    if but:
        without.append(AnyTerm("thing", tuple(but)))
    must += [Scored(Term("labels", label), 0.0) for label in labels]
    return Joined(must=tuple(must), without=tuple(without))
