"""From an HTTP request to the MCP server that answers it, one for each session.

A client of the handshake era gets a session of its own, with its own active project, which ends when
the client says so, when nobody used it for a while, with the right to it, or for another where all
places are taken; with the server it does not: the next one goes on with it (`outliving`). Clients without
sessions (2026-07-28, or all with `http_stateless`) share a server for each door, whose active project
never changes. A session is known only at the door where it was opened: at any other it does not exist.
What becomes of a request there is left to `connection`.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Message, Scope, Send

from memlog.settings import Settings
from server.http.access import client_of
from server.http.bodies import Whole
from server.http.connection import (
    Connection,
    Door,
    Served,
    agreed,
    is_of_sessions,
    no_session,
    opens,
)
from server.http.errors import refused
from server.http.outliving import OPENING_BYTES_MAX, Kept, Outliving, fitting, of
from server.rights.grants import Grant
from server.threads import NoThread, in_thread

SWEEP_SECONDS = 5.0
KEEPING_SECONDS = 0.2
"""After which a session that was opened is kept for the next server: those that come in a run are one write."""

logger = logging.getLogger("memlog.http.sessions")

MakeServer = Callable[[Door, bool], Served]
"""The server behind a door; whether its session lasts."""


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
        self._sessions: dict[str, Connection] = {}
        self._opening = 0
        self._shared: dict[Door, Connection] = {}
        self._sharing = anyio.Lock()
        self._outliving = Outliving(settings, self._all_kept)
        self._keeping_soon = False
        self._going_on = anyio.Lock()
        self._tasks: TaskGroup | None = None

    @property
    def sessions(self) -> int:
        return len(self._sessions)

    async def running(self, *, task_status: TaskStatus[None]) -> None:
        """Keeps connections until cancelled, which ends them all; calls in worker threads end first."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._sweep)
                task_status.started()
        finally:
            with anyio.CancelScope(shield=True):
                await self._off_loop(self._outliving.close)

    async def handle(self, scope: Scope, receive: Whole, send: Send, door: Door) -> None:
        headers = Headers(scope=scope)
        if LAST_EVENT_ID_HEADER in headers:
            # no stream is kept to be resumed, and the SDK would answer nothing
            scope = _without(scope, LAST_EVENT_ID_HEADER)
        session_id = headers.get(MCP_SESSION_ID_HEADER)
        if not is_of_sessions(headers) or self._settings.http_stateless:
            connection = await self._shared_one(door)
            await connection.handle(scope, receive, send)
        elif session_id is not None:
            await self._go_on(session_id, scope, receive, send, door)
        else:
            await self._begin(scope, receive, send, door)

    # -- sessions

    async def _begin(self, scope: Scope, receive: Whole, send: Send, door: Door) -> None:
        """Opens a session, if the request is one that the SDK opens a session for."""
        client = client_of(door.grant, scope)
        if not self._has_room(client):
            answer = refused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._settings.http_sessions_max} sessions are open, and all that could go are in use",
                "End one that is not needed (DELETE), or a stream that nobody reads.",
            )
            await answer(scope, receive, send)
            return
        opened = None
        self._opening += 1
        try:
            connection = await self._open(door, client, lasting=True)
            start: Message | None = None

            async def watch(message: Message) -> None:
                """The SDK names a session in every answer; there is one if the handshake succeeds, as the body says."""
                nonlocal opened, start
                if message["type"] == "http.response.start":
                    start = message
                    return
                if start is not None:
                    version = agreed(message)
                    if version is not None and not receive.is_late:  # else nobody would know it
                        opened = Headers(raw=start["headers"])[MCP_SESSION_ID_HEADER]
                        if len(receive.body) <= OPENING_BYTES_MAX:
                            connection.opening = receive.body
                        self._add(opened, connection)
                        connection.direct.open(opened, version)
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
        connection = self._sessions.get(session_id) or await self._revived(session_id, scope, door)
        if connection is None or connection.door != door:
            if opens(receive.body):  # of who lost its session, and does not leave out its id
                await self._begin(_without(scope, MCP_SESSION_ID_HEADER), receive, send, door)
            else:
                await no_session()(scope, receive, send)
            return
        await connection.handle(scope, receive, send)
        if scope["method"] == "DELETE":
            self._end(session_id)

    def _add(self, session_id: str, connection: Connection) -> None:
        self._make_room(connection.client)
        self._sessions[session_id] = connection

        def changed() -> None:
            if connection.opening:
                self._outliving.note(session_id, self._kept(connection))

        connection.session.changed = changed
        assert self._tasks is not None, "sessions are opened while `running`"
        if not self._keeping_soon:
            self._keeping_soon = True
            self._tasks.start_soon(self._keep_soon)

    async def _revived(self, session_id: str, scope: Scope, door: Door) -> Connection | None:
        """A session that was opened at this door of the server before."""
        if self._outliving.find(session_id, door) is None:
            return None
        async with self._going_on:  # its client may send several requests at once
            kept, client = self._outliving.find(session_id, door), client_of(door.grant, scope)
            if kept is None or not self._has_room(client):
                return self._sessions.get(session_id)
            connection = await self._open(door, client, lasting=True)
            connection.session.active = kept.active
            goes_on = False
            try:
                goes_on = await connection.go_on(session_id, kept.opening, kept.uris, scope)
                self._outliving.drop(session_id)
            finally:
                if not goes_on:
                    connection.end()
            if not goes_on:
                return None
            self._add(session_id, connection)
            logger.info("a session of %s goes on", door.grant.name or "a client")
            return connection

    def _all_kept(self) -> dict[str, Kept]:
        """From any thread: a copy is made in one step, but a list of items may let the loop in, which adds others."""
        sessions = self._sessions.copy()
        return {name: self._kept(each) for name, each in sessions.items() if each.opening}

    def _kept(self, connection: Connection) -> Kept:
        """From any thread: of what it subscribed to a list is made in one step, but a tuple is not."""
        unused_s = 0 if connection.requests else time.monotonic() - connection.used_s
        session = connection.session
        return Kept(
            of(connection.door),
            connection.opening,
            self._outliving.used_s(unused_s),
            session.active,
            fitting(list(session.subscribed)),
        )

    async def _keep_soon(self) -> None:
        await anyio.sleep(KEEPING_SECONDS)
        self._keeping_soon = False
        await self._off_loop(self._outliving.write)

    async def _off_loop(self, write: Callable[[], None]) -> None:
        with suppress(NoThread):
            await in_thread(write)

    def _has_room(self, client: str) -> bool:
        """Whether one more session of this client may be opened."""
        together = len(self._sessions) + self._opening
        return together < self._settings.http_sessions_max or self._spare(client) is not None

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

    async def _shared_one(self, door: Door) -> Connection:
        if door in self._shared:
            return self._shared[door]
        async with self._sharing:
            if door not in self._shared:
                connection = await self._open(door, "", lasting=False)
                connection.direct.open(None, None)
                self._shared[door] = connection
            return self._shared[door]

    # -- both

    async def _open(self, door: Door, client: str, *, lasting: bool) -> Connection:
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
        connection = Connection(door, client, manager, served)
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
            await self._off_loop(self._outliving.write)

    def _over(self, connection: Connection, unused_s: float) -> bool:
        idle = not connection.requests and connection.used_s < unused_s
        return idle or not self._still_holds(connection.door.grant)


def _without(scope: Scope, header: str) -> Scope:
    left_out = header.encode()
    return {**scope, "headers": [each for each in scope["headers"] if each[0] != left_out]}
