"""The rows for people and for programs: a table in the terminal, a page of Markdown, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.table import Table

from bench.machine import Machine
from bench.registry import BENCHMARKS
from bench.rows import Row, Section

Measured = Sequence[tuple[str, Section]]
"""Names of benchmarks with their sections, in the order of the run."""

COLUMNS = ("", "p50 ms", "p99 ms", "n", "floor", "floor p50 ms", "ratio", "goal")

_INTRODUCTION = """# Benchmarks

How fast memlog was on one machine, beside how fast the bare parts under it were in the same run. Written by
`./scripts/bench --all`; `./scripts/bench` alone measures the canonical load and prints it.

Times are milliseconds. Samples of a row and of its floors are taken in turn. A floor is the same work done
by the bare parts alone; the ratio is the median over the sum of its floors' medians, and hardly moves when the
machine is busy, whereas milliseconds double. Below each heading the floors are in *italics*.
"""


class Document(msgspec.Struct, frozen=True):
    """What `--json` writes."""

    machine: Machine
    sections: list[Section]


def table(section: Section) -> Table:
    drawn = Table(title=section.title, title_justify="left", title_style="bold", box=None)
    for column in COLUMNS:
        numeric = column.endswith("ms") or column in {"n", "ratio"}
        drawn.add_column(column, justify="right" if numeric else "left", no_wrap=numeric)
    for row in section.rows:
        style = "dim" if row.is_floor else {True: "green", False: "red", None: ""}[row.met]
        drawn.add_row(*_cells(row), style=style)
    for skipped in section.skipped:
        drawn.add_row(skipped.name, *[""] * (len(COLUMNS) - 2), f"skipped: {skipped.reason}")
    return drawn


def verdict(sections: Sequence[Section]) -> str:
    judged = [row.met for section in sections for row in section.rows if row.met is not None]
    skipped = sum(len(section.skipped) for section in sections)
    return f"{sum(judged)} of {len(judged)} rows with a goal met it; {skipped} skipped."


def page(machine: Machine, measured: Measured) -> str:
    said = verdict([section for _, section in measured])
    return (
        "\n".join([_INTRODUCTION, _machine(machine), said, "", *_sections(measured)]).rstrip()
        + "\n"
    )


def _machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"Measured {machine.measured} on {machine.cores} cores of {machine.processor}, "
        f"{machine.system}, {machine.filesystem}, load {machine.load:g} before the start; "
        f"Python {machine.python}, {versions}.\n"
    )


def _sections(measured: Measured) -> Iterator[str]:
    about = {benchmark.name: benchmark.about for benchmark in BENCHMARKS}
    before = ""
    for name, section in measured:
        if name != before:
            yield f"## {name}\n\n{about[name]}\n"
        before = name
        yield f"**{section.title}**\n"
        if section.rows:
            yield _line(COLUMNS)
            yield _line(["---", *["--:"] * 3, "---", "--:", "--:", "---"])
            yield from (_line(_emphasised(row)) for row in section.rows)
            yield ""
        for skipped in section.skipped:
            yield f"Skipped, {skipped.name}: {skipped.reason}\n"


def _emphasised(row: Row) -> list[str]:
    first, *rest = _cells(row)
    return [f"*{first}*" if row.is_floor else first, *rest]


def _cells(row: Row) -> list[str]:
    met = {True: "✓ ", False: "✗ ", None: ""}[row.met]
    return [
        f"{row.name} ({row.note})" if row.note else row.name,
        _ms(row.p50_ms),
        _ms(row.p99_ms),
        f"{row.n:,}",
        row.floor,
        "" if row.floor_p50_ms is None else _ms(row.floor_p50_ms),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        met + row.goal,
    ]


def _ms(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
