"""An SDK client joined in this process to the server that `memlog serve` runs, in either era."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, ResourceUpdatedNotification, TextResourceContents

from memlog.settings import Settings
from server.dispatch import build_server
from server.registry import tools
from server.service import Service
from server.session import Session
from server.stdio.faults import guard
from tests.served import DEADLINE_S

Mode = Literal["legacy", "2026-07-28", "auto"]
Answer = TypeVar("Answer")

ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def run(scenario: Callable[[], Awaitable[Answer]]) -> Answer:
    """Runs `scenario` to its end, which comes before the deadline."""

    async def bounded() -> Answer:
        with anyio.fail_after(DEADLINE_S):
            return await scenario()

    return anyio.run(bounded)


class Joined:
    """A client, the service behind its server, and the URIs it was told of in the handshake era."""

    def __init__(self, client: Client, service: Service, told: Any) -> None:
        self.client = client
        self.service = service
        self._told = told

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return result.structured_content or {}

    async def note(self, summary: str, **fields: Any) -> str:
        """Saves a record and returns its id."""
        fields = {
            "type": "note",
            "content": {"summary": summary},
            "source": "chat://test",
            "confidence": 0.9,
            **fields,
        }
        memory_id: str = (await self.call("memory_create", **fields))["id"]
        return memory_id

    async def read(self, uri: str) -> str:
        contents = (await self.client.read_resource(uri)).contents
        assert len(contents) == 1 and isinstance(contents[0], TextResourceContents)
        assert (contents[0].uri, contents[0].mime_type) == (uri, "application/json")
        return contents[0].text

    async def refusal(self, asked: Awaitable[Any]) -> ErrorData:
        with pytest.raises(MCPError) as refused:
            await asked
        return refused.value.error

    async def told(self) -> str:
        """The URI of the next `notifications/resources/updated`."""
        uri: str = await self._told.receive()
        return uri


@asynccontextmanager
async def joined(data_dir: Path, mode: Mode = "auto", **settings: Any) -> AsyncIterator[Joined]:
    """A client on a service over `data_dir`; search by words only unless `embedder` is given."""
    chosen = Settings(data_dir=data_dir, **{"embedder": "none", **settings})
    service = Service(chosen)
    try:
        async with _served(service, mode) as server:
            yield server
    finally:
        service.close()


@asynccontextmanager
async def beside(server: Joined) -> AsyncIterator[Joined]:
    """One session more on the same service, of a client until 2025-11-25."""
    async with _served(server.service, "legacy") as another:
        yield another


@asynccontextmanager
async def _served(service: Service, mode: Mode) -> AsyncIterator[Joined]:
    chosen = service.settings
    offered = tools(chosen.toolsets, read_only=chosen.read_only)
    server = build_server(Session(service, chosen.project), offered)
    guard(server)
    send, receive = anyio.create_memory_object_stream[str](100)

    async def take(message: IncomingMessage) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await send.send(message.params.uri)

    with send, receive:
        async with Client(server, mode=mode, message_handler=take) as client:
            yield Joined(client, service, receive)
