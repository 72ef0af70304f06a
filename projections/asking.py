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
            if now > min(self._until.values(), default=now):
                return _refused(_unanswered(mode))
            asked = meanwhile(ask)
            self._until[asked] = now + ANSWER_SECONDS[mode]
        asked.add_done_callback(self._end)
        return asked

    def answer(self, asked: Future[Answer], mode: Mode) -> Answer:
        """Raises what `ask` raised, and EmbeddingError where it takes too long."""
        try:
            return asked.result(ANSWER_SECONDS[mode])
        except TimeoutError:
            if not asked.done():
                raise _unanswered(mode) from None
            return asked.result()  # it came in this very moment, or is what `ask` raised
        finally:
            del asked  # an exception keeps this frame, and would be kept by what the frame has

    def _end(self, asked: Future[Any]) -> None:
        with self._changing:
            self._until.pop(asked, None)


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


def _unanswered(mode: Mode) -> EmbeddingError:
    return EmbeddingError(
        f"The embedder does not answer within {ANSWER_SECONDS[mode]:g} seconds",
        suggestion="Ask again in a while; `memlog doctor` says whether it is there.",
    )
