"""Which projects a data directory has: the catalogue, which agrees with the folders and the logs.

It is made to agree where it was lost, where another stands in its place, and where a change of a life was left undone
because the disk failed. Leaves to `store` the changes themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar

from memlog.closest import did_you_mean
from memlog.context import Context
from memlog.errors import ProjectArchived, ProjectNotFound, StorageError
from memlog.projects.catalog import Catalog
from memlog.projects.deletions import Deletions
from memlog.projects.folders import CATALOG, Folders
from memlog.projects.opening import OpenProjects
from memlog.projects.project import Project, clock_us
from memlog.projects.settling import Settling, copied, left_out, misnamed, unread
from memlog.rows import Project as ProjectRow
from memlog.storage.disk import stands
from memlog.storage.files import FileIdentity

Seen = TypeVar("Seen")

Wanted = Literal["active", "archived", "all"]

log = logging.getLogger("memlog.listing")


class Listing:
    """The projects of one data directory. Several processes may hold the same one."""

    def __init__(
        self, data_dir: Path, context: Context = Context(), *, clock: Callable[[], int] = clock_us
    ) -> None:
        self.data_dir = data_dir
        self.context = context
        self._clock = clock
        self._folders = Folders(data_dir, context.new_id)
        self._folders.make()
        self._catalog = Catalog(data_dir / CATALOG)
        self.deletions = Deletions(data_dir / "deletions.json")
        self._open = OpenProjects(data_dir / "catalog.lock", self._folders, self._catalog, clock)
        self._agreed: FileIdentity | None = None
        """The catalogue's file, when it was last compared with the folders."""
        self._settling = Settling(self._folders, self._catalog, self.deletions, self._open, clock)
        try:
            if stands(self._folders.trash):
                with self._open.locked():  # nobody is throwing anything away
                    self._folders.empty_trash()
            self._agree()
        except BaseException:
            self.close()
            raise

    def projects(self, status: Wanted = "active") -> list[ProjectRow]:
        """The catalogue, oldest first, without those whose folder was taken away: it may come back. With those of which
        the system does not tell: whoever opens one is told why."""
        if self._listed(Catalog.pending):
            self._mend()
        rows = [row for row in self._catalog.rows() if status in ("all", row.status)]
        standing = self._folders.standing()
        wanted = [row for row in rows if row.id in standing or self._folders.may_have(row.id)]
        return sorted(wanted, key=lambda row: (row.created_us, row.id))

    def find(self, name: str) -> ProjectRow:
        """The catalogue's row. Raises ProjectNotFound with the nearest names, also where its folder was taken away."""
        row = self._row(name)
        if row is not None and not self._is_there(row):
            with self._open.locked():  # nobody is moving it
                row = row if self._is_there(row) else None
        if row is None:
            raise self._not_found(name)
        return row

    def knows(self, name: str) -> bool:
        """Whether there is a project of this name, though its folder may have been taken away: it may come back."""
        if self._row(name) is not None:
            return True
        with self._open.locked():  # nobody is putting one in the place of another
            return self._catalog.row(name) is not None

    def nameless(self) -> list[str]:
        """The ids of projects of which nothing can be read, not even what they are called. One whose log is there again
        has its name again, too."""
        found = _nameless(self._listed(Catalog.rows))
        if not found:
            return []
        with self._open.locked():
            self._settling.settle_all(set(found))
        return _nameless(self._catalog.rows())

    def project(self, name: str) -> Project:
        """The active project of this name. Raises ProjectNotFound or ProjectArchived."""
        row = self._row(name)
        if row is None:
            raise self._not_found(name)
        if row.status == "archived":
            raise ProjectArchived.named(name)
        try:
            return self._open.get(row.id)
        except ProjectNotFound:
            self._mend()
            raise self._not_found(name) from None

    def by_id(self, project_id: str) -> Project:
        """The project of this id, whatever its status. Raises ProjectNotFound."""
        return self._open.get(project_id)

    def file(self, project_id: str) -> Path:
        """The log's file, for those who read it when it cannot be opened. Raises ProjectNotFound, and DamagedLog where
        it is gone."""
        return self._open.file_of(project_id)

    def left_out(self) -> dict[str, str]:
        """The ids of projects, or names of folders and files, that stand there and are in no list, and why."""
        found = {each: unread(each, error) for each, error in self.unread().items()}
        for project_id in sorted(self._unlisted() - found.keys()):
            with suppress(StorageError, ProjectNotFound):
                row = self._open.get(project_id).status()
                stays = None if row is None else self._catalog.row(row.name)
                if stays is not None and stays.id != project_id:
                    found[project_id] = left_out(project_id, stays)
        copies = {
            f"{each.parent.name}/{each.name}": copied(each) for each in self._folders.copies()
        }
        return found | copies | {each.name: misnamed(each) for each in self._folders.misnamed()}

    def unread(self) -> dict[str, StorageError]:
        """The ids of projects that stand there and are in no list because they cannot be read, and why."""
        found = {}
        for project_id in sorted(self._unlisted()):
            with suppress(ProjectNotFound):  # it was deleted a moment ago
                try:
                    self._open.get(project_id)
                except StorageError as error:
                    found[project_id] = error
        return found

    def rebuild_catalog(self) -> None:
        """Makes the catalogue and the places of the folders agree with the logs, as far as those can be opened."""
        with self._open.locked():
            known = {row.id for row in self._catalog.rows()}
            self._settling.settle_all(known | self._folders.ids() | self._catalog.pending())

    def forget_gone(self) -> list[Project]:
        """Lets go of projects that other processes deleted, and of logs that they replaced, and says which. Raises
        StorageError."""
        return self._open.forget_gone()

    def close(self) -> None:
        self._open.close()
        self._catalog.close()

    # -- inside

    def _listed(self, look: Callable[[Catalog], Seen]) -> Seen:
        """What is seen in the catalogue. One that was lost, or has another in its place, agrees with the logs first."""
        self._folders.require_there()
        seen = look(self._catalog)  # which opens the file anew where another stands there
        identity = self._catalog.identity
        if identity == self._agreed:
            return seen
        # It was written anew, for one was deleted.
        if not self._unlisted() - self._catalog.pending():
            self._agreed = identity
            return look(self._catalog)
        with self._open.locked():  # nobody else is at it
            if self._catalog.identity != self._agreed:
                self._agree()
        return look(self._catalog)

    def _row(self, name: str) -> ProjectRow | None:
        return self._listed(lambda catalog: catalog.row(name))

    def _agree(self) -> None:
        """Settles the projects of which catalogue and folders do not tell the same, as far as that shows without a look
        into all logs."""
        apart, identity = self._apart(), self._catalog.identity
        if apart:
            with self._open.locked():
                self._settling.settle_all(self._apart())
        self._agreed = identity

    def _apart(self) -> set[str]:
        rows = self._catalog.rows()
        of_one_only = self._folders.ids() ^ {row.id for row in rows}
        return of_one_only | self._catalog.pending() | {*_nameless(rows)}

    def _unlisted(self) -> set[str]:
        return self._folders.ids() - {row.id for row in self._catalog.rows()}

    def _mend(self) -> None:
        """Settles what a change of a life left undone, in this process or another, because the disk failed.

        A change that is under way ends first.
        """
        try:
            with self._open.locked():
                self._settling.settle_all(self._catalog.pending())
        except StorageError as error:
            log.warning("the list of projects is not up to date: %s", error.message)

    def _not_found(self, name: str) -> ProjectNotFound:
        near = did_you_mean(name, (row.name for row in self.projects("all")))
        return ProjectNotFound(
            f"Project '{name}' not found",
            suggestion=near or "Call list_projects to see all. Call create_project to make it.",
        )

    def _is_there(self, row: ProjectRow) -> bool:
        return self._folders.of(row.id) is not None


def _nameless(rows: Iterable[ProjectRow]) -> list[str]:
    """The ids of those that go by their id."""
    return [row.id for row in rows if row.name == row.id]
