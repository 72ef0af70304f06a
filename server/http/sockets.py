"""Connections that cannot be held by a client that is slow, half gone, or asks for too much.

uvicorn's own protocol waits without end for the head of a request and for a client to read. Here both
have a time, after which the connection is cut. Bodies and the time of requests are left to `limits`.

It also writes the head of an answer alone: a call of the system more, and a client that wakes up twice. Here head and
body are written in one piece.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from server.http.errors import error_body

HEAD_BYTES_MAX = 32 * 1024
KEEP_ALIVE_SECONDS = 30


def protocol(*, patience_s: float, connections_max: int) -> type[H11Protocol]:
    """A protocol for uvicorn with these limits."""
    limits = {"patience_s": patience_s, "connections_max": connections_max}
    return type("PatientProtocol", (_PatientProtocol,), limits)


class _PatientProtocol(H11Protocol):
    patience_s: ClassVar[float]
    connections_max: ClassVar[int]

    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _early_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = cast(asyncio.Transport, _Joining(transport, self.loop))
        if len(self.connections) > self.connections_max:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections are open")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._head)
        self._stop(self._unread)
        super().connection_lost(exc)

    # -- the head of a request: its time starts with the connection, or with its first byte

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._in_request() and not self.cycle.more_body:
            # The next request, before this one is answered. uvicorn would take in another buffer's
            # worth after each answer, without end.
            self._early_bytes += len(data)
            if self._early_bytes > HEAD_BYTES_MAX:
                self._cut()
                return
        else:
            self._early_bytes = 0
        super().data_received(data)
        if self._in_request():
            self._stop(self._head)
            self._head = None
        elif self._head is None:
            self._await_head()

    def _in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.patience_s, self._cut)

    # -- what the client does not read

    def pause_writing(self) -> None:
        self._unread = self.loop.call_later(self.patience_s, self._cut)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop(self._unread)
        super().resume_writing()

    # -- the end

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        body = error_body(status, message)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()

    def _cut(self) -> None:
        """At once, and with what the system still holds for the client."""
        connection = self.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


class _Joining:
    """A transport that joins what is written in one go by twos: the head of an answer, and its body."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held:
            self._transport.write(self._held + data)
            self._held = b""
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            self.write(b"")
