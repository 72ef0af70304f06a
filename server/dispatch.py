"""From the registry to MCP: the tools listed, and each call decoded, run and answered.

A tool that fails is a result with `isError`, never a protocol error; what was not foreseen is left to
`faults`. Tools run in worker threads, so a slow one holds up nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import anyio.to_thread
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    ToolAnnotations,
)
from mcp_types import (
    Tool as ListedTool,
)

from memlog import __version__
from memlog.errors import MemlogError
from memlog.project import Origin
from server.arguments import decode
from server.completions import Completions
from server.credentials import judge
from server.prompts import Prompts
from server.refusals import describe
from server.registry import Call, Result, Tool
from server.resources import JSON, Resources
from server.schemas import input_schema, output_schema
from server.session import Session
from server.subscriptions import Subscriptions

COMMAND_ID_META = "memlog/commandId"
"""A key in a call's `_meta`: the client's own id for a command, with which a retry is safe."""

INSTRUCTIONS = (
    "memlog is a durable memory: entities with facts (observations) and relations between them. "
    "Search it before answering from memory, store what is worth keeping one fact at a time, and "
    "supersede a fact rather than deleting it when it changes. Nothing is lost: every change is an "
    "event in a log."
)

_encode = msgspec.json.Encoder().encode

Answered = Callable[[], None]
Called = Callable[[str, str, float], None]
"""Told of each call: the tool, its outcome ("ok" or the code of the error), the seconds it took."""
Context = ServerRequestContext[Any, Any]


@cache
def listed(tool: Tool) -> ListedTool:
    """The tool as `tools/list` shows it."""
    return ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=input_schema(tool.arguments),
        output_schema=_answer_schema(tool),
        annotations=ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _answer_schema(tool: Tool) -> dict[str, Any]:
    """That of the result, and the warnings that any writing tool may add to its own."""
    schema = output_schema(tool.result)
    if tool.writes:
        warnings = {"warnings": {"type": "array", "items": {"type": "string"}}}
        schema["properties"] = {**schema["properties"], **warnings}
    return schema


def build_server(
    session: Session,
    tools: Mapping[str, Tool],
    *,
    on_first_answer: Answered,
    on_called: Called = lambda tool, outcome, seconds: None,
) -> Server[Any]:
    """An MCP server that offers `tools`, and the resources and prompts that belong to their toolsets.

    `on_first_answer` is called once, after the first listing or call of a tool: the moment to load
    what the client need not wait for.
    """
    offered = [listed(tool) for tool in tools.values()]
    answered = _once(on_first_answer)

    async def list_tools(
        context: Context, params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        answered()
        return ListToolsResult(tools=offered)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise _unknown_tool(params.name, tools)
        origin = Origin(command_id=_command_id(params), actor=session.grant.name)
        call = Call(session, origin)
        outcome, began = "INTERNAL_ERROR", time.perf_counter()
        try:
            result = await anyio.to_thread.run_sync(run, tool, call, params.arguments)
            outcome = _outcome(result)
        finally:
            on_called(tool.name, outcome, time.perf_counter() - began)
        answered()
        return result

    server: Server[Any] = Server(
        "memlog",
        version=__version__,
        title="memlog",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No tool takes arguments in headers. Without this the SDK lists all tools before each call over
        # HTTP, to look for one that does.
        get_tool_input_schema=lambda name: None,
    )
    resources, prompts = Resources(session, tools), Prompts(session, tools)
    if resources.offered:
        resources.add_to(server)
        Subscriptions(session, resources).add_to(server)
    if prompts.offered:
        prompts.add_to(server)
    if resources.offered or prompts.offered:
        Completions(session, resources, prompts).add_to(server)
    return server


def run(tool: Tool, call: Call, arguments: Mapping[str, Any] | None) -> CallToolResult:
    """Runs one tool to its end, whatever that is."""
    try:
        decoded = decode(arguments, tool.arguments)
        warning = (
            judge(decoded, call.service.settings.secrets, call.origin.command_id)
            if tool.writes
            else None
        )
        result = tool.call(call, decoded)
    except MemlogError as error:
        return _failed(error)
    return _succeeded(tool, result, warning)


def _succeeded(tool: Tool, result: Result, warning: str | None) -> CallToolResult:
    """The answer; a warning stands in `warnings` for those who read what is structured, and in a text of its own
    for the others."""
    structured = msgspec.to_builtins(result)
    if warning is not None:
        structured["warnings"] = [*structured.get("warnings", ()), warning]
    text = _encode(structured if tool.bare is None else tool.bare(result)).decode()
    links = () if tool.links is None else tool.links(result)
    return CallToolResult(
        content=[
            TextContent(text=text),
            *([] if warning is None else [TextContent(text=f"Warning: {warning}")]),
            *(ResourceLink(uri=link.uri, name=link.name, mime_type=JSON) for link in links),
        ],
        structured_content=structured,
    )


def _failed(error: MemlogError) -> CallToolResult:
    structured = {"error": describe(error), **error.details}
    return CallToolResult(
        content=[TextContent(text=_encode(structured).decode())],
        structured_content=structured,
        is_error=True,
    )


def _outcome(result: CallToolResult) -> str:
    if not result.is_error:
        return "ok"
    code: str = (result.structured_content or {})["error"]["code"]
    return code


def _command_id(params: CallToolRequestParams) -> str | None:
    given = (params.meta or {}).get(COMMAND_ID_META)
    if given is None:
        return None
    if not isinstance(given, str) or not 1 <= len(given) <= 200:
        raise MCPError(
            INVALID_PARAMS, f"_meta.{COMMAND_ID_META} must be a text of 1 to 200 characters"
        )
    return given


def _unknown_tool(name: str, tools: Mapping[str, Tool]) -> MCPError:
    from mcp_types import METHOD_NOT_FOUND

    from memlog.closest import did_you_mean

    near = did_you_mean(name, tools) or "Call tools/list to see what there is."
    return MCPError(METHOD_NOT_FOUND, f"Unknown tool {name[:100]!r}. {near}")


def _once(action: Answered) -> Answered:
    done = False

    def act() -> None:
        nonlocal done
        if not done:
            done = True
            action()

    return act
