"""Toolset `projects`: the life of projects, and which one is active on this connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta, field

from memlog.commands import CreateProject, ProjectName
from memlog.errors import ProjectArchived, as_arguments
from memlog.projects.listing import Wanted
from memlog.rows import Project as ProjectRow
from server.advice import followable
from server.answering.cursors import CursorText, Limit, read_cursor, write_cursor
from server.answering.cutting import page_of
from server.answering.views import ProjectView, view_project
from server.registry import Arguments, Call, Result, tool
from server.session import Session

_NAMED = 'Name one in each call: {"project": "…"}.'
"""In place of switching to one, where no session remembers it."""

_PUT_ASIDE = (
    ", but for what logs hold that a restore or a repair put aside: they stand in the folder `replaced` of the data "
    "directory"
)
"""Nobody looks into them."""


class Nothing(Arguments, frozen=True):
    """No arguments."""


class Named(Arguments, frozen=True):
    looked_up = frozenset({"name"})

    name: Annotated[ProjectName, Meta(examples=["my-app"])]


class ListProjects(Arguments, frozen=True):
    status: Wanted = "active"
    limit: Limit | None = None
    cursor: CursorText | None = None


class _After(msgspec.Struct, array_like=True):
    """Projects created after this one."""

    created_us: int
    id: str


class ListProjectsResult(Result, frozen=True):
    project: str | None
    projects: list[ProjectView]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class ProjectResult(ProjectView, frozen=True):
    """The project, and `project`: its name, as every result has it."""

    project: str
    message: str


class CurrentProjectResult(Result, frozen=True):
    project: str | None
    current: ProjectView | None
    message: str


@tool("projects", "List projects", in_project=False, bare=lambda result: result.projects)
def list_projects(call: Call, arguments: ListProjects) -> ListProjectsResult:
    """List the projects; each has a memory of its own. Example: {"status": "all"}"""
    rows = call.session.projects(arguments.status)
    if start := read_cursor(_After, "", arguments):
        rows = [row for row in rows if (row.created_us, row.id) > (start.created_us, start.id)]
    page, more = page_of(map(view_project, rows), arguments.limit)
    cursor = notice = None
    if more:
        last = rows[len(page) - 1]
        cursor = write_cursor(_After(last.created_us, last.id), "", arguments)
        notice = f"{len(rows) - len(page):,} more: pass nextCursor ({cursor}) as cursor."
    return ListProjectsResult(
        project=call.session.active or None, projects=page, next_cursor=cursor, notice=notice
    )


@tool("projects", "Create a project", writes=True, idempotent=False, in_project=False)
def create_project(call: Call, arguments: CreateProject) -> ProjectResult:
    """Create a project with a memory of its own, and switch to it.

    Example: {"name": "my-app", "description": "The shop's new front end"}
    """
    session = call.session
    session.require_reach(arguments.name)
    row = call.service.store.create(arguments.name, arguments.description, call.origin)
    others = _nearly_called(row.name, session.projects("all"))
    if not session.lasting:
        named = f"name it in each call: {as_arguments(project=row.name)}"
        return _result(row, f"Created project '{row.name}'; {named}{others}")
    session.switch(row.name)
    return _result(row, f"Created project '{row.name}' and switched to it{others}")


def _nearly_called(name: str, projects: Iterable[ProjectRow]) -> str:
    """What to add about other projects whose names differ by case alone: one of them may have been meant."""
    alike = [row.name for row in projects if row.name.casefold() == name.casefold()]
    others = [f"'{each}'" for each in alike if each != name]
    return f". Its name differs by case alone from {', '.join(others)}" if others else ""


@tool("projects", "Switch project", switches=True, in_project=False)
def switch_project(call: Call, arguments: Named) -> ProjectResult:
    """Make a project the active one: calls that name no project work in it. Example: {"name": "my-app"}"""
    call.session.require_reach(arguments.name)
    call.session.ensure_default(arguments.name)
    row = call.session.find(arguments.name)
    if row.status == "archived":
        raise ProjectArchived.named(row.name)
    call.session.switch(row.name)
    return _result(row, f"Switched to project '{row.name}'")


@tool("projects", "Show the active project", in_project=False)
def get_current_project(call: Call, arguments: Nothing) -> CurrentProjectResult:
    """Tell which project is active on this connection. Example: {}"""
    name = call.session.active
    if not name:
        how = "Use switch_project to select one." if call.session.lasting else _NAMED
        message = f"No active project. {how}"
        return CurrentProjectResult(project=None, current=None, message=message)
    call.session.ensure_default(name)
    row = call.session.find(name)
    message = f"The active project is '{name}'"
    if row.status == "archived":
        back = followable(call.session, ": restore_project brings it back") or ""
        message += f", which is archived{back}"
    return CurrentProjectResult(project=name, current=view_project(row), message=message)


@tool("projects", "Archive a project", writes=True, in_project=False)
def archive_project(call: Call, arguments: Named) -> ProjectResult:
    """Put a project away: nobody reads or writes it until restore_project. Nothing is lost.

    Example: {"name": "old-app"}
    """
    call.session.find(arguments.name)
    row = call.service.archive(arguments.name, call.origin)
    _leave(row, call.session)
    return _result(row, f"Archived project '{row.name}'")


@tool("projects", "Restore a project", writes=True, in_project=False)
def restore_project(call: Call, arguments: Named) -> ProjectResult:
    """Bring an archived project back, with everything in it. Example: {"name": "old-app"}"""
    call.session.find(arguments.name)
    row = call.service.store.restore(arguments.name, call.origin)
    return _result(row, f"Restored project '{row.name}'")


@tool("projects", "Delete a project for good", writes=True, destructive=True, in_project=False)
def delete_project(call: Call, arguments: Named) -> ProjectResult:
    """Delete a project, its log and its history for good; this cannot be undone.

    archive_project puts it away without losing anything. Example: {"name": "old-app"}
    """
    with call.session.reaching(arguments.name):
        row = call.service.delete(arguments.name, call.origin)
    _leave(row, call.session)
    kept = _PUT_ASIDE if call.service.store.put_aside() else ""
    return _result(row, f"Deleted project '{row.name}' and all its data{kept}")


def _leave(gone: ProjectRow, session: Session) -> None:
    """It is the active project no more, unless one is called so by now: it was put away by an earlier try."""
    if gone.name not in {row.name for row in session.projects()}:
        session.leave(gone.name)


def _result(row: ProjectRow, message: str) -> ProjectResult:
    view = msgspec.structs.asdict(view_project(row))
    return ProjectResult(**view, project=row.name, message=message)
