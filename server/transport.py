"""MCP over stdin and stdout: from the bytes of the two pipes to the SDK's server and back.

Promises one answer for every request that arrived, whole and in one piece, also when the client
closes stdin, reads slowly or sends nonsense, and when SIGTERM or SIGINT ends the process: calls in
flight are finished, their answers written, `on_close` called. Nothing else reaches the wire: while
serving, fd 0 is the null device and fd 1 is stderr, so stray prints of handlers and children do no
harm. Messages are left to `wire`, exceptions to `faults`, both protocol eras to the SDK.

The SDK's own stdio transport hops through a worker thread for each read, write and flush; here the
event loop waits for the descriptors itself, which halves the time of a call. POSIX only.
"""

from __future__ import annotations

import faulthandler
import fcntl
import logging
import os
import select
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

import anyio
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, JSONRPCResponse, RequestId

from server.faults import guard
from server.wire import LineCutter, Refused, decode, encode

DRAIN_S = 10.0
TEARDOWN_S = 5.0
_READ_BYTES = 64 * 1024
# Requests that last as long as the client listens are not work to wait for.
_LASTING = frozenset({"subscriptions/listen"})

logger = logging.getLogger(__name__)


def run_stdio(
    server: Server[Any],
    *,
    on_close: Callable[[], None],
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
            partial(serve_stdio, server, on_close=on_close, drain_s=drain_s, teardown_s=teardown_s)
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
    with _wire() as (source, sink):
        pending = _Pending()
        outbox = _Outbox(sink, pending, on_broken=lambda: inbox.stop())  # noqa: PLW0108 (inbox comes next)
        inbox = _Inbox(source, outbox, pending, drain_s=drain_s, on_stopping=give_up)
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(_stop_on_signal, inbox)
                try:
                    await server.run(inbox, outbox, server.create_initialization_options())
                finally:
                    on_close()
                tasks.cancel_scope.cancel()
        finally:
            faulthandler.cancel_dump_traceback_later()


class _Pending:
    """The requests handed to the SDK and not yet settled, by id."""

    def __init__(self) -> None:
        self._counts: Counter[RequestId] = Counter()
        self._idle = anyio.Event()
        self._idle.set()

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
        """The descriptors belong to `_wire`."""

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

    def __init__(self, fd: int, pending: _Pending, *, on_broken: Callable[[], None]) -> None:
        self._fd = fd
        self._pending = pending
        self._on_broken = on_broken
        self._turn = anyio.Lock(fast_acquire=True)
        self._writing = anyio.CancelScope()
        self._closed = False
        self._ready = select.poll()
        self._ready.register(fd, select.POLLOUT)

    async def send(self, item: SessionMessage, /) -> None:
        """Returns when the message is with the kernel.

        Raises `ClosedResourceError` when nobody reads any more, which the SDK takes calmly.
        """
        try:
            await self._write(encode(item.message))
        finally:
            if isinstance(item.message, JSONRPCResponse | JSONRPCError):
                self._pending.settle(item.message.id)

    def abandon(self) -> None:
        """Give up on a client that does not read: a write that waits for it ends unfinished."""
        if self._turn.locked():
            self._closed = True
            self._writing.cancel()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            # A client may cancel the very request whose answer is half written.
            with anyio.CancelScope(shield=True) as self._writing:
                rest = self._push(memoryview(data))
                while rest:
                    await anyio.wait_writable(self._fd)
                    rest = self._push(rest)

    def _push(self, data: memoryview) -> memoryview:
        """Write what fits, and return the rest.

        POSIX lets PIPE_BUF bytes into a pipe that polls as writable without blocking. The way not
        taken, O_NONBLOCK, belongs to the open file description and so to everyone who shares it:
        the shell's terminal, or stderr under `2>&1`.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            while data and self._ready.poll(0):
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
        except BlockingIOError:  # non-blocking by someone else's doing, and shared: it filled up
            return data
        except OSError as error:
            self._closed = True
            self._on_broken()
            raise anyio.ClosedResourceError from error
        return data


class _Inbox(_Stream):
    """The SDK's read stream: ends at EOF or `stop`, once everything handed out is settled."""

    def __init__(
        self,
        fd: int,
        outbox: _Outbox,
        pending: _Pending,
        *,
        drain_s: float,
        on_stopping: Callable[[], None],
    ) -> None:
        self._fd = fd
        self._outbox = outbox
        self._pending = pending
        self._drain_s = drain_s
        self._on_stopping = on_stopping
        self._cutter = LineCutter()
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
        if not isinstance(message, JSONRPCRequest) or message.method in _LASTING:
            return SessionMessage(message)
        self._pending.open(message.id)

        async def unanswered() -> None:
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
        try:
            chunk = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:  # the same for reading: another process took what was there
            return
        except OSError:  # a terminal or socket that is gone is an end like any other
            chunk = b""
        for line in self._cutter.feed(chunk) if chunk else self._cutter.finish():
            try:
                self._messages.append(decode(line))
            except Refused as refused:
                await self._refuse(refused)
        if not chunk:
            self.stop()

    async def _refuse(self, refused: Refused) -> None:
        logger.warning("refused a line of input: %s", refused)
        if refused.reply is not None:
            with suppress(anyio.ClosedResourceError):
                await self._outbox.send(SessionMessage(refused.reply))

    async def _drain(self) -> None:
        with anyio.move_on_after(self._drain_s) as self._waiting:
            await self._pending.wait_idle()
        if self._waiting.cancelled_caught:
            logger.warning("requests were still in flight at the end; they are cancelled")
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


@contextmanager
def _wire() -> Iterator[tuple[int, int]]:
    """Private descriptors of stdin and stdout, with fd 0 and 1 diverted meanwhile."""
    # From 3 upwards: were stderr closed, a plain dup would make the wire the place for logs.
    source, sink = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        try:
            os.dup2(2, 1)
        except OSError:
            os.dup2(null, 1)
        with redirect_stdout(sys.stderr):
            yield source, sink
    finally:
        with suppress(AttributeError, OSError, ValueError):  # there may be no usable sys.stdout
            sys.stdout.flush()
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for fd in (source, sink, null):
            os.close(fd)
