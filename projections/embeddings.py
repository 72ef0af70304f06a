"""The embedder of this process, loaded when it is first needed, and those that others or it had before.

Loading a model takes a good part of a second, so nothing here imports it until someone asks. What
failed to load is left alone for a while (`rest`), and says why in the meantime.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection

import msgspec

from memlog.errors import EmbeddingError
from memlog.settings import Settings
from projections.embedding import CachedEmbedder, EmbedderSpec, VectorCache, open_embedder
from projections.embedding.described import describe, described, description_of
from projections.embedding.rest import Rest

log = logging.getLogger("memlog.embeddings")


class Embeddings:
    """The one embedder that all projects of a process share, with its cache on disk."""

    def __init__(
        self, settings: Settings, clock_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._folder = settings.data_dir / "embeddings"
        self._loading = threading.Lock()
        self._embedder: CachedEmbedder | None = None
        self._earlier: dict[str, CachedEmbedder] = {}
        self._caches: dict[str, VectorCache] = {}
        """By key: a file is opened once in a process."""
        self._rest = Rest(clock_seconds)
        self._rests: defaultdict[str, Rest] = defaultdict(lambda: Rest(clock_seconds))

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
        return self._embedder or self._loaded(
            self._rest, lambda: self._embedder, self._load_present
        )

    def earlier(self, key: str) -> CachedEmbedder:
        """The embedder of this key, as it was opened when it made its vectors.

        Raises EmbeddingError where nobody knows it any more, or it cannot be had.
        """
        if self._embedder is not None and self._embedder.key == key:
            return self._embedder
        return self._earlier.get(key) or self._loaded(
            self._rests[key], lambda: self._earlier.get(key), lambda: self._load_earlier(key)
        )

    def caches(self) -> dict[str, VectorCache]:
        """All caches there are, by the key of the embedder."""
        with self._loading:
            return {
                path.stem: self._cache(path.stem) for path in sorted(self._folder.glob("*.mdb"))
            }

    def forget(self, texts: Collection[str]) -> None:
        """Removes the vectors of these texts from every cache there is, whichever embedder made it."""
        self.close()
        try:
            for cache in self.caches().values():
                cache.discard(texts)
                cache.compact()
        finally:
            self.close()

    def close(self) -> None:
        with self._loading:
            self._embedder = None
            self._earlier.clear()
            for cache in self._caches.values():
                cache.close()
            self._caches.clear()

    # -- inside

    def _loaded(
        self,
        rest: Rest,
        present: Callable[[], CachedEmbedder | None],
        load: Callable[[], CachedEmbedder],
    ) -> CachedEmbedder:
        """Loads once, whoever asks. Who asks while a second try is under way is told of the first."""
        again = rest.failed
        if again:
            rest.require_over()
        with self._loading:
            if (embedder := present()) is not None:
                return embedder
            if not again:
                rest.require_over()  # it may have failed while this thread waited
            try:
                embedder = load()
            except EmbeddingError as error:
                rest.begin(error)
                raise
            rest.end()
            return embedder

    def _load_present(self) -> CachedEmbedder:
        spec = self._spec()
        try:
            self._embedder = self._open(spec)
        except EmbeddingError as error:
            log.warning("the embedder %s cannot be loaded: %s", spec.backend, error)
            raise
        describe(self._folder, self._embedder.key, description_of(spec))
        return self._embedder

    def _load_earlier(self, key: str) -> CachedEmbedder:
        spec = self._spec_of(key)
        embedder = self._open(spec)
        if embedder.key != key:
            raise EmbeddingError(
                f"The embedder {key} is another one by now: its vectors are those of {embedder.key}",
                suggestion="Nothing is to be done: the vectors of the present embedder take its place.",
            )
        self._earlier[key] = embedder
        return embedder

    def _spec(self) -> EmbedderSpec:
        settings = self._settings
        return EmbedderSpec(
            backend=settings.embedder,
            model=settings.embedder_model or None,
            base_url=settings.embedder_url or None,
            api_key=settings.embedder_key or None,
            cache_dir=self._folder,
            model_dir=settings.model_dir,
            max_retries=settings.embedder_retries,
        )

    def _spec_of(self, key: str) -> EmbedderSpec:
        """The key of an endpoint is sent to no other address than the one it was set for."""
        present = self._spec()
        mine, wanted = description_of(present), described(self._folder, key)
        if wanted is None or wanted == mine:
            raise EmbeddingError(
                f"The embedder {key} cannot be opened: "
                + ("it is the one that is set" if wanted else "nothing is written down about it"),
                suggestion="Set MEMLOG_EMBEDDER and its model as they were, or wait for the new vectors.",
            )
        same_address = (
            wanted.base_url
            == description_of(msgspec.structs.replace(present, backend="openai")).base_url
        )
        return msgspec.structs.replace(
            present,
            backend=wanted.backend,
            model=wanted.model,
            base_url=present.base_url if same_address else wanted.base_url,
            api_key=present.api_key if same_address else None,
            max_retries=0,
        )

    def _open(self, spec: EmbedderSpec) -> CachedEmbedder:
        embedder = open_embedder(spec)
        assert embedder is not None, "only the backend 'none' opens nothing"
        pieces = self._settings.piece_vectors
        return CachedEmbedder(embedder, self._cache(embedder.key), pieces=pieces)

    def _cache(self, key: str) -> VectorCache:
        if key not in self._caches:
            self._caches[key] = VectorCache(self._folder / f"{key}.mdb")
        return self._caches[key]
