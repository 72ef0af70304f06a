"""What is counted and ranked: the rows, the order of the keys, and every read of them.

Tables, by first byte of the key (texts are hashed to 16 bytes; an entity is named by the position of
its birth, eight bytes that no other has):

    G                       totals
    E birth                 what is counted of a living entity
    C hash(what, type)      how many there are of a type
    H hash(thread)          a thread
    T hash(thread), birth   the entities that a thread touched, living or not
    V birth, hash(thread)   of these, the threads that have rankings of their own
    W hash(name)            names at which a relation ever waited for an entity
    R scope, newest update first, newest birth first    the living, by last change
    I scope, highest importance first, the same         by importance
    D scope, highest degree first, the same             by degree, from 1 on
    O scope, newest birth first                         the orphans

A scope is the hash of a thread, or zeros for all. The top of a ranking is the beginning of a scan,
whatever the size of the graph. Only a thread that touched more than `UNRANKED_MAX` entities has rankings
of its own; those of a smaller one are made when they are asked for. Were it otherwise, an entity that
every conversation mentions would be moved in as many rankings as there were conversations, at each change.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from functools import lru_cache
from itertools import islice
from typing import Literal

import msgspec

from memlog.rows import Row, text_key
from memlog.storage.tables import Reader, newest_first, place

_LAST = 2**64 - 1
_pair = struct.Struct(">QQ").pack
_double, _integer = struct.Struct(">d").pack, struct.Struct(">Q").unpack

ALL = bytes(16)
"""The scope of the rankings over all entities."""

HASHES_KEPT_MAX = 4_096
"""Hashes of threads and types are remembered, up to so many: few of them come up often."""

UNRANKED_MAX = 128
"""So many entities of a thread are read and sorted in about half a millisecond."""

Order = Literal["recent", "important", "connected", "orphaned"]
Reason = Literal["no_relations", "broken_relation"]
What = Literal["entity", "active", "superseded", "deleted"]
"""What is counted by type: living entities, and memories by their condition."""

_TABLES: dict[Order, bytes] = {
    "recent": b"R",
    "important": b"I",
    "connected": b"D",
    "orphaned": b"O",
}


class Counts(Row, frozen=True):
    """What is counted of one living entity.

    `degree` counts the relations whose two ends live, a loop once; `broken` those whose other end does
    not.
    """

    id: str
    born: int
    updated_us: int
    importance: float
    observations: int = 0
    degree: int = 0
    broken: int = 0

    @property
    def is_orphan(self) -> bool:
        return bool(self.broken) or not self.degree

    @property
    def orphaned(self) -> Reason | None:
        """Why it is an orphan; a relation that leads nowhere is told also where others lead somewhere."""
        if self.broken:
            return "broken_relation"
        return None if self.degree else "no_relations"


class Totals(msgspec.Struct, array_like=True):
    """Of what lives. `atomic` observations are as short as `save_memory` demands; `related` entities
    have a degree. `time_us` is that of the last entry that was counted.
    """

    time_us: int = 0
    entities: int = 0
    observations: int = 0
    atomic: int = 0
    relations: int = 0
    related: int = 0
    orphaned: int = 0
    threads: int = 0


class Thread(msgspec.Struct, array_like=True):
    """A thread: how many entities it ever touched, living or not, and what it wrote.

    `command` is the last one's id, by which the next entry is known to be of the same.
    """

    thread: str
    entities: int = 0
    ranked: bool = False
    events: int = 0
    commands: int = 0
    first_us: int = 0
    last_us: int = 0
    last_position: int = 0
    command: str = ""


class Count(Row, frozen=True):
    """How many of a type there are: `what` says of what."""

    what: What
    type: str
    number: int


class Effect(msgspec.Struct):
    """What one entry changed. `rows` holds the counts of entities before and after it, None where they do
    not live; `touched` the births of those it changed, or whose observations, or that got or lost a
    relation; `waiting` the hashes of names at which relations lead to nobody; the rest is to be added to
    what there is.
    """

    rows: list[tuple[Counts | None, Counts | None]]
    touched: Collection[int]
    types: Collection[tuple[What, str, int]] = ()
    atomic: int = 0
    relations: int = 0
    waiting: Collection[bytes] = ()


_totals = msgspec.msgpack.Decoder(Totals).decode
_counts = msgspec.msgpack.Decoder(Counts).decode
_thread = msgspec.msgpack.Decoder(Thread).decode
_count = msgspec.msgpack.Decoder(Count).decode

TOTALS_KEY = b"G"
RANKED = b"V"


def counts_key(born: int) -> bytes:
    return b"E" + place(born)


@lru_cache(HASHES_KEPT_MAX)
def count_key(what: What, of_type: str) -> bytes:
    return b"C" + text_key(what, of_type)


@lru_cache(HASHES_KEPT_MAX)
def scope_of(thread: str) -> bytes:
    return text_key(thread)


def thread_key(scope: bytes) -> bytes:
    return b"H" + scope


def touched_key(scope: bytes, born: int) -> bytes:
    return b"T" + scope + place(born)


def waiting_key(name_hash: bytes) -> bytes:
    return b"W" + name_hash


def ranked_key(born: int, scope: bytes = b"") -> bytes:
    return RANKED + place(born) + scope


def rank_key(order: Order, scope: bytes, rank: bytes = b"") -> bytes:
    return _TABLES[order] + scope + rank


def ranks(row: Counts) -> dict[Order, bytes]:
    """The places of an entity, each the end of a key; the last eight bytes tell its birth."""
    found: dict[Order, bytes] = {"recent": _recent(row), "important": _important(row)}
    if row.degree:
        found["connected"] = _connected(row)
    if row.is_orphan:
        found["orphaned"] = _orphaned(row)
    return found


def moves(old: Counts, new: Counts) -> list[tuple[Order, bytes | None, bytes | None]]:
    """The orders in which an entity got another place: where it stood before, and where it stands now."""
    found: list[tuple[Order, bytes | None, bytes | None]] = []
    if old.updated_us != new.updated_us:
        found.append(("recent", _recent(old), _recent(new)))
    if old.importance != new.importance:
        found.append(("important", _important(old), _important(new)))
    if old.degree != new.degree:
        left = _connected(old) if old.degree else None
        found.append(("connected", left, _connected(new) if new.degree else None))
    if old.is_orphan != new.is_orphan:
        only = _orphaned(new)
        found.append(("orphaned", None, only) if new.is_orphan else ("orphaned", only, None))
    return found


def _recent(row: Counts) -> bytes:
    return _pair(_LAST - row.updated_us, _LAST - row.born)


def _important(row: Counts) -> bytes:
    return _pair(_LAST - _bits(row.importance), _LAST - row.born)


def _connected(row: Counts) -> bytes:
    return _pair(_LAST - row.degree, _LAST - row.born)


def _orphaned(row: Counts) -> bytes:
    return newest_first(row.born)


def _bits(share: float) -> int:
    """The bits of IEEE 754, which sort as the numbers do from 0 on."""
    bits: int = _integer(_double(abs(share)))[0]
    return bits


class Analytics:
    """Reads of the tables as they stand at one moment."""

    def __init__(self, tables: Reader, position: int) -> None:
        self._tables = tables
        self._members: dict[bytes, list[Counts]] = {}
        self.position = position

    def totals(self) -> Totals:
        row = self._tables.get(TOTALS_KEY)
        return Totals() if row is None else _totals(row)

    def entity(self, born: int) -> Counts | None:
        row = self._tables.get(counts_key(born))
        return None if row is None else _counts(row)

    def count(self, what: What, of_type: str) -> Count:
        row = self._tables.get(count_key(what, of_type))
        return Count(what, of_type, 0) if row is None else _count(row)

    def counts(self) -> Iterator[Count]:
        """How many there are of each type, in no order."""
        for _, row in self._tables.scan(b"C"):
            yield _count(row)

    def thread(self, scope: bytes) -> Thread | None:
        row = self._tables.get(thread_key(scope))
        return None if row is None else _thread(row)

    def threads(self) -> Iterator[Thread]:
        """All threads that wrote anything, in no order."""
        for _, row in self._tables.scan(b"H"):
            yield _thread(row)

    def touched(self, scope: bytes) -> Iterator[int]:
        """The births of the entities that a thread touched, living or not."""
        for key, _ in self._tables.scan(b"T" + scope):
            yield int.from_bytes(key[-8:], "big")

    def ranked(self, order: Order, thread: str | None = None) -> Iterator[Counts]:
        """Entities in this order, the first place first; of all, or of those that a thread touched.

        At the present each costs a seek or two. In the past, places that were left before or taken since
        are passed over on the way; so the way ends where as many were found as there are.
        """
        totals = self.totals()
        if thread is None:
            there_are = {"connected": totals.related, "orphaned": totals.orphaned}
            return islice(self._scanned(order, ALL, totals), there_are.get(order))
        scope = scope_of(thread)
        row = self.thread(scope)
        if row is not None and row.ranked:
            return self._scanned(order, scope, totals)
        return self._sorted(order, scope)

    def _scanned(self, order: Order, scope: bytes, totals: Totals) -> Iterator[Counts]:
        prefix = rank_key(order, scope)
        start = b""
        if order == "recent":
            start = prefix + newest_first(totals.time_us)
        elif order == "orphaned":
            start = prefix + newest_first(self.position)
        for key, _ in self._tables.scan(prefix, start):
            row = self.entity(_LAST - int.from_bytes(key[-8:], "big"))
            assert row is not None, "what has a place lives"
            yield row

    def _sorted(self, order: Order, scope: bytes) -> Iterator[Counts]:
        if scope not in self._members:
            rows = (self.entity(born) for born in self.touched(scope))
            self._members[scope] = [row for row in rows if row is not None]
        places = {ranks(row).get(order): row for row in self._members[scope]}
        return (places[rank] for rank in sorted(rank for rank in places if rank is not None))
