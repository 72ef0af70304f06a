"""`memlog projects`: the projects of the data directory, and the life of one."""

from __future__ import annotations

import click

from memlog.commands import CreateProject
from memlog.projects.store import Wanted
from memlog.settings import Settings
from server.answering.views import view_project
from server.cli.common import (
    Helpful,
    confirm,
    json_option,
    new_table,
    one_line,
    open_console,
    print_json,
    safe,
    say,
    service_of,
    with_settings,
)
from server.cli.looking import service_to_read, to_look_around
from server.input.arguments import decode
from server.rights.credentials import judge

status_option = click.option(
    "--status", type=click.Choice(["active", "archived", "all"]), help="Only these; default: all."
)


@click.group("projects", cls=Helpful, invoke_without_command=True)
@status_option
@json_option
@with_settings
@click.pass_context
def projects_command(
    ctx: click.Context, settings: Settings, status: Wanted | None, as_json: bool
) -> None:
    """List the projects, or create, archive, restore or delete one.

    \b
    Example: memlog projects
    Example: memlog projects archive old-app
    """
    if ctx.invoked_subcommand is None:
        _list(settings, status or "all", as_json)


@projects_command.command("list")
@status_option
@json_option
@with_settings
@click.pass_context
def list_projects(
    ctx: click.Context, settings: Settings, status: Wanted | None, as_json: bool
) -> None:
    """List the projects, as `memlog projects` alone does.

    \b
    Example: memlog projects list --status archived
    """
    assert ctx.parent is not None
    before = ctx.parent.params
    _list(settings, status or before["status"] or "all", as_json or before["as_json"])


def _list(settings: Settings, status: Wanted, as_json: bool) -> None:
    with to_look_around(settings) as looked_at, service_of(looked_at) as service:
        rows = [view_project(row) for row in service.store.projects(status)]
    if as_json:
        print_json(rows)
        return
    from rich.text import Text

    table = new_table("name", "status", "created", "description")
    for row in rows:
        created = row.created_at[:19] + "Z"
        name, description = Text(one_line(row.name)), Text(safe(row.description))
        table.add_row(name, row.status, created, description)
    none = "There are no projects yet." if status == "all" else f"There are no {status} projects."
    open_console().print(table if rows else none)


@projects_command.command("create")
@click.argument("name")
@click.option("--description", default="")
@with_settings
def create(settings: Settings, name: str, description: str) -> None:
    """Create a project.

    \b
    Example: memlog projects create my-app --description "The shop's front end"
    """
    wanted = decode({"name": name, "description": description}, CreateProject)
    warning = judge(wanted, settings.secrets)
    with service_of(settings) as service:
        service.store.create(wanted.name, wanted.description)
    if warning:
        say(f"Warning: {warning}", err=True)
    say(f"Created project '{one_line(name)}'.")


@projects_command.command("archive")
@click.argument("name")
@with_settings
def archive(settings: Settings, name: str) -> None:
    """Put a project away; nothing is lost.

    \b
    Example: memlog projects archive old-app
    """
    with service_to_read(settings, name) as service:
        service.store.archive(name)
    say(f"Archived project '{one_line(name)}'.")


@projects_command.command("restore")
@click.argument("name")
@with_settings
def restore(settings: Settings, name: str) -> None:
    """Bring an archived project back.

    \b
    Example: memlog projects restore old-app
    """
    with service_to_read(settings, name) as service:
        service.store.restore(name)
    say(f"Restored project '{one_line(name)}'.")


@projects_command.command("delete")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_settings
def delete(settings: Settings, name: str, yes: bool) -> None:
    """Delete a project and its history for good.

    \b
    Example: memlog projects delete old-app
    """
    with service_to_read(settings, name) as service:
        service.store.find(name)
        if not yes:
            confirm(f"Delete project '{name}' and its history for good?")
        service.delete(name, wait=True)
    say(f"Deleted project '{one_line(name)}'.")
