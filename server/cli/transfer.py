"""`memlog import` and `memlog export`: the reference server's file, both ways."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
@click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True), default="-"
)
@project_option
@with_settings()
def export_command(settings: Settings, file: Path, project: str | None) -> None:
    """Write the graph as a memory.json of the reference server, to a file or to stdout.

    A file that is there is replaced when all is written; until then it stays as it is.

    \b
    Example: memlog export memory.json
    """
    count = 0
    with service_of(settings) as service:
        _, opened = open_project(service, project)
        with opened.project.read() as state, written_whole(file) as written:
            for line in transfer.write(state):
                written.write(safe(line.decode()).encode())
                count += 1
    if str(file) != "-":
        say(f"Exported {count} lines to {file}.")


@contextmanager
def written_whole(file: Path) -> Iterator[BinaryIO]:
    """What is written takes the place of `file` at the end, all of it, or nothing does.

    A pipe or a device has no content to lose, and nothing may take its place: it is written to as it is.
    """
    if str(file) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = file.resolve()  # where it is a link, what it leads to is replaced
    if target.exists() and not target.is_file():
        with target.open("wb") as opened:
            yield opened
        return
    draft = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with draft.open("xb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        if target.exists():
            draft.chmod(target.stat().st_mode)
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
