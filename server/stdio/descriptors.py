"""The descriptors of stdin and stdout, and how one of them is read and written.

Promises that nothing but messages reaches the wire, and that a write neither blocks nor needs the
mode of a description that others share to be changed. What to write, and when, is left to those who do.
Imports nothing that takes time. POSIX only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress

READ_BYTES = 64 * 1024


@contextmanager
def private_wire() -> Iterator[tuple[int, int]]:
    """Private descriptors of stdin and stdout, with fd 0 and 1 diverted meanwhile."""
    # From 3 upwards: were stderr closed, a plain dup would make the wire the place for logs.
    source, sink = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:
            os.dup2(null, 1)
        with redirect_stdout(sys.stderr):
            yield source, sink
    finally:
        with suppress(AttributeError, OSError, ValueError):  # there may be no usable sys.stdout
            sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for fd in (source, sink, null):
            os.close(fd)


class Sink:
    """A descriptor that is written to without ever waiting."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)
        self._at_once = hasattr(os, "RWF_NOWAIT") and stat.S_ISFIFO(os.fstat(fd).st_mode)
        """Whether one write can be told not to wait: on Linux, to a pipe, since 6.4."""

    def push(self, data: memoryview) -> memoryview:
        """Write what fits, and return the rest. Raises OSError when nobody reads any more.

        The way not taken, O_NONBLOCK, belongs to the open file description and so to everyone who shares
        it: the shell's terminal, or stderr under `2>&1`.
        """
        try:
            while data and (self._at_once or self._ready.poll(0)):
                data = data[self._write(data) :]
        except BlockingIOError:  # it is full
            pass
        return data

    def _write(self, data: memoryview) -> int:
        if self._at_once:
            try:
                # -1: a pipe has no positions
                now = os.RWF_NOWAIT  # type: ignore[attr-defined, unused-ignore]
                return os.pwritev(self.fd, [data], -1, now)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:
                    raise
                self._at_once = False
        # POSIX lets so many bytes into a pipe that polls as writable without blocking.
        return os.write(self.fd, data[: select.PIPE_BUF]) if self._ready.poll(0) else 0


def is_readable(fd: int) -> bool:
    """Whether a read would not wait."""
    ready = select.poll()
    ready.register(fd, select.POLLIN)
    return bool(ready.poll(0))


def read_chunk(fd: int) -> bytes | None:
    """What is there to read: b"" at the end of the stream, None if there was nothing after all."""
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:  # another process that shares the description took what was there
        return None
    except OSError:  # a terminal or socket that is gone is an end like any other
        return b""
