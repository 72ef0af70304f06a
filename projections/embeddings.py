"""The embedder of this process: loaded when it is first needed, or ahead of that in the background.

Loading the model takes a good part of a second, so nothing here imports it until someone asks. What
failed to load is tried again after a while, and says why in the meantime.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from memlog.errors import EmbeddingError
from memlog.settings import Settings
from projections.embedding import CachedEmbedder, EmbedderSpec, VectorCache, open_embedder

RETRY_SECONDS = 60.0

log = logging.getLogger("memlog.embeddings")


class Embeddings:
    """The one embedder that all projects of a process share, with its cache on disk."""

    def __init__(
        self, settings: Settings, clock_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._clock_seconds = clock_seconds
        self._loading = threading.Lock()
        self._embedder: CachedEmbedder | None = None
        self._failure: tuple[float, EmbeddingError] | None = None

    @property
    def switched_off(self) -> bool:
        return self._settings.embedder == "none"

    def get(self) -> CachedEmbedder:
        """The embedder, loaded. Raises EmbeddingError where it is off or cannot be had."""
        if self.switched_off:
            raise EmbeddingError(
                "Search by meaning is switched off",
                suggestion="Start the server with MEMLOG_EMBEDDER=minilm to switch it on.",
            )
        with self._loading:
            if self._embedder is None:
                self._embedder = self._load()
            return self._embedder

    def forget(self, texts: Collection[str]) -> None:
        """Removes the vectors of these texts from every cache there is, whichever embedder made it."""
        with self._loading:
            if self._embedder is not None:  # a file is opened once in a process
                self._embedder.cache.close()
                self._embedder = None
            for path in sorted((self._settings.data_dir / "embeddings").glob("*.mdb")):
                cache = VectorCache(path)
                try:
                    cache.discard(texts)
                    cache.compact()
                finally:
                    cache.close()

    def close(self) -> None:
        with self._loading:
            if self._embedder is not None:
                self._embedder.cache.close()
                self._embedder = None

    def _load(self) -> CachedEmbedder:
        now = self._clock_seconds()
        if self._failure is not None and now - self._failure[0] < RETRY_SECONDS:
            raise self._failure[1]
        settings = self._settings
        folder = settings.data_dir / "embeddings"
        spec = EmbedderSpec(
            backend=settings.embedder,
            model=settings.embedder_model or None,
            base_url=settings.embedder_url or None,
            api_key=settings.embedder_key or None,
            cache_dir=folder,
            model_dir=settings.model_dir,
            max_retries=settings.embedder_retries,
        )
        try:
            embedder = open_embedder(spec)
            assert embedder is not None, "only the backend 'none' opens nothing"
            cache = VectorCache(folder / f"{embedder.key}.mdb")
            loaded = CachedEmbedder(embedder, cache, pieces=settings.piece_vectors)
        except EmbeddingError as error:
            log.warning("the embedder %s cannot be loaded: %s", settings.embedder, error)
            self._failure = (now, error)
            raise
        self._failure = None
        return loaded
