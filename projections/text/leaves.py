"""The leaves of a query as clauses, each weighed by how rare it is among the texts there are, or were at a position.

A word, a phrase or a prefix weighs

    idf = ln(1 + (N - n + 0.5) / (n + 0.5))                  N documents, n of them have it

as in BM25 (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009), to the nearest multiple of 1/1024,
so that sums are exact in single precision. N and n count what was ever born, by the position that is asked for where
one is: so a search as of then finds what one found then, in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, TypeVar

from memlog.patience import require_time
from projections.query import Leaf, Phrase, Prefix, Words
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
from projections.text.dates import Date, dates, naming
from projections.text.layers import Searching
from projections.text.rows import RETIRED

TERMS_MAX = 64
"""Of one run of plain words so many distinct ones are looked up: of more, the rarest."""

DATES_MAX = 8
"""Of the dates that a query names, so many."""

PREFIX_MAX = 64
"""Characters of a prefix that count; the index refuses expressions of more than 1,000 states."""

MISSPELT_LETTERS_MIN, MISSPELT_TWICE_LETTERS_MIN = 4, 8
"""From how many letters on a word that no text has may be a letter away from what was meant, or within it; and two."""

WITHIN_TEXTS, WITHIN_CHARACTERS = 100, 100_000
"""So many texts at most, the shortest, of about so many characters in all, are read for the longer words that have one
which no text has by itself."""

MISSPELT_LETTERS_MAX = 64
"""Longer ones are no words: what finds those near to one grows with it, to a hundred megabytes for 10,000 letters."""

BEGINNING_LETTERS_MIN, BEGINNING_TENTHS = 4, 6
"""What begins with so many letters of a word, and so much of it, may be another form of it."""

MISSPELT_SHARE = 0.5
BEGINNING_SHARE = 0.1
UNKNOWN_SHARE = 0.5
"""Of its rarity, for a word that no text has: it would count as the rarest of all, though it tells no text from
another. What a question is wrapped in, as a greeting or a plea, is of such words; so is what has another word there."""
REPEATED_SHARE = 1 / 3
_GRAIN = 1 / 1024
_RETIRED = Term("slot", RETIRED)

Wanted = TypeVar("Wanted")


class _Typed(NamedTuple):
    """A word as it is indexed, and what was typed, normalised, that it stands in."""

    word: str
    among: str

    def as_it_stands(self) -> str:
        """With its accents, as a normalised text has it."""
        typed = (each for each in analysis.standing(self.among) if _plain(each) == self.word)
        return next(typed, self.word)


class Leaves:
    """What is asked of `texts` as they are, or as they were `at` a position."""

    def __init__(self, texts: Searching, at: int | None) -> None:
        self._texts = texts
        self._at = at
        self._born = () if at is None else (Span("born", low=1, high=at),)
        self._documents = texts.documents if at is None else self._having(*self._born)
        self._rarities: dict[str, float] = {}
        self._said: dict[str, bool] = {}

    @property
    def kept(self) -> int:
        """How much is known of the words that were asked for."""
        return len(self._rarities) + len(self._said)

    def clause(self, leaf: Leaf, *, alone: bool, loosely: bool = False) -> Clause | None:
        """None where there is nothing to look up: stop words count only where they stand `alone`. Other forms of words,
        and longer ones that have them, count `loosely`, where nothing is kept out by it."""
        match leaf:
            case Words(text):
                return self._any_of(text, keep_stop_words=alone, loosely=loosely)
            case Phrase(text):
                words = _exact(text)
                return self._phrase(words, *_cut(text)) if words else self._symbols(text)
            case Prefix(text):
                words = _exact(text)
                words[-1:] = [word[:PREFIX_MAX] for word in words[-1:]]
                ends, _ = _cut(text)
                return self._phrase(words, ends, True) if words else self._symbols(text)

    def rarity(self, word: str) -> float:
        """The idf of a word as a search by words counts it, a share of it where no text has the word; 0 of stop words
        and of what is no word."""
        if word not in self._rarities:
            plain = analysis.spaced(analysis.normalise(word)).strip()
            stems = [] if plain in analysis.STOP_WORDS else analysis.stems(plain)
            counts = [self._having(Term("words", stem)) for stem in stems]
            found = [self._idf(having) * (1 if having else UNKNOWN_SHARE) for having in counts]
            self._rarities[word] = max(found, default=0.0)
        return self._rarities[word]

    def says(self, word: str) -> bool:
        """Whether a text has the word that lives, or lived then, in any form of the same stem."""
        return any(map(self._is_said, analysis.stems(analysis.spaced(analysis.normalise(word)))))

    def slip(self, word: str) -> Clause | None:
        """The documents that have a word near to one that no text has, not even within a longer one; None where there
        are none, or where it is no word."""
        plain = analysis.spaced(analysis.normalise(word)).strip()
        stem, *others = analysis.stems(plain) or [""]
        if not stem or others or plain in analysis.STOP_WORDS or self._is_said(stem):
            return None
        near = self._near(stem, plain)
        return None if near is None or self._within(_Typed(plain, plain)) else near

    # -- plain words

    def _any_of(self, text: str, *, keep_stop_words: bool, loosely: bool) -> Clause | None:
        """Any word of `text`, or emoji. A word like `X-4471-b` or `applyDiscount` is its words, and more where they
        stand together."""
        stems: dict[str, _Typed] = {}
        """Each with the word that it was cut off first."""
        stop_stems: dict[str, _Typed] = {}
        identifiers = dict.fromkeys(map(tuple, analysis.humps(text)))
        symbols: dict[str, None] = {}
        for typed in analysis.normalise(text).split():
            for chunk in analysis.spaced(typed).split():
                symbols |= dict.fromkeys(analysis.symbols(chunk))
                telling = 0
                plain = analysis.exact.analyze(chunk)
                for word, stem in zip(plain, analysis.stems(chunk), strict=True):
                    telling += word not in analysis.STOP_WORDS
                    kept = stop_stems if word in analysis.STOP_WORDS else stems
                    kept.setdefault(stem, _Typed(word, typed))
                if telling > 1:
                    identifiers[tuple(plain)] = None
                stems |= {number: _Typed(number, chunk) for number in analysis.ungrouped(chunk)}
        if not stems and keep_stop_words:
            stems = stop_stems
        clauses: list[Clause] = []
        for stem in self._rarest(stems, lambda stem: Term("words", stem)):
            clauses += self._word(stem, stems[stem], loosely)
        clauses += [
            self._weighed(each)
            for each in self._rarest(map(_together, identifiers), lambda each: each)
        ]
        clauses += [self._anywhere(symbol) for symbol in list(symbols)[:TERMS_MAX]]
        clauses += self._dated(text)
        return Joined(should=tuple(clauses)) if clauses else None

    def _rarest(
        self, wanted: Iterable[Wanted], documents: Callable[[Wanted], Clause]
    ) -> list[Wanted]:
        """`TERMS_MAX` of them at most: first those that some text has, the rarest first."""
        every = list(wanted)
        if len(every) <= TERMS_MAX:
            return every
        counts = [self._having(documents(each)) or math.inf for each in every]
        return [every[at] for at in sorted(range(len(every)), key=counts.__getitem__)[:TERMS_MAX]]

    def _word(self, stem: str, typed: _Typed, loosely: bool) -> list[Clause]:
        if analysis.is_unpaired(stem):
            return [self._anywhere(stem)]
        number = _number(typed.word)
        if number is None and not self._is_said(stem):
            # Looked up all the same, in vain or among what has died: a part of a query that finds nothing is not one
            # that asks for nothing.
            return self._meant(stem, typed, loosely) or [Term("words", stem)]
        documents = number or Term("words", stem)
        idf = self._idf(self._having(documents))
        found = [scored(documents, idf), scored(Term("repeated", stem), idf * REPEATED_SHARE)]
        if loosely and (beginning := _beginning(typed.word)):
            found.append(scored(beginning, idf * BEGINNING_SHARE))
        return found

    def _is_said(self, stem: str) -> bool:
        """Whether a text has the word that lives, or lived then."""
        if stem not in self._said:
            self._said[stem] = self._has_living(Term("words", stem))
        return self._said[stem]

    def _has_living(self, documents: Term) -> bool:
        having = self._having(documents)
        if having == 0:
            return False
        if self._at is not None:
            return self._having(documents, Span("died", low=self._at + 1)) > 0
        if having > self._having(_RETIRED):  # not all of them can be dead: no need to look
            return True
        return self._having(Joined(must=(documents,), without=(_RETIRED,))) > 0

    def _meant(self, stem: str, typed: _Typed, loosely: bool) -> list[Clause]:
        """What a word that no text has may be meant for: those that are near to it or begin as it does, each a share of
        what a word counts; and longer ones, as `Wohnungsschlüssel` for `Schlüssel`."""
        meant = [(self._near(stem, typed.word), MISSPELT_SHARE)]
        if loosely:
            meant += [(_beginning(typed.word), BEGINNING_SHARE), (self._within(typed), 1)]
        counts = [(clause, self._having(clause), share) for clause, share in meant if clause]
        return [
            scored(clause, self._idf(having) * share) for clause, having, share in counts if having
        ]

    def _near(self, stem: str, word: str) -> Clause | None:
        """The words one or two letters away, as they stand or by their stem. A slip in an ending keeps it from being
        cut off, and one elsewhere has it cut off all the same."""
        slips = 1 if len(stem) < MISSPELT_TWICE_LETTERS_MIN else 2
        forms = [form for form in (("words", stem), ("exact", word)) if _may_be_meant(form[1])]
        return Joined(should=tuple(Near(*form, slips) for form in forms)) if forms else None

    def _within(self, typed: _Typed) -> Clause | None:
        """The longer words that have it. The index knows parts by their trigrams, and a long text has those of many a
        word that is not in it: so some texts are read for such words."""
        if not _may_be_meant(typed.word):
            return None
        part = typed.as_it_stands()
        texts = (text for text in self._shortest(Part(part)) if part in text)
        longer = {word for text in texts for word in analysis.standing(text) if part in word}
        return AnyTerm("exact", tuple(sorted({*map(_plain, longer)}))) if longer else None

    def _shortest(self, documents: Clause) -> Iterator[str]:
        """Texts of some of the documents."""
        room = WITHIN_CHARACTERS
        for _, address in self._texts.smallest(Joined(must=(documents, *self._born)), WITHIN_TEXTS):
            if room > 0:
                text = self._texts.row(address).text
                room -= len(text)
                yield text

    def _dated(self, text: str) -> list[Clause]:
        """What has a date that the words of `text` name, however it is written. It weighs what they do and what the
        date does: who has all of it in other words has more than who has most of the words.
        """
        words = _exact(text)
        found = []
        for date in named(words):
            documents = naming(date)
            weight = sum(self.rarity(words[place]) for place in date.places)
            found.append(scored(documents, weight + self._idf(self._having(documents))))
        return found

    # -- phrases, and what is no word

    def _symbols(self, text: str) -> Clause | None:
        """All those of a text that has no word."""
        chunks = analysis.normalise(text).split()
        symbols = dict.fromkeys(each for chunk in chunks for each in analysis.symbols(chunk))
        every = tuple(self._anywhere(symbol) for symbol in list(symbols)[:TERMS_MAX])
        return Joined(must=every) if every else None

    def _anywhere(self, needle: str) -> Clause:
        return self._weighed(Part(needle))

    def _phrase(self, words: list[str], ends: bool = False, begins: bool = False) -> Clause:
        if len(words) == 1 and analysis.is_unpaired(words[0]):
            return self._anywhere(words[0])
        return self._weighed(InOrder(tuple(words), begins, ends))

    def _weighed(self, documents: Clause) -> Clause:
        return scored(documents, self._idf(self._having(documents)))

    # -- counting

    def _having(self, *documents: Clause) -> int:
        require_time()
        if self._at is None and len(documents) == 1:
            return self._texts.count(documents[0])
        return self._texts.count(Joined(must=(*documents, *self._born)))

    def _idf(self, having: int) -> float:
        return math.log(1 + (self._documents - having + 0.5) / (having + 0.5))


def _number(word: str) -> Clause | None:
    """A number that has thousands, in one or as `48,500` writes it; None for any other word."""
    if not word.isdecimal() or not 3 < len(word) <= MISSPELT_LETTERS_MAX:
        return None
    return Joined(should=(Term("words", word), InOrder(tuple(analysis.grouped(word)))))


def _together(words: tuple[str, ...]) -> Clause:
    """The words of an identifier in order, or, of letters alone, in one: `10.50` is not `1050`."""
    in_order, whole = InOrder(words), "".join(words)
    return Joined(should=(in_order, Term("exact", whole))) if whole.isalpha() else in_order


def _may_be_meant(word: str) -> bool:
    return MISSPELT_LETTERS_MIN <= len(word) <= MISSPELT_LETTERS_MAX and word.isalpha()


def _beginning(word: str) -> Clause | None:
    """The words that begin as it does: of most languages nothing else is known of the forms that a word has."""
    letters = max(BEGINNING_LETTERS_MIN, -(-BEGINNING_TENTHS * len(word) // 10))
    if letters >= len(word) or not _may_be_meant(word):
        return None
    return InOrder((word[:letters],), begins=True)


def dated(text: str) -> Clause | None:
    """What has a date that the words of `text` name, however it is written; None where they name none."""
    found = tuple(map(naming, named(_exact(text))))
    return Joined(should=found) if found else None


def named(words: Sequence[str]) -> Iterator[Date]:
    """The dates that are looked up of those that the words name."""
    return islice(dates(words), DATES_MAX)


def scored(documents: Clause, score: float) -> Clause:
    """The documents, each with `score` to the nearest multiple of 1/1024 above 0."""
    return Scored(documents, max(round(score / _GRAIN), 1) * _GRAIN)


def _cut(text: str) -> tuple[bool, bool]:
    """Whether a phrase begins, and whether it ends, with one character of a script without spaces right beside a word
    of another, as `用React写` does: a text may have it in a pair with what is before it, or behind."""
    chunks = text.split() or [""]
    first, last = _exact(chunks[0]), _exact(chunks[-1])
    return (
        len(first) > 1 and analysis.is_unpaired(first[0]),
        len(last) > 1 and analysis.is_unpaired(last[-1]),
    )


def _plain(word: str) -> str:
    """A word of a normalised text as it is indexed."""
    return "".join(analysis.exact.analyze(analysis.spaced(word)))


def _exact(text: str) -> list[str]:
    return analysis.exact.analyze(analysis.spaced(analysis.normalise(text)))[:TERMS_MAX]
