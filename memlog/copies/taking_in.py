"""Histories on their way into the store: out of a backup, out of readable lines, or what a repair made.

Each is made ready in a folder of the data directory, read back and its chain checked, and only then takes its
place. A backup is only read.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from memlog.codec import MENDED, WRITTEN
from memlog.copies.backup import Copy
from memlog.copies.inventory import Held, inventory, pick
from memlog.decisions.fitting import fits
from memlog.each import of_project, raise_first
from memlog.errors import (
    Conflict,
    InvalidParameter,
    MemlogError,
    ProjectExists,
    ProjectNotFound,
    StorageError,
)
from memlog.events import Erased
from memlog.log import Damage
from memlog.projects.project import LOG_FILE, Project
from memlog.projects.store import Store
from memlog.shell import command_line
from memlog.storage.disk import sync, sync_folder

log = logging.getLogger("memlog.taking_in")


class Restored(msgspec.Struct, frozen=True):
    id: str
    name: str
    position: int
    how: Literal["restored", "replaced", "already there"]
    aside: str | None = None
    """Where what it replaced is now."""
    erased: int = 0
    """How many of its entries were erased for good in what is already there, and stay so."""


def restore(
    store: Store, folder: Path, *, names: Sequence[str] = (), replace: bool = False
) -> list[Restored]:
    """Brings projects of a backup into the store: those of these names or ids; none named: those that its last run
    found. Of namesakes it is that one, or else the newest.

    One that is there with at least this history is left alone. Raises ProjectExists where another stands
    in its place, Conflict where that has lost some of it with a damage, ProjectNotFound for a name that the
    backup does not have, StorageError where a copy is damaged; nothing of that project is changed then, and
    all others are restored.
    """
    held = inventory(folder)
    if not held:
        raise InvalidParameter(
            f"{folder} holds no backup of memlog",
            suggestion="Name a folder to which a backup was made. Nothing was changed.",
        )
    picked, missing = pick(held, names)
    done: list[Restored] = []
    refused: list[MemlogError] = []
    for each in picked:
        try:
            with _staged(store, each.folder) as staged:
                done.append(_restored(store, staged, *_described(staged), replace))
        except MemlogError as error:
            refused.append(of_project(each.called, error))
    refused += [_not_in_there(name, held) for name in missing]
    if not picked and not missing:
        refused.append(_nothing_alive(folder, held))
    raise_first(refused, [each.name for each in done])
    return done


def left(folder: Path) -> list[Held]:
    """The copies that a restore brings back only where they are named: of projects that were deleted before the last
    run, and older ones of a name that is there."""
    held = inventory(folder)
    picked, _ = pick(held, ())
    return [each for each in held if each not in picked]


def _nothing_alive(folder: Path, held: Sequence[Held]) -> ProjectNotFound:
    ways = (f"{each.called}: `{command_line('memlog restore', folder, each.id)}`" for each in held)
    return ProjectNotFound(
        f"The last run of the backup in {folder} found none of the projects that it has copies of",
        suggestion=f"Nothing was changed. Name what is to be restored. {', '.join(ways)}",
    )


def _not_in_there(name: str, held: Sequence[Held]) -> ProjectNotFound:
    told = f"It has {', '.join(sorted({each.called for each in held}))}."
    unread = [each.id for each in held if each.name is None]
    if unread:
        told = f"{told} What {' and '.join(unread)} is called cannot be read: name it so."
    return ProjectNotFound(f"The backup has no project '{name}'", suggestion=told)


def take_in(
    store: Store, project_id: str, generation: int, entries: Iterable[tuple[int, bytes]]
) -> Restored:
    """Brings in the history of a project, whose chain was checked, as `restore` does one of a backup.

    Raises InvalidParameter where these events cannot have happened one after another.
    """
    with made(store, project_id, generation, entries) as staged:
        try:
            described = _described(staged)
            _require_fitting(staged)
        except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
            raise InvalidParameter(
                "These events cannot have happened one after another",
                suggestion="Nothing was imported. Take the file whole, and as it was exported.",
            ) from error
        return _restored(store, staged, *described, replace=False)


@contextmanager
def made(
    store: Store,
    project_id: str,
    generation: int,
    entries: Iterable[tuple[int, bytes]],
    receipts: Iterable[tuple[bytes, bytes]] = (),
) -> Iterator[Path]:
    """A folder with a project of this history, read back and its chain checked, for the store to adopt."""
    with store.staging() as staging:
        staged = staging / project_id
        with closing(Copy(staged)) as copy:
            copy.begin(generation)
            copy.add(entries, receipts)
            copy.verify()
        sync_folder(staged)
        yield staged


@contextmanager
def _staged(store: Store, copied: Path) -> Iterator[Path]:
    """A copy of the copy in the data directory, proved; the backup itself is only read."""
    with store.staging() as staging:
        staged = staging / copied.name
        staged.mkdir(parents=True)
        try:
            shutil.copyfile(copied / LOG_FILE, staged / LOG_FILE)
            with (staged / LOG_FILE).open("rb") as file:  # LMDB syncs what it writes itself
                sync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"The backup {copied} cannot be copied: {error.strerror or error}",
                suggestion="Free some space, or give this user the right to read it.",
            ) from error
        with closing(Copy(staged, copied)) as copy:
            copy.verify()
        sync_folder(staged)
        yield staged


def _described(folder: Path) -> tuple[str, int, bytes]:
    """The name of the project in this folder, its last position, and the chain there."""
    with closing(Project(folder)) as project:
        row = project.status()
        if row is None:
            raise InvalidParameter(f"{folder.name} holds no project")
        with project.stored() as (found, _):
            return row.name, found.position(), found.chain_at(found.position())


def _require_fitting(folder: Path) -> None:
    """Raises ValueError where an event speaks of what was not there: the state holds it all the same, and whoever
    looks for what it speaks of fails."""
    gone: set[int] = set()
    with closing(Project(folder)) as project, project.snapshot() as (found, state_at):
        for entry in found.read():
            if isinstance(entry.event, Erased):
                gone.add(entry.position)
            elif not fits(entry.event, state_at(entry.position - 1), gone):
                raise ValueError(f"the event at position {entry.position} does not fit")


def _restored(
    store: Store, staged: Path, name: str, position: int, chain: bytes, replace: bool
) -> Restored:
    try:
        row, _ = store.adopt(staged)
        return Restored(row.id, name, position, "restored")
    except ProjectExists as error:
        if _holds(store, staged.name, position, chain):
            gone = _gone(store, staged)
            lost = [each for each, kind in gone.items() if kind == MENDED]
            if not lost:
                return Restored(staged.name, name, position, "already there", erased=len(gone))
            if not replace:
                raise _lost(name, lost) from None
        elif not replace:
            if (end := _end_of_behind(store, staged)) is not None:
                error.message = f"Project '{name}' is there, and behind: it ends at position {end} of {position}"
            raise
    row, aside = store.adopt(staged, replace=True)
    return Restored(row.id, name, position, "replaced", None if aside is None else str(aside))


def _gone(store: Store, staged: Path) -> dict[int, int]:
    """Where the project that is there does not have what was written in this history, which has the same chain: the
    position, and the kind of what stands there."""
    with (
        closing(Project(staged)) as project,
        project.stored() as (written, _),
        store.by_id(staged.name).stored() as (found, _),
    ):
        pairs = zip(written.stored(), found.stored(), strict=False)
        return {
            position: there[0]
            for (position, value), (_, there) in pairs
            if value[0] == WRITTEN != there[0]
        }


def _lost(name: str, positions: Sequence[int]) -> Conflict:
    puts_back = command_line("memlog repair --backup FOLDER", name)
    return Conflict(
        f"Project '{name}' is there, and lost entries of this history with a damage: {len(positions)}, the "
        f"first of position {positions[0]}",
        suggestion=f"Nothing was changed. `{puts_back}` puts back what a backup has; `memlog restore --replace` "
        "puts aside what is there.",
    )


def _end_of_behind(store: Store, staged: Path) -> int | None:
    """The last position of the project that is there, where this history goes on from it; else None."""
    try:
        end = store.by_id(staged.name).head()
    except (ProjectNotFound, StorageError):  # the name is another's, or nobody can tell
        return None
    with closing(Project(staged)) as project, project.stored() as (written, _):
        chain = written.chain_at(end)
    return end if chain and _holds(store, staged.name, end, chain) else None


def _holds(store: Store, project_id: str, position: int, chain: bytes) -> bool:
    """Whether the project that is there has this history, whole, and perhaps more."""
    try:
        project = store.by_id(project_id)
        with project.stored() as (found, _):
            whole = not any(isinstance(each, Damage) for each in found.verify())
            return whole and found.chain_at(position) == chain
    except ProjectNotFound:  # the name is another's
        return False
    except StorageError as error:
        log.warning("project %s cannot be read: %s", project_id, error.message)
        return False
