"""Can LMDB be trusted with a file? It trusts its pages itself, and ends the process over one that is none.

Every page that the newest commit uses is looked at, its form and not its content: that it is what the
page above says, that its rows lie within it and fill it, that no page has two users or is free as well.
A row whose bytes were changed passes; for the entries of a log there is the chain of hashes.

Reading all pages takes some seconds per gigabyte. So who closes a file leaves a seal beside it, and
one that is as it was sealed is not looked through again.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from memlog.storage.pages import (
    BIG,
    BRANCH,
    DEPTH_MAX,
    HEADER,
    LEAF,
    NODE,
    NOWHERE,
    OVERFLOW,
    TABLE,
    TREE,
    Pages,
    Row,
    Tree,
    tree_of,
)

META_PAGE = 0x08
KEYS_ARE_NUMBERS, NO_FOLDER = 0x08, 0x4000
"""What the list of free pages is said to be, and no table of memlog's; and how LMDB was told to open the file."""

SEAL = ".sealed"
"""Added to the name of a file: the file, beside it, that says how it was when it was closed."""

Stamp = tuple[int, ...]

log = logging.getLogger("memlog.structure")


class _Unsound(Exception):
    """Says what is wrong, and in which page."""


def problem(pages: Pages) -> str | None:
    """What LMDB would stumble over, None where there is nothing."""
    try:
        _require_metas(pages)
        _Walk(pages).all()
    except _Unsound as found:
        return str(found)
    return None


def problem_of_metas(path: Path) -> str | None:
    """The same of the first two pages, which LMDB reads when it opens a file; None for one that is empty."""
    try:
        with closing(Pages(path)) as pages:
            if pages.length:
                _require_metas(pages)
    except _Unsound as found:
        return str(found)
    return None


def _require(holds: bool, said: str) -> None:
    if not holds:
        raise _Unsound(said)


def _require_metas(pages: Pages) -> None:
    _require(pages.readable, "it has no page that says what it is")
    _require(
        pages.newest_is_known, "a page that says where the newest commit is cannot be believed"
    )
    for number in (0, 1):
        flags = HEADER.unpack_from(pages.data, number * pages.page_bytes)[2]
        _require(flags == META_PAGE, f"page {number} is not what it should be")
    wanted = (pages.last_page + 1) * pages.page_bytes
    _require(
        wanted <= 2 * pages.length,
        f"it should have {wanted} bytes and has {pages.length}: it was cut",
    )


class _Walk:
    """Through every page in use, each of which may have one user."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._data, self._size = pages.data, pages.page_bytes
        self._used = {0, 1}

    def all(self) -> None:
        tables = [tree_of(row[1]) for row in self._rows(self._pages.main, TABLE)]
        for table in tables:
            for _ in self._rows(table, BIG):
                pass
        for key, value in self._rows(self._pages.free, BIG, KEYS_ARE_NUMBERS):
            self._free(key, value)

    def _rows(self, tree: Tree, flags: int, kind: int = 0) -> Iterator[Row]:
        """The rows of a tree that may have these flags; without their content where nobody needs it."""
        _require(tree.flags & ~NO_FOLDER == kind, "a table is not of the kind it should be")
        found = 0
        if tree.root != NOWHERE:
            for page, at in self._leaves(tree.root, tree.depth):
                count, rows = self._leaf(page, at, flags, flags == TABLE or bool(kind))
                found += count
                yield from rows
        _require(found == tree.rows, f"a table has {found} rows and should have {tree.rows}")

    def _leaves(self, number: int, depth: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each leaf below a page, all at the same depth, and where in it rows begin."""
        _require(0 < depth <= DEPTH_MAX, f"page {number} is too deep")
        self._use(number, 1)
        start = number * self._size
        found, _, flags, lower, upper = HEADER.unpack_from(self._data, start)
        wanted = LEAF if depth == 1 else BRANCH
        _require((found, flags) == (number, wanted), f"page {number} is not what it should be")
        in_order = HEADER.size < lower <= upper <= self._size and lower % 2 == 0
        _require(in_order, f"page {number} has no order")
        at = struct.unpack_from(f"<{(lower - HEADER.size) // 2}H", self._data, start + HEADER.size)
        _require(min(at) >= upper, f"a row of page {number} is outside of it")
        if depth == 1:
            yield number, at
            return
        _require(len(at) > 1, f"page {number} has no order")
        filled = 0
        for place in at:
            _require(place + NODE.size <= self._size, f"a row of page {number} is outside of it")
            low, high, top, key_bytes = NODE.unpack_from(self._data, start + place)
            filled += (NODE.size + key_bytes + 1) & ~1
            _require(
                place + NODE.size + key_bytes <= self._size, f"a row of page {number} ends outside"
            )
            yield from self._leaves(low | high << 16 | top << 32, depth - 1)
        _require(filled == self._size - upper, f"page {number} is not filled by its rows")

    def _leaf(
        self, number: int, places: tuple[int, ...], allowed: int, wanted: bool
    ) -> tuple[int, list[Row]]:
        start, size = number * self._size, self._size
        page = self._data[start : start + size]
        unpack, header = NODE.unpack_from, NODE.size
        filled, rows = 0, []
        upper = HEADER.unpack_from(page)[4]
        for at in places:
            if at + header > size:
                raise _Unsound(f"a row of page {number} is outside of it")
            low, high, flags, key_bytes = unpack(page, at)
            value_bytes = low | high << 16
            length = header + key_bytes + (8 if flags & BIG else value_bytes)
            if at + length > size or flags & ~allowed:
                raise _Unsound(f"a row of page {number} is none")
            filled += (length + 1) & ~1
            if not (flags or wanted):
                continue
            key_end = at + header + key_bytes
            value = page[key_end : at + length]
            if flags & BIG:
                value = self._large(int.from_bytes(value, "little"), value_bytes)
            if wanted:
                rows.append((page[at + header : key_end], value))
        _require(filled == size - upper, f"page {number} is not filled by its rows")
        _require(
            allowed != TABLE or all(len(row[1]) == TREE.size for row in rows),
            f"page {number} has a table that is none",
        )
        return len(places), rows

    def _large(self, number: int, value_bytes: int) -> bytes:
        start = number * self._size
        in_file = start + HEADER.size + value_bytes <= len(self._data)
        _require(in_file, f"page {number} is not in the file")
        found, _, flags, low, high = HEADER.unpack_from(self._data, start)
        _require((found, flags) == (number, OVERFLOW), f"page {number} is not what it should be")
        count = low | high << 16
        _require(
            count * self._size >= HEADER.size + value_bytes,
            f"page {number} is smaller than its value",
        )
        self._use(number, count)
        return self._data[start + HEADER.size : start + HEADER.size + value_bytes]

    def _use(self, number: int, count: int) -> None:
        in_file = (number + 1) * self._size <= len(self._data)
        _require(
            in_file and number + count - 1 <= self._pages.last_page,
            f"page {number} is not in the file",
        )
        for page in range(number, number + count):
            _require(page not in self._used, f"page {page} has two uses")
            self._used.add(page)

    def _free(self, key: bytes, value: bytes) -> None:
        """A list of free pages: how many, and which, the last first. LMDB may have reserved more room."""
        whole = len(key) == 8 and len(value) % 8 == 0 and len(value) >= 8
        _require(whole, "a list of free pages is none")
        count, *free = struct.unpack(f"<{len(value) // 8}Q", value)
        _require(count <= len(free), "a list of free pages is longer than its room")
        free = free[:count]
        _require(free == sorted(set(free), reverse=True), "a list of free pages is not in order")
        _require(not free or free[0] <= self._pages.last_page, "a page is free that is none")
        _require(self._used.isdisjoint(free), "a page is free and in use")
        self._used.update(free)


# -- seals


def stamp(found: os.stat_result) -> Stamp:
    """What is different when somebody has written to a file, be it by a copy that takes the times along: when the
    file itself was changed last nobody can set."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_sealed(path: Path) -> bool:
    try:
        return Path(f"{path}{SEAL}").read_bytes() == _seal(stamp(os.stat(path)))
    except OSError:
        return False


def seal(path: Path, seen: Stamp) -> None:
    """Says that the file, as it was seen, is sound. Where that cannot be kept, it is looked through again."""
    try:
        if not is_sealed(path) and stamp(os.stat(path)) == seen:
            Path(f"{path}{SEAL}").write_bytes(_seal(seen))
    except OSError as error:
        log.debug("%s is not sealed: %s", path, error)


class Sealing:
    """What a process knows of a file that it has open, and the seal that it leaves there at last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ours: Stamp | None = None
        """How the file was when it was last known to be sound, and by whom it was changed since; None where it is not
        known, or known to be damaged."""

    def leave(self) -> None:
        """Once: what changes the file from then on is somebody else's."""
        ours, self.ours = self.ours, None
        if ours is not None:
            seal(self.path, ours)


def _seal(seen: Stamp) -> bytes:
    return " ".join(map(str, seen)).encode()
