"""No thread is to be had, as where their number or the process's memory is limited: later, or by who is there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from memlog import crew
from memlog.errors import EmbeddingError
from memlog.patience import require_patience
from memlog.settings import Settings
from projections import embeddings
from projections.embedding import EmbedderSpec, open_embedder
from projections.embedding.minilm import THREADS_MAX
from projections.embeddings import Embeddings
from projections.search import asking
from projections.search.asking import Meanwhile
from projections.text import analysis
from server.http import pace
from server.stdio.direct import Direct
from server.stdio.leaving import give_up_after
from server.stdio.lines import LineCutter
from server.stdio.solo import Solo
from server.threads import Crew, NoThread
from tests.asgi import MODERN, Answer, Client, app_over
from tests.connected import run
from tests.embedder_by_hash import opened_by_hash
from tests.http_served import HttpClient, served_http
from tests.served import DEADLINE_S, FOLLOWED_S, REPOSITORY, Era, environment, served
from tests.service import Refused, client_on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system grants such a stack")

STACK_BYTES = 2**46
"""More addresses than a process has beside what it uses."""
DEADLINE_SECONDS = 60.0


@contextmanager
def no_threads() -> Iterator[None]:
    """The system refuses each thread that this process would start."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def test_a_write_that_no_thread_can_follow_is_acknowledged_and_the_next_is_followed(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        with no_threads():
            client("create_entities", entities=[entity("Jon")])
            assert client("search_nodes", query="Jon", mode="text")["entities"]
        client("create_entities", entities=[entity("Gina")])
        projections = client.service.open("default").projections
        until = time.monotonic() + FOLLOWED_S
        while projections.positions().get("text") != projections.head():
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.mark.parametrize("module", ["projections.vectors.index", "bench.quality"])
def test_numpy_begins_no_threads_when_it_is_imported(module: str) -> None:
    """Where the system refused one, the server would be told to stop (SIGINT), and what is measured is to be what
    serves."""
    begun = f"import os, {module}; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", begun],
        capture_output=True,
        env=environment(OPENBLAS_NUM_THREADS="2"),
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout == b"1\n"


def test_a_text_index_whose_merges_got_no_thread_is_written_again(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        projections = client.service.open("default").projections
        with no_threads():
            projections.rebuild("text")
        projections.rebuild("text")
        assert projections.positions()["text"] == projections.head()


class PanicException(BaseException):
    """As tantivy has it."""


@pytest.mark.parametrize(
    "said",
    [
        PanicException(
            "Failed to spawn meta file watcher thread: "
            'Os { code: 11, kind: WouldBlock, message: "Resource temporarily unavailable" }'
        ),
        ValueError("An IO error occurred: 'Resource temporarily unavailable (os error 11)'"),
    ],
    ids=["a panic", "an error"],
)
def test_a_text_index_that_no_thread_can_serve_is_told_and_not_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: BaseException
) -> None:
    def refused(*_: Any) -> None:
        raise said

    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client.service.open("default").projections.caught_up("text")
    (index,) = tmp_path.glob("projects/*/text-v*")
    before = {each.name: each.stat().st_ino for each in index.glob("*.store")}
    with monkeypatch.context() as limited, client_on(tmp_path) as client:
        limited.setattr(analysis, "register", refused)
        with pytest.raises(Refused) as told:
            client("search_nodes", query="Jon", mode="text")
        assert "ulimit -u" in told.value.error["suggestion"]
    assert before == {each.name: each.stat().st_ino for each in index.glob("*.store")}


def test_a_model_that_no_thread_can_load_is_told_and_loaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    opened = Embeddings(Settings(data_dir=tmp_path, embedder="minilm"))
    try:
        with no_threads(), pytest.raises(EmbeddingError, match="can't start new thread"):
            opened.get()
        assert opened.get().key == "by-hash"
    finally:
        opened.close()


def test_a_model_computes_the_same_without_threads_that_help_it(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cache_dir = tmp_path_factory.mktemp("embeddings")
    texts = [f"Jon opened {number} dance studios" for number in range(40)]
    with no_threads():
        alone = open_embedder(EmbedderSpec(backend="minilm", cache_dir=cache_dir)).embed(texts)
    helped = open_embedder(EmbedderSpec(backend="minilm", cache_dir=cache_dir))
    before = len(os.listdir("/proc/self/task"))
    assert np.allclose(alone, helped.embed(texts), atol=1e-5)
    begun = len(os.listdir("/proc/self/task")) - before
    assert begun < min(THREADS_MAX, os.cpu_count() or 1)  # the tokenizer has none of its own


def test_a_question_that_no_thread_can_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MEANWHILE", crew.Crew(1))
    questions = asking.Asking(lambda: None)
    with no_threads():
        begun = questions.begin(require_patience, "semantic")
    with pytest.raises(EmbeddingError, match="can't start new thread"):
        questions.answer(begun, "semantic")
    questions.answer(questions.begin(require_patience, "semantic"), "semantic")


def test_what_no_other_thread_can_do_is_done_by_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "MEANWHILE", crew.Crew(1))
    with no_threads():
        begun = Meanwhile(threading.current_thread).begin()
    assert begun.result() == threading.current_thread()


def test_a_model_that_no_thread_can_load_ahead_is_loaded_when_it_is_asked(tmp_path: Path) -> None:
    """Else the answer after which it was to be loaded would be an error."""
    with client_on(tmp_path) as client, no_threads():
        client.service.warm_up()


def test_a_server_ends_well_where_no_thread_can_watch_its_end() -> None:
    with no_threads():
        give_up_after(DEADLINE_SECONDS)


def test_reading_that_no_thread_can_take_over_stays_where_it_was(tmp_path: Path) -> None:
    """Else nobody would read any more, and the end would wait for it."""

    async def lend(source: int, direct: Direct) -> None:
        solo = Solo.where_possible(source, LineCutter(), direct, lambda lines, ended: None)
        assert solo is not None
        with no_threads():
            assert not solo.lend()
        with anyio.fail_after(DEADLINE_SECONDS):
            await solo.wait_home()
        assert solo.lend()
        solo.recall()
        with anyio.fail_after(DEADLINE_SECONDS):
            await solo.wait_home()
        solo.close()

    source, end = os.pipe()
    with client_on(tmp_path) as client:
        direct = Direct(client.session, client.tools, on_first_answer=lambda: None)
        anyio.run(lend, source, direct)
    os.close(source)
    os.close(end)


def without_threads(folder: Path) -> dict[str, str]:
    """Variables of a server to which the system refuses each of Python's threads from its first moment on."""
    (folder / "sitecustomize.py").write_text(
        f"import threading; threading.stack_size({STACK_BYTES})"
    )
    return {"PYTHONPATH": f"{folder}:{REPOSITORY}"}


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_a_server_on_stdio_without_threads_answers_each_request_and_ends_well(
    tmp_path: Path, era: Era
) -> None:
    with served(tmp_path, era=era, **without_threads(tmp_path)) as server:
        for number in range(3):
            server.send_call("create_entities", entities=[entity(f"thing {number}")])
        last = server.send_call("open_nodes", names=["thing 0"])
        answers = [server.read() for _ in range(last - 3, last + 1)]
        server.close_stdin()
        assert server.end()[0] == 0
    for answer in answers:
        assert answer is not None
        if era == "2026-07-28":  # the SDK's way
            assert "grants the server no thread" in answer["error"]["message"]
        else:
            assert not answer["result"]["isError"]


def test_a_server_over_http_without_threads_refuses_in_words_and_goes_on(tmp_path: Path) -> None:
    with served_http(tmp_path, **without_threads(tmp_path)) as server:
        assert server.get("/healthz").status == 200
        client = HttpClient(server)
        for tool, arguments in [
            ("create_entities", {"entities": [entity("Jon")]}),
            ("read_graph", {}),
        ]:
            answer = client.request("tools/call", name=tool, arguments=arguments)
            assert "grants the server no thread" in answer.json["error"]["message"]
        metrics = server.get("/metrics")
        assert metrics.status == 503
        assert "grants the server no thread" in metrics.json["error"]["message"]
        assert server.end() == 0


@pytest.mark.parametrize("seconds", [2 * pace.TURN_SECONDS, 2 * pace.ALONE_SECONDS])
def test_a_read_over_http_for_which_no_thread_is_granted_is_done_by_one_that_is_there(
    seconds: float, tmp_path: Path
) -> None:
    async def scenario() -> Answer:
        async with app_over(tmp_path) as app:
            client = Client(app, MODERN)
            await client.open()
            await client.call("create_entities", {"entities": [entity("Jon")]})
            app._pace._alone = lambda: False
            app._pace.took("read_graph", seconds)
            with no_threads():
                return await client.call("read_graph", {})

    answer = run(scenario)
    assert (answer.status, b"fact of Jon" in answer.body) == (200, True)


def test_what_was_handed_to_no_thread_is_not_run_by_one_that_comes_later() -> None:
    ran: list[int] = []
    with Crew(1) as crew:
        with no_threads(), pytest.raises(NoThread, match="can't start new thread"):
            crew.submit(ran.append, 1)
        crew.submit(ran.append, 2).result(DEADLINE_SECONDS)
    assert ran == [2]


def test_where_no_more_threads_are_granted_those_that_are_there_do_all() -> None:
    going = threading.Event()
    with Crew(3) as crew:
        first = crew.submit(going.wait, DEADLINE_SECONDS)
        with no_threads():
            others = [crew.submit(abs, -number) for number in (1, 2)]
        going.set()
        assert first.result(DEADLINE_SECONDS)
        assert [other.result(DEADLINE_SECONDS) for other in others] == [1, 2]
