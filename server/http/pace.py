"""Who runs a call over HTTP: the event loop, one of many threads, or one of a few.

What only reads, and was very quick the last time, or quick and nobody else asks for anything, the event loop runs
itself: waking two threads, on a processor that went to sleep, takes longer than most tools. What took long the last
time a few threads run, one after another: many that go through everything at once take the interpreter from each other
and from the event loop, and none is done before the others are. All else is for the many, and so is, in the end,
whatever has to wait (`memlog.patience`): a few who wait would hold up the rest.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import NamedTuple

from memlog.patience import without_patience
from server.calls import THREADS_MAX
from server.reading import FEW_THREADS, SLOW_SECONDS
from server.threads import Crew

QUICK_SECONDS, ALONE_SECONDS = 0.0005, SLOW_SECONDS
"""So long at most the last call of a tool took, if the next is run by the event loop, which serves nobody meanwhile:
whoever else is there, and where nobody is. It is broken off after the latter, to be begun anew by a thread; and a tool
whose last call took longer is slow."""

ROUNDS = 4
"""Of the event loop until a request that came while it ran a call has reached this place: one in which it is read, one
in which its task begins, and one to spare."""


class Threads(NamedTuple):
    """Who runs calls: `many` threads whatever there is, `few` what is slow and waits for nothing."""

    many: Executor
    few: Executor

    @classmethod
    def started(cls) -> Threads:
        return cls(Crew(THREADS_MAX, "call"), Crew(FEW_THREADS, "slow"))

    def end(self) -> None:
        """Waits for what they are at; what they did not begin they never will."""
        for each in self:
            each.shutdown(wait=False, cancel_futures=True)
        for each in self:
            each.shutdown()


class Pace:
    """When the event loop runs a call itself: when the last one of its tool took next to nothing, or took little and
    nobody else waits. What counts is the processor's time."""

    def __init__(self, alone: Callable[[], bool]) -> None:
        """`alone` tells whether nothing but the request that asks is worked on."""
        self._alone = alone
        self._seconds: dict[str, float] = {}
        self._rounds = 0

    def allows(self, tool: str) -> bool:
        """Whether the event loop runs its next call."""
        seconds = self._seconds.get(tool, math.inf)
        alone = not self._rounds and self._alone()
        return seconds <= (ALONE_SECONDS if alone else QUICK_SECONDS)

    def is_slow(self, tool: str) -> bool:
        return self._seconds.get(tool, 0.0) > ALONE_SECONDS

    def took(self, tool: str, seconds: float) -> None:
        self._seconds[tool] = seconds

    @contextmanager
    def soon(self) -> Iterator[None]:
        """Around a call that the event loop runs. Who comes meanwhile is heard in its next rounds, and does not wait
        in a line. Raises Impatient where the call would take its time."""
        try:
            with without_patience(ALONE_SECONDS):
                yield
        finally:
            if not self._rounds:
                asyncio.get_running_loop().call_soon(self._go_round)
            self._rounds = ROUNDS

    def _go_round(self) -> None:
        self._rounds -= 1
        if self._rounds:
            asyncio.get_running_loop().call_soon(self._go_round)
