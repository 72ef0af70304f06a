"""Questions on their way to becoming vectors, and how long a search waits for that.

A local model answers in milliseconds, an endpoint in a tenth of a second, or not at all. Who can do without an answer
waits for it no longer than is bearable, and nobody waits behind a question that waited in vain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

from memlog.errors import EmbeddingError
from memlog.patience import in_haste
from memlog.settings import Mode

ANSWER_SECONDS: dict[Mode, float] = {"hybrid": 10.0, "semantic": 50.0}
"""How long a search waits, all in all. Most clients wait for an answer for 60 seconds."""

AGAIN_SECONDS = 1.0
"""How long one waits that can do without, where the question before was not answered in time."""

MEANWHILE: Executor = ThreadPoolExecutor(32, "meanwhile")
"""Where a question is turned into a vector, and the vectors catch up, while its words are looked for."""

Answer = TypeVar("Answer")


def meanwhile(work: Callable[..., Answer], *given: Any) -> Future[Answer]:
    """What `work` returns, done by another thread."""
    return MEANWHILE.submit(work, *given)


class Asking:
    """The questions of one process that are under way. Safe among threads.

    `require` raises EmbeddingError where no question is ever answered.
    """

    def __init__(self, require: Callable[[], None]) -> None:
        self._require = require
        self._changing = threading.Lock()
        self._until: dict[Future[Any], float] = {}
        """By when each should be answered that is not (monotonic seconds)."""
        self._in_vain = False
        """Whether the last question of which that is known was not answered in time."""

    def begin(self, ask: Callable[[], Answer], mode: Mode) -> Future[Answer]:
        """What `ask` returns, in a while; EmbeddingError at once, with nothing asked, where none is answered, or
        another waits in vain."""
        try:
            self._require()
        except EmbeddingError as error:
            return _refused(error)
        if in_haste():
            return _now(ask)
        now = time.monotonic()
        with self._changing:
            seconds = self._seconds(mode)
            if now > min(self._until.values(), default=now):
                return _refused(_unanswered(seconds))
            asked = meanwhile(ask)
            self._until[asked] = now + seconds
        asked.add_done_callback(self._end)
        return asked

    def answer(self, asked: Future[Answer], mode: Mode) -> Answer:
        """Raises what `ask` raised, and EmbeddingError where it takes too long."""
        seconds = self._seconds(mode)
        try:
            return asked.result(seconds)
        except TimeoutError:
            if not asked.done():
                self._in_vain = True
                raise _unanswered(seconds) from None
            return asked.result()  # it came in this very moment, or is what `ask` raised
        finally:
            del asked  # an exception keeps this frame, and would be kept by what the frame has

    def _seconds(self, mode: Mode) -> float:
        seconds = ANSWER_SECONDS[mode]
        return min(seconds, AGAIN_SECONDS) if self._in_vain and mode == "hybrid" else seconds

    def _end(self, asked: Future[Any]) -> None:
        """However late, an answer is one."""
        with self._changing:
            self._until.pop(asked, None)
            if asked.exception() is None:
                self._in_vain = False


def _now(ask: Callable[[], Answer]) -> Future[Answer]:
    """Asked by this thread: another would have patience."""
    asked: Future[Answer] = Future()
    try:
        asked.set_result(ask())
    except EmbeddingError as error:
        return _refused(error)
    return asked


def _refused(error: EmbeddingError) -> Future[Any]:
    refused: Future[Any] = Future()
    refused.set_exception(error.with_traceback(None))
    return refused


def _unanswered(seconds: float) -> EmbeddingError:
    return EmbeddingError(
        f"The embedder does not answer within {seconds:g} {'second' if seconds == 1 else 'seconds'}",
        suggestion="Ask again in a while; `memlog doctor` says whether it is there.",
    )
