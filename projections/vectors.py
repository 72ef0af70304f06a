"""The vector projection: documents found by the meaning of their text, now or at a past position.

It lives in the memory of each process and follows the log there. What it must not lose to be quick
again, it keeps in a snapshot now and then (`vector_snapshot`); what came after is embedded again, which
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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, assert_never

import msgspec

from memlog.errors import StorageError
from projections.documents import Born, Change, Died, Document, Kind
from projections.protocol import Batch
from projections.turns import Turns
from projections.vector_snapshot import Snapshot, SnapshotFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.vector_index import VectorIndex, Vectors
    from projections.vector_rows import Rows

VECTORS_VERSION = 3
"""Of the snapshot's content: rows, vectors, graph. Part of the folder's name, which the caller gives."""

Embed = Callable[[Sequence[str]], "np.ndarray[tuple[int, ...], np.dtype[np.float32]]"]

ROWS_PER_TURN = 16
SAVE_ROWS_MIN = 1_000
SAVE_SHARE = 0.10
LEAD_POSITIONS_MIN = 1_000
LEAD_SHARE = 0.10

log = logging.getLogger("memlog.vectors")

Places: TypeAlias = "NDArray[np.int64]"


class VectorHit(msgspec.Struct, frozen=True):
    """A document near the query; `cosine` within -1..1."""

    ref: str
    kind: Kind
    entity: str
    cosine: float


class Surroundings(NamedTuple):
    """Documents, and what there is to know about them; `Places` are into `refs`, -1 where there is none."""

    refs: list[str]
    new: list[VectorHit]
    """The last of them, which were not asked about."""
    close: Places
    """The leading ones and what stands right beside them, ascending."""
    keys: list[bytes]
    """Under which the pieces of the texts of the close ones are stored."""
    beside_close: tuple[Places, Places]
    """Of each close one, which close one stands right before it, and which after it; counted among them."""
    asking: NDArray[np.float32]
    """How much of each text are questions, 0..1."""
    named: NDArray[np.bool_]
    """Whether the name of the document's entity is in the question."""
    beside: Mapping[int, Places]
    """By distance, what was written down so many places before (below 0) or after each."""


class _State(NamedTuple):
    position: int
    rows: Rows
    vectors: VectorIndex


class VectorProjector:
    """Projector of documents into vectors. `path` is this process's and others' folder of snapshots.

    `embed` turns n texts into float32 (n, dimensions) of unit length, or raises EmbeddingError.
    `graph_from_rows` is where search becomes approximate; default `vector_index.GRAPH_FROM_ROWS`.
    """

    name = "vectors"
    shared = False

    def __init__(
        self, path: Path, embed: Embed, dimensions: int, *, graph_from_rows: int | None = None
    ) -> None:
        self._embed = embed
        self._dimensions = dimensions
        self._graph_from_rows = graph_from_rows
        self._folder = SnapshotFolder(path)
        self._turns = Turns()
        self._driving = threading.Lock()
        self._state = self._newest(after=0) or self._empty()
        self._saved_rows = len(self._state.rows)

    # -- following the log

    @property
    def position(self) -> int:
        return self._state.position

    def apply(self, batch: Batch) -> None:
        """Raises EmbeddingError, with nothing changed, where the texts cannot be embedded."""
        with self._driving:
            position, rows, index = self._state
            changes = [change for change in batch.changes if _position(change) > position]
            documents = [change.document for change in changes if isinstance(change, Born)]
            self._add(self._embedded(documents), rows, index)
            with self._turns.writing():
                for change in changes:
                    _change(rows, change)
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

    def search(
        self,
        vector: Vectors,
        *,
        at: int | None = None,
        limit: int,
        kinds: Collection[Kind] | None = None,
        labels: Iterable[str] = (),
    ) -> list[VectorHit]:
        """The `limit` documents nearest to `vector` (unit length), best first, equals by ref.

        Of those living now, or `at` a position; of one of `kinds`; bearing every one of `labels`.
        """
        from projections.vector_index import accepted_query

        query = accepted_query(vector, self._dimensions)
        with self._turns.reading():
            position, rows, index = self._state
            selection = rows.select(_past(at, position), kinds, labels)
            found, cosines = index.nearest(query, selection, limit)
            described = list(rows.described(found))
        # A ref is there once: nothing behind it is ever compared.
        best = sorted(zip((-cosines).tolist(), described, strict=True))[: max(0, limit)]
        return [VectorHit(*document, -cosine) for cosine, document in best]

    def cosines(
        self, vector: Vectors, refs: Iterable[str], *, at: int | None = None
    ) -> dict[str, float]:
        """The cosine to `vector` of those of `refs` that are living now, or `at` a position."""
        import numpy as np

        from projections.vector_index import accepted_query

        query = accepted_query(vector, self._dimensions)
        with self._turns.reading():
            position, rows, index = self._state
            living = rows.living_rows(refs, _past(at, position))
            cosines = index.cosines(query, np.fromiter(living.values(), np.int64, len(living)))
        return dict(zip(living, cosines.tolist(), strict=True))

    def surroundings(
        self,
        vector: Vectors,
        refs: Sequence[str],
        *,
        leading: int,
        reach: int,
        words: Set[str],
        at: int | None = None,
        kinds: Collection[Kind] | None = None,
        labels: Iterable[str] = (),
    ) -> Surroundings:
        """Those of `refs` that are living now, or `at` a position; and after them what was written down in
        the same conversation right beside one of the first `leading`, if it is of one of `kinds` and
        bears all `labels`. `words` are those of the question, `reach` is how far neighbours may stand.
        """
        import numpy as np

        from projections.vector_index import accepted_query

        query = accepted_query(vector, self._dimensions)
        with self._turns.reading():
            position, rows, index = self._state
            past = _past(at, position)
            living = rows.living_rows(refs, past)
            own = np.fromiter(living.values(), np.int64, len(living))
            first = np.array([living[ref] for ref in refs[:leading] if ref in living], np.int64)
            new = np.setdiff1d(rows.companions(first, past), own)
            new = new[rows.fit(new, kinds, labels)]
            described = zip(rows.described(new), index.cosines(query, new).tolist(), strict=True)
            hits = [VectorHit(*document, cosine) for document, cosine in described]
            every = np.concatenate([own, new])
            found = rows.around(every, reach, past)
            places = _places(every)
            beside = {distance: places(other) for distance, other in found.items()}
            close = np.arange(len(first))
            close = np.unique(np.concatenate([close, *(beside[side][close] for side in (-1, 1))]))
            close = close[close >= 0]
            among_close = _places(close)
            return Surroundings(
                [*living, *(hit.ref for hit in hits)],
                hits,
                close,
                rows.keys(every[close]),
                (among_close(beside[-1][close]), among_close(beside[1][close])),
                rows.asking(every),
                rows.named(every, words),
                beside,
            )

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
                index.graph_bytes(),
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
        return None

    def _restored(self, snapshot: Snapshot) -> _State:
        from projections.vector_index import VectorIndex
        from projections.vector_rows import Rows

        if snapshot.dimensions != self._dimensions:
            raise ValueError(f"{snapshot.dimensions} dimensions instead of {self._dimensions}")
        rows = Rows.from_bytes(snapshot.rows)
        index = VectorIndex.restored(
            self._dimensions, snapshot.numbers, snapshot.graph, self._graph_from_rows
        )
        if len(rows) != index.count:
            raise ValueError(f"{len(rows)} rows and {index.count} vectors")
        return _State(snapshot.position, rows, index)

    # -- state

    def _empty(self) -> _State:
        from projections.vector_index import VectorIndex
        from projections.vector_rows import Rows

        return _State(0, Rows(), VectorIndex(self._dimensions, self._graph_from_rows))

    def _replace(self, state: _State) -> None:
        with self._turns.writing():
            self._state = state
            self._saved_rows = len(state.rows)

    def _embedded(self, documents: Sequence[Document]) -> Vectors | None:
        from projections.vector_index import accepted

        if not documents:
            return None
        vectors = self._embed([document.text for document in documents])
        return accepted(vectors, len(documents), self._dimensions)

    def _add(self, vectors: Vectors | None, rows: Rows, index: VectorIndex) -> None:
        """Appends to the index; the rows, without which nothing is found, follow in one turn.

        Where an earlier try broke off in between, the index already has the first of these vectors:
        the log gives the same rows every time.
        """
        if vectors is None:
            return
        missing = vectors[index.count - len(rows) :]
        for start in range(0, len(missing), ROWS_PER_TURN):
            with self._turns.writing():
                index.add(missing[start : start + ROWS_PER_TURN])


def _position(change: Change) -> int:
    return change.document.born if isinstance(change, Born) else change.position


def _change(rows: Rows, change: Change) -> None:
    match change:
        case Born(document=document):
            rows.add(document)
        case Died(ref=ref, position=position):
            rows.retire(ref, position)
        case _:
            assert_never(change)


def _places(among: Places) -> Callable[[Places], Places]:
    """Tells where each of other numbers stands in `among`, which are distinct; -1 where it does not."""
    import numpy as np

    order = np.argsort(among)
    ascending = among[order]

    def places(wanted: Places) -> Places:
        if len(among) == 0:
            return wanted
        found = np.searchsorted(ascending, wanted).clip(max=len(among) - 1)
        there: Places = np.where(ascending[found] == wanted, order[found], -1)
        return there

    return places


def _past(at: int | None, position: int) -> int | None:
    """`at`, where it is a past one: now is answered from what is kept ready."""
    return None if at is None or at >= position else at
