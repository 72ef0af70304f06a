"""How much is taken and worked on, each limit with its status and a JSON error.

    400  a head larger than is taken        413  a body that says it is larger than is taken
    400  a body of two lengths              415  a body that is compressed
    504  a request that takes too long      413  a body that has too many parts
    429  more than a token may send         503  more requests than are worked on at a time

What answers with 504 is not stopped if it writes: it ends as it began, whole, and holds its place
among the requests worked on until then. Streams that last count only until they begin; they are bounded
by the `places` of connections.

What a large body costs is reckoned by its `weight`.

The head is looked at before the token, the body taken in behind it (`bodies`): whoever has no token holds no place.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import anyio
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memlog.settings import Settings
from server.http.bodies import RETRY_SECONDS, Bodies, Whole
from server.http.errors import refused
from server.http.sockets import HEAD_BYTES_MAX, HEADERS_MAX, TOO_MANY_HEADERS, begin_stream
from server.http.weight import PARTS_MAX, more_requests, parts

CLIENTS_MAX = 10_000
SHARE = 9
"""So many times the places that it leaves to others may a client have of the requests worked on."""
RETRY = b"retry: 10000\r\n\r\n"
"""In how many milliseconds to open a stream again (MCP of 2025-11-25). Whoever finds no server then tries once more."""
WAIT_S_MAX = 86_400.0
"""That a client is told of: as few a second as may be set would be more than any number."""


class Rates:
    """A bucket of tokens for each client: as many a second as given, twice as many in a burst. For a body that costs
    more than is left the rest is lent: it goes on, and what comes next waits."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        self._burst = max(1.0, 2 * per_second)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> float:
        """For a request: 0 if the client may go on, else after how many seconds it may."""
        return self._take(client, 1.0, least=1.0)

    def take_more(self, client: str, requests: int) -> float:
        """The same for a body that counts as so many requests beside its own, a burst at most: not while others are
        lent for."""
        return self._take(client, min(float(requests), self._burst), least=0.0)

    def _take(self, client: str, cost: float, *, least: float) -> float:
        now = time.monotonic()
        left, seen_s = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - seen_s) * self.per_second)
        wait_s = 0.0 if left >= least else min((1 - left) / self.per_second, WAIT_S_MAX)
        self._buckets[client] = (left if wait_s else left - cost, now)
        if len(self._buckets) > CLIENTS_MAX:
            # The one that was away longest, so its bucket is full.
            self._buckets.popitem(last=False)
        return wait_s

    def refusal(self, wait_s: float) -> Response:
        return refused(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"More than {self.per_second:g} requests a second; a large body counts as several",
            "Send fewer, or put more items into one call.",
            retry_after=str(math.ceil(wait_s)),
        )


class Limits:
    """Two middlewares: `first` around everything else, `bounded` around what requests with a body are for."""

    def __init__(self, settings: Settings) -> None:
        self._body_bytes_max = settings.http_body_bytes_max
        self._requests_max = settings.http_requests_max
        self._request_s = settings.http_request_seconds
        self.rates = Rates(settings.http_requests_per_second)
        self._bodies = Bodies(
            bytes_max=self._body_bytes_max,
            bodies_max=self._requests_max,
            patience_s=settings.http_patience_seconds,
        )
        self._worked_on: dict[Whole, str] = {}
        """And whose each is."""
        self._lasting: set[anyio.CancelScope] = set()

    @property
    def working(self) -> int:
        """How many requests with a body are worked on."""
        return len(self._worked_on)

    def end_lasting(self) -> None:
        """Ends the streams that would last as long as their clients listen, and the wait for bodies."""
        self._bodies.end()
        for stream in self._lasting:
            stream.cancel()

    def first(self, app: ASGIApp) -> ASGIApp:
        """`app`, which is asked by requests with a head that is right, and has the time of one if it has no body."""

        async def look(scope: Scope, receive: Receive, send: Send) -> None:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
            elif scope["method"] == "GET":  # streams, and those who look whether it is alive
                # Without its body: it has no business here, and may never come.
                await self._answer(app, scope, Whole(b"", receive), send)
            else:
                await app(scope, receive, send)

        return look

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Of a head that is too large, or tells of a body that is, or of two."""
        if _head_bytes(scope) > HEAD_BYTES_MAX:  # `sockets` sees it only where the rest is to come
            return refused(
                HTTPStatus.BAD_REQUEST,
                f"The head is larger than {HEAD_BYTES_MAX} bytes",
                connection="close",
            )
        # `sockets` lets pass those of a request that came early.
        if len(scope["headers"]) > HEADERS_MAX:
            return refused(HTTPStatus.BAD_REQUEST, TOO_MANY_HEADERS, connection="close")
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:  # RFC 9112, 6.1
            return refused(
                HTTPStatus.BAD_REQUEST,
                "There is both a Content-Length and a Transfer-Encoding",
                "Send one of them.",
                connection="close",
            )
        encoding = headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            return refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"The body is encoded: {encoding[:100]}",
                "Send it as it is, without Content-Encoding.",
                accept_encoding="identity",
            )
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self._body_bytes_max:
            return self._bodies.too_large()
        return None

    def bounded(self, app: WholeApp, client: Callable[[Scope], str]) -> ASGIApp:
        """`app`, which is given bodies whole, and so many requests at a time; `client` says whose one is."""

        async def work(scope: Scope, receive: Receive, send: Send) -> None:
            if isinstance(receive, Whole):
                await app(scope, receive, send)
                return
            body = await self._bodies.take(receive, who := client(scope))
            if not isinstance(body, Whole):
                if body is not None:
                    await body(scope, receive, send)
                return
            if (refusal := self._too_much(body.body, who)) is not None:
                await refusal(scope, receive, send)
                return
            self._worked_on[body] = who
            try:
                await self._answer(app, scope, body, send)
            finally:
                self._worked_on.pop(body, None)

        return work

    def _too_much(self, body: bytes, client: str) -> Response | None:
        """The answer to a body that is too much to read: at all, for this client now, or for want of a place."""
        many = parts(body)
        if wait_s := self.rates.take_more(client, more_requests(len(body), many)):
            return self.rates.refusal(wait_s)
        if many > PARTS_MAX:
            return refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The body has more than {PARTS_MAX} arrays, objects and members of objects",
                "Send it in parts.",
            )
        return None if self._has_place(client) else self._busy()

    def _has_place(self, client: str) -> bool:
        """For one more of this client. The last is for who has none: nobody keeps others out by asking for much."""
        left = self._requests_max - self.working
        held = list(self._worked_on.values()).count(client)
        return held < SHARE * (left - 1) or (not held and left > 0)

    def _busy(self) -> Response:
        return refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"Of {self._requests_max} requests at a time {self.working} are being worked on, and what is left is for "
            "others; this one is not begun",
            "Send it again in a moment, or fewer at a time.",
            retry_after=str(RETRY_SECONDS),
        )

    async def _answer(self, app: WholeApp, scope: Scope, receive: Whole, send: Send) -> None:
        begun = False
        late: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        stream = anyio.CancelScope()

        async def send_in_time(message: Message) -> None:
            nonlocal begun
            if late is not None:
                return
            if message["type"] == "http.response.start":
                begun = True
                if _lasting(message):
                    self._worked_on.pop(receive, None)
                    self._lasting.add(stream)
                    begin_stream(scope)
            await send(message)

        async def refuse() -> None:
            await self._too_late()(scope, receive, send)

        def expire() -> None:
            nonlocal late
            if not begun:
                receive.is_late = True
                late = loop.create_task(refuse())

        # A timer: a task that waits would cost each request more than all other limits together.
        timer = loop.call_later(self._request_s, expire)
        try:
            with stream:
                await app(scope, receive, send_in_time)
        finally:
            timer.cancel()
            self._lasting.discard(stream)
            if late is not None:
                await late
        if stream.cancelled_caught:
            await send({"type": "http.response.body", "body": _farewell(scope), "more_body": False})

    def _too_late(self) -> ASGIApp:
        return refused(
            HTTPStatus.GATEWAY_TIMEOUT,
            f"This took longer than {self._request_s:g} seconds; it may still be done",
            "Look whether it was, or send it again with the same memlog/commandId in _meta.",
        )


def _head_bytes(scope: Scope) -> int:
    """Of what a client chooses: the address and the headers."""
    address = len(scope["raw_path"]) + len(scope["query_string"])
    return address + sum(len(name) + len(value) for name, value in scope["headers"])


def _farewell(scope: Scope) -> bytes:
    """The end of a stream that ends with its server. By themselves the SDKs open it again within three seconds, or
    never, and few servers are started again as soon. Before 2025-11-25 clients were not told to heed it, and since
    2026-07-28 there is no such stream."""
    version = Headers(scope=scope).get(MCP_PROTOCOL_VERSION_HEADER)
    heeded = scope["method"] == "GET" and version == LATEST_HANDSHAKE_VERSION
    return RETRY if heeded else b""


def _lasting(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith("text/event-stream")


WholeApp = Callable[[Scope, Whole, Send], Awaitable[None]]
"""An ASGI application that is given every body whole, none as an empty one."""
