"""`memlog verify`: reads every entry of a log and checks the chain of hashes."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click
import msgspec

from memlog.each import of_project, raise_first
from memlog.errors import DamagedLog, MemlogError, StorageError, counted, of_copies
from memlog.log import Damage, Retold, Vacant
from memlog.projects.store import Store
from memlog.repair.damage import mark
from memlog.repair.repairing import repair
from memlog.repair.verifying import verify_file
from memlog.rows import Project as ProjectRow
from memlog.settings import Settings
from memlog.shell import command_line
from memlog.storage.errors import storage_error
from server.cli.looking import passing_over_gone, to_look_around
from server.cli.options import json_option, project_argument
from server.cli.printing import new_bar, one_line, positions_in_words, print_json, progress_bar, say
from server.cli.running import here, store_of, with_settings

if TYPE_CHECKING:
    from rich.progress import Progress

WITH_BACKUP = "memlog repair --backup FOLDER"


class Report(msgspec.Struct):
    """The last sound position; what is damaged; of a log that was repaired what could not be brought back, and what the
    state told of it, or what follows; and of one that is gone its copies by other names."""

    positions: int = 0
    damages: list[Damage] = []
    lost: list[int] = []
    retold: list[int] = []
    copies: list[str] = []

    def add(self, found: int | Damage) -> None:
        if isinstance(found, Damage):
            self.damages.append(found)
            return
        self.positions = int(found)
        if isinstance(found, Vacant):
            self.lost.append(self.positions)
        if isinstance(found, Retold):
            self.retold.append(self.positions)


@click.command("verify")
@project_argument
@json_option
@with_settings
def verify_command(settings: Settings, project: str | None, as_json: bool) -> None:
    """Check that no entry of the log was changed, lost or swapped; all projects unless one is named, archived ones too.

    A log that is damaged is noted as such: servers go on reading it, and write to it no more; this ends with 1 then.
    Of one that was repaired it says what could not be brought back, and ends with 0. A project that is left out of all
    lists, because another has its name or it cannot be read, is not looked at but told, and this ends with 1, too.

    \b
    Example: memlog verify
    """
    reports: dict[str, Report] = {}
    gone: set[str] = set()
    failures: list[MemlogError] = []
    with (
        to_look_around(settings) as looked_at,
        store_of(looked_at) as store,
        progress_bar(hidden=as_json) as progress,
    ):
        rows = store.projects("all") if project is None else [store.find(project)]
        for row in progress.track(rows, description="projects"):
            passing = passing_over_gone(store, row.name, "all")
            try:
                with passing if project is None else nullcontext():
                    report = reports[row.name] = _verified(store, row, progress)
                    if report.damages and not report.positions and _nothing_left(store, row.name):
                        gone.add(row.name)
            except StorageError as error:  # the others are looked at all the same
                failures.append(of_project(row.name, error))
        left_out = store.left_out() if project is None else {}
    if as_json:
        print_json(reports | {each: {"left_out": why} for each, why in left_out.items()})
    else:
        for name, report in reports.items():
            _tell(name, report, nothing_left=name in gone)
        for why in left_out.values():
            say(why)
        if not reports and not failures:
            say("There are no projects yet.")
    raise_first(failures, list(reports))
    if left_out or any(report.damages for report in reports.values()):
        sys.exit(1)


def _verified(store: Store, row: ProjectRow, progress: Progress) -> Report:
    """Raises ProjectNotFound or StorageError where the project is deleted meanwhile."""
    try:
        file = store.file(row.id)
    except DamagedLog as error:
        return Report(damages=[Damage(1, error.problem)], copies=[*error.copies])
    task, report = new_bar(progress, row.name, None), Report()
    try:
        for found in verify_file(file):
            progress.advance(task)
            report.add(found)
    except OSError as error:
        raise storage_error(file, error) from error
    mark(file, report.damages)
    return report


def _nothing_left(store: Store, name: str) -> bool:
    """Whether a repair would find nothing that is whole: an entry may stand where no tree leads to it."""
    try:
        repair(store, name, rehearse=True)
    except DamagedLog:
        return True
    except MemlogError:  # what stands in its way, it says itself
        return False
    return False


def _tell(name: str, report: Report, *, nothing_left: bool) -> None:
    if report.damages:
        say(f"{one_line(name)}: DAMAGED")
        for damage in report.damages:
            say(f"  position {damage.position}: {damage.problem}")
        if report.copies:
            say(f"  But {of_copies(report.copies)}")
            return
        if nothing_left:
            back = command_line("memlog restore --replace", "FOLDER", name)
            say(f"  Nothing of it is whole. Bring it back from a backup: {here(back)}")
            say(f"  Without one, remove it: {here(command_line('memlog projects delete', name))}")
            return
        say(f"  Go on with all that is whole: {here(command_line('memlog repair', name))}")
        say(f"  With what a backup has of the rest: {here(command_line(WITH_BACKUP, name))}")
        return
    entries = counted(report.positions, "entries")
    if not report.lost and not report.retold:
        say(f"{one_line(name)}: {entries}, whole.")
        return
    say(f"{one_line(name)}: {entries}, whole but for what it had lost before it was repaired.")
    if report.lost:
        say(f"  Lost, {len(report.lost)}: {positions_in_words(report.lost)}")
    if report.retold:
        told = f"{len(report.retold)}: {positions_in_words(report.retold)}"
        say(f"  Told by the state or by what follows, which nothing proves, {told}")
    say(f"  Put back what a backup has of it: {here(command_line(WITH_BACKUP, name))}")
