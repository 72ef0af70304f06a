"""The projects that this process has open, and how one is opened: from its log, or from what is whole of it.

A log is opened once in a process, so threads take turns. Among processes there is a lock under which folders are
moved, logs replaced and the lives of projects changed; whoever opens a log meanwhile would open one that goes.
Left to `store`: which projects there are, and whether one may be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memlog.catalog import Catalog
from memlog.errors import DamagedLog, ProjectNotFound, StorageError
from memlog.folders import Folders
from memlog.patience import Held, require_patience
from memlog.project import LOG_FILE, Project
from memlog.recent import Recent
from memlog.salvaging import salvage
from memlog.state import text_key
from memlog.storage_errors import is_damage, storage_error


class OpenProjects:
    """Those of one data directory, by id. Every method may be called from any thread."""

    def __init__(
        self, lock_file: Path, folders: Folders, catalog: Catalog, clock: Callable[[], int]
    ) -> None:
        self._lock_file = lock_file
        self._folders = folders
        self._catalog = catalog
        self._clock = clock
        self._open: Recent[Project] = Recent()
        self._opening = threading.RLock()
        self._locked = False

    def get(self, project_id: str) -> Project:
        """The project, whatever its status. Raises ProjectNotFound."""
        with Held(self._opening):  # by who opens another, or waits for another process
            project = self._open.get(project_id)
            if project is not None and project.moved:
                with self.locked():  # nobody is moving it
                    project.folder = self.folder_of(project_id)
            if project is None or project.replaced or project.unreadable:
                text_key.cache_clear()  # a file is replaced when something was erased for good
                with self.locked():  # nobody is replacing the file
                    folder = self.folder_of(project_id)
                    unreadable = project is not None and not project.replaced
                    read = self._salvaged if unreadable else self._read
                    project = self._open.put(project_id, read(folder))
            return project

    def new(self, project_id: str) -> Project:
        """One that is to be made: its log is empty."""
        project = Project(self._folders.home(project_id), clock=self._clock)
        return self._open.put(project_id, project)

    def folder_of(self, project_id: str) -> Path:
        """Where it stands. Raises ProjectNotFound."""
        folder = self._folders.of(project_id)
        if folder is None:
            self.forget(project_id)
            raise ProjectNotFound("This project was deleted a moment ago")
        return folder

    def forget(self, project_id: str) -> None:
        """Without closing it: a call under way still reads there that it was deleted."""
        with self._opening:
            self._open.pop(project_id)

    def close(self) -> None:
        with self._opening:
            for project in self._open.all():
                project.close()
            self._open.clear()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else opens, moves or replaces a log meanwhile, in whatever process. Raises StorageError."""
        from filelock import FileLock

        require_patience()
        with self._opening:
            if self._locked:  # by this thread, further up
                yield
                return
            try:
                with FileLock(self._lock_file):
                    self._locked = True
                    try:
                        yield
                    finally:
                        self._locked = False
            except OSError as error:
                raise storage_error(self._lock_file.parent, error) from error

    def _read(self, folder: Path) -> Project:
        """The project in `folder`, or what can be read of it."""
        if not (folder / LOG_FILE).stat().st_size and self._catalog.with_id(folder.name):
            # LMDB would take it for a new one.
            raise DamagedLog(0, "the file is empty", nothing_left=True)
        try:
            return Project(folder, clock=self._clock)
        except StorageError as error:
            if not is_damage(error) and not isinstance(error, DamagedLog):
                raise
            return self._salvaged(folder)

    def _salvaged(self, folder: Path) -> Project:
        created = self._catalog.created(folder.name)
        return salvage(folder / LOG_FILE, self._folders.salvaged, self._clock, created)
