"""What a client is told that never came as far as MCP: a status, and a JSON-RPC error as the body."""

from __future__ import annotations

import json
from http import HTTPStatus

import msgspec
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ADVICE = {
    "Not Acceptable": "Send the header Accept: application/json, text/event-stream.",
    "Invalid Content-Type header": "Send the header Content-Type: application/json.",
    "Method Not Allowed": "Use one of those that the header Allow names.",
}
"""What to do instead, by what the libraries say."""

_UNFIT = "Validation error: "
"""So the SDK begins when a body is JSON and no message, to go on with every line that pydantic has for it."""

_NO_MESSAGE = "The body is no JSON-RPC message"
_A_MESSAGE = (
    'Send one object, no batch: "jsonrpc" is "2.0", "method" a text, "params", if any, an object, '
    'and "id", of a request, a text or an integer.'
)


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


def error_body(
    status: HTTPStatus, message: str, suggestion: str | None = None, *, code: int | None = None
) -> bytes:
    data = {"status": status.value, "reason": status.phrase}
    if suggestion is not None:
        data["suggestion"] = suggestion
    if code is None:
        code = INTERNAL_ERROR if status >= HTTPStatus.INTERNAL_SERVER_ERROR else INVALID_REQUEST
    error = {"code": code, "message": message, "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()


class InJson:
    """Middleware: libraries behind it refuse some requests with a plain text, or without a word, or with all that they
    tried; a short JSON error stands in its place then, with the same status and headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal: Message | None = None

        async def send_in_json(message: Message) -> None:
            nonlocal refusal
            if message["type"] == "http.response.start" and _may_be_odd(message):
                refusal = message
                return
            if refusal is not None:
                start, message = _in_json(refusal, message)
                refusal = None
                await send(start)
            await send(message)

        await self._app(scope, receive, send_in_json)


def _may_be_odd(start: Message) -> bool:
    return start["status"] == HTTPStatus.BAD_REQUEST or _is_bare(start)


def _is_bare(start: Message) -> bool:
    if start["status"] < HTTPStatus.BAD_REQUEST:
        return False
    kind = Headers(raw=start["headers"]).get("content-type", "")
    return not kind.startswith("application/json")


def _in_json(start: Message, answer: Message) -> tuple[Message, Message]:
    status, said = HTTPStatus(start["status"]), answer.get("body", b"")
    if _is_bare(start):
        text = said.decode(errors="replace") or status.phrase
        body = error_body(status, text, _ADVICE.get(text))
    elif _is_unfit(said):
        body = error_body(status, _NO_MESSAGE, _A_MESSAGE, code=INVALID_PARAMS)
    else:
        return start, answer
    headers = MutableHeaders(raw=start["headers"])
    headers["content-type"] = "application/json"
    headers["content-length"] = str(len(body))
    return start, {"type": "http.response.body", "body": body}


class _Error(msgspec.Struct):
    code: int
    message: str


class _Refusal(msgspec.Struct):
    error: _Error


def _is_unfit(said: bytes) -> bool:
    try:
        error = msgspec.json.decode(said, type=_Refusal).error
    except msgspec.MsgspecError:  # another's, or a part
        return False
    return error.code == INVALID_PARAMS and error.message.startswith(_UNFIT)
