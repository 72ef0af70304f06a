"""What is done beside the calls: what was noted on the way is written down every few seconds, files that others removed
are let go of, and where nobody has called for so long, the memory that answers needed goes back to the system.

A client calls a few times, and then for minutes or hours not at all. Whoever looks at the process then sees what it
holds, not what it once touched.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memlog.storage.everywhere import give_back_all
from server.background import in_background

logger = logging.getLogger("memlog.quiet")

QUIET_SECONDS = 3.0
"""At least; it may be twice as long until that is noticed."""

_UNDONE = "what is done beside the calls could not be done"

LOOK_SECONDS = 60.0
"""Where nobody calls, others may remove what is open here: so often that is looked at."""


class Quiet:
    """A thread that begins with the first call, and sleeps where none came for `QUIET_SECONDS`."""

    def __init__(self, write_down: Callable[[], None], let_go: Callable[[], None]) -> None:
        """`let_go` is to close files that others removed."""
        self._write_down = write_down
        self._let_go = let_go
        self._calls = 0
        self._called = threading.Event()
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def called(self) -> None:
        """Somebody calls. Takes no time: this is asked for at every call."""
        self._calls += 1
        if not self._called.is_set():
            self._called.set()
            if self._thread is None:
                self._start()

    def stop(self) -> None:
        self._stopping.set()
        self._called.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopping.is_set():
                without = "memory is not given back while nobody calls"
                self._thread = in_background(
                    self._run, "quiet", without=without, level=logging.DEBUG
                )
                if self._thread is None:  # the next call tries again
                    self._called.clear()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._called.wait(LOOK_SECONDS)
            known = -1
            while known != self._calls:
                self._called.clear()  # first: who calls from now on is seen in the next round
                known = self._calls
                if self._stopping.wait(QUIET_SECONDS):
                    return
                self._do(self._write_down)
                self._do(self._let_go)
            self._do(give_back_all)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:  # as where a disk of the network is away, for each round
            logger.warning("%s: %s", _UNDONE, error)
        except Exception:
            logger.exception(_UNDONE)
