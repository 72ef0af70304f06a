"""A lock among threads and processes in which whoever waits gets the next turn.

A loop that takes a lock, works and takes it again starves everyone else: it lets go for
microseconds, and the others, asleep or polling, never come upon that gap. So one takes turns by two
locks. The first is held only while waiting for the second; who comes back from work finds it taken
by whoever waits, and queues behind.

Promises fairness and economy, not safety: it saves doing a piece of work twice, nothing breaks where
it is done twice. So a process that was stopped while holding the lock is waited for once,
`wait_seconds` long, and then no more until it lets go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

POLL_SECONDS = 0.01
WAIT_SECONDS = 30.0


class FairLock:
    """Locks `path` (a file made for this) among processes, and among the threads of this one."""

    def __init__(self, path: Path, *, wait_seconds: float = WAIT_SECONDS) -> None:
        self._queue = _BothLock(Path(f"{path}.queue"), wait_seconds)
        self._work = _BothLock(path, wait_seconds)

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as working:
            with self._queue.held():
                working.enter_context(self._work.held())
            yield


class _BothLock:
    """A thread lock, and within it a file lock that patience with other processes may run out on."""

    def __init__(self, path: Path, wait_seconds: float) -> None:
        from filelock import FileLock

        self._among_threads = threading.Lock()
        self._among_processes = FileLock(path, poll_interval=POLL_SECONDS, thread_local=False)
        self._wait_seconds = wait_seconds
        self._patient = True

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._among_threads, ExitStack() as held:
            if self._acquired():
                held.callback(self._among_processes.release)
            yield

    def _acquired(self) -> bool:
        try:
            self._among_processes.acquire(timeout=self._wait_seconds if self._patient else 0)
        except OSError:  # filelock's Timeout is one, and so is a disk that takes no lock file
            self._patient = False
        else:
            self._patient = True
        return self._patient
