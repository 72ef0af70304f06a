"""What the event loop does itself, and what it leaves to threads: whatever would have to wait."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
import pytest
from filelock import FileLock

from memlog.patience import (
    Impatient,
    Leave,
    as_hasty_as_this,
    in_haste,
    require_patience,
    require_time,
    taking,
    waiting_for_nobody,
    without_patience,
)
from memlog.projects.project import LOG_FILE
from memlog.storage.gates import SMALL_CALLS
from projections import embeddings
from projections.embedding.openai import OpenAI
from server.http import pace
from server.http.app import App
from server.registry import Arguments, Call, Result, Tool, tools
from server.rights.detectors import detectors
from server.service import Service
from tests.asgi import LEGACY, MODERN, Client, app_over, ask
from tests.connected import run
from tests.embedder_by_hash import opened_by_hash
from tests.endpoint import endpoint_up
from tests.idle_follower import Idle
from tests.served import Era
from tests.service import Client as ServiceClient
from tests.service import Refused, client_on

ADA = {"name": "Ada", "entityType": "person", "observations": ["sings in a choir"]}
LONG_SECONDS = 60.0
BOTH_ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is in haste does not wait for the follower either, which comes at any moment."""
    monkeypatch.setattr("server.service.Follower", Idle)


def test_only_the_thread_that_is_in_haste_has_no_patience_and_only_meanwhile() -> None:
    seen: list[bool] = []
    with without_patience(LONG_SECONDS):
        with pytest.raises(Impatient):
            require_patience()
        other = threading.Thread(target=lambda: seen.append(in_haste()))
        other.start()
        other.join()
    require_patience()
    with suppress(Impatient), without_patience(LONG_SECONDS):
        require_patience()
    assert (seen, in_haste()) == ([False], False)


def test_who_waits_for_nobody_has_no_patience_in_there_and_what_it_had_behind_it() -> None:
    leave = Leave()
    with taking(leave):
        with pytest.raises(Impatient), waiting_for_nobody():
            require_time()
            require_patience()
        leave.take_back()
        with waiting_for_nobody():
            require_time()  # what it is in the middle of
        with pytest.raises(Impatient):
            require_time()
    with waiting_for_nobody():
        assert in_haste()
    require_patience()


def test_who_does_a_part_for_a_thread_has_as_much_time_as_that() -> None:
    def tried(step: Callable[[], None]) -> str:
        try:
            step()
        except Impatient:
            return "impatient"
        return "done"

    with ThreadPoolExecutor(1) as other:
        with without_patience(LONG_SECONDS):
            hasty_try = as_hasty_as_this(tried)
        assert other.submit(hasty_try, require_time).result() == "done"
        assert other.submit(hasty_try, require_patience).result() == "impatient"
        assert other.submit(tried, require_patience).result() == "done"
        leave = Leave()
        with taking(leave):
            leaving_try = as_hasty_as_this(tried)
        leave.take_back()
        assert other.submit(leaving_try, require_time).result() == "impatient"
        assert other.submit(as_hasty_as_this(tried), require_time).result() == "done"


# -- what would have to wait


def hasty(ask: Callable[[], Any], seconds: float = LONG_SECONDS) -> Any:
    """What it answers by then; None where it would have to wait."""
    try:
        with without_patience(seconds):
            return ask()
    except Impatient:
        return None


def found(client: ServiceClient, query: str, mode: str = "hybrid") -> list[str]:
    answer = client("search_nodes", query=query, mode=mode)
    assert "notice" not in answer
    return [each["name"] for each in answer["entities"]]


def test_a_project_is_opened_with_patience_and_read_without(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="none") as client:
        client("create_entities", entities=[ADA])
    with client_on(tmp_path, embedder="none") as client:
        read = partial(client, "open_nodes", names=["Ada"])
        assert hasty(read) is None
        told = read()
        assert told["entities"] and hasty(read) == told


def test_a_project_is_made_on_first_use_with_patience_only(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="none") as client:
        assert hasty(lambda: client("open_nodes", names=["Ada"])) is None
        assert not client.service.store.projects("all")
        assert client("open_nodes", names=["Ada"])["entities"] == []


@pytest.mark.parametrize("mode", ["text", "hybrid", "semantic"])
def test_a_search_that_has_to_catch_up_waits_and_the_next_one_does_not(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        for name in ("Ada", "Bob"):
            client("create_entities", entities=[{**ADA, "name": name}])
            ask = partial(found, client, f"{name}: sings in a choir", mode)
            assert hasty(ask) is None
            told = ask()
            assert name in told and hasty(ask) == told


def test_a_question_that_an_endpoint_must_answer_waits() -> None:
    with endpoint_up() as endpoint:
        embedder = OpenAI("m", base_url=endpoint.url)
        assert hasty(lambda: embedder.embed(["a question"])) is None
        assert len(embedder.embed(["a question"])) == 1


def test_a_long_question_is_embedded_with_patience_only_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[ADA])
        found(client, "who?")
        assert hasty(partial(found, client, "sings in a choir?")) is not None
        ask = partial(found, client, "sings in a choir? " * 20)
        assert hasty(ask) is None
        told = ask()
        assert hasty(ask) == told


def test_a_damaged_log_is_looked_through_with_patience_only(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="none") as client:
        client("create_entities", entities=[ADA])
    log = next(tmp_path.rglob(LOG_FILE))
    log.write_bytes(log.read_bytes().replace(b"sings", b"sinks"))
    with client_on(tmp_path, embedder="none") as client:
        client("open_nodes", names=["Ada"])
        assert hasty(lambda: client("get_history")) is None
        assert client.service.open("default").project.damage is None
        with pytest.raises(Refused, match="damaged"):
            client("get_history")


def test_who_would_wait_for_a_map_to_be_resized_is_told_so(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="none") as client:
        client("create_entities", entities=[ADA])
        gate = client.service.open("default").project._environment._gate
        with gate.closed():
            assert hasty(lambda: client("open_nodes", names=["Ada"])) is None
        assert hasty(lambda: client("open_nodes", names=["Ada"])) is not None


@contextmanager
def taken(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """`lock`, which somebody else has until this is left; or for as long as a test may take."""
    has_it, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_it.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert has_it.wait(30)
    try:
        yield
        assert holder.is_alive(), "it was waited for"
    finally:
        done.set()
        holder.join()


@pytest.mark.parametrize(
    "lock_of",
    [
        lambda opened, service: service.store._open.locked(),
        lambda opened, service: service._opening,
        lambda opened, service: opened.projections._opening,
        lambda opened, service: opened.projections.text()._taking,
        lambda opened, service: opened.projections.vectors()._turns.writing(),
        lambda opened, service: SMALL_CALLS,
    ],
)
def test_nobody_in_haste_waits_behind_somebody_who_takes_his_time(
    lock_of: Callable[..., AbstractContextManager[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[ADA])
        ask = partial(found, client, "sings in a choir")
        told = ask()
        with taken(lock_of(client.service.open("default"), client.service)):
            assert hasty(ask, 0.1) is None
        assert hasty(ask) == told


# -- what goes on and on


@pytest.mark.parametrize(
    ("steps", "tool", "few", "many"),
    [
        (200, "get_history", {"limit": 1}, {"limit": 1_000}),
        (200, "query_nodes", {"limit": 1}, {"entityType": "nothing"}),
        (200, "open_nodes", {"names": ["Entity 7"]}, {"names": ["Nobody"]}),
        (20, "open_nodes", {"names": ["Entity 7"]}, {"names": [f"Entity {n}" for n in range(300)]}),
        (9, "open_nodes", {"names": ["Entity 7"]}, {"names": ["Entity 0"]}),
        (200, "read_graph", {"limit": 1}, {"limit": 300}),
        (200, "find_relation_path", {"from": "Entity 7", "to": "Entity 0"}, {"from": "Entity 7", "to": "Nobody"}),
        (200, "changes_since", {"since": 900}, {"since": 0, "budgetTokens": 20_000}),
        (100, "get_analytics", {"limit": 1}, {"limit": 1, "asOf": 400}),
    ],
)  # fmt: skip
def test_what_goes_on_and_on_is_left_when_its_time_is_over(
    steps: int,
    tool: str,
    few: dict[str, Any],
    many: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with client_on(tmp_path, embedder="none") as client:
        names = [f"Entity {number}" for number in range(300)]
        client("create_entities", entities=[{**ADA, "name": name} for name in names])
        client(
            "create_relations",
            relations=[
                {"from": names[0], "to": name, "relationType": "knows"} for name in names[1:]
            ],
        )
        client("get_analytics", {"asOf": 400})
        # By this clock, time is how often somebody asks for it.
        clock = SimpleNamespace(perf_counter=itertools.count().__next__)
        monkeypatch.setattr("memlog.patience.time", clock)
        assert hasty(lambda: client(tool, few), steps) is not None
        assert hasty(lambda: client(tool, many), steps) is None


# -- who runs a call over HTTP


class Noted:
    """Tools that every application offers, which note who runs them."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.before: Callable[[], object] = lambda: None

    def tools(self, *_: Any, **__: Any) -> dict[str, Tool]:
        like = tools(["graph"])["read_graph"]
        reads = msgspec.structs.replace(
            like, name="reads", handler=self._run, links=None, bare=None
        )
        return {
            "reads": reads,
            "writes": msgspec.structs.replace(reads, name="writes", writes=True),
        }

    def _run(self, call: Call, arguments: Arguments) -> Result:
        self.before()
        loop = threading.current_thread() is threading.main_thread()
        self.runs.append("loop" if loop else "thread")
        return Result()


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    detectors()  # else a thread imports them, perhaps while a test ends, which warns
    noted = Noted()
    monkeypatch.setattr("server.http.app.tools", noted.tools)
    monkeypatch.setattr(pace, "ALONE_SECONDS", LONG_SECONDS)
    return noted


async def rested() -> None:
    """Until the event loop has heard all who came while it ran a call."""
    for _ in range(pace.ROUNDS + 1):
        await anyio.lowlevel.checkpoint()


async def after_a_quick_read(app: App) -> Client:
    """Whose next one the event loop runs itself, if it may."""
    client = Client(app, MODERN)
    await client.open()
    await client.call("reads", {})
    await rested()
    return client


@BOTH_ERAS
def test_the_event_loop_runs_what_was_quick_to_read_and_threads_the_rest(
    era: Era, noted: Noted, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = Client(app, era)
            await client.open()
            for tool in ["reads"] * 3 + ["writes"] * 3:
                assert (await client.call(tool, {})).status == 200
                await rested()
            assert b'memlog_calls_total{outcome="ok",tool="reads"} 3.0' in app._metrics.page()

    run(scenario)
    assert noted.runs == ["thread", "loop", "loop", "thread", "thread", "thread"]


def test_what_would_have_to_wait_is_begun_anew_by_a_thread_and_counted_once(
    noted: Noted, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = Client(app, MODERN)
            await client.open()
            await client.call("reads", {})
            noted.before = require_patience
            assert "result" in (await client.call("reads", {})).json
            assert b'memlog_calls_total{outcome="ok",tool="reads"} 2.0' in app._metrics.page()

    run(scenario)
    assert noted.runs == ["thread", "thread"]


@pytest.mark.parametrize(
    ("quick", "alone", "runs"),
    [(0, 60, ["loop", "thread"]), (60, 60, ["loop", "loop"]), (0, 0, ["thread", "thread"])],
)
def test_who_comes_while_the_event_loop_runs_a_call_waits_only_for_what_is_very_quick(
    quick: float,
    alone: float,
    runs: list[str],
    noted: Noted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = await after_a_quick_read(app)
            monkeypatch.setattr(pace, "QUICK_SECONDS", quick)
            monkeypatch.setattr(pace, "ALONE_SECONDS", alone)
            async with anyio.create_task_group() as tasks:
                for number in range(2):
                    tasks.start_soon(client.call, "reads", {}, None, number)

    run(scenario)
    assert noted.runs[1:] == runs


def test_a_call_that_waits_holds_up_nobody(noted: Noted, tmp_path: Path) -> None:
    entered, opened = threading.Event(), threading.Event()

    def wait() -> None:
        require_patience()
        entered.set()
        assert opened.wait(30)

    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = await after_a_quick_read(app)
            noted.before = wait
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "reads", {})
                assert await anyio.to_thread.run_sync(entered.wait, 30)
                assert (await ask(app, b"", [], method="GET", path="/healthz")).status == 200
                opened.set()

    run(scenario)


def test_a_call_that_goes_on_and_on_holds_up_nobody(
    noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, over = threading.Event(), threading.Event()

    def go_on() -> None:
        until = time.monotonic() + 30
        while not over.wait(0.001) and time.monotonic() < until:
            try:
                require_time()
            except Impatient:
                left.set()
                raise

    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = await after_a_quick_read(app)
            monkeypatch.setattr(pace, "ALONE_SECONDS", 0.02)
            app._pace.took("reads", 0.0)
            noted.before = go_on
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "reads", {})
                assert await anyio.to_thread.run_sync(left.wait, 30)
                assert (await ask(app, b"", [], method="GET", path="/healthz")).status == 200
                assert not app._pace.allows("reads")
                over.set()

    run(scenario)
    assert noted.runs == ["thread", "thread"]


def test_a_read_behind_a_project_that_waits_for_another_process_holds_up_nobody(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, project="default") as app:
            client = Client(app, MODERN)
            await client.open()
            await client.call("create_entities", {"entities": [ADA]})
            await client.call("open_nodes", {"names": ["Ada"]})
            other = FileLock(tmp_path / "catalog.lock", thread_local=False)
            with other:
                late = threading.Timer(30, other.release, [True])
                late.start()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(client.call, "create_project", {"name": "new"})
                    opening = app._service.store._open._opening
                    while opening.acquire(blocking=False):
                        opening.release()
                        await anyio.sleep(0.01)
                    app._pace.took("open_nodes", 0)
                    tasks.start_soon(client.call, "open_nodes", {"names": ["Ada"]})
                    await rested()
                    assert (await ask(app, b"", [], method="GET", path="/healthz")).status == 200
                    assert other.is_locked, "it was waited for"
                    late.cancel()
                    other.release()

    run(scenario)


def test_real_searches_are_run_by_the_event_loop_with_the_answers_of_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    hurried: list[bool] = []
    search = Service.open

    def opened(self: Service, name: str) -> Any:
        hurried.append(in_haste())
        return search(self, name)

    async def scenario() -> None:
        async with app_over(tmp_path, embedder="minilm", project="default") as app:
            client = Client(app, MODERN)
            await client.open()
            await client.call("create_entities", {"entities": [ADA]})
            answers = []
            for _ in range(3):
                await rested()
                answers.append((await client.call("search_nodes", {"query": "choir"})).json)
            assert answers[0]["result"]["structuredContent"]["entities"]
            assert answers[0] == answers[1] == answers[2]

    monkeypatch.setattr(Service, "open", opened)
    monkeypatch.setattr(pace, "ALONE_SECONDS", LONG_SECONDS)
    run(scenario)
    assert hurried[-1]


def test_who_waits_for_what_another_thread_takes_its_time_for_took_patience() -> None:
    leave = Leave()
    with taking(leave):
        with suppress(Impatient), waiting_for_nobody():
            pass
        assert not leave.took_patience
        with suppress(Impatient), waiting_for_nobody():
            require_patience()
    assert leave.took_patience
