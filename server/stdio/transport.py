"""MCP over stdin and stdout: from the bytes of the two pipes to the SDK's server and back.

Promises one answer for every request that arrived, whole and in one piece, also when the client
closes stdin, reads slowly or sends nonsense, and when SIGTERM or SIGINT ends the process: calls in
flight are finished, their answers written, `on_close` called. Nothing else reaches the wire: while
serving, fd 0 is the null device and fd 1 is stderr, so stray prints of handlers and children do no
harm. Messages are left to `wire`, writing to `outbox`, exceptions to `faults`, both protocol eras to the
SDK but for the plain calls that `direct` takes, and what the `prelude` has read and answered before is
taken from there.

The SDK's own stdio transport hops through a worker thread for each read, write and flush; here the
event loop waits for the descriptors itself, which halves the time of a call, or one thread does all (`solo`). POSIX
only.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Self, TypeGuard

import anyio
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import INVALID_REQUEST, JSONRPCError, JSONRPCMessage, JSONRPCRequest

from server.starting.prelude import Opening, Prelude
from server.starting.recording import Recorder
from server.stdio.descriptors import is_readable, read_chunk
from server.stdio.direct import Direct
from server.stdio.faults import guard
from server.stdio.leaving import DRAIN_S, TEARDOWN_S, give_up_after, leave
from server.stdio.lines import Line
from server.stdio.outbox import Outbox, Stream
from server.stdio.pending import Pending
from server.stdio.solo import Solo
from server.stdio.wire import Refused, decode, error_reply

# Requests that last as long as the client listens are not work to wait for.
_LASTING = frozenset({"subscriptions/listen"})
_PROBE = "server/discover"
_GIVEN_UP = f"{_PROBE} was given up for initialize"

logger = logging.getLogger(__name__)


def run_stdio(
    server: Server[Any],
    direct: Direct,
    *,
    on_close: Callable[[], None],
    prelude: Prelude,
    drain_s: float = DRAIN_S,
    teardown_s: float = TEARDOWN_S,
) -> NoReturn:
    """Serve one client on this process's stdin and stdout until either closes or a signal comes; then the process ends.

    Then requests in flight have `drain_s` seconds (a second signal ends the wait), what is still
    running is cancelled, and `on_close` is called once, in the main thread. A call stuck in a
    worker thread cannot be cancelled: `teardown_s` after the wait the process ends with exit
    code 1 and the tracebacks of its threads on stderr, without `on_close`, which might close what
    that thread is using.
    Exit code 0 after EOF, SIGTERM, SIGINT or a closed stdout, 1 after an error (logged).
    """
    exit_code = 1
    try:
        anyio.run(_serve, server, direct, on_close, prelude, drain_s, teardown_s)
        exit_code = 0
    except BaseException:
        logger.critical("the stdio server failed", exc_info=True)
    finally:
        leave(exit_code)


async def _serve(
    server: Server[Any],
    direct: Direct,
    on_close: Callable[[], None],
    prelude: Prelude,
    drain_s: float,
    teardown_s: float,
) -> None:
    guard(server)
    give_up = partial(give_up_after, drain_s + teardown_s)
    with prelude.handed_over() as opening:
        pending = Pending()
        recorder = Recorder(opening.answers, opening.given)
        try:
            async with anyio.create_task_group() as tasks:
                outbox = Outbox(opening, pending, recorder, direct, tasks)
                inbox = _Inbox(
                    opening, outbox, pending, recorder, direct,
                    drain_s=drain_s, on_stopping=give_up,
                )  # fmt: skip
                outbox.on_broken = inbox.stop
                direct.connect(server, pending, outbox.send_now, outbox.send_late)
                await tasks.start(_stop_on_signal, inbox)
                try:
                    inbox.take(opening.lines, ended=opening.ended)
                    await server.run(inbox, outbox, server.create_initialization_options())
                finally:
                    with anyio.CancelScope(shield=True):
                        await inbox.wait_home()
                        await direct.wait_idle()
                    inbox.close()
                    on_close()
                    recorder.close()
                tasks.cancel_scope.cancel()
        finally:
            faulthandler.cancel_dump_traceback_later()


class _Inbox(Stream):
    """The SDK's read stream: ends at EOF or `stop`, once everything handed out is settled."""

    def __init__(
        self,
        opening: Opening,
        outbox: Outbox,
        pending: Pending,
        recorder: Recorder,
        direct: Direct,
        *,
        drain_s: float,
        on_stopping: Callable[[], None],
    ) -> None:
        self._fd = opening.source
        self._cutter = opening.cutter
        self._outbox = outbox
        self._pending = pending
        self._recorder = recorder
        self._direct = direct
        self._drain_s = drain_s
        self._on_stopping = on_stopping
        self._messages: deque[JSONRPCMessage | Refused | Exception] = deque()
        self._came = anyio.Event()
        self._loop = asyncio.get_running_loop()
        self._waiting = anyio.CancelScope()
        self._stopped = False
        self._begun = False
        """Whether the SDK has a request."""
        self._reading = False
        """Whether the event loop calls `_read`."""
        self._solo = Solo.where_possible(self._fd, self._cutter, direct, self._returned)
        direct.on_quiet = self._lend

    def stop(self) -> None:
        """Read no more; requests in flight have their time."""
        if not self._stopped:
            self._stopped = True
            self._on_stopping()
            if self._solo is not None:
                self._solo.recall()
            self._pause()

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

    async def aclose(self) -> None:
        self._pause()

    async def receive(self) -> SessionMessage:
        """The next message; `EndOfStream` after the last one."""
        while True:
            while not self._messages and not self._stopped:
                await self._fill()
            if not self._messages:
                await self._drain()
                if not self._messages:
                    raise anyio.EndOfStream
            message = self._messages.popleft()
            if isinstance(message, Refused):
                logger.warning("refused a line of input: %s", message)
                await self._reply(message.reply)
            elif isinstance(message, Exception):
                raise message
            elif self._is_given_up(message):
                if not self._recorder.unanswered(message.id):
                    await self._reply(error_reply(message.id, INVALID_REQUEST, _GIVEN_UP))
            else:
                return self._opened(message)

    def _is_given_up(self, message: JSONRPCMessage) -> TypeGuard[JSONRPCRequest]:
        """Whether the client, asking for the era without a handshake, waited no longer and now shakes hands.

        Some wait a second, and a first start may take more. To the SDK its question would choose the era for good.
        """
        if self._begun or not isinstance(message, JSONRPCRequest) or message.method != _PROBE:
            return False
        if not self._stopped and is_readable(self._fd):
            self._read()
        following = (each.method for each in self._messages if isinstance(each, JSONRPCRequest))
        return next(following, None) == "initialize"

    def _opened(self, message: JSONRPCMessage) -> SessionMessage:
        if not isinstance(message, JSONRPCRequest):
            return SessionMessage(message)
        self._begun = True
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
        """Until there is a message for the SDK, or none will come. Calls on the short way go theirs meanwhile."""
        self._came = anyio.Event()
        try:
            self._listen()
        except PermissionError:  # files have no readiness: reading them never waits for anyone
            self._read()
        else:
            await self._came.wait()

    def _listen(self) -> None:
        self._loop.add_reader(self._fd, self._read)
        self._reading = True

    def _lend(self) -> None:
        """No call is at work any more, and the next line is likely one: it may be done by one thread."""
        if self._reading and self._solo is not None:
            self._loop.remove_reader(self._fd)
            self._reading = False
            if not self._solo.lend():
                self._listen()

    def _returned(self, lines: Iterable[Line], ended: bool) -> None:
        """The reading was lent, and is here again."""
        self.take(lines, ended=ended)
        if self._messages:
            self._pause()
        elif not self._stopped:
            self._listen()

    def _pause(self) -> None:
        self._reading = False
        with suppress(ValueError, OSError):
            self._loop.remove_reader(self._fd)
        self._came.set()

    def _read(self) -> None:
        try:
            chunk = read_chunk(self._fd)
            if chunk is not None:
                lines = self._cutter.feed(chunk) if chunk else self._cutter.finish()
                self.take(lines, ended=not chunk)
        except Exception as error:  # the event loop would log it and read on
            self._messages.append(error)
        if self._messages:
            self._pause()

    def take(self, lines: Iterable[Line], *, ended: bool) -> None:
        """What was read: the messages in it are received next."""
        for line in lines:
            self._recorder.heard(line)
            if not self._direct.take(line):
                self._messages.append(self._heard(line))
        if ended:
            self.stop()

    def _heard(self, line: Line) -> JSONRPCMessage | Refused:
        try:
            message = decode(line)
        except Refused as refused:
            return refused
        self._direct.heard(message)
        return message

    async def _reply(self, reply: JSONRPCError | None) -> None:
        if reply is not None:
            with suppress(anyio.ClosedResourceError):
                await self._outbox.send(SessionMessage(reply))

    async def wait_home(self) -> None:
        """Until no thread reads, nor runs a call that it has read; none will again."""
        if self._solo is not None:
            self._solo.recall()
            await self._solo.wait_home()

    def close(self) -> None:
        """After `wait_home`."""
        if self._solo is not None:
            self._solo.close()

    async def _drain(self) -> None:
        with anyio.move_on_after(self._drain_s) as self._waiting:
            await self.wait_home()
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
