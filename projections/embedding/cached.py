"""An embedder that embeds no text twice: vectors of documents on disk, of queries in memory.

Promises: a text is embedded once per machine and model, whoever asks, in however many processes;
all vectors have passed through float16, fresh or stored, so they are equal bit for bit. What has
been embedded before a failure stays stored. Leaves to its callers which texts they bring at once:
all vectors of a call are in memory, 1.5 KB a text and width of 384.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from memlog.errors import EmbeddingError, StorageError
from memlog.patience import require_patience
from projections.embedding.computing import computes
from projections.embedding.embedder import REQUEST_TEXTS_MAX, PieceEmbedder
from projections.embedding.store import VectorCache, halved, key_of, normal

if TYPE_CHECKING:
    from projections.embedding.embedder import Embedder, Vectors
    from projections.embedding.pieces import Asked

BATCH_TEXTS_MAX = 64
QUERIES_MAX, QUERY_PIECES_MAX = 1024, 16_384
"""How many questions are remembered, and how many pieces they may have in all: some 20 MB."""
SOON_CHARACTERS_MAX = 250
"""Of a question that is embedded in some 10 ms. Of one of 10,000 characters, that takes five times as long."""


class CachedEmbedder:
    """`embedder` in front of `cache`. Safe to call from several threads at once."""

    def __init__(self, embedder: Embedder, cache: VectorCache, *, pieces: bool = True) -> None:
        """With `pieces`, those of each text are stored beside its vector, where the embedder has them. Those of a
        question, which are never stored, are told without that, too."""
        self._embedder = embedder
        self._asked = embedder if isinstance(embedder, PieceEmbedder) else None
        self._with_pieces = self._asked if pieces else None
        # What an endpoint returned is kept though it refuses the next request, as where they are counted by the minute.
        self._batch_texts_max = BATCH_TEXTS_MAX if self._asked else REQUEST_TEXTS_MAX
        self.cache = cache
        self.key = embedder.key
        self.dimensions = embedder.dimensions
        self._queries: OrderedDict[str, tuple[Vectors, Asked | None]] = OrderedDict()
        self._query_pieces = 0
        self._along: set[str] = set()
        """Questions that wait to be embedded together with texts."""
        self._queries_lock = threading.Lock()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """The vectors of `texts`, float32 (len(texts), dimensions), embedding what is not stored.

        Raises EmbeddingError, also where they can be neither read nor stored.
        """
        import numpy as np

        wanted = [normal(text) for text in texts]
        distinct = list(dict.fromkeys(wanted))
        with self._of_the_cache():
            found = self._stored(distinct)
            # Texts of like length share a batch, for the model pads all of it to the longest.
            missing = sorted((text for text in distinct if text not in found), key=len)
            for start in range(0, len(missing), self._batch_texts_max):
                found |= self._embedded_once(missing[start : start + self._batch_texts_max])
        rows = np.empty((len(texts), self.dimensions), np.float32)
        for row, text in enumerate(wanted):
            rows[row] = found[text]
        return rows

    def stored(self, texts: Sequence[str]) -> Vectors:
        """The vectors of `texts` out of the cache. Raises EmbeddingError where one is not there, or cannot be read."""
        import numpy as np

        with self._of_the_cache():
            found = self.cache.get_many(texts)
        rows = [row for row in found if row is not None and len(row) == self.dimensions]
        if len(rows) < len(texts):
            raise EmbeddingError(
                f"{len(texts) - len(rows)} of {len(texts)} texts have no stored vector of {self.key}"
            )
        return np.array(rows, np.float32).reshape(len(rows), self.dimensions)

    @property
    def has_pieces(self) -> bool:
        return self._with_pieces is not None

    def query_vector(self, text: str) -> Vectors:
        """The vector of `text`, float32 (dimensions,), read-only. Waits for no other process."""
        return self.query(text)[0]

    def query(self, text: str) -> tuple[Vectors, Asked | None]:
        """The vector of `text` and its pieces, where this embedder has them."""
        text = normal(text)
        with self._queries_lock:
            if text in self._queries:
                self._queries.move_to_end(text)
                return self._queries[text]
        vector, asked = self._embedded_query(text)
        self._remember(text, vector, asked)
        return vector, asked

    @contextmanager
    def taking_along(self, question: str) -> Iterator[None]:
        """Whoever embeds texts with their pieces meanwhile embeds the question with them, which takes less time than by
        itself. It is remembered then; perhaps nobody comes by, and it is not."""
        text = normal(question)
        with self._queries_lock:
            if text not in self._queries:
                self._along.add(text)
        try:
            yield
        finally:
            with self._queries_lock:
                self._along.discard(text)

    def pieces(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The stored pieces of the texts with these keys; None for all where this embedder has none, or none can be
        read."""
        if self.has_pieces:
            with suppress(EmbeddingError), self._of_the_cache():
                return self.cache.pieces(keys)
        return [None] * len(keys)

    @contextmanager
    def _of_the_cache(self) -> Iterator[None]:
        """Words need no vectors: where the file of these fails, no more than they is missing."""
        try:
            yield
        except StorageError as error:
            raise EmbeddingError(
                f"Vectors can be neither read nor stored: {error.message}",
                suggestion=error.suggestion,
            ) from error

    def _embedded_once(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """At most one batch in one turn, so that a short call waits for no long one; but for one batch it may, and for
        a process that was stopped with the turn."""
        require_patience()
        with self.cache.turn.held():
            found = self._stored(texts)  # perhaps by whoever had the turn before
            missing = [text for text in texts if text not in found]
            if missing:
                fresh = self._embed_and_put(missing)
                found |= zip(missing, fresh, strict=True)
        return found

    def _remember(self, text: str, vector: Vectors, asked: Asked | None) -> None:
        vector.flags.writeable = False  # it is shared by all who ask for this text
        with self._queries_lock:
            self._forget(text)
            self._queries[text] = vector, asked
            self._query_pieces += _count(asked)
            while len(self._queries) > QUERIES_MAX or self._query_pieces > QUERY_PIECES_MAX:
                self._forget(next(iter(self._queries)))

    def _forget(self, question: str) -> None:
        _, asked = self._queries.pop(question, (None, None))
        self._query_pieces -= _count(asked)

    def _embedded_query(self, text: str) -> tuple[Vectors, Asked | None]:
        if len(text) > SOON_CHARACTERS_MAX:
            require_patience()
        if self._asked is None:
            computes()
            return halved(self._embedder.embed([text]))[0], None
        vector, asked = self._asked.asked(text)
        return halved(vector), asked

    def _embed_and_put(self, texts: Sequence[str]) -> Vectors:
        if self._with_pieces is None:
            computes()
            vectors, pieces = self._embedder.embed(texts), None
        else:
            with self._queries_lock:
                questions, self._along = [*self._along], set()
            vectors, pieces, asked = self._with_pieces.embed_with_pieces(texts, questions)
            for question, (vector, told) in zip(questions, asked, strict=True):
                self._remember(question, halved(vector), told)
        fresh = halved(vectors)
        self.cache.put_many(texts, fresh, pieces)
        return fresh

    def _stored(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """What the cache has, less what cannot be this embedder's or lacks its pieces: then it is
        embedded anew."""
        vectors = self.cache.get_many(texts)
        whole: Sequence[bytes | bool | None] = [True] * len(texts)
        if self.has_pieces:
            whole = self.cache.pieces([key_of(text) for text in texts])
        return {
            text: vector
            for text, vector, pieces in zip(texts, vectors, whole, strict=True)
            if vector is not None and len(vector) == self.dimensions and pieces is not None
        }


def _count(asked: Asked | None) -> int:
    return 0 if asked is None else len(asked.words)
