"""LMDB's lock of those who write, where it is a semaphore with a name, as on macOS: nothing gives back what a process
held that was killed, and all others would wait for ever.

Whoever writes has its `Turn` first, which the system keeps. So who has a turn and finds the semaphore taken knows that
the one who took it is dead. Then this does what LMDB does itself where the system tells it of such a death: the newest
commit counts, although who made it may not have lived to say so. Else the next one would use its pages again.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

from memlog.storage.files import lock_file

log = logging.getLogger("memlog.semaphores")

USED = sys.platform == "darwin"

_LOCK = struct.Struct("<8x32sQ16x32s")
"""The lock file's beginning (`MDB_txninfo`): the readers' semaphore, the newest commit, the writers' semaphore."""
_COMMIT_AT, _COMMIT = 40, struct.Struct("<Q")
_FAILED = ctypes.c_void_p(-1).value


class Writers:
    """Of a file that LMDB has open in this process, which is to be closed before this is: whoever closes a file gives
    back all that this process has locked in it, so that another would take LMDB's lock file for nobody's."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._system = ctypes.CDLL(None)
        self._lock = os.open(lock_file(path), os.O_RDWR | os.O_CLOEXEC)
        self._semaphore = self._opened()
        self.close = weakref.finalize(self, _close, self._system, self._lock, self._semaphore)

    def _opened(self) -> ctypes.c_void_p | None:
        head = os.pread(self._lock, _LOCK.size, 0)
        if len(head) < _LOCK.size:
            return None
        readers, _, writers = _LOCK.unpack(head)
        if not (readers.startswith(b"/MDBr") and writers.startswith(b"/MDBw")):
            return None
        self._system.sem_open.restype = ctypes.c_void_p
        found = self._system.sem_open(ctypes.c_char_p(writers.rstrip(b"\0")), 0)
        return None if found in (None, _FAILED) else ctypes.c_void_p(found)

    def release_of_dead(self, newest_commit: Callable[[], int]) -> None:
        """For who has its turn, before it writes: what a dead process held is free again."""
        if self._semaphore is None:
            return
        if self._system.sem_trywait(self._semaphore) != 0:
            log.warning("%s: a process ended while it wrote, others go on", self._path.name)
            os.pwrite(self._lock, _COMMIT.pack(newest_commit()), _COMMIT_AT)
        self._system.sem_post(self._semaphore)


def _close(system: ctypes.CDLL, lock: int, semaphore: ctypes.c_void_p | None) -> None:
    if semaphore is not None:
        system.sem_close(semaphore)
    os.close(lock)
