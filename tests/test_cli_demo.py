"""`memlog demo`: what it needs and what it does not, as a real process in a folder of somebody."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.served import DEADLINE_S, REPOSITORY, environment

SAME = "the same questions have the same answers"
NAMES = ("click", "memlog", "random", "server")


def demo(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As a checkout runs it, but for the embedder."""
    return ran(sys.executable, folder, "-I", "-m", "memlog", "demo", **variables)


def ran(
    python: str | Path, folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_demo_is_not_disturbed_by_modules_of_the_folder_that_it_is_called_from(
    tmp_path: Path,
) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not of memlog')")
    done = demo(tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert SAME in done.stdout


@pytest.mark.parametrize(
    "setting",
    [
        {"MEMLOG_PROJECT": "shop"},
        {"MEMLOG_PROJECT": ""},
        {"MEMLOG_READ_ONLY": "1"},
        {"MEMLOG_TOOLSETS": "facts"},
    ],
    ids=repr,
)
def test_a_demo_shows_the_same_whatever_is_set_for_the_servers_of_this_machine(
    tmp_path: Path, setting: dict[str, str]
) -> None:
    done = demo(tmp_path, **setting)
    assert (done.returncode, done.stderr) == (0, "")
    assert SAME in done.stdout


def test_a_demo_goes_by_the_embedder_that_is_set_as_it_advises_where_there_is_no_model(
    tmp_path: Path,
) -> None:
    nowhere = str(tmp_path / "nowhere")
    done = demo(tmp_path, MEMLOG_MODEL_DIR=nowhere, MEMLOG_EMBEDDER="minilm")
    assert done.returncode == 1
    assert "MEMLOG_EMBEDDER=none" in done.stderr
    assert demo(tmp_path, MEMLOG_MODEL_DIR=nowhere, MEMLOG_EMBEDDER="none").returncode == 0


def test_a_demo_finds_its_libraries_where_only_the_program_that_runs_it_has_them(
    tmp_path: Path,
) -> None:
    without_them = Path(sys.executable).resolve()
    path = [str(REPOSITORY), *(folder for folder in sys.path if folder)]
    run = f"import sys; sys.path[:] = {path!r}; from memlog.__main__ import main; main('demo')"
    done = ran(without_them, tmp_path, "-I", "-c", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert SAME in done.stdout


def test_a_demo_of_a_frozen_program_starts_that_program(tmp_path: Path) -> None:
    program = tmp_path / "memlog"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m memlog "$@"\n')
    program.chmod(0o755)
    frozen = f"import sys; sys.frozen, sys.executable = True, {str(program)!r}"
    run = f"{frozen}; from memlog.__main__ import main; main('demo')"
    done = ran(sys.executable, tmp_path, "-I", "-c", run)
    assert (done.returncode, done.stderr) == (0, "")
    assert SAME in done.stdout


def test_a_demo_refuses_a_setting_that_is_none_in_words(tmp_path: Path) -> None:
    done = demo(tmp_path, MEMLOG_EMBEDDER="word2vec")
    assert done.returncode == 1
    assert done.stderr.startswith("error: MEMLOG_EMBEDDER: embedder is 'word2vec'")


@pytest.mark.parametrize(
    ("output", "says"),
    [
        pytest.param(
            "/dev/full",
            "error: output: No space left on device\n",
            marks=pytest.mark.skipif(
                not Path("/dev/full").exists(), reason="a full device: Linux only"
            ),
        ),
        ("| true", ""),
    ],
)
def test_a_demo_whose_output_cannot_be_written_ends_without_a_traceback(
    tmp_path: Path, output: str, says: str
) -> None:
    where = output if output.startswith("|") else f"> {output}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'"$0" -I -m memlog demo {where}', sys.executable],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, says)
