"""Ordered tables of bytes, and a timeline over them that remembers every value a key ever had.

`Rows` is the whole of what the state asks of storage; it has two backings, LMDB and memory.
`Timeline` is written once over it: `now` holds the present, `past` holds, for each change, the value
that the change replaced, under key + position. The value of a key as of position p is therefore the
first image in `past` made after p, or the present value where there is none. Nothing is copied to
look back, and looking back costs one seek. Under each position `past` also lists the keys that were
changed there, so that a change can be taken back.

Within one table (keys that share a first byte) all keys have the same length; so an image's key is
never mistaken for another key's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import lmdb
import msgspec
from sortedcontainers import SortedDict

ABSENT = b""
TOUCHED = b"\0"
"""First byte of the lists of changed keys; no table may use it."""


class Rows(Protocol):
    """An ordered map of bytes to bytes. Values are never empty but for images of absence."""

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

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        """The first row at or after `key`."""
        ...


class MemoryRows:
    """Rows in a sorted dictionary."""

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()

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
        first, last = max(prefix, start), prefix + b"\xff" * 512
        for key in list(self._rows.irange(first, last)):
            yield key, self._rows[key]

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        found = next(self._rows.irange(minimum=key), None)
        return None if found is None else (found, self._rows[found])


class LmdbRows:
    """Rows of one LMDB database inside one transaction; lives no longer than it."""

    def __init__(self, transaction: lmdb.Transaction, database: lmdb._Database) -> None:
        self._transaction = transaction
        self._database = database

    def get(self, key: bytes) -> bytes | None:
        return _copied(self._transaction.get(key, db=self._database))

    def replace(self, key: bytes, value: bytes) -> bytes | None:
        return _copied(self._transaction.replace(key, value, db=self._database))

    def pop(self, key: bytes) -> bytes | None:
        return _copied(self._transaction.pop(key, db=self._database))

    def add(self, key: bytes, value: bytes) -> None:
        self._transaction.put(key, value, overwrite=False, db=self._database)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        cursor = self._transaction.cursor(db=self._database)
        if not cursor.set_range(max(prefix, start)):
            return
        for found, value in cursor:
            key = bytes(found)
            if not key.startswith(prefix):
                return
            yield key, bytes(value)

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        cursor = self._transaction.cursor(db=self._database)
        if not cursor.set_range(key):
            return None
        found, value = cursor.item()
        return bytes(found), bytes(value)


def _copied(value: bytes | memoryview | None) -> bytes | None:
    """Transactions are opened without `buffers`, so this copies nothing; it settles the type."""
    return None if value is None else bytes(value)


def place(position: int) -> bytes:
    """A position as eight bytes that sort as the number does."""
    return position.to_bytes(8, "big")


class Reader(Protocol):
    """What the state reads: a present or a past, alike."""

    def get(self, key: bytes) -> bytes | None: ...
    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...
    def at(self, position: int) -> Reader: ...
    def touched(self, position: int) -> list[bytes]:
        """The keys that the entry at `position` changed, in the order of their first change."""
        ...

    def images(self, prefix: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        """For each change ever made to keys with this prefix: the key, the position, what it replaced."""
        ...


class _Past:
    """What the present and any earlier moment have in common: the images of what was replaced."""

    def __init__(self, now: Rows, past: Rows) -> None:
        self._now = now
        self._past = past

    def at(self, position: int) -> Reader:
        return _At(self._now, self._past, position)

    def touched(self, position: int) -> list[bytes]:
        stored = self._past.get(TOUCHED + place(position))
        return [] if stored is None else msgspec.msgpack.decode(stored, type=list[bytes])

    def images(self, prefix: bytes) -> Iterator[tuple[bytes, int, bytes]]:
        for dated, value in self._past.scan(prefix):
            yield dated[:-8], int.from_bytes(dated[-8:], "big"), value


class Timeline(_Past):
    """The present, written at one position after another; whatever it replaces goes to the past."""

    def __init__(self, now: Rows, past: Rows) -> None:
        super().__init__(now, past)
        self.position = 0
        self._keys: dict[bytes, None] = {}

    @contextmanager
    def writing(self, position: int) -> Iterator[None]:
        """What is put and deleted meanwhile happened at `position`."""
        self.position = position
        self._keys = {}
        yield
        if self._keys:
            self._past.add(TOUCHED + place(position), msgspec.msgpack.encode(list(self._keys)))

    def get(self, key: bytes) -> bytes | None:
        return self._now.get(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._now.scan(prefix, start)

    def put(self, key: bytes, value: bytes) -> None:
        old = self._now.replace(key, value)
        self._keys[key] = None
        self._past.add(key + place(self.position), ABSENT if old is None else old)

    def delete(self, key: bytes) -> None:
        old = self._now.pop(key)
        if old is not None:
            self._keys[key] = None
            self._past.add(key + place(self.position), old)


class _At(_Past):
    """The tables as they stood after the entry at `position`."""

    def __init__(self, now: Rows, past: Rows, position: int) -> None:
        super().__init__(now, past)
        self._next = place(position + 1)

    def get(self, key: bytes) -> bytes | None:
        image = self._past.ceiling(key + self._next)
        if image is not None and image[0][:-8] == key:
            return image[1] or None
        return self._now.get(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Whoever takes the first rows pays for the images beside them only, not for all the past."""
        images = self._past.scan(prefix, start)
        image = next(images, None)
        done = b""
        for key, value in self._now.scan(prefix, start):
            while image is not None and image[0][:-8] <= key:
                if self._first(image, done, start):
                    done = image[0][:-8]
                    if image[1]:
                        yield done, image[1]
                image = next(images, None)
            if done != key:
                yield key, value
        while image is not None:
            if self._first(image, done, start):
                done = image[0][:-8]
                if image[1]:
                    yield done, image[1]
            image = next(images, None)

    def _first(self, image: tuple[bytes, bytes], done: bytes, start: bytes) -> bool:
        """Whether it is the first image of its key made after the position: the value at the position.

        An image of the key just before `start` is met, too, where the start is that key and a zero byte.
        """
        key, made = image[0][:-8], image[0][-8:]
        return made >= self._next and key != done and key >= start
