"""The answers to `tools/list`, each kept once.

Over HTTP the SDK keeps the last answer of every session until its next. That is this one as a rule, for calls go past
the SDK (`calls`), and it takes half a megabyte.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

LISTINGS_MAX = 16
"""Of the toolsets, rights and versions of the protocol in use, as many have a listing kept."""


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
