"""`memlog log`: the events of a project, in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import click
import msgspec

from memlog.decisions.names import missing_entity
from memlog.decisions.touching import positions_of_name
from memlog.errors import refusal
from memlog.projects.project import Project
from memlog.sentences import sentence
from memlog.settings import Settings
from memlog.state import State
from memlog.times import iso
from server.answering.moments import position_of
from server.answering.nearest import silent_thread
from server.cli.looking import open_to_read, service_to_read
from server.cli.options import ENTITY, INTEGER, json_option, project_option
from server.cli.printing import one_line, open_console, print_json, say
from server.cli.running import with_settings


class Line(msgspec.Struct, frozen=True):
    position: int
    time: str
    thread: str | None
    actor: str | None
    command: str
    event: str
    says: str


@click.command("log")
@click.option("--limit", "-n", type=INTEGER, default=50, show_default=True)
@click.option("--before", type=INTEGER, help="Only positions below this one.")
@click.option("--since", metavar="WHEN", help="Only after a position or ISO time.")
@click.option(
    "--entity",
    type=ENTITY,
    metavar="NAME",
    help="Only what touched this entity, deleted or not.",
)
@click.option("--thread", "-t", help="Only what this thread did.")
@click.option("--actor", metavar="NAME", help="Only what this actor did, as the name of a token.")
@project_option
@json_option
@with_settings
def log_command(
    settings: Settings,
    limit: int,
    before: int | None,
    since: str | None,
    entity: str | None,
    thread: str | None,
    actor: str | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Show what happened in a project, the newest last.

    \b
    Example: memlog log --limit 20
    Example: memlog log --entity Jon --thread planning
    Example: memlog log --since 2026-11-20T10:00:00Z --actor phone
    """
    with service_to_read(settings, project) as service:
        _, opened = open_to_read(service, project)
        after = position_of(since, opened.project, "--since") or 0
        newest = _newest_first(opened.project, before, after, entity, thread, actor)
        lines = list(islice(newest, limit))[::-1]
        silent = None if lines else silent_thread(thread, opened)
    if as_json:
        print_json(lines)
        return
    if not lines:
        say(silent or "There is nothing of that in the log.", err=True)
        return
    from rich.text import Text

    console = open_console()
    for line in lines:
        shown = Text(f"{line.position:>6} ", "cyan").append(f"{line.time} ", "dim")
        shown.append(f"· by {one_line(line.actor)} " if line.actor else "", "dim")
        shown.append(f"· thread {one_line(line.thread)} " if line.thread else "", "dim")
        console.print(shown.append(f"· {one_line(line.says)}", "default"))


def _newest_first(
    project: Project,
    before: int | None,
    after: int,
    entity: str | None,
    thread: str | None,
    actor: str | None,
) -> Iterator[Line]:
    with project.snapshot() as (log, state_at):
        at = None if entity is None else _touching(entity, state_at(log.position()))
        for entry in log.newest_first(at, before=before, after=after):
            if thread not in (None, entry.thread) or actor not in (None, entry.actor):
                continue
            tag = type(entry.event).__struct_config__.tag
            yield Line(
                position=entry.position,
                time=iso(entry.time_us),
                thread=entry.thread,
                actor=entry.actor,
                command=entry.command_id,
                event=str(tag),
                says=sentence(entry, state_at),
            )


def _touching(entity: str, state: State) -> set[int]:
    """Where its own history names it."""
    positions = positions_of_name(entity, state)
    if not positions:
        raise refusal([missing_entity(entity, "entity", state)])
    return positions
