"""The data directory: which projects there are, and the life of each.

A project's own log says what it is called and whether it is archived; the catalogue and the place of
the folder follow. Every change of a life runs under one file lock as: note the project as pending,
change its log, settle. `settling` makes folder and catalogue agree with the log, whatever they were
before; so a crash between any two steps is mended by settling the pending project at the next start.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from memlog.blank import require_visible
from memlog.commands import ArchiveProject, CreateProject, RestoreProject
from memlog.errors import (
    DamagedLog,
    InvalidParameter,
    ProjectExists,
    StorageError,
    Unlisted,
    as_arguments,
    changed_meanwhile,
)
from memlog.log import Log
from memlog.projects import deletions
from memlog.projects.catalog import Catalog
from memlog.projects.listing import Listing
from memlog.projects.project import LOG_FILE, Origin, Outcome, Project
from memlog.projects.purging import Plan, Target, plan
from memlog.projects.settling import cause
from memlog.rows import Project as ProjectRow
from memlog.state import State
from memlog.storage.disk import stands
from memlog.storage.errors import storage_error
from memlog.storage.gates import Turn


class Store(Listing):
    """The projects of one data directory, and the life of each. Several processes may hold the same one."""

    def create(self, name: str, description: str = "", origin: Origin = Origin()) -> ProjectRow:
        project_id = self.context.new_id("prj")
        command = CreateProject(name=name, description=description)
        require_visible(command)
        with self._changing(project_id, origin.command_id):
            self._settling.settle_all(self._unlisted())  # one of them may have the name
            known = self._catalog.row(name)
            if known is not None and self._is_there(known):
                return self._made_before(known, command, origin)
            context = msgspec.structs.replace(self.context, new_id=lambda _: project_id)
            try:
                self._open.new(project_id).execute(command, context, _as_it_is, origin)
            except StorageError:
                self._throw_away_unmade(project_id)
                raise
        return self.find(name)

    def _throw_away_unmade(self, project_id: str) -> None:
        """What the disk took of a log that could not be begun: it would be taken for one that was damaged."""
        self._open.forget(project_id)
        folder = self._folders.home(project_id)
        if stands(folder):
            with suppress(OSError):
                self._folders.throw_away(folder)

    def _made_before(self, row: ProjectRow, command: CreateProject, origin: Origin) -> ProjectRow:
        """The project, if it was this very command that made it. Raises ProjectExists."""
        if origin.command_id is None or row.status == "archived":
            raise _taken(row)
        try:
            return self._told(row, command, origin)
        except ProjectExists:
            raise _taken(row) from None

    def archive(
        self,
        name: str,
        origin: Origin = Origin(),
        let_go: Callable[[], None] = lambda: None,
    ) -> ProjectRow:
        """The project as this made it, also where that is sent again and it was restored since.

        `let_go` is called when nobody may read the project any more and its folder has not moved.
        """
        row = self.find(name)

        def leave() -> None:
            present = self._open.get(row.id).status()
            if present is not None and present.status == "archived":
                let_go()

        with self._changing(row.id, origin.command_id, leave):
            return self._told(row, ArchiveProject(name=name), origin)

    def restore(self, name: str, origin: Origin = Origin()) -> ProjectRow:
        """The project as this made it, also where that is sent again and it was archived since."""
        row = self.find(name)
        with self._changing(row.id, origin.command_id):
            return self._told(row, RestoreProject(name=name), origin)

    def _told(
        self,
        row: ProjectRow,
        command: CreateProject | ArchiveProject | RestoreProject,
        origin: Origin,
    ) -> ProjectRow:
        """The project as the command left it, now or when it was first sent."""
        told = self._open.get(row.id).execute(command, self.context, _as_it_is, origin)
        if told is None:  # receipts once kept nothing
            return row
        return msgspec.convert(told, ProjectRow)

    def delete(
        self,
        name: str,
        origin: Origin = Origin(),
        going: Callable[[ProjectRow], None] = lambda row: None,
    ) -> ProjectRow:
        """Removes the project and its log for good, be that damaged or not: the one change that is not an event.

        `going` is told of it just before. Where this very command removed one before, nothing is done, and that one is
        returned: what is called so by now is another.
        """
        if origin.command_id and self._listed(Catalog.pending):
            self._mend()  # it may be this very deletion, of which the receipt is not noted yet
        before = self.deletions.find(origin.command_id, name)
        if before is not None:
            return before
        row = self.find(name)
        with self._changing(row.id):
            if self.deletions.find(origin.command_id, name) is None:  # by a retry that was quicker
                going(row)
                self._remove(row, origin.command_id)
        return row

    def _remove(self, row: ProjectRow, command_id: str | None) -> None:
        try:
            self._open.get(row.id).remove(command_id)
        except DamagedLog:  # it takes no events, not even that of its end
            self._throw_away_damaged(row.id)
            if command_id:
                self.deletions.keep(deletions.receipt(command_id, row))

    def _throw_away_damaged(self, project_id: str) -> None:
        folder = self._open.folder_of(project_id)
        self._open.forget(project_id)
        self._catalog.write(project_id, None)  # else it would be taken for one that lost its log
        self._folders.throw_away(folder)
        self._folders.forget_salvaged(project_id)

    def purge(
        self,
        name: str,
        target: Target,
        going: Callable[[Plan, Log, State], None] = lambda plan, log, state: None,
        confirmed: Plan | None = None,
    ) -> Plan:
        """Erases what `target` names from the project's log and throws away its indexes; there is no undo.

        `going` is told what goes while it is there still, and nobody can write. Other processes that have the project
        open find another file in its place and open that. Raises Conflict, with nothing erased, where more would go
        than was `confirmed`: others wrote since.
        """
        with self.staging(), self._open.locked():
            project = self.project(name)
            made: list[Plan] = []

            def chosen(log: Log, state: State) -> frozenset[int]:
                with project.draft() as left:
                    made.append(plan(log, state, target, left))
                if confirmed is not None and (unseen := made[-1].positions - confirmed.positions):
                    raise changed_meanwhile(name, len(unseen), "go", "erased")
                going(made[-1], log, state)
                # A purge that ends behind the log could not be asked for again: nothing is found then.
                self._forget_derived(project.folder)
                return made[-1].positions

            project.erase(chosen)
            self._open.forget(project.folder.name)
            self._forget_derived(project.folder)  # what another process derived meanwhile
        return made[-1]

    def put_aside(self) -> list[Path]:
        """Where the logs stand that a restore or a repair took the place of. No purge looks into them."""
        return sorted(log.parent for log in self._folders.replaced.glob(f"*/{LOG_FILE}"))

    def _forget_derived(self, folder: Path) -> None:
        self._folders.forget_salvaged(folder.name)
        for beside in [each for each in folder.iterdir() if each.is_dir()]:
            self._folders.throw_away(beside)

    def adopt(self, folder: Path, *, replace: bool = False) -> tuple[ProjectRow, Path | None]:
        """Takes a folder with the log of a project into the store: it is moved there.

        Raises ProjectExists where another project of that name is there, and also where it is this very one, unless it
        may be replaced. What is replaced is moved to DATA/replaced, which is told, and never removed; another one that
        holds only its own creation is removed.
        """
        with closing(Project(folder, clock=self._clock)) as project:
            row = project.status()
        if row is None or row.id != folder.name:
            raise InvalidParameter(f"{folder.name} holds no project of this id")
        with self._open.locked():
            present = self._folders.of(row.id)
            namesake = self._row(row.name)
            if namesake is not None and namesake.id != row.id and not self._makes_way(namesake):
                keep = f"memlog export --full FILE --project {shlex.quote(row.name)}"
                raise ProjectExists(
                    f"Project '{row.name}' exists already, and is not the one to be restored",
                    suggestion="--replace puts aside the very same project only. Keep what is in the other "
                    f"one with `{keep}`, delete it, then call again. Or restore into another --data-dir.",
                )
            if present is not None and not replace:
                raise ProjectExists(
                    f"Project '{row.name}' exists already",
                    suggestion="Name it with --replace: the present one is then put aside, not removed.",
                )
            with self._changing(row.id), ExitStack() as turn:
                self._open.forget(row.id)
                aside = None
                if present is not None:  # who waits for a turn at writing then sees another file
                    if stands(present / LOG_FILE):
                        turn.enter_context(Turn(present / LOG_FILE))
                    aside = self._put_aside(present)
                self._folders.move(folder, self._folders.home(row.id))
        return self.find(row.name), aside

    def _makes_way(self, row: ProjectRow) -> bool:
        """Removes a project that holds only its own creation, as the first look at an empty memory makes it: nothing is
        lost with it. False where it holds more."""
        if not self._is_there(row):
            return True
        try:
            with self._changing(row.id):
                project = self._open.get(row.id)
                return project.damage is None and project.remove(only_bare=True)
        except DamagedLog:
            return False

    @contextmanager
    def staging(self) -> Iterator[Path]:
        """Where folders are made ready that are to be adopted, by one process at a time."""
        try:
            with self._folders.staging() as staged:
                yield staged
        except OSError as error:
            raise storage_error(self.data_dir, error) from error

    def _put_aside(self, folder: Path) -> Path:
        aside = self._folders.replaced / self.context.new_id("prj")
        self._catalog.begin(folder.name, aside.name)
        self._folders.move(folder, aside)
        return aside

    # -- inside

    @contextmanager
    def _changing(
        self,
        project_id: str,
        command_id: str | None = None,
        leave: Callable[[], None] = lambda: None,
    ) -> Iterator[None]:
        """A change of one life: noted, then settled, whether it succeeded or was refused. One that succeeded is left
        before it is settled.

        Raises Conflict where something was deleted under the command id.
        """
        with self._open.locked(project_id):
            self.deletions.require_unused(command_id)
            if project_id in self._catalog.pending():  # an earlier one, that could not be settled
                self._settling.settle(project_id)
            self._catalog.begin(project_id)
            try:
                yield
            except BaseException:
                self._settling.end(project_id)
                raise
            self._settle_done(project_id, leave)

    def _settle_done(self, project_id: str, leave: Callable[[], None]) -> None:
        """Leaves and settles a change that is in the log already. Raises Unlisted if that fails."""
        try:
            leave()
            self._settling.end(project_id)
        except (StorageError, OSError) as error:
            raise Unlisted(cause(error)) from error


def _as_it_is(outcome: Outcome) -> Any:
    """The project, as plain data."""
    return msgspec.to_builtins(outcome.after.project())


def _taken(row: ProjectRow) -> ProjectExists:
    back = f"It is archived: call restore_project with {as_arguments(name=row.name)}"
    way = "Call switch_project to use it" if row.status == "active" else back
    return ProjectExists(
        f"Project '{row.name}' exists already", suggestion=f"{way}, or choose another name."
    )
