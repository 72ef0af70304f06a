"""From an HTTP request to the MCP server that answers it, one for each session.

A client of the handshake era gets a session of its own, with its own active project, which ends when
the client says so, when nobody used it for a while, with the right to it, or for another where all
places are taken. Clients without sessions (2026-07-28, or all with `http_stateless`) share a server for
each door, whose active project never changes. A session is known only at the door where it was opened:
at any other it does not exist. Both protocols themselves are the SDK's.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import (
    LAST_EVENT_ID_HEADER,
    MCP_SESSION_ID_HEADER,
    check_accept_headers,
)
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import from_json
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope, Send

from memlog.settings import Settings
from server.calls import is_untraced
from server.http.access import client_of
from server.http.bodies import Whole
from server.http.direct import Direct
from server.http.errors import refused
from server.rights.grants import Grant
from server.stdio.wire import encode, fill_in, odd_id

SWEEP_SECONDS = 5.0

logger = logging.getLogger("memlog.http.sessions")


class Door(msgspec.Struct, frozen=True):
    """Where a request came in: with which grant, and for which project alone, if for one."""

    grant: Grant
    project: str | None = None


class Served(NamedTuple):
    """A server, the short way to its tools, and who is told that its client begins to listen by another stream."""

    server: Server[Any]
    direct: Direct
    listens_anew: Callable[[], None]


MakeServer = Callable[[Door, bool], Served]
"""The server behind a door; whether its session lasts."""


class _Connection:
    """One server with the SDK's HTTP around it, and the short way past it where it may be taken."""

    def __init__(self, door: Door, manager: StreamableHTTPSessionManager, served: Served) -> None:
        self.door = door
        self.client = ""
        """Whose session it is."""
        self.manager = manager
        self.direct = served.direct
        self._listens_anew = served.listens_anew
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
                self._listens_anew()
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
        """To the SDK. In a session it knows requests by their ids: of two with the same, one would never be answered,
        and keep its place among the requests worked on."""
        message = _message(receive.body)
        odd = None if message is None else odd_id(message, receive.body)
        if odd is not None:  # the SDK would drop it with 202
            await refused(HTTPStatus.BAD_REQUEST, odd)(scope, receive, send)
            return
        if message is not None and fill_in(message):
            receive.body = encode(message)
        asked = None if self.manager.stateless else _request_id(message)
        if asked is not None and asked in self._asked:
            answer = refused(
                HTTPStatus.CONFLICT,
                f"A request with the id {asked[:100]!r} is still worked on in this session",
                "Give each request an id of its own.",
            )
            await answer(scope, receive, send)
            return
        named = set() if asked is None else {asked}
        self._asked |= named
        try:
            await self._hand_over(scope, receive, send)
        finally:
            self._asked -= named

    async def _hand_over(self, scope: Scope, receive: Whole, send: Send) -> None:
        """A session that ends before the SDK has taken a request is one that is not there: the SDK would answer 500,
        and fail once more telling the session of it."""
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
                await _no_session()(scope, receive, send)
            return
        for message in failed:
            await send(message)

    def end(self) -> None:
        self.scope.cancel()
        self.direct.end()


class Connections:
    """All that are open. Lives within `running`."""

    def __init__(
        self,
        settings: Settings,
        make: MakeServer,
        still_holds: Callable[[Grant], bool],
    ) -> None:
        self._settings = settings
        self._make = make
        self._still_holds = still_holds
        self._sessions: dict[str, _Connection] = {}
        self._opening = 0
        self._shared: dict[Door, _Connection] = {}
        self._sharing = anyio.Lock()
        self._tasks: TaskGroup | None = None

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    async def running(self, *, task_status: TaskStatus[None]) -> None:
        """Keeps connections until cancelled, which ends them all; calls in worker threads end first."""
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._sweep)
            task_status.started()

    async def handle(self, scope: Scope, receive: Whole, send: Send, door: Door) -> None:
        headers = Headers(scope=scope)
        if LAST_EVENT_ID_HEADER in headers:
            scope = _begun_anew(scope)
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        session_id = headers.get(MCP_SESSION_ID_HEADER)
        later = version and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if later or self._settings.http_stateless:
            connection = await self._shared_one(door)
            await connection.handle(scope, receive, send)
        elif session_id is not None:
            await self._go_on(session_id, scope, receive, send, door)
        else:
            await self._begin(scope, receive, send, door)

    # -- sessions

    async def _begin(self, scope: Scope, receive: Whole, send: Send, door: Door) -> None:
        """Opens a session, if the request is one that the SDK opens a session for."""
        client, most = client_of(door.grant, scope), self._settings.http_sessions_max
        if len(self._sessions) + self._opening >= most and self._spare(client) is None:
            answer = refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{most} sessions are open, and all that could go are in use",
                "End one that is not needed (DELETE), or a stream that nobody reads.",
            )
            await answer(scope, receive, send)
            return
        opened = None
        self._opening += 1
        try:
            connection = await self._open(door, lasting=True)
            connection.client = client

            start: Message | None = None

            async def watch(message: Message) -> None:
                """The SDK names a session in every answer; there is one if the handshake succeeds, as the body says."""
                nonlocal opened, start
                if message["type"] == "http.response.start":
                    start = message
                    return
                if start is not None:
                    if _accepts(message):
                        opened = Headers(raw=start["headers"])[MCP_SESSION_ID_HEADER]
                        self._make_room(client)
                        self._sessions[opened] = connection
                        connection.direct.open(opened)
                    else:
                        del MutableHeaders(raw=start["headers"])[MCP_SESSION_ID_HEADER]
                    await send(start)
                    start = None
                await send(message)

            try:
                await connection.handle(scope, receive, watch)
            finally:
                if opened is None:
                    connection.end()
        finally:
            self._opening -= 1

    async def _go_on(
        self, session_id: str, scope: Scope, receive: Whole, send: Send, door: Door
    ) -> None:
        connection = self._sessions.get(session_id)
        if connection is None or connection.door != door:
            await _no_session()(scope, receive, send)
            return
        await connection.handle(scope, receive, send)
        if scope["method"] == "DELETE":
            self._end(session_id)

    def _make_room(self, client: str) -> None:
        """For one more session of this client."""
        while len(self._sessions) >= self._settings.http_sessions_max:
            spare = self._spare(client)
            if spare is None:  # it was there when this one began to open
                return
            name = self._sessions[spare].door.grant.name or "a client"
            logger.info("a session of %s ends: there is no room, and nobody has more", name)
            self._end(spare)

    def _spare(self, client: str) -> str | None:
        """The session that goes where one more of this client finds no room; None if it may not come. It is one that
        nobody uses at the moment, of who has most, so that nobody is kept out by another who opens many; of these the
        one unused for longest, compared with how long it was in use: those that were opened and left go first."""
        held = Counter(each.client for each in self._sessions.values())
        held[client] += 1

        def dear(session_id: str) -> tuple[int, bool, float]:
            each = self._sessions[session_id]
            return -held[each.client], each.client != client, 2 * each.used_s - each.opened_s

        spare = (
            session_id
            for session_id, each in self._sessions.items()
            if not each.requests and held[each.client] >= held[client]
        )
        return min(spare, key=dear, default=None)

    def _end(self, session_id: str) -> None:
        connection = self._sessions.pop(session_id, None)
        if connection is not None:
            connection.end()

    # -- without sessions

    async def _shared_one(self, door: Door) -> _Connection:
        if door in self._shared:
            return self._shared[door]
        async with self._sharing:
            if door not in self._shared:
                connection = await self._open(door, lasting=False)
                connection.direct.open(None)
                self._shared[door] = connection
            return self._shared[door]

    # -- both

    async def _open(self, door: Door, *, lasting: bool) -> _Connection:
        assert self._tasks is not None, "connections are opened while `running`"
        served = self._make(door, lasting)
        manager = StreamableHTTPSessionManager(
            served.server,
            json_response=True,
            stateless=not lasting,
            security_settings=None,  # `hosts` stands in front of all
            session_idle_timeout=None,
            max_request_body_size=self._settings.http_body_bytes_max,
        )
        connection = _Connection(door, manager, served)
        await self._tasks.start(connection.keep)
        return connection

    async def _sweep(self) -> None:
        """Ends what nobody uses, and what nobody may use any more, a stream that lasts too."""
        while True:
            await anyio.sleep(min(SWEEP_SECONDS, self._settings.http_session_seconds))
            unused_s = time.monotonic() - self._settings.http_session_seconds
            for session_id, connection in list(self._sessions.items()):
                if self._over(connection, unused_s):
                    logger.info("a session of %s ends", connection.door.grant.name or "a client")
                    self._end(session_id)
            for door, connection in list(self._shared.items()):
                if self._over(connection, unused_s):
                    del self._shared[door]
                    connection.end()

    def _over(self, connection: _Connection, unused_s: float) -> bool:
        idle = not connection.requests and connection.used_s < unused_s
        return idle or not self._still_holds(connection.door.grant)


def _no_session() -> Response:
    return refused(
        HTTPStatus.NOT_FOUND, "There is no such session", "Open a new one with `initialize`."
    )


def _begun_anew(scope: Scope) -> Scope:
    """The same request for a new stream: none is kept to be resumed, and the SDK would answer nothing."""
    resumed = LAST_EVENT_ID_HEADER.encode()
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != resumed]}


def _wants_events(scope: Scope) -> bool:
    _, has_events = check_accept_headers(Request(scope))
    return has_events


def _message(body: bytes) -> JSONRPCMessage | None:
    """As the SDK reads it; None where this is none."""
    try:
        return jsonrpc_message_adapter.validate_python(from_json(body), by_name=False)
    except ValueError:  # a ValidationError is one
        return None


def _request_id(message: JSONRPCMessage | None) -> str | None:
    """None where this is no request."""
    return str(message.id) if isinstance(message, JSONRPCRequest) else None


def _accepts(message: Message) -> bool:
    """Whether this is the body of an answer to `initialize` that is no error."""
    try:
        answer = msgspec.json.decode(message.get("body", b""), type=_Opening)
    except msgspec.MsgspecError:
        return False
    return "protocolVersion" in answer.result


class _Opening(msgspec.Struct):
    result: dict[str, Any]
