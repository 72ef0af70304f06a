"""The dates that a query names."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.text import analysis
from projections.text.dates import dates


def named(query: str) -> list[tuple[str | None, int, int | None]]:
    words = analysis.exact.analyze(analysis.spaced(analysis.normalise(query)))
    return [each[:3] for each in dates(words)]


@pytest.mark.parametrize(
    ("query", "date"),
    [
        ("what happened on 17 March 2025?", ("2025", 3, 17)),
        ("March 17, 2025", ("2025", 3, 17)),
        ("the 1st of Sept", (None, 9, 1)),
        ("in december 2024", ("2024", 12, None)),
        ("Dec 2024", ("2024", 12, None)),
        ("since 2025-03", ("2025", 3, None)),
        ("2025-03-17T10:30:00Z", ("2025", 3, 17)),
        ("17.03.2025", ("2025", 3, 17)),
        ("17/03/2025 10:00", ("2025", 3, 17)),
        ("on 5.3.2025", ("2025", 3, 5)),
    ],
)
def test_a_date_is_known_by_its_month_and_what_stands_beside_it(
    query: str, date: tuple[str | None, int, int | None]
) -> None:
    assert named(query) == [date]


@pytest.mark.parametrize(
    "query",
    [
        "in March",
        "may I?",
        "2025",
        "room 2025, floor 13",
        "17 people",
        "version 3.17",
        "in 2025 3 of 4",
    ],
)
def test_a_month_or_a_number_alone_is_no_date(query: str) -> None:
    assert named(query) == []


def test_of_several_dates_each_is_known() -> None:
    query = "between 1 March 2025 and 2025-04-30"
    assert named(query) == [("2025", 3, 1), ("2025", 4, 30)]


@given(st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 12, 31)))
def test_a_day_is_the_same_however_it_is_written(day: datetime.date) -> None:
    written = [
        f"{day:%Y-%m-%d}",
        f"{day:%d.%m.%Y}",
        f"{day.day}.{day.month}.{day.year}",
        f"{day.day} {day:%B %Y}",
        f"{day:%b} {day.day}, {day.year}",
    ]
    assert [named(each) for each in written] == [[(str(day.year), day.month, day.day)]] * 5
