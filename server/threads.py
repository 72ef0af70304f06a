"""Threads for what somebody waits for, where the system grants them.

Where it grants no more, those of a `Crew` do what it is handed. Where it has none, and where `in_thread` is granted
none, whoever asked is told so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from memlog import crew
from memlog.patience import Impatient

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class NoThread(MCPError):
    """What was to be run was not begun, and never will be."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__(
            INTERNAL_ERROR,
            f"The system grants the server no thread for this ({error}); nothing was done",
            {
                "suggestion": "Send it again in a moment, or raise the limit of processes (ulimit -u)."
            },
        )


class Panic(Exception):
    """Of a library. What arrives of it is no Exception, and would end the event loop instead of one call."""


class Crew(crew.Crew):
    """One whose `submit` raises NoThread where there is none."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError as error:
            raise _refused(error) from error


async def in_thread(
    run: Callable[[], Result],
    *,
    limiter: anyio.CapacityLimiter | None = None,
    abandon_on_cancel: bool = False,
) -> Result:
    """What `run` returns, run by a thread. Raises NoThread where none is to be had, and Panic."""
    begun = False

    def begin() -> Result:
        nonlocal begun
        begun = True
        try:
            return run()
        except (Exception, Impatient):
            raise
        except BaseException as error:
            raise Panic(str(error)) from error

    try:
        return await anyio.to_thread.run_sync(
            begin, limiter=limiter, abandon_on_cancel=abandon_on_cancel
        )
    except RuntimeError as error:
        if begun:
            raise
        raise _refused(error) from error


def _refused(error: RuntimeError) -> NoThread:
    logger.warning("no thread is to be had: %s", error)
    return NoThread(error)
