"""`memlog verify`: reads every entry of a log and checks the chain of hashes."""

from __future__ import annotations

import sys

import click
import msgspec

from memlog.damage import mark
from memlog.log import Damage
from memlog.settings import Settings
from memlog.verifying import verify_file
from server.cli.common import (
    json_option,
    many,
    print_json,
    progress_bar,
    project_argument,
    say,
    store_of,
    with_settings,
)


class Report(msgspec.Struct, frozen=True):
    positions: int
    damages: list[Damage]


@click.command("verify")
@project_argument
@json_option
@with_settings()
def verify_command(settings: Settings, project: str | None, as_json: bool) -> None:
    """Check that no entry of the log was changed, lost or swapped; all projects unless one is named.

    A log that is damaged is noted as such: servers go on reading it, and write to it no more.

    \b
    Example: memlog verify
    """
    reports: dict[str, Report] = {}
    with store_of(settings) as store, progress_bar(hidden=as_json) as progress:
        for row in store.projects("active") if project is None else [store.find(project)]:
            task = progress.add_task(row.name, total=None)
            positions, damages = 0, []
            file = store.file(row.id)
            for found in verify_file(file):
                progress.advance(task)
                if isinstance(found, Damage):
                    damages.append(found)
                else:
                    positions = found
            mark(file, damages)
            reports[row.name] = Report(positions, damages)
    if as_json:
        print_json(reports)
    for name, report in () if as_json else reports.items():
        if report.damages:
            say(f"{name}: DAMAGED")
            for damage in report.damages:
                say(f"  position {damage.position}: {damage.problem}")
            say(f"  Go on with all that is whole: memlog repair '{name}'")
            say(f"  With what a backup has of the rest: memlog repair '{name}' --backup FOLDER")
        else:
            say(f"{name}: {many(report.positions, 'entry', 'entries')}, whole.")
    if any(report.damages for report in reports.values()):
        sys.exit(1)
