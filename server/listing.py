"""What `tools/list` shows, each answer kept once.

Over HTTP the SDK keeps the last answer of every session until its next. That is this one as a rule, for calls go past
the SDK (`calls`), and it takes half a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations

from server.advice import descriptions
from server.input.schemas import countable, input_schema, output_schema
from server.refusals import Described
from server.registry import Tool

LISTINGS_MAX = 16
"""Of the toolsets, rights and versions of the protocol in use, as many have a listing kept."""


def offered(tools: Mapping[str, Tool]) -> list[ListedTool]:
    """These tools as they are shown together: none of them recommends one that is not there."""
    return [
        listed(tool)
        if description == tool.description
        else listed(tool).model_copy(update={"description": description})
        for tool, description in zip(tools.values(), descriptions(tools), strict=True)
    ]


@cache
def listed(tool: Tool) -> ListedTool:
    """The tool as `tools/list` shows it."""
    return ListedTool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=countable(input_schema(tool.arguments)),
        output_schema=answer_schema(tool),
        annotations=ToolAnnotations(
            read_only_hint=not tool.writes,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def answer_schema(tool: Tool) -> dict[str, Any]:
    """That of the result or of an error: clients on the TypeScript SDK 1.x hold both to it."""
    schema = result_schema(tool)
    schema["properties"] = {**schema["properties"], "error": output_schema(Described)}
    required = schema.pop("required")  # each result has some: it names its project
    return {**schema, "anyOf": [{"required": required}, {"required": ["error"]}]}


def result_schema(tool: Tool) -> dict[str, Any]:
    """That of the result, and the warnings that any writing tool may add to its own."""
    schema = output_schema(tool.result)
    if tool.writes:
        warnings = {"warnings": {"type": "array", "items": {"type": "string"}}}
        schema["properties"] = {**schema["properties"], **warnings}
    return schema


class SharedListings:
    """Middleware for `Server.middleware` of many servers: sessions that are told the same are told one and the same."""

    def __init__(self) -> None:
        self._told: list[HandlerResult] = []
        """The newest last."""

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method != "tools/list":
            return result
        told = next((each for each in self._told if each == result), result)
        self._told = [each for each in self._told if each is not told][1 - LISTINGS_MAX :]
        self._told.append(told)
        return told
