"""An embedder that takes its time, to be loaded or to answer: nobody waits for it who can do without."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memlog.errors import EmbeddingError
from memlog.patience import require_patience
from memlog.settings import Settings
from projections import embeddings, loading
from projections.embedding import Embedder, EmbedderSpec, rest
from projections.embedding.rest import Rest
from projections.embeddings import Embeddings
from projections.search import asking, questions
from projections.vectors.index import Vectors
from server import following
from server.following import Follower, _Rounds
from tests.embedder_by_hash import ByHash
from tests.endpoint import Answer, endpoint_up, saying, vectors
from tests.served import served
from tests.service import Client, Refused, client_on

IN_VAIN_SECONDS = 0.2
WAITING_SECONDS_MAX = 60.0


class Slow:
    """Opens an embedder, or lets it answer, when it is told to; counts what it was asked for."""

    def __init__(self) -> None:
        self.opening, self.answering = threading.Event(), threading.Event()
        self.opening.set()
        self.answering.set()
        self.opened = 0
        self.asked: list[str] = []

    def open(self, spec: EmbedderSpec) -> Embedder:
        self.opened += 1
        assert self.opening.wait(WAITING_SECONDS_MAX)
        return _Answering(self)


class _Answering(ByHash):
    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self._slow = slow

    def embed(self, texts: Sequence[str]) -> Vectors:
        require_patience()
        self._slow.asked += texts
        assert self._slow.answering.wait(WAITING_SECONDS_MAX)
        return super().embed(texts)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(embeddings, "open_embedder", slow.open)
    for mode in questions.LOADING_SECONDS:
        monkeypatch.setitem(questions.LOADING_SECONDS, mode, IN_VAIN_SECONDS)
    yield slow
    slow.opening.set()
    slow.answering.set()


def tell(client: Client, name: str = "Ada") -> None:
    entity = {"name": name, "entityType": "person", "observations": [f"{name} sings"]}
    client("create_entities", entities=[entity])


def asked(client: Client, query: str, mode: str = "hybrid") -> tuple[list[str], str]:
    answer = client("search_nodes", query=query, mode=mode)
    return [each["name"] for each in answer["entities"]], answer.get("notice", "")


def test_words_answer_while_the_embedder_is_being_loaded_and_meaning_afterwards(
    tmp_path: Path, slow: Slow
) -> None:
    slow.opening.clear()
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client)
        for _ in range(2):
            names, notice = asked(client, "sings")
            assert names == ["Ada"]
            assert notice.startswith("Searched by words only: The embedder is still being loaded")
        with pytest.raises(Refused, match="still being loaded"):
            asked(client, "sings", "semantic")
        slow.opening.set()
        client.service.embeddings.get()
        assert asked(client, "Ada: Ada sings", "semantic") == (["Ada"], "")
    assert slow.opened == 1


def test_a_service_ends_while_its_embedder_is_being_loaded_and_keeps_nothing_of_it(
    tmp_path: Path, slow: Slow
) -> None:
    slow.opening.clear()
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client)
        asked(client, "sings")
        loading = client.service.embeddings
    slow.opening.set()
    with pytest.raises(EmbeddingError, match="needed no more"):
        loading.get()
    assert not [*tmp_path.glob("embeddings/*.mdb")]


def test_what_was_erased_does_not_wait_for_an_embedder_that_is_being_loaded(
    tmp_path: Path, slow: Slow
) -> None:
    slow.opening.clear()
    known = Embeddings(Settings(data_dir=tmp_path, embedder="minilm"))
    with pytest.raises(EmbeddingError, match="still being loaded"):
        known.soon(IN_VAIN_SECONDS)
    known.forget(["Ada sings"])
    slow.opening.set()
    assert known.get().vectors(["Ada sings"]).shape == (1, ByHash.dimensions)
    known.close()


def test_an_embedder_that_fails_is_loaded_again_when_its_rest_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    opened: list[str] = []

    def open_embedder(spec: EmbedderSpec) -> Embedder:
        opened.append(spec.backend)
        if len(opened) == 1:
            raise EmbeddingError("The weights are not there.")
        return ByHash()

    monkeypatch.setattr(embeddings, "open_embedder", open_embedder)
    known = Embeddings(Settings(data_dir=tmp_path, embedder="minilm"), lambda: now)
    with pytest.raises(EmbeddingError, match=r"^The weights are not there\.$"):
        known.soon(WAITING_SECONDS_MAX)
    now = 59.5
    with pytest.raises(EmbeddingError, match=r"not there\. It is left alone for another 1 seconds"):
        known.soon(WAITING_SECONDS_MAX)
    now = 60.0
    assert known.soon(WAITING_SECONDS_MAX) is known.get()
    assert len(opened) == 2
    known.close()


def test_words_answer_where_a_library_of_the_embedder_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was read in part only, as for lack of file handles, fails until the process ends."""
    failures = [OSError(24, "Too many open files"), AttributeError("no attribute 'matrix'")]

    def fails(_: EmbedderSpec) -> Embedder:
        raise failures.pop(0)

    monkeypatch.setattr(embeddings, "open_embedder", fails)
    monkeypatch.setattr(rest, "RETRY_SECONDS", 0.0)
    with client_on(tmp_path, embedder="minilm") as client:
        client.service._follower.stop()
        tell(client)
        for said in ("Too many open files", "no attribute 'matrix'"):
            names, notice = asked(client, "sings")
            assert (names, notice.startswith("Searched by words only")) == (["Ada"], True)
            assert said in notice
        failures += [OSError(24, "Too many open files"), AttributeError("no attribute 'matrix'")]
        for advice in ("ulimit -n", "start the server again"):
            with pytest.raises(Refused) as refused:
                asked(client, "sings", "semantic")
            assert advice in refused.value.error["suggestion"]


def test_an_embedder_whose_numpy_was_imported_in_part_is_left_alone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is imported again lacks the rest of it, and fails here and there."""
    tries: list[str] = []

    def fails(_: EmbedderSpec) -> Embedder:
        tries.append("numpy")
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(embeddings, "open_embedder", fails)
    monkeypatch.setattr(loading, "_is_half_imported", lambda package: package == "numpy")
    monkeypatch.setattr(rest, "RETRY_SECONDS", 0.0)
    with client_on(tmp_path, embedder="minilm") as client:
        client.service._follower.stop()
        tell(client)
        for _ in range(2):
            assert asked(client, "sings")[0] == ["Ada"]
        with pytest.raises(Refused) as refused:
            asked(client, "sings", "semantic")
        assert "start the server again" in refused.value.error["suggestion"]
    assert tries == ["numpy"]


def test_a_package_is_half_imported_where_parts_of_it_are_there_and_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halfway").mkdir()
    (tmp_path / "halfway" / "part.py").touch()
    (tmp_path / "halfway" / "__init__.py").write_text("from halfway import part, missing")
    monkeypatch.syspath_prepend(tmp_path)
    assert not loading._is_half_imported("halfway")
    with pytest.raises(ImportError):
        import_module("halfway")
    assert loading._is_half_imported("halfway")
    assert not loading._is_half_imported("numpy")
    del sys.modules["halfway.part"]


def test_what_keeps_a_projection_behind_is_logged_once_for_as_long_as_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    rest = Rest(lambda: now)
    rounds = _Rounds(lambda _: rest.require_over(), lambda: None, name="vectors", without="")
    project: Any = rest  # any will do
    for _ in range(2):
        rest.begin(EmbeddingError("It is away.", suggestion="Bring it back."))
        rounds._catch_up_one(project)
        now += 1
        rounds._catch_up_one(project)
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert "It is away. It is left alone for another 60 seconds. Bring it back." in told[0]
        rest.end()
        rounds._catch_up_one(project)
        caplog.clear()


def test_what_failed_is_tried_again_though_nobody_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "AGAIN_SECONDS_FIRST", 0.01)
    done = threading.Event()
    tried: list[float] = []

    def catch_up(_: object) -> None:
        tried.append(time.monotonic())
        if len(tried) < 4:
            raise EmbeddingError("It is away")
        done.set()

    rounds = _Rounds(catch_up, lambda: None, name="vectors", without="")
    project: Any = Rest(time.monotonic)  # any will do
    rounds.behind(project)
    assert done.wait(WAITING_SECONDS_MAX)
    rounds.stop()
    rounds.join(time.monotonic() + WAITING_SECONDS_MAX)
    assert len(tried) == 4
    pauses = [after - before for before, after in pairwise(tried)]
    assert all(pause >= 0.01 * 2**times for times, pause in enumerate(pauses))


@pytest.mark.parametrize("at", ["loading", "answering"])
def test_an_embedder_that_failed_keeps_no_project_that_was_put_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    # Nobody else is to fail first.
    monkeypatch.setattr(Follower, "behind", lambda *_: None)
    with endpoint_up() as endpoint:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        endpoint.script = [vectors] * (at == "answering")
        endpoint.script += [saying(500)] * 9
        settings = {"embedder": "openai", "embedder_url": endpoint.url, "embedder_retries": 0}
        with client_on(tmp_path, **settings) as client:
            tell(client)
            assert "HTTP 500" in asked(client, "who sings")[1]
            searcher = weakref.ref(client.service.open("default").searcher)
            client("archive_project", name="default")
            deadline = time.monotonic() + WAITING_SECONDS_MAX
            while searcher() is not None and time.monotonic() < deadline:
                gc.collect()  # the thread that asked may be at it for a moment
                time.sleep(0.01)
            assert searcher() is None


def test_a_question_that_is_not_answered_is_not_waited_for_nor_are_those_behind_it(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client)
        client.service.embeddings.get()  # it is loaded for as long as it takes
        assert asked(client, "Ada: Ada sings", "semantic") == (["Ada"], "")
        slow.answering.clear()
        monkeypatch.setitem(asking.ANSWER_SECONDS, "hybrid", IN_VAIN_SECONDS)
        in_time = f"The embedder does not answer within {IN_VAIN_SECONDS:g} seconds"
        behind = (
            "The embedder still does not answer an earlier question, so it was not asked this one"
        )
        assert asked(client, "who sings") == (["Ada"], f"Searched by words only: {in_time}")
        assert asked(client, "who else sings") == (["Ada"], f"Searched by words only: {behind}")
        with pytest.raises(Refused, match=behind):
            asked(client, "who else sings", "semantic")
        assert "who sings" in slow.asked
        assert "who else sings" not in slow.asked
        stored = client("store_memory", content="Ada sings on Sundays")
        assert "does not answer" in stored["notice"]
        slow.answering.set()
        monkeypatch.setitem(asking.ANSWER_SECONDS, "hybrid", WAITING_SECONDS_MAX)
        deadline = time.monotonic() + WAITING_SECONDS_MAX
        while asked(client, "who sings")[1] and time.monotonic() < deadline:
            time.sleep(0.01)  # until those that waited in vain have their answers
        assert asked(client, "who sings") == (["Ada"], "")


def test_who_asks_after_one_that_waited_in_vain_waits_a_moment_until_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = asking.Asking(lambda: None)
    let_go = threading.Event()

    def hangs() -> str:
        require_patience()
        assert let_go.wait(WAITING_SECONDS_MAX)
        raise EmbeddingError("it hung up")

    def answers() -> str:
        require_patience()
        assert let_go.wait(WAITING_SECONDS_MAX)
        return "late"

    def ask(question: Callable[[], str]) -> str:
        return waiting.answer(waiting.begin(question, "hybrid"), "hybrid")

    def rested() -> None:
        let_go.set()
        while waiting._until:
            time.sleep(0.001)
        let_go.clear()

    monkeypatch.setitem(asking.ANSWER_SECONDS, "hybrid", 0.05)
    with pytest.raises(EmbeddingError, match=r"within 0\.05 seconds"):
        ask(hangs)
    rested()
    monkeypatch.setitem(asking.ANSWER_SECONDS, "hybrid", WAITING_SECONDS_MAX)
    monkeypatch.setattr(asking, "AGAIN_SECONDS", 0.01)
    with pytest.raises(EmbeddingError, match=r"within 0\.01 seconds"):
        ask(answers)
    rested()
    threading.Timer(0.1, let_go.set).start()
    assert ask(answers) == "late"


@pytest.mark.parametrize("answers", [0, 1], ids=["loading", "embedding"])
def test_a_server_ends_while_it_waits_for_its_endpoint(tmp_path: Path, answers: int) -> None:
    asked, over = threading.Event(), threading.Event()

    def hang(texts: list[str]) -> Answer:
        asked.set()
        over.wait(WAITING_SECONDS_MAX)
        return vectors(texts)

    with endpoint_up() as endpoint:
        endpoint.script = [*[vectors] * answers, *[hang] * 9]
        with served(
            tmp_path,
            no_proxy="127.0.0.1",
            MEMLOG_EMBEDDER="openai",
            MEMLOG_EMBEDDER_URL=endpoint.url,
            MEMLOG_LOG_LEVEL="error",
        ) as server:
            ada = {"name": "Ada", "entityType": "person", "observations": ["sings"]}
            server("create_entities", entities=[ada])
            assert asked.wait(WAITING_SECONDS_MAX)
            server.close_stdin()
            assert server.end() == (0, "")
        over.set()
