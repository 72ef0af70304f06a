"""One committed state of the text index on disk, and clauses in tantivy's words."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import groupby, product
from typing import Any, assert_never

import tantivy
from tantivy import FieldType, Occur

from memlog.patience import held
from memlog.scripts import UNSPACED_RANGES
from memlog.storage.gates import SMALL_CALLS
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
from projections.text.layers import Found
from projections.text.rows import CHECKPOINT, Head, Row, decode_head, decode_row, encode_row

PHRASE_WORDS_MAX = 10_000
"""So many words at most stand for the beginning of one in a phrase: tantivy refuses more than 16,384."""

PHRASE_PAIRS_MAX = 6_000
"""And so many pairs beside them for a character that ends these."""

TERMS_FEW = 100
"""So many terms are quicker looked up one by one than as a set, for which tantivy makes an automaton (0.15 ms)."""

COUNTS_KEPT_MAX = 10_000
"""So many counts are kept, some 2 MB: a state of the index may be asked for weeks, and always for other words."""


class OnDisk:
    """What a tantivy searcher sees; any number of threads may ask. `position` is that of its checkpoint."""

    def __init__(self, schema: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self._schema = schema
        self._searcher = searcher
        self._counts: dict[Term | InOrder, int] = {}
        self._beginning_many: set[str] = set()
        """What more than `TERMS_FEW` words are known to begin with."""
        checkpoint = self._query(Term("slot", CHECKPOINT))
        hits = searcher.search(checkpoint, 1, count=False).hits
        self.position: int = searcher.doc(hits[0][1])["position"][0] if hits else 0
        self.documents: int = searcher.num_docs - len(hits)

    def count(self, clause: Clause) -> int:
        """A question asks for each word more than once."""
        if not isinstance(clause, Term | InOrder):
            return self._count(clause)
        count = self._counts.get(clause)
        if count is None:
            if len(self._counts) >= COUNTS_KEPT_MAX:
                self._counts = {}
            count = self._counts[clause] = self._count(clause)
        return count

    def best(self, clause: Clause, limit: int) -> Found:
        asked = self._query(clause)
        found: Found
        found = self._searcher.search(
            asked, self._room(limit), count=False, weight_by_field="weight"
        ).hits
        return found

    def smallest(self, clause: Clause, limit: int) -> Found:
        found: Found = self._searcher.search(
            self._query(clause),
            self._room(limit),
            count=False,
            order_by_field="size",
            order=tantivy.Order.Asc,
        ).hits
        return found

    def having(self, clause: Clause, limit: int | None = None) -> list[Any]:
        hits = self._searcher.search(self._query(clause), self._room(limit), count=False).hits
        return [address for _, address in hits]

    def heads(self, addresses: Sequence[Any]) -> list[Head]:
        document = self._searcher.doc
        with held(SMALL_CALLS):
            return [decode_head(document(address)["row"][0]) for address in addresses]

    def row(self, address: Any) -> Row:
        return decode_row(self._searcher.doc(address)["row"][0])

    def digest(self) -> str:
        """SHA-256 over every document, living or retired, whatever the order they were added in."""
        addresses = self.having(EVERYTHING)
        died: Any = self._searcher.fast_field_values("died", addresses)
        rows = sorted(
            encode_row(self.row(address)) + str(position).encode()
            for address, position in zip(addresses, died, strict=True)
        )
        hashed = sha256()
        for row in rows:
            hashed.update(len(row).to_bytes(4, "big") + row)
        return hashed.hexdigest()

    def _room(self, limit: int | None) -> int:
        """For so many, as far as there are any: tantivy makes it first, and ends the process where it cannot."""
        return min(limit or sys.maxsize, max(self._searcher.num_docs, 1))

    def _count(self, clause: Clause) -> int:
        found: Any = self._searcher.search(self._query(clause), 1, count=True)
        count: int = found.count
        return count

    def _query(self, clause: Clause) -> tantivy.Query:
        """Most clauses are terms with a score, and this is done for some thirty in a search."""
        if isinstance(clause, Term):
            return tantivy.Query.term_query(self._schema, clause.field, clause.value, "basic")
        if isinstance(clause, Scored):
            return tantivy.Query.const_score_query(self._query(clause.clause), clause.score)
        if isinstance(clause, Joined):
            clauses = [(Occur.Must, self._query(each)) for each in clause.must]
            clauses += [(Occur.Should, self._query(each)) for each in clause.should]
            clauses += [(Occur.MustNot, self._query(each)) for each in clause.without]
            return tantivy.Query.boolean_query(clauses)
        return self._rarer(clause)

    def _rarer(self, clause: AnyTerm | InOrder | Part | Near | Span) -> tantivy.Query:
        schema = self._schema
        match clause:
            case AnyTerm(field, values):
                return self._any_term(field, values)
            case InOrder(words, begins, ends):
                return self._phrase([*words], begins, ends)
            case Part(needle):
                return self._trigrams(needle)
            case Near(field, value, distance):
                return tantivy.Query.fuzzy_term_query(
                    schema, field, value, distance=distance, transposition_cost_one=True
                )
            case Span(field, low, high):
                return tantivy.Query.range_query(
                    schema, field, FieldType.Integer, lower_bound=low, upper_bound=high
                )
            case _:
                assert_never(clause)

    def _any_term(self, field: str, values: Sequence[str]) -> tantivy.Query:
        if len(values) > TERMS_FEW:
            return tantivy.Query.term_set_query(self._schema, field, list(values))
        return self._terms(Occur.Should, field, values)

    def _trigrams(self, needle: str) -> tantivy.Query:
        """Some of the needle's trigrams, or all that begin with a shorter one."""
        if some := analysis.some_trigrams(needle):
            return self._terms(Occur.Must, "trigrams", some)
        found = self._searcher.terms_with_prefix("trigrams", needle)
        return self._any_term("trigrams", [gram for gram, _ in found])

    def _terms(self, occur: Occur, field: str, values: Sequence[str]) -> tantivy.Query:
        term, schema = tantivy.Query.term_query, self._schema
        clauses = [(occur, term(schema, field, value, "basic")) for value in values]
        return tantivy.Query.boolean_query(clauses)

    def _phrase(self, words: list[str], begins: bool, ends: bool) -> tantivy.Query:
        """Words consist of letters and digits, which mean themselves in a regular expression."""
        *before, last = words
        if not before:
            return self._beginning_with(last) if begins else self._query(Term("exact", last))
        if not begins and not ends:
            return tantivy.Query.phrase_query(self._schema, "exact", list(words))
        phrase, schema = tantivy.Query.regex_phrase_query, self._schema
        begun, ended = [[word] for word in before], [last]
        if ends:
            begun[0] = [*_endings(before[0])]
        if begins:
            ended = [*_patterns(last, self._words_beginning(last))]
        ways = product(*begun, ended)
        return tantivy.Query.boolean_query(
            [(Occur.Should, phrase(schema, "exact", list(way))) for way in ways]
        )

    def _beginning_with(self, prefix: str) -> tantivy.Query:
        """An automaton takes 0.2 ms to make, where a few terms are there at once; to list many takes as long as to
        look for them."""
        if prefix not in self._beginning_many:
            words = self._words_beginning(prefix)
            if len(words) <= TERMS_FEW:
                return self._terms(Occur.Should, "exact", words)
            self._beginning_many.add(prefix)
        return tantivy.Query.regex_query(self._schema, "exact", f"{prefix}.*")

    def _words_beginning(self, prefix: str) -> list[str]:
        """All words of the texts that begin so, in order."""
        return sorted(word for word, _ in self._searcher.terms_with_prefix("exact", prefix))


def _endings(end: str) -> Iterator[str]:
    """Expressions that together match what stands alone or behind a character of a script without spaces, each few
    enough words for a phrase."""
    yield end
    for first, last in UNSPACED_RANGES:
        for at in range(first, last + 1, PHRASE_PAIRS_MAX):
            yield f"[{chr(at)}-{chr(min(at + PHRASE_PAIRS_MAX - 1, last))}]{end}"


def _patterns(prefix: str, words: Sequence[str]) -> Iterator[str]:
    """Expressions that together match these words, sorted, which begin with `prefix`, each of few enough for a phrase:
    one for as many next characters as go together, for each costs a look at the whole index."""
    if len(words) <= PHRASE_WORDS_MAX:
        yield f"{prefix}.*"
        return
    run, having = "", 0
    for longer, found in groupby(words, lambda word: word[: len(prefix) + 1]):
        some = list(found)
        if longer == prefix:
            yield prefix
            continue
        if run and having + len(some) > PHRASE_WORDS_MAX:
            yield f"{prefix}[{run[0]}-{run[-1]}].*"
            run, having = "", 0
        if len(some) > PHRASE_WORDS_MAX:
            yield from _patterns(longer, some)
        else:
            run, having = run + longer[-1], having + len(some)
    if run:
        yield f"{prefix}[{run[0]}-{run[-1]}].*"
