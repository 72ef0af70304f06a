"""What a client learns of failures that nobody foresaw, in both protocol eras."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolRequestParams, CallToolResult, ErrorData, Request, Tool

from server.stdio.faults import guard
from tests.served import DEADLINE_S

Handler = Callable[[ServerRequestContext[Any, Any], CallToolRequestParams], Awaitable[Any]]
ERAS = pytest.mark.parametrize("mode", ["legacy", "auto"])


def error_of(handler: Handler, mode: str, arguments: Any = None) -> ErrorData:
    """What a client of `mode` gets when the tool call is answered by `handler`."""

    async def scenario() -> ErrorData:
        server = Server("faulty", on_call_tool=handler)
        guard(server)
        with anyio.fail_after(DEADLINE_S):
            async with Client(server, mode=mode) as client:
                with pytest.raises(MCPError) as raised:
                    await client.call_tool("any", arguments)
                return raised.value.error

    return anyio.run(scenario)


async def crash(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
    raise RuntimeError("the password is swordfish")


async def botch(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
    return Tool.model_validate({"name": 7})


async def refuse(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
    raise MCPError(-32602, "Unknown tool: any", {"closest": ["many"]})


async def succeed(ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams) -> Any:
    return CallToolResult(content=[])


@ERAS
@pytest.mark.parametrize("handler", [crash, botch])
def test_the_client_gets_a_reference_and_the_log_the_rest(
    handler: Handler, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = error_of(handler, mode)
    assert error.code == -32603
    assert "swordfish" not in error.model_dump_json()
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert error.data["reference"] in record.getMessage()
    assert record.exc_info


@ERAS
def test_an_error_raised_on_purpose_passes_unchanged(mode: str) -> None:
    expected = ErrorData(code=-32602, message="Unknown tool: any", data={"closest": ["many"]})
    assert error_of(refuse, mode) == expected


@ERAS
def test_wrong_params_are_named_one_by_one(mode: str) -> None:
    malformed = Request[dict[str, Any], str](method="tools/call", params={"arguments": 7})

    async def scenario() -> ErrorData:
        server = Server("strict", on_call_tool=succeed)
        guard(server)
        with anyio.fail_after(DEADLINE_S):
            async with Client(server, mode=mode) as client:
                with pytest.raises(MCPError) as raised:
                    await client.session.send_request(malformed, CallToolResult)
                return raised.value.error

    error = anyio.run(scenario)
    assert error.code == -32602
    assert {each["path"] for each in error.data["problems"]} >= {"params.name", "params.arguments"}
