"""The HTTP application in this process, without a socket: requests as uvicorn would hand them in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from memlog.settings import Settings
from server.http.access import Access
from server.http.app import App
from server.http.connection import Door, Served
from server.rights.detectors import detectors
from server.service import Service
from tests.served import ENVELOPE, Era

Message = dict[str, Any]
Header = tuple[str, str]
LEGACY: Era = "2025-11-25"
MODERN: Era = "2026-07-28"


class Answer(NamedTuple):
    """Headers as they came, but for the id of the request, which is never the same."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: App,
    body: bytes,
    headers: Iterable[Header],
    *,
    method: str = "POST",
    path: str = "/mcp",
    gone: anyio.Event | None = None,
) -> Answer:
    """`gone` says when the client goes; without it, it stays until it is answered."""
    parts = [body]
    left = gone or anyio.Event()
    sent: list[Any] = []

    async def receive() -> Any:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            left.set()

    lines = [("host", "localhost"), *headers, ("content-length", str(len(body)))]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(name.lower().encode(), value.encode()) for name, value in lines],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "state": {},
    }
    await app.asgi(scope, receive, send)
    start, *rest = sent
    kept = [each for each in start["headers"] if each[0] != b"x-request-id"]
    return Answer(start["status"], kept, b"".join(each.get("body", b"") for each in rest))


class BySdk(App):
    """Whose calls all go the SDK's way, since somebody else wants to see them, too."""

    def _served(self, door: Door, lasting: bool) -> Served:
        async def other(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
            return await call_next(ctx)

        served = super()._served(door, lasting)
        served.server.middleware.append(other)
        return served


@asynccontextmanager
async def app_over(data_dir: Path, kind: type[App] = App, **settings: Any) -> AsyncIterator[App]:
    detectors()  # else a thread imports them, perhaps while a test ends, which warns
    service = Service(Settings(data_dir=data_dir, **{"embedder": "none", **settings}))
    try:
        app = kind(service, Access(service.settings))
        async with app.running():
            yield app
    finally:
        service.close()


class Client:
    """Calls tools of one application, in one era; opens a session in that of handshakes."""

    def __init__(self, app: App, era: Era, *, path: str = "/mcp", token: str = "") -> None:
        self._app = app
        self._era = era
        self._path = path
        self.headers = {"content-type": "application/json", "accept": "application/json"}
        self.gone: anyio.Event | None = None
        if token:
            self.headers["authorization"] = f"Bearer {token}"

    async def open(self) -> None:
        if self._era == MODERN:
            self.headers["mcp-protocol-version"] = MODERN
            return
        client = {"name": "test", "version": "1"}
        params = {"protocolVersion": self._era, "capabilities": {}, "clientInfo": client}
        opened = await self.post(request("initialize", 0, params))
        self.headers["mcp-protocol-version"] = self._era
        named = [value for name, value in opened.headers if name == b"mcp-session-id"]
        if named:
            self.headers["mcp-session-id"] = named[0].decode()
        await self.post(request("notifications/initialized"))

    async def post(self, body: bytes, **headers: str) -> Answer:
        sent = {**self.headers, **{name.replace("_", "-"): each for name, each in headers.items()}}
        return await ask(self._app, body, sent.items(), path=self._path, gone=self.gone)

    async def end(self) -> Answer:
        headers = self.headers.items()
        return await ask(self._app, b"", headers, method="DELETE", path=self._path)

    async def call(
        self, tool: str, arguments: Any, meta: Message | None = None, number: int = 1
    ) -> Answer:
        params: Message = {"name": tool, "arguments": arguments}
        if self._era == MODERN:
            meta = {**ENVELOPE, **(meta or {})}
        if meta is not None:
            params["_meta"] = meta
        routed = {"Mcp_Method": "tools/call", "Mcp_Name": tool} if self._era == MODERN else {}
        return await self.post(request("tools/call", number, params), **routed)


def request(method: str, number: int | None = None, params: Message | None = None) -> bytes:
    """A request, or a notification where it has no number."""
    message: Message = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        message["id"] = number
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()
