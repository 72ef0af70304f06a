"""A process that is killed amid a write, where LMDB's lock is a named semaphore, as on macOS."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlog.storage import semaphores
from memlog.storage.environment import Environment
from memlog.storage.files import lock_file

ROOT = Path(__file__).parent.parent
DEADLINE_S = 60
DIES = """
import os, sys
from pathlib import Path
from memlog.storage.environment import Environment

file = Environment(Path(sys.argv[1]), ("any",))
file.write(lambda transaction: os.kill(os.getpid(), 9))
"""


def put(file: Environment, key: bytes) -> None:
    file.write(lambda transaction: transaction.put(key, b"", db=file.databases["any"]))


def test_who_is_killed_amid_a_write_keeps_nobody_from_writing(tmp_path: Path) -> None:
    file = Environment(tmp_path / "any.mdb", ("any",))
    for key in (b"1", b"2"):
        dies = [sys.executable, "-c", DIES, str(tmp_path / "any.mdb")]
        done = subprocess.run(dies, cwd=ROOT, check=False, timeout=DEADLINE_S)
        assert done.returncode == -9
        put(file, key)
    file.close()


@pytest.fixture
def name() -> Iterator[bytes]:
    """Of a semaphore that is there, and taken."""
    if sys.platform != "linux":
        pytest.skip("LMDB itself has semaphores here, and the test above is about them")
    name = f"/MDBw{os.getpid()}".encode()
    made = ctypes.CDLL(None).sem_open(name, os.O_CREAT | os.O_EXCL, 0o600, 0)
    assert made
    yield name
    ctypes.CDLL(None).sem_unlink(name)


@pytest.fixture
def path(tmp_path: Path, name: bytes) -> Path:
    """Of a file whose lock file knows of commit 7."""
    path = tmp_path / "any.mdb"
    lock = struct.pack("<8x32sQ16x32s32x", name.replace(b"w", b"r"), 7, name)
    lock_file(path).write_bytes(lock)
    return path


def newest(path: Path) -> int:
    return int.from_bytes(lock_file(path).read_bytes()[40:48], "little")


def test_the_semaphore_of_a_dead_writer_is_free_again_and_the_newest_commit_counts(
    path: Path,
) -> None:
    writers = semaphores.Writers(path)
    writers.release_of_dead(lambda: 8)
    assert newest(path) == 8
    writers.release_of_dead(lambda: 9)  # it is free, and stays so
    assert newest(path) == 8
    writers.close()


def test_a_lock_file_that_names_no_semaphore_is_left_alone(path: Path) -> None:
    lock = lock_file(path)
    lock.write_bytes(os.urandom(8) + bytes(120))
    before = lock.read_bytes()
    writers = semaphores.Writers(path)
    writers.release_of_dead(lambda: 8)
    writers.close()
    assert lock.read_bytes() == before


def test_who_lets_go_of_a_file_lets_go_of_its_lock_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semaphores, "USED", True)
    for key in (b"1", b"2"):
        file = Environment(tmp_path / "any.mdb", ("any",))
        put(file, key)
        assert (writers := file._writers)
        file.close()
        assert not writers.close.alive
