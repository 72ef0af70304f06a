"""Leaving alone for a while what has just failed, so that not every search waits for it in turn."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

from memlog.errors import EmbeddingError

RETRY_SECONDS = 60.0
"""How long a model that cannot be loaded, or an endpoint that does not answer, is left alone."""


class LeftAlone(EmbeddingError):
    """What failed before, and is not tried again yet; `failure` says how it failed, in the same words all the while."""

    failure = ""


class _Words(NamedTuple):
    message: str
    suggestion: str | None


class Rest:
    """The rest of one model or endpoint. Safe among threads."""

    def __init__(self, clock_seconds: Callable[[], float]) -> None:
        self._clock_seconds = clock_seconds
        self._changing = threading.Lock()
        self._failure: _Words | None = None
        self._until_seconds = 0.0

    @property
    def failed(self) -> bool:
        """Whether the last try failed."""
        return self._failure is not None

    def require_over(self) -> None:
        """Raises the failure anew while the rest lasts; then lets one caller try, and the others when it is
        known how that went, or after as long again."""
        with self._changing:
            if self._failure is None:
                return
            now = self._clock_seconds()
            if now >= self._until_seconds:
                self._until_seconds = now + RETRY_SECONDS
                return
            message, left_seconds = self._failure.message, self._until_seconds - now
            if left_seconds < math.inf:
                message = (
                    f"{message.rstrip('.')}. It is left alone for another "
                    f"{math.ceil(left_seconds)} seconds"
                )
            again = LeftAlone(message, suggestion=self._failure.suggestion)
            again.failure = self._failure.message
            raise again

    def begin(self, failure: EmbeddingError, *, lasting: bool = False) -> None:
        """Keeps its words alone: an exception keeps everything that it went through, a closed project too. A `lasting`
        one is never tried again."""
        with self._changing:
            self._failure = _Words(failure.message, failure.suggestion)
            self._until_seconds = math.inf if lasting else self._clock_seconds() + RETRY_SECONDS

    def end(self) -> None:
        with self._changing:
            self._failure = None
