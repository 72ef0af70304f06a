"""The vectors of the embedder before, which serve until those of the present one are complete.

Promises: nothing is embedded for them but the question. They reach as far as the texts that were embedded
before, by their snapshot and the shared cache; what came later is found by words, and by meaning when the
new vectors are there. Whoever searches never waits for another thread that opens them.

Left to others: when they are wanted (`questions`), when the new ones are complete (`follow`), and what may
be removed (`folders`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memlog.errors import EmbeddingError, StorageError
from projections.embedding import CachedEmbedder
from projections.embeddings import Embeddings
from projections.vectors.folders import Use, VectorFolders
from projections.vectors.projector import VectorProjector

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

LOADING_SECONDS = 5.0
"""How long a search waits for the embedder before to be loaded, from when that begins."""

Advance = Callable[[VectorProjector, int], None]
"""Brings a projector up to a position, or a batch nearer to it. Raises EmbeddingError."""

log = logging.getLogger("memlog.vectors")


class Meaning(NamedTuple):
    """Vectors to search in, and the embedder that made them."""

    embedder: CachedEmbedder
    vectors: VectorProjector


class _Opened(NamedTuple):
    key: str
    vectors: VectorProjector
    use: Use


class Previous:
    """Of one project. `folders` and `advance` are the project's."""

    def __init__(self, folders: VectorFolders, embeddings: Embeddings, advance: Advance) -> None:
        self._folders = folders
        self._embeddings = embeddings
        self._advance = advance
        self._working = threading.RLock()  # whom an interrupt strikes as it is taken can still end
        self._opened: _Opened | None = None
        self._followed_all = False

    def serving(self, own: Path | None, head: int, patience_seconds: float) -> Meaning | None:
        """The best there is besides the folder `own`; None where there is none that can be opened."""
        deadline = time.monotonic() + patience_seconds
        if self._working.acquire(blocking=False):
            try:
                if self._opened is None:
                    self._opened = self._first_that_opens(own)
                if self._opened is not None:
                    self._follow(self._opened.vectors, head, deadline)
            finally:
                self._working.release()
        opened = self._opened
        if opened is None or opened.vectors.position == 0:
            return None
        try:
            return Meaning(self._embeddings.earlier(opened.key, LOADING_SECONDS), opened.vectors)
        except (EmbeddingError, StorageError):
            return None

    def end(self) -> None:
        """Lets go of them; the memory is free when the last search that uses it has ended."""
        with self._working:
            if self._opened is not None:
                self._opened.use.end()
            self._opened, self._followed_all = None, False

    def _first_that_opens(self, own: Path | None) -> _Opened | None:
        for folder, key in self._folders.earlier(own):
            try:
                dimensions = self._embeddings.earlier(key, LOADING_SECONDS).dimensions
            except (EmbeddingError, StorageError) as error:
                log.debug("the vectors in %s cannot be searched: %s", folder, error.message)
                continue
            use = Use(folder)
            return _Opened(key, VectorProjector(folder, self._stored_of(key), dimensions), use)
        return None

    def _stored_of(self, key: str) -> Callable[[Sequence[str]], Vectors]:
        return lambda texts: self._embeddings.earlier(key).stored(texts)

    def _follow(self, vectors: VectorProjector, head: int, deadline: float) -> None:
        """To the first text that has no stored vector; from smaller and smaller batches, since one is applied
        whole or not at all."""
        count = VectorProjector.batch_entries
        while not self._followed_all and vectors.position < head and time.monotonic() < deadline:
            try:
                self._advance(vectors, min(head, vectors.position + count))
            except (EmbeddingError, StorageError):
                count //= 2
                self._followed_all = count == 0
