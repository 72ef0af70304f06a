"""`memlog repair`: puts what is whole of a damaged log in its place, and what a backup still has of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from memlog.repair.damage import Lost
from memlog.repair.mending import Changed
from memlog.repair.repairing import Repair, repair
from memlog.sentences import positions
from memlog.settings import Settings
from memlog.shell import command_line
from memlog.times import iso
from server.cli.looking import store_to_read
from server.cli.options import THIS_PROJECT, json_option
from server.cli.printing import confirm, positions_in_words, print_json, say
from server.cli.running import here, with_settings


@click.command("repair")
@click.argument("project", type=THIS_PROJECT)
@click.option(
    "--backup",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Take from this backup what is not whole here.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_settings
def repair_command(
    settings: Settings, project: str, backup: Path | None, yes: bool, as_json: bool
) -> None:
    """Go on with what is whole of a damaged log, and with what a backup has of it.

    It first says what is kept and what is lost, and asks. What was lost amid a log that was repaired can be put
    back later, when a backup turns up; what was lost at its end comes back with `memlog restore --replace`,
    without what was written since. The damaged log is moved to the folder `replaced` of the data directory;
    nothing is removed. Servers may run. With --json it does not ask: without --yes it only says what would be,
    and ends with 1.

    \b
    Example: memlog repair my-app
    Example: memlog repair my-app --backup /mnt/backup
    Example: memlog repair my-app --json --yes
    """
    with store_to_read(settings, project) as store:
        told = repair(store, project, backup=backup, rehearse=not yes)
        if not as_json:
            _tell(told)
        if not as_json and not yes:
            _advise(told, backup)
            confirm("Go on with what is kept?")
            told = repair(store, project, backup=backup, confirmed=told)
    if as_json:
        print_json(_report(told))
    else:
        say(f"Project '{project}' goes on from position {told.position}.")
        say(f"The damaged log is in {told.aside}")
    if told.aside is None:
        say("Nothing was changed: --yes does it.", err=True)
        sys.exit(1)


def _tell(told: Repair) -> None:
    changed = told.changed
    say(f"The log of project '{told.name}' has to be repaired: {told.problem}")
    say(f"Kept: positions 1 to {told.position}, the last of {iso(told.time_us)}")
    if changed.retold:
        say(f"Told by the state, which nothing proves: {positions_in_words(changed.retold)}")
    if changed.stood_in:
        say(f"Put there, for what follows needs it: {positions_in_words(changed.stood_in)}")
    if changed.unfit:
        say(f"Set aside, for it speaks of what is lost: {positions_in_words(changed.unfit)}")
    beyond = _in_words(told.lost, told.position)
    if changed.lost:
        say(f"Lost: {positions_in_words(changed.lost)}")
    say(f"Lost{' beyond' if changed.lost else ''}: {beyond}")
    say("What was answered to commands with an id is dropped: a retry of one is refused.")


def _advise(told: Repair, backup: Path | None) -> None:
    if told.lost.position == told.position and told.changed == Changed():
        return
    if backup is None:
        repaired = here(command_line("memlog repair --backup FOLDER", told.name))
        say(f"Is there a backup? {repaired} takes from it what is lost.")
    name = shlex.quote(told.name)
    say(f"What the graph still tells, first: {here(f'memlog export FILE --project {name}')}")
    say(here(f"Then `memlog import FILE --project {name}` adds what is missing, as new entries."))


def _in_words(lost: Lost, kept: int) -> str:
    if lost.position == kept:
        return "no entry" if lost.all else "perhaps more; that cannot be read"
    when = "of an unknown time" if lost.time_us is None else f"the last of {iso(lost.time_us)}"
    return f"{positions(kept + 1, lost.position)}{'' if lost.all else ' at least'}, {when}"


def _report(told: Repair) -> dict[str, Any]:
    lost, changed = told.lost, told.changed
    return {
        "project": told.name,
        "problem": told.problem,
        "kept": {
            "entries": told.position - len(changed.lost) - len(changed.unfit),
            "position": told.position,
            "time": iso(told.time_us),
            "retold": changed.retold,
            "stoodIn": changed.stood_in,
        },
        "lost": {
            "entries": len(told.gone),
            "positions": changed.lost,
            "setAside": changed.unfit,
            "beyond": lost.position - told.position,
            "all": lost.all,
            "time": None if lost.time_us is None else iso(lost.time_us),
        },
        "aside": told.aside,
    }
