"""One request to an endpoint that speaks OpenAI's `/v1/embeddings`, and what its answer means.

An answer is read for a minute and as far as vectors of that many texts may reach: one that comes byte by byte, or
without end, holds nobody up and fills no memory.
The key appears in no error and no log, and is not sent on to where a redirect points. Nor do texts: what an endpoint
says of a failure is told, but not where it repeats what it was asked. What is done about a failure is left to `openai`.

Format: https://platform.openai.com/docs/api-reference/embeddings/create. Of Azure, whose addresses
have `api-version` behind the `?`: https://learn.microsoft.com/azure/ai-services/openai/reference#authentication
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from http import HTTPStatus
from operator import itemgetter
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, urljoin, urlsplit

import msgspec

from memlog.errors import EmbeddingError, shorten
from projections.embedding.embedder import unit_rows
from projections.embedding.sockets import is_by_proxy, opener

if TYPE_CHECKING:
    from projections.embedding.embedder import Vectors

ANY_TEXT = "dimensions"
"""What is sent to learn of the endpoint, and not for its vector."""
ANSWER_BYTES_MIN = 1024 * 1024
NUMBER_BYTES_MAX = 64
"""Of a number in JSON, with white space before and behind it, and some to spare."""
DIMENSIONS_MAX = 65_536
"""Of the first vector of an endpoint, whose width nobody knows yet."""
EXCERPT_CHARACTERS_MAX, EXCERPT_BYTES_MAX = 200, 1600
"""Of what an endpoint says: what is told, and what is read to tell whether it repeats anything."""
REPEATED_CHARACTERS_MIN = 20
"""So many in a row, white space aside, are no chance; a text of fewer counts as a whole."""
TELLING_CHARACTERS_MIN = 4
"""Of a text; a shorter one is within any words."""
STATUS_OF_INPUT = frozenset({400, 413, 422})
STATUS_MAY_PASS = frozenset({408, 425, 429, *range(500, 600)})

_CHECK_IT = (
    "Check that the address is an OpenAI-compatible /v1/embeddings endpoint "
    "and that it serves one embedding model under this name."
)
START_AGAIN = (
    "Where the endpoint serves another model by now, stop memlog and start it again: "
    "then all is embedded anew in the background."
)
_UNSENDABLE = re.compile(r"[\x00-\x20\x7f]")
_NO_NUMBER = re.compile(rb"-?\b(?:NaN|Infinity)\b")
"""As Python writes it, and no JSON has it."""


class _Row(msgspec.Struct):
    embedding: list[float | None]
    """What is not a number is null in JSON."""
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Row]


class _Failed(msgspec.Struct):
    """What some answer with where others have a status for it."""

    error: msgspec.Raw


class Refused(EmbeddingError):
    """By status; another try would be refused, too."""


class InputRefused(EmbeddingError):
    """Some of what was sent is not taken, or nothing is."""


class Passing(Exception):
    """A failure worth another try, in words, its status, how long the endpoint asks to wait for it, and what to do."""

    suggestion = "Check that the endpoint is up, or call again later."

    def __init__(
        self, words: str, status: int | None = None, pause_seconds: float | None = None
    ) -> None:
        super().__init__(words)
        self.words = words
        self.status = status
        self.pause_seconds = pause_seconds


class Endpoint:
    """Where texts are sent, as which model. One connection for each request. Raises EmbeddingError for what is no
    address or no key."""

    def __init__(
        self, base_url: str, model: str, api_key: str | None, *, timeout_seconds: float
    ) -> None:
        url = _address(base_url)
        self.url = url.geturl()
        self.shown = url._replace(query="").geturl()
        """The address without what may be a secret."""
        self.on_proxy = ""
        """What else to tell of a failure."""
        if is_by_proxy(url):
            self.on_proxy = " It is asked through a proxy of the environment; NO_PROXY names hosts to ask without."
        self._model = model
        self._secret = _checked_key(api_key)
        # Azure takes its keys in a header of its own, and only its tokens, which have dots, in the usual one.
        self._in_own_header = "api-version" in parse_qs(url.query) and "." not in self._secret
        self._timeout_seconds = timeout_seconds
        self._opener = opener()
        self.dimensions = 0
        """As wide are all vectors, once it is known."""

    def ask(self, texts: list[str]) -> Vectors:
        """The vectors of these, or Passing; InputRefused, Refused, or another EmbeddingError for an answer that is of
        no use."""
        return self._vectors(self._post(texts), texts)

    def _post(self, texts: list[str]) -> bytes:
        body = msgspec.json.encode({"model": self._model, "input": texts})
        request = urllib.request.Request(
            self.url, data=body, headers={"Content-Type": "application/json"}
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
            raise Passing(f"{type(error).__name__}: {error}", HTTPStatus.REQUEST_TIMEOUT) from error
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
            return Passing(words, error.code, _seconds(error.headers.get("Retry-After")))
        suggestion = "Check MEMLOG_EMBEDDER_URL (mostly it ends with /v1), MEMLOG_EMBEDDER_MODEL and the key."
        if error.code in (401, 403):
            suggestion = "Check the key in MEMLOG_EMBEDDER_KEY (or OPENAI_API_KEY)."
        elif 300 <= error.code < 400:
            words = f"HTTP {error.code}, it redirects to {self._redirected(error)}"
            suggestion = "Set MEMLOG_EMBEDDER_URL to the address that the endpoint redirects to."
        kind = InputRefused if error.code in STATUS_OF_INPUT else Refused
        return kind(
            f"{self.shown} refused model {shorten(self._model)}: {self.clean(words)}",
            suggestion=suggestion + self.on_proxy,
        )

    def _redirected(self, error: urllib.error.HTTPError) -> str:
        """Without what may be a secret."""
        try:
            url = urlsplit(urljoin(self.shown, error.headers.get("Location", "")))
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
            raise self._unusable(
                f"a vector of {odd} dimensions, where {wanted} were expected",
                START_AGAIN if self.dimensions and odd else _CHECK_IT,
            )
        try:
            return unit_rows(np.array([row.embedding for row in rows], np.float64), self.shown)
        except EmbeddingError as error:
            raise InputRefused(error.message, suggestion=error.suggestion) from None

    def _unusable(self, what: str, suggestion: str = _CHECK_IT) -> EmbeddingError:
        return EmbeddingError(
            f"{self.shown} answered with {self.clean(what)}", suggestion=suggestion
        )

    def clean(self, words: str) -> str:
        """`words` of the endpoint or the network, cut, without the key that some send back."""
        if self._secret:
            words = words.replace(self._secret, "[key]")
        return " ".join(words[:EXCERPT_CHARACTERS_MAX].split())


def _address(base_url: str) -> SplitResult:
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


def _tellable(said: str, texts: list[str]) -> str:
    """What an endpoint said when it was asked for these: other projects are told of it, and the log."""
    if texts != [ANY_TEXT] and _repeats(said, texts):
        return "its answer repeats what it was asked, and is not shown"
    return said


def _broken(error: Exception) -> Passing:
    failure = Passing(f"{type(error).__name__}: {error}")
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
