"""The scripts that set up a checkout and check it, with a Python that makes environments at once and gets its packages
where a file says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.bound import NOBODY

ROOT = Path(__file__).parent.parent
SECONDS_MAX = 60
PYTHON = """#!/bin/sh
[ "$1" = -I ] || [ -z "$STRAY" ] || { echo "ImportError: a stray module" >&2; exit 1; }
case "$*" in
*"-m venv --clear"*)
    for venv; do :; done
    rm -rf "$venv"
    mkdir -p "$venv/bin" "$venv/lib/python3/site-packages"
    cp "$0" "$venv/bin/python" ;;
*"-m pip install"*)
    [ -e "$NETWORK" ] || { echo "ERROR: no network" >&2; exit 1; }
    set -- "user=$PIP_USER" "target=$PIP_TARGET" "prefix=$PIP_PREFIX" "root=$PIP_ROOT" "python=$PIP_PYTHON"
    echo "$*" > "${0%/bin/python}/where" ;;
*"-m memlog"* | *"-m bench"*)
    pwd ;;
*"import msgspec"*)
    [ -z "$ELSEWHERE" ] ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One that is set up, and has lost its network since."""
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", checkout / "scripts")
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (tmp_path / "network").touch()
    assert set_up(checkout).returncode == 0
    (tmp_path / "network").unlink()
    return checkout


def set_up(
    checkout: Path, *layer: str, script: str | Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    beside = checkout.parent
    python = {"PYTHON": str(beside / "python"), "NETWORK": str(beside / "network")}
    return subprocess.run(
        [script or checkout / "scripts" / "setup", *layer],
        cwd=checkout,
        env={**os.environ, **python, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def change(checkout: Path) -> None:
    with (checkout / "scripts" / "requirements" / "runtime.txt").open("a") as file:
        file.write("# newer\n")


def go_back(checkout: Path) -> None:
    pins = "scripts/requirements/runtime.txt"
    shutil.copyfile(ROOT / pins, checkout / pins)


def test_where_newer_packages_cannot_be_had_the_environment_of_before_stays(checkout: Path) -> None:
    change(checkout)
    failed = set_up(checkout)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "ERROR: no network\n" in failed.stderr
    assert f"When the cause is gone, run {checkout}/scripts/setup runtime\n" in failed.stderr

    go_back(checkout)
    again = set_up(checkout)
    assert (again.returncode, again.stderr) == (0, "")


def test_who_has_a_small_folder_for_what_is_temporary_is_told_that_it_takes_room(
    checkout: Path, tmp_path: Path
) -> None:
    """Python's own words for a full one name no folder, or no cause."""
    change(checkout)
    assert f"200 MB in {tmp_path} (" in set_up(checkout, TMPDIR=str(tmp_path)).stderr
    assert "200 MB in /tmp (" in set_up(checkout, TMPDIR="").stderr


def test_an_environment_that_was_put_aside_by_a_setup_that_was_killed_comes_back(
    checkout: Path,
) -> None:
    (checkout / ".venv").rename(checkout / ".venv.old")
    (checkout / ".venv").mkdir()
    assert set_up(checkout).returncode == 0
    assert not (checkout / ".venv.old").exists()


def test_where_newer_packages_are_there_nothing_is_left_of_the_environment_of_before(
    checkout: Path,
) -> None:
    (checkout / ".venv" / "older").touch()
    (checkout.parent / "network").touch()
    change(checkout)
    assert set_up(checkout, "dev").returncode == 0
    assert not (checkout / ".venv.old").exists()
    assert not (checkout / ".venv" / "older").exists()


def test_checks_that_cannot_be_had_leave_what_memlog_runs_on(checkout: Path) -> None:
    failed = set_up(checkout, "dev")
    assert failed.returncode == 1
    assert f"run {checkout}/scripts/setup dev\n" in failed.stderr
    assert set_up(checkout).stderr == ""


def test_called_by_a_link_it_sets_up_its_checkout_and_leaves_alone_what_is_beside_the_link(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    (tmp_path / "home" / ".venv").mkdir()
    (tmp_path / "home" / ".venv" / "mine").touch()
    link = tmp_path / "home" / "bin" / "setup"
    link.symlink_to(checkout / "scripts" / "setup")
    ended = set_up(checkout, script=link)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "home" / ".venv" / "mine").exists()


def test_where_folders_are_looked_for_otherwise_does_not_matter(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "scripts").mkdir(parents=True)
    ended = set_up(checkout, script="scripts/setup", CDPATH=str(tmp_path / "elsewhere"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_packages_go_into_the_environment_wherever_pip_is_told_to_put_them(checkout: Path) -> None:
    (checkout.parent / "network").touch()
    change(checkout)
    elsewhere = dict.fromkeys(("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON"), "/x")
    assert set_up(checkout, PIP_USER="1", **elsewhere).returncode == 0
    assert (checkout / ".venv" / "where").read_text() == "user=0 target= prefix= root= python=\n"


def test_nothing_that_the_callers_python_finds_stands_in_for_what_sets_up(checkout: Path) -> None:
    (checkout.parent / "network").touch()
    change(checkout)
    ended = set_up(checkout, STRAY="1")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "stray" not in ended.stderr


def test_after_an_upgrade_of_the_systems_python_it_is_set_up_anew(
    checkout: Path, tmp_path: Path
) -> None:
    """`.venv/bin/python` leads to `/usr/bin/python3`, and that to `python3.11` today, to `python3.13` tomorrow."""
    venv = checkout / ".venv"
    for version in ("python3.11", "python3.13"):
        shutil.copyfile(tmp_path / "python", tmp_path / version)
        (tmp_path / version).chmod(0o755)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to(tmp_path / "python3")
    (tmp_path / "python3").symlink_to("python3.11")
    (venv / "lib" / "python3").rename(venv / "lib" / "python3.11")
    assert set_up(checkout).stderr == ""

    (tmp_path / "python3").unlink()
    (tmp_path / "python3").symlink_to("python3.13")
    assert "ERROR: no network\n" in set_up(checkout).stderr
    (tmp_path / "network").touch()
    assert set_up(checkout).returncode == 0
    assert not (venv / "lib" / "python3.11").exists()


def test_a_python_that_is_too_new_is_passed_over_for_one_that_the_package_names(
    checkout: Path, tmp_path: Path
) -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    newest = max(int(each.rpartition(".")[2]) for each in named if ":: Python :: 3." in each)
    (tmp_path / "bin").mkdir()
    shutil.copyfile(tmp_path / "python", tmp_path / "bin" / f"python3.{newest}")
    newer = f"import sys; sys.version_info = (3, {newest + 1}, 0); exec(sys.argv[1])"
    python = f'#!/bin/sh\nshift 2\nexec "{sys.executable}" -c "{newer}" "$@"\n'
    (tmp_path / "bin" / "python3").write_text(python)
    for each in (tmp_path / "bin").iterdir():
        each.chmod(0o755)
    (tmp_path / "network").touch()
    change(checkout)
    assert set_up(checkout, PYTHON="", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin").returncode == 0
    (tmp_path / "bin" / f"python3.{newest}").write_text(python)
    change(checkout)
    told = set_up(checkout, PYTHON=str(tmp_path / "bin" / "python3"))
    assert told.returncode == 1
    assert told.stderr.startswith(f"memlog: needs Python 3.11 to 3.{newest}, found none as ")


def test_packages_that_a_file_of_pips_sent_elsewhere_are_told_and_nothing_counts_as_set_up(
    checkout: Path,
) -> None:
    (checkout.parent / "network").touch()
    change(checkout)
    ended = set_up(checkout, ELSEWHERE="1")
    assert ended.returncode == 1
    assert "pip put the packages elsewhere" in ended.stderr
    assert set_up(checkout).returncode == 0
    assert (checkout / ".venv" / "runtime.stamp").exists()


def test_a_checkout_that_is_reached_by_two_paths_is_set_up_once(
    checkout: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(checkout)
    ended = set_up(tmp_path / "link", PWD=str(tmp_path / "link"), script="./scripts/setup")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_checkout_that_is_no_repository_is_checked_for_what_no_file_may_name(
    checkout: Path,
) -> None:
    (checkout.parent / "network").touch()
    assert set_up(checkout, "dev").returncode == 0
    for tool in ("ruff", "mypy", "lint-imports"):
        (checkout / ".venv" / "bin" / tool).symlink_to(shutil.which("true") or "/bin/true")
    shutil.copyfile(ROOT / ".gitignore", checkout / ".gitignore")
    check = checkout / "scripts" / "check"
    assert set_up(checkout, script=check).returncode == 0
    (checkout / "notes.md").write_text("see /ro" + "ot/memlog\n")
    told = set_up(checkout, script=check)
    assert told.returncode == 1
    assert told.stdout == "notes.md:1:see /ro" + "ot/memlog\n"


def test_what_another_user_put_where_the_clients_are_kept_is_not_run(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout.parent / "network").touch()
    shutil.copytree(ROOT / "tests" / "conformance", checkout / "tests" / "conformance")
    kept = tmp_path / f"memlog-conformance-{os.getuid()}"
    if os.geteuid() == 0:
        kept.mkdir()
        os.chown(kept, NOBODY, NOBODY)
    else:
        kept.symlink_to("/")
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.symlink_to(shutil.which("false") or "/bin/false")
    path = f"{npm.parent}:{os.environ['PATH']}"
    script = checkout / "scripts" / "conformance"
    ended = set_up(checkout, script=script, PATH=path, TMPDIR=str(tmp_path))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{kept} is another user's" in ended.stderr


@pytest.mark.parametrize("name", ["memlog", "bench"])
def test_what_is_given_files_looks_for_them_where_it_is_called(
    checkout: Path, tmp_path: Path, name: str
) -> None:
    called = subprocess.run(
        [checkout / "scripts" / name], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert called.stdout == f"{tmp_path}\n"


@pytest.mark.parametrize("asked", ["--help", "Dev"])
def test_what_is_no_layer_is_refused_and_changes_nothing(checkout: Path, asked: str) -> None:
    (checkout.parent / "network").touch()
    assert set_up(checkout, "dev").returncode == 0
    refused = set_up(checkout, asked)
    assert (refused.returncode, refused.stderr) == (2, "usage: scripts/setup [dev]\n")
    assert set_up(checkout, "dev").stderr == ""


def test_run_as_an_argument_of_a_shell_it_ends_at_the_first_failure_too(checkout: Path) -> None:
    change(checkout)
    for _ in range(2):
        assert set_up(checkout, "scripts/setup", script="/bin/sh").returncode == 1
