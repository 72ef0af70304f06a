"""`python -m bench.no_op_server`: the SDK's own stdio server with one tool that does nothing.

The floor of every call: what a server pays that is written with the SDK and has nothing to do.
"""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolRequestParams, CallToolResult, TextContent


async def _nothing(
    context: ServerRequestContext[Any, Any], params: CallToolRequestParams
) -> CallToolResult:
    return CallToolResult(content=[TextContent(text="")])


async def _main() -> None:
    server: Server[Any] = Server("no-op", on_call_tool=_nothing)
    async with stdio_server() as (source, sink):
        await server.run(source, sink, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_main)
