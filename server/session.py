"""What belongs to one connection: its active project."""

from __future__ import annotations

from memlog.errors import NoActiveProject, ProjectExists, ProjectNotFound
from memlog.project import Project
from server.service import Opened, Service


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
        name = self.project_name(asked)
        self.ensure_default(name)
        return name, self.service.open(name)

    def project(self, asked: str | None) -> tuple[str, Project]:
        """The same without its indexes, for those who search nothing."""
        name = self.project_name(asked)
        self.ensure_default(name)
        return name, self.service.store.project(name)

    def ensure_default(self, name: str) -> None:
        """Makes the project the server was started with, if it was never made."""
        if name != self.service.settings.project:
            return
        try:
            self.service.store.find(name)
        except ProjectNotFound:
            try:
                self.service.store.create(name)
            except ProjectExists:
                return  # another process was quicker
