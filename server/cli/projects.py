"""`memlog projects`: the projects of the data directory, and the life of one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from memlog.commands import CreateProject
from memlog.controls import safe
from memlog.projects.listing import Wanted
from memlog.rows import Project as ProjectRow
from memlog.settings import Settings
from server.answering.views import view_project
from server.cli.looking import service_to_read, store_to_read, to_look_around
from server.cli.options import THIS_PROJECT, Command, Helpful, json_option, said_before
from server.cli.printing import (
    confirm,
    new_table,
    one_line,
    open_console,
    print_json,
    say,
    warn_of_put_aside,
)
from server.cli.running import store_of, with_settings
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
    elif status and ctx.invoked_subcommand != "list":
        raise click.UsageError(f"--status is for the list: `{ctx.invoked_subcommand}` takes none.")


@projects_command.command("list")
@status_option
@json_option
@with_settings
def list_projects(settings: Settings, status: Wanted | None, as_json: bool) -> None:
    """List the projects, as `memlog projects` alone does.

    \b
    Example: memlog projects list --status archived
    """
    _list(settings, status or said_before("status") or "all", as_json or said_before("as_json"))


def _list(settings: Settings, status: Wanted, as_json: bool) -> None:
    with to_look_around(settings) as looked_at, store_of(looked_at) as store:
        rows = [view_project(row) for row in store.projects(status)]
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


def about_one(done: str) -> Callable[[Command], Command]:
    """Gives a command `--json`, before its name, too, and tells that this was `done` to the project it returns."""

    def telling(command: Command) -> Command:
        @json_option
        @with_settings
        @functools.wraps(command)
        def run(settings: Settings, as_json: bool, **arguments: Any) -> None:
            row: ProjectRow = command(settings, **arguments)
            if as_json or said_before("as_json"):
                print_json(view_project(row))
            else:
                say(f"{done} project '{one_line(row.name)}'.")

        return run

    return telling


@projects_command.command("create")
@click.argument("name")
@click.option("--description", default="")
@about_one("Created")
def create(settings: Settings, name: str, description: str) -> ProjectRow:
    """Create a project.

    \b
    Example: memlog projects create my-app --description "The shop's front end"
    """
    wanted = decode({"name": name, "description": description}, CreateProject)
    doubt = judge(wanted, settings.secrets)
    with store_of(settings) as store:
        row = store.create(wanted.name, wanted.description)
    if doubt:
        say(f"Warning: {doubt.said()}", err=True)
    return row


@projects_command.command("archive")
@click.argument("name", type=THIS_PROJECT)
@about_one("Archived")
def archive(settings: Settings, name: str) -> ProjectRow:
    """Put a project away; nothing is lost.

    \b
    Example: memlog projects archive old-app
    """
    with store_to_read(settings, name) as store:
        return store.archive(name)


@projects_command.command("restore")
@click.argument("name", type=THIS_PROJECT)
@about_one("Restored")
def restore(settings: Settings, name: str) -> ProjectRow:
    """Bring an archived project back.

    \b
    Example: memlog projects restore old-app
    """
    with store_to_read(settings, name) as store:
        return store.restore(name)


@projects_command.command("delete")
@click.argument("name", type=THIS_PROJECT)
@click.option("--yes", is_flag=True, help="Do not ask.")
@about_one("Deleted")
def delete(settings: Settings, name: str, yes: bool) -> ProjectRow:
    """Delete a project and its history for good.

    \b
    Example: memlog projects delete old-app
    """
    with service_to_read(settings, name) as service:
        service.store.find(name)
        if not yes:
            confirm(f"Delete project '{name}' and its history for good?")
        row = service.delete(name, wait=True)
        warn_of_put_aside(service.store)
    return row
