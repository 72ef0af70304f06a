"""Another embedder over the same memory: words keep answering, the old vectors serve until the new are there."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from memlog.settings import Settings
from projections import check, embeddings
from projections.embedding import Embedder, EmbedderSpec
from projections.embedding import open_embedder as opened_really
from projections.follow import Projections
from projections.search import questions
from projections.vectors.folders import Use
from projections.vectors.index import Vectors
from projections.vectors.projector import VectorProjector
from server import following, service
from server.cli import doctor
from tests.command_line import CommandLine
from tests.embedder_by_hash import ByHash, opened_by_hash
from tests.endpoint import KEY, Endpoint, endpoint_up, saying, turned
from tests.idle_follower import Idle
from tests.served import DEADLINE_S, FOLLOWED_S, REPOSITORY
from tests.service import Client, client_on

TOLD = [f"e{number:03}" for number in range(70)]
"""More than a batch of entries."""


def opened(spec: EmbedderSpec) -> Embedder | None:
    """A real endpoint, else by hash."""
    return opened_really(spec) if spec.backend == "openai" else opened_by_hash(spec)


@pytest.fixture(autouse=True)
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is embedded but what a test asks for; what is stored is taken up however long that takes."""
    monkeypatch.setattr(service, "Follower", Idle)
    monkeypatch.setattr(questions, "PREVIOUS_SECONDS", DEADLINE_S)
    for mode in questions.PATIENCE_SECONDS:
        monkeypatch.setitem(questions.PATIENCE_SECONDS, mode, 0.0)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with endpoint_up() as server:
        yield server


def on(data_dir: Path, model: str, **settings: Any) -> AbstractContextManager[Client]:
    return client_on(data_dir, **{"embedder": "minilm", "embedder_model": model, **settings})


def tell(client: Client, *names: str) -> None:
    entities = [{"name": n, "entityType": "thing", "observations": [f"fact of {n}"]} for n in names]
    client("create_entities", entities=entities)


def asked(client: Client, name: str, mode: str = "semantic") -> tuple[str, str]:
    """The first that is found by the very text of `name`, and the notice."""
    answer = client("search_nodes", query=f"{name}: fact of {name}", mode=mode)
    return next((each["name"] for each in answer["entities"]), ""), answer.get("notice", "")


def complete(client: Client) -> None:
    """As the follower does."""
    projections = client.service.open("default").projections
    projections.vectors()
    projections.save()


def folders(data_dir: Path) -> list[str]:
    return sorted(path.name.split("-", 2)[2] for path in data_dir.glob("projects/*/vectors-v*"))


def remembered(data_dir: Path, model: str, **settings: Any) -> None:
    with on(data_dir, model, **settings) as client:
        tell(client, *TOLD)
        complete(client)


def require_as_rebuilt(client: Client) -> None:
    assert check.compare(client.service.open("default").projections, "vectors")


@pytest.mark.usefixtures("impatient")
def test_the_vectors_before_serve_until_the_new_are_complete_and_then_go(tmp_path: Path) -> None:
    remembered(tmp_path, "old")
    with on(tmp_path, "new") as client:
        for mode in ("semantic", "hybrid"):
            found, notice = asked(client, "e042", mode)
            assert found == "e042"
            assert "with the embedder before, by-hash-old, up to event 141" in notice
            assert "by-hash-new, is embedding: its vectors are there for 0 of 141 events" in notice
        tell(client, "later")
        assert asked(client, "later", "hybrid")[0] == "later"  # by words
        assert folders(tmp_path) == ["by-hash-new", "by-hash-old"]
        complete(client)
        assert asked(client, "later") == ("later", "")
        assert folders(tmp_path) == ["by-hash-new"]
        require_as_rebuilt(client)


@pytest.mark.usefixtures("impatient")
def test_for_the_vectors_before_no_text_is_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered(tmp_path, "old")
    texts: list[str] = []

    class Counted(ByHash):
        def embed(self, some: Sequence[str]) -> Vectors:
            texts.extend(some)
            return super().embed(some)

    monkeypatch.setattr(embeddings, "open_embedder", lambda spec: Counted(spec.model or ""))
    with on(tmp_path, "new") as client:
        tell(client, "later", "latest")
        _, notice = asked(client, "e069")
        assert "up to event 141" in notice
        assert set(texts) == {"e069: fact of e069"}


@pytest.mark.usefixtures("impatient")
def test_without_anything_known_of_the_embedder_before_words_answer(tmp_path: Path) -> None:
    remembered(tmp_path, "old")
    for file in tmp_path.glob("embeddings/*.json"):
        file.write_text("{")
    with on(tmp_path, "new") as client:
        found, notice = asked(client, "e042", "hybrid")
        assert found == "e042"
        assert notice.startswith("The newest 141 events are searched by words only")
        stored = client("store_memory", content="The answer is 42")
        assert stored["notice"].startswith("Similar memories may be missing. The newest 141 events")


PARTNER = """
import sys
from pathlib import Path
import projections.embeddings
from tests import test_embedder_changed as steps
from tests.embedder_by_hash import opened_by_hash

projections.embeddings.open_embedder = opened_by_hash
with steps.on(Path(sys.argv[1]), "one") as client:
    for line in sys.stdin:
        step, *names = line.split()
        print(*(getattr(steps, step)(client, *names) or ()), flush=True)
"""


@contextmanager
def partner(data_dir: Path) -> Iterator[Callable[[str], str]]:
    """Another process over the directory, whose embedder is `one`; does a step and says what came of it."""
    arguments = [sys.executable, "-c", PARTNER, str(data_dir)]
    with subprocess.Popen(
        arguments, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        source, sink = process.stdout, process.stdin

        def does(step: str) -> str:
            print(step, file=sink, flush=True)
            return source.readline().strip()

        ended = threading.Timer(DEADLINE_S, process.kill)
        ended.start()
        yield does
        sink.close()
        assert process.wait() == 0
        ended.cancel()


def test_settings_that_differ_between_processes_leave_each_its_vectors(tmp_path: Path) -> None:
    remembered(tmp_path, "one")
    with on(tmp_path, "other") as other:
        with partner(tmp_path) as one:
            one("complete")
            complete(other)
            assert folders(tmp_path) == ["by-hash-one", "by-hash-other"]
            one("tell said-by-one")
            tell(other, "said-by-other")
            one("complete")
            complete(other)
            assert folders(tmp_path) == ["by-hash-one", "by-hash-other"]
            for name in ("said-by-one", "said-by-other"):
                assert asked(other, name) == (name, "")
                assert one(f"asked {name}") == name
        complete(other)
        assert folders(tmp_path) == ["by-hash-other"]
        require_as_rebuilt(other)
    with partner(tmp_path) as one:
        one("complete")
        assert folders(tmp_path) == ["by-hash-one"]
        assert one("asked said-by-other") == "said-by-other"


DYING = """
import os, sys
from pathlib import Path
import projections.embeddings
from tests.embedder_by_hash import ByHash
from tests.service import client_on

class Dying(ByHash):
    batches = 0
    def embed(self, texts):
        Dying.batches += 1
        if Dying.batches == 3:
            os._exit(9)
        return super().embed(texts)

projections.embeddings.open_embedder = lambda spec: Dying(spec.model)
with client_on(Path(sys.argv[1]), embedder="minilm", embedder_model="new") as client:
    client.service.open("default").projections.vectors()
"""


@pytest.mark.usefixtures("impatient")
def test_a_kill_amid_the_change_leaves_the_vectors_before_in_service(tmp_path: Path) -> None:
    remembered(tmp_path, "old")
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path)],
        cwd=REPOSITORY,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 9
    with on(tmp_path, "new") as client:
        assert asked(client, "e042")[0] == "e042"
        assert "with the embedder before, by-hash-old" in asked(client, "e042")[1]
        complete(client)
        assert asked(client, "e042") == ("e042", "")
        assert folders(tmp_path) == ["by-hash-new"]
        require_as_rebuilt(client)


def test_a_dead_endpoint_is_asked_once_and_the_vectors_before_serve(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    remembered(tmp_path, "old")
    endpoint.script = [saying(500, b"out of order")] * 9
    settings = {"embedder": "openai", "embedder_url": endpoint.url, "embedder_retries": 0}
    with on(tmp_path, "small", **settings) as client:
        _, notice = asked(client, "e042")
        assert "HTTP 500: out of order" in notice
        for mode in ("semantic", "hybrid"):
            found, notice = asked(client, "e042", mode)
            assert found == "e042"
            assert "with the embedder before, by-hash-old" in notice
            assert "left alone for another" in notice
        with click.Context(doctor.doctor_command):
            report = doctor._embedder(client.service)
        assert "HTTP 500: out of order" in report["state"]
    assert len(endpoint.asked) == 1


def test_an_endpoint_that_dies_later_is_told_and_words_answer(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    settings = {"embedder": "openai", "embedder_url": endpoint.url, "embedder_retries": 0}
    with on(tmp_path, "small", **settings) as client:
        tell(client, "first")
        complete(client)
        endpoint.script = [saying(503, b"away")] * 9
        asked_before = len(endpoint.asked)
        for _ in range(3):
            found, notice = asked(client, "first", "hybrid")
            assert found == "first"
            assert notice.startswith("Searched by words only: ")
            assert "HTTP 503: away" in notice
        assert len(endpoint.asked) == asked_before + 1


@pytest.mark.usefixtures("impatient")
def test_the_key_of_an_endpoint_goes_to_the_address_it_was_set_for_alone(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    settings = {"embedder": "openai", "embedder_url": endpoint.url, "embedder_key": KEY}
    remembered(tmp_path, "small", **settings)
    written = b"".join(path.read_bytes() for path in tmp_path.glob("embeddings/*.json"))
    assert endpoint.url.encode() in written
    assert KEY.encode() not in written
    with endpoint_up() as elsewhere:
        settings |= {"embedder_url": elsewhere.url, "embedder_key": f"{KEY}-of-elsewhere"}
        with on(tmp_path, "large", **settings) as client:
            assert "with the embedder before, openai-small" in asked(client, "e042")[1]
    assert "Authorization" not in endpoint.asked[-1]["headers"]
    settings |= {"embedder_url": endpoint.url, "embedder_key": KEY}
    with on(tmp_path, "large", **settings) as client:
        assert "with the embedder before, openai-small" in asked(client, "e042")[1]
    assert endpoint.asked[-1]["headers"]["Authorization"] == f"Bearer {KEY}"


@pytest.mark.usefixtures("impatient")
def test_another_model_of_the_same_width_at_the_same_endpoint_embeds_all_anew(
    tmp_path: Path, endpoint: Endpoint
) -> None:
    settings = {"embedder": "openai", "embedder_url": endpoint.url}
    remembered(tmp_path, "small", **settings)
    first = folders(tmp_path)
    endpoint.script = [turned] * 1_000
    with on(tmp_path, "small", **settings) as client:
        client.service.embeddings.get()
        found, notice = asked(client, "e042", "hybrid")
        assert found == "e042"
        assert "The newest 141 events are searched by words only" in notice
        complete(client)
        assert asked(client, "e042")[1] == ""
        assert len(folders(tmp_path)) == 1
        assert folders(tmp_path) != first
        require_as_rebuilt(client)


def test_what_an_address_carries_besides_is_not_written_down(tmp_path: Path) -> None:
    from projections.embedding.described import description_of

    spec = EmbedderSpec(backend="openai", cache_dir=tmp_path, base_url="http://h:1/v1?key=x#y")
    assert description_of(spec).base_url == "http://h:1/v1"


def test_what_is_written_down_about_an_embedder_may_be_damaged(tmp_path: Path) -> None:
    with on(tmp_path, "old") as client:
        tell(client, "e001")
        assert asked(client, "e001")[0] == "e001"
    known = tmp_path / "embeddings" / "by-hash-old.json"
    written = known.read_bytes()
    known.write_bytes(b'{"backend":"minilm","model":"\xff"}')
    with on(tmp_path, "old") as client:
        assert asked(client, "e001") == ("e001", "")
    assert known.read_bytes() == written


@pytest.mark.usefixtures("impatient")
def test_the_doctor_counts_what_each_embedder_has_of_a_project(tmp_path: Path) -> None:
    remembered(tmp_path, "old")
    with on(tmp_path, "new") as client:
        tell(client, "later")
        client.service.embeddings.get().vectors(["e001: fact of e001"])
        report = doctor._project(client.service, client.service.store.find("default"))
    assert report["vectors"] == {
        "by-hash-new": {"embedded": 1, "pending": 141},
        "by-hash-old": {"embedded": 140, "pending": 2},
    }
    said = CommandLine(tmp_path)("doctor", MEMLOG_EMBEDDER="minilm", MEMLOG_EMBEDDER_MODEL="new")
    assert "vectors of by-hash-old: 140 texts embedded, 2 pending" in said.stdout


@pytest.mark.usefixtures("impatient")
def test_a_bulk_of_texts_is_found_by_words_at_once_and_by_meaning_as_vectors_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(questions.PATIENCE_SECONDS, "hybrid", DEADLINE_S)
    monkeypatch.setattr(questions, "WAITED_EVENTS_MAX", 100)
    monkeypatch.setattr(questions, "BEHIND_SECONDS", 0.0)
    with on(tmp_path, "only") as client:
        tell(client, *TOLD)
        for name in (TOLD[0], TOLD[-1]):
            found, notice = asked(client, name, "hybrid")
            assert found == name
            assert notice.startswith("The newest 141 events are searched by words only")
        assert asked(client, TOLD[0])[0] == ""
        projections = client.service.open("default").projections
        projections.drive(projections.vectors(0.0), until=64)
        found, notice = asked(client, TOLD[0])
        assert found == TOLD[0]
        assert notice.startswith("The newest 77 events are searched by words only")
        past = {"query": f"{TOLD[0]}: fact of {TOLD[0]}", "mode": "semantic"}
        one_behind = client("search_nodes", asOf=65, **past)["notice"]
        assert one_behind.startswith(
            "The newest event is searched by words only: its text is still"
        )
        then = client("search_nodes", asOf=64, **past)  # all that there was then has its vector
        assert (then["entities"][0]["name"], "notice" in then) == (TOLD[0], False)
        assert asked(client, TOLD[-1], "hybrid")[0] == TOLD[-1]
        assert asked(client, TOLD[-1], "hybrid")[1] == ""  # so few that it was worth the wait


@pytest.mark.usefixtures("impatient")
def test_a_search_does_not_wait_longer_than_it_would_for_a_batch_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(questions.PATIENCE_SECONDS, "hybrid", 0.05)
    begun, answered = threading.Event(), threading.Event()

    class Stuck(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if len(texts) > 1:
                begun.set()
                assert answered.wait(DEADLINE_S)
            return super().embed(texts)

    monkeypatch.setattr(embeddings, "open_embedder", lambda spec: Stuck())
    with on(tmp_path, "") as client:
        tell(client, *TOLD)
        working = threading.Thread(target=complete, args=[client])
        working.start()
        assert begun.wait(DEADLINE_S)
        try:
            found, notice = asked(client, "e042", "hybrid")
            assert not answered.is_set()
            assert found == "e042"
            assert notice.startswith("The newest 141 events are searched by words only")
        finally:
            answered.set()
            working.join()
        assert asked(client, "e042", "hybrid")[1] == ""


def test_a_search_that_finds_texts_waiting_sets_the_follower_to_work(tmp_path: Path) -> None:
    remembered(tmp_path, "old")
    told = threading.Event()

    def saved(save: Callable[..., None]) -> Callable[..., None]:
        def done(patience_seconds: float = DEADLINE_S) -> None:
            save(patience_seconds)
            told.set()

        return done

    with on(tmp_path, "new") as client:
        projections = client.service.open("default").projections
        projections.save = saved(projections.save)  # type: ignore[method-assign]
        asked(client, "e042", "hybrid")
        assert told.wait(FOLLOWED_S)
        vectors, head = projections.vectors_so_far()
        assert vectors.position == head
        assert folders(tmp_path) == ["by-hash-new"]


def test_a_server_ends_without_waiting_for_all_texts_to_be_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SLICE_SECONDS", 0.05)
    running = service.Service(Settings(data_dir=tmp_path, embedder="minilm"))
    follower, begun = running._follower._vectors, threading.Event()
    batches: list[int] = []

    class Slow(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            batches.append(len(texts))
            begun.set()
            with follower._changed:
                assert follower._changed.wait_for(lambda: follower.stopping, DEADLINE_S)
            time.sleep(0.06)  # longer than a slice
            return super().embed(texts)

    monkeypatch.setattr(embeddings, "open_embedder", lambda spec: Slow())
    tell(Client(running), *TOLD)
    assert begun.wait(DEADLINE_S)
    running.close()
    assert sum(batches) < 2 * len(TOLD)


def test_a_process_that_starts_has_all_that_was_embedded_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is more than is waited for otherwise, and too little for a snapshot."""
    embedded: list[int] = []
    embed = ByHash.embed

    def counted(self: ByHash, texts: Sequence[str]) -> Vectors:
        embedded.append(len(texts))
        return embed(self, texts)

    monkeypatch.setattr(questions, "BEHIND_SECONDS", DEADLINE_S)
    with on(tmp_path, "only") as client:
        names = [f"n{number}" for number in range(questions.WAITED_EVENTS_MAX)]
        tell(client, *names)
        complete(client)
    with on(tmp_path, "only") as client:
        vectors, head = client.service.open("default").projections.vectors_so_far()
        assert vectors.position < head
        monkeypatch.setattr(ByHash, "embed", counted)
        assert asked(client, names[-1], "hybrid") == (names[-1], "")
    assert embedded == [1], "the question alone"


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_a_process_that_starts_has_all_of_it_while_another_uses_those_of_another_embedder(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command line does beside a server of other settings: nothing of it lives for long."""
    monkeypatch.setattr(service, "Follower", Idle)
    monkeypatch.setattr(questions, "WAITED_EVENTS_MAX", 100)
    monkeypatch.setattr(questions, "BEHIND_SECONDS", DEADLINE_S)
    remembered(tmp_path, "served")
    (folder,) = tmp_path.glob("projects/*/vectors-v*")
    used = Use(folder)
    try:
        with on(tmp_path, "present") as client:
            complete(client)
        assert folders(tmp_path) == ["by-hash-present", "by-hash-served"]
        with on(tmp_path, "present") as client:
            assert asked(client, "e042", mode) == ("e042", "")
    finally:
        used.end()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_only_the_first_search_waits_where_vectors_of_the_embedder_before_serve(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower goes on with the new ones, which may take minutes."""
    waited: list[float] = []
    vectors = Projections.vectors

    def timed(self: Projections, patience_seconds: float = math.inf) -> VectorProjector:
        waited.append(patience_seconds)
        return vectors(self, 0.0)

    monkeypatch.setattr(questions, "WAITED_EVENTS_MAX", 100)
    remembered(tmp_path, "old")
    with on(tmp_path, "new") as client:
        monkeypatch.setattr(Projections, "vectors", timed)
        for _ in range(3):
            found, notice = asked(client, "e042", mode)
            assert (found, "by-hash-old" in notice) == ("e042", True)
    assert waited == [questions.BEHIND_SECONDS, 0.0, 0.0]
