"""The log of one project inside a transaction: append, read, head, verify. Never changed but at its end.

What is read is checked against the chain of hashes, so nobody is told what was not written. Positions are
dense from 1. The time of an entry is never before that of the entry ahead of it, also
where the machine's clock goes backwards; so a time names a position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile

import lmdb
import msgspec

from memlog import codec
from memlog.codec import CHAIN_END, GENESIS, Entry
from memlog.errors import MemlogError
from memlog.events import Erased, Event
from memlog.patience import require_time
from memlog.storage.tables import place


class Head(msgspec.Struct, frozen=True):
    """The last entry's position, time (microseconds) and chain; zeros before the first."""

    position: int = 0
    time_us: int = 0
    chain: bytes = GENESIS


class Damage(msgspec.Struct, frozen=True):
    """What `verify` found wrong, and at which position."""

    position: int
    problem: str


class Vacant(int):
    """A sound position: a repair found that what was written there is lost, and put nothing in its place."""


class Retold(int):
    """A sound position: what was written there is lost, and a repair put there what the state told, or what follows."""


class Checked:
    """The position up to which this process has verified the chain: whatever reads the log from its first entry on,
    as one projection after another does, verifies only what comes after it."""

    position = 0
    head = Head()
    """The last entry that this process wrote; whether it is the last one still, its chain tells."""


class Log:
    """The log as one transaction sees it."""

    def __init__(
        self,
        transaction: lmdb.Transaction,
        database: lmdb._Database,
        checked: Checked | None = None,
    ) -> None:
        self._transaction = transaction
        self._database = database
        self._passed = checked or Checked()

    def head(self) -> Head:
        cursor = self._transaction.cursor(db=self._database)
        if not cursor.last():
            return Head()
        position, value = int.from_bytes(cursor.key(), "big"), bytes(cursor.value())
        written = self._passed.head
        if (position, value[1:CHAIN_END]) == (written.position, written.chain):
            return written
        entry = self._checked(position, value)
        return Head(entry.position, entry.time_us, entry.chain)

    def position(self) -> int:
        cursor = self._transaction.cursor(db=self._database)
        return int.from_bytes(cursor.key(), "big") if cursor.last() else 0

    def append(
        self,
        head: Head,
        time_us: int,
        command_id: str,
        thread: str | None,
        actor: str | None,
        event: Event,
    ) -> Entry:
        """Stores `event` after `head`, at no earlier time than its, and returns the entry."""
        time_us = max(time_us, head.time_us)
        entry, value = codec.encode(
            head.chain, head.position + 1, time_us, command_id, thread, actor, event
        )
        self._transaction.put(place(entry.position), value, db=self._database, append=True)
        return entry

    def read(self, after: int = 0) -> Iterator[Entry]:
        """Entries beyond the position `after`, in order. Raises DamagedLog at the first that was changed."""
        chain = self.chain_at(after) if after else GENESIS
        known = last = self._passed.position
        try:
            for position, value in self.stored(after):
                if position > known:
                    codec.require_follows(chain, position, value)
                    last = position
                chain = value[1:CHAIN_END]
                yield codec.decode(position, value)
        finally:
            if after <= known:
                self._passed.position = max(last, self._passed.position)

    def entry(self, position: int) -> Entry | None:
        """The entry at `position`, None where there is none."""
        if position < 1:
            return None
        require_time()
        value = self._transaction.get(place(position), db=self._database)
        return None if value is None else self._checked(position, bytes(value))

    def _checked(self, position: int, value: bytes) -> Entry:
        """The entry, which is what was written after the one before."""
        codec.require_follows(
            self.chain_at(position - 1) if position > 1 else GENESIS, position, value
        )
        return codec.decode(position, value)

    def read_back(self, before: int | None) -> Iterator[Entry]:
        """Entries below the position `before`, or all, the newest first."""
        cursor = self._transaction.cursor(db=self._database)
        found = cursor.last() if before is None else cursor.set_range(place(before))
        if before is not None:
            found = cursor.prev() if found else cursor.last()
        if not found:
            return
        for key, value in cursor.iterprev():
            require_time()
            yield self._checked(int.from_bytes(key, "big"), bytes(value))

    def newest_first(
        self, at: Collection[int] | None = None, *, before: int | None = None, after: int = 0
    ) -> Iterator[Entry]:
        """The entries at these positions, or all, the newest first; beyond `after` and below `before`."""
        if at is None:
            yield from takewhile(lambda entry: entry.position > after, self.read_back(before))
            return
        for position in sorted(at, reverse=True):
            if position > after and (before is None or position < before):
                found = self.entry(position)
                if found is not None:
                    yield found

    def position_at(self, time_us: int) -> int:
        """The last position whose time is at or before `time_us`; 0 where there is none."""
        low, high = 0, self.position()
        while low < high:
            middle = (low + high + 1) // 2
            value = self._transaction.get(place(middle), b"", db=self._database)
            if self._checked(middle, bytes(value)).time_us <= time_us:
                low = middle
            else:
                high = middle - 1
        return low

    def chain_at(self, position: int) -> bytes:
        """The chain up to and with the entry at `position`; empty where there is none."""
        value = self._transaction.get(place(position), b"", db=self._database)
        return bytes(value[1:CHAIN_END])

    def verify(self) -> Iterator[int | Damage]:
        """See `verified`."""
        return verified(self.stored())

    def lengths(self, after: int) -> Iterator[int]:
        """How many bytes are stored for each position beyond `after`."""
        cursor = self._transaction.cursor(db=self._database)
        found = cursor.set_range(place(after + 1))
        return map(len, cursor.iternext(keys=False)) if found else iter(())

    def stored(self, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """Each position beyond `after` with the value that is stored there, unchecked."""
        cursor = self._transaction.cursor(db=self._database)
        if cursor.set_range(place(after + 1)):
            value: bytes  # transactions are opened without `buffers`
            for key, value in cursor:  # type: ignore[assignment]
                require_time()
                yield int.from_bytes(key, "big"), value


def verified(
    values: Iterable[tuple[int, bytes]], total: int | None = None
) -> Iterator[int | Damage]:
    """Walks the whole chain; yields each sound position, Vacant or Retold after a repair, and a Damage for each
    unsound one.

    `total` is how many entries there should be. The time of an erased entry is outside the chain; that
    it fits between its neighbours is seen.
    """
    chain, expected, time_us = GENESIS, 1, 0
    for position, value in values:
        if position > expected:
            yield Damage(expected, f"missing: the next entry is at position {position}")
        if position < expected or len(value) <= CHAIN_END:
            yield Damage(expected, f"an entry of {len(value)} bytes stands there as {position}")
            continue
        if not codec.follows(chain, position, value):
            yield Damage(position, "its content does not match the chain of hashes")
        else:
            try:
                entry = codec.decode(position, value)
            except MemlogError as error:
                yield Damage(position, error.message)
            else:
                if entry.time_us < time_us:
                    yield Damage(position, "its time is before that of the entry ahead of it")
                else:
                    yield _mended(entry) if codec.is_mended(value) else position
                time_us = max(time_us, entry.time_us)
        chain, expected = value[1:CHAIN_END], position + 1
    if total is not None and expected <= total:
        yield Damage(expected, f"missing: the log ends before it, and had {total} entries")


def _mended(entry: Entry) -> int:
    return (Vacant if isinstance(entry.event, Erased) else Retold)(entry.position)
