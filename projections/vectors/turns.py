"""Taking turns at something that may be read by many at once, or changed by one while nobody reads.

Promises that neither side keeps the other out: a writer that works in many short turns lets every waiting
reader in between two of them, and a reader that comes while a writer waits lets that writer go first.
(A plain lock promises neither: a thread that releases it and takes it again at once usually wins
against those who were waiting.) Known as a phase-fair lock: Brandenburg, Anderson 2010.

Left to others: a reader that asks for a second turn while it holds one may wait for ever behind a
writer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from memlog.patience import Impatient, waiting_seconds
from memlog.storage.gates import Counted


class Turns:
    """Many readers, or one writer."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Taken by itself: a condition takes it in two steps, between which an interrupt may come."""
        self._changed = threading.Condition(self._lock)
        self._reading = Counted()
        self._writing = False
        self._waiting_to_write = 0
        self._waiting_to_read = 0
        self._due = 0
        """Readers who waited for the last writer, and come before the next."""
        self._written = 0
        """How many turns of writers have ended."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Shares the turn with other readers."""
        with self._lock:
            if self._writing or self._waiting_to_write:
                self._wait_to_read()
            self._reading.add(1)
        try:
            yield
        finally:
            with self._lock:
                self._reading.add(-1)
                self._changed.notify_all()

    def _wait_to_read(self) -> None:
        """Raises Impatient. Whatever ends the waiting, nobody waits for this reader then."""
        written = self._written
        self._waiting_to_read += 1
        try:
            if not self._changed.wait_for(lambda: self._written != written, waiting_seconds()):
                raise Impatient
        finally:
            if self._written == written:
                self._waiting_to_read -= 1
            else:
                self._due -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Has the turn alone, after every reader that came before. Nobody asks for it who reads: what this thread reads
        still, an interrupt left behind."""
        with self._lock:
            self._reading.forsake()
            self._waiting_to_write += 1
            try:
                self._changed.wait_for(lambda: not (self._writing or self._reading or self._due))
            finally:
                self._waiting_to_write -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._lock:
                self._writing = False
                self._written += 1
                self._due, self._waiting_to_read = self._waiting_to_read, 0
                self._changed.notify_all()
