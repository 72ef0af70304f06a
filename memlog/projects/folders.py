"""Where the projects of a data directory stand, and how a folder is moved or removed.

    DATA/catalog.mdb              name -> project, a projection of the logs
    DATA/deletions.json           what was answered to deletions, for a retry
    DATA/projects/<id>/log.mdb    an active project; its indexes stand beside its log
    DATA/archive/<id>/log.mdb     an archived one
    DATA/replaced/<new id>/       what a restore or a repair took the place of; never removed
    DATA/salvaged/                what is whole of a log that is damaged, until it is restored
    DATA/restoring/               where a project is made ready that is to be taken in
    DATA/trash/                   what is being removed

Which folder is to stand where is decided in `store`.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memlog.errors import StorageError
from memlog.ids import Prefix
from memlog.projects.project import LOG_FILE
from memlog.repair.damage import DAMAGED
from memlog.rows import Status
from memlog.storage.disk import make_private, stands, sync_folder
from memlog.storage.errors import storage_error
from memlog.storage.pages import is_one
from memlog.storage.structure import SEAL

_HOMES: dict[Status, str] = {"active": "projects", "archived": "archive"}
_REPLACED, _SALVAGED, _STAGED, _TRASH = "replaced", "salvaged", "restoring", "trash"
OURS = (*_HOMES.values(), _REPLACED, _SALVAGED, _STAGED, _TRASH)
"""In a data directory."""
CATALOG = "catalog.mdb"

log = logging.getLogger("memlog.folders")


def is_begun(data_dir: Path) -> bool:
    """Whether there may be projects in it; True, too, of what cannot be used as one: whoever opens it says why."""
    try:
        os.fspath(data_dir).encode()
        standing = os.listdir(data_dir)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeEncodeError):
        return True
    return any(each in standing for each in (CATALOG, *_HOMES.values()))


def require_no_file(data_dir: Path) -> None:
    """Raises StorageError where a file stands in its place, or in that of a folder it lies in. Makes nothing."""
    try:
        os.stat(os.path.join(data_dir, ""))
    except NotADirectoryError as error:
        raise cannot_be_made(data_dir, error) from error
    except OSError:  # who makes it says so
        return


def cannot_be_made(data_dir: Path, error: OSError) -> StorageError:
    return StorageError(
        f"The data directory {data_dir} cannot be made: {error.strerror}",
        suggestion="Name a folder that this user may write, by --data-dir or MEMLOG_DATA_DIR.",
    )


def copies_in(folder: Path) -> list[Path]:
    """Logs by other names in the folder of a project, as far as the system tells. So a program that synchronizes two
    machines keeps what one of them wrote where both did. What it is not done with it hides."""
    try:
        return [each for each in sorted(folder.iterdir()) if _is_copy(each)]
    except OSError:
        return []


def _is_copy(file: Path) -> bool:
    if file.name == LOG_FILE or file.name.startswith("."):
        return False
    try:
        return file.is_file() and is_one(file)
    except OSError:
        return False


class Folders:
    """The folders of one data directory, by the ids of their projects."""

    def __init__(self, data_dir: Path, new_id: Callable[[Prefix], str]) -> None:
        self._data_dir = data_dir
        self._new_id = new_id
        self.replaced = data_dir / _REPLACED
        self.salvaged = data_dir / _SALVAGED
        self.trash = data_dir / _TRASH
        self._catalog = os.fspath(data_dir / CATALOG)

    def make(self) -> None:
        """Raises StorageError."""
        try:
            # LMDB takes no name that is not UTF-8, and finds out with a file begun.
            os.fspath(self._data_dir).encode()
            make_private(self._data_dir)
        except UnicodeEncodeError as error:
            raise StorageError(
                f"The data directory {os.fspath(self._data_dir)!a} cannot be used: its name is not valid UTF-8",
                suggestion="Name a folder in UTF-8, by --data-dir or MEMLOG_DATA_DIR. Nothing was made.",
            ) from error
        except OSError as error:
            raise cannot_be_made(self._data_dir, error) from error

    def require_there(self) -> None:
        """Raises StorageError where all is gone that was there when the data directory was opened. What took its place
        would be another memory."""
        if not os.path.exists(self._catalog) and not is_begun(self._data_dir):
            raise StorageError(
                "The data directory is not there any more: it was moved or removed, or its disk is not mounted. "
                "Nothing was done",
                suggestion="Put it back, then call again. To use another, or to begin with an empty one, start the "
                "server anew.",
            )

    def home(self, project_id: str, status: Status = "active") -> Path:
        """Where its folder is to stand."""
        return self._data_dir / _HOMES[status] / project_id

    def of(self, project_id: str) -> Path | None:
        """Where it stands, with its log or, where there is none, without the log that it had. Raises StorageError where
        the system does not tell: who took that for gone would strike the project from the list."""
        homes = [self.home(project_id, status) for status in _HOMES]
        whole = (home for home in homes if self._is_there(home / LOG_FILE))
        return next(whole, None) or next(filter(self._lost_its_log, homes), None)

    def may_have(self, project_id: str) -> bool:
        """Whether it stands there; True, too, where the system does not tell."""
        try:
            return self.of(project_id) is not None
        except StorageError:
            return True

    def without_log(self, project_id: str) -> Path | None:
        """A folder of its that stands there, be it that it lost its log, or that it never had one. Raises StorageError,
        too."""
        homes = (self.home(project_id, status) for status in _HOMES)
        return next(
            (each for each in homes if each.is_dir() and not self._is_there(each / LOG_FILE)), None
        )

    def ids(self) -> set[str]:
        """Those of all projects that are there, and of those whose log is gone. One whose folder cannot be looked into
        is taken for there, and those of a home that cannot be are left out: nobody is kept from the others, and `of`
        says what is wrong."""
        return {
            name
            for home in _HOMES.values()
            for name in self._in(home)
            if name.startswith("prj_") and self._may_be_there(self._data_dir / home / name)
        }

    def misnamed(self) -> list[Path]:
        """Folders with a log that are called what no project is: somebody renamed or copied them. As far as the system
        tells."""
        found = (
            self._data_dir / home / name
            for home in _HOMES.values()
            for name in self._in(home)
            if not name.startswith("prj_")
        )
        return sorted(folder for folder in found if os.path.isfile(folder / LOG_FILE))

    def copies(self) -> list[Path]:
        """Logs by other names in the folders of all projects (`copies_in`)."""
        projects = (
            self._data_dir / home / name
            for home in _HOMES.values()
            for name in self._in(home)
            if name.startswith("prj_")
        )
        return [copy for folder in projects for copy in copies_in(folder)]

    def _in(self, home: str) -> list[str]:
        """The names of what stands there, as far as the system tells."""
        try:
            return os.listdir(self._data_dir / home)
        except FileNotFoundError:
            return []
        except OSError as error:
            log.warning("which projects stand in %s cannot be read: %s", home, error.strerror)
            return []

    def _may_be_there(self, folder: Path) -> bool:
        try:
            return self._is_there(folder / LOG_FILE) or self._lost_its_log(folder)
        except StorageError:
            return True

    def _lost_its_log(self, folder: Path) -> bool:
        """Whether what only stands beside a log stands there without one, or copies of it do. A lock does not count,
        nor an index: the one is made before the log, the other may be written after the project was deleted."""
        beside = (folder / f"{LOG_FILE}{each}" for each in (SEAL, DAMAGED))
        return any(map(self._is_there, beside)) or bool(copies_in(folder))

    def _is_there(self, path: Path) -> bool:
        """Raises StorageError where the system does not tell."""
        try:
            return stands(path)
        except OSError as error:
            raise storage_error(path, error, within=self._data_dir) from error

    def status(self, folder: Path) -> Status:
        """The one whose home it stands in."""
        return next(status for status, home in _HOMES.items() if folder.parent.name == home)

    def standing(self) -> set[str]:
        """What stands in the homes, by name. It costs less than `of` each: what is not among them may have moved."""
        return {name for home in _HOMES.values() for name in self._in(home)}

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """A folder that is empty, this process's alone, and gone afterwards; and what a killed one left there is, too.

        Raises OSError.
        """
        from filelock import FileLock

        staged = self._data_dir / _STAGED
        with FileLock(f"{staged}.lock"):
            shutil.rmtree(staged, ignore_errors=True)
            try:
                yield staged
            finally:
                shutil.rmtree(staged, ignore_errors=True)

    def move(self, folder: Path, home: Path) -> None:
        """It stands at `home`, also after a loss of power."""
        home.parent.mkdir(parents=True, exist_ok=True)
        if home.exists():  # an index that some process wrote after the folder had moved
            self.throw_away(home)
        folder.rename(home)
        sync_folder(folder.parent)
        sync_folder(home.parent)

    def throw_away(self, folder: Path) -> None:
        """Removes a folder at once, also where another process is writing an index into it; and for good, also after a
        loss of power."""
        self.trash.mkdir(exist_ok=True)
        folder.rename(self.trash / self._new_id("prj"))
        sync_folder(folder.parent)
        self.empty_trash()

    def forget_salvaged(self, project_id: str) -> None:
        """Removes what was salvaged of a log that is there again, or else leaves it to the next time."""
        for folder in self.salvaged.glob(f"*/{project_id}"):
            with suppress(OSError):
                self.throw_away(folder.parent)

    def empty_trash(self) -> None:
        """Removes what was thrown away, also by a process that was killed before it was done."""
        shutil.rmtree(self.trash, ignore_errors=True)
