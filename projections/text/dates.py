"""The dates that a query names, and how else a text may have them: `17 March 2025` is `2025-03-17` and `17.03.2025`.

Compared word by word the two have the day and the year alone in common, and a month none of its days. Of the languages
that name months, English is known.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from projections.text.clauses import AnyTerm, Clause, InOrder, Joined, Term

_MONTHS = {
    name.lower(): number
    for names in (calendar.month_name, calendar.month_abbr, [""] * 9 + ["Sept"])
    for number, name in enumerate(names)
    if name
}
_YEAR = re.compile("(?:19|20)[0-9]{2}")
_MONTH = re.compile("0[1-9]|1[0-2]")
_MONTH_AFTER_DAY = re.compile("0?[1-9]|1[0-2]")
"""Behind a year, one digit is more likely a count: `in 2025 3 people came`."""

_ENDINGS = ("st", "nd", "rd", "th")
_DAY = re.compile(f"(0?[1-9]|[12][0-9]|3[01])(?:{'|'.join(_ENDINGS)}|t[0-9]{{2}})?")
"""Also where a time stands behind it, as in 2025-03-17T10:30."""


class Date(NamedTuple):
    """A day of a year, a month of a year, or a day of any year; and the places of the words that name it."""

    year: str | None
    month: int
    day: int | None
    places: tuple[int, ...]


def dates(words: Sequence[str]) -> Iterator[Date]:
    """Those that the words of a query name: a month, and with it a day or a year."""
    for at, word in enumerate(words):
        if word in _MONTHS:
            before = at - 2 if at and words[at - 1] == "of" else at - 1
            day = _place(_DAY, words, (before, at + 1))
            year = _place(_YEAR, words, (at + 1, at + 2))
            if day is not None or year is not None:
                yield _date(words, year, _MONTHS[word], at, day)
        elif _YEAR.fullmatch(word):
            day = _place(_DAY, words, (at - 2,))
            if day is not None and _MONTH_AFTER_DAY.fullmatch(words[at - 1]):
                yield _date(words, at, int(words[at - 1]), at - 1, day)
            elif _place(_MONTH, words, (at + 1,)) is not None:
                yield _date(words, at, int(words[at + 1]), at + 1, _place(_DAY, words, (at + 2,)))


def _place(pattern: re.Pattern[str], words: Sequence[str], places: Sequence[int]) -> int | None:
    """The first of these at which there is such a word."""
    there = (at for at in places if 0 <= at < len(words))
    return next((at for at in there if pattern.fullmatch(words[at])), None)


def _date(words: Sequence[str], year: int | None, month: int, at: int, day: int | None) -> Date:
    found = None if day is None else _DAY.fullmatch(words[day])
    places = tuple(each for each in (year, at, day) if each is not None)
    return Date(None if year is None else words[year], month, found and int(found[1]), places)


def naming(date: Date) -> Clause:
    """What names a date, by its numbers in the order of ISO 8601 or the day first, or by its month."""
    year, month, day, _ = date
    numbers = (f"{month:02}",) if year is None else (year, f"{month:02}")
    names = tuple(name for name, number in _MONTHS.items() if number == month)
    named: list[Clause] = [AnyTerm("exact", names)]
    if year is not None:
        named.append(Term("exact", year))
    if day is None:
        return Joined(should=(InOrder(numbers), *_day_first(date), Joined(must=tuple(named))))
    days = {f"{day}", f"{day:02}", *(f"{day}{ending}" for ending in _ENDINGS)}
    named.append(AnyTerm("exact", tuple(sorted(days))))
    plain = InOrder((*numbers, f"{day:02}"))
    with_time = InOrder((*numbers, f"{day:02}t"), begins=True)
    return Joined(should=(plain, with_time, *_day_first(date), Joined(must=tuple(named))))


def _day_first(date: Date) -> Iterator[Clause]:
    """Its numbers in that order: 05.03.2025, and where a day and a year tell them from others 5.3.2025."""
    year, month, day, _ = date
    numbers = [each for each in (day, month) if each is not None]
    yield InOrder((*(f"{each:02}" for each in numbers), *([] if year is None else [year])))
    if None not in (year, day):
        yield InOrder((f"{day}", f"{month}", f"{year}"))
