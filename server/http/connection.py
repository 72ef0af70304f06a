"""One MCP server with the SDK's HTTP around it: what it is handed, and in which form.

Promises that every request of a session is answered, where the SDK would keep one waiting, drop it without a word or
fail: of two that share an id, one whose id is none, one of a session that ends. Which connections there are, and for
how long, is left to `connections`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_PARAMS, JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from server.calls import is_untraced
from server.http.bodies import Whole
from server.http.direct import Direct
from server.http.errors import refused
from server.http.heeding import heeding
from server.reading import Wanted, wanted
from server.rights.grants import Grant
from server.session import Session
from server.stdio.wire import Refused, decode, encode, fill_in, odd_id

_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
_Header = tuple[bytes, bytes]

LISTENING_BYTES_MAX = 128 * 1024
"""Of a request whose answer lasts as long as its client listens, and which is there for as long, several times over."""


class Door(msgspec.Struct, frozen=True):
    """Where a request came in: with which grant, and for which project alone, if for one."""

    grant: Grant
    project: str | None = None


class Served(NamedTuple):
    """A server, the short way to its tools, and what belongs to its client."""

    server: Server[Any]
    direct: Direct
    session: Session


class Connection:
    """One server with the SDK's HTTP around it, and the short way past it where it may be taken."""

    def __init__(
        self, door: Door, client: str, manager: StreamableHTTPSessionManager, served: Served
    ) -> None:
        self.door = door
        self.client = client
        """Whose session it is; empty where all share it."""
        self.manager = manager
        self.direct = served.direct
        self.session = served.session
        self.opening = b""
        """The request that opened it; empty where it ends with its server."""
        self._names: tuple[bytes, bytes] | None = None
        """Of a session that goes on: its id, and by which one the SDK knows it."""
        self._may_be_short = is_untraced(manager.app)
        self.scope = anyio.CancelScope()
        self.requests = 0
        self._asked: set[str] = set()
        self._stream: anyio.CancelScope | None = None
        self._streaming = anyio.Lock()
        self.opened_s = self.used_s = time.monotonic()

    async def keep(self, *, task_status: TaskStatus[None]) -> None:
        with self.scope:
            async with self.manager.run():
                task_status.started()
                await anyio.sleep_forever()

    async def handle(self, scope: Scope, receive: Whole, send: Send) -> None:
        self.requests += 1
        try:
            if scope["method"] == "GET" and not self.manager.stateless and _wants_events(scope):
                await self._listen(scope, receive, send)
            elif not (self._may_be_short and await self.direct.take(scope, receive, send)):
                await self._hand_on(scope, receive, send)
        finally:
            self.requests -= 1
            self.used_s = time.monotonic()

    async def _listen(self, scope: Scope, receive: Whole, send: Send) -> None:
        """The newest stream takes the place of the one before. The SDK has one for each session and would refuse every
        other; but that a client lost its network nobody here knows, for as long as the system keeps the connection."""
        before, self._stream = self._stream, anyio.CancelScope()
        if before is not None:
            before.cancel()
        begun = False

        async def note(message: Message) -> None:
            nonlocal begun
            await send(message)
            if not begun and message.get("status") == HTTPStatus.OK:
                self.session.listens_anew()
            begun = True

        with self._stream as stream:
            async with self._streaming:
                await self._hand_over(scope, receive, note)
        if not stream.cancelled_caught:
            return
        if begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await refused(HTTPStatus.CONFLICT, "Another stream took its place")(
                scope, receive, send
            )

    async def _hand_on(self, scope: Scope, receive: Whole, send: Send) -> None:
        """To the SDK, but for what it would not answer."""
        message = _message(receive.body)
        asked = None if self.manager.stateless else _request_id(message)
        if (refusal := self._refusal(scope, receive.body, message, asked)) is not None:
            await refusal(scope, receive, send)
            return
        if message is not None and fill_in(message):
            receive.body = encode(message)
        if asked is not None and _is_handshake(message):
            send = self._noting_what_is_agreed(send)
        named = set() if asked is None else {asked}
        self._asked |= named
        waits = Wanted()
        before = wanted.set(waits)
        try:
            with heeding(receive, waits.end):
                await self._hand_over(scope, receive, send)
        finally:
            wanted.reset(before)
            waits.end()
            self._asked -= named

    def _refusal(
        self, scope: Scope, body: bytes, message: JSONRPCMessage | None, asked: str | None
    ) -> Response | None:
        """In a session the SDK knows requests by the ids under which they are `asked`: of two with the same, one would
        never be answered, and keep its place among the requests worked on."""
        if message is None:
            return _uncarried(body) if is_of_sessions(Headers(scope=scope)) else None
        if (odd := odd_id(message, body)) is not None:  # the SDK would drop it with 202
            return refused(HTTPStatus.BAD_REQUEST, odd)
        if _listens(message) and len(body) > LISTENING_BYTES_MAX:
            return refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A request to listen is larger than {LISTENING_BYTES_MAX} bytes",
                "Listen to fewer resources, or by several requests.",
            )
        if asked is not None and asked in self._asked:
            return refused(
                HTTPStatus.CONFLICT,
                f"A request with the id {asked[:100]!r} is still worked on in this session",
                "Give each request an id of its own.",
            )
        return None

    def _noting_what_is_agreed(self, send: Send) -> Send:
        """Where hands are shaken again in a session, what is agreed on last counts, as for the SDK."""

        async def note(message: Message) -> None:
            version = agreed(message)
            if version is not None:
                self.direct.agree(version)
            await send(message)

        return note

    async def _hand_over(self, scope: Scope, receive: Whole, send: Send) -> None:
        """A session that ends before the SDK has taken a request is one that is not there: the SDK would answer 500,
        and fail once more telling the session of it."""
        scope, send = self._renamed(scope, send)
        told = False
        failed: list[Message] = []

        async def send_unless_failed(message: Message) -> None:
            nonlocal told
            if failed or message.get("status") == HTTPStatus.INTERNAL_SERVER_ERROR:
                failed.append(message)
                return
            told = True
            await send(message)

        try:
            await self.manager.handle_request(scope, receive, send_unless_failed)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            if not told:
                await no_session()(scope, receive, send)
            return
        for message in failed:
            await send(message)

    async def go_on(
        self, session_id: str, opening: bytes, uris: Iterable[str], scope: Scope
    ) -> bool:
        """Shakes hands with the SDK and subscribes, in the place of the client, as it did with a server before; `scope`
        is of a request of it. False where the SDK does not agree."""
        opened, body = await self._say(opening, scope)
        version = agreed(body)
        if version is None:
            return False
        known = Headers(raw=opened["headers"])[MCP_SESSION_ID_HEADER]
        self._names = session_id.encode(), known.encode()
        self.opening = opening
        self.session.goes_on = True
        await self._say(_INITIALIZED, scope, session_id)
        for number, uri in enumerate(uris):
            asked = {"jsonrpc": "2.0", "id": f"goes on {number}", "method": "resources/subscribe"}
            await self._say(
                msgspec.json.encode(asked | {"params": {"uri": uri}}), scope, session_id
            )
        self.session.goes_on = False
        self.direct.open(session_id, version)
        return True

    async def _say(
        self, body: bytes, scope: Scope, session_id: str | None = None
    ) -> tuple[Message, Message]:
        """Sends the SDK what its client would; the answer's head and the first of its body."""
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
        ]
        if session_id is not None:
            headers.append((MCP_SESSION_ID_HEADER.encode(), session_id.encode()))
        answer: list[Message] = []

        async def note(message: Message) -> None:
            answer.append(message)

        said = {**scope, "method": "POST", "headers": headers}
        await self._hand_on(said, Whole(body, _nothing_more), note)
        return answer[0], answer[1]

    def _renamed(self, scope: Scope, send: Send) -> tuple[Scope, Send]:
        """A session that goes on has the id that its client knows, and one that the SDK chose."""
        if self._names is None:
            return scope, send
        name, known = self._names

        async def rename(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = _with_id(message["headers"], name)
            await send(message)

        return {**scope, "headers": _with_id(scope["headers"], known)}, rename

    def end(self) -> None:
        self.scope.cancel()
        self.direct.end()


async def _nothing_more() -> Message:
    """What is received of a client that stays."""
    await anyio.sleep_forever()
    raise AssertionError("forever is over")


def _with_id(headers: Iterable[_Header], session_id: bytes) -> list[_Header]:
    name = MCP_SESSION_ID_HEADER.encode()
    return [(each, session_id if each == name else value) for each, value in headers]


def no_session() -> Response:
    return refused(
        HTTPStatus.NOT_FOUND, "There is no such session", "Open a new one with `initialize`."
    )


def opens(body: bytes) -> bool:
    """Whether this is a request for a session."""
    return _is_handshake(_message(body))


def agreed(message: Message) -> str | None:
    """The revision of the protocol that this body of an answer to `initialize` agrees to; None if it is an error."""
    try:
        answer = msgspec.json.decode(message.get("body", b""), type=_Opening)
    except msgspec.MsgspecError:
        return None
    return answer.result.get("protocolVersion")


class _Opening(msgspec.Struct):
    result: dict[str, Any]


def _wants_events(scope: Scope) -> bool:
    _, has_events = check_accept_headers(Request(scope))
    return has_events


def _message(body: bytes) -> JSONRPCMessage | None:
    """As the SDK reads it; None where this is none."""
    try:
        return jsonrpc_message_adapter.validate_python(from_json(body), by_name=False)
    except ValueError:  # a ValidationError is one
        return None


def is_of_sessions(headers: Headers) -> bool:
    """Whether it is of the protocols that have them, which the SDK reads otherwise than later ones."""
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    return not version or version in HANDSHAKE_PROTOCOL_VERSIONS


def _uncarried(body: bytes) -> Response | None:
    """The answer to a request with what no message may carry, as half of a character: the SDK would not tell which
    request it is, nor what is wrong. None where this is none, or cannot be read at all."""
    try:
        decode(bytearray(body))
    except Refused as refusal:
        if (reply := refusal.reply) and reply.error.code == INVALID_PARAMS:
            return Response(
                encode(reply)[:-1], HTTPStatus.BAD_REQUEST, media_type="application/json"
            )
    return None


def _is_handshake(message: JSONRPCMessage | None) -> bool:
    return isinstance(message, JSONRPCRequest) and message.method == "initialize"


def _listens(message: JSONRPCMessage | None) -> bool:
    return isinstance(message, JSONRPCRequest) and message.method == "subscriptions/listen"


def _request_id(message: JSONRPCMessage | None) -> str | None:
    """None where this is no request."""
    return str(message.id) if isinstance(message, JSONRPCRequest) else None
