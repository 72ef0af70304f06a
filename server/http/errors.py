"""What a client is told that never came as far as MCP: a status, and a JSON-RPC error as the body."""

from __future__ import annotations

import json
from http import HTTPStatus

from mcp_types import INTERNAL_ERROR, INVALID_REQUEST
from starlette.responses import Response


def refused(
    status: HTTPStatus, message: str, suggestion: str | None = None, **headers: str
) -> Response:
    """An answer with an error of no request; underscores in names of headers stand for dashes."""
    return Response(
        error_body(status, message, suggestion),
        status,
        {name.replace("_", "-"): value for name, value in headers.items()},
        "application/json",
    )


def error_body(status: HTTPStatus, message: str, suggestion: str | None = None) -> bytes:
    data = {"status": status.value, "reason": status.phrase}
    if suggestion is not None:
        data["suggestion"] = suggestion
    code = INTERNAL_ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else INVALID_REQUEST
    error = {"code": code, "message": message, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
