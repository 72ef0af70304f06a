"""The analytics of a project: counts and rankings in an LMDB file of their own, shared by processes.

Promises: a batch of the log and its checkpoint become durable in one transaction; a batch seen before
changes nothing; every past of the counts can be read as the state's can; a file that is lost or cannot be
read is begun anew and found empty, for the log can always fill it again.

Left to others: which counts there are and how they are ordered is `tables`, what an entry
does to them `counting`, how a batch is written `ledger`; names and types stay with
the state, which has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path

import lmdb

from memlog.log import Log
from memlog.state import State
from memlog.storage.derived import derived
from memlog.storage.tables import LmdbRows, Timeline, place
from projections.analytics.counting import Counting
from projections.analytics.ledger import Ledger
from projections.analytics.tables import UNRANKED_MAX, Analytics
from projections.protocol import BATCH_BYTES

ANALYTICS_VERSION = 3
"""Of the tables and of everything that decides what is in them. The folder's name carries it."""

FILE = "analytics.mdb"

_DATABASES = ("now", "past", "meta")
_POSITION_KEY = b"position"


class AnalyticsProjector:
    """Follows the log into `path`. Any thread may read while one applies.

    Whoever reads the project and its analytics together enters the project first, as `batches` does: a
    map that must grow waits for its readers, and two orders could wait for each other.
    """

    name = "analytics"
    batch_entries = 50_000
    batch_bytes = BATCH_BYTES

    def __init__(self, path: Path, *, unranked_max: int = UNRANKED_MAX) -> None:
        self._unranked_max = unranked_max
        self._environment = derived(path / FILE, _DATABASES, own_folder=True)

    @property
    def position(self) -> int:
        """That of the newest commit of any process, which is what is read: one may have begun anew and died."""
        with self._environment.read() as transaction:
            return self._checkpoint(transaction)

    def refresh(self) -> None:
        """There is nothing to do: every read sees the newest commit."""

    @contextmanager
    def read(self, at: int | None = None) -> Iterator[Analytics]:
        """The counts as of position `at` (None: now), in one snapshot."""
        with self._environment.read() as transaction:
            position = self._checkpoint(transaction)
            timeline = self._timeline(transaction)
            if at is None or at >= position:
                yield Analytics(timeline, position)
            else:
                yield Analytics(timeline.at(at), at)

    def apply(self, log: Log, state_at: Callable[[int], State], until: int) -> None:
        """Counts what is in the log up to the position `until` and was not counted yet, all of it or nothing.

        Raises StorageError where the disk stands in the way.
        """

        def body(transaction: lmdb.Transaction) -> None:
            after = self._checkpoint(transaction)
            if until <= after:
                return
            databases = self._environment.databases
            ledger = Ledger(transaction, databases["now"], databases["past"])
            counting = Counting(ledger, state_at, self._unranked_max)
            for entry in islice(log.read(after), until - after):
                counting.count(entry)
            ledger.flush()
            transaction.put(_POSITION_KEY, place(until), db=databases["meta"])

        self._environment.write(body)

    def reset(self) -> None:
        def body(transaction: lmdb.Transaction) -> None:
            for database in self._environment.databases.values():
                transaction.drop(database, delete=False)

        self._environment.write(body)

    def digest(self) -> str:
        """SHA-256 over every row, of the present and of the past."""
        hashed = sha256()
        with self._environment.read() as transaction:
            for name in ("now", "past"):
                for row in LmdbRows(transaction, self._environment.databases[name]).scan(b""):
                    for part in row:
                        hashed.update(place(len(part)) + part)
        return hashed.hexdigest()

    def close(self) -> None:
        self._environment.close()

    def _timeline(self, transaction: lmdb.Transaction) -> Timeline:
        databases = self._environment.databases
        return Timeline(
            LmdbRows(transaction, databases["now"]), LmdbRows(transaction, databases["past"])
        )

    def _checkpoint(self, transaction: lmdb.Transaction) -> int:
        stored = transaction.get(_POSITION_KEY, b"", db=self._environment.databases["meta"])
        return int.from_bytes(stored, "big")
