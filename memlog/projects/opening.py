"""The projects that this process has open, and how one is opened: from its log, or from what is whole of it.

A log is opened once in a process, so threads take turns. Among processes there is a lock under which folders are
moved, logs replaced and the lives of projects changed; whoever opens a log meanwhile would open one that goes. What is
open waits for none of that, unless it is what changes: to open a log may take seconds.
Left to `store`: which projects there are, and whether one may be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from memlog.errors import DamagedLog, ProjectNotFound, StorageError
from memlog.patience import held, require_patience
from memlog.projects.catalog import Catalog
from memlog.projects.folders import Folders, copies_in
from memlog.projects.project import LOG_FILE, Project
from memlog.projects.recent import Recent
from memlog.repair.damage import noted
from memlog.repair.salvaging import salvage
from memlog.rows import text_key
from memlog.storage.disk import stands, sync_folder
from memlog.storage.errors import is_damage, storage_error
from memlog.storage.gates import excluding_processes

EACH = "each"
"""In place of the id of a project."""


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
        self._looking = threading.Lock()
        """At those that are open: for a moment. Taken last."""
        self._opening = threading.RLock()
        self._locked = False
        self._changing: str | None = None
        """The project that nobody gets meanwhile; EACH for all of them."""

    def get(self, project_id: str) -> Project:
        """The project, whatever its status. Raises ProjectNotFound."""
        project = self._at_hand(project_id)
        if project is not None:
            return project
        with held(self._opening):  # by who opens another, or waits for another process
            project = self._known(project_id)
            if project is not None and project.moved:
                with self._excluding_processes():  # nobody is moving it
                    project.folder = self.folder_of(project_id)
            if project is None or project.moved or project.replaced or project.unreadable:
                text_key.cache_clear()  # a file is replaced when something was erased for good
                with self._excluding_processes():  # nobody is replacing the file
                    folder = self.folder_of(project_id)
                    anew = project is None or project.moved or project.replaced
                    read = self._read if anew else self._salvaged
                    project = self._put(project_id, read(folder))
            return project

    def new(self, project_id: str) -> Project:
        """One that is to be made: its log is empty, and on the disk. Raises StorageError."""
        home = self._folders.home(project_id)
        project = self._put(project_id, Project(home, clock=self._clock))
        try:
            sync_folder(home)
            sync_folder(home.parent)
        except OSError as error:
            raise storage_error(home / LOG_FILE, error) from error
        return project

    def file_of(self, project_id: str) -> Path:
        """Its log. Raises ProjectNotFound, DamagedLog where it is gone."""
        with self._excluding_processes():  # nobody is moving it
            file = self.folder_of(project_id) / LOG_FILE
            _require_log(file)
        return file

    def folder_of(self, project_id: str) -> Path:
        """Where it stands. Raises ProjectNotFound."""
        folder = self._folders.of(project_id)
        if folder is None:
            self.forget(project_id)
            raise ProjectNotFound("This project was deleted a moment ago")
        return folder

    def forget(self, project_id: str) -> None:
        """Without closing it: a call under way still reads there that it was deleted."""
        with self._opening, self._looking:
            self._open.pop(project_id)

    def forget_gone(self) -> list[Project]:
        """Lets go of those whose files other processes removed or replaced, and says which. Waits for no other process,
        which may keep its lock for minutes. Raises StorageError."""
        self._folders.require_there()
        with self._looking:
            opened = self._open.all()
        gone = [project for project in opened if project.gone]
        with self._looking:
            for project in gone:
                self._open.drop(project)
        return gone

    def close(self) -> None:
        with self._opening:
            with self._looking:
                projects = self._open.all()
                self._open.clear()
            for project in projects:
                project.close()

    @contextmanager
    def locked(self, project_id: str = EACH) -> Iterator[None]:
        """Nobody else opens, moves or replaces a log meanwhile, in whatever process, nor gets this project, though it
        is open. Raises StorageError."""
        with self._excluding_processes():
            before = self._changing
            self._changing = project_id if before is None else EACH
            try:
                yield
            finally:
                self._changing = before

    @contextmanager
    def _excluding_processes(self) -> Iterator[None]:
        require_patience()
        with self._opening:
            if self._locked:  # by this thread, further up
                yield
                return
            self._folders.require_there()
            try:
                with excluding_processes(self._lock_file):
                    self._locked = True
                    try:
                        yield
                    finally:
                        self._locked = False
            except OSError as error:
                raise self._told(error) from error

    def _told(self, error: OSError) -> StorageError:
        """Of what the system named, where that is in the data directory; else of the lock."""
        data_dir, named = self._lock_file.parent, error.filename
        path = Path(named) if isinstance(named, (str, Path)) else self._lock_file
        if data_dir not in path.parents:
            path = self._lock_file
        return storage_error(path, error, within=data_dir)

    def _at_hand(self, project_id: str) -> Project | None:
        """The project if it is open and is as it was: no matter who opens another."""
        with self._looking:
            if self._changing in (EACH, project_id):
                return None
            project = self._open.get(project_id)
        if project is None or project.moved or project.replaced or project.unreadable:
            return None
        return project

    def _known(self, project_id: str) -> Project | None:
        with self._looking:
            return self._open.get(project_id)

    def _put(self, project_id: str, project: Project) -> Project:
        with self._looking:
            return self._open.put(project_id, project)

    def _read(self, folder: Path) -> Project:
        """The project in `folder`, or what can be read of it."""
        _require_log(folder / LOG_FILE)
        if not (folder / LOG_FILE).stat().st_size and self._catalog.with_id(folder.name):
            # LMDB would take it for a new one.
            raise DamagedLog(0, "the file is empty", nothing_left=True)
        try:
            return Project(folder, clock=self._clock)
        except StorageError as error:
            if not is_damage(error) and not isinstance(error, DamagedLog):
                raise
        part = self._salvaged(folder)
        if noted(folder / LOG_FILE) is None:
            # It has passed, as where a disk of the network was away.
            with suppress(StorageError):
                whole = Project(folder, clock=self._clock)
                part.close()
                self._folders.forget_salvaged(folder.name)
                return whole
        return part

    def _salvaged(self, folder: Path) -> Project:
        created = self._catalog.created(folder.name)
        return salvage(folder / LOG_FILE, self._folders.salvaged, self._clock, created)


def _require_log(file: Path) -> None:
    if not stands(file):
        gone = f"its file {file.parent.name}/{file.name} is gone"
        copies = [each.name for each in copies_in(file.parent)]
        raise DamagedLog(0, gone, nothing_left=True, copies=copies)
