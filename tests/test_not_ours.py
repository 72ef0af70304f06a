"""Files of someone else and a disk that cannot be written: errors in words, and right again without a restart.

Also where root runs the tests: see `bound`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bound import bound, not_to_be_written, run_bound, served_bound, taken_away, why_not
from tests.served import REPOSITORY, Pipe
from tests.service import Refused, client_on

pytestmark = pytest.mark.skipif(
    why_not() is not None, reason=f"modes cannot be made to bind root here: {why_not()}"
)

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    with client_on(folder) as client:
        client("create_entities", entities=[JON])
        client("search_nodes", query="Jon", mode="text")
    return folder


def refused(server: Pipe, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        server(tool, **arguments)
    error = caught.value.error
    assert error["code"] == "STORAGE_ERROR"
    assert error["suggestion"]
    assert "denied" in error["message"]
    return error


def require_well(server: Pipe) -> None:
    server("store_memory", project="default", content="a new fact")
    read = server("read_graph", project="default")
    assert [each["name"] for each in read["entities"]] == ["Jon"]
    found = server("search_nodes", project="default", query="banker", mode="text")
    assert [each["name"] for each in found["entities"]] == ["Jon"]


def test_an_index_of_someone_else_is_told_and_the_graph_still_read_and_written(
    data_dir: Path,
) -> None:
    (index,) = data_dir.glob("projects/*/text-v*")
    with served_bound(data_dir) as server:
        with taken_away(index):
            error = refused(server, "search_nodes", query="banker", mode="text")
            assert error["suggestion"].startswith("Give this user")
            assert [each["name"] for each in server("read_graph")["entities"]] == ["Jon"]
            server("store_memory", content="while it was away")
        require_well(server)


def test_a_log_of_someone_else_is_told_and_other_projects_go_on(data_dir: Path) -> None:
    (log,) = data_dir.glob("projects/*/log.mdb")
    with served_bound(data_dir) as server:
        with taken_away(log):
            refused(server, "read_graph")
            refused(server, "store_memory", content="a new fact")
            server("create_project", name="other")
            server("store_memory", project="other", content="a new fact")
        require_well(server)


@pytest.mark.parametrize(("taken", "away"), [("projects/*", "default"), ("archive", "old")])
def test_a_folder_of_someone_else_is_told_and_keeps_nobody_from_the_other_projects(
    data_dir: Path, taken: str, away: str
) -> None:
    (folder,) = data_dir.glob(taken) if away == "default" else (data_dir / taken,)
    with client_on(data_dir) as client:
        for name in ("old", "other"):
            client("create_project", name=name)
        client("archive_project", name="old")
    with taken_away(folder), served_bound(data_dir) as server:
        for tool in ("archive_project", "restore_project", "delete_project"):
            told = refused(server, tool, name=away)["message"]
            assert told.startswith(f"{folder.relative_to(data_dir)}/")
        server("store_memory", project="other", content="a new fact")
    with served_bound(data_dir) as server:
        listed = {each["name"] for each in server("list_projects", status="all")["projects"]}
        assert listed == {"default", "old", "other"}
        require_well(server)


def test_a_deletion_is_done_where_nobody_can_look_which_vectors_go_with_it(data_dir: Path) -> None:
    notes = data_dir / "embeddings" / "deleted"
    notes.mkdir(parents=True, exist_ok=True)
    with taken_away(notes), served_bound(data_dir) as server:
        server("delete_project", name="default")
        assert server("list_projects", status="all")["projects"] == []


def test_a_project_that_cannot_be_made_is_refused_and_made_once_it_can_be(data_dir: Path) -> None:
    with served_bound(data_dir) as server:
        server("read_graph")
        with taken_away(data_dir / "projects"):
            refused(server, "create_project", name="other")
        listed = [each["name"] for each in server("list_projects", status="all")["projects"]]
        assert listed == ["default"]
        server("create_project", name="other")
        require_well(server)


@contextmanager
def read_only_disk(folder: Path) -> Iterator[None]:
    """The folder as on a disk that is mounted to be read; skips the test where this user may not mount."""
    done = subprocess.run(
        ["mount", "--bind", "-o", "ro", str(folder), str(folder)], capture_output=True, check=False
    )
    if done.returncode or not os.statvfs(folder).f_flag & os.ST_RDONLY:
        pytest.skip("this user may not mount a disk to be read only")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


WAYS: dict[str, tuple[Callable[[Path], AbstractContextManager[None]], str, str]] = {
    "a folder that may not be written": (not_to_be_written, "denied", "right to read and write"),
    "a disk that is mounted to be read": (read_only_disk, "Read-only", "mount it for writing"),
}
"""How it comes about, how that is told, and what is advised."""


@pytest.mark.parametrize("way", WAYS)
def test_where_nothing_can_be_written_every_start_says_so_and_changes_nothing(
    data_dir: Path, way: str
) -> None:
    before = {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")}
    cannot_be_written, cause, advice = WAYS[way]
    with cannot_be_written(data_dir):
        with served_bound(data_dir) as server:
            server.send_call("read_graph")
            assert server.read() is None
            ends = [server.end()]
        for command in ("doctor", "verify"):
            ended = run_bound(data_dir, command)
            ends.append((ended.returncode, ended.stderr))
        for code, stderr in ends:
            assert code == 1
            assert cause in stderr
            assert advice in stderr
            assert "Traceback" not in stderr
    assert {path: path.stat().st_mtime_ns for path in data_dir.rglob("*")} == before
    with served_bound(data_dir) as server:
        require_well(server)


def test_the_doctor_tells_settings_and_folder_also_where_that_cannot_be_opened(
    data_dir: Path,
) -> None:
    for cannot_be_opened in (not_to_be_written(data_dir), taken_away(data_dir.parent)):
        with cannot_be_opened:
            ended = run_bound(data_dir, "doctor")
            told = run_bound(data_dir, "doctor", "--json")
        assert (ended.returncode, told.returncode) == (1, 1)
        assert "search_mode" in ended.stdout
        assert "Permission denied" in ended.stderr
        assert json.loads(told.stdout)["data_dir"]["path"] == str(data_dir)
    assert "cannot be looked at: Permission denied" in ended.stdout


@pytest.mark.parametrize("way", WAYS)
def test_a_data_directory_that_cannot_be_written_is_read_from_a_copy_made_as_is_advised(
    way: str, data_dir: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy of it"
    with WAYS[way][0](data_dir):
        told = run_bound(data_dir, "verify")
        advised = re.search(r"\((cp -r DIR COPY [^)]*)\)", told.stderr)
        assert told.returncode == 1 and advised
        names = {"DIR": shlex.quote(str(data_dir)), "COPY": shlex.quote(str(copy))}
        command = re.sub("DIR|COPY", lambda found: names[found[0]], advised[1])
        subprocess.run(command, shell=True, check=True)
    assert run_bound(copy, "verify").returncode == 0
    assert run_bound(copy, "log").stdout == run_bound(data_dir, "log").stdout


def test_a_token_that_cannot_be_kept_is_refused_with_who_lacks_the_right(data_dir: Path) -> None:
    with not_to_be_written(data_dir):
        ended = run_bound(data_dir, "token", "new", "laptop")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{data_dir}/tokens.json.lock: Permission denied" in ended.stderr
    assert f"Give this user (number {os.getuid()}) the right to read and write" in ended.stderr


def test_tokens_of_someone_else_are_not_to_be_removed_but_given_back(data_dir: Path) -> None:
    assert run_bound(data_dir, "token", "new", "laptop").returncode == 0
    with taken_away(data_dir / "tokens.json"):
        ended = run_bound(data_dir, "token", "list")
    assert ended.returncode == 1
    assert f"{data_dir}/tokens.json cannot be read: Permission denied\n" in ended.stderr
    assert "right to read and write" in ended.stderr
    assert "remove" not in ended.stderr


def test_a_copy_of_someone_else_is_told_by_a_restore_which_brings_back_the_others(
    data_dir: Path, tmp_path: Path
) -> None:
    with client_on(data_dir) as client:
        client("create_project", name="other")
    backup = tmp_path / "backup"
    assert run_bound(data_dir, "backup", str(backup)).returncode == 0
    (project,) = data_dir.glob("projects/*/text-v*")
    copied = backup / project.parent.name
    for taken in (copied, copied / "log.mdb"):
        anew = tmp_path / f"without {taken.name}"
        with taken_away(taken):
            ended = run_bound(anew, "restore", str(backup))
            assert ended.returncode == 1
            assert f"The backup {copied} cannot be copied: Permission denied" in ended.stderr
            assert "Done all the same: other." in ended.stderr
            ended = run_bound(anew, "restore", str(backup), "default")
            assert f"What {copied.name} is called cannot be read" in ended.stderr


def test_what_fails_in_a_backup_is_told_as_there_and_not_in_the_log(
    data_dir: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    assert run_bound(data_dir, "backup", str(backup)).returncode == 0
    (copied,) = backup.glob("prj_*")
    with taken_away(copied / "log.mdb"):
        ended = run_bound(data_dir, "backup", str(backup))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"default: backup/{copied.name}/log.mdb: Permission denied\n" in ended.stderr
    with taken_away(backup):
        ended = run_bound(data_dir, "backup", str(backup / "inside"))
    assert f"{backup}/inside cannot be written: Permission denied\n" in ended.stderr
    assert "hint: Name a folder that this user may write" in ended.stderr


def test_a_purge_that_cannot_remove_an_index_erases_nothing_and_names_it(data_dir: Path) -> None:
    (index,) = data_dir.glob("projects/*/text-v*")
    with taken_away(index):
        ended = run_bound(data_dir, "purge", "default", "--entity", "Jon", "--yes")
        assert ended.returncode == 1
        assert f"error: {index.relative_to(data_dir)}: Permission denied\n" in ended.stderr
    with served_bound(data_dir) as server:
        require_well(server)


def test_verify_looks_at_the_other_logs_where_one_cannot_be_read_and_says_why(
    data_dir: Path,
) -> None:
    (log,) = data_dir.glob("projects/*/log.mdb")
    with client_on(data_dir) as client:
        client("create_project", name="other")
    for taken in (log, log.parent):
        with taken_away(taken):
            ended = run_bound(data_dir, "verify")
        assert (ended.returncode, ended.stdout) == (1, "other: 1 entry, whole.\n")
        assert ended.stderr.startswith("error: default: ")
        assert "log.mdb: Permission denied\nhint: Give this user" in ended.stderr


def test_a_project_that_cannot_be_read_is_told_where_the_list_is_lost_and_stays_in_the_backup(
    data_dir: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    assert run_bound(data_dir, "backup", str(backup)).returncode == 0
    with client_on(data_dir) as client:
        client("create_project", name="other")
    (log,) = (each / "log.mdb" for each in data_dir.glob("projects/*") if any(each.glob("text-v*")))
    for taken in (log, log.parent):
        (data_dir / "catalog.mdb").unlink()
        with taken_away(taken):
            for command in ("verify", "doctor"):
                ended = run_bound(data_dir, command)
                assert ended.returncode == 1
                assert f"{log.parent.name} is left out" in ended.stdout
            ended = run_bound(data_dir, "backup", str(backup))
            assert ended.returncode == 1
            assert "log.mdb: Permission denied\nhint: Give this user" in ended.stderr
            assert "Done all the same: other." in ended.stderr
        anew = tmp_path / f"without {taken.name}"
        ended = run_bound(anew, "restore", str(backup))
        assert ended.returncode == 0
        assert ended.stdout.startswith("default: restored")


def test_archived_projects_that_cannot_be_looked_into_keep_nobody_from_the_active_ones(
    data_dir: Path, tmp_path: Path
) -> None:
    with client_on(data_dir) as client:
        client("create_project", name="old")
        client("archive_project", name="old")
    with taken_away(data_dir / "archive"):
        listed = run_bound(data_dir, "projects")
        assert (listed.returncode, "old" in listed.stdout) == (0, True)
        assert "which projects stand in archive cannot be read: Permission denied" in listed.stderr
        ended = run_bound(data_dir, "verify")
        assert (ended.returncode, ended.stdout.startswith("default: ")) == (1, True)
        assert "error: old: archive/" in ended.stderr
        ended = run_bound(data_dir, "backup", str(tmp_path / "backup"))
        assert (ended.returncode, "Done all the same: default." in ended.stderr) == (1, True)


def test_a_reader_of_another_container_with_the_same_number_is_told(data_dir: Path) -> None:
    """Both are process 1, each of its own container; LMDB locks the byte of that number."""
    with (data_dir / "catalog.mdb-lock").open("r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 0, 1)
        ended = run_bound(data_dir, "stats")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "two containers cannot serve one volume" in ended.stderr
    assert "docker exec" in ended.stderr


@pytest.mark.parametrize("others", [".", ".venv", ".venv.lock"])
def test_a_checkout_that_its_owner_has_not_set_up_is_told_to_others(
    tmp_path: Path, others: str
) -> None:
    """Where root once ran memlog from a user's checkout, these two in it are root's."""
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv.lock").touch()
    run = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"
    with not_to_be_written(tmp_path / others):
        told = subprocess.run(
            bound("-c", run, tmp_path / "scripts" / "setup"),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (told.returncode, told.stdout) == (1, "")
    assert f"Run {tmp_path}/scripts/setup as who owns it" in told.stderr


def test_an_environment_that_is_a_link_to_another_checkouts_is_left_alone(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    others = tmp_path / "others"
    others.mkdir()
    (others / "kept").touch()
    (tmp_path / ".venv").symlink_to(others)
    told = subprocess.run(
        [tmp_path / "scripts" / "setup"], capture_output=True, text=True, check=False
    )
    assert (told.returncode, told.stdout) == (1, "")
    assert "Remove the link" in told.stderr
    assert (others / "kept").exists()
