"""What a client is told when a call fails in a way no handler foresaw.

Promises that the text of an unexpected exception never leaves the process: the client gets
JSON-RPC -32603 and a reference, the log gets the same reference and the traceback. (The SDK
alone sends clients of the handshake era code 0 and `str(error)`.) Also that wrong parameters are
told apart from a handler's own validation errors, which the SDK answers alike, and that a call
before `initialize` is named as such.
Failures of tools that a model can mend are results, not errors: they are left to the tools.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, ErrorData
from mcp_types.methods import validate_client_request
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from pydantic_core import ErrorDetails

NOT_INITIALIZED = -32002

logger = logging.getLogger(__name__)


def guard(server: Server[Any]) -> None:
    """Put a `FaultBoundary` around everything `server` handles.

    Outermost, so that the SDK's tracing inside still sees the exceptions themselves.
    """
    server.middleware.insert(0, FaultBoundary(server))


class FaultBoundary:
    """Middleware for `Server.middleware` that turns exceptions of requests into JSON-RPC errors.

    Notifications have nobody to answer; the SDK logs their exceptions.
    """

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], call_next: CallNext
    ) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        try:
            return await call_next(ctx)
        except MCPError as error:
            if error.code == INVALID_PARAMS and _before_initialize(ctx):
                raise MCPError(
                    NOT_INITIALIZED,
                    f"Server not initialized: send `initialize` before {ctx.method}",
                ) from error
            raise
        except ValidationError as error:
            if not self._params_are_wrong(ctx):
                raise _hidden(error) from error
            raise MCPError.from_error_data(invalid_params(error)) from error
        except Exception as error:
            raise _hidden(error) from error

    def _params_are_wrong(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        """Whether the SDK refused `ctx.params`, rather than a model in the handler its own data."""
        try:
            with suppress(KeyError):
                validate_client_request(ctx.method, ctx.protocol_version, ctx.params)
            if entry := self._server.get_request_handler(ctx.method):
                entry.params_type.model_validate(ctx.params or {}, by_name=False)
        except ValidationError:
            return True
        return False


def internal_error(error: BaseException) -> ErrorData:
    """What a client may know of `error`: a reference, under which the log has all of it."""
    reference = secrets.token_hex(4)
    logger.error("internal error %s", reference, exc_info=error)
    return ErrorData(
        code=INTERNAL_ERROR,
        message=f"Internal error (reference {reference} in the server's log)",
        data={"reference": reference},
    )


def invalid_params(error: ValidationError) -> ErrorData:
    """-32602 with every finding, in `data` as `{"problems": [{"path", "problem"}]}`."""
    problems = problems_of(error.errors(include_url=False, include_input=False))
    listed = "; ".join(f"`{each['path']}`: {each['problem']}" for each in problems)
    return ErrorData(
        code=INVALID_PARAMS, message=f"Invalid params: {listed}", data={"problems": problems}
    )


def problems_of(findings: Sequence[ErrorDetails], *, below: int = 0) -> list[dict[str, str]]:
    """pydantic's findings as `{path, problem}`, the first `below` steps of each path left out."""
    return [
        {"path": ".".join(str(step) for step in each["loc"][below:]), "problem": each["msg"]}
        for each in findings
    ]


def _before_initialize(ctx: ServerRequestContext[Any, Any]) -> bool:
    """In the handshake era the SDK's gate answers INVALID_PARAMS until the client is known."""
    return (
        ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        and ctx.session.client_params is None
        and ctx.method != "initialize"
    )


def _hidden(error: Exception) -> MCPError:
    return MCPError.from_error_data(internal_error(error))
