"""`memlog import` and `memlog export`: the reference server's file, or the whole history, both ways."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import click
import msgspec

from memlog.blank import is_blank
from memlog.canonical import canonical
from memlog.controls import CONTROL, safe
from memlog.copies import chronicle, taking_in, transfer
from memlog.copies.doubts import doubts_of
from memlog.decisions.superseding import brought_back
from memlog.errors import DamagedLog, MemlogError, ProjectExists, counted
from memlog.projects.project import Origin, Outcome
from memlog.settings import Settings
from server.cli.drafts import written_whole
from server.cli.looking import open_existing, service_to_read
from server.cli.options import NamedPath, ToRead, json_option, project_option
from server.cli.printing import print_json, progress_bar, say
from server.cli.running import here, indexed, service_of, store_of, with_settings
from server.cli.stopping import stopped_in_words
from server.opened import Opened
from server.registry import ThreadId
from server.rights.credentials import judge_lines
from server.session import Session
from server.tools.history import LAST_MAX

DOUBTS_SHOWN = 20
AGAIN = "import the file again: what is there is not added twice."
WHOLE_OR_NOT = "A history comes in whole or not at all: import the file again."
REPAIR_FIRST = "A history goes out whole or not at all: repair the log first. What is whole is exported without --full."


def as_thread(_: click.Context, __: click.Parameter, thread: str | None) -> str | None:
    """What a client could pass as its threadId."""
    if thread is None:
        return None
    if is_blank(thread) or CONTROL.search(thread):
        raise click.BadParameter("Say it in characters that show, or leave it out.")
    try:
        msgspec.convert(thread, ThreadId)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{error}.") from error
    return thread


@click.command("import")
@click.argument("file", type=ToRead())
@click.option(
    "--thread", "-t", callback=as_thread, help="Write it under this thread, as a client's threadId."
)
@click.option(
    "--without",
    metavar="KEY",
    multiple=True,
    help="Leave out what stands under a key that another server adds to lines. May be given several times.",
)
@project_option
@json_option
@with_settings
def import_command(
    settings: Settings,
    file: BinaryIO,
    thread: str | None,
    without: tuple[str, ...],
    project: str | None,
    as_json: bool,
) -> None:
    """Add what a memory.json of the reference server holds. Doing it twice adds nothing.

    A file with anything that cannot be kept is refused whole. What is kept otherwise than it stands there (a
    second type for a name, a relation twice), was superseded here or looks like a mistake is warned of.

    At the end it says how all of it is taken back.

    A history, as `memlog export --full` writes it, becomes the project that it was, to the last digest.

    \b
    Example: memlog import ~/memory.json
    Example: memlog import --thread old-notes ~/memory.json
    Example: memlog import --without createdAt --without version memory.jsonl
    Example: memlog import history.jsonl
    """
    data = file.read()
    if chronicle.is_history(data):
        for option, given in (
            ("--project", project),
            ("--thread", thread),
            ("--without", without or None),
        ):
            if given is not None:
                raise click.UsageError(
                    f"A history becomes the project that it was: leave out {option}."
                )
        with stopped_in_words(lambda: WHOLE_OR_NOT):
            _import_history(settings, data, as_json)
        return
    done = Done()
    with stopped_in_words(done.when_stopped):
        _import_graph(settings, data, without, project, Origin(thread=thread), as_json, done)


class Done:
    """How many lines of a file are in the log: those of each command that was acknowledged; how many events that were,
    and of how many commands."""

    def __init__(self) -> None:
        self.lines, self.of = 0, 0
        self.events, self.commands = 0, 0

    def add(self, lines: int, events: int) -> None:
        self.lines += lines
        self.events += events
        self.commands += events > 0

    def __str__(self) -> str:
        return f"{self.lines} of {self.of} lines are in the log."

    def when_stopped(self) -> str:
        """The last command may have been on its way back from the disk, unless all of them were acknowledged."""
        if not self.of:
            return f"Nothing was imported. To go on, {AGAIN}"
        if self.lines == self.of:
            return f"All {self.of} lines are in the log. A search or a server makes the indexes by itself."
        return f"At least {self} To go on, {AGAIN}"


def _import_graph(
    settings: Settings,
    data: bytes,
    without: tuple[str, ...],
    project: str | None,
    origin: Origin,
    as_json: bool,
    done: Done,
) -> None:
    _require_project(settings, project)
    named = [("the command line", msgspec.json.encode({"thread": origin.thread}))]
    doubtful = _judge(settings, chain(named, transfer.objects(data)))
    placed = transfer.read(data, without)
    with service_of(settings) as service, progress_bar(hidden=as_json) as progress:
        name, opened = Session(service, settings.project).open(project)
        with opened.project.read() as state:
            if settings.strict_relations:
                transfer.require_ends(placed, state)  # no command would take them
            doubts = list(doubts_of(placed, state))
        lines = [line for _, line in placed]
        before = opened.project.head()
        task = progress.add_task("log", total=len(lines))
        done.of = len(lines)
        try:
            for command, count in transfer.commands(lines):
                execute = opened.project.execute
                context = service.store.context
                events, more = execute(command, context, _events_and_doubts, origin)
                done.add(count, events)
                doubts += more
                progress.advance(task, count)
            behind = indexed(service, name, ("text", "vectors"), progress)
        except MemlogError as error:
            far = f"{done} When the cause is gone, {AGAIN}"
            error.suggestion = f"{error.suggestion} {far}" if error.suggestion else far
            raise
        alone = opened.project.head() == before + done.events
    if doubtful:
        _advise_to_purge()
    for said in behind:
        say(said, err=True)
    if as_json:
        told = {
            "project": name,
            "lines": len(lines),
            "events": done.events,
            "commands": done.commands,
        }
        print_json({**told, "warnings": doubts} if doubts else told)
    else:
        _warn(doubts)
        new = counted(done.events, "new events")
        say(f"Imported {counted(len(lines), 'lines')} into project '{name}': {new}.")
        if done.events:
            say(here(_way_back(done, name, alone=alone)))


def _require_project(settings: Settings, name: str | None) -> None:
    """Says that a project is not there before a long file is read. The usual one is made, once the file is taken."""
    if name is not None and canonical(name) != canonical(settings.project):
        with service_to_read(settings, name) as service:
            Session(service, settings.project).project(name)


def _events_and_doubts(outcome: Outcome) -> tuple[int, list[str]]:
    return len(outcome.entries), brought_back(outcome.entries, outcome.after)


def _way_back(done: Done, name: str, *, alone: bool) -> str:
    """How the import is taken back as a whole; `alone`, where nobody else wrote meanwhile."""
    if not alone:
        return "Others wrote meanwhile. To take it back, undo its commands by position: `memlog log` shows them."
    undo = f"`memlog undo --project {shlex.quote(name)} --last"
    times, rest = divmod(done.commands, LAST_MAX)
    ways = [f"{undo} {LAST_MAX}`{f', {times} times' if times > 1 else ''}"] if times else []
    ways += [f"{undo} {rest}`"] if rest else []
    return f"To take it back, before anything else is written: {', then '.join(ways)}"


def _warn(doubts: Sequence[str]) -> None:
    for each in doubts[:DOUBTS_SHOWN]:
        say(f"Warning: {each}.", err=True)
    if len(doubts) > DOUBTS_SHOWN:
        say(f"… and {len(doubts) - DOUBTS_SHOWN} more warnings: --json has them all.", err=True)


def _import_history(settings: Settings, data: bytes, as_json: bool) -> None:
    lines = chronicle.lines(data)
    doubtful = _judge(settings, ((f"line {number}", text) for number, text in lines))
    heading, entries = chronicle.read(data)
    with store_of(settings) as store:
        try:
            done = taking_in.take_in(store, heading.project, heading.generation, entries)
        except ProjectExists as error:
            error.suggestion = (
                "Nothing was imported. Take another data directory (--data-dir). Or keep what is there (`memlog export "
                "--full FILE --project NAME`), delete it (`memlog projects delete NAME`), then run the command again."
            )
            raise
    if doubtful:
        _advise_to_purge()
    if as_json:
        print_json({"project": done.name, "position": done.position, "how": done.how})
    else:
        size = counted(done.position, "entries")
        say(f"The history of project '{done.name}': {done.how}, {size}.")
        if done.erased:
            say(f"{done.erased} of them were erased for good there, and stay so.")


def _judge(settings: Settings, lines: Iterable[tuple[str, bytes]]) -> bool:
    """Warns of each line that holds what looks like a credential, or refuses them all. Whether there are any."""
    found = judge_lines(lines, settings.secrets)
    for each in found:
        say(f"Warning: {each} looks like a credential.", err=True)
    return bool(found)


def _advise_to_purge() -> None:
    """Once there is something: a file that was warned of may yet be refused."""
    say(here("`memlog purge` erases for good what should not be kept."), err=True)


def _graph(opened: Opened) -> Iterator[bytes]:
    with opened.project.read() as state:
        yield from transfer.write(state)


def _history(opened: Opened) -> Iterator[bytes]:
    """Raises DamagedLog where the log is not whole: a part of a history could not be read in again."""
    try:
        yield from chronicle.write(opened.project)
    except DamagedLog as damage:
        damage.suggestion = f"{damage.suggestion} {REPAIR_FIRST}"
        raise


def _memories(opened: Opened) -> int:
    with opened.project.read() as state:
        return sum(1 for _ in state.memories())


@click.command("export")
@click.argument(
    "file",
    type=NamedPath("Name a file, or - for stdout.", dir_okay=False, allow_dash=True),
    default="-",
)
@click.option("--full", is_flag=True, help="The whole history, every event with its hash.")
@project_option
@with_settings
def export_command(settings: Settings, file: Path, project: str | None, full: bool) -> None:
    """Write the graph as a memory.json of the reference server, to a file or to stdout.

    With --full it is the whole history, one event a line, which `memlog import` brings back elsewhere; without it,
    facts and records stay out, and are counted.
    A file that is there is replaced when all is written; until then it stays as it is.
    Of a damaged log what is whole is written, and the command ends with 1; with --full nothing is, until the log is
    repaired.

    \b
    Example: memlog export memory.json
    Example: memlog export --full history.jsonl
    """
    count = 0
    with service_to_read(settings, project) as service:
        _, opened = open_existing(service, project)
        with written_whole(file) as written:
            for line in _history(opened) if full else _graph(opened):
                written.write(safe(line.decode()).encode())
                count += 1
        left_out = 0 if full else _memories(opened)
        damage = opened.project.damage
    if left_out:
        told = counted(left_out, "memories")
        say(
            f"Not in there: {told} (facts and records), for which this form has no place. --full has all.",
            err=True,
        )
    if str(file) != "-":
        # What is no file may be stdout by another name, which is to hold the lines alone.
        say(f"Exported {counted(count, 'lines')} to {file}.", err=not file.is_file())
    if damage is not None:  # what is whole of it was written, and is not all
        raise damage
