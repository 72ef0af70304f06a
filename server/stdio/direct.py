"""Tool calls on stdio on the short way: from the line to the bytes of its answer, past the SDK.

A line that is plainly a call of a tool (`calls`) is answered here. `take` leaves to the SDK, besides, every other
method and each call until the SDK itself has answered an `initialize` (so all of the era without a handshake), and
everything where somebody traces.
Writing is left to `outbox`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from mcp.server.lowlevel import Server
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCResponse, RequestId

from server.calls import THREADS_MAX, Calls, HandshakeForm, PlainCall, is_untraced, plain_call
from server.dispatch import Answered
from server.performing import UNFORESEEN
from server.registry import Tool
from server.session import Session
from server.stdio.lines import Line, Oversized
from server.stdio.pending import Pending
from server.threads import Crew, NoThread


class Ran(NamedTuple):
    """A call that was run: its answer, empty where nobody wanted it any more, and whether the tool gave it."""

    id: RequestId
    message: bytes
    foreseen: bool


class Direct:
    """The tools of one session. What runs in another thread says so; everything else, in the event loop's.

    Calls that write, or switch to another project, are run one after another, as they came: a model may ask for several
    at once, of which one needs another. Those that read wait for nobody, so they may miss what was not answered when
    they came.
    """

    def __init__(
        self, session: Session, tools: Mapping[str, Tool], *, on_first_answer: Answered
    ) -> None:
        self._calls = Calls(session, tools)
        self._on_first_answer = on_first_answer
        self._readers = Crew(THREADS_MAX, "call")
        self._writer = Crew(1, "write")
        self._turn = threading.Lock()
        self._working = Pending()
        self._cancelled: set[RequestId] = set()
        self._opened = False
        self._form = HandshakeForm()
        self._has_answered = False
        self.on_quiet: Callable[[], None] = lambda: None
        """Called when the last call at work is finished."""

    def connect(
        self,
        server: Server[Any],
        pending: Pending,
        send_now: Callable[[bytes], bytes | None],
        send_late: Callable[[bytes, Callable[[], None]], None],
    ) -> None:
        """The SDK's server on the same wire, where the requests are kept, and where answers go."""
        self._untraced = is_untraced(server)
        self._pending, self._send_now, self._send_late = pending, send_now, send_late
        self._loop = asyncio.get_running_loop()

    def sent(self, message: JSONRPCMessage) -> None:
        """The SDK's next message: once it has accepted a handshake, calls may come here, in the form agreed on."""
        if isinstance(message, JSONRPCResponse) and "protocolVersion" in message.result:
            self._form = HandshakeForm(message.result["protocolVersion"])
            self._opened = self._untraced

    def take(self, line: Line) -> bool:
        """Whether `line` is a call that is answered here. The next line need not wait for it."""
        call = self.only([line])
        if call is None:
            return False
        self.adopt(call.id)
        crew = self._writer if self._calls.in_order(call.tool) else self._readers
        try:
            crew.submit(self._work, call)
        except NoThread:  # there is one client, whom it keeps waiting
            self._work(call)
        return True

    def only(self, lines: Sequence[Line]) -> PlainCall | None:
        """The call that is all that was read, if it may come here; from any thread, while none of the calls that
        came here is at work."""
        if not self._opened or len(lines) != 1 or isinstance(lines[0], Oversized):
            return None
        call = plain_call(lines[0])
        if call is None or call.tool not in self._calls or call.id in self._pending:
            return None
        return call

    def adopt(self, request_id: RequestId) -> None:
        """A call is at work, in whatever thread, until it is `finish`ed."""
        self._pending.open(request_id)
        self._working.open(request_id)

    def heard(self, message: JSONRPCMessage) -> None:
        """What the SDK is told. Who cancels a call wants no answer; it is run to its end, as by the SDK."""
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            request_id = cancelled_request_id_from_params(message.params)
            if request_id is not None and coerce_request_id(request_id) in self._working:
                self._cancelled.add(coerce_request_id(request_id))

    async def wait_idle(self) -> None:
        """Until no thread is at work."""
        await self._working.wait_idle()

    def turn(self, call: PlainCall) -> AbstractContextManager[object]:
        """What a call is run in, in any thread: no other that has an order is."""
        return self._turn if self._calls.in_order(call.tool) else nullcontext()

    def _work(self, call: PlainCall) -> None:
        with self.turn(call):
            ran = self.run(call)
        self._loop.call_soon_threadsafe(self.finish, ran, self.send(ran))

    def run(self, call: PlainCall) -> Ran:
        """Runs a call to its end, in any thread."""
        if call.id in self._cancelled:
            return Ran(call.id, b"", False)
        told = self._calls.answer(call, self._form)
        return Ran(call.id, told.message + b"\n", told.outcome != UNFORESEEN)

    def send(self, ran: Ran) -> bytes | None:
        """Answers a call that was run, in any thread: what is left to send, if anything is."""
        wanted = ran.message and ran.id not in self._cancelled
        return self._send_now(ran.message) if wanted else None

    def tell(self, ran: Ran) -> None:
        """In any thread, after it was answered."""
        if ran.foreseen and not self._has_answered:
            self._has_answered = True
            self._loop.call_soon_threadsafe(self._on_first_answer)

    def finish(self, ran: Ran, rest: bytes | None) -> None:
        """A call that was at work is answered but for this rest."""
        self._working.settle(ran.id)
        self._cancelled.discard(ran.id)
        self.tell(ran)
        settle = partial(self._pending.settle, ran.id)
        if rest is None:
            settle()
        else:
            self._send_late(rest, settle)
        if not self._working:
            self.on_quiet()
