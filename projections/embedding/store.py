"""Vectors on disk by the content of their text, and those of its pieces: a cache that may be lost but never
lies.

Promises: what `get_many` returns was stored whole, by this or another process, for exactly this
text. A file that is not, or no longer, an LMDB file is thrown away and begun anew; one that another process
wrote anew is followed. Leaves to `cached` what is worth storing, and to the file's name which embedder made it.

Every commit is synced, which costs 0.3 ms a batch. LMDB without sync would keep its promise
through `kill -9` but not through a power failure: the kernel may write the page that points before
the page it points to, and the tree is then torn without a sign of it.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb

from memlog.patience import held
from memlog.storage.derived import derived
from memlog.storage.environment import MAP_BYTES_START
from memlog.storage.filling import compact
from memlog.storage.gates import SMALL_CALLS
from projections.embedding.fair import FairLock

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

KEY_BYTES = 16
DATABASE, PIECES = "vectors", "pieces"
DATABASES = (DATABASE, PIECES)
HALF = "<f2"


def normal(text: str) -> str:
    """The form in which texts are compared and embedded.

    NFC, so that é is one text however it is written, and without halves of surrogate pairs, which
    no tokenizer takes.
    """
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode()


def halved(vectors: Vectors) -> Vectors:
    """`vectors` as they come back from the cache: rounded to float16, in float32.

    Fresh vectors take this way too, so that an index built as texts arrive equals one rebuilt from
    the cache. Their length is then one to within 0.0003.
    """
    import numpy as np

    return vectors.astype(HALF).astype(np.float32)


class VectorCache:
    """One LMDB file of text → vector. Safe among threads and processes; one object per path."""

    def __init__(self, path: Path, *, map_bytes: int = MAP_BYTES_START) -> None:
        self.path = path
        self.turn = FairLock(path.with_name(f"{path.name}.embedding"))
        """Whose turn it is to embed texts, and to store what comes of them."""
        self._environment = derived(path, DATABASES, map_bytes=map_bytes, own_folder=True)

    def get_many(self, texts: Sequence[str]) -> list[Vectors | None]:
        """For each text its vector as float32 (dimensions,), or None where there is none."""
        import numpy as np

        with self._environment.read() as transaction:
            database = self._environment.databases[DATABASE]
            stored = [transaction.get(key_of(text), db=database) for text in texts]
        return [None if v is None else np.frombuffer(v, HALF).astype(np.float32) for v in stored]

    def pieces(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """What `put_many` was given for the pieces of the texts with these keys."""
        with held(SMALL_CALLS), self._environment.read() as transaction:
            database = self._environment.databases[PIECES]
            found = [transaction.get(key, db=database) for key in keys]
        return [None if pieces is None else bytes(pieces) for pieces in found]

    def put_many(
        self, texts: Sequence[str], vectors: Vectors, pieces: Sequence[bytes] | None = None
    ) -> None:
        """Stores `vectors` (len(texts), dimensions) as float16, and `pieces`, in one transaction."""
        keys = [key_of(text) for text in texts]
        stored = [vector.tobytes() for vector in vectors.astype(HALF)]

        def body(transaction: lmdb.Transaction) -> None:
            for database, values in ((DATABASE, stored), (PIECES, pieces)):
                for key, value in zip(keys, values or (), strict=values is not None):
                    transaction.put(key, value, db=self._environment.databases[database])

        self._environment.write(body)

    def settle(self) -> None:
        """Returns when what was being embedded before, by this process or another, is stored."""
        with self.turn.held():
            pass

    def keys(self) -> set[bytes]:
        """Those of all texts that it has."""
        with self._environment.read() as transaction:
            found: set[bytes] = set()
            for database in DATABASES:
                cursor = transaction.cursor(db=self._environment.databases[database])
                found.update(map(bytes, cursor.iternext(keys=True, values=False)))
        return found

    def discard(self, texts: Iterable[str]) -> None:
        """Forgets these texts. The bytes stay in free pages of the file until they are reused, or until
        `compact`."""
        self.discard_keys([key_of(text) for text in texts])

    def discard_keys(self, keys: Collection[bytes]) -> None:
        """The same for the texts with these keys."""

        def body(transaction: lmdb.Transaction) -> None:
            for database in DATABASES:
                for key in keys:
                    transaction.delete(key, db=self._environment.databases[database])

        self._environment.write(body)

    def compact(self) -> None:
        """Writes the file anew. Whoever has it open, this process or another, opens the new one when it next asks."""
        compact(self._environment)

    def close(self) -> None:
        self._environment.close()


def key_of(text: str) -> bytes:
    """128 bits: among a billion texts, two share a key with a chance of 1 in 10²⁰."""
    return hashlib.sha256(normal(text).encode()).digest()[:KEY_BYTES]
