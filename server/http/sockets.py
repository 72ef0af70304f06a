"""Connections that cannot be held by a client that is slow, half gone, or asks for too much.

uvicorn's own protocol waits without end for the head of a request and for a client to read. Here both
have a time, after which the connection is cut; and so has a network that is gone without a word, of which the system
would tell after a quarter of an hour. Bodies are left to `bodies`, the time of requests to `limits`.

Where all places are taken, one of those that have one gives way to whoever comes (`places`).

A connection that is closed before the body of its request is all here lingers: what still comes is thrown away unread,
for a while, or else the answer would be lost to a client that is still sending. So ends every chunked body that nobody
waits for; one of a stated length is read to its end, which costs little, and its connection goes on. What chunks cost
beside what they carry is bounded too.

It also writes the head of an answer alone: a call of the system more, and a client that wakes up twice. Here head and
body are written in one piece.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar, Protocol, cast
from weakref import ref

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from server.http.errors import error_body
from server.http.logs import REQUEST_ID_HEADER
from server.http.places import Places

HEAD_BYTES_MAX = 32 * 1024
HEADERS_MAX = 200
"""h11 takes 2 µs for each, and whoever looks for one looks at all."""

TOO_MANY_HEADERS = f"The head has more than {HEADERS_MAX} headers"

KEEP_ALIVE_SECONDS = 30
LINGERING_BYTES_MAX = 64 * 1024 * 1024
LINGERING_SECONDS_AT_THE_END = 1.0
"""When the server stops; else it is the patience with a client."""

GIVING_WAY_SECONDS = 1.0
"""That a client has to close TLS in turn whose place was taken: it has none, and is open all the same."""

FRAMING_BYTES_MAX = 16 * 1024
FRAMING_SHARE = 16
"""So many bytes may a body have beside what it carries, and one more for each so many that it carries: h11 takes 35 µs
for a chunk, of one byte too."""

TAKEN_BYTES_MAX = 32 * 1024
"""So much of what a client sent is taken at a time, and all others wait for it; asyncio would take eight times that."""

READ_BYTES_MAX = 8 * 1024
"""So much is read before the server looks again at what it costs."""

ACKNOWLEDGEMENT_MILLISECONDS_MAX = 2**31 - 1
"""The system takes no more: 24 days."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_STANDING = "memlog.standing"


class Refused(Protocol):
    def __call__(self, status: HTTPStatus, why: str, client: str) -> str:
        """Hears of a refusal; returns the id of the request."""


def protocol(*, patience_s: float, connections_max: int, refused: Refused) -> type[H11Protocol]:
    """A protocol for uvicorn with these limits; `refused` hears of what no application sees."""
    own = {
        "patience_s": patience_s,
        "places": Places(connections_max),
        "refused": refused,
    }
    return type("PatientProtocol", (_PatientProtocol,), own)


def expect_acknowledgement(connection: socket.socket, seconds: float) -> None:
    """What is sent and not acknowledged by then ends the connection (RFC 5482); where the system has no such option, it
    ends when the system gives it up."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None:
        milliseconds = round(min(1000 * seconds, ACKNOWLEDGEMENT_MILLISECONDS_MAX))
        connection.setsockopt(socket.IPPROTO_TCP, option, milliseconds)


class _Standing:
    """Of a connection: an object of its own, so that no request refers to its connection in a circle."""

    def __init__(self, connection: _PatientProtocol) -> None:
        self.connection = ref(connection)
        self.lasts = False
        """Whether what is answered is a stream."""


def let_in(scope: Scope, client: str) -> bool:
    """Tells the connection of this request that it passed the token and the rate, and whose it is. Whether there is a
    place for it."""
    standing = _standing(scope)
    connection = None if standing is None else standing.connection()
    return connection is None or connection.places.let_in(connection, client)


def begin_stream(scope: Scope) -> None:
    """Tells the connection of this request that its answer lasts as long as its client listens."""
    standing = _standing(scope)
    if standing is not None:
        standing.lasts = True


def _standing(scope: Scope) -> _Standing | None:
    standing: _Standing | None = scope.get("state", {}).get(_STANDING)
    return standing


class _PatientProtocol(H11Protocol):
    patience_s: ClassVar[float]
    places: ClassVar[Places]
    refused: ClassVar[Refused]

    _head: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _early_bytes = 0
    _framing_bytes = 0
    _lingering: asyncio.TimerHandle | None = None
    _lingering_bytes = 0
    _parting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        cast(Any, transport).max_size = TAKEN_BYTES_MAX  # TLS is read by a buffer of its own
        # Not before who does not read is cut off, who is told so: the system ends a connection without a word.
        expect_acknowledgement(transport.get_extra_info("socket"), 2 * self.patience_s)
        self._joining = _Joining(transport, self.loop)
        self.transport = cast(asyncio.Transport, self._joining)
        self._lingering_s = self.patience_s
        self._standing = _Standing(self)
        self.app_state = {**self.app_state, _STANDING: self._standing}
        if self.places.take(self):
            self._await_head()
        else:
            self.connections.discard(self)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections are open")

    def connection_lost(self, exc: Exception | None) -> None:
        self.places.leave(self)
        self._stop(self._head)
        self._stop(self._unread)
        self._stop(self._lingering)
        self._stop(self._parting)
        super().connection_lost(exc)

    # -- who goes where there is no room

    def on_response_complete(self) -> None:
        self._standing.lasts = False
        self.places.answered(self)
        if self._is_in_chunks() and not self.transport.is_closing():
            self.transport.close()
        super().on_response_complete()

    @property
    def is_idle(self) -> bool:
        """Without a request, or a part of one, or an answer that is not all gone."""
        busy = self._in_request() or self.conn.trailing_data[0] or self.transport.is_closing()
        return not busy and not self.transport.get_write_buffer_size()

    @property
    def is_worked_on(self) -> bool:
        """Not where the answer has to wait until its client reads what was sent before."""
        return self._in_request() and not self._standing.lasts and not self.flow.write_paused

    def give_way(self) -> None:
        self.connections.discard(self)
        asks_for_more = self.conn.trailing_data[0] or self._awaits_body()
        if self.is_worked_on or asks_for_more or self.transport.get_write_buffer_size():
            self._cut()
        else:
            self.transport.close()  # what the system still holds of its last answer arrives
            self._parting = self.loop.call_later(GIVING_WAY_SECONDS, self._cut)

    # -- the head of a request: its time starts with the connection, or with its first byte

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), READ_BYTES_MAX):
            if self.transport.is_closing():
                self._linger_on(len(data) - start)
                return
            self._read(data[start : start + READ_BYTES_MAX])

    def _read(self, data: bytes) -> None:
        if self._in_request() and not self.cycle.more_body:
            # The next request, before this one is answered. uvicorn would take in another buffer's
            # worth after each answer, without end.
            self._early_bytes += len(data)
            if self._early_bytes > HEAD_BYTES_MAX:
                self._cut()
                return
        else:
            self._early_bytes = 0
        if self._has_many_headers(data):
            self._refuse(HTTPStatus.BAD_REQUEST, TOO_MANY_HEADERS)
            return
        self._look_at_framing(data)
        if self._in_request():
            self._stop(self._head)
            self._head = None
        elif self._head is None:
            self._await_head()

    def _has_many_headers(self, data: bytes) -> bool:
        """Whether a head that is on its way does, before it is parsed."""
        if self.conn.their_state is not h11.IDLE:
            return False
        come = self.conn.trailing_data[0] + data
        end = _END_OF_HEAD.search(come)
        return come.count(b"\n", 0, end.end() if end else None) > HEADERS_MAX + 2

    def _unsupported_upgrade_warning(self) -> None:
        """None is given: that no upgrade is taken is nobody's fault, and no package would change it."""

    def _in_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.patience_s, self._cut)

    # -- the body: what it costs beside what it carries, and what still comes of one that nobody waits for

    def _is_in_chunks(self) -> bool:
        """Whether a body is on its way of which nobody knows how long it is."""
        return self._awaits_body() and (b"transfer-encoding", b"chunked") in self.headers

    def _awaits_body(self) -> bool:
        return self.cycle is not None and self.cycle.more_body

    def _look_at_framing(self, data: bytes) -> None:
        """Hands the data to the parser, and refuses what is all frames."""
        before = self.cycle
        carried = len(before.body) if self._awaits_body() else 0
        super().data_received(data)
        if self.cycle is not before:
            self._framing_bytes, carried = 0, 0
        if not self._is_in_chunks():
            return
        carried = len(self.cycle.body) - carried
        self._framing_bytes += len(data) - carried - carried // FRAMING_SHARE
        if self._framing_bytes <= FRAMING_BYTES_MAX:
            return
        if self.cycle.response_started:
            self._cut()
            return
        self._refuse(HTTPStatus.BAD_REQUEST, "The chunks of the body carry too little")
        self.cycle.disconnected = True
        self.cycle.message_event.set()

    def linger(self) -> bool:
        """Whether the connection stays for what comes of a body; called when it is to be closed."""
        if not self._awaits_body():
            return False
        self._lingering = self.loop.call_later(self._lingering_s, self._cut)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        return True

    def _linger_on(self, come_bytes: int) -> None:
        self._lingering_bytes += come_bytes
        if self._lingering is not None and self._lingering_bytes > LINGERING_BYTES_MAX:
            self._cut()

    # -- what the client does not read

    def pause_writing(self) -> None:
        self._unread = self.loop.call_later(self.patience_s, self._cut)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop(self._unread)
        super().resume_writing()

    # -- the end

    def shutdown(self) -> None:
        self._lingering_s = min(self._lingering_s, LINGERING_SECONDS_AT_THE_END)
        super().shutdown()
        self._part_later()

    def _part_later(self) -> None:
        self._parting = self.loop.call_later(LINGERING_SECONDS_AT_THE_END, self._part)

    def _part(self) -> None:
        """A client that is idle closes TLS in turn when it asks again: the end does not wait for it. Once all is on its
        way the connection goes on as if it had, so what the system still holds for it arrives."""
        if self._joining.is_done():
            with suppress(OSError):  # it is gone
                self.transport.get_extra_info("socket").shutdown(socket.SHUT_RD)
        else:
            self._part_later()

    def send_400_response(self, msg: str) -> None:
        self._refuse(HTTPStatus.BAD_REQUEST, msg)

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        request_id = self.refused(status, message, self.client[0] if self.client else "")
        body = error_body(status, message)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n"
            f"{REQUEST_ID_HEADER}: {request_id}\r\n\r\n"
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
    """A transport that joins what is written in one go by twos: the head of an answer, and its body. Where a body is
    still on its way it closes later: closed a second time, or by its protocol."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""
        self._lingers = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._held:
            self._transport.write(self._held + data)
            self._held = b""
        elif data:
            self._held = data
            self._loop.call_soon(self._flush)

    def is_closing(self) -> bool:
        return self._lingers or self._transport.is_closing()

    def is_done(self) -> bool:
        """Whether it closes and has nothing left to send."""
        return self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def close(self) -> None:
        self._flush()
        if self._transport.is_closing():  # closed twice, one with TLS knows its connection no more
            return
        protocol = self._transport.get_protocol()
        if not self.is_closing() and isinstance(protocol, _PatientProtocol):
            self._lingers = protocol.linger()
            if self._lingers:
                return
        self._transport.close()

    def _flush(self) -> None:
        if self._held:
            self.write(b"")
