"""A projector, and the locks under which it is driven: by one thread of a process, and where it is an index on disk, by
one of the processes that share it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from memlog.errors import StorageError
from memlog.storage import gates
from memlog.storage.errors import storage_error
from projections.batches import AnyProjector
from projections.origin import Origin

LOCK_POLL_SECONDS = 0.002
"""How often a process looks whether another has let go; who holds the lock has it for some 10 ms."""

TURN_SECONDS = 5 * LOCK_POLL_SECONDS
"""Whoever goes on after a batch leaves the lock for so long: who waits for it would else never find it free."""

LOOK_SECONDS = 0.1
"""Who only looks how far an index has come waits no longer for another process."""


class Followed:
    """A projector and the locks under which it is advanced."""

    def __init__(
        self, projector: AnyProjector, origin: Origin, shared_lock: FileLock | None
    ) -> None:
        self.projector = projector
        self.origin = origin
        self.driving = threading.Lock()
        self._shared_lock = shared_lock

    @contextmanager
    def driven(self, patience_seconds: float) -> Iterator[bool]:
        """Whether no other thread drives it meanwhile: False where one does for longer."""
        taken = self.driving.acquire(timeout=min(patience_seconds, threading.TIMEOUT_MAX))
        try:
            yield taken
        finally:
            if taken:
                self.driving.release()

    def look(self) -> None:
        """Sees what other processes have committed to an index that they share, unless somebody is at it, or it
        cannot be read: whoever catches it up says so."""
        with self.driven(0) as alone:
            if alone and self._shared_lock is not None:
                lock = held_among_processes(self._shared_lock, LOOK_SECONDS)
                with suppress(Timeout, StorageError), lock:
                    self.projector.refresh()

    def excluding_processes(self) -> AbstractContextManager[object]:
        lock = self._shared_lock
        return nullcontext() if lock is None else held_among_processes(lock)

    def leave_others_a_turn(self) -> None:
        """Between two batches, where an index is shared by processes."""
        if self._shared_lock is not None:
            time.sleep(TURN_SECONDS)


def lock_among_processes(path: Path) -> FileLock:
    """That of an index on disk; who waits for it looks often."""
    return FileLock(path, poll_interval=LOCK_POLL_SECONDS)


@contextmanager
def held_among_processes(lock: FileLock, patience_seconds: float | None = None) -> Iterator[None]:
    """Raises StorageError where the system gives no lock, nothing can be written beside it, or another has it for far
    longer than a batch takes; Timeout where patience was given and comes to its end."""
    path = Path(lock.lock_file)
    most = gates.WAIT_SECONDS_MAX if patience_seconds is None else patience_seconds
    try:
        os.stat(path.parent)  # else the lock would make the folder of a project that was put away
        with lock.acquire(timeout=most):
            yield
    except Timeout as error:  # an OSError
        if patience_seconds is None:
            raise gates.held_too_long(path) from error
        raise
    except OSError as error:
        raise storage_error(path, error) from error
