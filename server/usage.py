"""What was read, and what was refused: worth knowing, not worth an event.

Kept in memory and written to `usage.mdb` now and then and at the end, so that reading a memory costs no
write. Losing the last of it loses no memory; nothing in the log or the indexes depends on it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import lmdb

from memlog.errors import StorageError
from memlog.projects.project import clock_us
from memlog.storage.derived import derived

logger = logging.getLogger("memlog.usage")


class Usage:
    """When each memory was last read, and how often calls of a kind went well or did not."""

    def __init__(self, path: Path) -> None:
        self._environment = derived(path, ("accessed", "counted"))
        self._writing = threading.Lock()
        """Held by who writes: what is forgotten meanwhile would come back."""
        self._lock = threading.Lock()
        self._accessed: dict[str, int] = {}
        self._counted: Counter[str] = Counter()
        self._told = False
        """Whether it was, that nothing can be read: once is enough."""

    def read(self, memory_ids: Iterable[str]) -> None:
        """These memories were read just now."""
        now = clock_us()
        with self._lock:
            for memory_id in memory_ids:
                self._accessed[memory_id] = max(now, self._accessed.get(memory_id, 0))

    def accessed_us(self, memory_id: str) -> int:
        """When the memory was last read, in microseconds since 1970, which does not go back with the clock; 0 for
        never."""
        with self._lock:
            recent = self._accessed.get(memory_id, 0)
        return max(recent, self._stored("accessed", memory_id))

    def count(self, key: str) -> None:
        with self._lock:
            self._counted[key] += 1

    def counted(self, key: str) -> int:
        with self._lock:
            recent = self._counted[key]
        return recent + self._stored("counted", key)

    def forget(self, memory_ids: Iterable[str]) -> None:
        """These memories are gone."""
        gone = set(memory_ids)

        def body(transaction: lmdb.Transaction) -> None:
            for memory_id in gone:
                transaction.delete(memory_id.encode(), db=self._environment.databases["accessed"])

        with self._writing:
            with self._lock:
                for memory_id in gone:
                    self._accessed.pop(memory_id, None)
            self._environment.write(body)

    def flush(self) -> None:
        """Writes what is new; several processes add up. Until it is on the disk it stays in memory, where it is told
        from, and for the next time if the disk refuses it."""
        with self._writing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            accessed, counted = self._accessed.copy(), self._counted.copy()
        if not accessed and not counted:
            return

        def body(transaction: lmdb.Transaction) -> None:
            databases = self._environment.databases
            for memory_id, time_us in accessed.items():
                before = _number(transaction, databases["accessed"], memory_id)
                _put(transaction, databases["accessed"], memory_id, max(before, time_us))
            for key, count in counted.items():
                before = _number(transaction, databases["counted"], key)
                _put(transaction, databases["counted"], key, before + count)

        try:
            self._environment.write(body)
        except (StorageError, OSError) as error:
            logger.warning("what was read and refused cannot be noted now: %s", error)
            return
        with self._lock:
            self._accessed = dict(self._accessed.items() - accessed.items())
            self._counted -= counted

    def close(self) -> None:
        self.flush()
        self._environment.close()

    def _stored(self, database: str, key: str) -> int:
        """0, too, where it cannot be read: no answer fails for what is worth knowing only."""
        try:
            with self._environment.read() as transaction:
                number = _number(transaction, self._environment.databases[database], key)
        except StorageError as error:
            if not self._told:
                logger.warning("what was read and refused cannot be told now: %s", error)
            self._told = True
            return 0
        self._told = False
        return number


def _number(transaction: lmdb.Transaction, database: lmdb._Database, key: str) -> int:
    return int.from_bytes(transaction.get(key.encode(), b"", db=database), "big")


def _put(transaction: lmdb.Transaction, database: lmdb._Database, key: str, number: int) -> None:
    transaction.put(key.encode(), number.to_bytes(8, "big"), db=database)
