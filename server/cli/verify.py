"""`memlog verify`: reads every entry of a log and checks the chain of hashes."""

from __future__ import annotations

import sys

import click
import msgspec

from memlog.log import Damage
from memlog.settings import Settings
from server.cli.common import json_option, print_json, progress_bar, say, service_of, with_settings


class Report(msgspec.Struct, frozen=True):
    positions: int
    damages: list[Damage]


@click.command("verify")
@click.argument("project", required=False)
@json_option
@with_settings()
def verify_command(settings: Settings, project: str | None, as_json: bool) -> None:
    """Check that no entry of the log was changed, lost or swapped; all projects unless one is named.

    \b
    Example: memlog verify
    """
    reports: dict[str, Report] = {}
    with service_of(settings) as service, progress_bar(hidden=as_json) as progress:
        names = [project] if project else [row.name for row in service.store.projects("active")]
        for name in names:
            opened = service.store.project(name)
            task = progress.add_task(name, total=opened.head())
            damages = []
            for found in opened.verify():
                progress.advance(task)
                if isinstance(found, Damage):
                    damages.append(found)
            reports[name] = Report(opened.head(), damages)
    if as_json:
        print_json(reports)
    for name, report in () if as_json else reports.items():
        if report.damages:
            say(f"{name}: DAMAGED")
            for damage in report.damages:
                say(f"  position {damage.position}: {damage.problem}")
        else:
            say(f"{name}: {report.positions} entries, whole.")
    if any(report.damages for report in reports.values()):
        sys.exit(1)
