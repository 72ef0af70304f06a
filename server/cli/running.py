"""What a command runs with: its settings, the store or the service over the data directory, its log."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memlog.configuration import load
from memlog.controls import safe
from memlog.errors import EmbeddingError, StorageError
from memlog.settings import LogLevel, Settings
from memlog.shell import of_project
from server.cli.hints import hint_of, of_folder, spoken_of
from server.cli.options import Command, data_dir_option, said_before
from server.cli.printing import bar_for
from server.stdio.unread import stderr_handler

if TYPE_CHECKING:
    from rich.progress import Progress

    from memlog.projects.store import Store
    from server.service import Service

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}


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


class SafeFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return safe(super().format(record))
