"""What an LMDB file says, read without LMDB: for files that are damaged.

LMDB maps its file and trusts it. A file that was cut ends the process that reads beyond its end, and a
page of zeros fails an assertion in C. This walks the same B+trees in Python, looks before every step,
and goes on behind what it cannot read.

Format: LMDB 0.9, `mdb.c` and "LMDB data format" there: little-endian, 64 bit. Two meta pages, the one
with the newer transaction counts; a page is a header, an array of offsets, and nodes that grow down from
its end; large values have pages of their own.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

MAGIC, VERSION = 0xBEEFC0DE, 1
HEADER = struct.Struct("<QHHHH")
"""Page number, unused, flags, end of the offsets, begin of the nodes."""
META = struct.Struct("<IIQQ48s48sQQ")
META_BYTES = HEADER.size + META.size
TREE = struct.Struct("<IHHQQQQQ")
NODE = struct.Struct("<HHHH")
BRANCH, LEAF, OVERFLOW, DUPLICATES = 0x01, 0x02, 0x04, 0x20
BIG, TABLE = 0x01, 0x02
NOWHERE = 2**64 - 1
DEPTH_MAX = 32
PAGE_SIZES = tuple(1 << bits for bits in range(8, 17))


class Unreadable(NamedTuple):
    """A page, and with it all rows under it, that cannot be read."""

    problem: str


class Tree(NamedTuple):
    """Where a table begins, how many rows it has, and what else LMDB keeps of it."""

    root: int
    rows: int
    depth: int = 0
    flags: int = 0


class Meta(NamedTuple):
    """What a meta page says: the commit that wrote it, the tables, and the size of a page."""

    transaction: int
    main: Tree
    free: Tree
    page_bytes: int
    last_page: int


Row = tuple[bytes, bytes]


class Pages:
    """A file, opened for reading. `transaction` names the snapshot; default: the newest."""

    def __init__(self, path: Path, transaction: int | None = None) -> None:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            # Private, unlike LMDB's own map, of which pages are given back (`resident`).
            private = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ}
            self.data: mmap.mmap | bytes = mmap.mmap(file.fileno(), 0, **private) if size else b""
        self._told_bytes: int = 0
        self.transaction, self.last_page = -1, 0
        """Of the snapshot: the newest commit no later than the transaction."""
        self.main = self.free = Tree(NOWHERE, 0)
        for at in (0, *PAGE_SIZES):  # the second is behind the first, whatever its size
            meta = meta_in(self.data, at)
            fits = meta is not None and (transaction is None or meta.transaction <= transaction)
            if meta is not None and fits and meta.transaction > self.transaction:
                self.transaction, self.main, self.free = meta[:3]
                self._told_bytes, self.last_page = meta.page_bytes, meta.last_page
        self.readable = self._told_bytes in PAGE_SIZES
        """Whether there is a meta page that can be believed."""

    @cached_property
    def page_bytes(self) -> int:
        """Of each page, as the newest commit says; where no meta page can be believed, as the numbers of the leaves
        tell, for which the whole file is looked through."""
        if self.readable:
            return self._told_bytes
        return max(PAGE_SIZES, key=lambda size: len(self._leaf_numbers(size)))

    @property
    def newest_is_known(self) -> bool:
        """Whether both meta pages are sound: where one is not, it may have been that of the last commit."""
        first, second = (meta_in(self.data, at) for at in (0, self._told_bytes))
        if first is None or second is None:
            return False
        numbers = first.transaction, second.transaction
        if max(numbers) <= 1:
            return True
        return abs(numbers[0] - numbers[1]) == 1 and numbers[0] % 2 == 0

    def close(self) -> None:
        if isinstance(self.data, mmap.mmap):
            self.data.close()

    @property
    def length(self) -> int:
        return len(self.data)

    def table(self, name: bytes) -> Tree | None:
        """The named table; None where it cannot be found."""
        for row in self.rows(self.main):
            if not isinstance(row, Unreadable) and row[0] == name and len(row[1]) == TREE.size:
                return tree_of(row[1])
        return None

    def rows(self, tree: Tree) -> Iterator[Row | Unreadable]:
        """The rows of a table in order of key, with a word about each page that is no page."""
        if self.readable and tree.root != NOWHERE:
            yield from self._below(tree.root, DEPTH_MAX, set())

    def leaves(self) -> Iterator[Row]:
        """Every row of every leaf that stands in the file, in use or not: LMDB leaves old pages as they were."""
        for number in self._leaf_numbers(self.page_bytes):
            for row in self._below(number, 1, set()):
                if not isinstance(row, Unreadable):
                    yield row

    # -- pages

    def _leaf_numbers(self, page_bytes: int) -> list[int]:
        """The leaves of a file whose pages have that many bytes: each stands where its number says."""
        return [
            number
            for number in range(2, self.length // page_bytes)
            if HEADER.unpack_from(self.data, number * page_bytes)[:3:2] == (number, LEAF)
        ]

    def _below(self, number: int, depth: int, seen: set[int]) -> Iterator[Row | Unreadable]:
        if number in seen:  # else a circle of pages would be walked for ever
            yield Unreadable(f"page {number} stands in two places")
            return
        seen.add(number)
        start = number * self.page_bytes
        if depth == 0 or start + self.page_bytes > len(self.data):
            yield Unreadable(f"page {number} is not in the file")
            return
        found, _, flags, lower, upper = HEADER.unpack_from(self.data, start)
        kind = flags & (BRANCH | LEAF | OVERFLOW | DUPLICATES)
        if found != number or kind not in (BRANCH, LEAF):
            yield Unreadable(f"page {number} is none of the tree")
            return
        if not HEADER.size <= lower <= upper <= self.page_bytes or lower % 2:
            yield Unreadable(f"page {number} has no order")
            return
        page = self.data[start : start + self.page_bytes]
        for at in struct.unpack_from(f"<{(lower - HEADER.size) // 2}H", page, HEADER.size):
            if at < upper or at + NODE.size > self.page_bytes:
                yield Unreadable(f"a row of page {number} is outside of it")
            elif kind == BRANCH:
                low, high, top, _ = NODE.unpack_from(page, at)
                yield from self._below(low | high << 16 | top << 32, depth - 1, seen)
            else:
                yield self._row(number, page, at)

    def _row(self, number: int, page: bytes, at: int) -> Row | Unreadable:
        low, high, flags, key_bytes = NODE.unpack_from(page, at)
        key_end, value_bytes = at + NODE.size + key_bytes, low | high << 16
        key = page[at + NODE.size : key_end]
        if not flags & BIG:
            if key_end + value_bytes > self.page_bytes:
                return Unreadable(f"a row of page {number} ends outside of it")
            return key, page[key_end : key_end + value_bytes]
        if key_end + 8 > self.page_bytes:
            return Unreadable(f"a row of page {number} ends outside of it")
        large = int.from_bytes(page[key_end : key_end + 8], "little")
        start = large * self.page_bytes
        if start + HEADER.size + value_bytes > len(self.data):
            return Unreadable(f"page {large} is not in the file")
        if HEADER.unpack_from(self.data, start)[:3:2] != (large, OVERFLOW):
            return Unreadable(f"page {large} is no page of a large value")
        return key, self.data[start + HEADER.size : start + HEADER.size + value_bytes]


def meta_in(data: mmap.mmap | bytes, at: int = 0) -> Meta | None:
    """What the meta page at this place says; None where there is none."""
    if at + META_BYTES > len(data):
        return None
    magic, version, _, _, free, main, last, number = META.unpack_from(data, at + HEADER.size)
    if (magic, version) != (MAGIC, VERSION):
        return None
    return Meta(number, tree_of(main), tree_of(free), TREE.unpack(free)[0], last)


def is_one(path: Path) -> bool:
    """Whether the file begins as one of LMDB's. Raises OSError."""
    with path.open("rb") as file:
        return meta_in(file.read(META_BYTES)) is not None


def tree_of(stored: bytes) -> Tree:
    _, flags, depth, *_, rows, root = TREE.unpack(stored)
    return Tree(root, rows, depth, flags)
