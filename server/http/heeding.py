"""Whether the client of a request is still there: it may have gone, or have been told that it takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from server.http.bodies import Whole

HEEDLESS_SECONDS = 0.25
"""After which it is heeded whether the client of a read is still there: hardly any takes as long."""


@contextmanager
def heeding(receive: Whole, gone: Callable[[], object]) -> Iterator[None]:
    """Calls `gone` once the client is, if that is while this lasts."""
    loop = asyncio.get_running_loop()
    task: asyncio.Task[None] | None = None

    async def heed() -> None:
        await receive.gone()
        gone()

    def begin() -> None:
        nonlocal task
        task = loop.create_task(heed())

    timer = loop.call_later(HEEDLESS_SECONDS, begin)
    try:
        yield
    finally:
        timer.cancel()
        if task is not None:
            task.cancel()
