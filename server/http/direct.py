"""Tool calls over HTTP on the short way: from the body of a request to that of its answer, past the SDK.

A POST that is plainly a call of a tool (`calls`), with headers of which the SDK would think nothing odd, is answered
here with the SDK's own status, headers and bytes, in both eras. Every guard stands in front of it; `take` leaves to
the SDK whatever else comes, and each call of a session until the SDK itself has accepted its `initialize`.

Who runs the call is `pace`'s. What waits for something is left to a thread, whoever began it (`memlog.patience`).

What only reads, and nobody waits for any more, is broken off, or not begun: its client has gone, or was told that it
takes too long. What writes is done to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import copy_context
from functools import lru_cache
from typing import Any, NamedTuple

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import (
    MCP_SESSION_ID_HEADER,
    REQUEST_CANCELLED,
    check_accept_headers,
)
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
)
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import (
    DEFAULT_NEGOTIATED_VERSION,
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    RequestId,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION
from starlette.requests import Request
from starlette.types import Scope, Send

from memlog.patience import LONG_SECONDS, Impatient, Leave, require_time, taking
from server.calls import Calls, EnvelopedForm, Form, HandshakeForm, PlainCall, Told, plain_call
from server.dispatch import CANCELLED, Called
from server.http.bodies import Whole
from server.http.heeding import heeding
from server.http.pace import TURN_SECONDS_MAX, Pace, Threads, Who
from server.stdio.wire import Refused, decode, encode
from server.threads import NoThread

ACCEPT_BYTES_MAX = 200
"""Of an Accept header that is looked at here, and kept."""

_JSON = b"application/json"
_HANDSHAKE_VERSIONS = {None, *(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)}

_Header = tuple[bytes, bytes]


class _Running:
    """A call that a thread has, or will have. Cancelled before that, it is not run."""

    def __init__(self, call: PlainCall, form: Form, told: asyncio.Future[Told | None]) -> None:
        self.call = call
        self.form = form
        self.told = told
        self.cancelled = False
        self.who: Who = "many"
        self.was_slow = False
        """Whether the few had it, who are not to have it again: it needs patience."""
        self.leave = Leave()
        """Taken back when nobody waits for it any more."""

    def give_up(self) -> None:
        self.leave.take_back()


class _Ran(NamedTuple):
    """What a call came to, None if it was cancelled before or broken off; how long it took, and of that, its thread's
    work."""

    told: Told | None
    seconds: float
    worked_seconds: float


class Direct:
    """The plain calls of one connection. But for `_work`, and what it calls, everything runs in the event loop's
    thread."""

    def __init__(
        self, server: Server[Any], calls: Calls, threads: Threads, pace: Pace, on_called: Called
    ) -> None:
        self._calls = calls
        self._threads = threads
        self._pace = pace
        self._on_called = on_called
        self._enveloped = EnvelopedForm(server)
        self._session: list[_Header] | None = None
        self._agreed: HandshakeForm | None = None
        self._running: set[_Running] = set()

    def open(self, session_id: str | None, version: str | None) -> None:
        """The SDK takes calls of the handshake era, in this session, of this revision of the protocol, or without one:
        then each says its own."""
        self._agreed = None if version is None else HandshakeForm(version)
        named = [] if session_id is None else [(MCP_SESSION_ID_HEADER, session_id)]
        self._session = [(name.encode(), value.encode()) for name, value in named]

    def agree(self, version: str) -> None:
        """Calls of this session are from now on of this revision."""
        self._agreed = HandshakeForm(version)

    def end(self) -> None:
        """Whoever waits in the session waits no more."""
        for each in self._running:
            if isinstance(each.form, HandshakeForm):
                _settle(each.told, None)

    async def take(self, scope: Scope, receive: Whole, send: Send) -> bool:
        """Whether this request was answered here. If not, nothing of it was received."""
        if scope["method"] != "POST":
            return False
        headers = _plain_headers(scope)
        if headers is None:
            return False
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER.encode())
        if version == LATEST_MODERN_VERSION.encode():
            call = plain_call(receive.body, enveloped=True)
            if call is None or call.tool not in self._calls or not _is_routed(headers, call):
                return False
            await self._answer_enveloped(call, receive, send)
            return True
        if self._session is None or version not in _HANDSHAKE_VERSIONS:
            return False
        call = plain_call(receive.body)
        if call is None or call.tool not in self._calls:
            self._hear(receive.body)
            return False
        form = self._agreed or _unagreed(version)
        await self._answer_in_session(call, form, self._session, receive, send)
        return True

    async def _answer_enveloped(self, call: PlainCall, receive: Whole, send: Send) -> None:
        told = await self._told(call, self._enveloped, receive)
        assert told is not None, "it belongs to no session that could end"
        status = 200 if told.error is None else ERROR_CODE_HTTP_STATUS.get(told.error.code, 200)
        length = str(len(told.message)).encode()
        headers = [(b"content-length", length), (b"content-type", _JSON)]
        await _send(send, status, headers, told.message)

    async def _answer_in_session(
        self,
        call: PlainCall,
        form: HandshakeForm,
        session: list[_Header],
        receive: Whole,
        send: Send,
    ) -> None:
        told = await self._told(call, form, receive)
        status, message = (500, _ENDED) if told is None else (200, told.message)
        length = str(len(message)).encode()
        headers = [(b"content-type", _JSON), *session, (b"content-length", length)]
        await _send(send, status, headers, message)

    async def _told(self, call: PlainCall, form: Form, receive: Whole) -> Told | None:
        """The answer of the tool, made by a thread or at once; None where the session ended first."""
        loop = asyncio.get_running_loop()
        running = _Running(call, form, loop.create_future())
        self._running.add(running)
        if self._only_reads(running):
            if not self._pace.allows(call.tool):
                running.who = self._pace.who(call.tool)
            elif self._done_at_once(running):
                return await running.told
        self._hand_over(running)
        try:
            with heeding(receive, running.give_up):
                return await running.told
        finally:
            running.give_up()

    def _done_at_once(self, running: _Running) -> bool:
        """Runs a call that will be quick in this thread, unless it would have to wait for something."""
        began = time.perf_counter()
        try:
            with self._pace.soon():
                ran = self._ran(running)
        except Impatient:
            running.who = self._pace.left(running.call.tool, time.perf_counter() - began)
            return False
        self._finish(running, ran)
        return True

    def _hand_over(self, running: _Running) -> None:
        tell = asyncio.get_running_loop().call_soon_threadsafe
        running.leave.patient = running.who == "many"
        running.was_slow |= running.who == "few"
        # The thread logs under the id of this request.
        try:
            self._threads.submit(running.who, copy_context().run, self._work, running, tell)
        except NoThread as refusal:
            if running.who != "many":  # of whom some may be there
                self._hand_on(running, "many")
                return
            self._conclude(
                running, self._calls.refused(running.call, running.form, refusal.error), 0.0
            )

    def _work(self, running: _Running, tell: Callable[..., object]) -> None:
        bounded = self._only_reads(running) and not running.was_slow
        if bounded and self._pace.who(running.call.tool) == "few":
            # One before it took long: had all of that tool their turn first, everybody else would wait for them.
            tell(self._hand_on, running, "few")
            return
        began, leave = time.perf_counter(), running.leave
        if bounded:  # of the many each does its part of it while all others do theirs
            leave.limit(TURN_SECONDS_MAX, of_work=running.who == "many")
        else:
            leave.limit(LONG_SECONDS)
        try:
            with taking(leave) if self._only_reads(running) else nullcontext():
                require_time()
                ran = self._ran(running)
        except Impatient:
            if not leave.is_back:
                tell(self._begin_anew, running, time.perf_counter() - began)
                return
            ran = _Ran(None, time.perf_counter() - began, 0.0)
        tell(self._finish, running, ran)

    def _begin_anew(self, running: _Running, seconds: float) -> None:
        slow = running.who == "few"
        if not running.leave.is_back:  # a thread that did a part of it may still have this one
            running.leave = Leave()
        self._hand_on(running, "many" if slow else self._pace.left(running.call.tool, seconds))

    def _hand_on(self, running: _Running, who: Who) -> None:
        running.who = who
        self._hand_over(running)

    def _ran(self, running: _Running) -> _Ran:
        began, worked = time.perf_counter(), time.thread_time()
        told = None if running.cancelled else self._calls.answer(running.call, running.form)
        return _Ran(told, time.perf_counter() - began, time.thread_time() - worked)

    def _only_reads(self, running: _Running) -> bool:
        return self._calls.only_reads(running.call.tool)

    def _finish(self, running: _Running, ran: _Ran) -> None:
        told = ran.told
        if told is not None:
            waited = running.leave.took_patience
            self._pace.took(running.call.tool, ran.worked_seconds, waited=waited)
        if told is None or running.cancelled:
            outcome = CANCELLED if told is None else told.outcome
            told = Told(_cancelled(running.call.id), outcome)
        self._conclude(running, told, ran.seconds)

    def _conclude(self, running: _Running, told: Told, seconds: float) -> None:
        self._running.discard(running)
        try:
            self._on_called(running.call.tool, told.outcome, seconds)
        finally:
            _settle(running.told, told)

    # -- notifications, all of which are the SDK's

    def _hear(self, message: bytes) -> None:
        """Who cancels a call is told so as soon as it has run to its end, as by the SDK."""
        if not self._session or b"notifications/cancelled" not in message:
            return
        try:
            notification = decode(bytearray(message))
        except Refused:
            return
        if (
            isinstance(notification, JSONRPCNotification)
            and notification.method == "notifications/cancelled"
        ):
            request_id = cancelled_request_id_from_params(notification.params)
            for each in self._running:
                if request_id is not None and each.call.id == coerce_request_id(request_id):
                    each.cancelled = True


def _unagreed(version: bytes | None) -> HandshakeForm:
    """The form of the revision that a header names; without one, that which the protocol says to assume."""
    return HandshakeForm(DEFAULT_NEGOTIATED_VERSION if version is None else version.decode())


def _plain_headers(scope: Scope) -> dict[bytes, bytes] | None:
    """The headers, if each is there once, the body says it is JSON, and JSON is what is wanted."""
    headers = dict(scope["headers"])
    content_type, accept = headers.get(b"content-type", b""), headers.get(b"accept", b"")
    plain = (
        len(headers) == len(scope["headers"])
        and (content_type == _JSON or content_type.startswith(_JSON + b";"))
        and len(accept) <= ACCEPT_BYTES_MAX
        and _accepts_json(accept)
    )
    return headers if plain else None


@lru_cache(64)
def _accepts_json(accept: bytes) -> bool:
    has_json, _ = check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))
    return has_json


def _is_routed(headers: dict[bytes, bytes], call: PlainCall) -> bool:
    """Whether the headers that tell intermediaries where a call goes say what it says itself."""
    return (
        headers.get(MCP_METHOD_HEADER.encode()) == b"tools/call"
        and headers.get(MCP_NAME_HEADER.encode()) == call.tool.encode()
    )


def _settle(told: asyncio.Future[Told | None], answer: Told | None) -> None:
    if not told.done():  # nobody waits for one that was cancelled
        told.set_result(answer)


def _error(request_id: RequestId | None, code: int, message: str) -> bytes:
    error = ErrorData(code=code, message=message)
    return encode(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))[:-1]


def _cancelled(request_id: RequestId) -> bytes:
    return _error(request_id, REQUEST_CANCELLED, "Request cancelled")


_ENDED = _error(None, INTERNAL_ERROR, "Session terminated before the request completed")


async def _send(send: Send, status: int, headers: list[_Header], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
