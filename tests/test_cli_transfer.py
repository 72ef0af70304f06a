"""`memlog import` and `memlog export`: the reference server's file in and out, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.cli.transfer import written_whole
from tests.command_line import (
    BARE,
    JON,
    LINES,
    CommandLine,
    Line,
    holding_lines,
    lines_of,
    written,
)
from tests.served import REPOSITORY, run_memlog


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
    assert ended.json == {"project": "default", "lines": 5, "events": 1 + 3 + 3 + 2 - 1}
    assert lines_of(memlog("export").stdout) == LINES
    out = tmp_path / "out.jsonl"
    assert memlog("export", out).stdout == f"Exported 5 lines to {out}.\n"
    assert lines_of(out.read_text()) == LINES


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
    "a name too long": b'{"type":"entity","name":"%b","entityType":"t"}' % (b"x" * 501),
    "half a surrogate pair": b'{"type":"entity","name":"\\ud800","entityType":"t"}',
    "an escape sequence": b'{"type":"entity","name":"x","entityType":"t","observations":["\\u001b[2J"]}',
    "a control of C1": b'{"type":"relation","from":"x","to":"\\u009b2J","relationType":"t"}',
    "Latin-1": b'{"type":"entity","name":"\xe9","entityType":"t"}',
    "two objects": b'{"type":"entity","name":"x","entityType":"t"} {}',
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


def test_every_bad_line_is_named(memlog: CommandLine) -> None:
    ended = memlog("import", "-", stdin=b"\n".join(BAD_LINES.values()))
    assert ended.code == 1
    for number in range(1, len(BAD_LINES) + 1):
        assert f"line {number}:" in ended.stderr


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
    assert (done.returncode, done.stderr) == (0, "")
    exported = run_memlog("export", data_dir=tmp_path / "data")
    assert lines_of(exported.stdout) == LINES
    refused = run_memlog("import", "-", stdin=b"{", data_dir=tmp_path / "data")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: line 1: ")


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
