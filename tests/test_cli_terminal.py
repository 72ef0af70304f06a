"""What a log holds is shown by the command line and never obeyed by the terminal."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memlog.commands import CreateEntities, CreateRelations, NewEntity, NewRelation
from memlog.projects.project import Origin
from memlog.projects.store import Store
from server.cli.running import SafeFormatter
from server.http.logs import JsonLines
from tests.command_line import BARE, CommandLine, Line, written
from tests.served import DEADLINE_S, environment, run_memlog

CLEAR, TITLE, BACK = "\x1b[2J", "\x9d0;owned\x9c", "was\rwill be"
TURNED = "\u2067drawkcab\u202e\u2028\u2029"
EVIL = f"Jon{CLEAR}{TITLE}"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    """Over a log that an import of an older version left with control characters."""
    store = Store(tmp_path / "data")
    store.create("default", f"the [bold]old[/] one{CLEAR}\u202e")
    project, context = store.project("default"), store.context
    jon = NewEntity(
        name=EVIL,
        entity_type=f"person{CLEAR}{TURNED}",
        observations=[f"dances{CLEAR}", BACK, TURNED],
    )
    knows = NewRelation(source=EVIL, target="Gina", relation_type=f"knows{TITLE}")
    for command in (CreateEntities(entities=[jon]), CreateRelations(relations=[knows])):
        project.execute(command, context, lambda _: None, Origin(thread=f"one{CLEAR}{TURNED}"))
    store.close()
    return CommandLine(tmp_path / "data")


COMMANDS = (
    "search dances",
    "log",
    "show NAME",
    "diff --from 0",
    "stats",
    "undo --dry-run",
    "projects",
    "doctor",
    "verify",
    "replay --check",
    "export",
)


@pytest.mark.parametrize(
    "command", [*COMMANDS, *(f"{each} --json" for each in COMMANDS if each != "export")]
)
def test_no_command_prints_a_control_character_of_what_is_stored(
    memlog: CommandLine, command: str
) -> None:
    words = [EVIL if word == "NAME" else word for word in command.split()]
    ended = memlog(*words)
    assert ended.code == 0, ended.stderr
    assert not OBEYED.search(ended.stdout + ended.stderr)


NAME = "Jon\n  · forged  (position 3)"
"""What follows its first line looks like a fact of somebody."""


@pytest.mark.parametrize(
    "command", ["search dances", "log", "show NAME", "diff --from 0", "stats", "purge default"]
)
def test_a_name_of_several_lines_makes_none_that_looks_like_another(
    tmp_path: Path, command: str
) -> None:
    memlog = CommandLine(tmp_path / "data")
    lines: list[Line] = [
        {"type": "entity", "name": NAME, "entityType": NAME, "observations": ["dances"]},
        {"type": "relation", "from": NAME, "to": NAME, "relationType": NAME},
    ]
    memory = written(tmp_path / "memory.jsonl", lines)
    assert memlog("import", memory, "--thread", "one").code == 0
    words = [NAME if word == "NAME" else word for word in command.split()]
    shown = memlog(*words, *(["--entity", NAME] if words[0] == "purge" else [])).stdout
    assert "forged" in shown
    assert not any(line.startswith("  · forged") for line in shown.splitlines())


def test_control_characters_are_shown_as_json_spells_them(memlog: CommandLine) -> None:
    found = memlog("search", "dances").stdout
    assert "Jon\\u001b[2J\\u009d0;owned\\u009c" in found
    assert "dances\\u001b[2J" in found
    assert memlog("search", "dances", "--json").json["groups"][0]["name"] == EVIL
    assert "the [bold]old[/] one\\u001b[2J" in memlog("projects").stdout


def test_an_error_that_quotes_what_is_stored_obeys_nothing(memlog: CommandLine) -> None:
    refused = memlog("show", "Jon")
    assert refused.code == 1
    assert "Did you mean 'Jon\\x1b[2J" in refused.stderr
    assert not OBEYED.search(refused.stderr)


def test_what_was_exported_is_what_was_stored_and_is_not_imported_again(
    memlog: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "out.jsonl"
    assert memlog("export", file).code == 0
    refused = memlog("import", file)
    assert refused.code == 1
    assert "line 1" in refused.stderr and "line 2" in refused.stderr
    assert "contains the control character U+001B (escape) at character" in refused.stderr
    assert not OBEYED.search(refused.stderr)


def test_a_message_of_the_log_to_stderr_obeys_nothing() -> None:
    record = logging.LogRecord("memlog", logging.WARNING, "", 0, "%s is behind", (EVIL,), None)
    told = SafeFormatter("%(levelname)s: %(message)s").format(record)
    assert told == "WARNING: Jon\\u001b[2J\\u009d0;owned\\u009c is behind"


def test_a_line_of_the_log_over_http_obeys_nothing() -> None:
    path = f"/{TITLE}\x7f\x85{TURNED}"  # which anybody can ask for
    record = logging.LogRecord("memlog.http", logging.INFO, "", 0, "404 Not Found", None, None)
    record.fields = {"path": path}
    line = JsonLines().format(record)
    assert json.loads(line)["path"] == path
    assert line.isprintable()


def test_commands_print_in_one_way() -> None:
    """Who calls click or rich directly passes by what makes texts safe."""
    folder = Path(__file__).parents[1] / "server" / "cli"
    commands = set(folder.glob("*.py")) - {folder / "printing.py", folder / "terminal.py"}
    assert folder / "serve.py" in commands
    for module in commands:
        direct = re.findall(r"click\.echo\(|\bprint\(.*\bfile=|\bConsole\(", module.read_text())
        assert not direct, f"{module.name}: print with those of printing.py"


def test_doctor_shows_brackets_in_names_as_they_are(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path)
    assert memlog("projects", "create", "v[red]1").code == 0
    assert "project v[red]1: status active" in memlog("doctor").stdout


def test_a_word_between_colons_in_a_name_is_shown_as_it_is(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path)
    assert memlog("projects", "create", "v:key:1").code == 0
    assert memlog("token", "new", "laptop", "--project", "v:key:1").code == 0
    assert "project v:key:1: status active" in memlog("doctor").stdout
    assert "v:key:1" in memlog("token", "list").stdout


@pytest.mark.parametrize("command", ["projects", "stats", "token list"])
def test_in_a_narrow_terminal_nothing_of_a_table_is_left_out(
    memlog: CommandLine, command: str
) -> None:
    assert memlog("token", "new", "laptop").code == 0
    shown = memlog(*command.split(), COLUMNS="40").stdout.partition("entities by type")[0]
    assert "…" not in shown


@pytest.mark.parametrize("columns", ["40", "60", "200"])
def test_bars_are_as_long_as_what_they_tell_however_narrow_the_terminal_is(
    tmp_path: Path, columns: str
) -> None:
    memlog = CommandLine(tmp_path / "people")
    kinds = ["short"] * 4 + ["a name that takes more than half of the line"] * 2 + ["b"]
    people = [{**BARE, "name": f"p{n}", "entityType": kind} for n, kind in enumerate(kinds)]
    assert memlog("import", written(tmp_path / "in.jsonl", people)).code == 0
    shown = memlog("stats", "--json").json["entity_types"]
    bars = [each.count("█") for each in memlog("stats", COLUMNS=columns).stdout.splitlines()[-3:]]
    assert list(shown.values()) == [4, 2, 1]
    assert bars[0] >= 10
    assert [round(4 * each / bars[0]) for each in bars] == [4, 2, 1]


@pytest.mark.parametrize("columns", ["0", "1", "10"])
@pytest.mark.parametrize("command", ["projects", "stats", "token list", "doctor", "log"])
def test_where_hardly_a_column_is_said_to_be_there_all_is_printed(
    memlog: CommandLine, command: str, columns: str
) -> None:
    assert memlog("token", "new", "laptop").code == 0
    shown = memlog(*command.split(), COLUMNS=columns).stdout
    assert shown and shown == memlog(*command.split(), COLUMNS="40").stdout


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="a terminal of POSIX")
def test_who_types_serve_is_told_what_it_waits_for(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    try:
        server = subprocess.Popen(
            [sys.executable, "-m", "memlog", "serve"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        )
        assert server.stderr is not None
        assert server.stderr.readline().startswith(b"Speaks MCP with a client")
        server.terminate()
        stdout, _ = server.communicate(timeout=DEADLINE_S)
        assert stdout == b""
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_text_of_several_lines_is_not_taken_for_several_items(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.create("default")
    false = "he said\n     9 2026-01-01T00:00:00.000000Z · 'Jon' was deleted\n+ entity Eve"
    jon = NewEntity(name="Jon", entity_type="person", observations=[false])
    store.project("default").execute(CreateEntities(entities=[jon]), store.context, lambda _: None)
    store.close()
    memlog = CommandLine(tmp_path / "data")
    for command, lines in (("log", 3), ("diff --from 1", 3), ("undo --dry-run", 2)):
        shown = memlog(*command.split()).stdout
        assert len(shown.splitlines()) == lines, shown
        assert r"he said\u000a" in shown
    for command in ("show Jon", "search said"):
        told = memlog(*command.split()).stdout.splitlines()
        at = next(number for number, line in enumerate(told) if "he said" in line)
        assert [line[:6] for line in told[at + 1 : at + 3]] == [" " * 6] * 2


def test_what_the_encoding_of_the_output_lacks_is_spelt_as_in_json(tmp_path: Path) -> None:
    data = tmp_path / "data"
    name = "\u0416an 東京 🙂"
    entity = {"type": "entity", "name": name, "entityType": "t", "observations": ["→"]}
    CommandLine(data)("import", "-", stdin=json.dumps(entity))
    spelt = json.dumps(name)[1:-1]
    for command in ("show", "search"):
        shown = run_memlog(command, name, data_dir=data, PYTHONIOENCODING="ascii")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert spelt in shown.stdout and "\\u2192" in shown.stdout
    told = run_memlog("show", name, "--json", data_dir=data, PYTHONIOENCODING="ascii")
    assert json.loads(told.stdout)["entity"]["name"] == name
    assert run_memlog("log", data_dir=data, PYTHONIOENCODING="ascii").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "\udcff"],
        ["log", "--project", "\udcff"],
        ["log", "--entity", "\udcff"],
        ["purge", "default", "--memory", "\udcff"],
        ["token", "new", "t", "--project", "\udcff"],
        ["verify", "\udcff"],
    ],
)
def test_what_was_typed_in_another_encoding_is_an_error_in_words(
    tmp_path: Path, arguments: list[str]
) -> None:
    memlog = CommandLine(tmp_path)
    assert memlog("projects", "create", "default").code == 0
    ended = memlog(*arguments)
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: '\\udcff' is not valid UTF-8\nhint: ")


def test_a_data_directory_whose_name_is_no_text_is_refused_and_not_made(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    refused = run_memlog("log", data_dir=Path(folder))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert r"\udcff' cannot be used: its name is not valid UTF-8" in refused.stderr
    assert not os.listdir(tmp_path)


def test_a_file_whose_name_is_no_text_is_named_all_the_same(tmp_path: Path) -> None:
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    assert CommandLine(tmp_path / "data")("projects", "create", "default").code == 0
    ended = run_memlog("export", file, data_dir=tmp_path / "data", PYTHONIOENCODING="utf-8:strict")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\udcff.json" in ended.stdout


def test_a_name_of_two_lines_is_shown_on_one(tmp_path: Path) -> None:
    memlog, backup = CommandLine(tmp_path / "data"), tmp_path / "backup"
    called = [
        ("projects", "create", "a\nb: 5 entries, whole."),
        ("projects",),
        ("verify",),
        ("replay", "--all", "--only", "state"),
        ("doctor",),
        ("backup", backup),
        ("restore", backup),
    ]
    for command in called:
        ended = memlog(*command)
        assert ended.code == 0, ended.stderr
        assert "a\\u000ab: 5 entries" in ended.stdout, command
        assert "a\nb" not in ended.stdout, command
