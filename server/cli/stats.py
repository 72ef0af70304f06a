"""`memlog stats`: how much is remembered, how good the graph is, and what happened lately, at a glance.

The metrics and their targets are those by which `save_memory` is to be judged: entities that are
connected, facts that are short, calls that succeed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import click
import msgspec

from memlog.errors import counted
from memlog.projects.project import Project
from memlog.settings import Settings
from memlog.times import DAY_US, day
from projections.analytics.tables import Count, Totals
from server.cli.looking import open_to_read, service_to_read
from server.cli.options import json_option, project_argument
from server.cli.printing import new_table, one_line, open_console, print_json
from server.cli.running import with_settings
from server.service import Service

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

DAYS = 30
LINES_MAX = 8
BAR_CELLS_MAX = 30
NAME_CELLS_MAX = 40
CELLS_BETWEEN = 6
"""What a table of three columns has around them: a blank on either side of each."""
HEIGHTS = "▁▂▃▄▅▆▇█"

SHOWN_TOTALS = {
    "entities": "entities",
    "observations": "observations",
    "relations": "relations",
    "orphaned": "orphans",
    "memories_active": "active memories",
    "threads": "threads",
}


class Metric(msgspec.Struct, frozen=True):
    """A measure, its target in words, and whether it is met; None where there was nothing to measure."""

    name: str
    value: float | None
    unit: str
    target: str
    met: bool | None


class Memories(msgspec.Struct):
    """Memories of one type, by their condition."""

    active: int = 0
    superseded: int = 0
    deleted: int = 0


class Report(msgspec.Struct, frozen=True):
    """`entity_types` tells of entities, `threads` of those that each ever touched, living or not, `days` of events;
    each the most first, days in order."""

    project: str
    position: int
    totals: dict[str, int]
    metrics: list[Metric]
    entity_types: dict[str, int]
    memory_types: dict[str, Memories]
    threads: dict[str, int]
    days: dict[str, int]


@click.command("stats")
@project_argument
@json_option
@with_settings
def stats_command(settings: Settings, project: str | None, as_json: bool) -> None:
    """Show what is remembered, how well it is connected, and how much happened each day.

    \b
    Example: memlog stats
    """
    with service_to_read(settings, project) as service:
        report = _report(service, project)
    if as_json:
        print_json(report)
        return
    _print(report, open_console())


# -- counting


def _report(service: Service, wanted: str | None) -> Report:
    name, opened = open_to_read(service, wanted)
    with opened.projections.analytics().read() as snapshot:
        position, totals = snapshot.position, snapshot.totals()
        counts, threads = list(snapshot.counts()), list(snapshot.threads())
    memories = _memory_types(counts)
    shown = msgspec.structs.asdict(totals)
    del shown["time_us"]
    for condition in Memories.__struct_fields__:
        shown[f"memories_{condition}"] = sum(getattr(row, condition) for row in memories.values())
    return Report(
        project=name,
        position=position,
        totals=shown,
        metrics=list(_metrics(totals, service, opened.project_id)),
        entity_types=_most_first((row.type, row.number) for row in counts if row.what == "entity"),
        memory_types=memories,
        threads=_most_first((row.thread, row.entities) for row in threads),
        days=events_by_day(opened.project, totals.time_us),
    )


def _metrics(totals: Totals, service: Service, project_id: str) -> Iterator[Metric]:
    from server.tools.knowledge import saves_key

    refused, accepted = (
        service.usage.counted(saves_key(project_id, refused=refused)) for refused in (True, False)
    )
    entities = totals.entities
    yield _metric("relation coverage", totals.related, entities, "100 %", lambda each: each == 1)
    yield _metric(
        "observation atomicity", totals.atomic, totals.observations, "100 %", lambda each: each == 1
    )
    yield _metric(
        "save_memory error rate", refused, refused + accepted, "< 10 %", lambda each: each < 0.1
    )
    yield _metric(
        "relations per entity", totals.relations, entities, "> 2.0", lambda each: each > 2, unit=""
    )


def _metric(
    name: str, part: int, whole: int, target: str, met: Callable[[float], bool], unit: str = "%"
) -> Metric:
    if not whole:
        return Metric(name, None, unit, target, None)
    value = round(part / whole * (100 if unit == "%" else 1), 2)
    return Metric(name, value, unit, target, met(part / whole))


def _memory_types(counts: Iterable[Count]) -> dict[str, Memories]:
    found: dict[str, Memories] = {}
    for row in counts:
        if row.what != "entity":
            setattr(found.setdefault(row.type, Memories()), row.what, row.number)
    return dict(sorted(found.items(), key=lambda each: (-each[1].active, each[0])))


def _most_first(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def events_by_day(project: Project, last_us: int) -> dict[str, int]:
    """Events of each of the days (UTC) up to the last entry, found by seeking: the log is not read."""
    end_us = last_us - last_us % DAY_US + DAY_US
    starts_us = range(end_us - DAYS * DAY_US, end_us + 1, DAY_US)
    reached = [project.position_at(start_us - 1) for start_us in starts_us]
    return {
        day(start_us): until - before
        for start_us, (before, until) in zip(starts_us, pairwise(reached), strict=False)
    }


# -- printing


def _print(report: Report, console: Console) -> None:
    from rich.text import Text

    console.print(
        Text(one_line(report.project), "bold").append(f"  position {report.position:,}", "dim")
    )
    console.print(
        ", ".join(counted(report.totals[total], things) for total, things in SHOWN_TOTALS.items())
    )
    console.print(_metrics_table(report.metrics))
    days = list(report.days)
    spark = Text(sparkline(report.days.values()), "green")
    span = (
        f"  {days[0]} to {days[-1]}, at most {counted(max(report.days.values()), 'events')} a day"
    )
    console.print(spark.append(span, "dim"))
    memories = {name: row.active for name, row in report.memory_types.items()}
    for heading, numbers in (
        ("entities by type", report.entity_types),
        ("active memories by type", memories),
        ("entities ever touched, by thread", report.threads),
    ):
        if numbers:
            console.print(Text(f" {heading}", "bold"))
            console.print(_bars(numbers, console.width))


def _metrics_table(metrics: Iterable[Metric]) -> Table:
    table = new_table("metric", "value", "target", "")
    for column in table.columns[1:]:
        column.justify = "right"
    marks = {True: "[green]✓[/]", False: "[red]✗[/]", None: "[dim]nothing yet[/]"}
    for metric in metrics:
        value = "–" if metric.value is None else f"{metric.value:g} {metric.unit}".rstrip()
        table.add_row(metric.name, value, metric.target, marks[metric.met])
    return table


def _bars(numbers: Mapping[str, int], width: int) -> Table:
    """The first of them as bars, the longest as long as fits beside them; and how many are not shown."""
    from rich.text import Text

    rows = [
        (Text(one_line(name)), f"{number:,}", number)
        for name, number in list(numbers.items())[:LINES_MAX]
    ]
    names_cells = min(max(name.cell_len for name, _, _ in rows), NAME_CELLS_MAX, width // 2)
    most, figures_cells = rows[0][2], max(len(figures) for _, figures, _ in rows)
    longest = min(BAR_CELLS_MAX, width - names_cells - figures_cells - CELLS_BETWEEN)
    table = new_table()
    table.show_header = False
    table.add_column(width=names_cells, no_wrap=True)
    table.add_column(justify="right")
    table.add_column()
    for name, figures, number in rows:
        cells = round(longest * number / most) if most else 0
        table.add_row(name, figures, Text("█" * cells or "▏", "cyan"))
    if len(numbers) > LINES_MAX:
        table.caption = f" and {len(numbers) - LINES_MAX:,} more"
        table.caption_justify = "left"
    return table


def sparkline(numbers: Iterable[int]) -> str:
    """One character a number: blank for nothing, else as high as its share of the highest."""
    numbers = list(numbers)
    most = max(numbers, default=0)
    return "".join(
        HEIGHTS[min(len(HEIGHTS) - 1, number * len(HEIGHTS) // most)] if number else " "
        for number in numbers
    )
