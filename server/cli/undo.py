"""`memlog undo`: takes back a command, or tells what that would take back."""

from __future__ import annotations

from typing import Any

import click

from memlog.commands import Undo
from memlog.decisions.undoing import undone
from memlog.projects.project import Origin, Outcome
from memlog.sentences import sentence
from memlog.settings import Settings
from server.answering.moments import end_of
from server.answering.nearest import require_thread
from server.cli.hints import spoken
from server.cli.looking import open_existing, service_to_read
from server.cli.options import INTEGER, json_option, project_option
from server.cli.printing import one_line, print_json, say
from server.cli.running import here, with_settings
from server.cli.stopping import stopped_in_words
from server.tools.history import LAST_MAX, nothing_to_undo

STOPPED_MEANWHILE = (
    "It may be undone already, and another undo takes back one command more: `memlog log` tells."
)


@click.command("undo")
@click.argument("given", nargs=-1, metavar="")
@click.option("--position", type=INTEGER, help="Any position of the command to undo.")
@click.option("--last", type=click.IntRange(1, LAST_MAX), default=1, show_default=True)
@click.option(
    "--since", metavar="WHEN", help="All commands after a position or ISO time, undos as well."
)
@click.option("--thread", "-t", help="Only commands of this thread.")
@click.option(
    "--actor", metavar="NAME", help="Only commands of this actor, as the name of a token."
)
@click.option("--cascade", is_flag=True, help="Undo later commands that depend on it first.")
@click.option("--dry-run", is_flag=True, help="Only tell what would be undone.")
@project_option
@json_option
@with_settings
def undo_command(
    settings: Settings,
    given: tuple[str, ...],
    position: int | None,
    last: int,
    since: str | None,
    thread: str | None,
    actor: str | None,
    cascade: bool,
    dry_run: bool,
    project: str | None,
    as_json: bool,
) -> None:
    """Take back the last command, the one at a position, or all since a moment.

    The undo can itself be undone.

    \b
    Example: memlog undo --dry-run
    Example: memlog undo --position 120 --cascade
    Example: memlog undo --since 2026-11-20T10:00:00Z --actor phone --dry-run
    """
    if given:
        raise click.UsageError(
            f"Is {given[0]} a position, or how many? Say --position {given[0]} for the command there, or "
            f"--last {given[0]} for so many of the newest."
        )
    _require_one_way(position, last, since, whose=(thread, actor))
    with service_to_read(settings, project) as service:
        _, opened = open_existing(service, project)
        require_thread(thread, opened)
        command = Undo(
            position=position,
            last=last,
            since=end_of(since, opened.project, "--since"),
            thread=thread,
            actor=actor,
            cascade=cascade,
        )
        if dry_run:
            would = opened.project.rehearse(command, service.store.context, _undone)
            _tell(would, command, True, as_json)
            return
        with stopped_in_words(lambda: here(spoken(STOPPED_MEANWHILE, project))):
            done = service.execute(opened, command, _undone, Origin(actor="memlog undo"))
            _tell(done, command, False, as_json)


def _require_one_way(
    position: int | None, last: int, since: str | None, whose: tuple[str | None, ...]
) -> None:
    others = (since, *whose)
    if position is not None and (last != 1 or any(each is not None for each in others)):
        raise click.UsageError(
            "--position names one command: leave out --last, --since, --thread and --actor."
        )
    if since is not None and last != 1:
        raise click.UsageError("--since means all commands after it: leave out --last.")


def _tell(done: list[dict[str, Any]], command: Undo, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dryRun": dry_run, "undone": done})
        return
    verb = "Would undo" if dry_run else "Undone"
    for each in done:
        say(f"{verb}: {each['position']} · {one_line(each['says'])}")
    if not done:
        say(spoken(nothing_to_undo(command)))


def _undone(outcome: Outcome) -> list[dict[str, Any]]:
    """Each entry that was undone, in words."""
    found = map(outcome.after.entry_at, undone(outcome.entries))
    return [
        {"position": entry.position, "says": sentence(entry, outcome.after.at)}
        for entry in found
        if entry is not None
    ]
