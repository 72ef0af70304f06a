"""Reads: begun anew where their log was replaced; those that come by the SDK run by threads, what took long the last
time by a few, and only while somebody waits for them, as plain calls are.

Promises that many clients who read everything hold up neither the event loop nor each other for long
(`docs/decisions/0012`). The few wait for nothing: what would have to is begun anew by one of the many.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from mcp.shared.exceptions import MCPError

from memlog.errors import Closed, LogReplaced, MemlogError, PutAway
from memlog.patience import Impatient, Leave, require_time, taking
from memlog.storage.errors import is_elsewhere
from projections.text.failing import may_have_moved
from server.threads import in_thread

Result = TypeVar("Result")

LOOKS_MAX = 3
"""A read looks so often where its log is replaced each time."""

SLOW_SECONDS = 0.02
"""Of the processor's time; what took longer is slow."""

WORK_SECONDS_MAX = 2 * SLOW_SECONDS
"""Of what nobody knew to be slow. Then it is left to the few: many that go on with it, each a little at a time, would
hold up everybody."""

FEW_THREADS = max(2, min(4, os.cpu_count() or 1))
"""At work at once on what is slow."""

REQUEST_CANCELLED = -32800
"""The SDK's code, which it keeps with its HTTP."""


class GivenUp(MCPError):
    """A read was broken off, or not begun: nobody waits for it any more, nor will read this."""

    def __init__(self) -> None:
        super().__init__(REQUEST_CANCELLED, "Request cancelled")


class Wanted:
    """That somebody waits for the answer to a request. For the event loop's thread alone."""

    def __init__(self) -> None:
        self._leave: Leave | None = None
        self.is_over = False

    def leave(self, *, patient: bool) -> Leave:
        """For a thread that reads; one that was left may still have the one before."""
        self._leave = Leave(patient=patient)
        return self._leave

    def end(self) -> None:
        self.is_over = True
        if self._leave is not None:
            self._leave.take_back()


wanted: ContextVar[Wanted | None] = ContextVar("wanted", default=None)
"""Of the request that is answered; None where nobody knows whether its client is still there."""

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
    gone = isinstance(error, (LogReplaced, PutAway, Closed)) or is_elsewhere(error)
    return gone or may_have_moved(error)  # a purge throws away what others derive meanwhile


async def read_in_thread(kind: str, read: Callable[[], Result]) -> Result:
    """What `read` returns. `kind` is one of a few names. Raises GivenUp where it is not `wanted` any more."""
    request = wanted.get() or Wanted()

    async def run(
        *, patient: bool, bounded: bool = False, limiter: anyio.CapacityLimiter | None = None
    ) -> Result:
        leave = request.leave(patient=patient)

        def timed() -> Result:
            if bounded:
                leave.limit(WORK_SECONDS_MAX, of_work=True)
            with taking(leave):
                require_time()
                began = time.thread_time()
                result = settled(read)
                _seconds[kind] = time.thread_time() - began
                return result

        return await in_thread(timed, limiter=limiter)

    if _seconds.get(kind, 0.0) <= SLOW_SECONDS:
        with suppress(Impatient):
            return await run(patient=True, bounded=True)
        if not request.is_over:
            _seconds[kind] = WORK_SECONDS_MAX
    if not request.is_over:
        with suppress(Impatient):
            return await run(patient=False, limiter=_limiter())
    if request.is_over:
        raise GivenUp
    try:
        return await run(patient=True)
    except Impatient as left:
        raise GivenUp from left


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _few.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(FEW_THREADS)
        _few.set(limiter)
        return limiter
