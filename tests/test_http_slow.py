"""Calls over HTTP that take their time: some milliseconds one after another, longer ones a few at a time, and none when
nobody waits for it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams

from memlog.patience import Leave, held, in_haste, require_patience, require_time
from server import reading
from server.addresses import GRAPH, GraphAddress
from server.dispatch import build_server
from server.http import direct, heeding, pace
from server.http.app import App
from server.registry import Arguments, Call, Result, Tool, tools
from server.resources import Resources
from tests.asgi import LEGACY, MODERN, Answer, BySdk, Client, app_over, ask, request
from tests.connected import run
from tests.served import ENVELOPE, Era
from tests.service import client_on

BOTH_ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
DEADLINE_S = 30.0


class Scan:
    """Tools that every application offers, which go on step by step until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.threads: list[str] = []
        """Those of the begun, without their numbers."""
        self.ended: list[str] = []
        self.over = threading.Event()
        self.leaves: list[Leave] = []
        self.before: Callable[[], object] = lambda: None

    def tools(self, *_: Any, **__: Any) -> dict[str, Tool]:
        like = tools(["graph"])["read_graph"]
        reads = msgspec.structs.replace(
            like, name="reads", handler=self._reads, links=None, bare=None
        )
        writes = msgspec.structs.replace(reads, name="writes", handler=self._writes, writes=True)
        return {"reads": reads, "writes": writes}

    def _reads(self, call: Call, arguments: Arguments) -> Result:
        return self._go_on("reads")

    def _writes(self, call: Call, arguments: Arguments) -> Result:
        return self._go_on("writes")

    def _go_on(self, name: str) -> Result:
        self.threads.append(threading.current_thread().name.split("_")[0])
        self.begun.append(name)
        told = "broken off"
        try:
            self.before()
            until = time.monotonic() + DEADLINE_S
            while not self.over.wait(0.001) and time.monotonic() < until:
                require_time()
            told = "done"
        finally:
            self.ended.append(told)
        return Result()

    def leave(self, *, patient: bool = True) -> Leave:
        leave = Leave(patient=patient)
        self.leaves.append(leave)
        return leave

    async def leave_is_back(self) -> None:
        """That of the call which came last."""
        with anyio.fail_after(DEADLINE_S):
            while not self.leaves[-1].is_back:
                await anyio.sleep(0.001)

    async def has_come(self, calls: int) -> None:
        """That so many were given leave, be they begun or not."""
        with anyio.fail_after(DEADLINE_S):
            while len(self.leaves) < calls:
                await anyio.sleep(0.001)

    async def has(self, begun: int, ended: int) -> None:
        with anyio.fail_after(DEADLINE_S):
            while (len(self.begun), len(self.ended)) != (begun, ended):
                await anyio.sleep(0.001)


@pytest.fixture
def scan(monkeypatch: pytest.MonkeyPatch) -> Scan:
    scan = Scan()
    monkeypatch.setattr("server.http.app.tools", scan.tools)
    monkeypatch.setattr(heeding, "HEEDLESS_SECONDS", 0.0)
    for module in (direct, reading):
        monkeypatch.setattr(module, "Leave", scan.leave)
    return scan


async def going(app: App, era: Era = MODERN) -> Client:
    """A client that is going to go."""
    client = Client(app, era)
    await client.open()
    client.gone = anyio.Event()
    return client


async def after_a_read(app: App, seconds: float, *, waited: bool = False) -> Client:
    """A client that is not alone."""
    app._pace._alone = lambda: False
    client = Client(app, MODERN)
    await client.open()
    app._pace.took("reads", seconds, waited=waited)
    return client


async def after_a_slow_read(app: App) -> Client:
    return await after_a_read(app, 2 * pace.ALONE_SECONDS)


# -- one after another


def test_reads_of_some_milliseconds_are_run_one_after_another_and_hold_up_no_write(
    scan: Scan, tmp_path: Path
) -> None:
    gate = threading.Event()
    scan.over.set()
    scan.before = lambda: None if scan.begun[-1] == "writes" else gate.wait(DEADLINE_S)

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_read(app, 2 * pace.TURN_SECONDS)
            for number in range(4):
                tasks.start_soon(client.call, "reads", {}, None, number)
            await scan.has(begun=1, ended=0)
            tasks.start_soon(client.call, "writes", {})
            await scan.has(begun=2, ended=1)
            gate.set()

    run(scenario)
    assert scan.threads == ["read", "call", "read", "read", "read"]
    assert scan.ended == ["done"] * 5


def test_a_read_that_takes_long_after_all_makes_room_and_is_begun_anew_as_a_slow_one(
    scan: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_read(app, 2 * pace.TURN_SECONDS)
            tasks.start_soon(client.call, "reads", {}, None, 1)
            await scan.has(begun=2, ended=1)
            tasks.start_soon(client.call, "reads", {}, None, 2)
            await scan.has(begun=3, ended=1)
            scan.over.set()

    run(scenario)
    assert scan.threads == ["read", "slow", "slow"]
    assert scan.ended == ["broken off", "done", "done"]
    assert len(scan.leaves) == 3, "what is begun anew shares none with what was left of it"


def test_reads_that_wait_for_their_turn_leave_the_line_when_one_of_them_took_long(
    scan: Scan, tmp_path: Path
) -> None:
    gate = threading.Event()
    scan.before = lambda: gate.wait(DEADLINE_S)

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_read(app, 2 * pace.TURN_SECONDS)
            for number in range(2):
                tasks.start_soon(client.call, "reads", {}, None, number)
            await scan.has(begun=1, ended=0)
            while not app._threads._crews["one"]._work_queue.qsize():  # type: ignore[attr-defined]
                await anyio.sleep(0.001)
            app._pace.took("reads", 2 * pace.ALONE_SECONDS)
            gate.set()
            await scan.has(begun=3, ended=1)
            scan.over.set()

    run(scenario)
    assert scan.threads == ["read", "slow", "slow"]


def test_a_read_in_its_turn_that_has_to_wait_makes_room_for_the_next(
    scan: Scan, tmp_path: Path
) -> None:
    scan.before = require_patience

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_read(app, 2 * pace.TURN_SECONDS)
            for number in range(4):
                tasks.start_soon(client.call, "reads", {}, None, number)
            await scan.has(begun=8, ended=4)
            scan.over.set()

    run(scenario)
    assert sorted(scan.threads) == ["call"] * 4 + ["read"] * 4


def test_a_read_waits_for_no_turn_after_one_that_had_to_wait(scan: Scan, tmp_path: Path) -> None:
    scan.before = require_patience
    scan.over.set()

    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = await after_a_read(app, 2 * pace.TURN_SECONDS, waited=True)
            await client.call("reads", {})
            assert "reads" in app._pace._waited
            scan.before = lambda: None
            app._pace.took("reads", 2 * pace.TURN_SECONDS, waited=True)
            await client.call("reads", {})
            assert "reads" not in app._pace._waited

    run(scenario)
    assert scan.threads == ["call", "call"]


# -- a few at a time


def test_slow_reads_are_run_a_few_at_a_time_and_hold_up_nobody_else(
    scan: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_slow_read(app)
            for number in range(2 * reading.FEW_THREADS):
                tasks.start_soon(client.call, "reads", {}, None, number)
            await scan.has(begun=reading.FEW_THREADS, ended=0)
            tasks.start_soon(client.call, "writes", {})
            await scan.has(begun=reading.FEW_THREADS + 1, ended=0)
            assert scan.begun[-1] == "writes"
            scan.over.set()

    run(scenario)
    assert len(scan.ended) == 2 * reading.FEW_THREADS + 1


@pytest.mark.parametrize("kind", [App, BySdk])
def test_reads_of_which_nobody_knew_that_they_are_slow_are_soon_run_a_few_at_a_time(
    kind: type[App], scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that came before the first of them had its answer."""
    monkeypatch.setattr(reading, "_seconds", {})
    few: list[str] = []

    def work() -> None:
        if in_haste():
            few.append("reads")
            return
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            require_time()

    scan.before = work

    async def scenario() -> None:
        async with app_over(tmp_path, kind) as app, anyio.create_task_group() as tasks:
            client = Client(app, MODERN)
            await client.open()
            calls = 2 * reading.FEW_THREADS
            for number in range(calls):
                tasks.start_soon(client.call, "reads", {}, None, number)
            with anyio.fail_after(DEADLINE_S):
                while len(few) < reading.FEW_THREADS or len(scan.begun) - len(scan.ended) > len(
                    few
                ):
                    await anyio.sleep(0.001)
            assert "done" not in scan.ended
            scan.over.set()

    run(scenario)
    assert scan.ended.count("done") == len(few) == 2 * reading.FEW_THREADS


@pytest.mark.parametrize("why", ["it takes patience", "somebody else has a lock"])
def test_a_slow_read_that_has_to_wait_makes_room_for_the_next(
    why: str, scan: Scan, tmp_path: Path
) -> None:
    lock = threading.Lock()
    lock.acquire()

    def wait() -> None:
        if why == "it takes patience":
            require_patience()
        else:
            with held(lock):
                pass

    scan.before = wait

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await after_a_slow_read(app)
            calls = 2 * reading.FEW_THREADS
            for number in range(calls):
                tasks.start_soon(client.call, "reads", {}, None, number)
            await scan.has(begun=2 * calls, ended=calls)
            lock.release()
            scan.over.set()

    run(scenario)
    assert sorted(scan.threads) == sorted(["call", "slow"] * 2 * reading.FEW_THREADS)
    assert scan.ended.count("done") == 2 * reading.FEW_THREADS


async def read_graph(app: App, number: int) -> None:
    """By its URI, which is always the SDK's."""
    client = Client(app, MODERN)
    await client.open()
    params = {"uri": GRAPH.place, "_meta": ENVELOPE}
    body = request("resources/read", number, params)
    assert (
        await client.post(body, Mcp_Method="resources/read", Mcp_Name=GRAPH.place)
    ).status == 200


async def call_by_sdk(app: App, number: int) -> None:
    client = Client(app, MODERN)
    await client.open()
    assert (await client.call("reads", {}, None, number)).status == 200


@pytest.fixture
def scanned(scan: Scan, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """The graph is read as slowly, and so were both when they were read last."""

    def graph(self: Resources, address: GraphAddress) -> bytes:
        scan._go_on("reads")
        return b"{}"

    monkeypatch.setattr(Resources, "_graph", graph)
    for kind in ("GraphAddress", "reads"):
        monkeypatch.setitem(reading._seconds, kind, 2 * reading.SLOW_SECONDS)
    return scan


@pytest.mark.parametrize("read", [read_graph, call_by_sdk])
def test_slow_reads_that_the_sdk_brings_are_run_a_few_at_a_time_too(
    read: Callable[[App, int], Coroutine[Any, Any, None]], scanned: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, BySdk) as app, anyio.create_task_group() as tasks:
            for number in range(2 * reading.FEW_THREADS):
                tasks.start_soon(read, app, number)
            await scanned.has(begun=reading.FEW_THREADS, ended=0)
            client = Client(app, MODERN)
            await client.open()
            tasks.start_soon(client.call, "writes", {})
            await scanned.has(begun=reading.FEW_THREADS + 1, ended=0)
            assert scanned.begun[-1] == "writes"
            scanned.over.set()

    run(scenario)
    assert scanned.ended == ["done"] * (2 * reading.FEW_THREADS + 1)


@pytest.mark.parametrize("read", [read_graph, call_by_sdk])
def test_a_slow_read_that_the_sdk_brings_makes_room_where_it_has_to_wait(
    read: Callable[[App, int], Coroutine[Any, Any, None]], scanned: Scan, tmp_path: Path
) -> None:
    scanned.before = require_patience

    async def scenario() -> None:
        async with app_over(tmp_path, BySdk) as app, anyio.create_task_group() as tasks:
            calls = 2 * reading.FEW_THREADS
            for number in range(calls):
                tasks.start_soon(read, app, number)
            await scanned.has(begun=2 * calls, ended=calls)
            scanned.over.set()

    run(scenario)
    assert scanned.ended.count("done") == 2 * reading.FEW_THREADS


def test_who_watches_the_server_waits_behind_no_client(scanned: Scan, tmp_path: Path) -> None:
    """Each thread that the SDK's requests may have is taken."""
    scanned.before = require_patience

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            while (await ask(app, b"", [], method="GET", path="/readyz")).status != 200:
                await anyio.sleep(0.001)
            threads = int(anyio.to_thread.current_default_thread_limiter().total_tokens)
            for number in range(threads + 1):
                tasks.start_soon(read_graph, app, number)
            await scanned.has(begun=2 * threads + 1, ended=threads + 1)
            for path in ("/readyz", "/metrics"):
                with anyio.fail_after(DEADLINE_S / 2):
                    assert (await ask(app, b"", [], method="GET", path=path)).status == 200
            scanned.over.set()

    run(scenario)


# -- when nobody waits any more


@BOTH_ERAS
@pytest.mark.parametrize(("tool", "told"), [("reads", "broken off"), ("writes", "done")])
def test_what_only_reads_is_broken_off_when_its_client_goes(
    tool: str, told: str, era: Era, scan: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await going(app, era)
            tasks.start_soon(client.call, tool, {})
            await scan.has(begun=1, ended=0)
            assert client.gone is not None
            client.gone.set()
            if told == "done":
                await scan.leave_is_back()
                scan.over.set()
            await scan.has(begun=1, ended=1)

    run(scenario)
    assert scan.ended == [told]


@pytest.mark.parametrize("kind", [App, BySdk])
def test_a_read_is_broken_off_when_its_session_ends(
    kind: type[App], scan: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, kind) as app, anyio.create_task_group() as tasks:
            client = await going(app, LEGACY)
            tasks.start_soon(client.call, "reads", {})
            await scan.has(begun=1, ended=0)
            assert (await client.end()).status == 200
            await scan.has(begun=1, ended=1)

    run(scenario)
    assert scan.ended == ["broken off"]


@pytest.mark.parametrize(("tool", "begun"), [("reads", 1), ("writes", 2)])
def test_what_waits_for_a_thread_is_not_begun_when_its_client_has_gone_unless_it_writes(
    tool: str, begun: int, scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.pace.THREADS_MAX", 1)

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            first, second = await going(app, MODERN), await going(app, MODERN)
            tasks.start_soon(first.call, "writes", {})
            await scan.has(begun=1, ended=0)
            tasks.start_soon(second.call, tool, {})
            await scan.has_come(calls=2)
            assert second.gone is not None
            second.gone.set()
            await scan.leave_is_back()
            scan.over.set()

    run(scenario)
    assert scan.begun == ["writes", tool][:begun]


@pytest.mark.parametrize("tool", ["reads", "writes"])
def test_what_is_cancelled_while_it_waits_for_a_thread_is_not_begun(
    tool: str, scan: Scan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.pace.THREADS_MAX", 1)
    cancelled = request("notifications/cancelled", params={"requestId": 2})

    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await going(app, LEGACY)
            tasks.start_soon(client.call, "writes", {}, None, 1)
            await scan.has(begun=1, ended=0)
            tasks.start_soon(client.call, tool, {}, None, 2)
            await scan.has_come(calls=2)
            assert (await client.post(cancelled)).status == 202
            scan.over.set()

    run(scenario)
    assert scan.begun == ["writes"]


@pytest.mark.parametrize("era", [LEGACY, "2024-11-05", MODERN])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize("slow", [False, True])
def test_a_read_that_the_sdk_brings_is_broken_off_when_its_client_goes(
    slow: bool,
    stateless: bool,
    era: Era,
    scan: Scan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(reading._seconds, "reads", 2 * reading.SLOW_SECONDS if slow else 0.0)

    async def scenario() -> None:
        async with app_over(tmp_path, BySdk, http_stateless=stateless) as app:
            client, other = await going(app, era), Client(app, era)
            await other.open()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "reads", {})
                await scan.has(begun=1, ended=0)
                tasks.start_soon(other.call, "reads", {})
                await scan.has(begun=2, ended=0)
                assert client.gone is not None
                client.gone.set()
                await scan.has(begun=2, ended=1)
                scan.over.set()
            assert (
                b'memlog_calls_total{outcome="CANCELLED",tool="reads"} 1.0' in app._metrics.page()
            )
            assert b'memlog_calls_total{outcome="ok",tool="reads"} 1.0' in app._metrics.page()

    run(scenario)
    assert scan.ended == ["broken off", "done"]


def test_a_resource_is_read_no_further_when_its_client_goes(scanned: Scan, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app, anyio.create_task_group() as tasks:
            client = await going(app)
            body = request("resources/read", 1, {"uri": GRAPH.place, "_meta": ENVELOPE})
            routed = {"Mcp_Method": "resources/read", "Mcp_Name": GRAPH.place}
            tasks.start_soon(partial(client.post, body, **routed))
            await scanned.has(begun=1, ended=0)
            assert client.gone is not None
            client.gone.set()
            await scanned.has(begun=1, ended=1)

    run(scenario)
    assert scanned.ended == ["broken off"]


def test_a_read_that_the_sdk_brings_is_not_begun_when_its_client_has_gone(
    scanned: Scan, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, BySdk) as app, anyio.create_task_group() as tasks:
            for number in range(reading.FEW_THREADS):
                tasks.start_soon(call_by_sdk, app, number)
            await scanned.has(begun=reading.FEW_THREADS, ended=0)
            client = await going(app)
            tasks.start_soon(client.call, "reads", {})
            await scanned.has_come(calls=reading.FEW_THREADS + 1)
            assert client.gone is not None
            client.gone.set()
            await scanned.leave_is_back()
            scanned.over.set()

    run(scenario)
    assert len(scanned.begun) == reading.FEW_THREADS


@pytest.mark.parametrize("kind", [App, BySdk])
def test_a_read_that_takes_too_long_is_refused_and_broken_off(
    kind: type[App], scan: Scan, tmp_path: Path
) -> None:
    answers: list[Answer] = []

    async def scenario() -> None:
        async with app_over(tmp_path, kind, http_request_seconds=0.1) as app:
            client = Client(app, MODERN)
            await client.open()
            with anyio.fail_after(DEADLINE_S):
                while not scan.begun:  # on a busy machine the time may be over before
                    answers.append(await client.call("reads", {}))
                while len(scan.ended) < len(scan.begun):
                    await anyio.sleep(0.001)

    run(scenario)
    assert {each.status for each in answers} == {504}
    assert set(scan.ended) == {"broken off"}


@pytest.mark.parametrize("kind", [App, BySdk])
def test_what_is_begun_for_others_too_is_done_to_its_end(
    kind: type[App], scan: Scan, tmp_path: Path
) -> None:
    scan.before = require_patience

    async def scenario() -> None:
        async with app_over(tmp_path, kind) as app, anyio.create_task_group() as tasks:
            client = await going(app, MODERN)
            tasks.start_soon(client.call, "reads", {})
            await scan.has(begun=1, ended=0)
            assert client.gone is not None
            client.gone.set()
            await scan.leave_is_back()
            scan.over.set()
            await scan.has(begun=1, ended=1)

    run(scenario)
    assert scan.ended == ["done"]


def test_what_was_given_up_is_counted_as_such(scan: Scan, tmp_path: Path) -> None:
    pages: list[bytes] = []

    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            client = await going(app, MODERN)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call, "reads", {})
                await scan.has(begun=1, ended=0)
                assert client.gone is not None
                client.gone.set()
            pages.append(await anyio.to_thread.run_sync(app._metrics.page))

    run(scenario)
    assert b'memlog_calls_total{outcome="CANCELLED",tool="reads"} 1.0' in pages[0]


@pytest.mark.parametrize("tool", ["read_graph", "create_entities"])
def test_what_was_given_up_before_the_sdk_had_a_thread_for_it_is_counted_as_such(
    tmp_path: Path, tool: str
) -> None:
    told: list[tuple[str, str]] = []

    def called(tool: str, outcome: str, seconds: float) -> None:
        told.append((tool, outcome))

    async def scenario(server: Server[Any]) -> None:
        entry = server.get_request_handler("tools/call")
        assert entry is not None
        with anyio.CancelScope() as scope:
            scope.cancel()
            await entry.handler(None, CallToolRequestParams(name=tool, arguments={}))  # type: ignore[arg-type]

    with client_on(tmp_path) as client:
        server = build_server(client.session, client.tools, on_called=called)
        run(lambda: scenario(server))
    assert told == [(tool, "CANCELLED")]
