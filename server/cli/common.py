"""What commands share: the settings they run with, the service they open, progress they show."""

from __future__ import annotations

import functools
import json
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from memlog.controls import safe
from memlog.errors import EmbeddingError, StorageError
from memlog.runs import runs
from memlog.settings import LogLevel, Settings, load
from memlog.shell import of_project
from server.cli.hints import hint_of, of_folder, spoken_of
from server.stdio.unread import stderr_handler

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from memlog.projects.store import Store
    from server.service import Service

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}

Command = Callable[..., Any]

COLUMNS_MIN = 40
"""Of a table: in fewer, as where nobody set how many there are and COLUMNS is 0, it would leave out what it shows."""
RUNS_MAX = 12
"""Of positions that are told in words."""

BARS_LAST = 4
"""Of those that show progress."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")


class Number(click.FloatRange):
    """A number in a range; none that is not a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


INTEGER = click.IntRange(1, 2**63 - 1)
"""A number of entries, or a position: as large as a log knows them."""


class NamedPath(click.Path):
    """A path that is named: an empty text, as a variable that is not set gives it, would be the folder that the command
    was started in, or the usual file. `advice` tells what to do instead."""

    def __init__(
        self,
        advice: str,
        *,
        file_okay: bool = True,
        dir_okay: bool = True,
        allow_dash: bool = False,
    ) -> None:
        super().__init__(
            path_type=Path, file_okay=file_okay, dir_okay=dir_okay, allow_dash=allow_dash
        )
        self._advice = advice

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(f"it is empty. {self._advice}", param, ctx)
        return super().convert(value, param, ctx)


class Named(click.types.StringParamType):
    """A text that names something: an empty one would be the default, or all there are."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.strip():
            self.fail(f"it is empty. {self._advice}", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = NamedPath("Name a folder; . is the one you are in.", file_okay=False)
PROJECT = Named("Name a project (`memlog projects` lists them), or leave it out.")
THIS_PROJECT = Named("Name a project; `memlog projects` lists them.")
"""Of a command that goes by no default."""
ENTITY = Named("Name an entity; `memlog search` finds them.")
HOST = Named("Name an address (0.0.0.0 is all of this machine), or leave it out.")


class ToRead(click.File):
    """A file, or - for stdin, which is none where the caller has closed it."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("stdin is closed. Name a file, or give it something to read.", param, ctx)
        return super().convert(value, param, ctx)


def confirm(question: str) -> None:
    """Asks on stderr; where the answer is not yes, or nobody can give one, the command ends."""
    if sys.stdin is None:
        say(f"{question} Nobody can answer, stdin is closed: --yes answers for scripts.", err=True)
        raise click.Abort
    click.confirm(safe(question), abort=True, err=True)


class Helpful(click.Group):
    """Commands, with `help` as one of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`memlog help search` is `memlog search --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


data_dir_option = click.option(
    "--data-dir",
    type=FOLDER,
    help="Folder of the logs and indexes.  [env: MEMLOG_DATA_DIR]",
)


def said_before(option: str) -> Any:
    """What this option was given before the name of a command within a group; None where there is no such group."""
    group = click.get_current_context().parent
    return group.params.get(option) if group else None


def with_settings(command: Command) -> Command:
    """Gives a command `--data-dir` and the settings object, as its first argument.

    Of a command within a group, the option may stand before its name as well as behind it.
    """

    @data_dir_option
    @functools.wraps(command)
    def run(data_dir: Path | None, **arguments: Any) -> Any:
        named = data_dir or said_before("data_dir")
        click.get_current_context().meta[_NAMED_FOLDER] = named
        with spoken_of(arguments.get("project"), named):
            settings = load({"data_dir": named})[0]
            try:
                return command(settings, **arguments)
            except StorageError as error:
                about = _worked_in(settings, arguments)
                if about and error.suggestion:
                    error.suggestion = of_project(error.suggestion, about)
                raise

    return run


def _worked_in(settings: Settings, arguments: Mapping[str, Any]) -> str | None:
    """The project that a command with these arguments is about; None where that may be any."""
    if arguments.get("every"):
        return None
    if "project" in arguments:
        return arguments["project"] or settings.project
    return arguments.get("name")


_NAMED_FOLDER = f"{__name__}.data_dir"


def here(advice: str) -> str:
    """The same, with each command in it about the data directory that was named to the one that runs."""
    return of_folder(advice, click.get_current_context().meta.get(_NAMED_FOLDER))


project_option = click.option(
    "--project",
    "-p",
    type=PROJECT,
    help="Project to work in.  [env: MEMLOG_PROJECT; default: default]",
)


def project_argument(command: Command) -> Command:
    """The project behind the command, or as the option that other commands have."""

    @click.argument("project", type=PROJECT, required=False)
    @click.option("--project", "-p", "named", type=PROJECT, help="The same as PROJECT.")
    @functools.wraps(command)
    def run(*, project: str | None, named: str | None, **arguments: Any) -> Any:
        if project is not None and named is not None:
            raise click.UsageError("The project is named twice: leave out --project.")
        return command(project=named if project is None else project, **arguments)

    return run


def address_options(command: Command) -> Command:
    """Where HTTP is served, as settings."""
    for option in (
        click.option(
            "--tls-cert",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="Certificate chain, for HTTPS.  [env: MEMLOG_TLS_CERT]",
        ),
        click.option(
            "--port", "http_port", type=int, help="Port for HTTP.  [env: MEMLOG_HTTP_PORT]"
        ),
        click.option(
            "--host", "http_host", type=HOST, help="Address for HTTP.  [env: MEMLOG_HTTP_HOST]"
        ),
    ):
        command = option(command)
    return command


def log_to_stderr(level: LogLevel) -> None:
    handler = stderr_handler()
    handler.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=LEVELS[level], handlers=[handler])
    # Its loader tells at INFO which variants it tried.
    logging.getLogger("faiss").setLevel(max(LEVELS[level], logging.WARNING))


def _log_what_is_wrong(settings: Settings) -> None:
    """A command says itself what it does: less than a warning is logged where somebody asked for it."""
    log_to_stderr("warn" if settings.log_level == "info" else settings.log_level)


@contextmanager
def service_of(settings: Settings) -> Iterator[Service]:
    """The service over the data directory, closed at the end."""
    from server.service import Service

    _log_what_is_wrong(settings)
    with closing(Service(settings)) as service:
        yield service


@contextmanager
def store_of(settings: Settings) -> Iterator[Store]:
    """The projects of the data directory, for commands that need no index."""
    from memlog.projects.store import Store

    _log_what_is_wrong(settings)
    with closing(Store(settings.data_dir)) as store:
        yield store


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


def indexed(service: Service, project: str, names: Iterable[str], progress: Progress) -> list[str]:
    """Brings these indexes to the head of the log, which is whole without them; what could not be, in words."""
    said = []
    projections = service.open(project).projections
    for name in names:
        if name == "vectors" and service.embeddings.switched_off:
            continue
        try:
            projections.caught_up(name, bar_for(progress))
        except EmbeddingError as error:
            hint = hint_of(error, project)
            built = f"{name} will be built by the next search: {error.message}"
            said.append(f"{built}. {hint}" if hint else built)
    return said


# -- printing: every text that a command shows goes through `safe`


class SafeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))


def one_line(text: str) -> str:
    """`safe`, on one line: where each line is an entry, no text looks like another."""
    return safe(text).replace("\n", "\\u000a")


def beneath(text: str) -> str:
    """A text of an item that is indented by two: what follows its first line stands further in."""
    return text.replace("\n", "\n      ")


def say(text: str, *, err: bool = False) -> None:
    """Prints a line."""
    click.echo(safe(text), err=err)


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
