"""Tool calls on stdio on the short way: from the line to the bytes of its answer, past the SDK.

A line that is plainly a call of a tool (`calls`) is answered here. `take` leaves to the SDK, besides, every other
method and each call until the SDK itself has answered an `initialize` (so all of the era without a handshake).
Writing is left to `transport`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCResponse, RequestId

from server.calls import THREADS_MAX, Calls, HandshakeForm, PlainCall, plain_call
from server.dispatch import UNFORESEEN, Answered, Called, once
from server.lines import Oversized
from server.pending import Pending
from server.registry import Tool
from server.session import Session

_FORM = HandshakeForm()


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
        self._calls = Calls(session, tools)
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
        if call is None or call.tool not in self._calls or call.id in self._pending:
            return False
        self._pending.open(call.id)
        self._working.open(call.id)
        self._threads.submit(self._work, call)
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

    def _work(self, call: PlainCall) -> None:
        outcome, began, rest = UNFORESEEN, time.perf_counter(), None
        if call.id not in self._cancelled:
            told = self._calls.answer(call, _FORM)
            outcome = told.outcome
            if call.id not in self._cancelled:
                rest = self._send_now(told.message + b"\n")
        tell = partial(self._tell, call.tool, outcome, time.perf_counter() - began)
        self._loop.call_soon_threadsafe(self._finish, call.id, rest, tell)

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
