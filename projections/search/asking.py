"""Questions on their way to becoming vectors, and how long a search waits for that.

A local model answers in milliseconds: it is asked by the thread that searches, for to wake another one and to be woken
by it takes a good part of that. An endpoint answers in a tenth of a second, or not at all. Who can do without an
answer waits for it no longer than is bearable, and nobody waits behind a question that waited in vain.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, Generic, Self, TypeVar

from memlog.crew import MORE_THREADS, Crew
from memlog.errors import EmbeddingError
from memlog.patience import Impatient, as_hasty_as_this, in_haste, waiting_for_nobody
from memlog.settings import Mode
from projections.embedding.computing import announcing, nothing

ANSWER_SECONDS: dict[Mode, float] = {"hybrid": 10.0, "semantic": 50.0}
"""How long a search waits, all in all. Most clients wait for an answer for 60 seconds."""

BEGUN_SECONDS = 0.003
"""How long who asks, and has something else to do meanwhile, waits until the other thread computes, which for a few new
texts takes a good millisecond. Both of them running Python takes twice that, and more."""

AGAIN_SECONDS = 1.0
"""How long one waits that can do without, where the question before was not answered in time."""

PATIENT_MAX, CROWDED_SECONDS = 16, 3.0
"""So many callers wait the full time, later ones only this long: an endpoint that hangs must not hold all of the 40
threads that serve calls, and so keep out writes and searches by words."""

IN_A_WHILE = "Ask again in a while; `memlog doctor` says whether it is there."

MEANWHILE: Executor = Crew(32, "meanwhile")
"""Where words are looked for while a question is turned into a vector, by an endpoint there, too; and where the vectors
catch up."""

Answer = TypeVar("Answer")


class Meanwhile(Generic[Answer]):
    """What `work` returns, done by another thread once it is begun, as hastily as by this one; by this one when it asks
    for that, where it was not begun, no other is to be had, or all others are busy."""

    def __init__(self, work: Callable[..., Answer], *given: Any) -> None:
        self._work = partial(work, *given)
        # The other thread logs under the id of this request.
        self._there = partial(copy_context().run, as_hasty_as_this(self._work))
        self._begun: list[Future[Answer]] = []
        """To be taken out: an exception would keep the frame, the frame its future, that the exception."""

    def begin(self) -> Self:
        """Once; what comes after changes nothing."""
        if not self._begun:
            with suppress(RuntimeError):  # where no thread is to be had
                self._begun.append(MEANWHILE.submit(self._there))
        return self

    @property
    def was_begun(self) -> bool:
        """Whether another thread does it, or did."""
        return bool(self._begun)

    @property
    def is_under_way(self) -> bool:
        """Whether it was begun, and is not at its end."""
        return self.was_begun and not self._begun[0].done()

    def result(self) -> Answer:
        """Once; raises what `work` raised."""
        if not self._begun or self._begun[0].cancel():
            return self._work()
        return self._begun.pop().result()


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

    def begin(
        self, ask: Callable[[], Answer], mode: Mode, meanwhile: Callable[[], object] = nothing
    ) -> Future[Answer]:
        """What `ask` returns: now, where it has not to wait for anybody, else in a while; EmbeddingError at once, with
        nothing asked, where none is answered, or another waits in vain.

        This thread begins `meanwhile` when it is about to compute. Where another one asks, this returns when that one
        is, if it is soon.
        """
        try:
            self._require()
        except EmbeddingError as error:
            return _refused(error)
        with announcing(meanwhile):
            if in_haste():  # another thread would have patience
                return _now(ask)
            with suppress(Impatient), waiting_for_nobody():
                return _now(ask)
        now = time.monotonic()
        with self._changing:
            if now > min(self._until.values(), default=now):
                return _refused(_not_asked())
            computes = threading.Event()
            try:
                asked = MEANWHILE.submit(copy_context().run, _telling, ask, computes)
            except RuntimeError as error:
                return _refused(
                    EmbeddingError(
                        f"The question is not embedded: {error}", suggestion=MORE_THREADS
                    )
                )
            self._until[asked] = now + self._seconds(mode)
        asked.add_done_callback(self._end)
        computes.wait(BEGUN_SECONDS)
        return asked

    def answer(self, asked: Future[Answer], mode: Mode) -> Answer:
        """Raises what `ask` raised, and EmbeddingError where it takes too long."""
        seconds = self._seconds(mode)
        if crowded := self._is_crowded(asked):
            seconds = min(seconds, CROWDED_SECONDS)
        try:
            return asked.result(seconds)
        except TimeoutError:
            if not asked.done():
                self._in_vain = self._in_vain or not crowded
                raise _unanswered(seconds) from None
            return asked.result()  # it came in this very moment, or is what `ask` raised
        finally:
            del asked  # an exception keeps this frame, and would be kept by what the frame has

    def _is_crowded(self, asked: Future[Any]) -> bool:
        """Whether as many as may wait long were there before."""
        with self._changing:
            return asked in [*self._until][PATIENT_MAX:]

    def _seconds(self, mode: Mode) -> float:
        seconds = ANSWER_SECONDS[mode]
        return min(seconds, AGAIN_SECONDS) if self._in_vain and mode == "hybrid" else seconds

    def _end(self, asked: Future[Any]) -> None:
        """However late, an answer is one."""
        with self._changing:
            self._until.pop(asked, None)
            if asked.exception() is None:
                self._in_vain = False


def _telling(ask: Callable[[], Answer], computes: threading.Event) -> Answer:
    """Sets `computes` once it does, or is at its end."""
    try:
        with announcing(computes.set):
            return ask()
    finally:
        computes.set()


def _now(ask: Callable[[], Answer]) -> Future[Answer]:
    """Asked by this thread."""
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


def _not_asked() -> EmbeddingError:
    return EmbeddingError(
        "The embedder still does not answer an earlier question, so it was not asked this one",
        suggestion=IN_A_WHILE,
    )


def _unanswered(seconds: float) -> EmbeddingError:
    return EmbeddingError(
        f"The embedder does not answer within {seconds:g} {'second' if seconds == 1 else 'seconds'}",
        suggestion=IN_A_WHILE,
    )
