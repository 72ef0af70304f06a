"""An embedder that is loaded in a thread of its own, for which nobody waits longer than he likes.

Loading takes half a second where the model is on this machine, minutes where it must be downloaded, and as long as it
pleases an endpoint that is asked for the first time. What failed to load is left alone for a while (`rest`).
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections.abc import Callable

from memlog.crew import MORE_THREADS
from memlog.errors import EmbeddingError, MemlogError
from memlog.patience import require_patience
from memlog.storage.errors import for_shortage
from projections.embedding import CachedEmbedder, Embedder
from projections.embedding.rest import Rest

logger = logging.getLogger("memlog.loading")

AGAIN_SECONDS = 1.0
"""How long somebody waits who can do without it, where it failed before."""


class _Attempt:
    """One try to load, begun now."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.over = threading.Event()
        self.loaded: CachedEmbedder | None = None
        self.failure: BaseException | None = None

    def result(self, until: float) -> CachedEmbedder:
        """Waits until then, on the monotonic clock."""
        left = max(0.0, until - time.monotonic())
        if not self.over.wait(min(left, threading.TIMEOUT_MAX)):
            raise EmbeddingError(
                "The embedder is still being loaded, perhaps downloaded: "
                f"{time.monotonic() - self.begun:.0f} seconds so far",
                suggestion="Ask again in a while. `memlog doctor` waits for it, and says what fails.",
            )
        if self.failure is not None:
            raise self.failure
        assert self.loaded is not None, "it is over"
        return self.loaded


class Loader:
    """One embedder, loaded when it is first asked for. Safe among threads.

    `open_` takes its time, and raises EmbeddingError. `keep` makes of what it opened that which is shared, under
    `lock`, which nobody holds for long.
    """

    def __init__(
        self,
        open_: Callable[[], Embedder],
        keep: Callable[[Embedder], CachedEmbedder],
        lock: threading.Lock,
        rest: Rest,
    ) -> None:
        self._open = open_
        self._keep = keep
        self._lock = lock
        self._rest = rest
        self._last: _Attempt | None = None
        self.loaded: CachedEmbedder | None = None

    def get(self) -> CachedEmbedder:
        """However long it takes. Raises EmbeddingError where it cannot be loaded."""
        return self.loaded or self._attempt().result(math.inf)

    def soon(self, seconds: float) -> CachedEmbedder:
        """For those who can do without: nobody waits for what has been under way for so long, and hardly for what
        failed before. Raises EmbeddingError."""
        if self.loaded is not None:
            return self.loaded
        patience_seconds = min(seconds, AGAIN_SECONDS) if self._rest.failed else seconds
        attempt = self._attempt()
        return attempt.result(attempt.begun + patience_seconds)

    def is_loaded(self, patience_seconds: float) -> bool:
        """Whether it is by then. Raises EmbeddingError where it cannot be."""
        attempt = self._attempt()
        if not attempt.over.wait(patience_seconds):
            return False
        attempt.result(attempt.begun)
        return True

    def forget(self) -> None:
        """It is loaded anew when somebody asks for it again. To be called under the lock."""
        self.loaded = None
        if self._last is not None and self._last.over.is_set():
            self._last = None

    def _attempt(self) -> _Attempt:
        """The one that is under way or has just ended well, or a new one."""
        require_patience()
        with self._lock:
            last = self._last
            if last is not None and (self.loaded is not None or not last.over.is_set()):
                return last
            self._rest.require_over()
            attempt = self._last = _Attempt()
        loading = threading.Thread(target=self._load, args=(attempt,), name="loading", daemon=True)
        try:
            loading.start()
        except RuntimeError as error:
            self._failed(
                attempt,
                EmbeddingError(f"The embedder cannot be loaded: {error}", suggestion=MORE_THREADS),
            )
        return attempt

    def _load(self, attempt: _Attempt) -> None:
        try:
            opened = self._open()
            with self._lock:
                attempt.loaded = self.loaded = self._keep(opened)
            self._rest.end()
        except Exception as error:
            failure = error if isinstance(error, MemlogError) else _told(error)
            if isinstance(failure, EmbeddingError):
                self._rest.begin(failure, lasting=_is_half_imported("numpy"))
            self._failed(attempt, failure)
        except BaseException as error:
            self._failed(attempt, error)
        attempt.over.set()

    def _failed(self, attempt: _Attempt, error: BaseException) -> None:
        attempt.failure = error
        with self._lock:
            self._last = None  # or it would keep whatever the failure goes through
        attempt.over.set()


def _told(error: Exception) -> EmbeddingError:
    """Of a library that fails."""
    logger.error("the embedder cannot be loaded", exc_info=error)
    return EmbeddingError(
        f"The embedder cannot be loaded: {type(error).__name__}: {error}",
        suggestion=f"{for_shortage(error) or ''} Where this goes on, start the server again.".lstrip(),
    )


def _is_half_imported(package: str) -> bool:
    """Whether its import was broken off, as for lack of file handles: its parts stay, are not read again, and know
    nothing of what comes after. Then it fails at one thing or another for as long as the process lives."""
    parts = f"{package}."
    return package not in sys.modules and any(name.startswith(parts) for name in sys.modules)
