"""`memlog backup` and `memlog restore`: the logs of all projects, out to another folder and back."""

from __future__ import annotations

from pathlib import Path

import click

from memlog.copies.backup import back_up
from memlog.copies.taking_in import restore
from memlog.errors import counted
from memlog.settings import Settings
from server.cli.common import (
    Folder,
    bar_for,
    json_option,
    print_json,
    progress_bar,
    say,
    store_of,
    store_to_read,
    with_settings,
)

TO_GO_BACK = (
    "  It was not replaced. To go back to what the backup tells, undo what came later (memlog undo), or restore into "
    "another data directory (--data-dir)."
)

folder_argument = click.argument("folder", type=Folder())


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
    if as_json:
        print_json(done)
        return
    for each in done:
        entries = counted(each.position, "entries")
        say(f"{each.name}: {entries}, {each.added} new, {each.how}")
    say(f"{counted(len(done), 'projects')} {'is' if len(done) == 1 else 'are'} in {folder}.")


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
    """Bring projects back from the backup in FOLDER: those that are named, or all.

    What is there and whole is left as it is. With --replace the present project is moved to the folder
    `replaced` of the data directory; nothing is removed. One that has all that the backup has is left as it is with
    --replace too: to go back to what the backup tells, undo what came later, or restore into another --data-dir.

    \b
    Example: memlog restore ~/memlog-backup
    Example: memlog restore ~/memlog-backup my-app --replace
    """
    with store_of(settings) as store:
        done = restore(store, folder, names=frozenset(projects), replace=replace)
    if as_json:
        print_json(done)
        return
    for each in done:
        entries = counted(each.position, "entries")
        if each.how == "already there":  # and perhaps more
            say(f"{each.name}: already there, {entries} of the backup among what it has")
            if each.erased:
                say(f"  {each.erased} of them were erased for good there, and stay so.")
            if replace:
                say(TO_GO_BACK)
        else:
            say(f"{each.name}: {each.how}, {entries}")
        if each.aside is not None:
            say(f"  What was there is in {each.aside}")
