"""The embedder behind an endpoint, against a real HTTP server on this machine."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import OpenerDirector

import numpy as np
import pytest

from memlog.errors import EmbeddingError
from projections.embedding import CachedEmbedder, EmbedderSpec, VectorCache, open_embedder
from projections.embedding.likeness import is_alike
from projections.embedding.openai import TEXT_BYTES_MAX, OpenAI
from projections.embedding.rest import RETRY_SECONDS
from tests.certificates import certificate_of_its_own
from tests.endpoint import KEY, Answer, Endpoint, endpoint_up, nearly, saying, turned, vectors


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with endpoint_up() as server:
        yield server


def test_vectors_come_in_the_order_of_their_texts_and_of_length_one(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    texts = ["x" * length for length in range(1, 101)]
    found = embedder.embed(texts)
    expected = np.array([[length, 4.0, 0.5] for length in range(1, 101)])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert embedder.dimensions == 3
    assert [len(asked["body"]["input"]) for asked in endpoint.asked] == [1, 32, 32, 32, 4]
    assert {asked["path"] for asked in endpoint.asked} == {"/v1/embeddings"}
    assert {asked["body"]["model"] for asked in endpoint.asked} == {"small"}
    assert {asked["headers"]["Authorization"] for asked in endpoint.asked} == {f"Bearer {KEY}"}


def test_an_endpoint_without_key_and_path_is_asked_under_v1(
    endpoint: Endpoint, tmp_path: Any
) -> None:
    address = endpoint.url.removesuffix("/v1")
    spec = EmbedderSpec(
        backend="openai", cache_dir=tmp_path, model="nomic/embed text:V2", base_url=address
    )
    embedder = open_embedder(spec)
    assert embedder is not None
    assert embedder.key.startswith("openai-nomic-embed-text-v2-")
    assert endpoint.asked[0]["path"] == "/v1/embeddings"
    assert "Authorization" not in endpoint.asked[0]["headers"]


def test_a_deployment_of_azure_is_asked_by_its_version_with_the_key_in_its_own_header(
    endpoint: Endpoint,
) -> None:
    base_url = endpoint.url.replace("/v1", "/openai/deployments/small?api-version=2024-10-21")
    endpoint.embedder(base_url=base_url).embed(["a"])
    for asked in endpoint.asked:
        assert asked["path"] == "/openai/deployments/small/embeddings?api-version=2024-10-21"
        assert asked["headers"]["Api-Key"] == KEY
        assert "Authorization" not in asked["headers"]
    endpoint.embedder(base_url=base_url, api_key="eyJ.eyJ.c2ln")
    assert endpoint.asked[-1]["headers"]["Authorization"] == "Bearer eyJ.eyJ.c2ln"


def test_the_key_tells_models_addresses_and_widths_apart(endpoint: Endpoint) -> None:
    wide = b'{"data":[{"index":0,"embedding":[1,2,3,4]}]}'
    here = endpoint.embedder().key
    assert endpoint.embedder().key == here
    assert endpoint.embedder(base_url=endpoint.url + "/other").key != here
    endpoint.script = [saying(200, wide)]
    assert endpoint.embedder().key != here


def test_another_model_behind_the_same_address_and_name_has_another_key(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    first = endpoint.embedder(known_in=tmp_path).key
    for answer, same in ((nearly, True), (turned, False), (vectors, True)):
        endpoint.script = [answer] * 2
        again = endpoint.embedder(known_in=tmp_path).key
        assert (again == first) == same
        assert endpoint.embedder(known_in=tmp_path).key == again, "it is known from then on"


def test_where_it_cannot_be_kept_what_a_model_is_known_by_it_is_taken_for_the_same(
    endpoint: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (taken := tmp_path / "embeddings").write_text("no folder")
    key = endpoint.embedder(known_in=taken).key
    endpoint.script = [turned]
    assert endpoint.embedder(known_in=taken).key == key == endpoint.embedder().key
    assert f"the model of {key} again cannot be kept" in caplog.text


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def rested(endpoint: Endpoint, clock: Clock) -> OpenAI:
    """An embedder whose endpoint failed, when the rest after that is over."""
    embedder = endpoint.embedder(max_retries=0, clock_seconds=clock)
    endpoint.script = [saying(503, b"out of order")]
    with pytest.raises(EmbeddingError, match="out of order"):
        embedder.embed(["a"])
    clock.seconds += RETRY_SECONDS
    return embedder


def test_an_endpoint_that_comes_back_with_another_model_is_left_alone_and_it_is_told_what_to_do(
    endpoint: Endpoint,
) -> None:
    clock = Clock()
    embedder = rested(endpoint, clock)
    for _ in range(2):
        endpoint.script = [turned] * 2
        with pytest.raises(EmbeddingError, match="has another model by now") as raised:
            embedder.embed(["a"])
        assert "start it again" in (raised.value.suggestion or "")
    clock.seconds += RETRY_SECONDS
    endpoint.script = [nearly, vectors]
    assert embedder.embed(["a"]).shape == (1, 3)


def test_an_endpoint_that_has_another_model_at_the_next_try_is_noticed(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(503), turned, turned]
    with pytest.raises(EmbeddingError, match="has another model by now"):
        embedder.embed(["a"])
    assert not endpoint.script


def test_while_it_is_asked_whether_an_endpoint_has_its_model_nobody_else_embeds(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = rested(endpoint, Clock())

    def while_others_ask(vector: Any, known: Any) -> bool:
        with pytest.raises(EmbeddingError, match="left alone"):
            embedder.embed(["b"])
        return is_alike(vector, known)

    monkeypatch.setattr("projections.embedding.openai.is_alike", while_others_ask)
    endpoint.script = [turned]
    with pytest.raises(EmbeddingError, match="has another model by now"):
        embedder.embed(["a"])


@pytest.mark.parametrize("left_out", [{0}, {0, 1, 2}])
@pytest.mark.parametrize("as_null", [False, True])
def test_a_vector_without_a_number_is_that_of_the_text_in_its_place(
    endpoint: Endpoint, left_out: set[int], as_null: bool
) -> None:
    """Gemini leaves out the number where it is 0, others number nothing."""

    def answer(texts: list[str]) -> Answer:
        rows: list[dict[str, Any]] = []
        for index, text in enumerate(texts):
            number = {} if index in left_out else {"index": index}
            rows.append(
                {"embedding": [len(text), 4.0, 0.5]} | ({"index": None} if as_null else {}) | number
            )
        return saying(200, json.dumps({"data": rows}).encode())

    expected = endpoint.embedder().embed(["a", "bb", "ccc"])
    endpoint.script = [answer] * 2
    assert np.array_equal(endpoint.embedder().embed(["a", "bb", "ccc"]), expected)


def test_too_many_requests_are_followed_by_the_pause_that_was_asked_for(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(429, b"slow down", Retry_After="7"), saying(503)]
    assert embedder.embed(["a"]).shape == (1, 3)
    assert endpoint.pauses[0] == 7
    assert 0.5 <= endpoint.pauses[1] <= 1
    assert len(endpoint.asked) == 1 + 3 + 1, "the last of which model it is"


def test_what_an_endpoint_returned_before_it_refused_more_is_asked_for_no_more(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    """As where requests are counted by the minute."""
    texts = [f"{number:03}" for number in range(64)]
    with closing(VectorCache(tmp_path / "small.mdb")) as cache:
        cached = CachedEmbedder(endpoint.embedder(max_retries=0), cache)
        endpoint.script = [vectors, saying(429, b"too many requests")]
        with pytest.raises(EmbeddingError, match="HTTP 429"):
            cached.vectors(texts)
        CachedEmbedder(endpoint.embedder(), cache).vectors(texts)
    assert endpoint.asked[-1]["body"]["input"] == texts[32:]
    assert len(endpoint.asked) == 5


def test_an_endpoint_that_stays_down_is_an_error_after_the_last_try(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder(max_retries=2)
    endpoint.script = [saying(503, b"out of order")] * 3
    with pytest.raises(EmbeddingError, match=r"failed 3 times.* HTTP 503: out of order"):
        embedder.embed(["a"])
    assert len(endpoint.asked) == 1 + 3
    assert len(endpoint.pauses) == 2


def test_an_endpoint_that_is_down_is_left_alone_for_a_while_and_then_asked_once(
    endpoint: Endpoint,
) -> None:
    now = 0.0
    embedder = endpoint.embedder(max_retries=1, clock_seconds=lambda: now)
    endpoint.script = [saying(503, b"out of order")] * 3
    with pytest.raises(EmbeddingError, match="failed 2 times"):
        embedder.embed(["a"])
    for _ in range(3):
        with pytest.raises(EmbeddingError, match=r"out of order.* left alone for another 60 sec"):
            embedder.embed(["a"])
    assert len(endpoint.asked) == 1 + 2
    now += RETRY_SECONDS
    with pytest.raises(EmbeddingError, match="failed once: "):
        embedder.embed(["a"])
    with pytest.raises(EmbeddingError, match="left alone"):
        embedder.embed(["a"])
    assert len(endpoint.asked) == 1 + 3
    now += RETRY_SECONDS
    assert embedder.embed(["a"]).shape == (1, 3)
    assert embedder.embed(["b"]).shape == (1, 3)


def test_a_refusal_of_a_text_is_no_reason_to_leave_an_endpoint_alone(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(400, b"odd text")]
    assert not embedder.embed(["a"]).any()
    assert embedder.embed(["b"]).any()


def taking_at_most(characters: int) -> Callable[[list[str]], Answer]:
    """As local servers answer that do not cut what is too long for their model."""

    def answer(texts: list[str]) -> Answer:
        if max(map(len, texts)) > characters:
            return saying(400, b"the input length exceeds the context length")
        return vectors(texts)

    return answer


def test_a_text_that_is_too_long_for_the_endpoint_is_embedded_by_its_beginning(
    endpoint: Endpoint,
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [taking_at_most(300)] * 100
    texts = ["a" * 10, "b" * 1_000, "c" * 20, "d" * 300, "e" * 299]
    found = embedder.embed(texts)
    endpoint.script = []
    assert np.array_equal(
        found, embedder.embed([text[:250] if len(text) > 300 else text for text in texts])
    )


def test_a_text_that_an_endpoint_never_takes_has_no_meaning_and_does_not_cost_the_others_theirs(
    endpoint: Endpoint,
) -> None:
    def answer(texts: list[str]) -> Answer:
        if any(text.startswith("forbidden") for text in texts):
            return saying(400, b"content management policy")
        return vectors(texts)

    embedder = endpoint.embedder()
    endpoint.script = [answer] * 100
    found = embedder.embed(["allowed", "forbidden", "forbidden " * 300, "allowed too"])
    endpoint.script = []
    assert np.array_equal(found[[0, 3]], embedder.embed(["allowed", "allowed too"]))
    assert not found[1:3].any()


def numbers(texts: list[str], of_odd: object) -> Answer:
    rows = [of_odd if "odd" in text else [len(text), 4.0, 0.5] for text in texts]
    data = [{"index": index, "embedding": row} for index, row in enumerate(rows)]
    return saying(200, json.dumps({"data": data}).encode())


@pytest.mark.parametrize(
    "on_odd",
    [
        lambda _: saying(500, b"failed to encode response: json: unsupported value: NaN"),
        lambda _: saying(403, b"<html>blocked by a firewall</html>"),
        lambda texts: numbers(texts, [0, 0, 0]),
        lambda texts: numbers(texts, [None, None, None]),
        lambda texts: numbers(texts, [1e300, 0, 0]),
        lambda texts: numbers(texts, [float("nan"), float("-inf"), 0]),
    ],
)
def test_a_text_that_an_endpoint_fails_over_does_not_cost_the_others_theirs(
    endpoint: Endpoint, on_odd: Callable[[list[str]], Answer]
) -> None:
    """Local servers do not refuse it: they fail, or return a vector without direction."""

    def answer(texts: list[str]) -> Answer:
        return on_odd(texts) if any("odd" in text for text in texts) else vectors(texts)

    embedder = endpoint.embedder()
    endpoint.script = [answer] * 1_000
    texts = [f"{number}" for number in range(100)]
    found = embedder.embed([*texts[:50], "odd", "x" * 200 + "odd" * 50, *texts[50:]])
    assert len(endpoint.asked) < 60
    endpoint.script = []
    expected = embedder.embed([*texts, "x" * 175])
    assert np.array_equal(found[[*range(50), *range(52, 102)]], expected[:100])
    assert not found[50].any()
    assert np.array_equal(found[51], expected[100])


@pytest.mark.parametrize(
    "words",
    [
        b'{"error":{"code":500,"message":"input (1810 tokens) is too large to process. increase the '
        b'physical batch size (current batch size: 512)","type":"server_error"}}',
        b'{"error":"the input length exceeds the context length"}',
    ],
)
def test_a_text_that_an_endpoint_fails_over_for_its_length_is_not_asked_for_again_as_it_is(
    endpoint: Endpoint, words: bytes
) -> None:
    """The first are the words of llama.cpp's server, at the length of a question that somebody pastes."""

    def answer(texts: list[str]) -> Answer:
        return saying(500, words) if len(texts[0]) > 2_000 else vectors(texts)

    embedder = endpoint.embedder()
    endpoint.script = [answer] * 20
    found = embedder.embed(["word " * 1_600])
    assert endpoint.pauses == []
    endpoint.script = []
    assert np.array_equal(found, embedder.embed(["word " * 400]))


def test_an_endpoint_that_takes_one_text_at_a_time_and_says_nothing_of_the_others_is_asked_for_each(
    endpoint: Endpoint,
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [lambda texts: vectors(texts[:1])] * 200
    found = embedder.embed(["a", "bb", "ccc"])
    endpoint.script = []
    assert np.array_equal(found, embedder.embed(["a", "bb", "ccc"]))


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404])
def test_an_endpoint_that_refuses_everything_is_left_alone_for_a_while(
    endpoint: Endpoint, status: int
) -> None:
    now = 0.0
    embedder = endpoint.embedder(clock_seconds=lambda: now)
    endpoint.script = [saying(status, b"no")] * 100
    with pytest.raises(EmbeddingError, match=f"HTTP {status}: no"):
        embedder.embed(["a"] * 64)
    for _ in range(9):
        with pytest.raises(EmbeddingError, match=f"HTTP {status}: no. It is left alone"):
            embedder.embed(["a"])
    assert len(endpoint.asked) < 10
    now += RETRY_SECONDS
    endpoint.script = []
    assert embedder.embed(["a"]).shape == (1, 3)


@pytest.mark.parametrize("status", [500, 503])
def test_an_endpoint_that_fails_over_everything_is_not_asked_about_every_text(
    endpoint: Endpoint, status: int
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(status, b"out of order")] * 1_000
    with pytest.raises(EmbeddingError, match=f"failed 4 times.* HTTP {status}: out of order"):
        embedder.embed([f"{number} " * 1_000 for number in range(64)])
    assert len(endpoint.asked) < 10


def test_an_endpoint_that_was_down_and_fails_over_a_text_is_used_for_the_others(
    endpoint: Endpoint,
) -> None:
    embedder = rested(endpoint, Clock())
    failing = saying(500, b"no numbers")
    endpoint.script = [vectors, failing, vectors, failing]
    assert embedder.embed(["a", "b"]).shape == (2, 3)


def test_an_endpoint_that_takes_nothing_is_not_asked_about_every_text(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(400, b"model was unloaded")] * 1_000
    with pytest.raises(EmbeddingError, match="model was unloaded"):
        embedder.embed([f"{number} " * 1_000 for number in range(64)])
    assert len(endpoint.asked) < 20


def test_a_wrong_key_is_an_error_at_once_and_is_not_told(endpoint: Endpoint) -> None:
    endpoint.script = [saying(401, f"Incorrect API key provided: {KEY}.".encode())]
    with pytest.raises(EmbeddingError, match="HTTP 401") as caught:
        endpoint.embedder()
    assert KEY not in f"{caught.value.message} {caught.value.suggestion} {caught.value!r}"
    assert "MEMLOG_EMBEDDER_KEY" in str(caught.value.suggestion)
    assert len(endpoint.asked) == 1


TEXT = 'Анна: the word for the safe is "open sesame"\nand nobody else knows it'


@pytest.mark.parametrize("status", [403, 404, 429, 503])
@pytest.mark.parametrize(
    "echo",
    [
        TEXT,
        json.dumps({"error": {"message": "cannot embed", "input": TEXT}}),
        json.dumps({"error": json.dumps({"input": ["else", TEXT]}, ensure_ascii=False)}),
        "no vectors for " + TEXT[:30],
        "x" * 190 + TEXT,
        "what is sesame?",
    ],
)
def test_what_an_endpoint_repeats_of_a_text_is_told_nobody(
    endpoint: Endpoint, status: int, echo: str
) -> None:
    embedder = endpoint.embedder(max_retries=0)
    endpoint.script = [saying(status, echo.encode())] * 9
    with pytest.raises(EmbeddingError, match=rf"HTTP {status}: its answer repeats what") as caught:
        embedder.embed([TEXT, "sesame"])
    assert "safe" not in caught.value.message
    assert "sesame" not in caught.value.message


def test_what_an_endpoint_says_in_words_of_its_own_is_told(endpoint: Endpoint) -> None:
    said = "You exceeded your current quota for dimensions"
    endpoint.script = [saying(403, said.encode())]
    with pytest.raises(EmbeddingError, match=said):
        endpoint.embedder()
    endpoint.script = []
    embedder = endpoint.embedder(max_retries=0)
    endpoint.script = [saying(429, said.encode())]
    with pytest.raises(EmbeddingError, match=said):
        embedder.embed(["the current one", "me", "for"])


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://u:pw@elsewhere/v1/embeddings?key=pw", r"https://elsewhere/v1/embeddings$"),
        ("/v2/embeddings", r"http://127\.0\.0\.1:\d+/v2/embeddings$"),
        ("http://[", "no address"),
    ],
)
def test_a_redirect_is_told_and_not_followed_with_the_key(
    endpoint: Endpoint, location: str, told: str
) -> None:
    endpoint.script = [saying(302, b"<html>Found</html>", Location=location)]
    with pytest.raises(EmbeddingError, match=f"HTTP 302, it redirects to {told}"):
        endpoint.embedder()
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    ("error", "setting"),
    [
        (ssl.SSLCertVerificationError("self-signed certificate"), "SSL_CERT_FILE"),
        (ssl.SSLError("wrong version number"), "MEMLOG_EMBEDDER_URL begins with http://"),
        (ConnectionRefusedError("refused"), "up"),
    ],
)
def test_a_connection_that_fails_is_told_with_what_to_do(
    endpoint: Endpoint, error: OSError, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object, **__: object) -> None:
        raise URLError(error)

    embedder = endpoint.embedder(max_retries=0)
    monkeypatch.setattr(OpenerDirector, "open", refusing)
    with pytest.raises(EmbeddingError) as caught:
        embedder.embed(["a"])
    assert setting in str(caught.value.suggestion)


def test_however_often_an_endpoint_is_asked_again_the_pauses_stay_bounded(
    endpoint: Endpoint,
) -> None:
    embedder = endpoint.embedder(max_retries=1_100)
    endpoint.script = [saying(503, b"busy")] * 1_101
    with pytest.raises(EmbeddingError, match="failed 1101 times"):
        embedder.embed(["a"])
    assert max(endpoint.pauses) <= 20


def test_an_endpoint_that_does_not_answer_in_time_is_asked_again(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder(timeout_seconds=0.2)
    stalled = threading.Event()

    def late(texts: list[str]) -> Answer:
        stalled.wait()
        return vectors(texts)

    endpoint.script = [late]
    try:
        assert embedder.embed(["a"]).shape == (1, 3)
    finally:
        stalled.set()
    assert endpoint.pauses


def taking_seconds_a_text(seconds: float, timeout_seconds: float) -> Any:
    """An endpoint that does one text after another, and the clock that it goes by; its proxy tells of a time-out."""
    now = 0.0

    def answer(texts: list[str]) -> Answer:
        nonlocal now
        now += min(seconds * len(texts), timeout_seconds)
        if seconds * len(texts) > timeout_seconds:
            return saying(504, b"upstream timed out")
        return vectors(texts)

    return answer, lambda: now


def test_an_endpoint_that_is_slow_is_given_as_many_texts_as_it_does_in_time(
    endpoint: Endpoint,
) -> None:
    slow, clock_seconds = taking_seconds_a_text(5, 30)
    embedder = endpoint.embedder(clock_seconds=clock_seconds)
    endpoint.script = [slow] * 1_000
    texts = [f"{number:03}" for number in range(64)]
    found = embedder.embed(texts)
    assert found.shape == (64, 3)
    sizes = [len(asked["body"]["input"]) for asked in endpoint.asked[1:]]
    assert sizes == [32, 16, 8, *[4] * 16]
    endpoint.script = []
    assert np.array_equal(found, embedder.embed(texts))
    assert len(endpoint.asked[-1]["body"]["input"]) == 32, "it is quick again"


def test_an_endpoint_that_gave_no_answer_in_time_is_asked_for_one_text_after_its_rest(
    endpoint: Endpoint,
) -> None:
    now = 0.0
    embedder = endpoint.embedder(max_retries=0, clock_seconds=lambda: now)
    endpoint.script = [saying(503), saying(504), vectors, saying(504)]
    for _ in range(2):
        with pytest.raises(EmbeddingError, match="failed once: HTTP 50"):
            embedder.embed(["a"] * 32)
        now += RETRY_SECONDS
    embedder.embed(["a"] * 32)
    assert [len(asked["body"]["input"]) for asked in endpoint.asked[1:]] == [32, 1, 1, 32, 16, 16]


def test_several_texts_that_do_not_come_in_time_are_asked_for_by_themselves(
    endpoint: Endpoint,
) -> None:
    over = threading.Event()

    def answer(texts: list[str]) -> Answer:
        if len(texts) > 1:
            over.wait()
        return vectors(texts)

    embedder = endpoint.embedder(timeout_seconds=0.5)
    endpoint.script = [answer] * 100
    try:
        assert embedder.embed(["a", "b"]).shape == (2, 3)
    finally:
        over.set()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_answer_that_comes_byte_by_byte_is_waited_for_no_longer_than_another(
    endpoint: Endpoint, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scheme == "https":
        monkeypatch.setattr(ssl, "_create_default_https_context", ssl._create_unverified_context)
        speak_tls(endpoint, tmp_path)
    embedder = endpoint.embedder(timeout_seconds=1.0, max_retries=0)
    over = threading.Event()

    def bytes_one_by_one() -> Iterator[bytes]:
        while not over.wait(0.05):
            yield b" "

    endpoint.script = [saying(200, bytes_one_by_one())]
    try:
        with pytest.raises(EmbeddingError, match="TimeoutError"):
            embedder.embed(["a"])
    finally:
        over.set()
    assert embedder.dimensions == 3


def speak_tls(endpoint: Endpoint, folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate_of_its_own(folder))
    endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
    endpoint.url = endpoint.url.replace("http:", "https:")


@pytest.fixture
def proxy(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """Of the environment, for all hosts."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with endpoint_up() as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        yield server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_endpoint_on_this_machine_is_asked_without_a_proxy(
    endpoint: Endpoint, proxy: Endpoint, host: str
) -> None:
    proxy.script = [saying(502)]
    url = endpoint.url.replace("127.0.0.1", host)
    assert endpoint.embedder(base_url=url, max_retries=0).dimensions == 3
    assert proxy.asked == []


@pytest.mark.parametrize("status", [403, 502])
def test_a_failure_behind_a_proxy_is_told_with_the_proxy(proxy: Endpoint, status: int) -> None:
    proxy.script = [saying(status, b"blocked by policy")]
    with pytest.raises(EmbeddingError, match="blocked by policy") as caught:
        proxy.embedder(base_url="http://elsewhere.invalid/v1", max_retries=0)
    assert "NO_PROXY" in str(caught.value.suggestion)
    assert proxy.asked[0]["path"] == "http://elsewhere.invalid/v1/embeddings"


@pytest.mark.parametrize("head", [b"X-Odd: 1\r\n", b"X-", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_head_without_end_is_an_error(head: bytes) -> None:
    """Line by line, byte by byte, or one after the other."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):
                connection.recv(65_536)
                connection.sendall(b"" if head.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n")
                while not over.wait(0.05):
                    connection.sendall(head)

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        try:
            with pytest.raises(EmbeddingError, match="failed once"):
                OpenAI("small", base_url=url, max_retries=0, timeout_seconds=0.5)
        finally:
            over.set()
            answering.join()


@pytest.mark.parametrize("headers", [{}, {"Content-Length": "100000000000"}])
def test_an_answer_without_end_is_an_error_and_is_not_kept(
    endpoint: Endpoint, headers: dict[str, str]
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [(200, headers, repeat(b" " * 65_536))] * 2
    with pytest.raises(EmbeddingError, match="more than 1048960 bytes for 2 texts") as caught:
        embedder.embed(["a", "b"])
    assert caught.value.suggestion
    assert embedder.embed(["a"]).shape == (1, 3)


def test_an_answer_that_breaks_off_is_asked_for_again(endpoint: Endpoint) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [(200, {"Content-Length": "1000"}, iter([b'{"data": [']))]
    assert embedder.embed(["a"]).shape == (1, 3)
    assert len(endpoint.pauses) == 1


def test_a_wide_answer_with_much_white_space_is_taken(endpoint: Endpoint) -> None:
    def answer(texts: list[str]) -> Answer:
        numbers = [-1.2345678901234567e-05 * (each + 1) for each in range(8_000)]
        rows = [{"index": index, "embedding": numbers} for index in range(len(texts))]
        return saying(200, json.dumps({"data": rows}, indent=8).encode())

    endpoint.script = [answer] * 2
    assert endpoint.embedder().embed(["x"] * 32).shape == (32, 8_000)


def test_an_endpoint_that_cannot_be_reached_is_named() -> None:
    with pytest.raises(EmbeddingError, match=r"http://127\.0\.0\.1:9/v1/embeddings failed once: "):
        OpenAI("small", base_url="http://127.0.0.1:9/v1", max_retries=0)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"<html>welcome</html>", "no list of embeddings"),
        (b'{"error": {"message": "no such model"}}', "no list of embeddings .*no such model"),
        (b'{"error": "Unexpected endpoint. Returning 200 anyway"}', "Unexpected endpoint"),
        (b'{"error": "what is sesame?"}', "its answer repeats what it was asked"),
        (b'{"usage":' + b"[" * 100_000, "no list of embeddings"),
        (b'{"data":[]}', "0 vectors for 1 texts"),
        (b'{"data":[{"index":1,"embedding":[1,2,3]}]}', r"numbered \[1\]"),
        (b'{"data":[{"index":0,"embedding":[1,2]}]}', "2 dimensions, where 3 were expected"),
        (b'{"data":[{"index":0,"embedding":[]}]}', "0 dimensions, where 3 were expected"),
    ],
)
def test_an_answer_that_is_no_vectors_is_an_error(
    endpoint: Endpoint, answer: bytes, words: str
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [saying(200, answer)]
    with pytest.raises(EmbeddingError, match=words) as caught:
        embedder.embed(["sesame"])
    assert caught.value.suggestion
    assert "sesame" not in caught.value.message


def test_where_an_endpoint_has_a_model_of_another_width_by_now_it_is_told_what_to_do(
    endpoint: Endpoint,
) -> None:
    embedder = endpoint.embedder()
    endpoint.script = [lambda texts: numbers(texts, [1, 2])]
    with pytest.raises(EmbeddingError, match="of 2 dimensions, where 3 were") as raised:
        embedder.embed(["odd"])
    assert "start it again" in str(raised.value.suggestion)


def test_texts_that_endpoints_refuse_are_made_to_fit(endpoint: Endpoint) -> None:
    endpoint.embedder().embed(["", " \n", "€" * 100_000, "plain"])
    empty, blank, long, plain = endpoint.asked[-1]["body"]["input"]
    assert empty.strip()
    assert blank.strip()
    assert set(long) == {"€"}
    assert TEXT_BYTES_MAX - 3 < len(long.encode()) <= TEXT_BYTES_MAX
    assert plain == "plain"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:11434",
        "file:///etc/passwd",
        "http://",
        "http://u:pw@host/v1",
        "http://h:x/",
        "http://127.0.0.1:9/my models/v1?key=pw",
        "http://127.0.0.1:9/v1?key=pw&version=1 2",
    ],
)
def test_an_address_that_is_none_is_refused_without_quoting_it(address: str) -> None:
    with pytest.raises(EmbeddingError, match="must look like") as caught:
        OpenAI("small", base_url=address)
    assert "pw" not in caught.value.message.replace("password", "")


def test_a_key_that_no_header_takes_is_refused_without_quoting_it(endpoint: Endpoint) -> None:
    with pytest.raises(EmbeddingError, match="characters that no key has") as caught:
        endpoint.embedder(api_key="sk-one\nsk-two")
    assert "sk-" not in f"{caught.value.message} {caught.value.suggestion}"
    assert endpoint.asked == []
