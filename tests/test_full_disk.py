"""A disk that is full for real: nothing is acknowledged that is not there, and with room again all goes on.

Everywhere a limit on the size of files stands for it, which is set and lifted while the server runs; where
this user may mount one, also a small file system in memory.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from memlog.projects.store import Store
from projections import embeddings
from tests.command_line import JON, holding_lines, written
from tests.embedder_by_hash import opened_by_hash
from tests.served import DEADLINE_S, Pipe, environment, run_memlog, served
from tests.service import Refused, client_on

WRITES_MAX = 400
ROOM_BYTES = 6 * 1024 * 1024


def big(name: str) -> dict[str, Any]:
    texts = [f"{number} of {name} " + "x" * 9_000 for number in range(20)]
    return {"name": name, "entityType": "thing", "observations": texts}


def filled(server: Pipe) -> tuple[list[str], dict[str, Any]]:
    """Writes until it is refused: what was acknowledged, and the error."""
    acknowledged: list[str] = []
    for number in range(WRITES_MAX):
        try:
            server("create_entities", entities=[big(f"n{number}")])
        except Refused as refused:
            return acknowledged, refused.error
        acknowledged.append(f"n{number}")
    raise AssertionError("the disk never became full")


def require_right_again(server: Pipe, acknowledged: list[str], data_dir: Path) -> None:
    server("create_entities", entities=[big("after")])
    names = [*acknowledged, "after"]
    assert server("open_nodes", names=names)["notFound"] == []
    found = server("search_nodes", query='"0 of after"', mode="text", limit=1)
    assert [each["name"] for each in found["entities"]] == ["after"]
    server.close_stdin()
    server.end()
    store = Store(data_dir)
    project = store.project("default")
    assert list(project.verify()) == list(range(1, project.head() + 1))
    assert project.head() == 1 + 21 * len(names)
    store.close()


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="limits of another process: Linux only"
)
def test_files_that_cannot_grow_refuse_writes_until_they_can(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server("list_projects")
        unlimited = resource.prlimit(server.popen.pid, resource.RLIMIT_FSIZE)
        limited = (ROOM_BYTES, unlimited[1])
        resource.prlimit(server.popen.pid, resource.RLIMIT_FSIZE, limited)
        acknowledged, error = filled(server)
        assert error["code"] == "STORAGE_ERROR"
        assert error["suggestion"]
        assert acknowledged
        assert server("open_nodes", names=["n0"])["notFound"] == []
        resource.prlimit(server.popen.pid, resource.RLIMIT_FSIZE, unlimited)
        require_right_again(server, acknowledged, tmp_path)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of ROOM_BYTES at `folder`; False where this user may not mount one."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, check=False)
    try:
        yield done.returncode == 0
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_refuses_writes_until_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(ROOM_BYTES // 3))
        with served(tmp_path / "disk") as server:
            acknowledged, error = filled(server)
            assert error["code"] == "STORAGE_ERROR"
            assert "space" in error["suggestion"]
            assert server("open_nodes", names=["n0"])["notFound"] == []
            ballast.unlink()
            require_right_again(server, acknowledged, tmp_path / "disk")


@contextmanager
def small_btrfs(parent: Path) -> Iterator[Path | None]:
    """None where this user may not mount one, or has no program that makes one."""
    image, folder = parent / "btrfs.img", parent / "btrfs"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(128 * 1024 * 1024)
    commands = [["mkfs.btrfs", "-q", f"{image}"], ["mount", "-o", "loop", f"{image}", f"{folder}"]]
    try:
        mounted = all(
            subprocess.run(each, capture_output=True, check=False).returncode == 0
            for each in commands
        )
    except FileNotFoundError:
        mounted = False
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_lock_file_asks_a_full_disk_for_no_room_where_nothing_is_written_in_place(
    tmp_path: Path,
) -> None:
    """LMDB writes to it through a map, and where there is no room for that the system ends the process."""
    with small_btrfs(tmp_path) as disk:
        if disk is None:
            pytest.skip("this user may not make and mount a btrfs")
        with closing(Store(disk / "data")) as store:
            store.create("work")
        for lock in disk.rglob("*.mdb-lock"):
            told = subprocess.run(["lsattr", lock], capture_output=True, text=True, check=True)
            assert "C" in told.stdout.split()[0], told.stdout


def fill_up(folder: Path, but_kilobytes: int = 0) -> None:
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    os.truncate(ballast, ballast.stat().st_size - but_kilobytes * 1024)


@pytest.mark.parametrize("free_kilobytes", [0, 4, 24, 60, 80])
def test_what_is_begun_on_a_full_disk_ends_in_words(tmp_path: Path, free_kilobytes: int) -> None:
    """LMDB writes to its lock file through a map: a page of it that has no room would end the process."""
    memlog = holding_lines(tmp_path)
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        fill_up(tmp_path / "disk", but_kilobytes=free_kilobytes)
        backup = run_memlog("backup", tmp_path / "disk" / "backup", data_dir=memlog.data_dir)
        begun = run_memlog("projects", "create", "one", data_dir=tmp_path / "disk" / "data")
        for ended in (backup, begun):
            assert (ended.returncode, ended.stdout) == (1, "")
            assert "No space left" in ended.stderr or "Free some space" in ended.stderr


def test_words_answer_where_the_disk_has_no_room_for_new_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with small_disk(tmp_path / "embeddings") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        with client_on(tmp_path, embedder="local") as client:
            client("search_nodes", query="n0")
            fill_up(tmp_path / "embeddings")
            client("create_entities", entities=[big("n1")])
            told = client("search_nodes", query="1 of n1")
            assert [each["name"] for each in told["entities"]] == ["n1"]
            assert "Vectors can be neither read nor stored" in told["notice"]
            assert client("store_memory", content="told on a full disk")["notice"]
            assert client("search_memories", query="full disk")["memories"]
            (tmp_path / "embeddings" / "ballast").unlink()
            assert "notice" not in client("search_memories", query="full disk")


def test_a_token_that_a_full_disk_does_not_take_leaves_nothing_behind(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        fill_up(tmp_path / "disk")
        refused = run_memlog("token", "new", "phone", data_dir=tmp_path / "disk")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith("error: tokens.json: No space left on device")
        assert {each.name for each in (tmp_path / "disk").glob("tokens*")} <= {"tokens.json.lock"}


def test_an_import_that_ends_early_says_how_far_it_came(tmp_path: Path) -> None:
    lines = [JON | {"name": f"n{each}", "observations": ["x" * 9_000]} for each in range(600)]
    file = written(tmp_path / "in.jsonl", lines)
    with small_disk(tmp_path / "disk") as mounted:
        if not mounted:
            pytest.skip("this user may not mount a file system")
        ended = run_memlog("import", file, data_dir=tmp_path / "disk")
        assert (ended.returncode, ended.stdout) == (1, "")
        told = re.search(r"hint: Free some .* (\d+) of 600 lines are in the log\.", ended.stderr)
        assert told is not None, ended.stderr
        assert "nothing was written" not in ended.stderr
        kept = run_memlog("export", data_dir=tmp_path / "disk")
        assert len(kept.stdout.splitlines()) == int(told[1])


def test_a_limit_of_the_size_of_files_is_told_as_such(tmp_path: Path) -> None:
    memlog = [sys.executable, "-m", "memlog", "projects", "create", "shop"]
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -f 1 && exec "$@"', "sh", *memlog],
        env=environment(MEMLOG_DATA_DIR=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "File too large" in ended.stderr
    assert "hint: The system lets no file grow so large. Raise the limit" in ended.stderr
