"""The rows for people and for programs: a table in the terminal, a page of Markdown, a plot, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap

import msgspec
from rich.table import Table

from bench import plot
from bench.machine import Machine
from bench.registry import BENCHMARKS
from bench.rows import Judged, Row, Section, Size
from bench.scale import PLOTTED

PLOT = "benchmarks.svg"
"""The plot's place, beside the page."""

PLOT_TITLE = "Latency of memlog as its memory grows"

Measured = Sequence[tuple[str, Section]]
"""Names of benchmarks with their sections, in the order of the run."""

STYLES = {True: "green", False: "red", None: ""}
SIZE_COLUMNS = ("", "MB", "floor", "floor MB", "ratio", "goal")
HEADLINE_COLUMNS = ("", "", "p50 ms", "p99 ms", "floor p50 ms", "ratio", "goal")
COLUMNS = ("", "p50 ms", "p99 ms", "n", "floor", "floor p50 ms", "ratio", "goal")

_INTRODUCTION = """# Benchmarks

How fast memlog was on one machine, beside how fast the bare parts under it were in the same run. Written by
`./scripts/bench --all`; `./scripts/bench` alone measures the canonical load and prints it.

Times are milliseconds. Samples of a row and of its floors are taken in turn; over HTTP, and of what is stored in
bulk, all of one after all of the other. A floor is the same work done by the bare parts alone; the ratio is the
median over the sum of its floors' medians, and hardly moves when the machine is busy, whereas milliseconds double.
Below each heading the floors are in *italics*. A size is a number of observations; every entity has two.

A goal without a percentile is one for the median; "seed" is that of the specification from which the tool comes. A
million observations are measured when asked for: `./scripts/bench --only scale --size 1000000 --vectors DIR`, where DIR
keeps the vectors for the next run.
"""


class Document(msgspec.Struct, frozen=True):
    """What `--json` writes."""

    machine: Machine
    sections: list[Section]


def tables(section: Section) -> Iterator[Table]:
    """Its rows, with what was skipped, and its sizes."""
    if section.rows or section.skipped:
        drawn = _drawn(section.title, COLUMNS)
        for row in section.rows:
            drawn.add_row(*_cells(row), style="dim" if row.is_floor else STYLES[row.met])
        for skipped in section.skipped:
            drawn.add_row(skipped.name, *[""] * (len(COLUMNS) - 2), f"skipped: {skipped.reason}")
        yield drawn
    if section.sizes:
        drawn = _drawn(section.title, SIZE_COLUMNS)
        for size in section.sizes:
            drawn.add_row(*_size_cells(size), style=STYLES[size.met])
        yield drawn


def headlines(measured: Measured) -> Table:
    """The few rows to be remembered, each as it was at the largest size, with what its floors take."""
    drawn = _drawn("Headlines", HEADLINE_COLUMNS)
    for section, row in headline_rows(measured):
        drawn.add_row(*_headline_cells(section, row), style=STYLES[row.met])
    return drawn


def _drawn(title: str, columns: Sequence[str]) -> Table:
    drawn = Table(title=title, title_justify="left", title_style="bold", box=None)
    for column in columns:
        numeric = _is_numeric(column)
        drawn.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    return drawn


def _is_numeric(column: str) -> bool:
    return column.endswith(("ms", "MB")) or column in {"n", "ratio"}


def headline_rows(measured: Measured) -> Iterator[tuple[Section, Row]]:
    for benchmark in BENCHMARKS:
        last = {
            row.name: (section, row)
            for name, section in measured
            if name == benchmark.name
            for row in reversed(section.rows)  # of two with one name the first
        }
        yield from (last[name] for name in benchmark.headlines if name in last)


def plotted(sections: Sequence[Section]) -> str:
    """The plot of what `scale` measured, as SVG. Raises ValueError where it measured nothing."""
    found = {
        name: [
            plot.Point(section.observations, row.p50_ms, row.p99_ms)
            for section in sections
            if section.observations is not None
            for row in section.rows
            if row.name == name
        ]
        for name in PLOTTED
    }
    return plot.svg(PLOT_TITLE, {name: points for name, points in found.items() if points})


def verdict(sections: Sequence[Section]) -> str:
    met = [row.met for section in sections for row in section.rows]
    met += [size.met for section in sections for size in section.sizes]
    judged = [each for each in met if each is not None]
    skipped = sum(len(section.skipped) for section in sections)
    return f"{sum(judged)} of {len(judged)} rows with a goal met it; {skipped} skipped."


def page(machine: Machine, measured: Measured) -> str:
    said = verdict([section for _, section in measured])
    told = [_INTRODUCTION, _machine(machine), said, "", *_headlines(measured), *_sections(measured)]
    return "\n".join(told).rstrip() + "\n"


def _machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"Measured {machine.measured} on {machine.cores} cores of {machine.processor}, "
        f"{machine.system}, {machine.filesystem}, load {machine.load:g} before the start; "
        f"a million additions in a loop of Python took {machine.million_ms:g} ms; "
        f"Python {machine.python}, {versions}.\n"
    )


def _headlines(measured: Measured) -> Iterator[str]:
    yield "## Headlines\n"
    yield from _written(HEADLINE_COLUMNS, starmap(_headline_cells, headline_rows(measured)))


def _sections(measured: Measured) -> Iterator[str]:
    about = {benchmark.name: benchmark.about for benchmark in BENCHMARKS}
    before = ""
    for name, section in measured:
        if name != before:
            yield f"## {name}\n\n{about[name]}\n"
            if name == "scale":
                yield f"![{PLOT_TITLE}: p50 and p99 against observations]({PLOT})\n"
        before = name
        yield f"**{section.title}**\n"
        if section.rows:
            yield from _written(COLUMNS, map(_emphasised, section.rows))
        if section.sizes:
            yield from _written(SIZE_COLUMNS, map(_size_cells, section.sizes))
        for skipped in section.skipped:
            yield f"Skipped, {skipped.name}: {skipped.reason}\n"


def _emphasised(row: Row) -> list[str]:
    first, *rest = _cells(row)
    return [f"*{first}*" if row.is_floor else first, *rest]


def _cells(row: Row) -> list[str]:
    return [
        f"{row.name} ({row.note})" if row.note else row.name,
        _three_digits(row.p50_ms),
        _three_digits(row.p99_ms),
        f"{row.n:,}",
        row.floor,
        "" if row.floor_p50_ms is None else _three_digits(row.floor_p50_ms),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        _goals(row.goals),
    ]


def _size_cells(size: Size) -> list[str]:
    return [
        size.name,
        _three_digits(size.megabytes),
        size.floor,
        _three_digits(size.floor_megabytes),
        f"{size.ratio:.2f}",
        _goals(size.goals),
    ]


def _headline_cells(section: Section, row: Row) -> list[str]:
    _, p50, p99, _, _, *rest = _cells(row)
    return [section.title, row.name, p50, p99, *rest]


def _goals(goals: Sequence[Judged]) -> str:
    return "; ".join(f"{'✓' if goal.met else '✗'} {goal.says}" for goal in goals)


def _three_digits(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _written(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table of Markdown, and an empty line behind it."""
    yield _line(columns)
    yield _line(["--:" if _is_numeric(column) else "---" for column in columns])
    yield from map(_line, rows)
    yield ""


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
