"""Who may go where: one process at a time writes to a file, its map is resized while nobody reads, and threads do not
take the interpreter from each other at every step."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from memlog.errors import StorageError
from memlog.patience import require_patience
from memlog.storage.errors import storage_error

if TYPE_CHECKING:
    from filelock import BaseFileLock

SMALL_CALLS = threading.RLock()
"""Held over many small calls into a library, each of which lets go of the interpreter: threads that make hundreds of
them at once take it from each other at every one, and none is done before the others are.

Never held over anything that waits, nor taken inside a snapshot: who holds it may wait for a map to be resized.
"""

WAIT_SECONDS_MAX = 60.0
"""For a lock that another process has. Little that is done under one takes as long: to erase from a large log, or to
open one that is damaged."""


@contextmanager
def excluding_processes(lock: Path) -> Iterator[None]:
    """Held by one thread of one process; by that one as often as it likes, for who replaces a file may have to follow
    another first. Raises OSError where no lock is to be had, and StorageError where another has it for so long that it
    was perhaps stopped."""
    from filelock import FileLock

    os.stat(lock.parent)  # else the lock would make a folder that was moved away
    held = FileLock(lock, is_singleton=True)
    try:  # so early: an interrupt may come as it was acquired
        _acquire(held, lock)
        yield
    finally:
        held.release()


def _acquire(held: BaseFileLock, lock: Path) -> None:
    from filelock import Timeout

    try:
        held.acquire(timeout=WAIT_SECONDS_MAX)
    except Timeout as error:
        raise held_too_long(lock) from error


def held_too_long(lock: Path) -> StorageError:
    """What is said where another process has had a lock for `WAIT_SECONDS_MAX`."""
    return StorageError(
        f"{lock.name}: another process has held this lock for {WAIT_SECONDS_MAX:.0f} seconds; nothing was done",
        suggestion="It is at something long, or it was stopped (Ctrl-Z): go on with it (`fg`) or end it, then call "
        "again.",
    )


class Turn:
    """Which process writes next: a lock of the system's on the file, so that nobody waits in LMDB's own.

    LMDB waits on a futex. Where the process that was just woken is killed before it notes that others
    wait, too, nobody wakes those any more: they hang, although nobody writes. What waits for `flock` is
    kept by the system, which passes by the dead. The lock is LMDB's before it is anybody else's: a
    process that dies has let go of the futex by the time its files are closed. Where LMDB has
    semaphores instead it has not (`semaphores`).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)
        self.close = weakref.finalize(self, os.close, self._file)

    def __enter__(self) -> None:
        """Raises StorageError where the system gives no lock."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def stat(self) -> os.stat_result:
        """Of the file that is open, wherever it is by now. Raises StorageError."""
        try:
            return os.fstat(self._file)
        except OSError as error:
            raise storage_error(self._path, error) from error

    def read_at(self, place: int, length: int) -> bytes:
        """What is there in that file, as far as it goes. Raises StorageError."""
        try:
            return os.pread(self._file, length, place)
        except OSError as error:
            raise storage_error(self._path, error) from error


def _opened(path: Path) -> int:
    """For writing where that may be: NFS 4 gives a lock for one alone to nobody else. Raises OSError."""
    with suppress(OSError):
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class Counted:
    """How many of something each thread has, and all together.

    An interrupt (Ctrl-C) may strike a thread between getting one and whatever sees to its giving it back. Then it
    would be waited for in vain: so a thread that cannot have any can `forsake` its own.
    """

    def __init__(self) -> None:
        self._of: dict[int, int] = {}

    def __bool__(self) -> bool:
        return sum(self._of.values()) > 0

    def add(self, count: int) -> None:
        """One of this thread's more, or less. One that another thread began may end here."""
        me = threading.get_ident()
        self._of[me] = self._of.get(me, 0) + count
        if not self._of[me]:
            del self._of[me]

    def forsake(self) -> None:
        self._of.pop(threading.get_ident(), None)


class Gate:
    """Many may pass at once; one may close it, and then waits until all who passed have left."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Taken by itself: a condition takes it in two steps, between which an interrupt may come."""
        self._changed = threading.Condition(self._lock)
        self._inside = Counted()
        self._closed = False

    def enter(self) -> None:
        with self._lock:
            while self._closed:
                require_patience()
                self._changed.wait()
            self._inside.add(1)

    def try_enter(self) -> bool:
        """Whether one may pass now."""
        with self._lock:
            if not self._closed:
                self._inside.add(1)
            return not self._closed

    def leave(self) -> None:
        with self._lock:
            self._inside.add(-1)
            if self._closed:
                self._changed.notify_all()

    @contextmanager
    def closed(self, *, for_good: bool = False) -> Iterator[None]:
        """For good, whoever closes it is not inside itself any more, whatever an interrupt left behind."""
        require_patience()
        with self._lock:
            if for_good:
                self._inside.forsake()
            while self._closed:
                self._changed.wait()
            self._closed = True
        try:
            with self._lock:
                while self._inside:
                    self._changed.wait()
            yield
        finally:
            with self._lock:
                self._closed = False
                self._changed.notify_all()
