"""Calls on stdio that come one after another, as nearly all do: one thread reads a call, runs it and answers it.

Where the event loop reads and another thread runs, waking that thread takes a tenth of a millisecond, and what it
needs lies in the other processor's caches: a search takes a quarter longer. So while nothing else is going on, the
event loop lends the reading of stdin to a thread of its own. That gives it back with whatever it cannot do alone:
several lines at once, a line that is no plain call, the end of the input, an answer that the client is slow to take.
And while it runs a call, the event loop is woken by whatever else arrives and takes the reading back; so a slow call
holds up nobody.

Promises that one at a time reads, in the order in which bytes came. Linux only, for `epoll`; where it is not, or
stdin is a file, the event loop reads everything. What a line means is left to `direct`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Self

import anyio
from mcp_types import RequestId

from server.background import in_background
from server.calls import PlainCall
from server.stdio.descriptors import read_chunk
from server.stdio.direct import Direct
from server.stdio.lines import Line, LineCutter

logger = logging.getLogger(__name__)

Returned = Callable[[Iterable[Line], bool], None]
"""Told in the event loop that the reading is its own again: what was read and not done, and whether it was the end."""


class Solo:
    """What is not `_listen`, or called by it, runs in the event loop's thread."""

    def __init__(self, source: int, cutter: LineCutter, direct: Direct, returned: Returned) -> None:
        self._source, self._cutter = source, cutter
        self._direct = direct
        self._returned = returned
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None
        self._lent = threading.Semaphore(0)
        self._home = anyio.Event()
        """Set while the event loop has the reading, and nothing that was read is on its way to it."""
        self._home.set()
        self._lock = threading.Lock()
        self._running: RequestId | None = None
        """The call that the thread runs, as long as the reading is its own."""
        self._over = False
        self._recalled = os.eventfd(0)  # type: ignore[attr-defined, unused-ignore]
        self._ready = select.poll()
        for descriptor in (source, self._recalled):
            self._ready.register(descriptor, select.POLLIN)
        self._others = select.epoll()  # type: ignore[attr-defined, unused-ignore]
        """Watches stdin for the event loop while a call runs."""
        self._loop.add_reader(self._others.fileno(), self._take_back)

    @classmethod
    def where_possible(
        cls, source: int, cutter: LineCutter, direct: Direct, returned: Returned
    ) -> Self | None:
        if not hasattr(select, "epoll"):
            return None
        try:
            with select.epoll() as tried:
                tried.register(source)
        except OSError:
            return None
        return cls(source, cutter, direct, returned)

    def lend(self) -> bool:
        """Lends the reading, which is the event loop's and now nobody's; still nobody's where it cannot be lent."""
        if self._thread is None:
            without = "reading stays in the event loop"
            self._thread = in_background(self._listen, "solo", without=without, level=logging.DEBUG)
            if self._thread is None:
                return False
        self._home = anyio.Event()
        self._lent.release()
        return True

    def recall(self) -> None:
        """Asks for the reading, for good: the thread ends with the call that it runs, if it runs one."""
        self._over = True
        os.eventfd_write(self._recalled, 1)  # type: ignore[attr-defined, unused-ignore]
        self._lent.release()

    async def wait_home(self) -> None:
        """Until the reading is the event loop's."""
        await self._home.wait()

    def close(self) -> None:
        """At the end, when the reading was recalled and has come home."""
        if self._thread is not None:
            self._thread.join()
        self._loop.remove_reader(self._others.fileno())
        self._others.close()
        os.close(self._recalled)

    def _take_back(self) -> None:
        """Something arrives while a call runs: from now on it is a call like those of other threads."""
        self._others.poll(0)
        with self._lock:
            running, self._running = self._running, None
        if running is not None:  # else it has ended meanwhile, and its thread reads on
            self._direct.adopt(running)
            self._come_home()

    def _come_home(self, lines: Iterable[Line] = (), *, ended: bool = False) -> None:
        self._home.set()
        self._returned(lines, ended)

    def _come_home_late(self, request_id: RequestId, finish: Callable[[], None]) -> None:
        """The client is slow to take the answer."""
        self._direct.adopt(request_id)
        finish()
        self._come_home()

    # -- the thread

    def _listen(self) -> None:
        while True:
            self._lent.acquire()
            if self._over:
                self._post(self._come_home)
                return
            try:
                while self._goes_on():
                    pass
            except BaseException:  # nobody would read any more
                logger.exception("reading goes on in the event loop")
                self._post(self._come_home)

    def _goes_on(self) -> bool:
        """Reads once and does it; whether the reading is still this thread's."""
        if any(descriptor == self._recalled for descriptor, _ in self._ready.poll()):
            self._post(self._come_home)
            return False
        chunk = read_chunk(self._source)
        if chunk is None:
            return True
        lines = list(self._cutter.feed(chunk) if chunk else self._cutter.finish())
        if chunk and not lines:
            return True
        call = self._direct.only(lines) if chunk else None
        if call is not None:
            return self._answered(call)
        self._post(partial(self._come_home, lines, ended=not chunk))
        return False

    def _answered(self, call: PlainCall) -> bool:
        """Runs a call; whether the reading was left to this thread."""
        with self._direct.turn(call):  # before anybody hears of what came behind it
            self._running = call.id
            once = select.EPOLLIN | select.EPOLLONESHOT  # type: ignore[attr-defined, unused-ignore]
            self._others.register(self._source, once)
            try:
                ran = self._direct.run(call)
            finally:  # before it is answered: the next line may come with the answer's last byte
                self._others.unregister(self._source)
                with self._lock:
                    alone, self._running = self._running is not None, None
        rest = self._direct.send(ran)
        if alone and rest is None:
            self._direct.tell(ran)
            return True
        finish = partial(self._direct.finish, ran, rest)
        self._post(partial(self._come_home_late, ran.id, finish) if alone else finish)
        return False

    def _post(self, action: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, after a second word of what it knows
            self._loop.call_soon_threadsafe(action)
