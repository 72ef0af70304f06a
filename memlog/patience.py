"""Doing something soon, or not at all.

A thread that has others to serve may try something `without_patience`. Whatever may take longer than looking things
up (opening a project, waiting for another process, catching up, asking an endpoint) calls `require_patience`
before it begins; what may go on and on (going through rows, reading the log) calls `require_time` at every step; and
a lock that somebody else may have for longer than a moment is `Held`. There that raises `Impatient`, and nothing has
happened: what only reads can be begun anew by a thread that may take its time. Everywhere else it does nothing.

Left to who tries: the one call into a library that takes long by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Impatient(BaseException):
    """It would take its time. No Exception, for nobody on the way is to make an answer of it."""


class _Haste(threading.local):
    until: float | None = None
    """By when it is to be done (`time.perf_counter`); None for those with patience."""

    known = False
    """Whether any thread ever was in haste: where none was, as on stdio, a step costs next to nothing."""


_haste = _Haste()


class Lock(Protocol):
    """One of `threading`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...


def in_haste() -> bool:
    """Whether this thread has no patience now."""
    return _haste.until is not None


def seconds_left() -> float | None:
    """How long this thread may wait; None where that is no matter."""
    return None if _haste.until is None else max(0.0, _haste.until - time.perf_counter())


def require_patience() -> None:
    """Raises Impatient where there is none."""
    if _haste.until is not None:
        raise Impatient


def require_time() -> None:
    """Raises Impatient where there is none left."""
    if _Haste.known and (until := _haste.until) is not None and time.perf_counter() > until:
        raise Impatient


class Held:
    """Holds `lock`, which somebody else may have for long. Raises Impatient where there is no time for that."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        left = seconds_left() if _Haste.known else None
        if not self._lock.acquire(timeout=-1 if left is None else left):
            raise Impatient

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@contextmanager
def without_patience(seconds: float) -> Iterator[None]:
    """What this thread does in here it has done by then, or leaves with Impatient."""
    _Haste.known = True
    _haste.until = time.perf_counter() + seconds
    try:
        yield
    finally:
        _haste.until = None
