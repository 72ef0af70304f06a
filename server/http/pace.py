"""Who runs a call over HTTP: the event loop, one of many threads, one of a few, or the one that takes them in turn.

What only reads, and was very quick the last time, or quick and nobody else asks for anything, the event loop runs
itself: waking two threads, on a processor that went to sleep, takes longer than most tools. What took some
milliseconds one thread runs, one after another: threads of one interpreter take it from each other, and eight
searches at once take 1.5 times as long as eight in turn. What took long a few threads run, for nobody is to wait behind
one that is long. All else is for the many, and so is, in the end, whatever has to wait (`memlog.patience`): who has
others to serve does not wait.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Literal

from memlog.patience import without_patience
from server.calls import THREADS_MAX
from server.reading import FEW_THREADS, SLOW_SECONDS
from server.threads import Crew

QUICK_SECONDS, ALONE_SECONDS = 0.0005, SLOW_SECONDS
"""So long at most the last call of a tool took, if the next is run by the event loop, which serves nobody meanwhile:
whoever else is there, and where nobody is. It is broken off after the latter, to be begun anew by a thread; and a tool
whose last call took longer is slow."""

TURN_SECONDS = 0.001
"""From here on a read waits for its turn. Those that take less would wait for longer than they gain."""

TURN_SECONDS_MAX = 2 * SLOW_SECONDS
"""How long a turn lasts. Were it just what is slow, reads that take about as long would often be begun twice."""

ROUNDS = 4
"""Of the event loop until a request that came while it ran a call has reached this place: one in which it is read, one
in which its task begins, and one to spare."""


Who = Literal["many", "few", "one"]
"""Of the threads."""


class Threads:
    """Who runs calls: `many` whatever there is, `few` what is slow, `one` what takes some milliseconds. The latter two
    wait for nothing."""

    def __init__(self) -> None:
        self._crews: dict[Who, Executor] = {
            "many": Crew(THREADS_MAX, "call"),
            "few": Crew(FEW_THREADS, "slow"),
            "one": Crew(1, "read"),
        }

    def submit(self, who: Who, work: Callable[..., object], *given: object) -> None:
        """Raises NoThread where there is none."""
        self._crews[who].submit(work, *given)

    def end(self) -> None:
        """Waits for what they are at; what they did not begin they never will."""
        for each in self._crews.values():
            each.shutdown(wait=False, cancel_futures=True)
        for each in self._crews.values():
            each.shutdown()


class Pace:
    """When the event loop runs a call itself: when the last one of its tool took next to nothing, or took little and
    nobody else waits. What counts is the processor's time."""

    def __init__(self, alone: Callable[[], bool]) -> None:
        """`alone` tells whether nothing but the request that asks is worked on."""
        self._alone = alone
        self._seconds: dict[str, float] = {}
        self._waited: set[str] = set()
        self._rounds = 0

    def allows(self, tool: str) -> bool:
        """Whether the event loop runs its next call."""
        seconds = self._seconds.get(tool, math.inf)
        alone = not self._rounds and self._alone()
        return seconds <= (ALONE_SECONDS if alone else QUICK_SECONDS)

    def who(self, tool: str) -> Who:
        """Who runs the next call of a tool that only reads, where the event loop does not."""
        seconds = self._seconds.get(tool, 0.0)
        if seconds > SLOW_SECONDS:
            return "few"
        return "many" if seconds < TURN_SECONDS or tool in self._waited else "one"

    def left(self, tool: str, seconds: float) -> Who:
        """Who runs a call that was left after so long, for there was no more time, or no patience."""
        if seconds < SLOW_SECONDS:
            return "many"
        self._seconds[tool] = seconds
        return "few"

    def took(self, tool: str, seconds: float, *, waited: bool = False) -> None:
        """What the last call of a tool took, and whether it needed patience."""
        self._seconds[tool] = seconds
        (self._waited.add if waited else self._waited.discard)(tool)

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
