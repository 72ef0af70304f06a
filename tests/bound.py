"""Servers that the modes of files bind, also where root runs the tests.

Root reads and writes whatever the modes say, by two capabilities. A process that has lost them from its
bounding set, and everything it starts, is bound as any other user is.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.served import Pipe, environment

NOBODY = 65534
DROP = """
import ctypes, os, sys

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            sys.exit("the system keeps its capabilities: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


def bound(*arguments: str | Path) -> list[str]:
    """The command that runs Python with these arguments, bound by modes."""
    return [sys.executable, "-c", DROP, sys.executable, *map(str, arguments)]


@functools.cache
def why_not() -> str | None:
    """Why this system cannot bind a process of this user, None where it can."""
    done = subprocess.run(bound("-c", ""), capture_output=True, text=True, check=False)
    return done.stderr.strip() or None if done.returncode else None


@contextmanager
def served_bound(data_dir: Path, *flags: str) -> Iterator[Pipe]:
    """`memlog serve` as one whom modes bind, killed at the end unless it has ended."""
    command = bound("-m", "memlog", "serve", "--data-dir", data_dir, *flags)
    server = Pipe(command, environment(), "2026-07-28")
    try:
        yield server
    finally:
        server.release()


def run_bound(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        bound("-m", "memlog", *arguments),
        env=environment(MEMLOG_DATA_DIR=str(data_dir)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def taken_away(path: Path) -> Iterator[None]:
    """Gives `path` to someone else, who lets nobody in, where this user may; else only the latter."""
    before = path.stat()
    path.chmod(0o000)
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    try:
        yield
    finally:
        os.chown(path, before.st_uid, before.st_gid)
        path.chmod(before.st_mode)


@contextmanager
def not_to_be_written(folder: Path) -> Iterator[None]:
    """All that is in it may be read, and nothing written, made or removed."""
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
