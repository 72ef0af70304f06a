"""The first answers, while the SDK is still being imported.

The import takes half a second, and a client waits for two or three answers that were the same at
every start before. A thread reads what the client says meanwhile and answers from `answers`, as long
as every line so far could be answered so: with the first that cannot, reading stops, and order is
kept by there being nothing to reorder.
Promises that no byte is lost or read twice: everything read is handed over, line by line, and the SDK
hears all of it. It knows nothing of the prelude; that its own answers to the same questions are not
sent again is up to `recording`. Only what comes before anything is stored is answered here, so a
signal, or a start that fails, ends the process as it did before. POSIX only.
"""

from __future__ import annotations

import logging
import os
import select
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import msgspec

from server.background import in_background
from server.starting.answers import Answers
from server.starting.conversation import Conversation, RequestId, answer_line
from server.stdio.descriptors import Sink, private_wire, read_chunk
from server.stdio.lines import Line, LineCutter


class Opening(msgspec.Struct):
    """The wire, and what has happened on it so far.

    `lines` were read, `cutter` holds the beginning of the next one, `ended` tells that there is
    none. `given` are the answers sent, by id; `unsent` is the rest of the last of them.
    """

    source: int
    sink: int
    answers: Answers
    cutter: LineCutter = msgspec.field(default_factory=LineCutter)
    lines: list[Line] = []
    ended: bool = False
    given: dict[RequestId, bytes] = {}
    unsent: bytes = b""


class Prelude:
    """Takes the wire and answers what it can, from now until `handed_over`."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._wire = ExitStack()
        source, sink = self._wire.enter_context(private_wire())
        self._opening = Opening(source, sink, answers)
        self._sink = Sink(sink)
        self._conversation = Conversation()
        self._stopping, self._stop = os.pipe()
        # A daemon, lest a failed import wait for a client.
        without = "the first answers wait for the SDK"
        self._thread = in_background(self._listen, "prelude", without=without, level=logging.DEBUG)

    @contextmanager
    def handed_over(self) -> Iterator[Opening]:
        """What there is to go on from; stdin and stdout are as before at the end."""
        with self._wire:
            os.close(self._stop)
            if self._thread is not None:
                self._thread.join()
            os.close(self._stopping)
            yield self._opening

    def _listen(self) -> None:
        opening, answering = self._opening, True
        while answering and not opening.ended and self._wait(opening.source, select.POLLIN):
            chunk = read_chunk(opening.source)
            if chunk is None:
                continue
            opening.ended = not chunk
            for line in opening.cutter.feed(chunk) if chunk else opening.cutter.finish():
                opening.lines.append(line)
                answering = answering and self._answer(line)

    def _answer(self, line: Line) -> bool:
        """Whether the line needs nothing more from here, so that the next one may be answered."""
        question = self._conversation.hear(line)
        if question is None:
            return not self._conversation.over
        result = self._answers.get(question.key)
        if result is None:
            return False
        answer = answer_line(question.id, result)
        self._opening.given[question.id] = answer
        self._opening.unsent = self._send(answer)
        return not self._opening.unsent

    def _send(self, answer: bytes) -> bytes:
        """The rest, where the time is up before a slow client has taken all of it."""
        rest = memoryview(answer)
        try:
            rest = self._sink.push(rest)
            while rest and self._wait(self._sink.fd, select.POLLOUT):
                rest = self._sink.push(rest)
        except OSError:  # nobody reads: the transport will find that out with the same bytes
            pass
        return bytes(rest)

    def _wait(self, fd: int, event: int) -> bool:
        """Until `fd` is ready; False if the time is up."""
        ready = select.poll()
        ready.register(fd, event)
        ready.register(self._stopping, select.POLLIN)
        return all(each != self._stopping for each, _ in ready.poll())
