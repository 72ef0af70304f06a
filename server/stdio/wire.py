"""Lines to JSON-RPC messages and back.

Promises that a line which is no message is refused in words, under the id of the request it
tried to be wherever that id can be read with certainty, so that no client waits for an answer
that never comes. A wrong guess would be worse than none: it would answer another request, so an
id counts only next to the `method` that makes the line a request.
Cutting the lines is left to `lines`, what to do with a message to the SDK, reading to `transport`, writing to
`outbox`.
"""

from __future__ import annotations

import json
import re
from typing import TypeGuard

from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json

from memlog.errors import shorten
from server.input.kinds import SURROGATE
from server.stdio.faults import internal_error, problems_of
from server.stdio.lines import EDGE_BYTES, Line, Oversized

_MEMBER = rb'\s*"(jsonrpc|method|id)"\s*:\s*("[^"\\\x00-\x1f]*"|-?\d{1,18})\s*'
_OPENING = re.compile(rb"\s*\{(?:" + _MEMBER + rb"(?:[,}]|$))*")
_CLOSING = re.compile(rb"(?:," + _MEMBER + rb")+\}\s*$")
_MEMBERS = re.compile(_MEMBER)
_HALF = "half of a character, as where an emoji was cut in two. Remove it or send the full pair."


class Refused(Exception):
    """A line that is no message. `reply` is what to tell the client, None if it asked nothing."""

    def __init__(self, reply: JSONRPCError | None) -> None:
        super().__init__(reply.error.message if reply else "a malformed notification")
        self.reply = reply


def decode(line: Line) -> JSONRPCMessage:
    """The message in `line`.

    Raises `Refused`: -32700 for what is not JSON, -32602 for a request whose JSON no message may
    carry (lone surrogates, nesting beyond 200), -32600 for JSON that is no JSON-RPC 2.0 message
    and for lines beyond the limit.
    """
    if isinstance(line, Oversized):
        reason = f"a line of {line.bytes_total} bytes; one message may have {line.bytes_max}"
        raise Refused(error_reply(_id_at_edges(line.head, line.tail), INVALID_REQUEST, reason))
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        raise Refused(_refusal(bytes(line), error)) from None
    odd = odd_id(message, line)
    if odd is not None:
        raise Refused(error_reply(None, INVALID_REQUEST, odd))
    fill_in(message)
    return message


def fill_in(message: JSONRPCMessage) -> bool:
    """Gives an `initialize` what the SDK insists on; clients that were written by hand leave out what they have none
    of. Whether it did."""
    if not isinstance(message, JSONRPCRequest) or message.method != "initialize":
        return False
    if not message.params or "capabilities" in message.params:
        return False
    message.params["capabilities"] = {}
    return True


def odd_id(message: JSONRPCMessage, line: bytes | bytearray) -> str | None:
    """What is wrong with the id in `line`, where that alone makes a notification of a request."""
    if not isinstance(message, JSONRPCNotification):
        return None
    # The union falls through to a notification when the id is not one MCP allows: dropping
    # such a request would leave its sender waiting. A null id is a notification to us.
    odd = from_json(line).get("id")
    return None if odd is None else f"`id` must be a string or an integer, not {_shown(odd)}"


def encode(message: JSONRPCMessage) -> bytes:
    """`message` as one line. A response that JSON cannot carry becomes an internal error."""
    try:
        return _line(message)
    except ValueError as error:
        # UTF-8 has no lone surrogates; pydantic's serialisation error is a ValueError too.
        if not isinstance(message, JSONRPCResponse):
            raise
        return _line(JSONRPCError(jsonrpc="2.0", id=message.id, error=internal_error(error)))


def error_reply(request_id: RequestId | None, code: int, reason: str) -> JSONRPCError:
    """A JSON-RPC error whose message opens with the standard's name for `code`."""
    name = {
        PARSE_ERROR: "Parse error",
        INVALID_REQUEST: "Invalid request",
        INVALID_PARAMS: "Invalid params",
    }[code]
    error = ErrorData(code=code, message=f"{name}: {reason}")
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _line(message: JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _refusal(line: bytes, error: ValidationError) -> JSONRPCError | None:
    findings = error.errors(include_url=False, include_input=False)
    if findings[0]["type"] == "json_invalid":
        return _not_json(line, findings[0]["ctx"]["error"])
    value = from_json(line)
    if not isinstance(value, dict):
        reason = f"expected one object a line, not {_shown(value)}; batches are not part of MCP"
        return error_reply(None, INVALID_REQUEST, reason)
    request_id = value.get("id")
    if "method" in value and request_id is None:
        return None
    about_requests = [each for each in findings if each["loc"][0] == "JSONRPCRequest"]
    problems = problems_of(about_requests, below=1)
    reason = "; ".join(f"`{each['path']}`: {each['problem']}" for each in problems)
    answers_us = "method" not in value and ("result" in value or "error" in value)
    certain = _is_id(request_id) and not answers_us
    return error_reply(request_id if certain else None, INVALID_REQUEST, reason)


def _not_json(line: bytes, reason: str) -> JSONRPCError | None:
    """`reason` is the parser's; it is stricter than Python's, which may still tell the id."""
    code = INVALID_PARAMS
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        code = PARSE_ERROR
        reason = f"byte {error.start} of the line (0x{line[error.start]:02x}) is not UTF-8"
        text = line.decode(errors="replace")
    try:
        value = json.loads(text)
        lone = SURROGATE.search(json.dumps(value, ensure_ascii=False))
    except (ValueError, RecursionError):
        return error_reply(_id_at_edges(line), PARSE_ERROR, reason)
    if lone is not None and code == INVALID_PARAMS:  # the parser only tells of an escape
        reason = f"a text contains a lone surrogate U+{ord(lone[0]):04X}: {_HALF}"
    if isinstance(value, dict) and "method" in value:
        request_id = value.get("id")
        if request_id is None:
            return None
        if _is_id(request_id):
            return error_reply(request_id, code, reason)
    return error_reply(None, PARSE_ERROR, reason)


def _id_at_edges(head: bytes, tail: bytes = b"") -> RequestId | None:
    """The id of a request that cannot be parsed, from the scalar members at its two ends."""
    opening = _OPENING.match(head[:EDGE_BYTES])
    closing = _CLOSING.search(tail)
    edges = (opening.group() if opening else b"") + (closing.group() if closing else b"")
    members = dict(_MEMBERS.findall(edges))
    if b"method" not in members or b"id" not in members:
        return None
    try:
        request_id = json.loads(members[b"id"])
    except ValueError:
        return None
    return request_id if _is_id(request_id) else None


def _is_id(value: object) -> TypeGuard[RequestId]:
    if isinstance(value, str):
        return SURROGATE.search(value) is None
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """A value as the log may have it: a text, or what is within a list, may be a secret."""
    if isinstance(value, str):
        return f"a string of {len(value)}"
    return str(shorten(value)) if isinstance(value, (list, dict)) else json.dumps(value)
