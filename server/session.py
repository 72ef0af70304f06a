"""What belongs to one connection: its active project."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from memlog.errors import NoActiveProject, ProjectExists, ProjectNotFound
from memlog.project import Project
from server.service import Opened, Service

Found = TypeVar("Found")


class Session:
    """One client's connection: a stdio process, or an HTTP session where the protocol has one."""

    def __init__(self, service: Service, project: str) -> None:
        self.service = service
        self.active = project

    def project_name(self, asked: str | None) -> str:
        """The project a call works in. Raises NoActiveProject where none was named nor is active."""
        name = asked or self.active
        if not name:
            raise NoActiveProject(
                "No active project. Use switch_project to select one.",
                suggestion='Or name one in the call itself: {"project": "…"}.',
            )
        return name

    def open(self, asked: str | None) -> tuple[str, Opened]:
        return self._found(asked, self.service.open)

    def project(self, asked: str | None) -> tuple[str, Project]:
        """The same without its indexes, for those who search nothing."""
        return self._found(asked, self.service.store.project)

    def _found(self, asked: str | None, find: Callable[[str], Found]) -> tuple[str, Found]:
        name = self.project_name(asked)
        try:
            return name, find(name)
        except ProjectNotFound:
            self.ensure_default(name)
            return name, find(name)

    def ensure_default(self, name: str) -> None:
        """Makes the project the server was started with, if it was never made.

        Raises ProjectNotFound instead where the server is told to write nothing.
        """
        if name != self.service.settings.project:
            return
        try:
            self.service.store.find(name)
        except ProjectNotFound:
            if self.service.settings.read_only:
                raise ProjectNotFound(
                    f"Project '{name}' was never made, and this server is read-only",
                    suggestion="Start it once without --read-only, or name a project that exists.",
                ) from None
            try:
                self.service.store.create(name)
            except ProjectExists:
                return  # another process was quicker
