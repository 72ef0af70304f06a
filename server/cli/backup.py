"""`memlog backup` and `memlog restore`: the logs of all projects, out to another folder and back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from memlog.copies.backup import back_up
from memlog.copies.inventory import Held, inventory
from memlog.copies.taking_in import left, restore
from memlog.errors import counted
from memlog.settings import Settings
from memlog.shell import command_line
from server.cli.looking import store_to_read
from server.cli.options import FOLDER, json_option
from server.cli.printing import bar_for, one_line, print_json, progress_bar, say
from server.cli.running import here, store_of, with_settings

TO_GO_BACK = (
    "  It was not replaced. To go back to what the backup tells, undo what came later (memlog undo), or restore into "
    "another data directory (--data-dir)."
)

DELETED = "Not restored, for the last run did not find them or another of the name is newer"

folder_argument = click.argument("folder", type=FOLDER)


@click.command("backup")
@folder_argument
@json_option
@with_settings
def backup_command(settings: Settings, folder: Path, as_json: bool) -> None:
    """Copy the log of every project to FOLDER while servers run; again: only what is new.

    Each copy is one consistent point of its project and is read back and checked before it counts.

    \b
    Example: memlog backup ~/memlog-backup
    """
    with store_to_read(settings) as store, progress_bar(hidden=as_json) as progress:
        done = back_up(store, folder, bar_for(progress))
    held = inventory(folder)
    if as_json:
        print_json(done)
        return
    for each in done:
        entries = counted(each.position, "entries")
        say(f"{one_line(each.name)}: {entries}, {each.added} new, {each.how}")
    say(f"{counted(len(held), 'projects')} {'is' if len(held) == 1 else 'are'} in {folder}.")
    here_now = {each.id for each in done}
    _tell_kept("Not here any more", [each for each in held if each.id not in here_now], folder)


def _tell_kept(why: str, kept: Sequence[Held], folder: Path, *, err: bool = False) -> None:
    """Names copies that are not what a restore brings back by itself, and how each is brought back."""
    if kept:
        say(f"{why}, but kept in the backup:", err=err)
    for each in kept:
        back = here(command_line("memlog restore", folder, each.id))
        say(f"  {one_line(each.called)}: `{back}` brings it back", err=err)


@click.command("restore")
@folder_argument
@click.argument("projects", nargs=-1)
@click.option(
    "--replace",
    is_flag=True,
    help="Put a project aside that is there and take the backup's, where that has what is not there.",
)
@json_option
@with_settings
def restore_command(
    settings: Settings, folder: Path, projects: tuple[str, ...], replace: bool, as_json: bool
) -> None:
    """Bring projects back from the backup in FOLDER: those of these names or ids, or all that its last run found.

    A project that was deleted before that run is brought back where it is named, and told of where none is. Of projects
    of one name it is the one that the last run found, or else the newest.

    What is there and whole is left as it is. With --replace the present project is moved to the folder
    `replaced` of the data directory; nothing is removed, but for another project of the name that holds only its own
    creation. One that has all that the backup has is left as it is with
    --replace too: to go back to what the backup tells, undo what came later, or restore into another --data-dir.

    \b
    Example: memlog restore ~/memlog-backup
    Example: memlog restore ~/memlog-backup my-app --replace
    """
    with store_of(settings) as store:
        done = restore(store, folder, names=projects, replace=replace)
    kept = [] if projects else left(folder)
    if as_json:
        print_json(done)
        _tell_kept(DELETED, kept, folder, err=True)
        return
    for each in done:
        entries = counted(each.position, "entries")
        if each.how == "already there":  # and perhaps more
            say(f"{one_line(each.name)}: already there, {entries} of the backup among what it has")
            if each.erased:
                say(f"  {each.erased} of them were erased for good there, and stay so.")
            if replace:
                say(TO_GO_BACK)
        else:
            say(f"{one_line(each.name)}: {each.how}, {entries}")
        if each.aside is not None:
            say(f"  What was there is in {each.aside}")
    _tell_kept(DELETED, kept, folder)
