"""MCP over stdin and stdout: from the bytes of the two pipes to the SDK's server and back.

Promises one answer for every request that arrived, whole and in one piece, also when the client
closes stdin, reads slowly or sends nonsense, and when SIGTERM or SIGINT ends the process: calls in
flight are finished, their answers written, `on_close` called. Nothing else reaches the wire: while
serving, fd 0 is the null device and fd 1 is stderr, so stray prints of handlers and children do no
harm. Messages are left to `wire`, exceptions to `faults`, both protocol eras to the SDK, and what a
`prelude` has read and answered before is taken from there.

The SDK's own stdio transport hops through a worker thread for each read, write and flush; here the
event loop waits for the descriptors itself, which halves the time of a call. POSIX only.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from server.descriptors import Sink, read_chunk
from server.faults import guard
from server.lines import Oversized
from server.prelude import Opening, Prelude, untouched
from server.recording import Recorder
from server.wire import Refused, decode, encode

DRAIN_S = 10.0
TEARDOWN_S = 5.0
# Requests that last as long as the client listens are not work to wait for.
_LASTING = frozenset({"subscriptions/listen"})

logger = logging.getLogger(__name__)


def run_stdio(
    server: Server[Any],
    *,
    on_close: Callable[[], None],
    prelude: Prelude | None = None,
    drain_s: float = DRAIN_S,
    teardown_s: float = TEARDOWN_S,
) -> NoReturn:
    """`serve_stdio` in an event loop of its own, then the end of the process.

    Exit code 0 after EOF, SIGTERM, SIGINT or a closed stdout, 1 after an error (logged). Leaves by
    `os._exit`: the interpreter's own teardown takes 0.1 s and may wait for some library's thread.
    """
    exit_code = 1
    try:
        anyio.run(
            partial(
                serve_stdio,
                server,
                on_close=on_close,
                prelude=prelude,
                drain_s=drain_s,
                teardown_s=teardown_s,
            )
        )
        exit_code = 0
    except BaseException:
        logger.critical("the stdio server failed", exc_info=True)
    finally:
        logging.shutdown()
        os._exit(exit_code)


async def serve_stdio(
    server: Server[Any],
    *,
    on_close: Callable[[], None],
    prelude: Prelude | None = None,
    drain_s: float = DRAIN_S,
    teardown_s: float = TEARDOWN_S,
) -> None:
    """Serve one client on this process's stdin and stdout until either closes or a signal comes.

    Then requests in flight have `drain_s` seconds (a second signal ends the wait), what is still
    running is cancelled, and `on_close` is called once, in the main thread. A call stuck in a
    worker thread cannot be cancelled: `teardown_s` after the wait the process ends with exit
    code 1 and the tracebacks of its threads on stderr, without `on_close`, which might close what
    that thread is using.
    """
    guard(server)
    # A thread in C: it needs neither the GIL nor a logging lock that the stuck call may hold.
    give_up = partial(faulthandler.dump_traceback_later, drain_s + teardown_s, exit=True)
    with prelude.handed_over() if prelude else untouched() as opening:
        pending = _Pending()
        recorder = Recorder(opening.answers, opening.given)
        outbox = _Outbox(opening, pending, recorder, on_broken=lambda: inbox.stop())  # noqa: PLW0108 (inbox comes next)
        inbox = _Inbox(opening, outbox, pending, recorder, drain_s=drain_s, on_stopping=give_up)
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(_stop_on_signal, inbox)
                try:
                    await inbox.take(opening.lines, ended=opening.ended)
                    await server.run(inbox, outbox, server.create_initialization_options())
                finally:
                    on_close()
                    recorder.close()
                tasks.cancel_scope.cancel()
        finally:
            faulthandler.cancel_dump_traceback_later()


class _Pending:
    """The requests handed to the SDK and not yet settled, by id."""

    def __init__(self) -> None:
        self._counts: Counter[RequestId] = Counter()
        self._idle = anyio.Event()
        self._idle.set()

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._counts

    def open(self, request_id: RequestId) -> None:
        if not self._counts:
            self._idle = anyio.Event()
        self._counts[request_id] += 1

    def settle(self, request_id: RequestId | None) -> None:
        """One answer went out; ids that were never opened (lasting, malformed) are ignored."""
        if request_id is None or request_id not in self._counts:
            return
        self._counts[request_id] -= 1
        if not self._counts[request_id]:
            del self._counts[request_id]
        if not self._counts:
            self._idle.set()

    async def wait_idle(self) -> None:
        await self._idle.wait()


class _Stream:
    """The part of the SDK's stream protocols that is the same for reading and writing."""

    async def aclose(self) -> None:
        """The descriptors belong to `descriptors.private_wire`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Outbox(_Stream):
    """The SDK's write stream. Writes never block the event loop and never interleave."""

    def __init__(
        self,
        opening: Opening,
        pending: _Pending,
        recorder: Recorder,
        *,
        on_broken: Callable[[], None],
    ) -> None:
        self._sink = Sink(opening.sink)
        self._unsent = opening.unsent
        self._pending = pending
        self._recorder = recorder
        self._on_broken = on_broken
        self._turn = anyio.Lock(fast_acquire=True)
        self._writing = anyio.CancelScope()
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Returns when the message is with the kernel.

        Raises `ClosedResourceError` when nobody reads any more, which the SDK takes calmly.
        """
        message = item.message
        try:
            data = encode(message)
            if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                data = data if self._recorder.answered(message.id, data) else b""
            await self._write(data)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._pending.settle(message.id)

    async def wait_idle(self) -> None:
        """Until no message is half written."""
        async with self._turn:
            pass

    def abandon(self) -> None:
        """Give up on a client that does not read: a write that waits for it ends unfinished."""
        if self._turn.locked():
            self._closed = True
            self._writing.cancel()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            # A client may cancel the very request whose answer is half written.
            with anyio.CancelScope(shield=True) as self._writing:
                # The rest of an answer that the prelude began: the SDK's own, which is not sent,
                # comes by here, so it is not left waiting for another message.
                data, self._unsent = self._unsent + data, b""
                rest = self._push(memoryview(data))
                while rest:
                    await anyio.wait_writable(self._sink.fd)
                    rest = self._push(rest)

    def _push(self, data: memoryview) -> memoryview:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            return self._sink.push(data)
        except OSError as error:
            self._closed = True
            self._on_broken()
            raise anyio.ClosedResourceError from error


class _Inbox(_Stream):
    """The SDK's read stream: ends at EOF or `stop`, once everything handed out is settled."""

    def __init__(
        self,
        opening: Opening,
        outbox: _Outbox,
        pending: _Pending,
        recorder: Recorder,
        *,
        drain_s: float,
        on_stopping: Callable[[], None],
    ) -> None:
        self._fd = opening.source
        self._cutter = opening.cutter
        self._outbox = outbox
        self._pending = pending
        self._recorder = recorder
        self._drain_s = drain_s
        self._on_stopping = on_stopping
        self._messages: deque[JSONRPCMessage] = deque()
        self._waiting = anyio.CancelScope()
        self._stopped = False

    def stop(self) -> None:
        """Read no more; requests in flight have their time."""
        if not self._stopped:
            self._stopped = True
            self._on_stopping()
            self._waiting.cancel()

    def hurry(self) -> None:
        """Read no more and wait no more for requests in flight."""
        self.stop()
        self._drain_s = 0
        self._waiting.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def receive(self) -> SessionMessage:
        """The next message; `EndOfStream` after the last one."""
        while not self._messages:
            if self._stopped:
                await self._drain()
                raise anyio.EndOfStream
            await self._fill()
        return self._opened(self._messages.popleft())

    def _opened(self, message: JSONRPCMessage) -> SessionMessage:
        if not isinstance(message, JSONRPCRequest):
            return SessionMessage(message)
        if message.id in self._pending:
            self._recorder.doubt(message.id)
        if message.method in _LASTING:
            return SessionMessage(message)
        self._pending.open(message.id)

        async def unanswered() -> None:
            self._recorder.unanswered(message.id)
            self._pending.settle(message.id)

        # A request that the client cancelled is never answered; the SDK tells us here.
        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=unanswered))

    async def _fill(self) -> None:
        with anyio.CancelScope() as self._waiting:
            # Files have no readiness (EPERM from epoll): reading them never waits for anyone.
            with suppress(PermissionError):
                await anyio.wait_readable(self._fd)
        if self._stopped:
            return
        chunk = read_chunk(self._fd)
        if chunk is not None:
            lines = self._cutter.feed(chunk) if chunk else self._cutter.finish()
            await self.take(lines, ended=not chunk)

    async def take(self, lines: Iterable[bytearray | Oversized], *, ended: bool) -> None:
        """What was read: the messages in it are received next."""
        for line in lines:
            self._recorder.heard(line)
            try:
                self._messages.append(decode(line))
            except Refused as refused:
                await self._refuse(refused)
        if ended:
            self.stop()

    async def _refuse(self, refused: Refused) -> None:
        logger.warning("refused a line of input: %s", refused)
        if refused.reply is not None:
            with suppress(anyio.ClosedResourceError):
                await self._outbox.send(SessionMessage(refused.reply))

    async def _drain(self) -> None:
        with anyio.move_on_after(self._drain_s) as self._waiting:
            await self._pending.wait_idle()
            await self._outbox.wait_idle()  # a notification belongs to no request
        if self._waiting.cancelled_caught:
            logger.warning("something was still in flight at the end; it is cancelled")
            self._outbox.abandon()


async def _stop_on_signal(inbox: _Inbox, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            logger.info("stopping on %s", number.name)
            inbox.stop()
            break
        async for number in signals:
            logger.info("hurrying on %s", number.name)
            inbox.hurry()
