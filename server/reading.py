"""Reads: begun anew where their log was replaced; those that come by the SDK run by threads, what took long the last
time by a few, as plain calls are.

Promises that many clients who read everything hold up neither the event loop nor each other for long
(`docs/decisions/0012`). The few wait for nothing: what would have to is begun anew by one of the many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from memlog.errors import Closed, LogReplaced, MemlogError, PutAway
from memlog.patience import Impatient, Leave, taking
from memlog.storage.errors import is_elsewhere
from server.threads import in_thread

Result = TypeVar("Result")

LOOKS_MAX = 3
"""A read looks so often where its log is replaced each time."""

SLOW_SECONDS = 0.02
"""Of the processor's time; what took longer is slow."""

FEW_THREADS = max(2, min(4, os.cpu_count() or 1))
"""At work at once on what is slow."""

_few: RunVar[anyio.CapacityLimiter] = RunVar("few")
"""Of one event loop."""

_seconds: dict[str, float] = {}
"""What the last of each kind took."""


def settled(read: Callable[[], Result]) -> Result:
    """What `read` returns; it looks again where the log was replaced while it looked, as by a purge, or its project put
    away, and perhaps brought back."""
    for _ in range(LOOKS_MAX - 1):
        try:
            return read()
        except MemlogError as error:
            if not _may_be_had(error):
                raise
    return read()


def _may_be_had(error: MemlogError) -> bool:
    """Whether what was open may be had where it is by now."""
    return isinstance(error, (LogReplaced, PutAway, Closed)) or is_elsewhere(error)


async def read_in_thread(kind: str, read: Callable[[], Result]) -> Result:
    """What `read` returns. `kind` is one of a few names."""

    def timed() -> Result:
        began = time.thread_time()
        result = settled(read)
        _seconds[kind] = time.thread_time() - began
        return result

    def impatient() -> Result:
        with taking(Leave(patient=False)):
            return timed()

    if _seconds.get(kind, 0.0) > SLOW_SECONDS:
        with suppress(Impatient):
            return await in_thread(impatient, limiter=_limiter())
    return await in_thread(timed)


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _few.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(FEW_THREADS)
        _few.set(limiter)
        return limiter
