"""`memlog repair`: puts what is whole of a damaged log in its place, for those who have no backup."""

from __future__ import annotations

import sys
from typing import Any

import click

from memlog.damage import Lost
from memlog.repairing import Repair, repair
from memlog.settings import Settings
from memlog.times import iso
from server.cli.common import json_option, print_json, say, store_of, with_settings


@click.command("repair")
@click.argument("project")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_settings()
def repair_command(settings: Settings, project: str, yes: bool, as_json: bool) -> None:
    """Go on with what is whole of a damaged log where there is no backup. The rest is lost.

    It first says what is kept and what is lost, and asks. The damaged log is moved to the folder `replaced` of
    the data directory; nothing is removed. Servers may run. With --json it does not ask: without --yes it
    only says what would be, and ends with 1.

    \b
    Example: memlog repair my-app
    Example: memlog repair my-app --json --yes
    """
    with store_of(settings) as store:
        told = repair(store, project, rehearse=not yes)
        if not as_json:
            _tell(told)
        if not as_json and not yes:
            _advise(told)
            click.confirm("Go on with what is kept?", abort=True, err=True)
            told = repair(store, project)
    if as_json:
        print_json(_report(told))
    else:
        say(f"Project '{project}' goes on from position {told.position}.")
        say(f"The damaged log is in {told.aside}")
    if told.aside is None:
        say("Nothing was changed: --yes does it.", err=True)
        sys.exit(1)


def _tell(told: Repair) -> None:
    say(f"The log of project '{told.name}' is damaged: {told.problem}")
    say(f"Kept: positions 1 to {told.position}, the last of {iso(told.time_us)}")
    say(f"Lost: {_in_words(told.lost, told.position)}")
    say("What was answered to commands with an id is dropped: a retry of one is refused.")


def _advise(told: Repair) -> None:
    say(f"Better, if there is a backup: memlog restore FOLDER '{told.name}' --replace")
    say(f"What the graph still tells, first: memlog export FILE --project '{told.name}'")
    say("Then `memlog import FILE` adds what is missing, as new entries.")


def _in_words(lost: Lost, kept: int) -> str:
    if lost.position == kept:
        return "no entry" if lost.all else "what came after; how much that was cannot be read"
    last = "when, cannot be read" if lost.time_us is None else f"the last of {iso(lost.time_us)}"
    return f"positions {kept + 1} to {lost.position}{'' if lost.all else ' at least'}, {last}"


def _report(told: Repair) -> dict[str, Any]:
    lost = told.lost
    return {
        "project": told.name,
        "problem": told.problem,
        "kept": {"position": told.position, "time": iso(told.time_us)},
        "lost": {
            "entries": lost.position - told.position,
            "all": lost.all,
            "time": None if lost.time_us is None else iso(lost.time_us),
        },
        "aside": told.aside,
    }
