"""The log on stderr, where nobody may be reading it.

A client that starts a server with a pipe for stderr need not read it, and a pipe holds some 64 KB. Promises that such
a client is not waited for, but for a moment when the pipe gets full; that what is logged until it reads again is lost,
and how much that was is told then; that no line is torn.
"""

from __future__ import annotations

import logging
import os
import select
import stat
import sys
from contextlib import suppress

from server.stdio.descriptors import Sink

PATIENCE_SECONDS = 1.0
"""For a reader that is only slow."""


def stderr_handler() -> logging.Handler:
    """Writes what is logged to stderr, whatever that is."""
    # There may be none, or one without a descriptor.
    with suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stderr.fileno()
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return Unread(descriptor)
    return logging.StreamHandler(sys.stderr)


class Unread(logging.Handler):
    """Writes to a pipe that may be full."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._sink = Sink(descriptor)
        self._ready = select.poll()
        self._ready.register(descriptor, select.POLLOUT)
        self._rest = b""
        """Of a line that is half written."""
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._rest = self._unsent(self._rest)
            if self._rest:
                self._lost += 1
                return
            line = self._gap() + self._line(record)
            rest = self._unsent(line)
            if len(rest) == len(line):
                self._lost += 1
            else:
                self._rest, self._lost = rest, 0
        except Exception:
            self.handleError(record)

    def _unsent(self, data: bytes) -> bytes:
        """What of `data` the pipe does not take. Raises OSError where nobody will ever read it."""
        rest = self._sink.push(memoryview(data))
        while rest and not self._lost and self._ready.poll(PATIENCE_SECONDS * 1_000):
            rest = self._sink.push(rest)
        return bytes(rest)

    def _gap(self) -> bytes:
        if not self._lost:
            return b""
        said = "what was logged here is missing, for nobody read stderr: %d"
        return self._line(
            logging.LogRecord(__name__, logging.WARNING, __file__, 0, said, (self._lost,), None)
        )

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")
