"""A connection over which requests go one by one: bytes out, bytes back, nothing else on the clock.

Requests are made before and answers read after what is timed, so the time is that of the socket and the server.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any, Self

from bench import wire

HOST = "127.0.0.1"
PROTOCOL = "2026-07-28"
ANSWER_SECONDS_MAX = 60.0
RECEIVED_BYTES = 1 << 16

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"\r\ncontent-length: "
_META = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

NOTHING = f"GET /healthz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
"""A request that does nothing."""


def call(tool: str, arguments: Mapping[str, Any]) -> bytes:
    """The request that calls a tool."""
    params = {"name": tool, "arguments": arguments, "_meta": _META}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    head = (
        "POST /mcp HTTP/1.1",
        f"Host: {HOST}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {PROTOCOL}",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {tool}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(head).encode() + _HEAD_END + body


class Connection:
    """One that is kept. Raises ConnectionError where the server ends it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """Sends a request and waits for the last byte of its answer."""
        self._socket.sendall(request)
        answer = b""
        while (whole := _length(answer)) is None or len(answer) < whole:
            received = self._socket.recv(RECEIVED_BYTES)
            if not received:
                raise ConnectionError(f"the server ended the connection after {answer[:500]!r}")
            answer += received
        return answer


def body_of(answer: bytes) -> bytes:
    """What an answer says. Raises ValueError for any but a success."""
    head, _, body = answer.partition(_HEAD_END)
    if not head.startswith(b"HTTP/1.1 200 "):
        raise ValueError(f"the server answered {answer[:500]!r}")
    return body


def result_of(answer: bytes) -> dict[str, Any]:
    """What a call gave. Raises ValueError for an error, which no benchmark is to measure."""
    return wire.result_of(body_of(answer))


def _length(answer: bytes) -> int | None:
    """Of the whole answer; None as long as its head has not come. Raises ValueError where no length is told."""
    end = answer.find(_HEAD_END)
    if end < 0:
        return None
    at = answer.lower().find(_LENGTH, 0, end)
    if at < 0:
        raise ValueError(f"an answer without a length: {answer[:500]!r}")
    at += len(_LENGTH)
    return int(answer[at : answer.find(b"\r\n", at)]) + end + len(_HEAD_END)
