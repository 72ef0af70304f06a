"""`memlog purge`: erases an entity or a memory from a project's log and from everything derived from it."""

from __future__ import annotations

import sys
from typing import Any

import click

from memlog.differences import differences
from memlog.errors import MemlogError, counted
from memlog.projects.purging import Plan, Target, plan
from memlog.runs import runs
from memlog.settings import Settings
from memlog.shell import command_line
from memlog.state import State
from projections.follow import PROJECTIONS
from server.cli.looking import service_to_read
from server.cli.options import ENTITY, THIS_PROJECT, json_option
from server.cli.printing import confirm, one_line, print_json, progress_bar, say, warn_of_put_aside
from server.cli.running import here, indexed, with_settings
from server.cli.stopping import stopped_in_words
from server.service import Service

SHOWN_MAX = 20
STOPPED_MEANWHILE = "It may be erased already. Run the command again: what is erased is not found."


@click.command("purge")
@click.argument("project", type=THIS_PROJECT)
@click.option(
    "--entity",
    "entities",
    multiple=True,
    type=ENTITY,
    metavar="NAME",
    help="An entity, deleted or not, or a name that only relations have.",
)
@click.option("--memory", "memories", multiple=True, metavar="ID", help="A memory, whatever it is.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_settings
def purge_command(
    settings: Settings,
    project: str,
    entities: tuple[str, ...],
    memories: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Erase things for good, as if they had never been. There is no undo; backups are not touched, nor logs in
    the folder `replaced` of the data directory.

    An entity goes with its names, facts, relations, and whatever was merged into it. Positions and the
    chain of hashes stay as they are. Stop other servers of this data directory first, or they have to
    open the project again. It says what would go, and asks. With --json it does not ask: without --yes it
    only says what would go, and ends with 1.

    \b
    Example: memlog purge my-app --entity "Jon"
    Example: memlog purge my-app --memory mem_01h455vb4pex5vsknk084sn02q --yes
    """
    target = Target(entities, memories)
    with service_to_read(settings, project) as service:
        planned, others = _planned(service, project, target)
        if as_json and not yes:
            print_json(_report(planned, others, []))
            say("Nothing was erased: --yes does it.", err=True)
            sys.exit(1)
        if not as_json:
            _tell(planned, others)
        if not yes:
            confirm("Erase this for good?")
        with stopped_in_words(lambda: STOPPED_MEANWHILE):
            erased = service.purge(project, target, confirmed=None if yes else planned)
        behind = _indexed(service, project, erased, hidden=as_json)
        warn_of_put_aside(service.store)
    if as_json:
        print_json(_report(erased, others, behind))
        return
    say(_done(erased, project))
    say("Command ids that were used stay known, their answers do not; indexes were built anew.")
    for said in behind:
        say(said)


def _indexed(service: Service, project: str, erased: Plan, *, hidden: bool) -> list[str]:
    """What the indexes lack, in words. Whatever stops it, that it is erased is told: there is no undo."""

    def done(then: str) -> str:
        rebuild = command_line("memlog replay", project)
        lacking = f"Only the indexes are not there yet: {then}the next search builds them, or `{rebuild}`."
        return f"{_done(erased, project)} {lacking}"

    try:
        with stopped_in_words(lambda: here(done(""))), progress_bar(hidden=hidden) as progress:
            return indexed(service, project, PROJECTIONS, progress)
    except MemlogError as error:
        error.suggestion = done("when the cause is gone, ")
        raise


def _done(erased: Plan, project: str) -> str:
    return f"Erased {counted(len(erased.positions), 'entries')} of project '{project}'."


def _planned(service: Service, project: str, target: Target) -> tuple[Plan, list[str]]:
    """The plan, and what it changes of things that were not named, in words."""
    opened = service.store.project(project)
    with opened.snapshot() as (log, state_at), opened.draft() as left:
        state = state_at(log.position())
        planned = plan(log, state, target, left)
        others = [
            f"{each.kind} '{each.now or each.was}' is {_OTHERWISE[each.how]}"
            for each in differences(state, State(left.timeline))
            if each.how != "removed"
        ]
    return planned, others


_OTHERWISE = {"added": "there again", "changed": "as it was before"}


def _tell(planned: Plan, others: list[str]) -> None:
    if planned.names:
        say(f"Names: {', '.join(map(one_line, planned.names))}")
    for kind, count in planned.kinds.items():
        say(_kind(kind, count))
    say(f"Positions: {_ranges(sorted(planned.positions))}")
    for each in others[:SHOWN_MAX]:
        say(f"Then {one_line(each)}.")
    if len(others) > SHOWN_MAX:
        say(f"… and {len(others) - SHOWN_MAX} more.")
    if planned.mentions:
        positions = _ranges(planned.mentions[:SHOWN_MAX])
        more = " …" if len(planned.mentions) > SHOWN_MAX else ""
        entries = counted(len(planned.mentions), "other entries")
        say(f"A name stays in {entries}: {positions}{more}")


def _kind(kind: str, count: int) -> str:
    """2 observations added: so many events, of the kind that `observation_added` names."""
    thing, _, happened = kind.replace("_", " ").rpartition(" ")
    things = f"{thing[:-1]}ies" if thing.endswith("y") else f"{thing}s"
    return f"{count:>6} {thing if count == 1 else things} {happened}"


def _ranges(positions: Any) -> str:
    """3, 5-7, 9"""
    found = list(runs(positions))
    shown = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found[:SHOWN_MAX]]
    return ", ".join(shown) + (" …" if len(found) > SHOWN_MAX else "")


def _report(erased: Plan, others: list[str], behind: list[str]) -> dict[str, Any]:
    return {
        "positions": sorted(erased.positions),
        "kinds": erased.kinds,
        "names": list(erased.names),
        "otherwise": others,
        "mentions": list(erased.mentions),
        "notices": behind,
    }
