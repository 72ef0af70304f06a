"""Small tools behind memlog's stdio transport, for the transport's tests to start as a process.

`python echo_server.py JOURNAL DRAIN_S TEARDOWN_S`: what happens is appended to the file JOURNAL, so
that a test can tell it and its order after the process is gone.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from server.starting.startup import collector_at_rest

with collector_at_rest():
    import os
    import subprocess
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import asynccontextmanager
    from typing import Any

    import anyio
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
    from mcp_types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
        TextContent,
        Tool,
    )

    from server.session import Session
    from server.starting.answers import Answers
    from server.starting.prelude import Prelude
    from server.stdio.direct import Direct
    from server.stdio.transport import run_stdio

Arguments = dict[str, Any]
Context = ServerRequestContext[Any, Any]


def note(event: str) -> None:
    with open(sys.argv[1], "a") as journal:
        journal.write(event + "\n")


async def echo(ctx: Context, arguments: Arguments) -> str:
    return str(arguments["text"])


async def big(ctx: Context, arguments: Arguments) -> str:
    return "x" * int(arguments["characters"])


async def chatty(ctx: Context, arguments: Arguments) -> str:
    await ctx.session.report_progress(1, message="x" * int(arguments["characters"]))
    return "said"


async def slow(ctx: Context, arguments: Arguments) -> str:
    """Opening a FIFO waits for its other end: the test's open proves that this runs."""

    def work() -> str:
        text = Path(arguments["gate"]).read_text()
        note("slow finished")
        return text

    return await anyio.to_thread.run_sync(work)


async def endless(ctx: Context, arguments: Arguments) -> str:
    note("endless started")
    Path(arguments["gate"]).read_text()
    await anyio.sleep_forever()
    raise AssertionError


async def fail(ctx: Context, arguments: Arguments) -> str:
    raise RuntimeError("the password is swordfish")


async def stray(ctx: Context, arguments: Arguments) -> str:
    print("stray print")
    os.write(1, b"stray write\n")
    subprocess.run(["echo", "stray child"], check=True)
    return sys.stdin.read() + os.read(0, 1).decode()


async def half_a_pair(ctx: Context, arguments: Arguments) -> str:
    return "\ud83d"


TOOLS: dict[str, Callable[[Context, Arguments], Awaitable[str]]] = {
    tool.__name__: tool for tool in (echo, big, chatty, slow, endless, fail, stray, half_a_pair)
}


async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(
        tools=[Tool(name=name, input_schema={"type": "object"}) for name in TOOLS]
    )


async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    text = await TOOLS[params.name](ctx, params.arguments or {})
    return CallToolResult(content=[TextContent(text=text)])


@asynccontextmanager
async def lifespan(server: Server[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        note("torn down")


if __name__ == "__main__":
    run_stdio(
        Server(
            "echo",
            version="1",
            lifespan=lifespan,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
            on_subscriptions_listen=ListenHandler(InMemorySubscriptionBus()),
        ),
        Direct(Session(None, ""), {}, on_first_answer=lambda: None),  # type: ignore[arg-type]
        on_close=lambda: note("closed"),
        prelude=Prelude(Answers(Path(sys.argv[1]).with_name("answers"))),
        drain_s=float(sys.argv[2]),
        teardown_s=float(sys.argv[3]),
    )
