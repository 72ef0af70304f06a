"""`memlog import` and `memlog export`: the reference server's file, both ways."""

from __future__ import annotations

import sys
from typing import BinaryIO

import click

from memlog import transfer
from memlog.settings import Settings
from server.cli.common import (
    bar_for,
    json_option,
    open_project,
    print_json,
    progress_bar,
    project_option,
    safe,
    say,
    service_of,
    with_settings,
)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@project_option
@json_option
@with_settings()
def import_command(settings: Settings, file: BinaryIO, project: str | None, as_json: bool) -> None:
    """Add what a memory.json of the reference server holds. Doing it twice adds nothing.

    \b
    Example: memlog import ~/memory.json
    """
    lines = transfer.read(file.read())
    with service_of(settings) as service, progress_bar(hidden=as_json) as progress:
        name, opened = open_project(service, project)
        before = opened.project.head()
        task = progress.add_task("log", total=len(lines))
        for command, count in transfer.commands(lines):
            opened.project.execute(command, service.store.context, lambda _: None)
            progress.advance(task, count)
        opened.projections.caught_up("text", bar_for(progress))
        if not service.embeddings.switched_off:
            opened.projections.caught_up("vectors", bar_for(progress))
        events = opened.project.head() - before
    if as_json:
        print_json({"project": name, "lines": len(lines), "events": events})
    else:
        say(f"Imported {len(lines)} lines into project '{name}': {events} new events.")


@click.command("export")
@click.argument("file", type=click.File("wb"), default="-")
@project_option
@with_settings()
def export_command(settings: Settings, file: BinaryIO, project: str | None) -> None:
    """Write the graph as a memory.json of the reference server, to a file or to stdout.

    \b
    Example: memlog export memory.json
    """
    count = 0
    with service_of(settings) as service:
        _, opened = open_project(service, project)
        with opened.project.read() as state:
            for line in transfer.write(state):
                file.write(safe(line.decode()).encode())
                count += 1
    file.flush()
    if file is not sys.stdout.buffer:
        say(f"Exported {count} lines to {file.name}.")
