"""Kept answers: what is found again, by whom, and how much of it there may be."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from memlog.settings import Settings
from server.starting import answers
from server.starting.answers import BYTES_MAX, ENTRIES_MAX, FILES_MAX, Answers, fingerprint
from tests.served import REPOSITORY


def numbered(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_what_is_kept_is_found_by_the_next_to_look(tmp_path: Path) -> None:
    path = tmp_path / "startup" / "answers"
    Answers(path).keep(b"a", b"1")
    Answers(path).keep(b"b", b"2")
    Answers(path).keep(b"a", b"3")
    found = Answers(path)
    assert (found.get(b"a"), found.get(b"b"), found.get(b"c")) == (b"3", b"2", None)
    found.discard()
    assert found.get(b"a") is None
    assert Answers(path).get(b"a") is None


def test_the_newest_entries_stay(tmp_path: Path) -> None:
    kept = Answers(tmp_path / "answers")
    for number in range(ENTRIES_MAX + 3):
        kept.keep(numbered(number), b"1")
    there = [kept.get(numbered(number)) is not None for number in range(ENTRIES_MAX + 3)]
    assert there == [False] * 3 + [True] * ENTRIES_MAX


def test_large_answers_make_room_for_newer_ones(tmp_path: Path) -> None:
    kept = Answers(tmp_path / "answers")
    for number in range(4):
        kept.keep(numbered(number), b"x" * (BYTES_MAX // 2))
    assert [kept.get(numbered(number)) is not None for number in range(4)] == [
        False,
        False,
        True,
        True,
    ]
    kept.keep(b"huge", b"x" * (BYTES_MAX + 1))
    assert kept.get(b"huge") is None


def test_servers_of_the_past_do_not_fill_the_folder(tmp_path: Path) -> None:
    for number in range(FILES_MAX + 3):
        path = tmp_path / f"server {number}"
        Answers(path).keep(b"a", b"1")
        os.utime(path, ns=(number, number))
    Answers(tmp_path / "server now").keep(b"a", b"1")
    assert len(list(tmp_path.iterdir())) == FILES_MAX
    assert Answers(tmp_path / "server now").get(b"a") == b"1"


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 100, bytes(32) + b"\x80"])
def test_a_file_of_anything_else_counts_as_none(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "answers"
    path.write_bytes(content)
    assert Answers(path).get(b"a") is None
    Answers(path).keep(b"a", b"1")
    assert Answers(path).get(b"a") == b"1"


def test_settings_tell_servers_apart_and_secrets_do_not(tmp_path: Path) -> None:
    usual = fingerprint(Settings(data_dir=tmp_path))
    assert usual == fingerprint(Settings(data_dir=tmp_path, embedder_key="swordfish"))
    assert usual != fingerprint(Settings(data_dir=tmp_path, toolsets=("graph",)))
    assert usual != fingerprint(Settings(data_dir=tmp_path, read_only=True))


def test_a_changed_source_file_makes_another_server(tmp_path: Path) -> None:
    for package in ("memlog", "projections", "server"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=ignored)
    asked = (
        "from pathlib import Path; from memlog.settings import Settings;"
        "from server.starting.answers import fingerprint; print(fingerprint(Settings(data_dir=Path('x'))))"
    )

    def told() -> str:
        return subprocess.run(
            [sys.executable, "-P", "-c", asked],
            env={"PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            check=True,
            text=True,
        ).stdout

    before = told()
    assert told() == before
    with (tmp_path / "server" / "tools" / "graph.py").open("a") as source:
        source.write("\n")
    assert told() != before


def test_a_server_within_one_program_says_once_that_its_answers_are_not_kept_and_keeps_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for package in ("memlog", "projections", "server"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "py.typed").touch()
    monkeypatch.setattr(answers, "__file__", str(tmp_path / "server" / "starting" / "answers.py"))
    with caplog.at_level(logging.INFO):
        unkept = Answers.of(Settings(data_dir=tmp_path / "data"))
        unkept.keep(b"a", b"1")
        unkept.discard()
    assert unkept.get(b"a") is None
    assert [record.getMessage() for record in caplog.records] == [
        "cannot tell this server from another, its answers are not kept: the source is not there"
    ]
    assert not (tmp_path / "data").exists()


def test_compiled_files_tell_a_server_from_another_where_they_stand_in_for_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("memlog", "projections", "server"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.pyc").write_bytes(b"1")
    monkeypatch.setattr(answers, "__file__", str(tmp_path / "server" / "starting" / "answers.pyc"))
    before = fingerprint(Settings(data_dir=tmp_path))
    (tmp_path / "server" / "__init__.pyc").write_bytes(b"12")
    assert fingerprint(Settings(data_dir=tmp_path)) != before
