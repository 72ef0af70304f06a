"""Backups: a folder with a copy of each project's log, made while everybody goes on, taken further by the next.

    FOLDER/<project id>/log.mdb

Promises: a copy is one consistent point of its project, a snapshot that no writer waits for; the next
run adds the entries that are new and writes nothing else; every copy is read back and its chain checked
before it counts; a copy is never cut, and never mixed from two histories: where the project's log is
behind its copy, says otherwise or still has what was erased from it, the run is refused and the copy stays.
After a purge, and only then, the copy is made anew, so that it forgets what the log forgot.

A copy holds the log, and the receipts that make retries safe. The state and the indexes are computed
from the log when the copy is opened; LMDB's own hot copy would bring the state along, could not be
continued from an earlier one, and would copy damage without a word. Archived projects are copied like
active ones; what was deleted stays in the backup until somebody removes it there.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import lmdb
import msgspec

from memlog import codec
from memlog.canonical import canonical
from memlog.codec import CHAIN_END
from memlog.environment import Environment, sync_folder
from memlog.errors import Conflict, InvalidParameter, ProjectExists, ProjectNotFound, StorageError
from memlog.log import Damage, Log
from memlog.private import make_private
from memlog.project import DATABASES, GENERATION_KEY, LOG_FILE, Project
from memlog.store import Store
from memlog.tables import place

ROWS_PER_COMMIT = 10_000
LOCK, BESIDE, ERASED = "backup.lock", "beside", ".erased"
"""In a backup: what marks it as one, where a copy is made anew, and the end of the name of the old copy."""

STAGED = "restoring"
"""The folder in the data directory where a project is made ready before it is taken in."""

log = logging.getLogger("memlog.backup")

Progress = Callable[[str, int, int], None]
"""Told a project's name, how far it is, and how far it goes."""


class Copied(msgspec.Struct, frozen=True):
    """What a run did about one project: its log up to `position`, of which `added` entries are new."""

    id: str
    name: str
    position: int
    added: int
    how: Literal["whole", "continued", "unchanged"]


class Copy:
    """The log of one project in a backup."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = Environment(folder / LOG_FILE, DATABASES)

    def head(self) -> tuple[int, bytes]:
        """The last position and the chain there."""
        with self._environment.read() as transaction:
            found = Log(transaction, self._environment.databases["log"])
            position = found.position()
            return position, found.chain_at(position)

    def has_written(self, position: int) -> bool:
        """Whether an entry stands there, and not what was put in the place of one."""
        with self._environment.read() as transaction:
            value = transaction.get(place(position), b"", db=self._environment.databases["log"])
        return bool(value) and not codec.is_mended(bytes(value))

    @property
    def generation(self) -> int:
        with self._environment.read() as transaction:
            stored = transaction.get(GENERATION_KEY, b"", db=self._environment.databases["meta"])
        return int.from_bytes(stored, "big")

    def begin(self, generation: int) -> None:
        """Says of an empty copy how often something had been erased from its log."""
        stored, meta = generation.to_bytes(4, "big"), self._environment.databases["meta"]
        self._environment.write(
            lambda transaction: transaction.put(GENERATION_KEY, stored, db=meta)
        )

    def add(self, entries: Iterable[tuple[int, bytes]], receipts: Iterable[Any]) -> None:
        """Adds entries at the end, as they come, and what receipts it has not."""
        self._environment.fill("log", ((place(position), value) for position, value in entries))
        rows = iter(receipts)
        while batch := list(islice(rows, ROWS_PER_COMMIT)):

            def body(transaction: lmdb.Transaction, batch: Any = batch) -> None:
                for key, value in batch:
                    database = self._environment.databases["receipts"]
                    transaction.put(key, value, overwrite=False, db=database)

            self._environment.write(body)

    def verify(self) -> None:
        """Reads every entry back from disk. Raises StorageError where the chain is not whole."""
        with self._environment.read() as transaction:
            for found in Log(transaction, self._environment.databases["log"]).verify():
                if isinstance(found, Damage):
                    raise StorageError(
                        f"the backup {self.folder} is damaged at position {found.position}: "
                        f"{found.problem}",
                        suggestion="Make a new one into another folder, and look after the disk.",
                    )

    def close(self) -> None:
        self._environment.close()


# -- out of the store


def back_up(store: Store, folder: Path, progress: Progress = lambda *_: None) -> list[Copied]:
    """Brings the backup in `folder` up to date with every project of the store.

    Raises InvalidParameter for a folder that is none, Conflict where a project is not what it was
    copied from, StorageError where the disk or a damaged log stands in the way; projects before that
    one are copied then, and what the backup had stays.
    """
    from filelock import FileLock

    _require_backup(folder, store.data_dir)
    try:
        make_private(folder)
        with FileLock(folder / LOCK):
            for left in (folder / BESIDE, *folder.glob(f"*{ERASED}")):  # by a run that was killed
                shutil.rmtree(left, ignore_errors=True)
            return [
                _copied(store.by_id(row.id), row.name, folder, progress)
                for row in store.projects("all")
            ]
    except OSError as error:
        raise StorageError(
            f"The backup in {folder} cannot be written: {error.strerror or error}",
            suggestion="Name a folder that this user may write, on a disk with room for it.",
        ) from error


def _require_backup(folder: Path, data_dir: Path) -> None:
    if folder.resolve() == data_dir.resolve():
        raise InvalidParameter("A data directory cannot be its own backup: name another folder")
    known = (folder / LOCK).exists() or any(folder.glob(f"prj_*/{LOG_FILE}"))
    if folder.is_dir() and any(folder.iterdir()) and not known:
        raise InvalidParameter(
            f"{folder} holds something that is no backup of memlog",
            suggestion="Name an empty folder, one that is not there yet, or an earlier backup.",
        )


def _copied(project: Project, name: str, folder: Path, progress: Progress) -> Copied:
    target = folder / project.folder.name
    with project.stored() as (source, receipts):
        head = source.position()
        copy = Copy(target)
        try:
            position, chain = copy.head()
            if position == 0:
                copy.begin(project.generation)
            if copy.generation < project.generation:
                _require_nothing_lost(source, name, copy, folder)
            _require_same_history(source, name, position, chain)
            _require_as_forgetful(project, name, copy)
            if copy.generation < project.generation:
                copy.close()
                return _copied_anew(project, name, folder, progress)
            entries = _checked(source.stored(position), position, chain)
            copy.add(_counted(entries, name, head, progress), receipts)
            copy.verify()
            sync_folder(target)
            how: Any = "whole" if position == 0 else "continued" if head > position else "unchanged"
            return Copied(project.folder.name, name, head, head - position, how)
        finally:
            copy.close()


def _copied_anew(project: Project, name: str, folder: Path, progress: Progress) -> Copied:
    """Something was erased since: a copy without it takes the place of the one that has it."""
    beside = folder / BESIDE
    shutil.rmtree(beside, ignore_errors=True)
    fresh = _copied(project, name, beside, progress)
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
        raise Conflict(
            f"The backup of project '{name}' has {len(lost)} entries that its log lost with a damage, the "
            f"first of position {lost[0]}",
            suggestion=f"Nothing was changed. `memlog repair '{name}' --backup {folder}` puts them back.",
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
    """The entries, as long as each follows from the one before."""
    chain = chain or codec.GENESIS
    for found, value in entries:
        if found != position + 1 or not codec.follows(chain, found, value):
            raise StorageError(
                f"The log is damaged at position {position + 1}; the backup stays as it was",
                suggestion="Run `memlog verify`, then restore the project with `memlog restore`.",
            )
        yield found, value
        position, chain = found, value[1:CHAIN_END]


def _counted(
    entries: Iterator[tuple[int, bytes]], name: str, head: int, progress: Progress
) -> Iterator[tuple[int, bytes]]:
    for position, value in entries:
        yield position, value
        if position % 1_000 == 0 or position == head:
            progress(name, position, head)


# -- into the store


class Restored(msgspec.Struct, frozen=True):
    id: str
    name: str
    position: int
    how: Literal["restored", "replaced", "already there"]
    aside: str | None = None
    """Where what it replaced is now."""


def restore(
    store: Store, folder: Path, *, names: frozenset[str] = frozenset(), replace: bool = False
) -> list[Restored]:
    """Brings projects of a backup (those of these names; none named: all) into the store.

    One that is there with at least this history is left alone. Raises ProjectExists where another
    stands in its place, ProjectNotFound for a name that the backup does not have, StorageError where
    the backup is damaged; and nothing of that project is changed then.
    """
    copies = sorted(path.parent for path in folder.glob(f"prj_*/{LOG_FILE}"))
    if not copies:
        raise InvalidParameter(f"{folder} holds no backup of memlog")
    wanted = {canonical(name): name for name in names}
    done, seen = [], {}
    for copied in copies:
        staged = _staged(store, copied)
        try:
            name, position, chain = _described(staged)
            seen[canonical(name)] = name
            if not wanted or canonical(name) in wanted:
                done.append(_restored(store, staged, name, position, chain, replace))
        finally:
            shutil.rmtree(staged, ignore_errors=True)
    if missing := sorted(wanted.keys() - seen.keys()):
        raise ProjectNotFound(
            f"The backup has no project '{wanted[missing[0]]}'",
            suggestion=f"It has {', '.join(sorted(seen.values()))}.",
        )
    return done


def take_in(
    store: Store, project_id: str, generation: int, entries: Iterable[tuple[int, bytes]]
) -> Restored:
    """Brings in the history of a project, whose chain was checked, as `restore` does one of a backup.

    Raises InvalidParameter where these events cannot have happened one after another.
    """
    with made(store, project_id, generation, entries) as staged:
        try:
            described = _described(staged)
        except (LookupError, ValueError, TypeError, AttributeError, AssertionError) as error:
            raise InvalidParameter(
                "These events cannot have happened one after another",
                suggestion="Nothing was imported. Take the file as `memlog export --full` wrote it.",
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
    staged = store.data_dir / STAGED / project_id
    shutil.rmtree(staged, ignore_errors=True)
    try:
        copy = Copy(staged)
        try:
            copy.begin(generation)
            copy.add(entries, receipts)
            copy.verify()
        finally:
            copy.close()
        sync_folder(staged)
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _staged(store: Store, copied: Path) -> Path:
    """A copy of the copy in the data directory, proved; the backup itself is only read."""
    staged = store.data_dir / STAGED / copied.name
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    shutil.copyfile(copied / LOG_FILE, staged / LOG_FILE)
    copy = Copy(staged)
    try:
        copy.verify()
    finally:
        copy.close()
    return staged


def _described(folder: Path) -> tuple[str, int, bytes]:
    """The name of the project in this folder, its last position, and the chain there."""
    project = Project(folder)
    try:
        row = project.status()
        if row is None:
            raise InvalidParameter(f"{folder.name} holds no project")
        with project.stored() as (found, _):
            return row.name, found.position(), found.chain_at(found.position())
    finally:
        project.close()


def _restored(
    store: Store, staged: Path, name: str, position: int, chain: bytes, replace: bool
) -> Restored:
    try:
        row, _ = store.adopt(staged)
        return Restored(row.id, name, position, "restored")
    except ProjectExists:
        if _holds(store, staged.name, position, chain):
            return Restored(staged.name, name, position, "already there")
        if not replace:
            raise
    row, aside = store.adopt(staged, replace=True)
    return Restored(row.id, name, position, "replaced", None if aside is None else str(aside))


def _holds(store: Store, project_id: str, position: int, chain: bytes) -> bool:
    """Whether the project that is there has this history, whole, and perhaps more."""
    try:
        project = store.by_id(project_id)
        with project.stored() as (found, _):
            whole = not any(isinstance(each, Damage) for each in found.verify())
            return whole and found.chain_at(position) == chain
    except (StorageError, ProjectNotFound) as error:
        log.warning("project %s cannot be read: %s", project_id, error.message)
        return False
