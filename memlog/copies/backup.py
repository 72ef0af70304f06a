"""Backups: a folder with a copy of each project's log, made while everybody goes on, taken further by the next.

    FOLDER/<project id>/log.mdb

Promises: a copy is one consistent point of its project, a snapshot that no writer waits for; the next
run adds the entries that are new and writes nothing else; every copy is read back and its chain checked
before it counts; a copy is never cut, and never mixed from two histories: where the project's log is
behind its copy, says otherwise or still has what was erased from it, the run is refused and the copy stays.
After a purge or a repair, and only then, the copy is made anew, so that it forgets what the log forgot.

A copy holds the log, and the receipts that make retries safe. The state and the indexes are computed
from the log when the copy is opened; LMDB's own hot copy would bring the state along, could not be
continued from an earlier one, and would copy damage without a word. Archived projects are copied like
active ones; what was deleted stays in the backup until somebody removes it there. Which copies that are is told by
`inventory`.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from memlog import codec, shell
from memlog.codec import CHAIN_END
from memlog.copies.inventory import BESIDE, ERASED, made_anew, note
from memlog.each import of_project, raise_first
from memlog.errors import (
    Conflict,
    DamagedLog,
    InvalidParameter,
    MemlogError,
    ProjectNotFound,
    StorageError,
    counted,
)
from memlog.log import Damage, Log
from memlog.projects.contents import DATABASES, Contents
from memlog.projects.folders import OURS
from memlog.projects.meta import note_generation
from memlog.projects.project import LOG_FILE, Project
from memlog.projects.store import Store
from memlog.storage.disk import led_to, make_private, stands, sync_folder
from memlog.storage.environment import Environment
from memlog.storage.errors import is_damage
from memlog.storage.filling import fill
from memlog.storage.tables import place

LOCK = "backup.lock"
"""In a backup: what marks it as one."""
FIRST_PAGES_BYTES = 2 * 4096

Progress = Callable[[str, int, int], None]
"""Told a project's name, how far it is, and how far it goes; and of `projects`, how many of how many are done."""


class Copied(msgspec.Struct, frozen=True):
    """What a run did about one project: its log up to `position`, of which `added` entries are new."""

    id: str
    name: str
    position: int
    added: int
    how: Literal["whole", "continued", "unchanged"]


class Copy:
    """The log of one project in a backup."""

    def __init__(self, folder: Path, known_as: Path | None = None) -> None:
        """Raises StorageError where it is damaged, as it is `known_as` to who made it."""
        self.folder, self._known_as = folder, known_as or folder
        try:
            file, within = folder / LOG_FILE, folder.parent.parent  # not to be taken for the log
            self._environment = Environment(file, DATABASES, proven=True, within=within)
        except StorageError as error:
            if not is_damage(error):
                raise
            raise self._damaged(str(error.__cause__)) from error

    def head(self) -> tuple[int, bytes]:
        """The last position and the chain there."""
        with self._contents() as contents:
            log = contents.log()
            position = log.position()
            return position, log.chain_at(position)

    def has_written(self, position: int) -> bool:
        """Whether an entry stands there, and not what was put in the place of one."""
        with self._contents() as contents:
            value = contents.rows("log").get(place(position))
        return value is not None and not codec.is_mended(value)

    @property
    def generation(self) -> int:
        with self._contents() as contents:
            return contents.meta().generation

    def begin(self, generation: int) -> None:
        """Says of an empty copy how often something had been erased from its log."""
        note_generation(self._environment, generation)

    def add(
        self, entries: Iterable[tuple[int, bytes]], receipts: Iterable[tuple[bytes, bytes]]
    ) -> None:
        """Adds entries at the end, as they come, and what receipts it has not."""
        fill(self._environment, "log", ((place(position), value) for position, value in entries))
        fill(self._environment, "receipts", receipts, in_order=False)

    def verify(self) -> None:
        """Reads every entry back from disk. Raises StorageError where the chain is not whole."""
        with self._contents() as contents:
            for found in contents.log().verify():
                if isinstance(found, Damage):
                    raise self._damaged(found.problem, f" at position {found.position}")

    @contextmanager
    def _contents(self) -> Iterator[Contents]:
        with self._environment.read() as transaction:
            yield Contents(transaction, self._environment.databases)

    def _damaged(self, problem: str, where: str = "") -> StorageError:
        return StorageError(
            f"the backup {self._known_as} is damaged{where}: {problem}",
            suggestion="Make a new one into another folder, and look after the disk. Where it is all there is, "
            "copy that folder into `projects` of an empty data directory: `memlog repair` goes on with "
            "what is whole of it.",
        )

    def close(self) -> None:
        self._environment.close()


# -- out of the store


def back_up(store: Store, folder: Path, progress: Progress = lambda *_: None) -> list[Copied]:
    """Brings the backup in `folder` up to date with every project of the store.

    Raises InvalidParameter for a folder that is none, Conflict where a project is not what it was
    copied from, StorageError where the disk or a damaged log stands in the way; what the backup had of
    that project stays then, and all others are copied.
    """
    from filelock import FileLock

    try:
        _require_backup(folder, store.data_dir)
        make_private(folder)
        with FileLock(folder / LOCK):
            _clear(folder)
            done: list[Copied] = []
            rows, unread = store.projects("all"), store.unread()
            failures = [of_project(*each) for each in unread.items()]
            found = [*unread, *(row.id for row in rows)]
            note(folder, found)
            for number, row in enumerate(rows):
                progress("projects", number, len(rows))
                try:
                    done.append(_copied(store.by_id(row.id), row.name, folder, progress))
                except ProjectNotFound:  # it was deleted since it was listed
                    found.remove(row.id)
                    note(folder, found)
                except MemlogError as error:
                    failures.append(of_project(row.name, error))
            progress("projects", len(rows), len(rows))
            raise_first(failures, [each.name for each in done])
            return done
    except OSError as error:
        raise StorageError(
            f"The backup in {folder} cannot be written: {error.strerror or error}",
            suggestion="Name a folder that this user may write, on a disk with room for it.",
        ) from error


def _clear(folder: Path) -> None:
    """Ends what a run that was killed had begun."""
    for gone in folder.glob(f"*{ERASED}"):
        anew = made_anew(folder, gone)
        if stands(anew) and not stands(folder / anew.name):
            anew.rename(folder / anew.name)
            sync_folder(folder)
        shutil.rmtree(gone, ignore_errors=True)
    shutil.rmtree(folder / BESIDE, ignore_errors=True)


def _require_backup(folder: Path, data_dir: Path) -> None:
    if led_to(folder) == led_to(data_dir):
        raise InvalidParameter("A data directory cannot be its own backup: name another folder")
    if any(led_to(folder).is_relative_to(led_to(data_dir / ours)) for ours in OURS):
        raise InvalidParameter(
            f"{folder} is a folder of the data directory in which memlog keeps its own files",
            suggestion="Name a folder elsewhere, best on another disk.",
        )
    known = stands(folder / LOCK) or any(folder.glob(f"prj_*/{LOG_FILE}"))
    if folder.is_dir() and any(folder.iterdir()) and not known:
        raise InvalidParameter(
            f"{folder} holds something that is no backup of memlog",
            suggestion="Name an empty folder, one that is not there yet, or an earlier backup.",
        )


def _copied(project: Project, name: str, folder: Path, progress: Progress) -> Copied:
    continued = _continued(project, name, folder, progress)
    return continued or _copied_anew(project, name, folder, progress)


def _continued(project: Project, name: str, folder: Path, progress: Progress) -> Copied | None:
    """None where something was erased since the copy was made: it is not taken further."""
    target = folder / project.folder.name
    with project.stored() as (source, receipts):
        head = source.position()
        with closing(_begun(target)) as copy:
            position, chain = copy.head()
            if position == 0:
                copy.begin(project.generation)
            if copy.generation < project.generation:
                _require_nothing_lost(source, name, copy, folder)
            _require_same_history(source, name, position, chain)
            _require_as_forgetful(project, name, copy)
            if copy.generation < project.generation:
                return None
            entries = _checked(source.stored(position), position, chain)
            copy.add(_counted(entries, name, head, progress), receipts)
            copy.verify()
            sync_folder(target)
            sync_folder(folder)
            how: Any = "whole" if position == 0 else "continued" if head > position else "unchanged"
            return Copied(project.folder.name, name, head, head - position, how)


def _begun(target: Path) -> Copy:
    """The copy as far as it has come. One that a loss of power broke off may have its length, and nothing in it."""
    try:
        return Copy(target)
    except StorageError as error:
        damaged = isinstance(error.__cause__, StorageError)
        if not damaged or _holds_rows(target / LOG_FILE):
            raise
    shutil.rmtree(target)
    return Copy(target)


def _holds_rows(file: Path) -> bool:
    """Whether there is anything behind the two pages with which LMDB begins a file. Of larger ones, as some machines
    make them, what is left counts as something."""
    with file.open("rb") as opened:
        opened.seek(FIRST_PAGES_BYTES)
        return any(any(part) for part in iter(partial(opened.read, 1024 * 1024), b""))


def _copied_anew(project: Project, name: str, folder: Path, progress: Progress) -> Copied:
    """A copy without what was erased since takes the place of the one that has it."""
    beside = folder / BESIDE
    shutil.rmtree(beside, ignore_errors=True)
    fresh = _continued(project, name, beside, progress)
    assert fresh is not None, "a new copy is of the generation of its project"
    old = folder / project.folder.name
    gone = folder / f"{project.folder.name}{ERASED}"
    old.rename(gone)
    (beside / project.folder.name).rename(old)
    sync_folder(folder)
    shutil.rmtree(gone)
    shutil.rmtree(beside)
    return fresh


def _require_nothing_lost(source: Log, name: str, copy: Copy, folder: Path) -> None:
    """Raises Conflict where the copy has what the log lost."""
    mended = (position for position, value in source.stored() if codec.is_mended(value))
    lost = [position for position in mended if copy.has_written(position)]
    if lost:
        puts_back = shell.command_line(f"memlog repair --backup {shlex.quote(str(folder))}", name)
        raise Conflict(
            f"The backup of project '{name}' has {counted(len(lost), 'entries')} that its log lost with a damage, "
            f"the first of position {lost[0]}",
            suggestion=f"Nothing was changed. `{puts_back}` puts back what was lost.",
        )


def _require_same_history(source: Log, name: str, position: int, chain: bytes) -> None:
    if position and source.chain_at(position) != chain:
        behind = source.position() < position
        said = f"ends at {source.position()}" if behind else "has another history"
        raise Conflict(
            f"The backup of project '{name}' reaches to position {position}; the project {said}",
            suggestion="Nothing was changed. Restore the project from this backup, or back up into "
            "another folder.",
        )


def _require_as_forgetful(project: Project, name: str, copy: Copy) -> None:
    if copy.generation > project.generation:
        raise Conflict(
            f"Project '{name}' still has something that was erased from its backup",
            suggestion="Nothing was changed. Erase it here too with `memlog purge`, or back up into "
            "another folder.",
        )


def _checked(
    entries: Iterator[tuple[int, bytes]], position: int, chain: bytes
) -> Iterator[tuple[int, bytes]]:
    """The entries, as long as each follows from the one before. Raises DamagedLog at the first that does not."""
    chain = chain or codec.GENESIS
    for found, value in entries:
        if found != position + 1:
            raise DamagedLog(position, f"position {position + 1}: it is missing")
        codec.require_follows(chain, found, value)
        yield found, value
        position, chain = found, value[1:CHAIN_END]


def _counted(
    entries: Iterator[tuple[int, bytes]], name: str, head: int, progress: Progress
) -> Iterator[tuple[int, bytes]]:
    for position, value in entries:
        yield position, value
        if position % 1_000 == 0 or position == head:
            progress(name, position, head)
