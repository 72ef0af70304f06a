"""Doing something soon, or not at all; or only as long as somebody wants it.

A thread that has others to serve may try something `without_patience`. Whatever may take longer than looking things
up (opening a project, waiting for another process, catching up, asking an endpoint) calls `require_patience`
before it begins; what may go on and on (going through rows, reading the log) calls `require_time` at every step; and
a lock that somebody else may have for longer than a moment is `held`. There that raises `Impatient`, and nothing has
happened: what only reads can be begun anew by a thread that may take its time. Everywhere else it does nothing.

Who has others to do a part of it passes on what it has of time (`as_hasty_as_this`).

A thread that has patience may take a `Leave` that somebody takes back when nobody wants any more what it does. Then it
is left at its next step, unless it has begun what takes patience: others wait for that too, and it is done to its end.

Left to who tries: the one call into a library that takes long by itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

LONG_SECONDS = 1e6
"""As good as for ever, and short enough to be waited for."""

MOMENT_SECONDS = 0.1
"""How long at most somebody without patience waits for a lock, however much time there is."""


class Impatient(BaseException):
    """It would take its time, or nobody wants it. No Exception, for nobody on the way is to make an answer of it."""


class Leave:
    """What a thread may take of its time. Any thread may take it back."""

    def __init__(self, seconds: float = LONG_SECONDS, *, patient: bool = True) -> None:
        self.is_back = False
        self.patient = patient
        self.took_patience = False
        self.limit(seconds)

    def limit(self, seconds: float, *, of_work: bool = False) -> None:
        """From now on, where it was not taken back, whoever does that. `of_work`: of the processor's time that the
        thread takes that calls this."""
        self._work_until = time.thread_time() + seconds if of_work else None
        self._extend(seconds)

    def is_over(self) -> bool:
        """Asked where `until` has passed; puts it off where it was not that of the work."""
        if self._work_until is None:
            return True
        left = self._work_until - time.thread_time()
        if left > 0:
            self._extend(left)
        return left <= 0 or self.is_back

    def _extend(self, seconds: float) -> None:
        self.until = time.perf_counter() + seconds
        if self.is_back:  # asked last: it may have been taken back meanwhile
            self.until = -math.inf

    def take_back(self) -> None:
        self.is_back = True
        self.until = -math.inf


class _Given(threading.local):
    leave: Leave | None = None
    """None for those who have all the time there is."""

    known = False
    """Whether any thread ever had one: where none had, as on stdio, a step costs next to nothing."""


_given = _Given()


class Lock(AbstractContextManager[object], Protocol):
    """One of `threading`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


def in_haste() -> bool:
    """Whether this thread has no patience now."""
    return _given.leave is not None and not _given.leave.patient


def waiting_seconds() -> float | None:
    """How long this thread may wait for a lock; None where that is no matter."""
    leave = _given.leave
    if leave is None or leave.patient:
        return None
    return min(MOMENT_SECONDS, max(0.0, leave.until - time.perf_counter()))


def require_patience() -> None:
    """Raises Impatient where there is none. What is begun now, a thread that has it does to its end."""
    leave = _given.leave
    if leave is not None:
        if not leave.patient:
            raise Impatient
        require_time()
        leave.took_patience = True
        _given.leave = None


def require_time() -> None:
    """Raises Impatient where there is none left."""
    if not _Given.known or (leave := _given.leave) is None:
        return
    if time.perf_counter() > leave.until and leave.is_over():
        raise Impatient


def held(lock: Lock) -> AbstractContextManager[object]:
    """Holds `lock`, which somebody else may have for long. Raises Impatient where there is no time for that.

    Who has all the time there is takes the lock itself: an interrupt comes before that or after, and never leaves it
    to nobody.
    """
    left = waiting_seconds()
    return lock if left is None else _Held(lock, left)


class _Held:
    def __init__(self, lock: Lock, left: float) -> None:
        self._lock, self._left = lock, left

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=self._left):
            raise Impatient

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@contextmanager
def taking(leave: Leave) -> Iterator[None]:
    """What this thread does in here it has done while it may, or leaves with Impatient."""
    _Given.known = True
    _given.leave = leave
    try:
        yield
    finally:
        _given.leave = None


def without_patience(seconds: float) -> AbstractContextManager[None]:
    """What this thread does in here it has done by then, or leaves with Impatient."""
    return taking(Leave(seconds, patient=False))


@contextmanager
def waiting_for_nobody() -> Iterator[None]:
    """What this thread does in here takes as long as it takes, but begins nothing that takes patience: that raises
    Impatient, and leaves the thread with the patience that it had. Who tried it has somebody else take the time, and
    waits for that: so it counts as taken."""
    had, _given.leave = _given.leave, Leave(patient=False)
    try:
        yield
    except Impatient:
        if had is not None:
            had.took_patience = True
        raise
    finally:
        _given.leave = had


def as_hasty_as_this(work: Callable[..., Result]) -> Callable[..., Result]:
    """`work`, which whatever thread does it with the leave that this one has."""
    leave = _given.leave
    if leave is None:
        return work

    def done(*given: Any) -> Result:
        with taking(leave):
            return work(*given)

    return done
