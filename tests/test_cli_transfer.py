"""`memlog import` and `memlog export`: the reference server's file in and out, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from memlog.copies import transfer
from memlog.decisions import undos
from memlog.projects.store import Store
from server.cli.drafts import written_whole
from tests.command_line import (
    BARE,
    JON,
    KNOWS,
    LINES,
    CommandLine,
    Line,
    holding_lines,
    lines_of,
    written,
)
from tests.served import DEADLINE_S, REPOSITORY, environment, run_memlog, served
from tests.service import client_on


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "data")


@pytest.fixture
def remembered(tmp_path: Path) -> CommandLine:
    return holding_lines(tmp_path)


def test_what_was_imported_is_exported_alike_and_in_its_order(
    memlog: CommandLine, tmp_path: Path
) -> None:
    file = written(tmp_path / "in.jsonl", LINES)
    ended = memlog("import", file, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.json == {
        "project": "default",
        "lines": 5,
        "events": 1 + 3 + 3 + 2 - 1,
        "commands": 2,
        "warnings": ["line 5: there is no entity 'nobody': the relation waits for it"],
    }
    assert lines_of(memlog("export").stdout) == LINES
    out = tmp_path / "out.jsonl"
    assert memlog("export", out).stdout == f"Exported 5 lines to {out}.\n"
    assert lines_of(out.read_text()) == LINES


def people(count: int) -> list[Line]:
    return [{**JON, "name": f"p{number}"} for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 100, 105, 203])
def test_an_import_is_taken_back_as_it_says_itself(
    remembered: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(transfer, "ITEMS_PER_COMMAND", 2)
    monkeypatch.setattr(undos, "SEARCHED_BACK_MAX", 2 * count)  # fewer than there are entries
    ended = remembered("import", written(tmp_path / "more.jsonl", people(count)))
    advice = ended.stdout.splitlines()[-1]
    assert advice.startswith("To take it back, before anything else is written: `memlog undo")
    for undo, times in re.findall(r"`memlog ([^`]*)`(?:, (\d+) times)?", advice):
        for _ in range(int(times or 1)):
            assert remembered(*shlex.split(undo)).code == 0
    assert lines_of(remembered("export").stdout) == LINES


def test_a_project_that_is_not_there_is_told_before_the_file_is_read(
    memlog: CommandLine, tmp_path: Path
) -> None:
    file = written(tmp_path / "in.jsonl", [{**JON, "colour": "red"}])
    ended = memlog("import", file, "--project", "shop")
    assert ended.code == 1 and "shop" in ended.stderr and "colour" not in ended.stderr
    assert "memlog projects create shop" in ended.stderr.replace(
        f"--data-dir {memlog.data_dir} ", ""
    )


def test_what_is_imported_is_written_under_the_thread_that_was_named(
    memlog: CommandLine, tmp_path: Path
) -> None:
    file = written(tmp_path / "in.jsonl", [JON, KNOWS])
    assert memlog("import", file, "--thread", "old notes").code == 0
    assert memlog("log", "--thread", "old notes", "--json").stdout.count('"old notes"') == 3
    found = memlog("search", "banker", "--thread", "old notes", "--json").json
    assert [group["name"] for group in found["groups"]] == ["Jon"]
    other = memlog("search", "banker", "--thread", "old note", "--json").json
    assert other["groups"] == []
    assert "Nothing was written under the threadId 'old note'. Did you mean" in other["notice"]


@pytest.mark.parametrize("thread", ["", " ", "\x1b[31m", "x" * 201])
def test_a_thread_that_no_client_could_name_is_refused(
    memlog: CommandLine, tmp_path: Path, thread: str
) -> None:
    file = written(tmp_path / "in.jsonl", [JON])
    ended = memlog("import", file, "--thread", thread)
    assert ended.code == 2
    assert "'--thread'" in ended.stderr
    assert not memlog.data_dir.exists()


def test_an_export_of_what_was_never_made_leaves_the_file_as_it_is(
    memlog: CommandLine, tmp_path: Path
) -> None:
    kept = written(tmp_path / "memory.json", [JON])
    before = kept.read_bytes()
    assert memlog("export", kept).code == 1
    assert kept.read_bytes() == before


def test_an_export_says_how_many_facts_and_records_it_leaves_out(
    remembered: CommandLine, tmp_path: Path
) -> None:
    assert remembered("export").stderr == ""
    with client_on(remembered.data_dir) as client:
        client("store_memory", content="User lives in Rome")
        old = client("store_memory", content="User lived in Oslo")["created"]["id"]
        client("forget_memory", id=old)
    ended = remembered("export")
    assert lines_of(ended.stdout) == LINES
    assert ended.stderr.startswith("Not in there: 1 memory (facts and records)")
    assert "1 memory" in remembered("export", tmp_path / "out.jsonl").stderr
    assert remembered("export", "--full").stderr == ""


def test_an_import_that_adds_nothing_says_nothing_of_taking_it_back(
    remembered: CommandLine, tmp_path: Path
) -> None:
    ended = remembered("import", written(tmp_path / "again.jsonl", LINES))
    assert ended.stdout == "Imported 5 lines into project 'default': 0 new events.\n"


def test_an_import_beside_others_who_write_does_not_advise_to_undo_what_they_wrote(
    remembered: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = transfer.commands

    def beside_another(lines: Any) -> Any:
        for each in commands(lines):
            yield each
            assert run_memlog("undo", data_dir=remembered.data_dir).returncode == 0

    monkeypatch.setattr(transfer, "commands", beside_another)
    ended = remembered("import", written(tmp_path / "more.jsonl", people(3)))
    told = ended.stdout.splitlines()
    assert told[0].endswith("6 new events.")
    assert told[1].startswith("Others wrote meanwhile.")


def test_importing_again_adds_nothing_and_more_adds_what_is_new(
    remembered: CommandLine, tmp_path: Path
) -> None:
    again = written(tmp_path / "again.jsonl", LINES)
    assert remembered("import", again, "--json").json["events"] == 0
    more = written(tmp_path / "more.jsonl", [{**JON, "observations": ["was a banker", "dances"]}])
    assert remembered("import", more, "--json").json["events"] == 1
    jon = lines_of(remembered("export").stdout)[0]
    assert jon["observations"] == ["was a banker", "dances"]


def test_an_export_that_fails_leaves_the_file_as_it_was(
    remembered: CommandLine, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    assert remembered("export", out).code == 0
    before = out.read_bytes()
    assert remembered("export", out, "--project", "nobody").code == 1
    assert out.read_bytes() == before
    assert remembered("export", tmp_path / "new.jsonl", "--project", "nobody").code == 1
    assert not (tmp_path / "new.jsonl").exists()


def test_an_export_to_where_nothing_can_be_written_says_so_in_words(
    remembered: CommandLine, tmp_path: Path
) -> None:
    for options in ([], ["--full"]):
        ended = remembered("export", tmp_path / "nowhere" / "out.jsonl", *options)
        assert (ended.code, ended.stdout) == (1, "")
        assert ended.stderr.startswith(f"error: {tmp_path / 'nowhere'}")
        assert "No such file or directory" in ended.stderr
        assert f"hint: There is no folder '{tmp_path / 'nowhere'}': make it" in ended.stderr
        assert ended.stderr.endswith("then run the command again.\n")


def test_an_export_to_where_a_file_stands_for_a_folder_names_it(
    remembered: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = remembered("export", tmp_path / "file" / "out.jsonl")
    assert (ended.code, ended.stdout) == (1, "")
    assert "hint: 'file' is no folder" in ended.stderr


def test_a_history_is_not_imported_into_a_project_of_another_name(
    remembered: CommandLine, tmp_path: Path
) -> None:
    history = tmp_path / "history.jsonl"
    assert remembered("export", "--full", history).code == 0
    ended = remembered("import", history, "--project", "default")
    assert ended.code == 2
    assert "leave out --project" in ended.stderr


def test_an_export_that_ends_halfway_leaves_the_file_as_it_was(
    remembered: CommandLine, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("dear to somebody\n")
    with pytest.raises(RuntimeError), written_whole(out) as written:
        written.write(b"half of")
        raise RuntimeError
    assert out.read_text() == "dear to somebody\n"
    assert list(tmp_path.glob("out.jsonl*")) == [out]


@pytest.mark.parametrize("command", ["export", "backup"])
@pytest.mark.parametrize("beyond", ["", "within"])
def test_links_in_a_circle_are_nowhere_to_write_to_in_words(
    remembered: CommandLine, tmp_path: Path, command: str, beyond: str
) -> None:
    circle, other = tmp_path / "circle", tmp_path / "other"
    circle.symlink_to(other)
    other.symlink_to(circle)
    told = remembered(command, circle / beyond)
    assert (told.code, told.stdout) == (1, "")
    assert re.match(f"error: .*{circle}", told.stderr)
    assert circle.is_symlink() and other.is_symlink()


def test_an_export_keeps_a_link_and_who_may_read_its_file(
    remembered: CommandLine, tmp_path: Path
) -> None:
    out, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    out.touch(mode=0o600)
    link.symlink_to(out)
    assert remembered("export", link).code == 0
    assert link.is_symlink()
    assert lines_of(out.read_text()) == LINES
    assert out.stat().st_mode & 0o777 == 0o600


def test_an_export_goes_into_a_pipe_that_the_shell_names(remembered: CommandLine) -> None:
    reading, writing = os.pipe()
    with open(reading, encoding="utf-8") as read:
        with open(writing, "wb"):  # as `memlog export >(gzip)` gets it
            ended = remembered("export", f"/dev/fd/{writing}")
        assert (ended.code, ended.stdout) == (0, "")  # which may be that very pipe
        assert ended.stderr == f"Exported 5 lines to /dev/fd/{writing}.\n"
        assert lines_of(read.read()) == LINES


HALF_WRITTEN = """
import sys
import time
from pathlib import Path
from server.cli.drafts import written_whole

with written_whole(Path(sys.argv[1])) as written:
    written.write(b"half of")
    written.flush()
    print("written", flush=True)
    while True:  # a signal that comes just before a single wait would be heard after it
        time.sleep(0.01)
"""


@contextmanager
def half_written(out: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process in the midst of writing this file."""
    with subprocess.Popen(
        [sys.executable, "-c", HALF_WRITTEN, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=REPOSITORY,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "written\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -2)])
def test_a_draft_is_its_owners_alone_and_goes_when_the_command_is_stopped(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("dear to somebody\n")
    with half_written(out) as process:
        (draft,) = tmp_path.glob("out.jsonl.*.new")
        assert draft.stat().st_mode & 0o777 == 0o600
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == code
    assert list(tmp_path.iterdir()) == [out]
    assert out.read_text() == "dear to somebody\n"


def test_the_draft_of_a_killed_command_is_removed_by_the_next_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    with half_written(out) as killed:
        killed.kill()
        killed.wait(DEADLINE_S)
    left = [tmp_path / f"out.jsonl.{each}.new" for each in (killed.pid, os.getpid())]
    left[1].touch()
    others = [tmp_path / name for name in ("out.jsonl.new", "other.jsonl.1.new", "out.jsonl.x.new")]
    for other in others:
        other.touch()
    assert left[0].exists()
    with half_written(out) as living:
        with written_whole(out) as written:
            written.write(b"whole")
        kept = {*others, out, tmp_path / f"out.jsonl.{living.pid}.new"}
        assert set(tmp_path.iterdir()) == kept
    assert out.read_bytes() == b"whole"


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_new_file_may_be_read_by_whom_the_umask_says(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with written_whole(tmp_path / "out.jsonl") as written:
            written.write(b"whole")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o666 & ~umask


def as_one_object(lines: list[Line]) -> dict[str, Any]:
    graph: dict[str, Any] = {"entities": [], "relations": []}
    for line in lines:
        rest = {key: value for key, value in line.items() if key != "type"}
        graph["entities" if line["type"] == "entity" else "relations"].append(rest)
    return graph


SAME = {
    "one object": json.dumps(as_one_object(LINES)).encode(),
    "one object over many lines": json.dumps(as_one_object(LINES), indent=2).encode(),
    "Windows line ends and blank lines": b"\r\n\r\n".join(
        json.dumps(line).encode() for line in LINES
    ),
    "a byte order mark": b"\xef\xbb\xbf" + b"\n".join(json.dumps(line).encode() for line in LINES),
    "an array": json.dumps(LINES).encode(),
    "an array over many lines": json.dumps(LINES, indent=2).encode(),
    "a last line without its end": b"\n".join(json.dumps(line).encode() for line in LINES),
}


@pytest.mark.parametrize("form", SAME)
def test_every_form_of_the_file_is_read_alike(memlog: CommandLine, form: str) -> None:
    assert memlog("import", "-", stdin=SAME[form]).code == 0
    assert lines_of(memlog("export").stdout) == LINES


@pytest.mark.parametrize(
    "empty", [b"", b"\n \n", b'{"entities": [], "relations": []}', b'{"entities": []}']
)
def test_an_empty_file_imports_nothing_and_is_no_error(memlog: CommandLine, empty: bytes) -> None:
    ended = memlog("import", "-", "--json", stdin=empty)
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.json["lines"] == 0
    assert memlog("export").stdout == ""


BAD_LINES = {
    "no JSON": b"{",
    "no object": b"5",
    "no type": b'{"name":"x"}',
    "a type of another kind": b'{"type":"memory","name":"x"}',
    "no name": b'{"type":"entity","entityType":"t","observations":[]}',
    "an empty name": b'{"type":"entity","name":"","entityType":"t","observations":[]}',
    "a text for a list": b'{"type":"entity","name":"x","entityType":"t","observations":"y"}',
    "a key nobody knows": b'{"type":"entity","name":"x","entityType":"t","observation":[]}',
    "a key nobody knows in a line that was cut": b'{"type":"entity","age":5,"name":',
    "a key nobody knows with thousands of levels": b'{"type":"entity","age":' + b"[" * 5_000,
    "a name too long": b'{"type":"entity","name":"%b","entityType":"t"}' % (b"x" * 501),
    "half a surrogate pair": b'{"type":"entity","name":"\\ud800","entityType":"t"}',
    "an escape sequence": b'{"type":"entity","name":"x","entityType":"t","observations":["\\u001b[2J"]}',
    "a control of C1": b'{"type":"relation","from":"x","to":"\\u009b2J","relationType":"t"}',
    "Latin-1": b'{"type":"entity","name":"\xe9","entityType":"t"}',
    "a number of a hundred bits": b'{"type":"entity","name":"x","entityType":"t","observations":[%d]}'
    % 2**100,
    "a last line that was cut": b'{"type":"entity","name":"x","entityType":"t","obs',
    "thousands of levels": b"[" * 5_000,
    "two objects": b'{"type":"entity","name":"x","entityType":"t"} {}',
    "a key twice": b'{"type":"entity","name":"x","n\\u0061me":"y","entityType":"t"}',
}


@pytest.mark.parametrize("bad", BAD_LINES)
def test_a_file_with_a_bad_line_is_refused_whole_with_the_lines_number(
    memlog: CommandLine, bad: str
) -> None:
    good = json.dumps(JON).encode()
    ended = memlog("import", "-", stdin=b"\n".join([good, b"", BAD_LINES[bad], good]))
    assert (ended.code, ended.stdout) == (1, "")
    assert "line 3" in ended.stderr
    assert "Mend the line or remove it." in ended.stderr
    assert "Traceback" not in ended.stderr
    assert memlog("export").stdout == ""


def test_keys_that_another_server_adds_are_left_out_by_name_and_never_by_themselves(
    memlog: CommandLine,
) -> None:
    added = {"createdAt": "2025-03-24T14:38:53.603Z", "it's": 1}
    file = "\n".join(json.dumps(line | added) for line in LINES)
    refused = memlog("import", "-", stdin=file)
    assert refused.code == 1
    advice = "take it out there, or everywhere by --without createdAt --without 'it'\"'\"'s'."
    assert refused.stderr.count(advice) == len(LINES)
    assert memlog("export").stdout == ""
    once = memlog("import", "-", "--without", "createdAt", stdin=file)
    assert "everywhere by --without 'it'" in once.stderr
    assert (
        memlog("import", "-", "--without", "createdAt", "--without", "it's", stdin=file).code == 0
    )
    assert lines_of(memlog("export").stdout) == LINES


def test_what_is_left_out_of_a_whole_object_is_left_out_of_its_lists(memlog: CommandLine) -> None:
    whole = as_one_object([{**line, "version": 2} for line in LINES])
    assert memlog("import", "-", "--without", "version", stdin=json.dumps(whole)).code == 0
    assert lines_of(memlog("export").stdout) == LINES


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ('{"type":"entity","name":"x","entity_type":"t"}', "Did you mean 'entityType'?"),
        (
            '{"type":"entity","name":"x","entityType":"t","observation":["y"]}',
            "Did you mean 'observations'?",
        ),
        (
            '{"type":"entity","name":"x","entityType":"t","from":"y"}',
            "everywhere by --without from.",
        ),
        (
            '{"type":"relation","from":"x","to":"y","relation_type":"t"}',
            "Did you mean 'relationType'?",
        ),
        (
            '{"type":"relation","source":"x","target":"y","relationType":"t"}',
            "There is no 'from' and no 'to' in it: does it stand there under another key? Mend",
        ),
        ('{"type":"entity","from":"x","type":"relation"}', "Mend the line or remove it."),
        (
            '{"type":"entity","name":"x","entityType":"t"}{"type":"entity","name":"y"}',
            "Is what stands behind that byte a line of its own?",
        ),
    ],
)
def test_what_is_wrong_with_a_line_comes_with_advice_that_loses_nothing(
    memlog: CommandLine, line: str, advice: str
) -> None:
    ended = memlog("import", "-", stdin=line)
    assert (ended.code, ended.stdout) == (1, "")
    assert advice in ended.stderr


def test_a_needed_key_cannot_be_left_out(memlog: CommandLine) -> None:
    ended = memlog("import", "-", "--without", "name", stdin=json.dumps(JON))
    assert ended.code == 1
    assert "missing required field `name`" in ended.stderr


def test_every_bad_line_is_named(memlog: CommandLine) -> None:
    ended = memlog("import", "-", stdin=b"\n".join(BAD_LINES.values()))
    assert ended.code == 1
    for number in range(1, len(BAD_LINES) + 1):
        assert f"line {number}:" in ended.stderr


@pytest.mark.parametrize("whole", [b"%b", b"[%b]"])
def test_half_an_emoji_at_the_end_of_a_line_is_not_called_a_file_that_was_cut(
    memlog: CommandLine, whole: bytes
) -> None:
    """So JavaScript writes a text that was cut within one."""
    line = b'{"type":"entity","name":"x","entityType":"t","observations":["a \\ud83d"]}'
    ended = memlog("import", "-", stdin=whole % line)
    assert ended.code == 1
    assert ended.stderr.startswith("error: line 1: JSON is malformed: unexpected end of escaped")


WRONG_WHOLE = {
    "line 9: Input data was truncated": json.dumps(as_one_object(LINES), indent=2).encode()[:130],
    "line 1: Input data was truncated": b'[{"type":"entity"',
    "line 3: JSON is malformed": b'[\n {"type":"entity"},\n oops]',
    "entities[1]: Object missing required field `entityType`": b'{"entities":[%b,{"name":"x"}]}'
    % json.dumps({key: JON[key] for key in ("name", "entityType")}).encode(),
    "relations[0]: Object missing required field `to`": b'{"relations":[{"from":"x"}]}',
    "[1]: Expected `object`, got `int`": b"[%b,5]" % json.dumps(JON).encode(),
    "entities[0]: Expected `object`, got `int`": b'{"entities":[5]}',
    "entities[0]: Object missing required field `name`": b'{"entities":[{}]}',
    "the object: it has no entities and no relations\nhint: docs/migration.md": (
        b'{\n"version": 1,\n"contextItems": [{"key": "x"}],\n"metadata": {}\n}'
    ),
    "the file: it is UTF-16": json.dumps(JON).encode("utf-16"),
    "the file: ": b"[" * 1_000_000,  # nested too deeply, in words that each Python has of its own
}


REPEATED = {
    "line 1: the key 'name' stands there twice": b'{"type":"entity","name":"A","name":"B","entityType":"t"}',
    "line 1: the key 'observations' stands there twice": (
        b'{"type":"entity","name":"A","entityType":"t","observations":["a"],"observations":["b"]}'
    ),
    "line 2: the key 'to' stands there twice": (
        b'{"type":"relation","from":"A","to":"B","relationType":"t"}\n'
        b'{"type":"relation","from":"A","to":"B","to":"C","relationType":"t"}'
    ),
    "[0]: the key 'name' stands there twice": (
        b'[{"type":"entity","name":"A","name":"B","entityType":"t"}]'
    ),
    "entities[1]: the key 'name' stands there twice": (
        b'{"entities":[{"name":"A","entityType":"t"},{"name":"B","name":"C","entityType":"t"}]}'
    ),
    "the object: the key 'entities' stands there twice\nhint: Put both lists in one.": (
        b'{"entities":[{"name":"A","entityType":"t"}],"entities":[{"name":"B","entityType":"t"}]}'
    ),
}


@pytest.mark.parametrize("says", REPEATED)
def test_a_key_that_stands_twice_is_refused_for_one_of_its_values_would_be_lost(
    memlog: CommandLine, says: str
) -> None:
    ended = memlog("import", "-", stdin=REPEATED[says])
    assert (ended.code, ended.stdout) == (1, "")
    place, _, said = says.partition(": ")
    assert said in ended.stderr
    assert f"{place}: " in ended.stderr or f"(at {place})" in ended.stderr
    assert memlog("export").stdout == ""


def test_an_item_of_the_one_object_may_say_itself_of_which_type_it_is(memlog: CommandLine) -> None:
    graph = {"entities": [JON, BARE], "relations": [KNOWS]}
    assert memlog("import", "-", stdin=json.dumps(graph, indent=1).encode()).code == 0
    assert lines_of(memlog("export").stdout) == [JON, BARE, KNOWS]


@pytest.mark.parametrize("begin", ['{ "entities": [', '{"relations": [],\n "entities": ['])
def test_a_damaged_object_that_begins_with_its_lists_is_told_by_the_place_of_the_damage(
    memlog: CommandLine, begin: str
) -> None:
    text = f"{begin}\n  {json.dumps(JON)},\n  {json.dumps(BARE)}\n  {json.dumps(BARE)}\n]}}\n"
    ended = memlog("import", "-", stdin=text)
    line = begin.count("\n") + 4
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: line {line}: JSON is malformed: ")
    assert "the file is one JSON value" in ended.stderr


@pytest.mark.parametrize("says", WRONG_WHOLE)
def test_a_file_that_is_one_value_is_refused_by_one_place(memlog: CommandLine, says: str) -> None:
    ended = memlog("import", "-", stdin=WRONG_WHOLE[says])
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: {says}")
    assert memlog("export").stdout == ""


TEXT = json.dumps(JON).encode()
DATABASE = b"SQLite format 3\0\x10\0\x01\x01\0\x40\x20\x20" + TEXT
OTHERWISE_WRITTEN = {
    "it is packed by gzip\nhint: Unpack it first.": gzip.compress(TEXT),
    "it is packed by bzip2\nhint: Unpack it first.": bz2.compress(TEXT),
    "it is packed by xz\nhint: Unpack it first.": lzma.compress(TEXT),
    "it is a SQLite database\nhint: Write what it holds as JSON: docs/migration.md": DATABASE,
    "line 1: it is not UTF-8: no character is written with byte 0xe9 there\nhint: Save the file": (
        '{"type":"entity","name":"é"'.encode("latin-1")
    ),
    "[0]: it is not UTF-8: no character is written with byte 0xe9 there\nhint: Save the file": (
        '[{"type":"entity","name":"é"}]'.encode("latin-1")
    ),
}


@pytest.mark.parametrize(
    "encoding", [f"UTF-{bits}{order}" for bits in (16, 32) for order in ("", "-LE", "-BE")]
)
def test_a_file_in_wide_characters_is_told_as_such_also_without_a_mark(
    memlog: CommandLine, encoding: str
) -> None:
    refused = memlog("import", "-", stdin=TEXT.decode().encode(encoding))
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr == f"error: the file: it is {encoding[:6]}\nhint: Save it as UTF-8.\n"


@pytest.mark.parametrize("says", OTHERWISE_WRITTEN)
def test_a_file_that_is_packed_of_another_encoding_or_a_database_is_told_as_what_it_is(
    memlog: CommandLine, says: str
) -> None:
    refused = memlog("import", "-", stdin=OTHERWISE_WRITTEN[says])
    assert (refused.code, refused.stdout) == (1, "")
    assert says in refused.stderr
    assert "malformed" not in refused.stderr


def test_a_name_of_two_types_is_told_and_its_facts_are_kept(memlog: CommandLine) -> None:
    robot = {**JON, "entityType": "robot", "observations": ["beeps"]}
    other = {**robot, "observations": ["hums"]}
    lines = "\n".join(json.dumps(line) for line in (JON, BARE, robot, other)).encode()
    ended = memlog("import", "-", stdin=lines)
    assert ended.code == 0
    said = "'Jon' is a 'person' in line 1 already, and stays one: the type 'robot' is not taken"
    assert [line[:8] for line in ended.stderr.splitlines()] == ["Warning:"] * 2
    assert f"line 3: {said}" in ended.stderr
    assert f"line 4: {said}" in ended.stderr
    jon = lines_of(memlog("export").stdout)[0]
    assert (jon["entityType"], jon["observations"]) == ("person", ["was a banker", "beeps", "hums"])
    again = memlog("import", "-", "--json", stdin=json.dumps(robot).encode())
    assert again.json["events"] == 0
    assert "line 1: 'Jon' is a 'person' in memory already" in again.json["warnings"][0]


def test_a_relation_that_stands_there_twice_is_told_and_kept_once(memlog: CommandLine) -> None:
    lines = "\n".join(json.dumps(line) for line in (JON, BARE, KNOWS, KNOWS)).encode()
    ended = memlog("import", "-", stdin=lines)
    told = "Warning: line 4: the relation stands at line 3 already, and is kept once.\n"
    assert (ended.code, ended.stderr) == (0, told)
    assert lines_of(memlog("export").stdout) == [JON, BARE, KNOWS]


def test_facts_that_stand_there_twice_are_counted_in_one_warning(memlog: CommandLine) -> None:
    twice = {**JON, "observations": ["caf\u00e9", "cafe\u0301", "hums"]}
    thrice = {**BARE, "observations": ["x", "y", "x", "x"]}
    lines = "\n".join(json.dumps(line) for line in (KNOWS, twice, thrice)).encode()
    ended = memlog("import", "-", stdin=lines)
    told = "line 2: a fact stands there again, and is kept once: 3 facts of the file in all.\n"
    assert (ended.code, ended.stderr) == (0, f"Warning: {told}")
    kept = [line["observations"] for line in lines_of(memlog("export").stdout)[:2]]
    assert kept == [["caf\u00e9", "hums"], ["x", "y"]]


def test_facts_are_counted_where_they_stand_in_two_lines_of_one_entity(memlog: CommandLine) -> None:
    one, other = ({**BARE, "observations": facts} for facts in (["x", "y"], ["y", "z"]))
    ended = memlog("import", "-", stdin="\n".join(map(json.dumps, (one, JON, other))).encode())
    told = "line 3: a fact stands there again, and is kept once: 1 fact of the file in all.\n"
    assert (ended.code, ended.stderr) == (0, f"Warning: {told}")


def test_facts_that_were_superseded_since_are_told_where_an_old_file_brings_them_back(
    memlog: CommandLine,
) -> None:
    file = json.dumps(JON).encode()
    memlog("import", "-", stdin=file)
    with client_on(memlog.data_dir) as client:
        newer = {"content": "dances", "supersedes": "was a banker"}
        client("add_observations", observations=[{"entityName": "Jon", "contents": [newer]}])
    ended = memlog("import", "-", stdin=file)
    assert ended.code == 0
    assert ended.stderr == (
        "Warning: 'was a banker' of 'Jon' was superseded by 'dances' and stands beside it now: "
        "delete what is outdated.\n"
    )


def test_names_that_an_entity_had_once_are_told_with_what_becomes_of_their_lines(
    tmp_path: Path,
) -> None:
    memlog = CommandLine(tmp_path)
    names = [BARE, {**BARE, "name": "john-doe"}, {**BARE, "name": "jon"}]
    with served(tmp_path) as server:
        made = [{"name": each["name"], "entityType": "person"} for each in names]
        server("create_entities", entities=made)
        server("merge_entities", names=["jon"], into="john-doe")
    knows = {**KNOWS, "from": "john-doe"}
    lines = [
        *names,
        {**knows, "to": "jon"},
        knows,
        {**knows, "from": "JON"},
        {**knows, "from": "jon"},
    ]
    ended = memlog("import", "-", stdin="\n".join(map(json.dumps, lines)))
    assert (ended.code, ended.stderr.splitlines()) == (
        0,
        [
            "Warning: line 3: 'jon' is a former name of 'john-doe': its facts and relations are added to it.",
            "Warning: line 4: 'john-doe' and 'jon' are names of one entity by now, 'john-doe': "
            "the relation leads from it to itself.",
            "Warning: line 7: the relation stands at line 5 already, and is kept once.",
            "Warning: line 6: there is no entity 'JON': the relation waits for it.",
        ],
    )


def test_a_name_in_another_unicode_form_is_warned_of_for_it_becomes_the_same(
    memlog: CommandLine,
) -> None:
    one, other = "\u00e9lan", "e\u0301lan"
    lines = [{**BARE, "name": one}, {**BARE, "name": other}, {**KNOWS, "from": other, "to": one}]
    told = r"line 2: 'e\u0301lan' is '\xe9lan' of line 1 in another Unicode form: they are one name"
    first = memlog("import", "-", "--json", stdin="\n".join(map(json.dumps, lines)))
    assert first.json["warnings"] == [told]
    again = memlog("import", "-", "--json", stdin=json.dumps(lines[1]))
    assert again.json["warnings"] == [
        told.replace("line 2", "line 1").replace("of line 1", "of memory")
    ]


def test_of_many_warnings_the_first_are_shown_and_the_others_counted(memlog: CommandLine) -> None:
    loose = [{**KNOWS, "from": "Mia", "to": f"nobody{n}"} for n in range(50)]
    lines = "\n".join(json.dumps(line) for line in (BARE, *loose)).encode()
    shown = memlog("import", "-", stdin=lines).stderr.splitlines()
    assert len(shown) == 21
    assert shown[-1] == "… and 30 more warnings: --json has them all."
    assert len(memlog("import", "-", "--json", stdin=lines).json["warnings"]) == 50


def test_of_a_file_that_is_none_the_first_problems_are_shown(memlog: CommandLine) -> None:
    ended = memlog("import", "-", stdin=b"no line of it is JSON\n" * 5_000)
    assert ended.code == 1
    assert "5000 problems, nothing was done" in ended.stderr
    assert "… and 4980 more." in ended.stderr
    assert len(ended.stderr.splitlines()) < 50


def test_an_import_without_its_embedder_is_done_and_says_what_comes_later(
    memlog: CommandLine, tmp_path: Path
) -> None:
    broken = {"MEMLOG_EMBEDDER": "minilm", "MEMLOG_MODEL_DIR": str(tmp_path)}
    ended = memlog("import", written(tmp_path / "in.jsonl", LINES), **broken)
    assert ended.code == 0
    assert ended.stdout.startswith(f"Imported {len(LINES)} lines")
    assert "vectors will be built by the next search: " in ended.stderr


def test_a_key_of_the_one_object_that_nobody_knows_is_refused(memlog: CommandLine) -> None:
    graph = as_one_object(LINES)
    graph["relation"] = graph.pop("relations")
    ended = memlog("import", "-", stdin=json.dumps(graph, indent=2).encode())
    assert ended.code == 1
    assert "unknown key 'relation'" in ended.stderr
    assert "Did you mean 'relations'?" in ended.stderr
    assert memlog("export").stdout == ""


def test_where_relations_are_strict_a_file_with_a_loose_one_is_refused_whole(
    memlog: CommandLine,
) -> None:
    strict = {"MEMLOG_STRICT_RELATIONS": "1"}
    lines = "\n".join(json.dumps(line) for line in LINES).encode()
    ended = memlog("import", "-", stdin=lines, **strict)
    assert ended.code == 1
    assert "line 5: Entity with name nobody not found" in ended.stderr
    assert memlog("export").stdout == ""
    nobody = {**BARE, "name": "nobody"}
    assert memlog("import", "-", stdin=json.dumps(nobody).encode(), **strict).code == 0
    assert memlog("import", "-", stdin=lines, **strict).code == 0
    assert lines_of(memlog("export").stdout) == [nobody, *LINES]


def test_a_project_is_imported_into_and_exported_from_by_name(
    remembered: CommandLine, tmp_path: Path
) -> None:
    assert remembered("projects", "create", "other").code == 0
    file = written(tmp_path / "other.jsonl", [BARE])
    assert remembered("import", file, "--project", "other").code == 0
    assert lines_of(remembered("export", "-p", "other").stdout) == [BARE]
    assert lines_of(remembered("export").stdout) == LINES
    assert lines_of(remembered("export", MEMLOG_PROJECT="other").stdout) == [BARE]


def test_the_same_holds_for_a_real_process(tmp_path: Path) -> None:
    """Exit codes and streams as a shell sees them."""
    file = written(tmp_path / "in.jsonl", LINES)
    done = run_memlog("import", file, data_dir=tmp_path / "data")
    loose = "Warning: line 5: there is no entity 'nobody': the relation waits for it.\n"
    assert (done.returncode, done.stderr) == (0, loose)
    exported = run_memlog("export", data_dir=tmp_path / "data")
    assert lines_of(exported.stdout) == LINES
    refused = run_memlog("import", "-", stdin=b"{", data_dir=tmp_path / "data")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: line 1: ")


@contextmanager
def importing(file: Path, data_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process that imports this file."""
    with subprocess.Popen(
        [sys.executable, "-m", "memlog", "import", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(MEMLOG_DATA_DIR=str(data_dir)),
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stopped(process: subprocess.Popen[str]) -> str:
    """What it says on stderr when somebody presses Ctrl-C."""
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, said) == (1, ""), errors
    assert errors.endswith("\nAborted!\n")
    return errors


def test_an_import_that_is_stopped_says_what_is_kept_and_goes_on_when_it_is_repeated(
    remembered: CommandLine, tmp_path: Path
) -> None:
    lines = [JON | {"name": f"n{each}"} for each in range(8_000)]
    file = written(tmp_path / "in.jsonl", lines)
    with closing(Store(remembered.data_dir)) as store, importing(file, store.data_dir) as process:
        project = store.project("default")
        before = project.head()
        while project.head() == before:
            assert process.poll() is None
        errors = stopped(process)
    told = re.search(r"At least (\d+) of 8000 lines are in the log\. To go on, import", errors)
    assert told is not None, errors
    kept = len(lines_of(remembered("export").stdout)) - len(LINES)
    assert int(told[1]) <= kept < len(lines)
    assert remembered("import", file).code == 0
    again = lines_of(remembered("export").stdout)
    assert [line for line in again if line in lines] == lines
    assert len(again) == len(LINES) + len(lines)


def test_an_import_that_is_stopped_when_all_is_in_the_log_says_that_nothing_is_left_to_do(
    memlog: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("server.cli.transfer.indexed", stopped)
    ended = memlog("import", written(tmp_path / "in.jsonl", LINES))
    assert "All 5 lines are in the log." in ended.stderr
    assert "import the file again" not in ended.stderr
    assert lines_of(memlog("export").stdout) == LINES
    assert memlog("search", "banker", "--json").json["groups"][0]["name"] == "Jon"


@pytest.mark.parametrize(
    ("form", "said"), [((), "Nothing was imported."), (("--full",), "comes in whole or not at all")]
)
def test_an_import_that_is_stopped_while_it_is_read_says_that_it_can_be_repeated(
    remembered: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: tuple[str, ...],
    said: str,
) -> None:
    file, elsewhere = tmp_path / "out.jsonl", CommandLine(tmp_path / "elsewhere")
    assert remembered("export", *form, file).code == 0

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("server.cli.transfer.judge_lines", stop)
        ended = elsewhere("import", file)
    assert (ended.code, ended.stdout) == (1, "")
    assert said in ended.stderr
    assert "import the file again" in ended.stderr
    assert elsewhere("import", file).code == 0
    assert elsewhere("export").stdout == remembered("export").stdout


# -- a real memory

LOCOMO = REPOSITORY.parent / "shared" / "data" / "locomo" / "memory.jsonl"


@pytest.mark.skipif(not LOCOMO.exists(), reason=f"the LoCoMo facts are not at {LOCOMO}")
def test_a_real_memory_is_imported_searched_exported_and_proven(memlog: CommandLine) -> None:
    model = {"MEMLOG_EMBEDDER": "minilm"}
    imported = memlog("import", LOCOMO, "--json", **model)
    assert imported.code == 0, imported.stderr
    lines = lines_of(LOCOMO.read_text())
    assert imported.json["lines"] == len(lines)

    asked = "who lost their job and started a dance studio"
    found = memlog("search", asked, "--json", **model).json
    assert found["groups"][0]["name"] == "Jon"
    assert found["notice"] is None

    def facts(exported: list[Line]) -> set[str]:
        return {
            json.dumps([line["name"], line["entityType"], text])
            for line in exported
            if line["type"] == "entity"
            for text in line["observations"]
        }

    exported = lines_of(memlog("export", **model).stdout)
    assert facts(exported) == facts(lines)
    relations = [line for line in lines if line["type"] == "relation"]
    assert [line for line in exported if line["type"] == "relation"] == relations

    checked = memlog("replay", "--check", "--json", **model)
    assert checked.code == 0, checked.stdout
    assert set(checked.json["default"].values()) == {"equal"}


def test_an_error_of_an_export_names_the_file_that_was_asked_for(
    remembered: CommandLine, tmp_path: Path
) -> None:
    ended = remembered("export", tmp_path / "nowhere" / "out.jsonl")
    assert f"{tmp_path / 'nowhere' / 'out.jsonl'}: " in ended.stderr
    if Path("/dev/full").exists():
        assert remembered("export", "/dev/full").stderr.startswith("error: /dev/full: No space")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full device: Linux only")
@pytest.mark.parametrize(
    "line",
    [
        *(f"{each} >/dev/full" for each in ("log", "log --json", "projects", "stats", "export")),
        "export >&-",
    ],
)
def test_an_output_that_cannot_be_written_is_one_line_of_error(
    remembered: CommandLine, line: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m memlog {line}', sys.executable],
        env=environment(MEMLOG_DATA_DIR=str(remembered.data_dir)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch("error: output: .*\n", done.stderr), done.stderr
