"""Tool calls on stdio on the short way: from the line to the bytes of its answer, past the SDK's models.

What the SDK does with a call (four passes of pydantic, a task, a thread lent for it) takes longer than most
tools. So a line that is plainly a call of a tool is decoded and answered here, by threads that are kept.
Promises the very bytes that the SDK's way gives, for errors too. What is not so plain, `take` leaves to the
SDK: whatever its models might refuse or understand otherwise, every other method, each call until the SDK
itself has answered an `initialize` (so all of the era without a handshake), and everything
where somebody traces. Running a tool is left to `dispatch`, writing to `transport`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pydantic_core
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    RequestId,
)
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from memlog.project import Origin
from server.dispatch import COMMAND_ID_META, UNFORESEEN, Answer, Answered, Called, once, perform
from server.faults import FaultBoundary, internal_error
from server.lines import Oversized
from server.pending import Pending
from server.registry import Call, Tool
from server.resources import JSON
from server.session import Session
from server.wire import encode

THREADS_MAX = 40
"""As many calls at once as the SDK's way has."""

LEVELS_MAX = 200
"""The SDK refuses JSON of more levels. As many brackets as levels are the least it takes."""

_PLAIN = re.compile(rb'0|-?[1-9][0-9]{0,14}|"[ !#-\[\]-~]{1,200}"')
"""An id that is written in one way only, so that it can be repeated as it came."""

_LARGE_FLOAT = re.compile(rb"e(?<=[0-9]e)[0-9]{2,3}[],}]")
"""1e16, which pydantic writes 1e+16."""

_encode_json = msgspec.json.Encoder().encode


class _Meta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    progress_token: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"0"), name="progressToken")
    """Nothing here reports progress."""
    command_id: Annotated[str, msgspec.Meta(min_length=1, max_length=200)] | None = msgspec.field(
        default=None, name=COMMAND_ID_META
    )


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any] | None = None
    meta: _Meta = msgspec.field(default=_Meta(), name="_meta")


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a tool as almost every client sends it."""

    jsonrpc: Literal["2.0"]
    id: msgspec.Raw
    method: Literal["tools/call"]
    params: _Params


_decode = msgspec.json.Decoder(Request).decode


class Direct:
    """The tools of one session. But for `_work`, everything runs in the event loop's thread."""

    def __init__(
        self,
        session: Session,
        tools: Mapping[str, Tool],
        *,
        on_first_answer: Answered,
        on_called: Called = lambda tool, outcome, seconds: None,
    ) -> None:
        self._session = session
        self._tools = tools
        self._answered = once(on_first_answer)
        self._on_called = on_called
        self._threads = ThreadPoolExecutor(THREADS_MAX, "call")
        self._working = Pending()
        self._cancelled: set[RequestId] = set()
        self._opened = False

    def connect(
        self,
        pending: Pending,
        send_now: Callable[[bytes], bytes | None],
        send_late: Callable[[bytes, Callable[[], None]], None],
    ) -> None:
        """Where the requests of the wire are kept, and where answers go."""
        self._pending, self._send_now, self._send_late = pending, send_now, send_late
        self._loop = asyncio.get_running_loop()

    def sent(self, message: JSONRPCMessage) -> None:
        """The SDK's next message: once it has accepted a handshake, calls may come here."""
        if isinstance(message, JSONRPCResponse) and "protocolVersion" in message.result:
            self._opened = True

    def take(self, line: bytearray | Oversized) -> bool:
        """Whether `line` is a call that is answered here. The next line need not wait for it."""
        if not self._opened or isinstance(line, Oversized):
            return False
        call = plain_call(line)
        if call is None:
            return False
        request_id, request = call
        tool = self._tools.get(request.params.name)
        if tool is None or request_id in self._pending:
            return False
        self._pending.open(request_id)
        self._working.open(request_id)
        self._threads.submit(self._work, request_id, request, tool)
        return True

    def heard(self, message: JSONRPCMessage) -> None:
        """What the SDK is told. Who cancels a call wants no answer; it is run to its end, as by the SDK."""
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            request_id = cancelled_request_id_from_params(message.params)
            if request_id is not None and coerce_request_id(request_id) in self._working:
                self._cancelled.add(coerce_request_id(request_id))

    async def wait_idle(self) -> None:
        """Until no thread is at work."""
        await self._working.wait_idle()

    def _work(self, request_id: RequestId, request: Request, tool: Tool) -> None:
        outcome, began, rest = UNFORESEEN, time.perf_counter(), None
        if request_id not in self._cancelled:
            outcome, answer = self._answer(request_id, request, tool)
            if request_id not in self._cancelled:
                rest = self._send_now(answer)
        tell = partial(self._tell, tool.name, outcome, time.perf_counter() - began)
        self._loop.call_soon_threadsafe(self._finish, request_id, rest, tell)

    def _answer(self, request_id: RequestId, request: Request, tool: Tool) -> tuple[str, bytes]:
        origin = Origin(request.params.meta.command_id, actor=self._session.grant.name)
        try:
            answer = perform(tool, Call(self._session, origin), request.params.arguments)
            return answer.outcome, answer_line(request.id, answer)
        except MCPError as error:
            told = error.error
        except Exception as error:
            told = internal_error(error)
        return UNFORESEEN, encode(JSONRPCError(jsonrpc="2.0", id=request_id, error=told))

    def _finish(self, request_id: RequestId, rest: bytes | None, tell: Callable[[], None]) -> None:
        self._working.settle(request_id)
        self._cancelled.discard(request_id)
        settle = partial(self._pending.settle, request_id)
        try:
            tell()
        finally:
            if rest is None:
                settle()
            else:
                self._send_late(rest, settle)

    def _tell(self, tool: str, outcome: str, seconds: float) -> None:
        self._on_called(tool, outcome, seconds)
        if outcome != UNFORESEEN:
            self._answered()


def plain_call(line: bytearray) -> tuple[RequestId, Request] | None:
    """The call in `line` and its id; None for what only the SDK should read."""
    if line.count(b"[") + line.count(b"{") > LEVELS_MAX:
        return None
    try:
        request = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not (_PLAIN.fullmatch(request.id) and _PLAIN.fullmatch(request.params.meta.progress_token)):
        return None
    request_id: RequestId = msgspec.json.decode(request.id)
    # "7" and 7 are one to who cancels. Such an id is the SDK's, which knows all that are open.
    return None if coerce_request_id(request_id) != request_id else (request_id, request)


def answer_line(request_id: bytes, answer: Answer) -> bytes:
    """The line that answers the call with this id, as its client wrote it."""
    structured = _encode_json(answer.structured)
    said = structured if answer.said is answer.structured else _encode_json(answer.said)
    texts = [said.decode(), *answer.more]
    content = [b'{"text":%b,"type":"text"}' % _encode_json(text) for text in texts]
    content += [
        b'{"mimeType":%b,"name":%b,"type":"resource_link","uri":%b}'
        % (_encode_json(JSON), _encode_json(link.name), _encode_json(link.uri))
        for link in answer.links
    ]
    if _LARGE_FLOAT.search(structured):
        plain = msgspec.to_builtins(answer.structured)
        structured = pydantic_core.to_json(plain, inf_nan_mode="null")
    return (
        b'{"jsonrpc":"2.0","id":%b,"result":{"content":[%b],"isError":%b,"structuredContent":%b}}\n'
    ) % (request_id, b",".join(content), b"true" if answer.failed else b"false", structured)


def is_untraced(server: Server[Any]) -> bool:
    """Whether `server` does nothing about a call that is not done here too."""
    known = (FaultBoundary, OpenTelemetryMiddleware)
    return isinstance(get_tracer_provider(), ProxyTracerProvider) and all(
        type(each) in known for each in server.middleware
    )
