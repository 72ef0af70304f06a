"""Taking turns at something that may be read by many at once, or changed by one while nobody reads.

Promises: a writer that works in many short turns lets every waiting reader in between two of them. A
plain lock does not: a thread that releases it and takes it again at once usually wins against those
who were waiting, so that a search would sit out a whole batch.

Left to others: a reader that asks for a second turn while it holds one may wait for ever behind a
writer, and a stream of readers without a gap keeps writers out. Searches hold a turn for about a
millisecond and wait for the writer to reach the head of the log, so they leave gaps by themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Many readers, or one writer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reading = 0
        self._waiting_to_read = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Shares the turn with other readers."""
        with self._changed:
            self._waiting_to_read += 1
            try:
                self._changed.wait_for(lambda: not self._writing)
            finally:
                self._waiting_to_read -= 1
            self._reading += 1
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Has the turn alone, after every reader that came before or is waiting."""
        with self._changed:
            self._changed.wait_for(
                lambda: not (self._writing or self._reading or self._waiting_to_read)
            )
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
