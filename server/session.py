"""What belongs to one connection: its active project, and what it may reach."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from memlog.canonical import canonical
from memlog.errors import (
    InvalidParameter,
    NoActiveProject,
    ProjectExists,
    ProjectNotFound,
    StorageError,
    Unlisted,
    as_arguments,
)
from memlog.projects.listing import Wanted
from memlog.projects.project import Origin, Project
from memlog.rows import Project as ProjectRow
from memlog.shell import command_line
from server.opened import Opened
from server.rights.grants import EVERYTHING, Grant
from server.service import Service

Found = TypeVar("Found")


class Session:
    """One client's connection: a stdio process, or an HTTP session where the protocol has one.

    One that does not last (a single request of a protocol without sessions, or of a server that keeps
    none) has an active project too, but cannot change it. A project out of reach of the grant is not
    found, whether it exists or not.
    """

    def __init__(
        self, service: Service, project: str, grant: Grant = EVERYTHING, *, lasting: bool = True
    ) -> None:
        self.service = service
        self.active = project
        self.grant = grant
        self.lasting = lasting
        self.listens_anew: Callable[[], None] = lambda: None
        """Called when its client begins to listen by another stream, over HTTP; set by who tells it of changes."""
        self.subscribed: Collection[str] = ()
        """The URIs that its client subscribed to; set by who tells it of changes."""
        self.goes_on = False
        """Whether it is one of a server before that is being opened again: what it subscribes to may have changed."""
        self.changed: Callable[[], None] = lambda: None
        """Called when another project is the active one, or something more is subscribed to, before the client hears of
        it. Raises StorageError where a server that goes on with it would not know."""

    def project_name(self, asked: str | None) -> str:
        """The project a call works in. Raises NoActiveProject where none was named nor is active."""
        name = asked or self.active
        if not name:
            raise self._none_active()
        self.require_reach(name)
        return name

    def _none_active(self) -> NoActiveProject:
        if self.lasting:
            return NoActiveProject(
                "No active project. Use switch_project to select one.",
                suggestion='Or name one in the call itself: {"project": "…"}.',
            )
        path = f"{self.service.settings.http_path}/p/NAME"
        return NoActiveProject(
            "No active project, and no session that could remember one.",
            suggestion=f'Name one in each call: {{"project": "…"}}. Over HTTP, the address {path} gives that one.',
        )

    def open(self, asked: str | None) -> tuple[str, Opened]:
        return self._found(asked, self.service.open)

    def project(self, asked: str | None) -> tuple[str, Project]:
        """The same without its indexes, for those who search nothing."""
        return self._found(asked, self.service.store.project)

    def existing(self, asked: str | None) -> Project:
        """The same, but not made where it is not there, for those who only look around."""
        return self.service.store.project(self.project_name(asked))

    def _found(self, asked: str | None, find: Callable[[str], Found]) -> tuple[str, Found]:
        name = self.project_name(asked)
        try:
            found = find(name)
        except ProjectNotFound:
            self.ensure_default(name)
            with self._or_the_active(asked), self._discreet(name):
                found = find(name)
        if self._is_usual(name):
            self.service.usual_met = True
        return name, found

    @contextmanager
    def _or_the_active(self, asked: str | None) -> Iterator[None]:
        """Around a call that may name a project: small models fill in what they could leave out."""
        try:
            yield
        except ProjectNotFound as error:
            elsewhere = asked and self.active and canonical(asked) != canonical(self.active)
            if elsewhere and self.grant.reaches(self.active):
                instead = f"Leave `project` out: '{self.active}' is the active one."
                error.suggestion = f"{error.suggestion or ''} {instead}".lstrip()
            raise

    def find(self, name: str) -> ProjectRow:
        """The catalogue's row of a project within reach."""
        with self.reaching(name):
            return self.service.store.find(name)

    @contextmanager
    def reaching(self, name: str) -> Iterator[None]:
        """Around what is done with a project by its name. Raises ProjectNotFound for one out of reach."""
        self.require_reach(name)
        with self._discreet(name):
            yield

    def projects(self, status: Wanted = "active") -> list[ProjectRow]:
        """Those within reach, oldest first."""
        return [row for row in self.service.store.projects(status) if self.grant.reaches(row.name)]

    def switch(self, name: str) -> None:
        """Makes a project that exists the active one."""
        if not self.lasting:
            raise InvalidParameter(
                "There is no session that could remember an active project",
                suggestion=f"Name it in each call instead: {as_arguments(project=name)}.",
            )
        before, self.active = self.active, name
        try:
            self.changed()
        except BaseException:
            self.active = before
            raise

    def leave(self, name: str) -> None:
        """A project that went away is active no more, but for the only one within reach: that one is as soon as it
        is back, for nobody could switch to another."""
        only = self.grant.projects is not None and len(self.grant.projects) == 1
        if self.lasting and not only and canonical(self.active) == canonical(name):
            self.active = ""
            # The next server would be told of one that is put away, and says so.
            with suppress(StorageError):
                self.changed()

    def ensure_default(self, name: str) -> None:
        """Makes the project the server was started with, if it was never made.

        Raises ProjectNotFound instead where it was there and somebody deleted it, and where the server is told to write
        nothing, or may not for this client.
        """
        if self._is_usual(name):
            if not self.service.store.knows(name):
                self._make_usual(name)
            self.service.usual_met = True

    def _is_usual(self, name: str) -> bool:
        return canonical(name) == canonical(self.service.settings.project)

    def _make_usual(self, name: str) -> None:
        if self.service.usual_met:
            raise ProjectNotFound(
                f"Project '{name}' was deleted",
                suggestion="Name another project. Or call create_project to make this one anew.",
            )
        if self.service.settings.read_only:
            raise ProjectNotFound(
                f"Project '{name}' was never made, and this server is read-only",
                suggestion="Start it once without --read-only, or name a project that exists.",
            )
        if not self.grant.allows("write"):
            raise ProjectNotFound(
                f"Project '{name}' was never made, and this token may only read",
                suggestion="It is there once somebody who may write has used it; or name a project "
                "that exists.",
            )
        if nameless := self.service.store.nameless():
            raise StorageError(
                f"Project '{name}' is not made: it may be {nameless[0]}, of which nothing can be read, nor its name",
                suggestion=f"`memlog restore FOLDER {nameless[0]} --replace` brings that back from a backup; without "
                f"one, and where `memlog verify` finds no copy, `memlog projects delete {nameless[0]}` removes it.",
            )
        try:
            with suppress(ProjectExists):  # another process was quicker, or its log is there again
                self.service.store.create(name, origin=Origin(actor=self.grant.name))
        except Unlisted as error:  # nobody asked for this change, but for what was to come after it
            raise StorageError(
                f"Project '{name}' was made, but the list of projects could not be written: {error.why}; nothing else "
                "was done",
                suggestion=f"{error.remedy}, then call again.",
            ) from error

    def require_reach(self, name: str) -> None:
        """Raises ProjectNotFound."""
        if not self.grant.reaches(name):
            raise ProjectNotFound(f"Project '{name}' not found", suggestion=self.grant.within_reach)

    @contextmanager
    def _discreet(self, name: str) -> Iterator[None]:
        """Around what is done with a project within reach: no nearest names for those who may not know all names."""
        try:
            yield
        except ProjectNotFound:
            if self.grant.projects is None:
                raise
            raise ProjectNotFound(
                f"Project '{name}' not found: it was not made yet, or it was deleted",
                suggestion=f"Call create_project to make it. {made_by_hand(name)}",
            ) from None


def made_by_hand(name: str) -> str:
    """A sentence for who may make no project, about one that is not there."""
    return f"Whoever runs the server can make it with `{command_line('memlog projects create', name)}`."
