"""The bare parts: what a benchmark's work costs where nothing of memlog is in the way.

Each is as plain as the library allows and keeps its files beside those of what is measured, on the same disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb
import tantivy

from memlog.storage.disk import sync

SYNCED_BYTES = 200
HITS = 25
"""As many as `search_nodes` shows."""
CODES_FROM, LEARNT_FROM = 2_000, 20_000
NUMBERS_A_CODE, PROPOSED = 4, 360

# What LMDB asks for: macOS has no `fdatasync`, and `fsync` is less there.
_synced = getattr(os, "fdatasync", sync)


class SyncedWrite:
    """`write(200 bytes)` at the end of a file, then `fdatasync`."""

    name = "synced write of 200 bytes"

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._block = bytes(SYNCED_BYTES)

    def write(self, _: int) -> None:
        self.write_all(self._block)

    def write_all(self, data: bytes) -> None:
        os.write(self._file, data)
        _synced(self._file)

    def close(self) -> None:
        os.close(self._file)


class ThreePuts:
    """A synced LMDB transaction that puts three values."""

    name = "LMDB, three puts"

    def __init__(self, path: Path) -> None:
        self._env = lmdb.open(str(path), subdir=False, map_size=1 << 28)
        self._value = bytes(SYNCED_BYTES)

    def write(self, number: int) -> None:
        with self._env.begin(write=True) as transaction:
            for put in range(3):
                transaction.put((3 * number + put).to_bytes(8, "big"), self._value)

    def close(self) -> None:
        self._env.close()


class BareText:
    """A tantivy index on disk with one stemmed and one trigram field."""

    def __init__(self, folder: Path) -> None:
        builder = tantivy.SchemaBuilder()
        builder.add_text_field("words", stored=True, tokenizer_name="en_stem")
        builder.add_text_field("parts", tokenizer_name="parts", index_option="basic")
        folder.mkdir(parents=True)
        self._index = tantivy.Index(builder.build(), path=str(folder))
        trigrams = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(3, 3, False)).build()
        self._index.register_tokenizer("parts", trigrams)
        self._index.config_reader("manual")

    def add(self, texts: Sequence[str]) -> tantivy.IndexWriter:
        """Commits `texts` and sees them. The writer that is returned must be finished with."""
        writer = self._index.writer(60_000_000 if len(texts) > 1 else 15_000_000, 1)
        for text in texts:
            writer.add_document(tantivy.Document(words=text, parts=text))
        writer.commit()
        self._index.reload()
        return writer

    @classmethod
    def over(cls, texts: Sequence[str], folder: Path) -> None:
        """Indexes `texts` in a folder of their own, to the last merge, and removes it."""
        index = cls(folder)
        index.finish(index.add(texts))
        shutil.rmtree(folder)

    @staticmethod
    def finish(writer: tantivy.IndexWriter) -> None:
        writer.wait_merging_threads()

    def search(self, query: str) -> list[Any]:
        """The best `HITS` for any of the query's words, with their texts."""
        searcher = self._index.searcher()
        found = searcher.search(self._index.parse_query(query, ["words"]), HITS).hits
        return [searcher.doc(address)["words"] for _, address in found]


class BareVectors:
    """A FAISS index over `vectors`: the quickest that finds about as much as memlog does. While they are few all are
    compared, else FAISS learns codes of four bits for it, and compares what these propose."""

    def __init__(self, vectors: Any) -> None:
        import faiss

        # One query in two threads takes many times as long where another program has a processor: each waits
        # for the other. memlog's own searches stay in theirs.
        faiss.omp_set_num_threads(1)
        count, dimensions = vectors.shape
        index: Any = faiss.IndexFlatIP(dimensions)
        if count >= CODES_FROM:
            self._codes = faiss.IndexPQFastScan(
                dimensions, dimensions // NUMBERS_A_CODE, 4, faiss.METRIC_INNER_PRODUCT
            )
            index = faiss.IndexRefineFlat(self._codes)
            index.k_factor = PROPOSED / HITS
            index.train(vectors[:LEARNT_FROM])
        index.add(vectors)
        self._index = index
        self._vectors = vectors

    def search(self, number: int) -> Any:
        """The nearest `HITS` to one of the vectors themselves."""
        row = number % len(self._vectors)
        return self._index.search(self._vectors[row : row + 1], HITS)
