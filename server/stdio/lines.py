"""A stream of bytes cut into lines.

Promises bounded memory whatever arrives. What a line says is left to `wire`, which takes the SDK's
models and with them half a second to import; this module is ready at once, for `prelude`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

LINE_BYTES_MAX = 64 * 1024 * 1024
EDGE_BYTES = 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Oversized(NamedTuple):
    """What is kept of a line beyond the limit: its length and its two ends."""

    bytes_total: int
    bytes_max: int
    head: bytes
    tail: bytes


Line = bytearray | Oversized


class LineCutter:
    """Cuts a byte stream at newlines, never holding more of one line than `line_bytes_max`. The mark of UTF-8 that some
    programs put at the beginning of the stream is left out."""

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = bytearray()
        self._tail = b""
        self._bytes_total = 0
        self._begun = False

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """The lines that `chunk` completes, blank ones left out."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._hold(end)
            yield from self.finish()
        self._hold(rest)

    def finish(self) -> Iterator[Line]:
        """The line held so far, as if it ended here (a last line needs no newline)."""
        line: Line = self._held
        if self._bytes_total > self._line_bytes_max:
            line = Oversized(self._bytes_total, self._line_bytes_max, bytes(self._held), self._tail)
        if not self._begun and isinstance(line, bytearray) and line.startswith(BYTE_ORDER_MARK):
            del line[: len(BYTE_ORDER_MARK)]
        self._begun = True
        blank = isinstance(line, bytearray) and not line.strip()
        self._held, self._tail, self._bytes_total = bytearray(), b"", 0
        if not blank:
            yield line

    def _hold(self, piece: bytes) -> None:
        fitted = self._bytes_total <= self._line_bytes_max
        self._bytes_total += len(piece)
        if self._bytes_total <= self._line_bytes_max:
            self._held += piece
            return
        if fitted:
            self._tail = bytes(self._held[-EDGE_BYTES:])
            self._held = self._held[:EDGE_BYTES]
        self._tail = (self._tail + piece[-EDGE_BYTES:])[-EDGE_BYTES:]
