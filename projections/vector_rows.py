"""The rows of the vector index: which document each vector belongs to, and when that document lived.

Row i is the i-th document that was born in the log, whatever batches it was read in. A row is never
removed: a document that dies gets an end, one that is born again gets another row. So the rows are a
function of the log alone, and a search `at` a past position finds what lived then.

Left to others: the vectors themselves (`vector_index`), and taking turns; a table is safe to read from
several threads only while nobody changes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from projections.documents import NEVER, Document, Kind

KINDS: tuple[Kind, ...] = get_args(Kind)
NO_ROW = -1

Ids = NDArray[np.int64]


class Selection:
    """The rows that a search may return, ascending, out of `total`."""

    def __init__(self, rows: Ids, total: int) -> None:
        self.rows = rows
        self.total = total

    @cached_property
    def bitmap(self) -> NDArray[np.uint8]:
        """One bit a row, the lowest bit of a byte first."""
        mask = np.zeros(self.total, dtype=np.bool_)
        mask[self.rows] = True
        return np.packbits(mask, bitorder="little")


class Column:
    """Numbers of one width that are appended to, in an array that doubles when it is full."""

    def __init__(self, dtype: Any, stored: bytes = b"") -> None:
        self._room: NDArray[Any] = np.frombuffer(stored, dtype=dtype).copy()
        self._count = len(self._room)

    @property
    def values(self) -> NDArray[Any]:
        """A view, good until the next append."""
        return self._room[: self._count]

    def append(self, value: int) -> None:
        if self._count == len(self._room):
            grown = np.empty(max(64, 2 * self._count), dtype=self._room.dtype)
            grown[: self._count] = self._room
            self._room = grown
        self._room[self._count] = value
        self._count += 1


class _Stored(msgspec.Struct, array_like=True):
    """A table as it stands in a snapshot: columns as raw numbers in the machine's byte order."""

    refs: list[str]
    entities: list[str]
    kind: bytes
    entity: bytes
    born: bytes
    died: bytes
    previous: bytes
    labels: dict[str, bytes]


class Rows:
    """The table of rows, one for each life of a document."""

    def __init__(self, stored: _Stored | None = None) -> None:
        held = stored or _Stored([], [], b"", b"", b"", b"", b"", {})
        self._refs = held.refs
        self._entities = held.entities
        self._kind = Column(np.uint8, held.kind)
        self._entity = Column(np.int32, held.entity)
        self._born = Column(np.int64, held.born)
        self._died = Column(np.int64, held.died)
        self._previous = Column(np.int64, held.previous)
        self._labels = {label: array("q", rows) for label, rows in held.labels.items()}
        self._entity_codes = {entity: code for code, entity in enumerate(self._entities)}
        self._last = {ref: row for row, ref in enumerate(self._refs)}
        self._present: Selection | None = None

    def __len__(self) -> int:
        return len(self._refs)

    # -- what the log says

    def add(self, document: Document) -> None:
        """Appends the row of a document that was born; an earlier life of its ref ends there."""
        self.retire(document.ref, document.born)
        row = len(self._refs)
        code = self._entity_codes.setdefault(document.entity, len(self._entities))
        if code == len(self._entities):
            self._entities.append(document.entity)
        self._kind.append(KINDS.index(document.kind))
        self._entity.append(code)
        self._born.append(document.born)
        self._died.append(document.died)
        self._previous.append(self._last.get(document.ref, NO_ROW))
        for label in dict.fromkeys(document.labels):
            self._labels.setdefault(label, array("q")).append(row)
        self._refs.append(document.ref)
        self._last[document.ref] = row
        self._present = None

    def retire(self, ref: str, position: int) -> None:
        """Ends the life of `ref`, if it is living."""
        row = self._last.get(ref)
        if row is not None and self._died.values[row] == NEVER:
            self._died.values[row] = position
            self._present = None

    # -- what a search asks

    def described(self, rows: Ids) -> Iterator[tuple[str, Kind, str]]:
        """Ref, kind and entity of the document of each row."""
        kinds = self._kind.values[rows].tolist()
        entities = self._entity.values[rows].tolist()
        for row, kind, entity in zip(rows.tolist(), kinds, entities, strict=True):
            yield self._refs[row], KINDS[kind], self._entities[entity]

    def select(
        self, at: int | None, kinds: Collection[Kind] | None, labels: Iterable[str]
    ) -> Selection:
        """The rows that live (`at` a position, or now), are of one of `kinds`, bear all `labels`."""
        labels = tuple(labels)
        if at is None and kinds is None and not labels:
            # Computed by whoever asks first after a change; two at once compute the same.
            if self._present is None:
                rows = np.flatnonzero(self._died.values == NEVER)
                self._present = Selection(rows, len(self))
            return self._present
        among: Ids | slice = self._bearing(labels) if labels else slice(None)
        chosen = self._living(among, at)
        if kinds is not None:
            chosen &= np.array([kind in kinds for kind in KINDS])[self._kind.values[among]]
        rows = np.flatnonzero(chosen)
        return Selection(rows if isinstance(among, slice) else among[rows], len(self))

    def living_rows(self, refs: Iterable[str], at: int | None) -> dict[str, int]:
        """The row of each of `refs` that lives (`at` a position, or now)."""
        born, died, previous = self._born.values, self._died.values, self._previous.values
        found: dict[str, int] = {}
        for ref in refs:
            row = self._last.get(ref, NO_ROW)
            while at is not None and row != NO_ROW and born[row] > at:
                row = int(previous[row])
            if row != NO_ROW and (died[row] == NEVER if at is None else died[row] > at):
                found[ref] = row
        return found

    def _living(self, among: Ids | slice, at: int | None) -> NDArray[np.bool_]:
        died = self._died.values[among]
        if at is None:
            now: NDArray[np.bool_] = died == NEVER
            return now
        then: NDArray[np.bool_] = (self._born.values[among] <= at) & (died > at)
        return then

    def _bearing(self, labels: Sequence[str]) -> Ids:
        """The rows that bear every one of `labels`, ascending."""
        bearing = sorted((self._labels.get(label, array("q")) for label in labels), key=len)
        rows = np.array(bearing[0], dtype=np.int64)
        for other in bearing[1:]:
            if len(rows) == 0:
                break
            others = np.array(other, dtype=np.int64)
            places = np.searchsorted(others, rows)
            places[places == len(others)] = 0
            rows = rows[others[places] == rows]
        return rows

    # -- snapshots

    def to_bytes(self) -> bytes:
        return msgspec.msgpack.encode(
            _Stored(
                refs=self._refs,
                entities=self._entities,
                kind=self._kind.values.tobytes(),
                entity=self._entity.values.tobytes(),
                born=self._born.values.tobytes(),
                died=self._died.values.tobytes(),
                previous=self._previous.values.tobytes(),
                labels={label: rows.tobytes() for label, rows in self._labels.items()},
            )
        )

    @classmethod
    def from_bytes(cls, stored: bytes | memoryview) -> Rows:
        """The table that `to_bytes` wrote. Raises ValueError where it is no such table."""
        try:
            rows = cls(msgspec.msgpack.decode(stored, type=_Stored))
        except msgspec.DecodeError as error:
            raise ValueError(f"the table of rows cannot be read: {error}") from error
        columns = (rows._kind, rows._entity, rows._born, rows._died, rows._previous)
        if any(len(column.values) != len(rows) for column in columns):
            raise ValueError(f"the columns of the table do not all have its {len(rows)} rows")
        return rows
