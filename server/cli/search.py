"""`memlog search`: what the server would find, in the terminal."""

from __future__ import annotations

from typing import get_args

import click

from memlog.settings import Mode, Settings
from server.cli.looking import open_existing, service_to_read
from server.cli.options import json_option, project_option
from server.cli.printing import beneath, one_line, open_console, print_json
from server.cli.running import with_settings


@click.command("search")
@click.argument("query")
@click.option("--limit", "-n", type=click.IntRange(1, 1_000), default=10, show_default=True)
@click.option("--mode", type=click.Choice(get_args(Mode)))
@click.option("--thread", "-t", help="Only what this thread wrote.")
@click.option("--since", help="Only what is newer than a position or a time.")
@project_option
@json_option
@with_settings
def search_command(
    settings: Settings,
    query: str,
    limit: int,
    mode: Mode | None,
    thread: str | None,
    since: str | None,
    project: str | None,
    as_json: bool,
) -> None:
    """Find what is remembered, by words and by meaning.

    \b
    Example: memlog search "who lost their job and started a dance studio"
    """
    from rich.text import Text

    from server.answering.findings import findings
    from server.answering.moments import position_of

    with service_to_read(settings, project) as service:
        _, opened = open_existing(service, project)
        mode = mode or settings.search_mode
        beginning = position_of(since, opened.project, "--since") or 0
        found = findings(opened, query, mode, limit, thread=thread, since=beginning)
    if as_json:
        print_json(found)
        return
    console = open_console()
    if found.notice:
        console.print(found.notice, style="yellow", markup=False)
    if not found.groups:
        console.print("Nothing relevant was found.")
    for group in found.groups:
        heading = Text(beneath(group.name), "bold")  # a fact may have several lines, too
        heading.append(f"  {one_line(group.kind)}", "cyan")
        heading.append(f"  {group.score:.2f}", "dim")
        console.print(heading)
        for line, day in zip(group.lines, group.days, strict=True):
            console.print(Text(f"  {beneath(line)}").append(f"  {day}", "dim"))
