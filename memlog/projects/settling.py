"""Folders and the catalogue made to agree with the logs, whatever they were before.

A log says what its project is called and whether it is archived. Where it can say nothing, because it is damaged or
gone, what is known of the project stays; and of two projects of one name one is left out and told. Leaves to `store`
when that is done, and the lock under which it is: whoever settles holds it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from memlog.errors import DamagedLog, StorageError
from memlog.log import Damage
from memlog.projects.catalog import Catalog
from memlog.projects.deletions import Deletions
from memlog.projects.folders import Folders
from memlog.projects.opening import OpenProjects
from memlog.projects.project import LOG_FILE
from memlog.repair.damage import mark
from memlog.rows import Project as ProjectRow
from memlog.rows import Status
from memlog.storage.disk import stands

log = logging.getLogger("memlog.settling")


class Settling:
    """Of one data directory."""

    def __init__(
        self,
        folders: Folders,
        catalog: Catalog,
        deletions: Deletions,
        projects: OpenProjects,
        clock: Callable[[], int],
    ) -> None:
        self._folders = folders
        self._catalog = catalog
        self._deletions = deletions
        self._open = projects
        self._clock = clock

    def settle_all(self, project_ids: set[str]) -> None:
        """One that cannot be settled now, for it is of a newer memlog or of somebody else, or its folder cannot be
        moved, keeps no other from it."""
        for project_id in sorted(project_ids):
            try:
                self.end(project_id)
            except (StorageError, OSError) as error:
                log.warning("project %s stays as it is: %s", project_id, cause(error))

    def end(self, project_id: str) -> None:
        """Settles a change, which is pending no more then: but where the disk has no room for a catalogue in which no
        page tells of what was removed. Then all is as it should be but for that, and whoever lists projects tries
        again."""
        self.settle(project_id)
        try:
            self._catalog.clear()  # last: what was thrown away has made room for it
        except StorageError as error:
            log.warning("what deleted projects were called is not erased yet: %s", error.message)
            return
        self._catalog.settled(project_id)

    def settle(self, project_id: str) -> None:
        """Makes the folder's place and the catalogue's row agree with the project's log."""
        folder = self._folders.of(project_id) or self._brought_back(project_id)
        folder = folder or self._found_without_log(project_id)
        if folder is None:
            self._catalog.write(project_id, None)
            return
        try:
            project = self._open.get(project_id)
        except DamagedLog as error:  # nothing of it can be read
            is_listed = self._catalog.with_id(project_id) is not None
            if not is_listed and self._was_being_made(project_id):
                self._folders.throw_away(folder)
                return
            log.warning("project %s stays where it is: %s", project_id, error.message)
            if not is_listed:
                status = self._folders.status(folder)
                self._catalog.write(project_id, _nameless(project_id, status, self._clock()))
            return
        row = project.status()
        if row is None:
            receipt = project.deletion()
            if receipt is not None:
                self._deletions.keep(receipt)
            del project  # else its file would be on the disk as long as this lasts
            self._open.forget(project_id)
            # First, else a folder that is left would be taken for one that lost its log.
            self._catalog.write(project_id, None)
            self._folders.throw_away(folder)
        elif project.damage is not None:
            self._settle_damaged(row)
        else:
            right = self._folders.home(project_id, row.status)
            if folder != right:
                self._folders.move(folder, right)
            project.folder = right
            self._folders.forget_salvaged(project_id)
            self._catalog.write(project_id, None if self._has_namesake(row) else row)

    def _brought_back(self, project_id: str) -> Path | None:
        """The folder that was put aside, where it was, because nothing took its place."""
        name = self._catalog.aside(project_id)
        aside = self._folders.replaced / name
        if not name or not stands(aside):
            return None
        home = self._folders.home(project_id)
        self._folders.move(aside, home)
        return home

    def _found_without_log(self, project_id: str) -> Path | None:
        """The folder of a project that is known and has no log any more, which is noted there. None of one whose folder
        was taken away as a whole, and of what is left of one that was deleted, for that is known no more."""
        folder = self._folders.without_log(project_id)
        if folder is None or self._catalog.with_id(project_id) is None:
            return None
        mark(folder / LOG_FILE, [Damage(1, "missing: the file of the log is gone")])
        return folder

    def _was_being_made(self, project_id: str) -> bool:
        """Of one that is in no list and whose log holds nothing: whether nobody was told yet that it was made. A loss
        of power may leave the file with its length and without what was written into it."""
        return project_id in self._catalog.pending() and not self._catalog.aside(project_id)

    def _has_namesake(self, row: ProjectRow) -> bool:
        """Whether another project is known by its name, and stays so: a folder was copied into this data directory. One
        that holds only its own creation gives way to one that holds more."""
        known = self._catalog.row(row.name)
        if known is None or known.id == row.id or self._folders.of(known.id) is None:
            return False
        gives_way = self._is_bare(known.id) and not self._is_bare(row.id)
        stays, goes = (row, known) if gives_way else (known, row)
        log.warning("%s", left_out(goes.id, stays))
        return not gives_way

    def _is_bare(self, project_id: str) -> bool:
        """False, too, of one that cannot be read."""
        try:
            return self._open.get(project_id).is_bare
        except StorageError:
            return False

    def _settle_damaged(self, row: ProjectRow) -> None:
        """What is left of a log decides nothing but that there is a project, where nobody knows of it."""
        if self._catalog.with_id(row.id) is None and not self._has_namesake(row):
            self._catalog.write(row.id, row)


def cause(error: StorageError | OSError) -> str:
    """What went wrong, without what to do about it."""
    return error.message if isinstance(error, StorageError) else error.strerror or str(error)


def left_out(project_id: str, stays: ProjectRow) -> str:
    return (
        f"{project_id} is left out, in lists and in backups, for {stays.id} is called '{stays.name}', too. Nothing of "
        "it is lost: move its folder to `projects` of another data directory to read it"
    )


def misnamed(folder: Path) -> str:
    return (
        f"'{folder.name}' in `{folder.parent.name}` is left out, in lists and in backups, for it has a log and not the "
        "name of a project. Nothing of it is lost: give the folder its name again (`prj_…`). Where another has that by "
        "now, move it to `projects` of another data directory"
    )


def copied(copy: Path) -> str:
    project_id = copy.parent.name
    return (
        f"{project_id} has a log that is left out, in lists and in backups, for it is not called {LOG_FILE}: "
        f"'{copy.name}'. So programs that copy files between machines put aside what one of them wrote where both did: "
        f"it may hold what {LOG_FILE} does not. To read it, copy it to `projects/{project_id}/{LOG_FILE}` of another "
        "data directory: what `memlog export` writes there `memlog import` adds here, but for facts and records. "
        "Remove it once nothing of it is missing"
    )


def unread(project_id: str, error: StorageError) -> str:
    return (
        f"{project_id} is left out, in lists and in backups, for it cannot be read: {error.message}"
    )


def _nameless(project_id: str, status: Status, now_us: int) -> ProjectRow:
    """What is told of a project of which nothing can be read and nobody knows more: it goes by its id."""
    return ProjectRow(project_id, project_id, "", status, now_us, now_us)
