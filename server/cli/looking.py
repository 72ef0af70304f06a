"""Projects for commands that only look: what was never made stays so, and a damage is told beside what is whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from memlog.canonical import canonical
from memlog.errors import MemlogError, ProjectNotFound
from memlog.projects.folders import is_begun
from memlog.settings import Settings
from memlog.shell import command_line
from server.cli.hints import hint_of
from server.cli.printing import say
from server.cli.running import here, service_of, store_of

if TYPE_CHECKING:
    from memlog.projects.listing import Wanted
    from memlog.projects.store import Store
    from server.opened import Opened
    from server.service import Service


@contextmanager
def service_to_read(settings: Settings, project: str | None = None) -> Iterator[Service]:
    """The service over projects that are there, for a command about one, the usual if none is named. Raises
    ProjectNotFound where the data directory was never begun, and makes none: its name may be misspelt."""
    _require_begun(settings, project or settings.project)
    with service_of(settings) as service:
        yield service


def _require_begun(settings: Settings, project: str | None) -> None:
    if not is_begun(settings.data_dir):
        raise _not_made_yet(settings, project)


def _not_made_yet(settings: Settings, name: str | None) -> ProjectNotFound:
    """The error for those who would read what is not there. Only the usual project is made when somebody writes."""
    begins = "It begins with the first use of a server, or with `memlog import`."
    if name and canonical(name) != canonical(settings.project):
        begins = f"`{command_line('memlog projects create', name)}` makes it."
    missing = f"is no project '{name}'" if name else "are no projects"
    return ProjectNotFound(
        f"There {missing} in {settings.data_dir} yet",
        suggestion=f"{begins} Is the memory elsewhere? Name its folder by --data-dir or MEMLOG_DATA_DIR.",
    )


@contextmanager
def to_look_around(settings: Settings) -> Iterator[Settings]:
    """These settings, for a command that lists what is there; where nothing is, they name an empty folder elsewhere,
    which goes again: none is made where somebody only looked."""
    if is_begun(settings.data_dir):
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="memlog-") as empty:
        yield msgspec.structs.replace(settings, data_dir=Path(empty))


@contextmanager
def store_to_read(settings: Settings, project: str | None = None) -> Iterator[Store]:
    """As `service_to_read`, for commands that need no index."""
    _require_begun(settings, project)
    with store_of(settings) as store:
        yield store


@contextmanager
def passing_over_gone(store: Store, name: str, status: Wanted) -> Iterator[None]:
    """Around what is done with each project of a status: where one has it no more, because it was deleted or put away
    meanwhile, what fails with it is no trouble of the others."""
    try:
        yield
    except (MemlogError, OSError):
        if name in {row.name for row in store.projects(status)}:
            raise


def open_existing(service: Service, name: str | None) -> tuple[str, Opened]:
    """The project of this name, or the usual one; for a command that adds nothing. Raises ProjectNotFound."""
    from server.session import Session

    usual = service.settings.project
    name = Session(service, usual).project_name(name)
    if canonical(name) == canonical(usual) and not service.store.knows(name):
        raise _not_made_yet(service.settings, name)
    return name, service.open(name)


def open_to_read(service: Service, name: str | None) -> tuple[str, Opened]:
    """The same for a command that tells what is there: of a damaged log that is not all, and stderr says so."""
    name, opened = open_existing(service, name)
    if (damage := opened.project.damage) is not None:
        say(f"warning: {damage.message}", err=True)
        say(f"hint: {here(hint_of(damage, name) or '')}", err=True)
    return name, opened
