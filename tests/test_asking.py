"""Which thread turns a question into a vector, and which looks for its words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memlog.errors import EmbeddingError
from memlog.patience import in_haste, require_patience, without_patience
from projections import embeddings
from projections.embedding import Embedder, EmbedderSpec, VectorCache
from projections.search import asking
from projections.search.asking import Meanwhile
from projections.text.snapshot import TextSnapshot
from projections.vectors.index import Vectors
from projections.vectors.look import Look
from tests.embedder_by_hash import ByHash
from tests.idle_follower import Idle
from tests.service import Client, client_on

WAITING_SECONDS_MAX = 60.0


class Threads:
    """Which threads asked the embedder, and which the text index."""

    def __init__(self) -> None:
        self.embedding: list[threading.Thread] = []
        self.wording: list[threading.Thread] = []
        self.side_by_side = False
        """Whether the embedder answers only once words are looked for."""
        self.looking = threading.Event()


class _Watched(ByHash):
    def __init__(self, threads: Threads, takes_long: bool) -> None:
        super().__init__()
        self._threads = threads
        self._takes_long = takes_long

    def embed(self, texts: Sequence[str]) -> Vectors:
        if self._takes_long:
            require_patience()
        self._threads.embedding.append(threading.current_thread())
        if self._threads.side_by_side:
            assert self._threads.looking.wait(WAITING_SECONDS_MAX)
        return super().embed(texts)


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower has threads of its own, and locks for which nobody in haste waits."""
    monkeypatch.setattr("server.service.Follower", Idle)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads, search = Threads(), TextSnapshot.search

    def watched(self: TextSnapshot, *given: object, **named: object) -> object:
        threads.wording.append(threading.current_thread())
        threads.looking.set()
        return search(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(TextSnapshot, "search", watched)
    return threads


@pytest.fixture(params=["a model here", "an endpoint"])
def client(
    tmp_path: Path,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Client]:
    takes_long = request.param == "an endpoint"

    def opened(spec: EmbedderSpec) -> Embedder:
        return _Watched(threads, takes_long)

    monkeypatch.setattr(embeddings, "open_embedder", opened)
    with client_on(tmp_path, embedder="minilm") as client:
        ada = {"name": "Ada", "entityType": "person", "observations": ["sings in a choir"]}
        client("create_entities", entities=[ada])
        found(client, "what was embedded before")
        threads.embedding.clear()
        threads.wording.clear()
        threads.looking.clear()
        threads.side_by_side = True
        yield client


def found(client: Client, query: str) -> None:
    answer = client("search_nodes", query=query)
    assert "notice" not in answer


@pytest.mark.parametrize(
    "haste",
    [nullcontext, partial(without_patience, WAITING_SECONDS_MAX)],
    ids=["a thread", "the event loop"],
)
@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_a_model_of_this_process_is_asked_by_who_searches_and_words_by_another_thread(
    client: Client, threads: Threads, haste: Callable[[], AbstractContextManager[None]]
) -> None:
    with haste():
        found(client, "who sings?")
    assert threads.embedding == [threading.current_thread()]
    assert len(threads.wording) == 1
    assert threads.wording != [threading.current_thread()]


@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_the_nearest_are_looked_for_while_the_words_still_are(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many texts, the words take longer than the model does."""
    near, nearest, by_words = threading.Event(), Look.nearest, TextSnapshot.search

    def looked(self: Look, *given: Any) -> Any:
        near.set()
        return nearest(self, *given)

    def slowly(self: TextSnapshot, *given: Any, **named: Any) -> Any:
        hits = by_words(self, *given, **named)
        assert near.wait(WAITING_SECONDS_MAX)
        return hits

    monkeypatch.setattr(Look, "nearest", looked)
    monkeypatch.setattr(TextSnapshot, "search", slowly)
    found(client, "who sings?")


@pytest.mark.parametrize("client", ["an endpoint"], indirect=True)
def test_what_takes_long_is_asked_by_a_thread_for_which_the_search_need_not_wait(
    client: Client, threads: Threads
) -> None:
    found(client, "who sings?")
    assert len(threads.embedding) == 1
    assert threads.embedding != [threading.current_thread()]


def test_a_text_to_be_stored_waits_for_its_turn_in_a_thread_that_need_not_be_waited_for(
    client: Client, threads: Threads
) -> None:
    threads.side_by_side = False
    client("store_memory", content="Ada sings on Sundays")
    assert threading.current_thread() not in threads.embedding
    assert len(threads.embedding) == 1


def test_a_question_whose_vector_is_known_wakes_nobody(client: Client, threads: Threads) -> None:
    found(client, "who sings?")
    threads.embedding.clear()
    threads.wording.clear()
    found(client, "who sings?")
    assert (threads.embedding, threads.wording) == ([], [threading.current_thread()])


def test_of_many_texts_the_vectors_are_compared_by_another_thread_then(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearest, by_words = Look.nearest, TextSnapshot.search
    comparing, has_begun = list[threading.Thread](), threading.Event()

    def noted(self: Look, *given: Any) -> Any:
        comparing.append(threading.current_thread())
        has_begun.set()
        return nearest(self, *given)

    def slowly(self: TextSnapshot, *given: Any, **named: Any) -> Any:
        assert has_begun.wait(WAITING_SECONDS_MAX)
        return by_words(self, *given, **named)

    monkeypatch.setattr("projections.search.searcher.ROWS_MANY", 2)
    found(client, "who sings?")
    threads.wording.clear()
    monkeypatch.setattr(Look, "nearest", noted)
    monkeypatch.setattr(TextSnapshot, "search", slowly)
    found(client, "who sings?")
    assert threads.wording == [threading.current_thread()]
    assert len(comparing) == 1
    assert comparing != threads.wording


@pytest.mark.parametrize("client", ["an endpoint"], indirect=True)
def test_words_that_were_found_before_an_endpoint_answered_are_not_looked_for_again(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    were_found, result, embed = threading.Event(), Meanwhile.result, _Watched.embed

    def told(self: Meanwhile[Any]) -> Any:
        words = result(self)
        were_found.set()
        return words

    def late(self: _Watched, texts: Sequence[str]) -> Vectors:
        require_patience()
        assert were_found.wait(WAITING_SECONDS_MAX)
        return embed(self, texts)

    monkeypatch.setattr(Meanwhile, "result", told)
    monkeypatch.setattr(_Watched, "embed", late)
    monkeypatch.setattr("projections.search.searcher.ROWS_MANY", 2)
    with ThreadPoolExecutor(1) as others:
        monkeypatch.setattr(asking, "MEANWHILE", others)
        found(client, "who sings?")
    assert len(threads.wording) == 1


@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_words_are_looked_for_once_the_newest_texts_are_being_embedded(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "BEGUN_SECONDS", WAITING_SECONDS_MAX)
    looked: list[bool] = []
    get_many = VectorCache.get_many

    def watched(self: VectorCache, texts: Sequence[str]) -> list[Vectors | None]:
        looked.append(threads.looking.is_set())
        return get_many(self, texts)

    monkeypatch.setattr(VectorCache, "get_many", watched)
    bob = {"name": "Bob", "entityType": "person", "observations": ["left the choir"]}
    client("create_entities", entities=[bob])
    found(client, "Bob: left the choir")
    assert looked == [False, False]  # before its turn to embed, and in it
    assert threads.wording == [threading.current_thread()]
    assert threading.current_thread() not in threads.embedding


@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_words_are_looked_for_where_the_newest_texts_are_not_embedded_for_long(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_many = VectorCache.get_many

    def waiting(self: VectorCache, texts: Sequence[str]) -> list[Vectors | None]:
        assert threads.looking.wait(WAITING_SECONDS_MAX)
        return get_many(self, texts)

    monkeypatch.setattr(VectorCache, "get_many", waiting)
    bob = {"name": "Bob", "entityType": "person", "observations": ["left the choir"]}
    client("create_entities", entities=[bob])
    found(client, "who left?")


@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_words_are_looked_for_where_the_newest_texts_cannot_be_embedded(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: VectorCache, texts: Sequence[str]) -> list[Vectors | None]:
        raise EmbeddingError("out of order")

    monkeypatch.setattr(asking, "BEGUN_SECONDS", None)  # for ever
    monkeypatch.setattr(VectorCache, "get_many", failing)
    bob = {"name": "Bob", "entityType": "person", "observations": ["left the choir"]}
    client("create_entities", entities=[bob])
    answer = client("search_nodes", query="choir")
    assert {each["name"] for each in answer["entities"]} == {"Ada", "Bob"}
    assert "out of order" in answer["notice"]


def test_an_endpoint_that_hangs_keeps_no_more_than_some_waiting_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "CROWDED_SECONDS", 0.01)
    answers = threading.Event()
    questions = asking.Asking(lambda: None)

    def ask() -> str:
        require_patience()
        assert answers.wait(WAITING_SECONDS_MAX)
        return "an answer"

    try:
        begun = [questions.begin(ask, "semantic") for _ in range(asking.PATIENT_MAX + 2)]
        for late in begun[asking.PATIENT_MAX :]:
            with pytest.raises(EmbeddingError, match=r"within 0\.01 seconds"):
                questions.answer(late, "semantic")
    finally:
        answers.set()
    assert {questions.answer(each, "semantic") for each in begun} == {"an answer"}


def test_where_all_threads_are_busy_it_is_done_by_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(asking, "MEANWHILE", busy)
        over = threading.Event()
        held = busy.submit(over.wait, WAITING_SECONDS_MAX)
        assert Meanwhile(threading.current_thread).begin().result() == threading.current_thread()
        over.set()
        assert held.result()


@pytest.mark.parametrize("client", ["a model here"], indirect=True)
def test_the_event_loop_that_looks_for_words_itself_is_as_hasty_afterwards(
    client: Client, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.side_by_side = False
    with ThreadPoolExecutor(1) as busy:
        monkeypatch.setattr(asking, "MEANWHILE", busy)
        over = threading.Event()
        held = busy.submit(over.wait, WAITING_SECONDS_MAX)
        with without_patience(WAITING_SECONDS_MAX):
            found(client, "who sings?")
            assert in_haste()
        over.set()
        assert held.result()
    assert threads.wording == [threading.current_thread()]


def test_what_was_not_begun_is_done_by_who_asks_for_it() -> None:
    assert Meanwhile(threading.current_thread).result() == threading.current_thread()


def test_what_was_begun_twice_is_done_once() -> None:
    done: list[int] = []
    begun = Meanwhile(done.append, 1).begin()
    begun.begin().result()
    assert done == [1]


def test_another_thread_is_as_hasty_as_the_one_that_has_it_do_something() -> None:
    def hasty_there() -> bool:
        begun.set()
        return in_haste()

    begun = threading.Event()
    with without_patience(WAITING_SECONDS_MAX):
        asked = Meanwhile(hasty_there).begin()
        assert begun.wait(WAITING_SECONDS_MAX)
        assert asked.result()


def test_another_thread_logs_under_the_id_of_the_request_for_which_it_does_something() -> None:
    def named_there() -> str:
        begun.set()
        return request.get()

    begun = threading.Event()
    request = ContextVar("request", default="")
    request.set("4a92c8bb74be1a43")
    asked = Meanwhile(named_there).begin()
    assert begun.wait(WAITING_SECONDS_MAX)
    assert asked.result() == "4a92c8bb74be1a43"
