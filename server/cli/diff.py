"""`memlog diff`: what is different between two moments of a project."""

from __future__ import annotations

import click

from memlog.differences import Difference, differences
from memlog.settings import Settings
from server.answering.moments import position_of
from server.cli.looking import open_to_read, service_to_read
from server.cli.options import json_option, project_option
from server.cli.printing import one_line, open_console, print_json
from server.cli.running import with_settings

_STYLES = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


@click.command("diff")
@click.option("--from", "start", metavar="WHEN", required=True, help="Position or ISO time.")
@click.option("--to", "end", metavar="WHEN", help="Position or ISO time; default: now.")
@project_option
@json_option
@with_settings
def diff_command(
    settings: Settings, start: str, end: str | None, project: str | None, as_json: bool
) -> None:
    """Show what was added (+), removed (-) or changed (~) between two moments.

    \b
    Example: memlog diff --from 2026-11-20 --to 2026-11-21T12:00:00Z
    Example: memlog diff --from 120
    """
    with service_to_read(settings, project) as service:
        _, opened = open_to_read(service, project)
        first = position_of(start, opened.project, "--from") or 0
        last = position_of(end, opened.project, "--to")
        with opened.project.snapshot() as (log, state_at):
            to = log.position() if last is None else last
            found = list(differences(state_at(first), state_at(to)))
    if as_json:
        print_json({"from": first, "to": to, "differences": found})
        return
    from rich.text import Text

    console = open_console()
    console.print(Text(f"position {first} to {to}", "dim"))
    for each in found:
        sign, style = _STYLES[each.how]
        console.print(Text(f"{sign} {each.kind} {one_line(_words(each))}", style))
    if not found:
        console.print("Nothing is different.")


def _words(each: Difference) -> str:
    return " → ".join(text for text in (each.was, each.now) if text is not None)
