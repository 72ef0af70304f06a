"""Ordered tables of bytes, and a timeline over them that remembers every value a key ever had.

`Rows` is the whole of what the state asks of storage; it has two backings, LMDB and memory.
`Timeline` is written once over it: `now` holds the present, `past` holds each value that was replaced,
under key + position of the replacement. Every value begins with the position since which it holds (eight
bytes). The value of a key as of position p is therefore the first one in `past` that was replaced after
p, or the present one where there is none, and nothing where that holds only since after p. Nothing is
copied to look back, and looking back costs one seek; what is new costs nothing in `past`. For each
position `now` also lists the keys that were changed there, so that a change can be taken back.

Within one table (keys that share a first byte) all keys have the same length; so the key of what was
replaced is never mistaken for another key's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import lmdb
import msgspec
from sortedcontainers import SortedDict

from memlog.patience import require_time

STEP_ROWS = 64
"""So many are read between two looks at the clock."""

TOUCHED = b"J"
"""First byte of the lists of changed keys, the newest first; no table may use it.

It is the letter behind `I`, where the newest row is the last. So what an entry adds to either lies on one page, and
an entry that replaces nothing leaves the past alone: each page less is one less to write and to wait for.
"""

KEY_BYTES_MAX = 511
"""LMDB's."""

SINCE_BYTES = 8
"""Every value begins with the position since which it holds."""

_encode = msgspec.msgpack.Encoder().encode


class Version(NamedTuple):
    """A value that a key has or had: from the position `since` on, until it was replaced or deleted."""

    key: bytes
    since: int
    until: int | None
    value: bytes


class Rows(Protocol):
    """An ordered map of bytes to bytes."""

    def get(self, key: bytes) -> bytes | None: ...
    def replace(self, key: bytes, value: bytes) -> bytes | None:
        """Stores `value` and returns what it replaced."""
        ...

    def pop(self, key: bytes) -> bytes | None: ...
    def add(self, key: bytes, value: bytes) -> None:
        """Stores `value` unless the key is there already."""
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with `prefix`, in order, from `start` on."""
        ...

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """`scan`, all at once: quicker where rows are few."""
        ...

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """`scan` from the end: who takes the last rows pays for these only."""
        ...

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The first row at or after `key`."""
        ...


class MemoryRows:
    """Rows in a sorted dictionary."""

    def __init__(self, rows: Mapping[bytes, bytes] = {}) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict(rows)

    def get(self, key: bytes) -> bytes | None:
        return self._rows.get(key)

    def replace(self, key: bytes, value: bytes) -> bytes | None:
        old = self._rows.get(key)
        self._rows[key] = value
        return old

    def pop(self, key: bytes) -> bytes | None:
        return self._rows.pop(key, None)

    def add(self, key: bytes, value: bytes) -> None:
        self._rows.setdefault(key, value)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        first, last = max(prefix, start), _last_under(prefix)
        for key in list(self._rows.irange(first, last)):
            yield key, self._rows[key]

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(prefix))

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key in self._rows.irange(prefix, _last_under(prefix), reverse=True):
            yield key, self._rows[key]

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        found = next(self._rows.irange(minimum=key), None)
        return None if found is None else (found, self._rows[found])


class LmdbRows:
    """Rows of one LMDB database inside one transaction; lives no longer than it.

    Transactions are opened without `buffers`: what comes out of them is bytes, whatever their types say. A value is
    taken once its key is looked at: the row that ends a scan may be megabytes, and end many.
    """

    def __init__(self, transaction: lmdb.Transaction, database: lmdb._Database) -> None:
        self._transaction = transaction
        self._database = database
        self._seeking: lmdb.Cursor | None = None

    def get(self, key: bytes) -> bytes | None:
        return self._transaction.get(key, None, self._database)  # type: ignore[return-value]

    def replace(self, key: bytes, value: bytes) -> bytes | None:
        return self._transaction.replace(key, value, self._database)  # type: ignore[return-value]

    def pop(self, key: bytes) -> bytes | None:
        return self._transaction.pop(key, self._database)  # type: ignore[return-value]

    def add(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value, overwrite=False, db=self._database)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(db=self._database)
        if not cursor.set_range(max(prefix, start)):
            return
        key: bytes
        for key in cursor.iternext(values=False):  # type: ignore[assignment]
            if not key.startswith(prefix):
                return
            require_time()
            yield key, cursor.value()  # type: ignore[misc]

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        rows: list[tuple[bytes, bytes]] = []
        cursor: Any = self._cursor()
        if cursor.set_range(prefix):
            require_time()
            for key in cursor.iternext(values=False):
                if not key.startswith(prefix):
                    break
                rows.append((key, cursor.value()))
                if not len(rows) % STEP_ROWS:
                    require_time()
        return rows

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(db=self._database)
        beyond = cursor.set_range(_last_under(prefix))
        if not (cursor.prev() if beyond else cursor.last()):
            return
        key: bytes
        for key in cursor.iterprev(values=False):  # type: ignore[assignment]
            if not key.startswith(prefix):
                return
            require_time()
            yield key, cursor.value()  # type: ignore[misc]

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._cursor()
        return cursor.item() if cursor.set_range(key) else None  # type: ignore[return-value]

    def _cursor(self) -> lmdb.Cursor:
        """The same each time: making one takes half as long as its seek."""
        if self._seeking is None:
            self._seeking = self._transaction.cursor(db=self._database)
        return self._seeking


def place(position: int) -> bytes:
    """A position as eight bytes that sort as the number does."""
    return position.to_bytes(8, "big")


def newest_first(position: int) -> bytes:
    """A position as eight bytes that sort the other way round."""
    return place(2**64 - 1 - position)


class Reader(Protocol):
    """What the state reads: a present or a past, alike."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]: ...
    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]: ...
    def at(self, position: int) -> Reader: ...
    def touched(self, position: int) -> list[bytes]:
        """The keys that the entry at `position` changed, in the order of their first change."""
        ...

    def versions(self, prefix: bytes) -> Iterator[Version]:
        """Every value that keys with this prefix ever had at the end of an entry, also after this moment:
        first those that were replaced, of each key the oldest first, then the present ones."""
        ...


class _Past:
    """What the present and any earlier moment have in common: the images of what was replaced."""

    def __init__(self, now: Rows, past: Rows) -> None:
        self._now = now
        self._past = past

    def at(self, position: int) -> Reader:
        return _At(self._now, self._past, position)

    def touched(self, position: int) -> list[bytes]:
        stored = self._now.get(TOUCHED + newest_first(position))
        if stored is None:
            return []
        return msgspec.msgpack.decode(stored[SINCE_BYTES:], type=list[bytes])

    def versions(self, prefix: bytes) -> Iterator[Version]:
        for dated, stored in self._past.scan(prefix):
            yield Version(dated[:-8], _since(stored), _number(dated[-8:]), stored[SINCE_BYTES:])
        for key, stored in self._now.scan(prefix):
            yield Version(key, _since(stored), None, stored[SINCE_BYTES:])


class Timeline(_Past):
    """The present, written at one position after another; whatever it replaces goes to the past."""

    def __init__(self, now: Rows, past: Rows) -> None:
        super().__init__(now, past)
        self.position = 0
        self._place = place(0)
        self._keys: dict[bytes, None] = {}

    def move_to(self, position: int) -> None:
        """What is put and deleted from now on happens at `position`."""
        self.position, self._place = position, place(position)
        self._keys = {}

    def list_touched(self) -> None:
        """Keeps which keys were changed at this position, for `touched`."""
        if self._keys:
            listed = self._place + _encode(list(self._keys))
            self._now.replace(TOUCHED + newest_first(self.position), listed)

    def get(self, key: bytes) -> bytes | None:
        stored = self._now.get(key)
        return None if stored is None else stored[SINCE_BYTES:]

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self._now.scan(prefix, start):
            yield key, stored[SINCE_BYTES:]

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        rows = self._now.under(prefix)
        return [(key, stored[SINCE_BYTES:]) for key, stored in rows] if rows else rows

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self._now.back(prefix):
            yield key, stored[SINCE_BYTES:]

    def holds(self, prefix: bytes) -> bool:
        """Whether there is a row whose key begins with `prefix`."""
        row = self._now.ceiling(prefix)
        return row is not None and row[0].startswith(prefix)

    def put(self, key: bytes, value: bytes) -> None:
        self._keep(key, self._now.replace(key, self._place + value))
        self._keys[key] = None

    def add(self, key: bytes, value: bytes) -> None:
        """Stores a value under a key that holds none, as the caller knows: quicker than `put`."""
        self._now.add(key, self._place + value)
        self._keys[key] = None

    def delete(self, key: bytes) -> None:
        old = self._now.pop(key)
        if old is not None:
            self._keep(key, old)
            self._keys[key] = None

    def _keep(self, key: bytes, old: bytes | None) -> None:
        """What this very entry put there never held at the end of one."""
        if old is not None and old[:SINCE_BYTES] != self._place:
            self._past.add(key + self._place, old)


class _At(_Past):
    """The tables as they stood after the entry at `position`."""

    def __init__(self, now: Rows, past: Rows, position: int) -> None:
        super().__init__(now, past)
        self._next = place(position + 1)

    def get(self, key: bytes) -> bytes | None:
        stored = self._now.get(key)
        if stored is not None and stored[:SINCE_BYTES] < self._next:
            return stored[SINCE_BYTES:]  # it holds since then: nothing of it was replaced later
        replaced = self._past.ceiling(key + self._next)
        if replaced is not None and replaced[0][:-8] == key:
            return self._held(replaced[1])
        return None

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for key, stored in self._first_after(prefix, start):
            value = self._held(stored)
            if value is not None:
                yield key, value

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(prefix))

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        replaced = (
            (dated[:-8], stored)
            for dated, stored in self._past.back(prefix)
            if dated[-8:] >= self._next
        )
        rows = merge(replaced, self._now.back(prefix), reverse=True)
        for key, lost in groupby(rows, itemgetter(0)):
            *_, (_, first) = lost  # the oldest, see `_first_after`
            value = self._held(first)
            if value is not None:
                yield key, value

    def _held(self, stored: bytes) -> bytes | None:
        """The value, if it held at the position and not only later."""
        return stored[SINCE_BYTES:] if stored[:SINCE_BYTES] < self._next else None

    def _first_after(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """For each key what it was first to lose after the position, or what it has now.

        Whoever takes the first rows pays for the past of these only, not for all of it. Of one key the oldest value
        comes first, for values begin with the position since which they hold.
        """
        done = b""
        for key, stored in merge(self._replaced(prefix, start), self._now.scan(prefix, start)):
            if key != done:
                done = key
                yield key, stored

    def _replaced(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What was replaced after the position, in order of key.

        Of the key just before `start` something is met, too, where the start is that key and a zero byte.
        """
        for dated, stored in self._past.scan(prefix, start):
            key = dated[:-8]
            if dated[-8:] >= self._next and key >= start:
                yield key, stored


def _last_under(prefix: bytes) -> bytes:
    """The last key that can begin so."""
    return prefix.ljust(KEY_BYTES_MAX, b"\xff")


def _since(stored: bytes) -> int:
    return _number(stored[:SINCE_BYTES])


def _number(placed: bytes) -> int:
    return int.from_bytes(placed, "big")
