"""Media types: those of a request as the SDK compares them, and the answer in a form that its client accepts.

Every answer is made as JSON. A client that accepts events alone is sent the same as the one event of a stream, which
the protocol allows for any request.
"""

from __future__ import annotations

from http import HTTPStatus

from mcp.server.streamable_http import check_accept_headers
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Scope, Send

_BEFORE, _AFTER = b"event: message\ndata: ", b"\n\n"
"""Around JSON in one line (HTML standard, 9.2.6)."""


def negotiated(scope: Scope, send: Send) -> Send:
    """Where the answer goes. The headers of the request are replaced by those that the SDK takes for what they mean."""
    scope["headers"] = _as_compared(scope)
    has_json, has_events = check_accept_headers(Request(scope))
    if scope["method"] != "POST" or has_json or not has_events:
        return send
    MutableHeaders(scope=scope)["accept"] = "application/json, text/event-stream"
    return _as_event(send)


def _as_compared(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Media types are the same in whatever case (RFC 9110, 8.3.1); the SDK knows them in small letters. Those that are
    accepted may stand in several lines (5.3), of which the SDK reads the first; who names none accepts all (12.5.1).
    """
    accepted = b", ".join(value for name, value in scope["headers"] if name == b"accept")
    if not accepted and scope["method"] == "POST":
        accepted = b"*/*"
    others = [
        (name, value.lower() if name == b"content-type" else value)
        for name, value in scope["headers"]
        if name != b"accept"
    ]
    return [*others, (b"accept", accepted)] if accepted else others


def _as_event(send: Send) -> Send:
    """Takes an answer in JSON, and hands it on as an event; what has another status is handed on as it is."""
    framing = begun = False

    async def framed(message: Message) -> None:
        nonlocal framing, begun
        if message["type"] == "http.response.start":
            message = {**message, "headers": list(message["headers"])}
            headers = MutableHeaders(raw=message["headers"])
            is_json = headers.get("content-type", "").startswith("application/json")
            framing = is_json and message["status"] == HTTPStatus.OK
            if framing:
                headers["content-type"] = "text/event-stream"
                headers["cache-control"] = "no-cache, no-transform"
                if "content-length" in headers:
                    length = int(headers["content-length"]) + len(_BEFORE) + len(_AFTER)
                    headers["content-length"] = str(length)
        elif framing and message["type"] == "http.response.body":
            body = message.get("body", b"") if begun else _BEFORE + message.get("body", b"")
            begun = True
            message = {**message, "body": body if message.get("more_body") else body + _AFTER}
        await send(message)

    return framed
