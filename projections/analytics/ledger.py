"""The timeline of analytics while a batch is counted: what is written is kept in memory until the batch ends.

Most rows change several times in a batch, and LMDB takes rows in order of key several times as fast as
one here and one there. So reads see what is kept first, then the database; `flush` writes each row once,
and all in order. What is kept grows with the batch, about a kilobyte an entry.
"""

from __future__ import annotations

from collections import defaultdict
from typing import cast

import lmdb

from memlog.storage.tables import SINCE_BYTES, LmdbRows, Timeline, place

_Kept = dict[bytes, bytes | None]


class Ledger(Timeline):
    """A timeline over two LMDB databases inside one transaction. Nothing is written before `flush`,
    and of what is kept until then `get` alone knows: `scan` tells what was written before."""

    def __init__(
        self, transaction: lmdb.Transaction, now: lmdb._Database, past: lmdb._Database
    ) -> None:
        super().__init__(LmdbRows(transaction, now), LmdbRows(transaction, past))
        self._transaction = transaction
        self._databases = now, past
        self._kept: _Kept = {}
        """What keys hold now, with the position since which they do; None of those that were deleted."""
        self._replaced: defaultdict[int, dict[bytes, bytes]] = defaultdict(dict)
        """What goes to the past, by table: within one it comes nearly in order. Dictionaries, for the
        garbage collector would walk through as many tuples again and again."""

    def move_to(self, position: int) -> None:
        self.position, self._place = position, place(position)

    def get(self, key: bytes) -> bytes | None:
        kept = self._kept
        stored = kept[key] if key in kept else self._now.get(key)
        return None if stored is None else stored[SINCE_BYTES:]

    def put(self, key: bytes, value: bytes) -> None:
        kept, since = self._kept, self._place
        old = kept[key] if key in kept else self._now.get(key)
        if old is not None and old[:SINCE_BYTES] != since:
            self._replaced[key[0]][key + since] = old
        kept[key] = since + value

    def add(self, key: bytes, value: bytes) -> None:
        self._kept[key] = self._place + value

    def delete(self, key: bytes) -> None:
        kept = self._kept
        old = kept[key] if key in kept else self._now.get(key)
        if old is not None:
            if old[:SINCE_BYTES] != self._place:
                self._replaced[key[0]][key + self._place] = old
            kept[key] = None

    def flush(self) -> None:
        now, past = self._databases
        kept = self._kept
        for key in sorted(key for key, value in kept.items() if value is None):
            self._transaction.delete(key, db=now)
            del kept[key]
        self._put(now, cast("dict[bytes, bytes]", kept))
        for _, replaced in sorted(self._replaced.items()):
            self._put(past, replaced)
        kept.clear()
        self._replaced.clear()

    def _put(self, database: lmdb._Database, rows: dict[bytes, bytes]) -> None:
        keys = sorted(rows)
        values = map(rows.__getitem__, keys)
        self._transaction.cursor(database).putmulti(zip(keys, values, strict=True))
