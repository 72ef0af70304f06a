"""Any endpoint that speaks OpenAI's `/v1/embeddings`: OpenAI itself, Ollama, vLLM, LM Studio, …

Promises: what may pass (429, 5xx, a time-out, a broken connection) is tried again after a pause
that doubles, or as long as the endpoint asks for; what will not pass is an EmbeddingError at once.
What is refused for what is in it (400, 413, 422) is asked for again in halves, down to a single text, and that one
by its beginning: many local servers refuse a text that is longer than their model takes, and all that came with it.
So is what is answered with a vector without direction, and what is answered in any other way than with as many
vectors where the same endpoint embeds something else: servers fail so (500) over a text that is too long, or of which
their model makes no numbers, take no more than one text at a time, or stand behind a firewall that reads texts (403).
What does not come in time is asked for again in halves, too, and as few at a time from then on until they come soon:
an endpoint on a slow processor takes longer for 32 texts than anybody waits.
A text that is refused at any length by an endpoint that takes others has no meaning there: its vector is zero.
An endpoint that failed to the last try, or refused whatever it was asked, as with a wrong key, is left alone for a
minute (`rest.RETRY_SECONDS`), in which every call fails at once; then one call tries once.
One that has another model than it had has another key, as soon as it is opened anew, and is left alone where it comes
back so from a failure, be it at the next try: vectors of two models never meet (`likeness`).
What one request is, and what its answer means, is left to `endpoint`.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memlog.errors import EmbeddingError
from memlog.patience import require_patience
from projections.embedding.embedder import REQUEST_TEXTS_MAX, file_name
from projections.embedding.endpoint import (
    ANY_TEXT,
    START_AGAIN,
    Endpoint,
    InputRefused,
    Passing,
    Refused,
)
from projections.embedding.likeness import is_alike, key_of_like
from projections.embedding.rest import Rest
from projections.embedding.sockets import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec, Vectors

BASE_URL_DEFAULT = "https://api.openai.com/v1"
MODEL_DEFAULT = "text-embedding-3-small"
TEXT_BYTES_MAX = 8000  # a byte-level tokenizer makes at most one token a byte; 8,191 are taken
PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 20.0
DOUBLINGS_MAX = 10  # far beyond the longest pause; a thousand of them are no float
STATUS_PERHAPS_OF_INPUT = 500
_OF_LENGTH = re.compile(
    r"too (?:large|long|many tokens)|context (?:length|size|window)", re.IGNORECASE
)
"""As servers say with that status that a text is longer than their model takes; llama.cpp's, that an "input (1810
tokens) is too large to process". Another try is refused, too."""
STATUS_OF_TIME = frozenset({408, 504, 524})
"""As proxies tell that an answer did not come in time."""
STATUS_AWAY = frozenset({None, 502, 503})
"""As it is while a server starts anew, perhaps with another model: silent, or not ready, as it or a proxy says."""
SOON_SHARE = 0.25
"""Of the time-out: what comes within it leaves time for twice as many texts."""
CUT_TO_CHARACTERS_MIN = 100
"""A text that is refused is asked by its first half, and so on; no shorter than this."""

log = logging.getLogger("memlog.embeddings")


def open_openai(spec: EmbedderSpec) -> OpenAI:
    """Asks the endpoint for one vector, to learn their width and that address and key are right."""
    return OpenAI(
        spec.model or MODEL_DEFAULT,
        base_url=spec.base_url or BASE_URL_DEFAULT,
        api_key=spec.api_key,
        max_retries=spec.max_retries,
        known_in=spec.cache_dir,
    )


class OpenAI:
    """The embedder behind an endpoint. One connection for each request, at most 32 texts in each.

    Without `known_in` it is taken to have the model that it always had.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        max_retries: int = 3,
        known_in: Path | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        pause: Callable[[float], None] = time.sleep,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = Endpoint(base_url, model, api_key, timeout_seconds=timeout_seconds)
        self._max_retries = max_retries
        self._timeout_seconds = timeout_seconds
        self._pause = pause
        self._clock_seconds = clock_seconds
        self._texts_max = REQUEST_TEXTS_MAX
        self._rest = Rest(clock_seconds)
        self._of_any_text: Vectors | None = None
        self._of_any_text = self._request([ANY_TEXT])[0]
        self.dimensions = self._endpoint.dimensions = len(self._of_any_text)
        origin = f"{self._endpoint.url}\n{model}\n{self.dimensions}"

        def key_of(number: int) -> str:
            told_apart_by = f"{origin}\n{number}" if number else origin
            return file_name("openai", model, told_apart_by=told_apart_by)

        self.key = key_of_like(known_in, key_of, self._of_any_text) if known_in else key_of(0)

    def embed(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for start in range(0, len(texts), REQUEST_TEXTS_MAX):
            some = texts[start : start + REQUEST_TEXTS_MAX]
            vectors[start : start + len(some)] = self._taken([_fitting(text) for text in some])
        return vectors

    def _taken(self, texts: list[str]) -> Vectors:
        """Their vectors; of one that is too long for the endpoint, that of its beginning; zero for one never taken."""
        import numpy as np

        half = len(texts) // 2
        try:
            if len(texts) <= self._texts_max:
                return self._request(texts)
        except InputRefused:
            if not half:
                return self._by_beginning(texts[0])
        return np.concatenate([self._taken(texts[:half]), self._taken(texts[half:])])

    def _by_beginning(self, text: str) -> Vectors:
        import numpy as np

        beginning = text[: len(text) // 2]
        if len(beginning) < CUT_TO_CHARACTERS_MIN:
            self._request([ANY_TEXT])  # raises where it is not the text that is refused
            log.warning(
                "%s refuses a text, the first %s characters of it too: it is found by words only",
                self._endpoint.shown,
                len(text),
            )
            return np.zeros((1, self.dimensions), np.float32)
        log.info("%s refuses a text of %s characters", self._endpoint.shown, len(text))
        return self._taken([beginning])

    def _request(self, texts: list[str]) -> Vectors:
        require_patience()
        self._rest.require_over()
        if self._rest.failed:
            self._tried([ANY_TEXT])
        return self._tried(texts)

    def _require_alike(self, vector: Vectors) -> None:
        """Raises EmbeddingError where this vector of any text is another than the first was."""
        if self._of_any_text is not None and not is_alike(vector, self._of_any_text):
            another = EmbeddingError(
                f"{self._endpoint.shown} has another model by now", suggestion=START_AGAIN
            )
            self._rest.begin(another)
            raise another

    def _tried(self, texts: list[str]) -> Vectors:
        retries = 0 if self._rest.failed else self._max_retries
        tried = 0
        was_away = False
        while True:
            began_seconds = self._clock_seconds()
            try:
                vectors = self._endpoint.ask(texts)
            except Passing as failure:
                self._require_another_try(failure, texts, tried, last=tried >= retries)
                self._pause(_pause_seconds(tried, failure.pause_seconds))
                tried += 1
                was_away = was_away or failure.status in STATUS_AWAY
            except EmbeddingError as error:
                raise self._told(error, texts) from None
            else:
                if texts == [ANY_TEXT]:
                    self._require_alike(vectors[0])  # before the rest ends, and others ask
                elif was_away:
                    self._tried([ANY_TEXT])
                self._rest.end()
                self._note_time(len(texts), self._clock_seconds() - began_seconds)
                return vectors

    def _told(self, error: EmbeddingError, texts: list[str]) -> EmbeddingError:
        """What a failure that another try would not mend is to who asked for these."""
        of_input, refused = isinstance(error, InputRefused), isinstance(error, Refused)
        if not of_input and (refused or len(texts) > 1) and self._embeds_else(texts):
            return InputRefused(error.message, suggestion=error.suggestion)
        if refused or (of_input and texts == [ANY_TEXT]):
            self._rest.begin(error)
        else:  # it is there
            self._rest.end()
        return error

    def _require_another_try(
        self, failure: Passing, texts: list[str], tried: int, *, last: bool
    ) -> None:
        """Raises EmbeddingError where the same texts are not to be asked for again."""
        several = len(texts) > 1
        late = several and failure.status in STATUS_OF_TIME
        if late:
            self._texts_max = len(texts) // 2
        of_length = _OF_LENGTH.search(failure.words) is not None
        perhaps = failure.status == STATUS_PERHAPS_OF_INPUT and (last or several or of_length)
        words = self._endpoint.clean(failure.words)
        if late or (perhaps and self._embeds_else(texts)):
            raise InputRefused(f"{self._endpoint.shown}: {words}") from None
        if last:
            how_often = f"{tried + 1} times, the last time so" if tried else "once"
            down = EmbeddingError(
                f"{self._endpoint.shown} failed {how_often}: {words}",
                suggestion=failure.suggestion + self._endpoint.on_proxy,
            )
            self._rest.begin(down)
            raise down from None

    def _note_time(self, texts_count: int, took_seconds: float) -> None:
        if took_seconds < SOON_SHARE * self._timeout_seconds:
            most = min(2 * texts_count, REQUEST_TEXTS_MAX)
            self._texts_max = max(self._texts_max, most)

    def _embeds_else(self, texts: list[str]) -> bool:
        """Whether the endpoint embeds something else than these, asked once."""
        if texts == [ANY_TEXT]:
            return False
        try:
            vector = self._endpoint.ask([ANY_TEXT])[0]
        except (Passing, EmbeddingError):
            return False
        self._require_alike(vector)
        self._rest.end()
        return True


def _fitting(text: str) -> str:
    """`text` within what endpoints take: not empty, and cut between two characters if too long."""
    cut = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return cut if cut.strip() else "."


def _pause_seconds(tried: int, asked: float | None) -> float:
    if asked is not None:
        return min(asked, PAUSE_SECONDS_MAX)
    doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(tried, DOUBLINGS_MAX)
    return min(doubled, PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
