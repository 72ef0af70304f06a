"""The rows of the vector index: which document each vector belongs to, and when that document lived.

Each passage of a document has a row, one right after the other, in the order in which documents were born in the log,
whatever batches it was read in. The row of its first passage is that of the document: what stands beside what, and
which life came before, is told of these. A row is never removed: a document that dies gets an end, one that is born
again gets other rows. So the rows are a function of the log alone, and a search `at` a past position finds what lived
then.

Left to others: the vectors themselves (`index`), and taking turns; a table is safe to read from
several threads only while nobody changes it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property, reduce
from itertools import chain
from operator import or_
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from projections.documents import KINDS, NEVER, Document, Kind, Scope, Written
from projections.embedding.store import KEY_BYTES, key_of
from projections.text.analysis import STOP_WORDS, asking, name_words
from projections.vectors.columns import NO_ROW, Column, Ids
from projections.vectors.talks import StoredTalks, Talks

ASKING_MAX = 255

SELECTIONS_MAX = 16
"""Kept of those that were asked for since the last change: a bit a row each."""


class Described(NamedTuple):
    """Refs, kinds and entities of some documents."""

    refs: Sequence[str]
    kinds: Sequence[Kind]
    entities: Sequence[str]


class Selection:
    """The rows that a search may return: those of a `mask` of all rows, kept as a bit each, the lowest of a byte
    first."""

    def __init__(self, mask: NDArray[np.bool_]) -> None:
        self.total = len(mask)
        self.count = int(np.count_nonzero(mask))
        self.bitmap: NDArray[np.uint8] = np.packbits(mask, bitorder="little")

    @cached_property
    def rows(self) -> Ids:
        """Ascending."""
        return np.flatnonzero(np.unpackbits(self.bitmap, count=self.total, bitorder="little"))


class _Stored(msgspec.Struct, array_like=True):
    """A table as it stands in a snapshot: columns as raw numbers in the machine's byte order."""

    refs: list[str] = []
    entities: list[str] = []
    kind: bytes = b""
    entity: bytes = b""
    born: bytes = b""
    died: bytes = b""
    previous: bytes = b""
    labels: dict[str, bytes] = {}
    passage: bytes = b""
    keys: bytes = b""
    asking: bytes = b""
    subject: bytes = b""
    subjects: list[tuple[str, ...]] = []
    signatures: bytes = b""
    current: bytes = b""
    talks: StoredTalks = msgspec.field(default_factory=StoredTalks)


class Rows:
    """The table of rows, one for each passage of each life of a document."""

    def __init__(self, stored: _Stored | None = None) -> None:
        held = stored or _Stored()
        self._refs = held.refs
        self._entities = held.entities
        self._kind = Column(np.uint8, held.kind)
        self._entity = Column(np.int32, held.entity)
        self._born = Column(np.int64, held.born)
        self._died = Column(np.int64, held.died)
        self._previous = Column(np.int64, held.previous)
        self._passage = Column(np.int8, held.passage)
        """Which of its document's each is, from 1 on; of the first, how many come after it, below 0."""
        self._keys = bytearray(held.keys)
        self._asking = Column(np.uint8, held.asking)
        self._subject = Column(np.int32, held.subject)
        self._subjects = held.subjects
        self._signatures = Column(np.uint64, held.signatures)
        """Of the names of each subject: what shares no bit with that of a question has no word of it."""
        self._subject_codes = {subject: code for code, subject in enumerate(held.subjects)}
        self._has_former_names = any(len(names) > 1 for names in held.subjects)
        self._talks = Talks(held.talks)
        self._current = Column(np.int64, held.current)
        self._labels = {label: array("q", rows) for label, rows in held.labels.items()}
        self._entity_codes = {entity: code for code, entity in enumerate(self._entities)}
        documents = np.flatnonzero(self._passage.values[: len(self)] <= 0).tolist()
        self._last = {self._refs[row]: row for row in documents}
        self.has_passages = len(documents) < len(self)
        """Whether any document has more than one."""
        self._selections: dict[Scope, Selection] = {}
        """By scope, one without labels that leaves nothing out; until something changes."""

    def __len__(self) -> int:
        return len(self._refs)

    # -- what the log says

    def add(self, document: Document) -> None:
        """Appends the rows of a document that was born; an earlier life of its ref ends there."""
        self.retire(document.ref, document.born)
        first, *others = document.passages
        self._last[document.ref] = self._add(document, first, -len(others), document.written)
        for number, passage in enumerate(others, 1):
            self._add(document, passage, number, None)
            self.has_passages = True
        self._selections = {}

    def _add(self, document: Document, passage: str, number: int, written: Written | None) -> int:
        """The row that a passage of it is given. Nothing stands beside those after the first."""
        row = len(self._refs)
        code = self._entity_codes.setdefault(document.entity, len(self._entities))
        if code == len(self._entities):
            self._entities.append(document.entity)
        self._kind.append(KINDS.index(document.kind))
        self._entity.append(code)
        self._born.append(document.born)
        self._died.append(NEVER)
        previous = NO_ROW if number > 0 else self._last.get(document.ref, NO_ROW)
        self._previous.append(previous)
        self._talks.add(previous, written)
        self._current.append(row)
        if previous != NO_ROW:
            self._current.values[self._talks.first(previous)] = row
        self._passage.append(number)
        self._keys += key_of(passage)
        self._asking.append(round(asking(passage) * ASKING_MAX))
        self._subject.append(self._subject_code(document.names))
        for label in dict.fromkeys(document.labels):
            self._labels.setdefault(label, array("q")).append(row)
        self._refs.append(document.ref)
        return row

    def _subject_code(self, subject: tuple[str, ...]) -> int:
        code = self._subject_codes.setdefault(subject, len(self._subjects))
        if code == len(self._subjects):
            self._subjects.append(subject)
            self._signatures.append(_signature(chain.from_iterable(map(name_words, subject))))
            self._has_former_names |= len(subject) > 1
        return code

    def retire(self, ref: str, position: int) -> None:
        """Ends the life of `ref`, if it is living."""
        row = self._last.get(ref)
        if row is not None and self._died.values[row] == NEVER:
            self._died.values[row : row + 1 - int(self._passage.values[row])] = position
            self._selections = {}

    # -- what a search asks

    def described(self, rows: Ids) -> Described:
        """The documents of these rows."""
        refs, entities = self._refs, self._entities
        return Described(
            [refs[row] for row in rows.tolist()],
            [KINDS[kind] for kind in self._kind.values[rows].tolist()],
            [entities[code] for code in self._entity.values[rows].tolist()],
        )

    def documents(self, rows: Ids) -> Ids:
        """Of each passage the row of its document."""
        documents: Ids = rows - self._passage.values[rows].clip(0)
        return documents

    def passages(self, documents: Ids) -> Ids:
        """How many each of these has."""
        counts: Ids = 1 - self._passage.values[documents].astype(np.int64)
        return counts

    def passages_beside(self, rows: Ids) -> tuple[Ids, Ids]:
        """The rows of the passages right before and right after each in its document; `NO_ROW` where there is none."""
        first = self.documents(rows)
        last = first + self.passages(first) - 1
        return np.where(rows > first, rows - 1, NO_ROW), np.where(rows < last, rows + 1, NO_ROW)

    def select(self, scope: Scope) -> Selection:
        """The rows in the scope."""
        if scope.labels:
            mask, bearing = np.zeros(len(self), np.bool_), self._bearing(scope.labels)
            mask[bearing] = self._chosen(bearing, scope)
            return Selection(mask)
        if scope.but:
            return Selection(self._chosen(slice(None), scope))
        selections = self._selections
        # Computed by whoever asks first after a change; two at once compute the same.
        if (known := selections.get(scope)) is None:
            if len(selections) >= SELECTIONS_MAX:
                selections.clear()
            known = selections[scope] = Selection(self._chosen(slice(None), scope))
        return known

    def fit(self, rows: Ids, scope: Scope) -> NDArray[np.bool_]:
        """Which of a few rows are in the scope."""
        fitting = self._chosen(rows, scope)
        if scope.labels:
            fitting &= np.isin(rows, self._bearing(scope.labels))
        return fitting

    def _chosen(self, among: Ids | slice, scope: Scope) -> NDArray[np.bool_]:
        """Which of these rows are in the scope, labels aside."""
        chosen, kind = self._living(among, scope.at), self._kind.values[among]
        if scope.since:
            chosen &= self._born.values[among] > scope.since
        for code, each in enumerate(KINDS):
            if scope.kinds is not None and each not in scope.kinds:
                chosen &= kind != code
        if scope.but:
            chosen &= ~self._belonging(among, scope)
        return chosen

    def _belonging(self, among: Ids | slice, scope: Scope) -> NDArray[np.bool_]:
        """Which of these rows, as far as they live, belong to one of the things that the scope leaves out."""
        codes = [self._entity_codes[each] for each in scope.but if each in self._entity_codes]
        own = self.living_rows(scope.but, scope.at)
        documents = self.documents(np.arange(len(self))[among])
        belonging: NDArray[np.bool_] = np.isin(self._entity.values[among], codes)
        return belonging | np.isin(documents, own)

    def living_rows(self, refs: Iterable[str], at: int | None) -> Ids:
        """The row of each of `refs` that lives (`at` a position, or now); else `NO_ROW`."""
        last = self._last
        return self._then(np.array([last.get(ref, NO_ROW) for ref in refs], np.int64), at)

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

    def keys(self, rows: Ids) -> list[bytes]:
        """Under which the pieces of each row's text are stored."""
        each = np.frombuffer(self._keys, np.uint8).reshape(-1, KEY_BYTES)
        keys = each[rows].tobytes()
        return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]

    def asking(self, rows: Ids) -> NDArray[np.float32]:
        """How much of each text are questions, 0..1."""
        asking: NDArray[np.uint8] = self._asking.values[rows]
        return asking.astype(np.float32) / np.float32(ASKING_MAX)

    def named(self, rows: Ids, words: frozenset[str], at: int | None) -> NDArray[np.float32]:
        """How much of a name that each document's entity has now, or `at` a position, or had before, is among `words`,
        0..1, of what is the most: `Jon` names Jon Harper. A word of a name that is there in full names nobody else, as
        those of `db-prod-2` do not name db-prod-1."""
        told_of = self._entities_of(rows, at) if self._has_former_names else rows
        codes = self._subject.values[told_of]
        share = np.zeros(len(codes), np.float32)
        alike = np.flatnonzero(self._signatures.values[codes] & np.uint64(_signature(words)))
        codes, places = np.unique(codes[alike], return_inverse=True)
        subjects = map(self._subjects.__getitem__, codes.tolist())
        some = [
            (place, name)
            for place, names in enumerate(subjects)
            for name in map(name_words, names)
            if not words.isdisjoint(name)
        ]
        whole = {name for _, name in some if name <= words}
        telling = words.difference(STOP_WORDS, *whole)
        found = np.zeros(len(codes), np.float32)
        for place, name in some:
            found[place] = max(found[place], 1.0 if name in whole else _said(name, telling))
        most = found.max(initial=0.0)
        share[alike] = (found / most if most else found)[places]
        return share

    def _entities_of(self, rows: Ids, at: int | None) -> Ids:
        """Of each document that of its entity, now or `at` a position; itself where there is none."""
        codes, places = np.unique(self._entity.values[rows], return_inverse=True)
        living = self.living_rows([self._entities[code] for code in codes.tolist()], at)[places]
        return np.where(living == NO_ROW, rows, living)

    def around(self, rows: Ids, reach: int, at: int | None) -> Mapping[int, Ids]:
        """By distance, -reach..-1 and 1..reach, the living rows of what was written down so many things
        before or after each of `rows`; `NO_ROW` where there is none."""
        first = self._talks.around(rows, reach)
        living = self._living_again(np.concatenate([*first.values()]), at)
        return dict(zip(first, living.reshape(len(first), len(rows)), strict=True))

    def companions(self, rows: Ids, at: int | None) -> Ids:
        """The living rows right beside `rows` in threads that have a name, ascending."""
        talking = rows[self._talks.named(rows)]
        if len(talking) == 0:
            return talking
        beside: Ids = np.unique(np.concatenate([*self.around(talking, 1, at).values()]))
        living: Ids = beside[beside != NO_ROW]
        return living

    def _living_again(self, first: Ids, at: int | None) -> Ids:
        """The rows now living, or `at` a position, of things born first in `first`; else `NO_ROW`."""
        if len(first) == 0 or first.max() == NO_ROW:
            return first
        return self._then(np.where(first == NO_ROW, NO_ROW, self._current.values[first]), at)

    def _then(self, rows: Ids, at: int | None) -> Ids:
        """For the last row of each of some things the one that lives now, or `at` a position; else `NO_ROW`."""
        if len(self) == 0:
            return rows
        if at is not None:
            while (late := (rows != NO_ROW) & (self._born.values[rows] > at)).any():
                rows = np.where(late, self._previous.values[rows], rows)
        died = self._died.values[rows]
        lives = (rows != NO_ROW) & (died == NEVER if at is None else died > at)
        living: Ids = np.where(lives, rows, NO_ROW)
        return living

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
                passage=self._passage.values.tobytes(),
                labels={label: rows.tobytes() for label, rows in self._labels.items()},
                keys=bytes(self._keys),
                asking=self._asking.values.tobytes(),
                subject=self._subject.values.tobytes(),
                subjects=self._subjects,
                signatures=self._signatures.values.tobytes(),
                current=self._current.values.tobytes(),
                talks=self._talks.stored(),
            )
        )

    @classmethod
    def from_bytes(cls, stored: bytes | memoryview) -> Rows:
        """The table that `to_bytes` wrote. Raises ValueError where it is no such table."""
        try:
            rows = cls(msgspec.msgpack.decode(stored, type=_Stored))
        except msgspec.DecodeError as error:
            raise ValueError(f"the table of rows cannot be read: {error}") from error
        columns = [rows._kind, rows._entity, rows._born, rows._died, rows._previous]
        columns += (rows._passage, rows._asking, rows._subject, rows._current)
        columns += rows._talks.columns
        whole = len(rows._keys) == KEY_BYTES * len(rows)
        whole &= len(rows._signatures.values) == len(rows._subjects)
        if not whole or any(len(column.values) != len(rows) for column in columns):
            raise ValueError(f"the columns of the table do not all have its {len(rows)} rows")
        return rows


def _signature(words: Iterable[str]) -> int:
    """64 bits, of which each word sets one."""
    return reduce(or_, (1 << crc32(word.encode()) % 64 for word in words), 0)


def _said(name: Set[str], telling: Set[str]) -> float:
    """How much of a name is among these words; neither counts its stop words."""
    return 0.0 if telling.isdisjoint(name) else len(name & telling) / len(name - STOP_WORDS)
