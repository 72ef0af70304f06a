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
An answer is read for a minute and as far as vectors of that many texts may reach: one that comes byte by byte, or
without end, holds nobody up and fills no memory.
The key appears in no error and no log, and is not sent on to where a redirect points. Nor do texts: what an endpoint
says of a failure is told, but not where it repeats what it was asked.

Format: https://platform.openai.com/docs/api-reference/embeddings/create. Of Azure, whose addresses
have `api-version` behind the `?`: https://learn.microsoft.com/azure/ai-services/openai/reference#authentication
"""

from __future__ import annotations

import http.client
import json
import logging
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, urljoin, urlsplit

import msgspec

from memlog.errors import EmbeddingError, shorten
from memlog.patience import require_patience
from projections.embedding.embedder import file_name, unit_rows
from projections.embedding.rest import Rest
from projections.embedding.sockets import TIMEOUT_SECONDS, is_by_proxy, opener

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec, Vectors

BASE_URL_DEFAULT = "https://api.openai.com/v1"
MODEL_DEFAULT = "text-embedding-3-small"
REQUEST_TEXTS_MAX = 32
TEXT_BYTES_MAX = 8000  # a byte-level tokenizer makes at most one token a byte; 8,191 are taken
ANSWER_BYTES_MIN = 1024 * 1024
NUMBER_BYTES_MAX = 64
"""Of a number in JSON, with white space before and behind it, and some to spare."""
DIMENSIONS_MAX = 65_536
"""Of the first vector of an endpoint, whose width nobody knows yet."""
PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 20.0
DOUBLINGS_MAX = 10  # far beyond the longest pause; a thousand of them are no float
EXCERPT_CHARACTERS_MAX, EXCERPT_BYTES_MAX = 200, 1600
"""Of what an endpoint says: what is told, and what is read to tell whether it repeats anything."""
REPEATED_CHARACTERS_MIN = 20
"""So many in a row, white space aside, are no chance; a text of fewer counts as a whole."""
TELLING_CHARACTERS_MIN = 4
"""Of a text; a shorter one is within any words."""
STATUS_OF_INPUT = frozenset({400, 413, 422})
STATUS_PERHAPS_OF_INPUT = 500
STATUS_OF_TIME = frozenset({408, 504, 524})
"""As proxies tell that an answer did not come in time."""
SOON_SHARE = 0.25
"""Of the time-out: what comes within it leaves time for twice as many texts."""
CUT_TO_CHARACTERS_MIN = 100
"""A text that is refused is asked by its first half, and so on; no shorter than this."""
ANY_TEXT = "dimensions"
"""What is sent to learn of the endpoint, and not for its vector."""
STATUS_MAY_PASS = frozenset({408, 425, 429, *range(500, 600)})

_UNSENDABLE = re.compile(r"[\x00-\x20\x7f]")
_NO_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")
"""As Python writes it, and no JSON has it."""

log = logging.getLogger("memlog.embeddings")


class _Row(msgspec.Struct):
    embedding: list[float | None]
    """What is not a number is null in JSON."""
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Row]


class _Failed(msgspec.Struct):
    """What some answer with where others have a status for it."""

    error: msgspec.Raw


class _Refused(EmbeddingError):
    """By status; another try would be refused, too."""


class _InputRefused(EmbeddingError):
    """Some of what was sent is not taken, or nothing is."""


class _Passing(Exception):
    """A failure worth another try, in words, its status, how long the endpoint asks to wait for it, and what to do."""

    def __init__(
        self,
        words: str,
        status: int | None = None,
        pause_seconds: float | None = None,
        suggestion: str = "Check that the endpoint is up, or call again later.",
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.pause_seconds = pause_seconds
        self.suggestion = suggestion


def open_openai(spec: EmbedderSpec) -> OpenAI:
    """Asks the endpoint for one vector, to learn their width and that address and key are right."""
    return OpenAI(
        spec.model or MODEL_DEFAULT,
        base_url=spec.base_url or BASE_URL_DEFAULT,
        api_key=spec.api_key,
        max_retries=spec.max_retries,
    )


class OpenAI:
    """The embedder behind an endpoint. One connection for each request, at most 32 texts in each."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        max_retries: int = 3,
        timeout_seconds: float = TIMEOUT_SECONDS,
        pause: Callable[[float], None] = time.sleep,
        clock_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        url = _endpoint(base_url)
        self._url = url.geturl()
        self._shown = url._replace(query="").geturl()
        self._on_proxy = ""
        if is_by_proxy(url):
            self._on_proxy = " It is asked through a proxy of the environment; NO_PROXY names hosts to ask without."
        self._model = model
        self._secret = _checked_key(api_key)
        # Azure takes its keys in a header of its own, and only its tokens, which have dots, in the usual one.
        self._in_own_header = "api-version" in parse_qs(url.query) and "." not in self._secret
        self._max_retries = max_retries
        self._timeout_seconds = timeout_seconds
        self._pause = pause
        self._clock_seconds = clock_seconds
        self._texts_max = REQUEST_TEXTS_MAX
        self._rest = Rest(clock_seconds)
        self._opener = opener()
        self.dimensions = 0  # not known yet
        self.dimensions = self._request([ANY_TEXT]).shape[1]
        origin = f"{self._url}\n{model}\n{self.dimensions}"
        self.key = file_name("openai", model, told_apart_by=origin)

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
        except _InputRefused:
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
                self._shown,
                len(text),
            )
            return np.zeros((1, self.dimensions), np.float32)
        log.info("%s refuses a text of %s characters", self._shown, len(text))
        return self._taken([beginning])

    def _request(self, texts: list[str]) -> Vectors:
        require_patience()
        body = self._body(texts)
        self._rest.require_over()
        retries = 0 if self._rest.failed else self._max_retries
        tried = 0
        while True:
            began_seconds = self._clock_seconds()
            try:
                vectors = self._vectors(self._post(body, texts), texts)
            except _InputRefused as error:
                if texts == [ANY_TEXT]:
                    self._rest.begin(error)
                else:  # it is there
                    self._rest.end()
                raise
            except EmbeddingError as error:
                refused = isinstance(error, _Refused)
                if (refused or len(texts) > 1) and self._embeds_else(texts):
                    raise _InputRefused(error.message, suggestion=error.suggestion) from None
                if refused:
                    self._rest.begin(error)
                else:
                    self._rest.end()
                raise
            except _Passing as failure:
                last = tried >= retries
                several = len(texts) > 1
                late = several and failure.status in STATUS_OF_TIME
                if late:
                    self._texts_max = len(texts) // 2
                if (late and not self._rest.failed) or (
                    failure.status == STATUS_PERHAPS_OF_INPUT
                    and (last or several)
                    and self._embeds_else(texts)
                ):
                    raise _InputRefused(f"{self._shown}: {self._clean(failure.words)}") from None
                if last:
                    how_often = f"{tried + 1} times, the last time so" if tried else "once"
                    down = EmbeddingError(
                        f"{self._shown} failed {how_often}: {self._clean(failure.words)}",
                        suggestion=failure.suggestion + self._on_proxy,
                    )
                    self._rest.begin(down)
                    raise down from None
                self._pause(_pause_seconds(tried, failure.pause_seconds))
                tried += 1
            else:
                self._rest.end()
                took_seconds = self._clock_seconds() - began_seconds
                if took_seconds < SOON_SHARE * self._timeout_seconds:
                    most = min(2 * len(texts), REQUEST_TEXTS_MAX)
                    self._texts_max = max(self._texts_max, most)
                return vectors

    def _embeds_else(self, texts: list[str]) -> bool:
        """Whether the endpoint embeds something else than these, asked once."""
        if texts == [ANY_TEXT]:
            return False
        try:
            self._vectors(self._post(self._body([ANY_TEXT]), [ANY_TEXT]), [ANY_TEXT])
        except (_Passing, EmbeddingError):
            return False
        self._rest.end()
        return True

    def _body(self, texts: list[str]) -> bytes:
        return msgspec.json.encode({"model": self._model, "input": texts})

    def _post(self, body: bytes, texts: list[str]) -> bytes:
        request = urllib.request.Request(
            self._url, data=body, headers={"Content-Type": "application/json"}
        )
        if self._secret and self._in_own_header:
            request.add_unredirected_header("api-key", self._secret)
        elif self._secret:
            request.add_unredirected_header("Authorization", f"Bearer {self._secret}")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as response:
                return self._content(response, len(texts))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error, texts) from None
        except TimeoutError as error:
            raise _Passing(
                f"{type(error).__name__}: {error}", HTTPStatus.REQUEST_TIMEOUT
            ) from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise _broken(error) from error

    def _content(self, response: http.client.HTTPResponse, texts_count: int) -> bytes:
        dimensions = self.dimensions or DIMENSIONS_MAX
        most = ANSWER_BYTES_MIN + texts_count * dimensions * NUMBER_BYTES_MAX
        if response.length is None:
            content = response.read(most + 1)
            if len(content) <= most:
                return content
        elif response.length <= most:
            return response.read()  # which fails where it is cut off, as that of a part does not
        raise self._unusable(f"more than {most} bytes for {texts_count} texts")

    def _refusal(self, error: urllib.error.HTTPError, texts: list[str]) -> Exception:
        try:
            said = error.read(EXCERPT_BYTES_MAX).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException):
            said = ""
        words = f"HTTP {error.code}: {_tellable(said, texts) or error.reason}"
        if error.code in STATUS_MAY_PASS:
            return _Passing(words, error.code, _seconds(error.headers.get("Retry-After")))
        suggestion = "Check MEMLOG_EMBEDDER_URL (mostly it ends with /v1), MEMLOG_EMBEDDER_MODEL and the key."
        if error.code in (401, 403):
            suggestion = "Check the key in MEMLOG_EMBEDDER_KEY (or OPENAI_API_KEY)."
        elif 300 <= error.code < 400:
            words = f"HTTP {error.code}, it redirects to {self._redirected(error)}"
            suggestion = "Set MEMLOG_EMBEDDER_URL to the address that the endpoint redirects to."
        kind = _InputRefused if error.code in STATUS_OF_INPUT else _Refused
        return kind(
            f"{self._shown} refused model {shorten(self._model)}: {self._clean(words)}",
            suggestion=suggestion + self._on_proxy,
        )

    def _redirected(self, error: urllib.error.HTTPError) -> str:
        """Without what may be a secret."""
        try:
            url = urlsplit(urljoin(self._shown, error.headers.get("Location", "")))
        except ValueError:
            return "no address"
        return url._replace(netloc=url.netloc.rpartition("@")[2], query="", fragment="").geturl()

    def _vectors(self, content: bytes, texts: list[str]) -> Vectors:
        import numpy as np

        texts_count = len(texts)
        try:
            if b"NaN" in content or b"Infinity" in content:
                content = _NO_NUMBER.sub(b"null", content)
            rows = msgspec.json.decode(content, type=_Answer).data
        except (msgspec.DecodeError, RecursionError) as error:
            said = str(error)
            with suppress(msgspec.DecodeError, RecursionError):
                failed = msgspec.json.decode(content, type=_Failed)
                excerpt = bytes(failed.error)[:EXCERPT_BYTES_MAX]
                said = _tellable(excerpt.decode("utf-8", "replace"), texts)
            raise self._unusable(f"no list of embeddings ({said})") from None
        if len(rows) != texts_count:
            raise self._unusable(f"{len(rows)} vectors for {texts_count} texts")
        # Some leave out a number that is 0, others all of them: those are where they stand.
        numbers = [place if row.index is None else row.index for place, row in enumerate(rows)]
        if sorted(numbers) != list(range(texts_count)):
            raise self._unusable(
                f"vectors numbered {sorted(numbers)}, where 0 is the first and none is left out"
            )
        rows = [row for _, row in sorted(zip(numbers, rows, strict=True), key=itemgetter(0))]
        wanted = self.dimensions or len(rows[0].embedding)
        odd = next((n for row in rows if (n := len(row.embedding)) != wanted or not n), None)
        if odd is not None:
            raise self._unusable(f"a vector of {odd} dimensions, where {wanted} were expected")
        try:
            return unit_rows(np.array([row.embedding for row in rows], np.float64), self._shown)
        except EmbeddingError as error:
            raise _InputRefused(error.message, suggestion=error.suggestion) from None

    def _unusable(self, what: str) -> EmbeddingError:
        return EmbeddingError(
            f"{self._shown} answered with {self._clean(what)}",
            suggestion="Check that the address is an OpenAI-compatible /v1/embeddings endpoint "
            "and that it serves one embedding model under this name.",
        )

    def _clean(self, words: str) -> str:
        """`words` of the endpoint or the network, cut, without the key that some send back."""
        if self._secret:
            words = words.replace(self._secret, "[key]")
        return " ".join(words[:EXCERPT_CHARACTERS_MAX].split())


def _endpoint(base_url: str) -> SplitResult:
    """The address to post to. A bare host gets /v1, as the makers of such servers write it."""
    try:
        url = urlsplit(base_url.strip())
        known = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        known = False
    # http.client would quote the address in its error, with the key that may stand behind `?`.
    if not known or url.username is not None or url.fragment or _UNSENDABLE.search(url.geturl()):
        raise EmbeddingError(
            "The endpoint's address must look like http(s)://host[:port]/v1, without user, "
            "password, blanks or #fragment",
            suggestion="Set MEMLOG_EMBEDDER_URL so; a key belongs into MEMLOG_EMBEDDER_KEY.",
        )
    path = url.path.rstrip("/") or "/v1"
    if not path.endswith("/embeddings"):
        path += "/embeddings"
    return url._replace(path=path)


def _checked_key(api_key: str | None) -> str:
    """http.client would quote a key that does not fit into a header in its error."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise EmbeddingError(
            "The endpoint's key has characters that no key has",
            suggestion="Set MEMLOG_EMBEDDER_KEY anew: plain letters, digits and signs on one line.",
        )
    return key


def _fitting(text: str) -> str:
    """`text` within what endpoints take: not empty, and cut between two characters if too long."""
    cut = text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
    return cut if cut.strip() else "."


def _tellable(said: str, texts: list[str]) -> str:
    """What an endpoint said when it was asked for these: other projects are told of it, and the log."""
    if texts != [ANY_TEXT] and _repeats(said, texts):
        return "its answer repeats what it was asked, and is not shown"
    return said


def _broken(error: Exception) -> _Passing:
    failure = _Passing(f"{type(error).__name__}: {error}")
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        failure.suggestion = (
            "Set SSL_CERT_FILE to a file with the certificate of the endpoint, or of who signed it."
        )
    elif isinstance(reason, ssl.SSLError):
        failure.suggestion = (
            "Check whether the endpoint speaks http: then MEMLOG_EMBEDDER_URL begins with http://."
        )
    return failure


def _repeats(words: str, texts: list[str]) -> bool:
    """Whether there is a part of a text in `words`, as it is or as JSON has it."""
    said = _bare(words)
    runs = {
        said[start : start + REPEATED_CHARACTERS_MIN]
        for start in range(len(said) - REPEATED_CHARACTERS_MIN + 1)
    }
    for text in texts:
        for spelt in {_bare(text), _bare(json.dumps(text))}:
            if len(spelt) < REPEATED_CHARACTERS_MIN:
                if len(spelt) >= TELLING_CHARACTERS_MIN and spelt in said:
                    return True
            elif any(run in spelt for run in runs):
                return True
    return False


def _bare(text: str) -> str:
    """Without what tells a text from its JSON, and from its JSON within JSON."""
    return "".join(text.split()).replace("\\", "").strip('"')


def _seconds(header: str | None) -> float | None:
    """Retry-After as seconds; its other form, a date, is rare and taken as not given."""
    return float(header) if header and header.strip().isdecimal() else None


def _pause_seconds(tried: int, asked: float | None) -> float:
    if asked is not None:
        return min(asked, PAUSE_SECONDS_MAX)
    doubled = PAUSE_SECONDS_FIRST * 2.0 ** min(tried, DOUBLINGS_MAX)
    return min(doubled, PAUSE_SECONDS_MAX) * random.uniform(0.5, 1.0)
