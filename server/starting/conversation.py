"""How a client opens a conversation, so that the same opening can be told again.

Promises one key for one question at one point of one conversation, and none where the SDK might
refuse what an easier reader understands. Both who answers early (`prelude`) and who notes the SDK's
answers (`recording`) listen through this, and so cannot disagree. Imports nothing slow.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, NamedTuple

from server.stdio.lines import Line, Oversized

METHODS = frozenset(
    {
        "initialize",
        "ping",
        "prompts/list",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Methods whose results depend on nothing but the server and what was said to it before: no data."""

INITIALIZED = "notifications/initialized"
# A client that pings for hours must not push out of the store how conversations begin.
QUESTIONS_MAX = 8
LINE_BYTES_MAX = 16 * 1024
_MEMBERS = {"jsonrpc", "id", "method", "params"}

RequestId = int | str


class Question(NamedTuple):
    """A request that may be known from an earlier conversation, and the key of its answer."""

    id: RequestId
    key: bytes


class Conversation:
    """What a client has said so far, as a chain of hashes.

    The key of a question covers everything before it but the ids, for answers depend on that:
    `initialize` chooses the version in which `tools/list` is told, and the era that a later line
    must not contradict. It is `over`, for good, at the first line that is neither a question of
    `METHODS` nor `INITIALIZED`.
    """

    def __init__(self) -> None:
        self.over = False
        self._digest = b""
        self._ids: set[RequestId] = set()

    def hear(self, line: Line) -> Question | None:
        """The question in the next line; None for `INITIALIZED`, and once it is over."""
        if self.over:
            return None
        try:
            said = _parsed(line)
            self._digest = _link(self._digest, said)
            return self._question(said)
        except (KeyError, ValueError, RecursionError):
            self.over = True
            return None

    def _question(self, said: dict[str, Any]) -> Question | None:
        if said["method"] == INITIALIZED and "id" not in said:
            return None
        request_id = said["id"]
        if said["method"] not in METHODS or type(request_id) not in {int, str}:
            raise ValueError("no question to be known beforehand")
        # Two answers under one id could not be told apart when the SDK gives its own.
        if request_id in self._ids or len(self._ids) == QUESTIONS_MAX:
            raise ValueError("an id used twice, or the opening has lasted long enough")
        str(request_id).encode()  # a lone surrogate, which the SDK refuses, is a ValueError
        self._ids.add(request_id)
        return Question(request_id, self._digest)


def answer_line(request_id: RequestId, result: bytes) -> bytes:
    """The line that answers `request_id` with `result`, to the byte as `wire.encode` makes it."""
    shown = json.dumps(request_id, ensure_ascii=False).encode()
    return b'{"jsonrpc":"2.0","id":' + shown + b',"result":' + result + b"}\n"


def result_in(request_id: RequestId, line: bytes) -> bytes | None:
    """The result in a line made by `wire.encode`; None for an error."""
    head, tail = answer_line(request_id, b"\n")[:-1].split(b"\n")
    if not line.startswith(head):
        return None
    return line[len(head) : -len(tail) - 1]


def _parsed(line: Line) -> dict[str, Any]:
    if isinstance(line, Oversized) or len(line) > LINE_BYTES_MAX:
        raise ValueError("too long to open a conversation")
    said = json.loads(line.decode())
    if not isinstance(said, dict) or not said.keys() <= _MEMBERS or said["jsonrpc"] != "2.0":
        raise ValueError("not a message as clients send it")
    if not isinstance(said["method"], str):
        raise ValueError("a method that has no name")
    return said


def _link(before: bytes, said: dict[str, Any]) -> bytes:
    """No sorting: members in another order are another request, which costs a miss at most."""
    parts = [said["method"], *([said["params"]] if "params" in said else [])]
    return sha256(before + json.dumps(parts).encode()).digest()
