"""A few documents in memory, and the clauses that are true of them, as an index on disk would have it (`on_disk`).

They are cut into terms by the same analysers. Documents are only added; each state of them is a snapshot, which sees
those that were there by then.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from ctypes import c_float
from heapq import nlargest, nsmallest
from itertools import islice, takewhile
from operator import itemgetter
from typing import assert_never

import msgspec
from rapidfuzz.distance import OSA

from projections.text import analysis
from projections.text.clauses import (
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
from projections.text.rows import Row, size, weight

TERM_BYTES_MAX = 65_530
"""tantivy leaves longer terms out."""

Scores = dict[int, float]
"""By the number of the document."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A document that lives where `slot` is its ref. `tokens` are its words as they stand, in order; its score is
    multiplied with `boost`."""

    row: Row
    slot: str
    died: int
    tokens: list[str]
    boost: float
    size: int


class Newest:
    """The documents, numbered as they came. One thread at a time adds and deletes."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._deleted: set[int] = set()
        self._terms: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
        """By field and term, the documents that have it."""
        self._ordered: list[str] = []
        """The first so many of the words as they stand, in order."""

    def add(self, row: Row, slot: str, died: int) -> None:
        spaced = analysis.spaced(row.text)
        words = analysis.words(spaced)
        tokens = [_fitting(token) for token in analysis.exact.analyze(spaced)]
        fields: dict[str, Iterable[str]] = {
            "slot": (slot,),
            "kind": (row.kind,),
            "labels": row.labels,
            "thing": (row.entity or row.ref,),
            "words": analysis.stems(f"{spaced} {row.parts}"),
            "repeated": analysis.stems(analysis.repeated(words)),
            "exact": tokens,
        }
        number = len(self.entries)
        boost = _single(math.log2(_single(2.0 + weight(row.ref, len(words)))))
        self.entries.append(Entry(row, slot, died, tokens, boost, size(row.ref, len(row.text))))
        for field, values in fields.items():
            terms = self._terms[field]
            for value in dict.fromkeys(values):
                if _fitting(value):
                    terms.setdefault(value, []).append(number)

    def delete(self, slot: str) -> None:
        self._deleted.update(self.with_term("slot", slot))

    def snapshot(self) -> NewestSnapshot:
        return NewestSnapshot(self, frozenset(range(len(self.entries))) - self._deleted)

    # -- for snapshots, which may ask while documents are added

    def with_term(self, field: str, value: str) -> Sequence[int]:
        return self._terms[field].get(value, ())

    def terms(self, field: str) -> list[str]:
        return list(self._terms[field])

    def words_beginning(self, prefix: str) -> Iterable[str]:
        """Those of the words as they stand that begin so."""
        ordered = self._ordered
        if len(ordered) < len(self._terms["exact"]):
            ordered = self._ordered = sorted([*ordered, *self.terms("exact")[len(ordered) :]])
        first = bisect_left(ordered, prefix)
        return takewhile(lambda word: word.startswith(prefix), islice(ordered, first, None))


class NewestSnapshot:
    """Answers of what was there when it was made; any number of threads may ask. An address is a document's number."""

    def __init__(self, newest: Newest, seen: frozenset[int]) -> None:
        self._newest = newest
        self._entries = newest.entries
        self._seen = seen
        self.documents = len(seen)

    def count(self, clause: Clause) -> int:
        return len(self._scores(clause, self._seen))

    def best(self, clause: Clause, limit: int) -> Found:
        scores = self._scores(clause, self._seen)
        weighed = [(_single(score * self._entries[at].boost), at) for at, score in scores.items()]
        return nlargest(limit, weighed, key=itemgetter(0))

    def smallest(self, clause: Clause, limit: int) -> Found:
        return nsmallest(
            limit, [(self._entries[at].size, at) for at in self._scores(clause, self._seen)]
        )

    def having(self, clause: Clause, limit: int | None = None) -> list[int]:
        return list(self._scores(clause, self._seen))[:limit]

    def heads(self, addresses: Sequence[int]) -> list[Row]:
        return [self._entries[at].row for at in addresses]

    def row(self, address: int) -> Row:
        return self._entries[address].row

    # -- what a clause is true of

    def _scores(self, clause: Clause, among: Collection[int]) -> Scores:
        """Those of `among` of which the clause is true."""
        match clause:
            case Term(field, value):
                return self._with_any(field, (value,), among)
            case AnyTerm(field, values):
                return self._with_any(field, values, among)
            case InOrder():
                return self._with_phrase(clause, among)
            case Part(needle):
                return self._with_trigrams(needle, among)
            case Near(field, value, distance):
                near = [
                    term
                    for term in self._newest.terms(field)
                    if OSA.distance(value, term, score_cutoff=distance) <= distance
                ]
                return self._with_any(field, near, among)
            case Span(field, low, high):
                first = -math.inf if low is None else low
                last = math.inf if high is None else high
                if field == "born":
                    return self._where(lambda entry: first <= entry.row.born <= last, among)
                return self._where(lambda entry: first <= entry.died <= last, among)
            case Scored(of, score):
                return dict.fromkeys(self._scores(of, among), score)
            case Joined():
                return self._joined(clause, among)
            case _:
                assert_never(clause)

    def _joined(self, clause: Joined, among: Collection[int]) -> Scores:
        scores: Scores = dict.fromkeys(among, 0.0) if clause.must else {}
        for must in clause.must:
            found = self._scores(must, scores.keys())
            scores = {at: scores[at] + score for at, score in found.items()}
        for should in clause.should:
            found = self._scores(should, scores.keys() if clause.must else among)
            for at, score in found.items():
                scores[at] = scores.get(at, 0.0) + score
        for without in clause.without:
            for at in self._scores(without, scores.keys()):
                del scores[at]
        return scores

    def _with_any(self, field: str, values: Iterable[str], among: Collection[int]) -> Scores:
        having = self._newest.with_term
        return {at: 1.0 for value in values for at in having(field, value) if at in among}

    def _where(self, so: Callable[[Entry], bool], among: Collection[int]) -> Scores:
        return {at: 1.0 for at in among if so(self._entries[at])}

    def _with_trigrams(self, needle: str, among: Collection[int]) -> Scores:
        """Where only so many of them are read, those that just may have the needle count as well."""
        entries = self._entries
        for part in analysis.some_trigrams(needle) or [needle]:
            among = [at for at in among if part in entries[at].row.text]
        return dict.fromkeys(among, 1.0)

    def _with_phrase(self, phrase: InOrder, among: Collection[int]) -> Scores:
        words, begins, last = phrase.words, phrase.begins, len(phrase.words) - 1
        if begins and not last:  # a query may have hundreds of them, and a text thousands of words
            return self._with_any("exact", self._newest.words_beginning(words[0]), among)
        first = int(phrase.ends and last > 0)
        whole = list(words[first : last if begins else last + 1])
        for word in whole:
            among = self._with_any("exact", (word,), among).keys()

        def has(entry: Entry) -> bool:
            tokens = entry.tokens
            return any(
                tokens[at + first : at + first + len(whole)] == whole
                and (not first or _ends(tokens[at], words[0]))
                and (not begins or tokens[at + last].startswith(words[-1]))
                for at in range(len(tokens) - last)
            )

        return self._where(has, among)


def _ends(token: str, end: str) -> bool:
    return token == end or (token[1:] == end and analysis.is_unpaired(token[:1]))


def _fitting(term: str) -> str:
    """The term, or none where an index leaves it out."""
    return term if len(term) <= TERM_BYTES_MAX // 4 or len(term.encode()) <= TERM_BYTES_MAX else ""


def _single(number: float) -> float:
    """In single precision, as tantivy computes scores."""
    return c_float(number).value
