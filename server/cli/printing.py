"""What a command prints: every text that it shows goes through `safe`, or a `Terminal`, which sees to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec

from memlog.controls import safe
from memlog.runs import runs

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from memlog.projects.store import Store

COLUMNS_MIN = 40
"""Of a table: in fewer, as where nobody set how many there are and COLUMNS is 0, it would leave out what it shows."""

RUNS_MAX = 12
"""Of positions that are told in words."""

BARS_LAST = 4
"""Of those that show progress."""


def one_line(text: str) -> str:
    """`safe`, on one line: where each line is an entry, no text looks like another."""
    return safe(text).replace("\n", "\\u000a")


def beneath(text: str) -> str:
    """A text of an item that is indented by two: what follows its first line stands further in."""
    return text.replace("\n", "\n      ")


def say(text: str, *, err: bool = False) -> None:
    """Prints a line."""
    click.echo(safe(text), err=err)


def confirm(question: str) -> None:
    """Asks on stderr; where the answer is not yes, or nobody can give one, the command ends."""
    if sys.stdin is None:
        say(f"{question} Nobody can answer, stdin is closed: --yes answers for scripts.", err=True)
        raise click.Abort
    click.confirm(safe(question), abort=True, err=True)


def warn_of_put_aside(store: Store) -> None:
    """Where something was erased: which logs nobody looked into may have it still."""
    for folder in store.put_aside():
        say(
            f"Warning: {folder} is a log put aside, and may still hold it; it is yours to remove.",
            err=True,
        )


def positions_in_words(positions: Sequence[int]) -> str:
    """The runs of them, as a person would write them."""
    found = [f"{run[0]} to {run[-1]}" if run[1:] else f"{run[0]}" for run in runs(positions)]
    shown, rest = found[:RUNS_MAX], len(found) - RUNS_MAX
    word = "positions" if positions[1:] else "position"
    return f"{word} {', '.join(shown)}{f' and {rest} more runs' if rest > 0 else ''}"


def open_console(*, stderr: bool = False) -> Console:
    """Where coloured text and tables are printed."""
    from server.cli.terminal import Terminal

    console = Terminal(stderr=stderr, highlight=False, emoji=False, soft_wrap=True)
    console.width = max(console.width, COLUMNS_MIN)
    return console


def new_table(*columns: str) -> Table:
    """Without lines between its cells; what is too wide for one goes on beneath."""
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_json(value: Any) -> None:
    say(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, indent=2))


@contextmanager
def progress_bar(*, hidden: bool = False) -> Iterator[Progress]:
    """A bar on stderr, so that output can be piped; nothing where there is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = open_console(stderr=True)
    with Progress(
        TextColumn("{task.description:<9}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=hidden or not console.is_terminal,
    ) as progress:
        yield progress


def new_bar(progress: Progress, name: str, total: int | None) -> TaskID:
    """One bar more. Of many the first stays and the last few: with each that comes all are drawn again."""
    for gone in progress.task_ids[1:-BARS_LAST]:
        progress.remove_task(gone)
    return progress.add_task(one_line(name), total=total)


def bar_for(progress: Progress) -> Callable[[str, int, int], None]:
    """A callback for projections: one bar for each that reports."""
    tasks: dict[str, Any] = {}

    def show(name: str, position: int, head: int) -> None:
        if name not in tasks:
            tasks[name] = new_bar(progress, name, head)
        progress.update(tasks[name], completed=position, total=head)

    return show
