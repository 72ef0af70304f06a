"""An LMDB file as the system has it: which one it is, the lock file beside it, how it is opened and removed."""

from __future__ import annotations

import errno
import fcntl
import gc
import mmap
import os
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lmdb

from memlog.storage.errors import displaced

FileIdentity = tuple[int, int]
"""Device and number: what a file keeps when it is moved, and no other has meanwhile."""

MODE = 0o666
"""Of a new file, less what the umask takes: who share a folder as a group may write to what each of them made."""

READERS_MAX = 1024
LOCK_BYTES = 192 + 64 * (READERS_MAX - 1)
"""Of LMDB's lock file: what it begins with, and a line of the processor's cache for each reader but the first."""

OF_09: dict[str, Any] = {"lib_version": 0} if int(lmdb.__version__.split(".")[0]) >= 3 else {}
"""Has py-lmdb open a file as LMDB 0.9 has it, the one form that `pages` knows. From 3.0 on it has two of LMDB: it takes
for a new file what LMDB_DEFAULT_LIB_VERSION names, else what the file says of itself, damaged as that may be."""

CLOSING_SECONDS_MAX, CLOSING_POLL_SECONDS = 5.0, 0.02
"""How long a file that this process has let go of may take to be closed."""

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

_FLAGS = struct.Struct("l")
_GET_FLAGS, _SET_FLAGS = 2 << 30 | _FLAGS.size << 16 | 0x6601, 1 << 30 | _FLAGS.size << 16 | 0x6602
_NO_COPY_ON_WRITE = 0x00800000
"""As Linux has them in linux/fs.h."""


def identity_of(path: Path) -> FileIdentity:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def lock_file(path: Path) -> Path:
    """LMDB's, beside the file: who reads which snapshot, and which meta page is current."""
    return path.with_name(f"{path.name}-lock")


def make_room_for_lock(path: Path) -> None:
    """Has the disk set aside the lock file of the LMDB file at `path`, before LMDB makes one that has no pages yet.

    LMDB writes to it through a map, and where the disk is full then, that ends the process (SIGBUS). Raises
    OSError where there is no room. What else is wrong LMDB tells in its own words.

    A lock file whose first page is there is left alone, for this process may have it open: the system's
    locks on a file go when any handle of it is closed.
    """
    lock = lock_file(path)
    if sys.platform == "darwin" or _has_first_page(lock):
        return
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            _write_in_place(file)
            os.posix_fallocate(file, 0, LOCK_BYTES)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise OSError(error.errno, os.strerror(error.errno), str(lock)) from error


def _write_in_place(file: int) -> None:
    """Has btrfs write what is changed in the file, which has nothing yet, where it stands, and not elsewhere: for that
    a full disk has no room. Older kernels want room for a map all the same; other file systems know nothing of it."""
    if sys.platform != "linux":
        return
    with suppress(OSError):
        (flags,) = _FLAGS.unpack(fcntl.ioctl(file, _GET_FLAGS, bytes(_FLAGS.size)))
        fcntl.ioctl(file, _SET_FLAGS, _FLAGS.pack(flags | _NO_COPY_ON_WRITE))


def _has_first_page(lock: Path) -> bool:
    try:
        return os.stat(lock).st_blocks * 512 >= mmap.PAGESIZE
    except OSError:
        return False


def opened_alone(path: Path, map_bytes: int, databases: int) -> lmdb.Environment:
    """The file, opened for so many databases, once this process has closed it.

    LMDB opens a file once in a process, and it stays open until whoever read it is gone: another thread may
    be closing it in this moment, or the traceback of an exception holds a transaction, in a circle that
    Python has not looked for yet.
    """
    until = time.monotonic() + CLOSING_SECONDS_MAX
    while True:
        try:
            return lmdb.open(
                str(path),
                subdir=False,
                map_size=map_bytes,
                max_dbs=databases,
                max_readers=READERS_MAX,
                readahead=False,
                mode=MODE,
                **OF_09,
            )
        except lmdb.Error as error:
            if "already open in this process" not in str(error):
                raise
            if time.monotonic() > until:
                raise displaced(path) from error
        gc.collect()
        time.sleep(CLOSING_POLL_SECONDS)


def remove(path: Path) -> None:
    """While nobody opens it. The lock file first: a crash in between leaves what is found damaged again."""
    lock_file(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
