"""The embedder of this process, loaded when it is first needed, and those that others or it had before.

Loading a model takes a good part of a second, so nothing here imports it until someone asks. How that goes on, and
what becomes of one that fails, is `loading`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from memlog.errors import EmbeddingError, StorageError
from memlog.settings import Settings
from projections.embedding import (
    CachedEmbedder,
    Embedder,
    EmbedderSpec,
    VectorCache,
    open_embedder,
)
from projections.embedding.described import describe, described, description_of
from projections.embedding.rest import Rest
from projections.loading import Loader
from projections.search.asking import Asking

log = logging.getLogger("memlog.embeddings")


class Embeddings:
    """The one embedder that all projects of a process share, with its cache on disk."""

    def __init__(
        self, settings: Settings, clock_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._folder = settings.data_dir / "embeddings"
        self._clock_seconds = clock_seconds
        self._changing = threading.Lock()
        self._closed = False
        self._present = self._loader(self._open_present)
        self._earlier: dict[str, Loader] = {}
        self._caches: dict[str, VectorCache] = {}
        """By key: a file is opened once in a process."""
        self.asking = Asking(self._require_on)

    @property
    def switched_off(self) -> bool:
        return self._settings.embedder == "none"

    @property
    def at_hand(self) -> bool:
        """Whether the embedder is loaded; nothing is done to load it."""
        return self._present.loaded is not None

    def keys(self) -> list[str]:
        """The embedder's; until it is loaded, those of embedders that were opened before with the same settings."""
        if (present := self._present.loaded) is not None:
            return [present.key]
        mine = description_of(self._spec())
        keys = (path.stem for path in self._folder.glob("*.json"))
        return [key for key in keys if described(self._folder, key) == mine]

    def get(self) -> CachedEmbedder:
        """The embedder, loaded, however long that takes. Raises EmbeddingError where it is off or cannot be had."""
        self._require_on()
        return self._present.get()

    def soon(self, seconds: float) -> CachedEmbedder:
        """The same for those who can do without: see `Loader.soon`."""
        self._require_on()
        return self._present.soon(seconds)

    def is_loaded(self, patience_seconds: float) -> bool:
        """Whether it is there by then, which somebody else may be waiting for, too. Raises EmbeddingError where it
        cannot be had."""
        self._require_on()
        return self._present.is_loaded(patience_seconds)

    def earlier(self, key: str, seconds: float = math.inf) -> CachedEmbedder:
        """The embedder of this key, as it was opened when it made its vectors; `seconds` as in `soon`.

        Raises EmbeddingError where nobody knows it any more, or it cannot be had.
        """
        present = self._present.loaded
        if present is not None and present.key == key:
            return present
        with self._changing:
            if key not in self._earlier:
                self._earlier[key] = self._loader(partial(self._open_earlier, key))
            loader = self._earlier[key]
        return loader.soon(seconds)

    def caches(self) -> dict[str, VectorCache]:
        """All caches there are, by the key of the embedder."""
        with self._changing:
            return {
                path.stem: self._cache(path.stem) for path in sorted(self._folder.glob("*.mdb"))
            }

    def forget(self, texts: Collection[str]) -> None:
        """Removes the vectors of these texts from every cache there is, whichever embedder made it."""
        self._let_go()
        try:
            for cache in self.caches().values():
                cache.discard(texts)
                cache.compact()
        finally:
            self._let_go()

    def close(self) -> None:
        """Waits for nothing that is being loaded: it is not kept any more."""
        self._closed = True
        self._let_go()

    # -- inside

    def _require_on(self) -> None:
        if self.switched_off:
            usual = self._settings.search_mode == "semantic"  # of each search that names no other
            raise EmbeddingError(
                "Search by meaning is switched off",
                suggestion="Start the server with MEMLOG_EMBEDDER=minilm to switch it on"
                + (", or set MEMLOG_SEARCH_MODE=text to go by words." if usual else "."),
            )

    def _let_go(self) -> None:
        with self._changing:
            for loader in (self._present, *self._earlier.values()):
                loader.forget()
            for cache in self._caches.values():
                cache.close()
            self._caches.clear()

    def _loader(self, open_: Callable[[], Embedder]) -> Loader:
        return Loader(open_, self._kept, self._changing, Rest(self._clock_seconds))

    def _kept(self, embedder: Embedder) -> CachedEmbedder:
        if self._closed:
            raise EmbeddingError("The embedder was loaded when it was needed no more")
        try:
            cache = self._cache(embedder.key)
        except StorageError as error:
            # Words need no vectors, and the disk may have room again in a while.
            raise EmbeddingError(
                f"Vectors cannot be stored: {error.message}", suggestion=error.suggestion
            ) from error
        return CachedEmbedder(embedder, cache, pieces=self._settings.piece_vectors)

    def _open_present(self) -> Embedder:
        spec = self._spec()
        try:
            embedder = open_embedder(spec)
        except EmbeddingError as error:
            log.warning(
                "the embedder %s cannot be loaded: %s. %s",
                spec.backend,
                error.message.rstrip("."),
                error.suggestion or "",
            )
            raise
        describe(self._folder, embedder.key, description_of(spec))
        return embedder

    def _open_earlier(self, key: str) -> Embedder:
        embedder = open_embedder(self._spec_of(key))
        if embedder.key != key:
            raise EmbeddingError(
                f"The embedder {key} is another one by now: its vectors are those of {embedder.key}",
                suggestion="Nothing is to be done: the vectors of the present embedder take its place.",
            )
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

    def _cache(self, key: str) -> VectorCache:
        if key not in self._caches:
            self._caches[key] = VectorCache(self._folder / f"{key}.mdb")
        return self._caches[key]
