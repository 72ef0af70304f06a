"""What the server says, on the way to stdout: whole messages, one after the other, never blocking the event loop.

Two kinds of writers come together here: the SDK, whose tasks wait for their turn, and the threads of `direct`,
which write at once where nobody waits and leave the rest to the event loop. When to stop is left to `transport`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

from server.starting.prelude import Opening
from server.starting.recording import Recorder
from server.stdio.descriptors import Sink
from server.stdio.direct import Direct
from server.stdio.pending import Pending
from server.stdio.wire import encode


class Stream:
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


class Outbox(Stream):
    """The SDK's write stream. Writes never block the event loop and never interleave."""

    def __init__(
        self,
        opening: Opening,
        pending: Pending,
        recorder: Recorder,
        direct: Direct,
        tasks: TaskGroup,
    ) -> None:
        self.on_broken: Callable[[], None] = lambda: None
        self._direct = direct
        self._tasks = tasks
        self._sink = Sink(opening.sink)
        self._unsent = opening.unsent
        self._pending = pending
        self._recorder = recorder
        self._pushing = threading.Lock()
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
            self._direct.sent(message)
            await self._write(data)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._pending.settle(message.id)

    def send_now(self, line: bytes) -> bytes | None:
        """Sends `line` from any thread if nobody waits; returns what there is to `send_late` from the event loop."""
        with self._pushing:
            if self._turn.locked() or self._unsent or self._closed:
                return line
            try:
                self._unsent = bytes(self._sink.push(memoryview(line)))
            except OSError:
                return line  # the event loop meets it again, and knows what to do
            return b"" if self._unsent else None

    def send_late(self, line: bytes, settle: Callable[[], None]) -> None:
        """Sends the rest of what was sent, and `line`, when the client takes it; then calls `settle`."""
        self._tasks.start_soon(self._send_late, line, settle)

    async def _send_late(self, line: bytes, settle: Callable[[], None]) -> None:
        try:
            with suppress(anyio.ClosedResourceError):
                await self._write(line)
        finally:
            settle()

    async def wait_idle(self) -> None:
        """Until no message is half written."""
        async with self._turn:
            pass

    def abandon(self) -> None:
        """Give up on a client that does not read: a write that waits for it ends unfinished."""
        if self._turn.locked() or self._unsent:
            self._closed = True
            self._writing.cancel()

    async def _write(self, data: bytes) -> None:
        async with self._turn:
            # A client may cancel the very request whose answer is half written.
            with anyio.CancelScope(shield=True) as self._writing:
                # The rest of an answer that the prelude began: the SDK's own, which is not sent,
                # comes by here, so it is not left waiting for another message.
                rest = self._push(memoryview(data))
                while rest:
                    await anyio.wait_writable(self._sink.fd)
                    rest = self._push(rest)

    def _push(self, data: memoryview) -> memoryview:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            with self._pushing:
                if self._unsent:
                    data, self._unsent = memoryview(self._unsent + data), b""
                return self._sink.push(data)
        except OSError as error:
            self._closed = True
            self.on_broken()
            raise anyio.ClosedResourceError from error
