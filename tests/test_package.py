"""What people install: the wheel that is built from this checkout, used from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("memlog", "projections", "server")
SECONDS_MAX = 240
SAME = "the same questions have the same answers"


def ran(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """To a good end, in a folder, without anyone's settings of memlog."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MEMLOG_")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True, timeout=SECONDS_MAX)
    return next(folder.glob("*.whl"))


def test_a_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    tracked = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with ZipFile(wheel) as files:
        assert {name for name in files.namelist() if ".dist-info/" not in name} == tracked


def test_each_package_of_a_wheel_that_says_it_is_typed_has_the_mark_that_checkers_look_for(
    wheel: Path,
) -> None:
    with ZipFile(wheel) as files:
        names = files.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        assert "Classifier: Typing :: Typed" in files.read(metadata).decode().splitlines()
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)


def test_an_installed_memlog_runs_its_demo_from_an_empty_folder(
    wheel: Path, tmp_path: Path
) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    install = ["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, timeout=SECONDS_MAX)
    variables = {
        "PYTHONPATH": str(site),  # before the checkout, which the test's own environment names
        "HOME": str(empty),
    }
    whose = f"import {', '.join(PACKAGES)}; print({', '.join(f'{p}.__file__' for p in PACKAGES)})"
    found = ran(empty, sys.executable, "-c", whose, **variables).stdout
    assert all(file.startswith(f"{site}/") for file in found.split())
    assert SAME in ran(empty, str(site / "bin" / "memlog"), "demo", **variables).stdout


def test_a_wheel_runs_its_demo_as_it_lies_on_the_path(wheel: Path, tmp_path: Path) -> None:
    """As others read their modules within an archive: no file of memlog's is one of the system's then."""
    path = [str(wheel), *sys.path]
    run = f"import sys; sys.path[:] = {path!r}; from memlog.__main__ import main; main('demo')"
    assert SAME in ran(tmp_path, sys.executable, "-I", "-c", run).stdout


@pytest.mark.parametrize("theirs", ["server.py", "server/__init__.py", "projections.py"])
def test_modules_of_the_caller_do_not_stand_in_for_packages_that_are_called_the_same(
    tmp_path: Path, theirs: str
) -> None:
    (tmp_path / theirs).parent.mkdir(exist_ok=True)
    (tmp_path / theirs).write_text("raise SystemExit('not of memlog')")
    run = "from memlog.__main__ import main; main('stats', '--help')"
    done = ran(tmp_path, sys.executable, "-c", run, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert "memlog stats" in done.stdout
    assert done.stderr == ""


def test_a_python_that_is_named_and_does_not_start_says_why(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    broken = tmp_path / "python"
    broken.write_text(
        "#!/bin/sh\necho libpython.so: cannot open shared object file >&2\nexit 127\n"
    )
    broken.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "scripts" / "setup"],
        env={**os.environ, "PYTHON": str(broken)},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert f"found none as {broken}. Name one" in done.stderr
    assert done.stderr.endswith("\nlibpython.so: cannot open shared object file\n")
