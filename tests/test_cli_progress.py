"""What commands that go through all projects show on a terminal meanwhile: a real process on a real one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memlog.projects.store import Store
from server.cli.printing import BARS_LAST
from tests.served import environment

PROJECTS = 12
DRAWN_AGAIN = re.compile(rb"(?:\x1b\[1A\x1b\[2K)+")
"""What stands before a drawing of several bars: one of these for each line but one."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    store = Store(tmp_path / "data")
    for number in range(PROJECTS):
        store.create(f"p{number}")
    store.close()
    return tmp_path / "data"


def shown(data_dir: Path, *arguments: str) -> bytes:
    """All that the command sends to its terminal."""
    ours, theirs = pty.openpty()
    popen = subprocess.Popen(
        [sys.executable, "-m", "memlog", *arguments],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(MEMLOG_DATA_DIR=str(data_dir), TERM="xterm"),
    )
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 1 << 16):
            said += more
    except OSError:  # nobody has the other end any more
        pass
    finally:
        os.close(ours)
        assert popen.wait() == 0, said
    return said


@pytest.mark.parametrize("command", ["backup FOLDER", "verify", "doctor", "replay --all"])
def test_however_many_projects_there_are_a_few_bars_are_drawn(data_dir: Path, command: str) -> None:
    said = shown(data_dir, *command.replace("FOLDER", str(data_dir.parent / "backup")).split())
    lines = [found.count(b"\x1b[1A") + 1 for found in DRAWN_AGAIN.findall(said)]
    assert max(lines, default=1) <= BARS_LAST + 2


@pytest.mark.parametrize("command", ["backup FOLDER", "verify", "doctor"])
def test_how_many_projects_are_done_is_shown_meanwhile(data_dir: Path, command: str) -> None:
    arguments = command.replace("FOLDER", str(data_dir.parent / "backup")).split()
    if command.startswith("backup"):
        shown(data_dir, *arguments)  # the next run finds nothing new to copy
    said = shown(data_dir, *arguments)
    assert b"projects" in said
    assert f"{PROJECTS}/{PROJECTS}".encode() in said


@pytest.mark.parametrize("command", ["backup FOLDER", "verify"])
def test_a_name_is_shown_as_it_is_whatever_brackets_it_has(tmp_path: Path, command: str) -> None:
    names = ["[/]end", "[link=https://example.com]there[/link]", "a\nb"]
    store = Store(tmp_path / "data")
    for name in names:
        store.create(name)
    store.close()
    said = shown(tmp_path / "data", *command.replace("FOLDER", str(tmp_path / "backup")).split())
    for name in names[:2]:
        assert name.encode() in said
    assert b"a\\u000ab" in said
    assert b"\x1b]8;" not in said  # a link
