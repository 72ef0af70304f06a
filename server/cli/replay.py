"""`memlog replay`: rebuilds what is derived from the log, or proves that it equals what a rebuild gives."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial

import click

from memlog.each import of_project, raise_first
from memlog.errors import EmbeddingError, MemlogError
from memlog.projects.project import Project
from memlog.settings import Settings
from memlog.shell import command_line
from projections.check import compare
from projections.follow import PROJECTIONS, Progress
from server.cli.looking import open_existing, passing_over_gone, service_to_read
from server.cli.options import json_option, project_argument
from server.cli.printing import bar_for, one_line, print_json, progress_bar, say
from server.cli.running import here, with_settings
from server.service import Service

PARTS = ("state", *PROJECTIONS)
EQUAL, DIFFERENT, NOT_POSSIBLE = "equal", "DIFFERENT", "not possible"


@click.command("replay")
@project_argument
@click.option("--all", "every", is_flag=True, help="Every active project.")
@click.option("--only", type=click.Choice(PARTS), help="Only this part; default: all parts.")
@click.option("--check", is_flag=True, help="Change nothing; compare with a rebuild from the log.")
@click.option("--catalog", is_flag=True, help="Rebuild the list of projects from their logs.")
@json_option
@with_settings
def replay_command(
    settings: Settings,
    project: str | None,
    every: bool,
    only: str | None,
    check: bool,
    catalog: bool,
    as_json: bool,
) -> None:
    """Rebuild state and indexes from the log, or check that they equal a rebuild.

    \b
    Example: memlog replay --check
    Example: memlog replay my-app --only text
    """
    if project is not None and every:
        raise click.UsageError("--all is every project: leave out the name of one.")
    if catalog and check:
        raise click.UsageError("--catalog writes the list anew and --check changes nothing.")
    with (
        service_to_read(settings, project) as service,
        progress_bar(hidden=as_json) as progress,
    ):
        if catalog:
            service.store.rebuild_catalog()
        reports: dict[str, dict[str, str]] = {}
        failures: list[MemlogError] = []
        for name in _wanted(service, project, every, catalog):
            passing = passing_over_gone(service.store, name, "active")
            try:
                with passing if every else nullcontext():
                    reports[name] = _parts(service, name, only, check, bar_for(progress))
            except MemlogError as error:  # the others are done all the same
                failures.append(of_project(name, error) if every else error)
    if as_json:
        print_json(reports)
    else:
        if catalog:
            say("The list of projects was rebuilt from the logs.")
        for name, report in reports.items():
            for part, said in report.items():
                say(f"{one_line(name)}: {part} {said}")
    raise_first(failures, list(reports))
    outcomes = [said for report in reports.values() for said in report.values()]
    if any(said.startswith((DIFFERENT, NOT_POSSIBLE)) for said in outcomes):
        sys.exit(1)


def _wanted(service: Service, project: str | None, every: bool, catalog: bool) -> list[str]:
    """The names of the projects that are to be replayed; the usual one, unless only the catalogue was asked for."""
    if every:
        return [row.name for row in service.store.projects("active")]
    if catalog and project is None:
        return []
    return [open_existing(service, project)[0]]


def _parts(
    service: Service, name: str, only: str | None, check: bool, progress: Progress
) -> dict[str, str]:
    """How it went with each part. Raises DamagedLog where the log is not whole, for an index that is built from it ends
    before the damage; one that is known of costs no index that reaches further."""
    project = service.open(name).project
    _require_whole(project)
    report = {
        part: _part(service, name, part, check, progress) for part in ((only,) if only else PARTS)
    }
    _require_whole(project)  # as far as it was read by now
    return report


def _require_whole(project: Project) -> None:
    if (damage := project.damage) is not None:
        raise damage


def _part(service: Service, name: str, part: str, check: bool, progress: Progress) -> str:
    """Rebuilds or checks one part, and says how it went."""
    opened = service.open(name)
    rebuild = command_line("memlog replay", name)
    different = f"{DIFFERENT}: run `{here(rebuild)}` without --check to rebuild it"
    try:
        if part == "state":
            shown = partial(progress, "state")
            if check:
                return EQUAL if opened.project.is_as_rebuilt(shown) else different
            opened.project.rebuild(shown)
        elif part == "vectors" and service.embeddings.switched_off:
            return "switched off"
        elif check:
            return EQUAL if compare(opened.projections, part, progress) else different
        else:
            opened.projections.rebuild(part, progress)
    except EmbeddingError as error:
        return f"{NOT_POSSIBLE}: {error.message}"
    return f"rebuilt to position {opened.project.head()}"
