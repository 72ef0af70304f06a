"""What the SDK answers to the opening of a conversation, noted for the next start.

Promises that each question has one answer on the wire: one that `prelude` gave is not sent again
when the SDK, to whom the question was told too, gives its own. Were the two ever to differ, that is
logged and everything kept is thrown away. Nothing here delays an answer: files are written by a
thread, where one is to be had, and only when an answer is new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from server.starting.answers import Answers
from server.starting.conversation import Conversation, RequestId, result_in
from server.stdio.lines import Line
from server.threads import Crew, NoThread

logger = logging.getLogger(__name__)


class Recorder:
    """Listens to both sides. `given` are the lines that the client was sent already, by the id they answer."""

    def __init__(self, answers: Answers, given: Mapping[RequestId, bytes]) -> None:
        self._answers = answers
        self._given = dict(given)
        self._asked: dict[RequestId, bytes] = {}
        self._conversation = Conversation()
        self._writer = Crew(1, "recording")

    def heard(self, line: Line) -> None:
        """The client's next line, before the SDK knows of it."""
        question = self._conversation.hear(line)
        if question is not None:
            self._asked[question.id] = question.key

    def doubt(self, request_id: RequestId) -> None:
        """The id belongs to two open requests: whose answer comes next cannot be told."""
        self._asked.pop(request_id, None)

    def unanswered(self, request_id: RequestId) -> bool:
        """The SDK will not answer, for the client wants that no longer. Whether it has had an answer before."""
        self._asked.pop(request_id, None)
        return self._given.pop(request_id, None) is not None

    def answered(self, request_id: RequestId, line: bytes) -> bool:
        """The SDK's answer is `line`: False if it must not be sent, the client having had it."""
        key = self._asked.pop(request_id, None)
        given = self._given.get(request_id)
        if key is None and given != line:  # another request, or one of two with the same id
            return True
        self._given.pop(request_id, None)
        if given is not None and given != line:
            logger.error("an answer of an earlier start is no longer right: %s", given[:200])
            self._write(self._answers.discard)
        elif key is not None:
            result = result_in(request_id, line)
            if result is not None and self._answers.get(key) != result:
                self._write(partial(self._answers.keep, key, result))
        return given is None

    def close(self) -> None:
        """Wait until what was noted is on disk."""
        self._writer.shutdown()

    def _write(self, write: Callable[[], None]) -> None:
        try:
            self._writer.submit(write)
        except NoThread:
            write()
