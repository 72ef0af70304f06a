"""The vector projection: documents found by the meaning of their text, now or at a past position.

It lives in the memory of each process and follows the log there. What it must not lose to be quick
again, it keeps in a snapshot now and then (`snapshot`); what came after is embedded again, which
is cheap while the embedder's cache has the texts.

Promises:
- A batch is applied whole or not at all: all its texts are embedded in one call, before anything
  changes, and where that fails the position stays. Changes up to the position are skipped.
- The rows, their cosines and the order of hits depend on the log alone, not on how it was cut into
  batches, nor on which part of it came from a snapshot.
- Searches run in any number of threads while one applies. They wait for additions to the index, a few
  rows at a time (`turns`), never for the embedder, and see a batch as a whole.

Left to others: embedding, and keeping vectors on disk by text; noticing that the log is shorter than
the position (`reset`); when to call `maybe_save`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, assert_never

import msgspec

from memlog.errors import ProjectNotFound, StorageError
from memlog.storage.resident import give_back_freed
from projections.documents import NOW, WORDED_ONLY, Born, Change, Died, Document, Kind, Scope
from projections.protocol import Batch
from projections.vectors.snapshot import Snapshot, SnapshotFolder
from projections.vectors.turns import Turns

if TYPE_CHECKING:
    import numpy as np

    from projections.vectors.index import VectorIndex, Vectors
    from projections.vectors.look import Look
    from projections.vectors.rows import Rows

VECTORS_VERSION = 12
"""Of the snapshot's content: rows, vectors, codes. Part of the folder's name, which the caller gives."""

Embed = Callable[[Sequence[str]], "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]

BATCH_BYTES_MAX = 32 * 1024
"""Some 250 passages: a batch is embedded as a whole, and whoever searches waits for the end of it."""

ROWS_PER_TURN = 256
SAVE_ROWS_MIN = 1_000
SAVE_SHARE = 0.10
LEAD_POSITIONS_MIN = 1_000
LEAD_SHARE = 0.10

log = logging.getLogger("memlog.vectors")


class VectorHit(msgspec.Struct, frozen=True, gc=False):
    """A document near the query, or like the text; `cosine`, or how like, within -1..1."""

    ref: str
    kind: Kind
    entity: str
    cosine: float


class _State(NamedTuple):
    position: int
    rows: Rows
    vectors: VectorIndex


class VectorProjector:
    """Projector of documents into vectors. `path` is this process's and others' folder of snapshots.

    `embed` turns n texts into float32 (n, dimensions) of unit length, or raises EmbeddingError.
    """

    name = "vectors"
    batch_entries = 64
    batch_bytes = BATCH_BYTES_MAX

    def __init__(self, path: Path, embed: Embed, dimensions: int) -> None:
        self._embed = embed
        self._dimensions = dimensions
        self._folder = SnapshotFolder(path)
        self._turns = Turns()
        self._driving = threading.Lock()
        self._state = self._newest(after=0) or self._empty()
        self._saved_rows = len(self._state.rows)

    # -- following the log

    @property
    def position(self) -> int:
        return self._state.position

    @property
    def rows(self) -> int:
        """How many a search compares at most: of all passages of all documents, living or not."""
        return self._state.vectors.count

    def apply(self, batch: Batch) -> None:
        """Raises EmbeddingError, with nothing changed, where the texts cannot be embedded."""
        with self._driving:
            position, rows, index = self._state
            changes = [each for each in batch.changes if each.position > position and _embeds(each)]
            documents = [change.document for change in changes if isinstance(change, Born)]
            if documents:
                self._add(self._embedded(documents), rows, index)
            with self._turns.writing():
                try:
                    for change in changes:
                        _change(rows, change)
                except BaseException:
                    self._state = self._empty()  # a row may have broken off amid: all are read anew
                    raise
                self._state = _State(max(position, batch.position), rows, index)

    def refresh(self) -> None:
        """Takes over another process's snapshot that is far ahead; a small lead is quicker embedded."""
        position, rows, _ = self._state
        after = position + max(LEAD_POSITIONS_MIN, int(len(rows) * LEAD_SHARE))
        if not any(newer > after for newer in self._folder.positions()):
            return
        with self._driving:
            loaded = self._newest(after=after)
            if loaded is not None and loaded.position > self._state.position:
                self._replace(loaded)

    def reset(self) -> None:
        with self._driving:
            self._folder.clear()
            self._replace(self._empty())

    def digest(self) -> str:
        with self._driving:
            _, rows, index = self._state
            return sha256(rows.to_bytes() + index.numbers_bytes(len(rows))).hexdigest()

    def close(self) -> None:
        """Frees the memory. What was not saved is computed again another time."""
        with self._driving:
            self._replace(self._empty())

    # -- searching

    def alike(self, vectors: Vectors, scope: Scope = NOW, *, limit: int) -> list[VectorHit]:
        """The `limit` documents most like the text whose passages have these `vectors`, (passages, dimensions), as
        `most_alike` says."""
        from projections.vectors.look import most_alike

        looks = self._looks(vectors, scope)
        rows, alike = most_alike(looks, limit)
        found = looks[0].described(rows)
        return list(map(VectorHit, found.refs, found.kinds, found.entities, alike.tolist()))

    def look(self, vector: Vectors, scope: Scope = NOW) -> Look:
        """For one search that has several questions."""
        return self._looks([vector], scope)[0]

    def _looks(self, vectors: Iterable[Vectors], scope: Scope) -> list[Look]:
        """By each of these, at the same rows."""
        from projections.vectors.index import accepted_query
        from projections.vectors.look import Look

        queries = [accepted_query(vector, self._dimensions) for vector in vectors]
        _, rows, index = self._state
        return [Look(index.asked(query), rows, index, self._turns, scope) for query in queries]

    # -- snapshots

    def save(self) -> None:
        """Writes a snapshot of all that was applied. Raises StorageError."""
        with self._driving:
            position, rows, index = self._state
            if position == 0:
                return
            count = len(rows)
            snapshot = Snapshot(
                position,
                self._dimensions,
                rows.to_bytes(),
                index.numbers_bytes(count),
                index.codes_bytes(),
            )
        self._folder.write(snapshot)
        self._saved_rows = count

    def maybe_save(self) -> bool:
        """Saves where enough was added since the last time; tells whether it did.

        A snapshot that cannot be written is reported, and tried again after as many rows more.
        """
        count = len(self._state.rows)
        if count - self._saved_rows <= max(SAVE_ROWS_MIN, count * SAVE_SHARE):
            return False
        try:
            self.save()
        except ProjectNotFound:
            return False
        except StorageError as error:
            log.warning("%s", error.message)
            self._saved_rows = count
            return False
        return True

    def _newest(self, after: int) -> _State | None:
        """The newest snapshot that can be used, of a position beyond `after`."""
        for position in self._folder.positions():
            if position <= after:
                break
            snapshot = self._folder.read(position)
            if snapshot is None:
                continue
            try:
                return self._restored(snapshot)
            except ValueError as error:
                self._folder.discard(position, str(error))
            finally:
                del snapshot
                give_back_freed()
        return None

    def _restored(self, snapshot: Snapshot) -> _State:
        from projections.vectors.index import VectorIndex
        from projections.vectors.rows import Rows

        if snapshot.dimensions != self._dimensions:
            raise ValueError(f"{snapshot.dimensions} dimensions instead of {self._dimensions}")
        rows = Rows.from_bytes(snapshot.rows)
        index = VectorIndex.restored(self._dimensions, snapshot.numbers, snapshot.codes)
        if len(rows) != index.count:
            raise ValueError(f"{len(rows)} rows and {index.count} vectors")
        return _State(snapshot.position, rows, index)

    # -- state

    def _empty(self) -> _State:
        from projections.vectors.index import VectorIndex
        from projections.vectors.rows import Rows

        return _State(0, Rows(), VectorIndex(self._dimensions))

    def _replace(self, state: _State) -> None:
        with self._turns.writing():
            self._state = state
            self._saved_rows = len(state.rows)

    def _embedded(self, documents: Sequence[Document]) -> Vectors:
        from projections.vectors.index import accepted

        texts = [passage for document in documents for passage in document.passages]
        return accepted(self._embed(texts), len(texts), self._dimensions)

    def _add(self, vectors: Vectors, rows: Rows, index: VectorIndex) -> None:
        """Appends to the index; the rows, without which nothing is found, follow in one turn.

        Where an earlier try broke off in between, the index already has the first of these vectors:
        the log gives the same rows every time.
        """
        missing = vectors[index.count - len(rows) :]
        for start in range(0, len(missing), ROWS_PER_TURN):
            with self._turns.writing():
                index.add(missing[start : start + ROWS_PER_TURN])


def _embeds(change: Change) -> bool:
    return not (isinstance(change, Born) and change.document.kind in WORDED_ONLY)


def _change(rows: Rows, change: Change) -> None:
    match change:
        case Born(document=document):
            rows.add(document)
        case Died(ref=ref, position=position):
            rows.retire(ref, position)
        case _:
            assert_never(change)
