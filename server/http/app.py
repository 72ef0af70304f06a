"""The ASGI application: what is served at which path, and what every request passes on its way.

Logged ─ InJson ─ KnownHosts ─ head (Limits) ─ token (SDK) ─ rate ─ body (Bodies) ─ /mcp  /mcp/p/{project}
                                                                └─ GET  /metrics
                                            └─ GET  /healthz  /readyz  /.well-known/oauth-protected-resource…
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus

import anyio
from mcp.server.auth.middleware.bearer_auth import RequireAuthMiddleware
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.authentication import AuthenticationError
from starlette.exceptions import HTTPException
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from memlog.blank import require_visible
from memlog.canonical import canonical
from memlog.commands import CreateProject
from memlog.errors import MemlogError, ProjectArchived, ProjectNotFound, StorageError
from server.advice import followable
from server.calls import Calls
from server.dispatch import build_server
from server.http.access import Access, client_of
from server.http.bodies import RETRY_SECONDS, Whole
from server.http.connection import Door, Served
from server.http.connections import Connections
from server.http.direct import Direct
from server.http.errors import InJson, refused
from server.http.hosts import METHODS, KnownHosts, answering_pages
from server.http.keys import NoKeys
from server.http.limits import Limits
from server.http.logs import Logged
from server.http.media import negotiated
from server.http.metrics import Metrics
from server.http.oauth import SCOPES
from server.http.pace import Pace, Threads
from server.http.progress import progress
from server.http.resource import names_meant
from server.http.sockets import let_in
from server.input.arguments import decode
from server.listing import SharedListings
from server.registry import tools
from server.rights.grants import Grant
from server.service import Service
from server.session import Session, made_by_hand
from server.stdio.faults import guard
from server.threads import NoThread, in_thread

WITHOUT_SLASH = "Leave out the slash at the end."
OF_AN_ISSUER = {"/authorize", "/register", "/token"}
"""Where a client that is refused looks for an authorization server if the refusal names none (MCP of 2025-03-26)."""

NO_ISSUER = (
    "This is no authorization server. Clients look for one here whose token is missing or was refused: "
    "send one that counts, as `Authorization: Bearer TOKEN`."
)
WATCHING_MAX = 2
"""Threads for those who watch the server, who wait behind no client."""

LOOKS_MAX = 3
LOOK_AGAIN_SECONDS = 0.4
"""Where something is late `/readyz` looks again: of what other processes wrote an idle server learns as it is asked,
and it is there in a moment. Longer than the follower waits for a quiet one (`following.QUIET_SECONDS`)."""

logger = logging.getLogger("memlog.http")


class App:
    """MCP over HTTP for one service. `running` is entered for as long as it serves."""

    def __init__(self, service: Service, access: Access) -> None:
        self._service = service
        self._access = access
        self._metadata = None if access.issuer is None else access.issuer.metadata
        settings = service.settings
        self._threads = Threads()
        self._pace = Pace(lambda: self.limits.working == 1)
        self._connections = Connections(settings, self._served, access.still_holds)
        self._metrics = Metrics(service, lambda: self._connections.sessions)
        self._listings = SharedListings()
        self._started = False
        self._watching = anyio.CapacityLimiter(WATCHING_MAX)
        self.limits = Limits(settings)
        routes = self.limits.first(self._routes())
        known = KnownHosts(answering_pages(routes, settings), settings)
        logged = Logged(InJson(known), self._metrics.answered)
        self.asgi: ASGIApp = logged
        self.refused_below = logged.refused_below

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Leaving ends every session and stream; calls in worker threads end first."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._connections.running)
                tasks.start_soon(self._start)
                if self._access.issuer is not None:
                    tasks.start_soon(self._access.issuer.keys.look_first)
                yield
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await in_thread(self._threads.end)
                except NoThread:
                    self._threads.end()

    async def _start(self) -> None:
        """Catches up what clients will most likely ask first, and loads the model."""
        with suppress(NoThread):  # it is caught up by whoever asks first
            await in_thread(self._open_usual)
        self._service.warm_up()
        self._started = True

    def _open_usual(self) -> None:
        name = self._service.settings.project
        try:
            if name:
                self._service.open(name).projections.text()
        except (ProjectNotFound, ProjectArchived):
            return  # it is made on first use, or put away
        except Exception:
            logger.exception("the usual project is not caught up; its first search tries again")

    # -- MCP

    def _served(self, door: Door, lasting: bool) -> Served:
        settings = self._service.settings
        grant = door.grant if door.project is None else door.grant.within(door.project)
        project = door.project or grant.starting_project(settings.project)
        session = Session(self._service, project, grant, lasting=lasting)
        offered = tools(settings.toolsets, read_only=settings.read_only, grant=grant)
        called = self._metrics.called
        server = build_server(session, offered, on_called=called)
        guard(server)
        server.middleware.append(self._listings)
        direct = Direct(server, Calls(session, offered), self._threads, self._pace, called)
        return Served(server, direct, session)

    async def _mcp(self, scope: Scope, receive: Whole, send: Send) -> None:
        grant = self._access.granted(scope)
        project = asked = scope["path_params"].get("project")
        if asked is not None:
            names = names_meant(asked, scope["raw_path"])
            project = await in_thread(partial(self._first_there, grant, names))
            if project is None:
                message = f"Project {names[-1][:100]!r} not found"
                answer = refused(HTTPStatus.NOT_FOUND, message, self._advice(grant, names[-1]))
                await answer(scope, receive, send)
                return
        send = negotiated(scope, send)
        door = Door(grant, None if project is None else canonical(project))
        await self._connections.handle(scope, receive, send, door)

    def _first_there(self, grant: Grant, names: tuple[str, ...]) -> str | None:
        return next((name for name in names if self._is_there(grant, name)), None)

    def _is_there(self, grant: Grant, project: str) -> bool:
        """Also that which is made on first use, one that is archived, and where nobody can tell: the tools say so."""
        if canonical(project) == canonical(self._service.settings.project):
            return grant.reaches(project)
        try:
            Session(self._service, project, grant).find(project)
        except ProjectNotFound:
            return False
        except StorageError:
            pass
        return True

    def _advice(self, grant: Grant, project: str) -> str | None:
        """What can be done about a project that is not there, with this grant."""
        if not grant.reaches(project):
            return grant.within_reach
        path = self._service.settings.http_path
        if not _can_be_made(project):
            return f"No project has such a name. {path}/p/NAME is for the project NAME alone, {path} for all."
        create = f"Create it first, at {path} with create_project. {made_by_hand(project)}"
        return followable(Session(self._service, project, grant), create)

    # -- for those who run it

    async def _healthz(self, request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def _readyz(self, request: Request) -> Response:
        """Counts only: names of projects are for those with a token."""
        late = await self._late() if self._started else set()
        for _ in range(LOOKS_MAX - 1):
            if late:
                await anyio.sleep(LOOK_AGAIN_SECONDS)
                late = await self._late()
        ready = self._started and not late
        status = "ready" if ready else "catching up" if late else "starting"
        return JSONResponse(
            {"status": status, "late": sorted(late)},
            HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def _late(self) -> set[str]:
        reports = await in_thread(lambda: list(progress(self._service)), limiter=self._watching)
        return {late for each in reports for late in each.late}

    async def _metrics_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._access.granted(scope).projects is not None:
            answer = refused(
                HTTPStatus.FORBIDDEN, "Metrics tell of all projects; this token reaches only some"
            )
        else:
            page = await in_thread(self._metrics.page, limiter=self._watching)
            answer = Response(page, media_type=CONTENT_TYPE_LATEST)
        await answer(scope, receive, send)

    # -- putting it together

    def _sufficient(self, app: ASGIApp) -> ASGIApp:
        """RFC 6750, 3.1: whose token grants nothing is told which scopes to ask for, and not to renew it. They are
        those of the metadata: who came to read alone would be told of no tool that lacks a scope."""
        issuer = self._access.issuer
        scopes = SCOPES if issuer is None else issuer.scopes
        asked_for = " ".join([] if self._metadata is None else self._metadata.scopes)

        async def look(scope: Scope, receive: Receive, send: Send) -> None:
            if not self._access.is_insufficient(scope):
                await app(scope, receive, send)
                return
            metadata = self._metadata_url(scope)
            told = f'Bearer error="insufficient_scope", scope="{asked_for}", resource_metadata="{metadata}"'
            answer = refused(
                HTTPStatus.FORBIDDEN,
                "The access token has no scope that grants anything here",
                f"Ask for one of {', '.join(scopes)}.",
                www_authenticate=told,
            )
            await answer(scope, receive, send)

        return look

    def _metadata_url(self, scope: Scope) -> AnyHttpUrl | None:
        return None if self._metadata is None else self._metadata.url(scope)

    def _client(self, scope: Scope) -> str:
        return client_of(self._access.granted(scope), scope)

    def _rated(self, app: ASGIApp) -> ASGIApp:
        crowded = refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "All connections are in use, and nobody has more of them than you",
            "Close one that is not needed, or wait for an answer.",
            retry_after=str(RETRY_SECONDS),
            connection="close",
        )

        async def take(scope: Scope, receive: Receive, send: Send) -> None:
            client = self._client(scope)
            if wait_s := self.limits.rates.take(client):
                await self.limits.rates.refusal(wait_s)(scope, receive, send)
                return
            await (app if let_in(scope, client) else crowded)(scope, receive, send)

        return take

    def _routes(self) -> ASGIApp:
        settings = self._service.settings

        def guarded(endpoint: ASGIApp) -> ASGIApp:
            """The SDK reads the token and refuses with 401, from the first token on; each has its rate."""
            rated = self._rated(endpoint)
            sufficient = self._sufficient(rated)

            async def require(scope: Scope, receive: Receive, send: Send) -> None:
                metadata = self._metadata_url(scope)
                await RequireAuthMiddleware(sufficient, [], metadata)(scope, receive, send)

            required = AuthenticationMiddleware(
                require, backend=self._access, on_error=_not_checked
            )

            async def look(scope: Scope, receive: Receive, send: Send) -> None:
                await (required if self._access.required else rated)(scope, receive, send)

            return look

        mcp = _Endpoint(guarded(self.limits.bounded(self._mcp, self._client)))
        named = f"{settings.http_path}/p/{{project:path}}"  # a name may have a slash
        doors = [Route(each, mcp, methods=METHODS) for each in (settings.http_path, named)]
        for door in doors:
            door.methods = set(METHODS)  # Starlette adds HEAD, which the SDK does not answer
        routes = [
            *doors,
            Route("/metrics", _Endpoint(guarded(self._metrics_page)), methods=["GET"]),
            Route("/healthz", self._healthz, methods=["GET"]),
            Route("/readyz", self._readyz, methods=["GET"]),
        ]
        if self._metadata is not None:
            routes += self._metadata.routes()
        app = _Routes(routes=routes)
        app.router.redirect_slashes = False
        return _without_slash(app, settings.http_path)


def _without_slash(app: ASGIApp, path: str) -> ASGIApp:
    """`app`, for which this path with a slash at its end, as many clients are configured, is the one without."""

    async def look(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == f"{path}/" and scope["raw_path"].endswith(b"/"):  # and no %2F
            scope["path"] = path
        await app(scope, receive, send)

    return look


def _not_checked(connection: HTTPConnection, error: AuthenticationError) -> Response:
    assert isinstance(error, NoKeys)
    return refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{error}: no access token can be checked",
        "The token may be good: send it again later. The log says what fails.",
        retry_after=str(error.retry_s),
    )


def _can_be_made(project: str) -> bool:
    try:
        require_visible(decode({"name": project}, CreateProject))
    except MemlogError:
        return False
    return True


class _Routes(Starlette):
    """Without Starlette's own answer to what nobody foresaw, a plain text: `Logged` has one."""

    def build_middleware_stack(self) -> ASGIApp:
        return ExceptionMiddleware(self.router, {HTTPException: _refused_by_route})


class _Endpoint:
    """An ASGI application as an endpoint: Starlette wraps functions, and leaves objects alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _refused_by_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status, path = HTTPStatus(error.status_code), request.url.path
    advice = None
    if status is HTTPStatus.NOT_FOUND and path in OF_AN_ISSUER:
        advice = NO_ISSUER
    elif status is HTTPStatus.NOT_FOUND and path.endswith("/") and path != "/":
        advice = WITHOUT_SLASH
    answer = refused(status, f"{status.phrase}: {request.method[:20]} {path[:200]}", advice)
    answer.headers.update(error.headers or {})
    return answer
