"""A session goes on when its server is started again: few clients open a new one."""

from __future__ import annotations

import gc
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import randrange
from unittest.mock import Mock

import lmdb
import pytest
from mcp.client.client import Client

from memlog.errors import StorageError
from memlog.settings import Settings
from server.http.connection import Door
from server.http.connections import Connections
from server.http.outliving import (
    OPENING_BYTES_MAX,
    URIS_CHARACTERS_MAX,
    Kept,
    Outliving,
    fitting,
    of,
)
from server.rights.grants import Grant
from server.rights.tokens import Tokens, tokens_path
from server.session import Session
from server.subscriptions import URIS_MAX
from tests.connected import run
from tests.http_served import (
    HttpClient,
    HttpServer,
    get_stream,
    heard_until,
    served_http,
    until_told,
)
from tests.served import DEADLINE_S, Era
from tests.service import client_on
from tests.simulated_faults import Fault, Faults, installed

Serve = Callable[..., AbstractContextManager[HttpServer]]


def free_port() -> int:
    """One that the system gives nobody who does not name it: it is free again when the next server comes."""
    while True:
        with (
            suppress(OSError),
            closing(socket.create_server(("127.0.0.1", randrange(20_000, 32_000)))) as bound,
        ):
            return int(bound.getsockname()[1])


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """A server on one data directory, at one address."""
    return partial(served_http, tmp_path, "--port", str(free_port()))


def session_in(server: HttpServer, project: str, token: str = "") -> HttpClient:
    client = HttpClient(server, "2025-11-25", token=token)
    client("create_project", name=project)
    return client


def goes_on(client: HttpClient, server: HttpServer) -> bool:
    client.server = server
    return client.request("tools/list").status == 200


def kept(folder: Path) -> int:
    """How many sessions are committed. LMDB writes the pages of a commit before the one that makes it count."""
    file = str(folder / "sessions.mdb")
    with (
        lmdb.open(file, subdir=False, readonly=True, max_dbs=1) as environment,
        environment.begin() as transaction,
    ):
        sessions = environment.open_db(b"sessions", transaction, create=False)
        return int(transaction.stat(sessions)["entries"])


def until_kept(folder: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while not kept(folder):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_session_goes_on_in_its_project_however_the_server_ended(
    serve: Serve, number: signal.Signals
) -> None:
    with serve() as server:
        client, other = session_in(server, "mine"), session_in(server, "of-another")
        known = client.headers["Mcp-Session-Id"]
        server.end(number)
    with serve() as server:
        for each, project in ((client, "mine"), (other, "of-another")):
            each.server = server
            each("store_memory", content=f"Lives in {project}")
            assert each("get_current_project")["project"] == project
        listed = client.request("resources/list")
        assert (listed.status, listed.headers["mcp-session-id"]) == (200, known)
        assert client("list_recent_memories")["memories"][0]["content"] == "Lives in mine"
        until_told(server, "a session of a client goes on", 2)
        server.end()
    with serve() as server:
        assert goes_on(client, server)


def test_a_session_that_was_only_opened_goes_on_though_the_server_died_soon_after(
    serve: Serve, tmp_path: Path
) -> None:
    with serve() as server:
        client = HttpClient(server, "2025-11-25")
        until_kept(tmp_path)
        server.end(signal.SIGKILL)
    with serve() as server:
        assert goes_on(client, server)


def test_the_project_is_the_one_switched_to_last_though_the_server_died_right_after(
    serve: Serve,
) -> None:
    with serve() as server:
        client = session_in(server, "before")
        client("create_project", name="after")
        server.end(signal.SIGKILL)
    with serve() as server:
        client.server = server
        assert client("get_current_project")["project"] == "after"
        client("switch_project", name="before")
        server.end(signal.SIGKILL)
    with serve() as server:
        client.server = server
        assert client("get_current_project")["project"] == "before"
        client("archive_project", name="before")
        server.end(signal.SIGKILL)
    with serve() as server:
        client.server = server
        assert client("get_current_project")["project"] is None


def test_several_requests_at_once_are_answered_in_one_session(serve: Serve) -> None:
    with serve() as server:
        client = session_in(server, "mine")
        server.end()
    with serve() as server, ThreadPoolExecutor(8) as pool:
        client.server = server
        asked = [pool.submit(client, "get_current_project") for _ in range(16)]
        assert {each.result()["project"] for each in asked} == {"mine"}
        assert len([each for each in server.log() if "goes on" in each["message"]]) == 1


def test_a_session_that_ended_does_not_go_on(serve: Serve) -> None:
    with serve() as server:
        ended, client = session_in(server, "ended"), session_in(server, "mine")
        assert server.ask("DELETE", "/mcp", b"", ended.headers).status == 200
        server.end()
    with serve() as server:
        assert not goes_on(ended, server)
        assert goes_on(client, server)
        assert server.ask("DELETE", "/mcp", b"", client.headers).status == 200
        server.end()
    with serve() as server:
        assert not goes_on(client, server)


def test_a_session_that_nobody_used_for_too_long_does_not_go_on(serve: Serve) -> None:
    with serve() as server:
        client = session_in(server, "mine")
        server.end()
    with serve(MEMLOG_HTTP_SESSION_SECONDS="0.001") as server:
        assert not goes_on(client, server)


@pytest.mark.parametrize(
    ("token", "path"), [("other", "/mcp"), ("mine", "/mcp/p/mine"), ("narrowed", "/mcp")]
)
def test_a_session_goes_on_at_its_own_door_alone(
    serve: Serve, tmp_path: Path, token: str, path: str
) -> None:
    tokens = Tokens(tokens_path(Settings(data_dir=tmp_path)))
    given = {name: tokens.new(Grant(name)) for name in ("mine", "other")}
    with serve() as server:
        client = session_in(server, "mine", given["mine"])
        server.end()
    if token == "narrowed":
        tokens.revoke("mine")
        given[token] = tokens.new(Grant("mine", "read"))
    with serve() as server:
        own, client.headers = client.headers, {**client.headers}
        client.headers["Authorization"] = f"Bearer {given[token]}"
        client.path = path
        assert not goes_on(client, server)
        client.headers, client.path = own, "/mcp"
        assert goes_on(client, server) is (token != "narrowed")


def test_what_changed_while_the_server_was_down_is_told_to_who_had_subscribed(serve: Serve) -> None:
    with serve() as server:
        client = session_in(server, "watched")
        client.request("resources/subscribe", uri="mem://recent")
        client.request("resources/subscribe", uri="memory://knowledge-graph")
        client.request("resources/unsubscribe", uri="memory://knowledge-graph")
        server.end()
    with serve() as server:
        HttpClient(server)("store_memory", content="Lives in Oslo", project="watched")
        client.server = server
        for change in ("", "Lives in Bergen"):
            with server.connect() as stream:
                stream.sendall(get_stream(client))
                if change:
                    client("store_memory", content=change)
                assert b"knowledge-graph" not in heard_until(stream, b"mem://recent")


def test_what_was_subscribed_to_is_told_though_the_server_died_right_after(
    serve: Serve, tmp_path: Path
) -> None:
    with serve() as server:
        client = session_in(server, "watched")
        until_kept(tmp_path)
        client.request("resources/subscribe", uri="mem://recent")
        server.end(signal.SIGKILL)
    with serve() as server:
        client.server = server
        with server.connect() as stream:
            stream.sendall(get_stream(client))
            heard_until(stream, b"200 OK")
            client.request("resources/subscribe", uri="memory://knowledge-graph")
            client("create_entities", entities=[{"name": "Ann", "entityType": "person"}])
            assert b"mem://recent" in heard_until(stream, b"knowledge-graph")


@pytest.mark.parametrize(("era", "heeds"), [("2025-06-18", False), ("2025-11-25", True)])
def test_a_stream_that_ends_with_its_server_says_when_to_open_it_again(
    serve: Serve, era: Era, heeds: bool
) -> None:
    """Clients that find no server at once give up, and would never hear what the next one has to tell."""
    with serve() as server:
        client = HttpClient(server, era)
        with server.connect() as stream:
            stream.sendall(get_stream(client))
            heard_until(stream, b"200 OK")
            server.end()
            rest = b"".join(iter(partial(stream.recv, 1_000), b""))
    assert (b"\r\nretry: 10000\r\n\r\n" in rest, rest[-5:]) == (heeds, b"0\r\n\r\n")


def test_a_client_of_the_sdk_goes_on_over_a_restart(serve: Serve) -> None:
    with serve() as first:

        async def scenario() -> None:
            async with Client(f"{first.url}/mcp", mode="legacy") as client:
                await client.call_tool("create_project", {"name": "mine"})
                first.end()
                with serve() as server:
                    assert server.port == first.port
                    result = await client.call_tool("store_memory", {"content": "Lives in Rome"})
                    assert (result.structured_content or {})["project"] == "mine"
                    assert len((await client.list_tools()).tools) > 30

        run(scenario)


def test_who_can_read_the_file_of_sessions_can_go_on_with_none(
    serve: Serve, tmp_path: Path
) -> None:
    with serve() as server:
        client = session_in(server, "mine")
        server.end()
    said = (tmp_path / "sessions.mdb").read_bytes()
    assert b"mine" in said
    assert client.headers["Mcp-Session-Id"].encode() not in said


@pytest.mark.parametrize("content", [b"", b"none of LMDB's" * 1_000])
def test_where_the_file_of_sessions_is_damaged_they_end_and_others_are_kept(
    serve: Serve, tmp_path: Path, content: bytes
) -> None:
    with serve() as server:
        client = session_in(server, "mine")
        server.end()
    (tmp_path / "sessions.mdb").write_bytes(content)
    with serve() as server:
        assert not goes_on(client, server)
        client = session_in(server, "another")
        server.end()
    with serve() as server:
        assert goes_on(client, server)


def test_where_a_byte_of_a_session_is_damaged_it_ends_and_others_go_on(
    serve: Serve, tmp_path: Path
) -> None:
    with serve() as server:
        client, other = session_in(server, "mine"), session_in(server, "of-another")
        server.end()
    file = tmp_path / "sessions.mdb"
    file.write_bytes(file.read_bytes().replace(b"\xa4mine", b"\xa4m\xffne"))
    with serve() as server:
        assert not goes_on(client, server)
        assert goes_on(other, server)


def test_where_sessions_cannot_be_kept_they_are_there_until_the_server_ends(
    serve: Serve, tmp_path: Path
) -> None:
    (tmp_path / "sessions.mdb").mkdir()
    with serve() as server:
        client = session_in(server, "mine")
        assert client("get_current_project")["project"] == "mine"
        until_told(server, "sessions end with this server")
        server.end()
    with serve() as server:
        assert not goes_on(client, server)


def test_a_session_opened_with_a_long_request_ends_with_its_server(serve: Serve) -> None:
    with serve() as server:
        client = HttpClient(server, "2025-11-25")
        introduced = {"name": "n" * OPENING_BYTES_MAX, "version": "1"}
        shaken = {"protocolVersion": client.era, "capabilities": {}, "clientInfo": introduced}
        del client.headers["Mcp-Session-Id"]
        opened = client.request("initialize", **shaken)
        client.headers["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        client("create_project", name="mine")
        server.end()
    with serve() as server:
        assert not goes_on(client, server)


def kept_in(project: str, ago_s: float = 0) -> Kept:
    return Kept(of(Door(Grant())), b"{}", time.time() - ago_s, project)


def test_a_project_is_not_switched_where_the_next_server_would_be_told_of_the_one_before(
    tmp_path: Path,
) -> None:
    faults = Faults()
    fault = Fault("failures", 0, "before a write to sessions.mdb")
    settings = Settings(data_dir=tmp_path, http_port=1)
    with (
        client_on(tmp_path / "other") as client,
        installed(faults),
        closing(Outliving(settings, dict)) as outliving,
    ):
        session = Session(client.service, "before")
        session.changed = lambda: outliving.note("one", kept_in(session.active))
        faults.plan(fault)
        session.switch("never kept")
        assert (session.active, len(faults.struck)) == ("never kept", 1)
        faults.plan(None)
        session.switch("kept")
        faults.plan(fault)
        with pytest.raises(StorageError):
            session.switch("not kept")
        assert session.active == "kept"
        session.leave("kept")
        assert session.active == ""
        faults.plan(None)


def test_of_sessions_of_before_as_many_go_on_as_there_is_room_for_those_used_last(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path, http_port=1, http_sessions_max=3)
    before = {str(number): kept_in("mine", 10 * number) for number in range(3)}
    with closing(Outliving(settings, lambda: before)):
        pass
    with closing(Outliving(settings, lambda: {"new": kept_in("mine")})) as outliving:
        outliving.write()
    with closing(Outliving(settings, dict)) as outliving:
        found = [each for each in ("new", "0", "1", "2") if outliving.find(each, Door(Grant()))]
    assert found == ["new", "0", "1"]


@contextmanager
def at_each_collection(do: Callable[[], object]) -> Iterator[None]:
    """Python collects garbage as often as it can, and lets another thread in, which does this."""

    def collecting(*_: object) -> None:
        do()

    often = gc.get_threshold()
    gc.callbacks.append(collecting)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(collecting)


def test_a_session_that_opens_while_those_open_are_found_ends_no_server(tmp_path: Path) -> None:
    """Python may collect garbage as it makes a list of items."""
    connections = Connections(Settings(data_dir=tmp_path, http_port=1), Mock(), Mock())
    open_now = connections._sessions
    open_now |= {str(number): Mock(opening=None) for number in range(1_000)}

    def opens() -> None:
        open_now[f"one of {len(open_now)}"] = open_now["0"]

    with closing(connections._outliving), at_each_collection(opens):
        assert connections._all_kept() == {}


def test_what_is_subscribed_to_while_a_session_is_written_down_ends_no_server(
    tmp_path: Path,
) -> None:
    connections = Connections(Settings(data_dir=tmp_path, http_port=1), Mock(), Mock())
    subscribed = {f"mem://item/{number}": None for number in range(1_000)}
    before = tuple(subscribed)
    connection = Mock(door=Door(Grant()), opening=b"", requests=1, session=Mock(active="mine"))
    connection.session.subscribed = subscribed

    def subscribes() -> None:
        subscribed[f"one of {len(subscribed)}"] = None

    with closing(connections._outliving), at_each_collection(subscribes):
        # Which of the things that are made begins a collection depends on how many were made before.
        made: list[object] = []
        for number in range(20):
            made += [[] for _ in range(number)]
            assert connections._kept(connection).uris[: len(before)] == before


def test_a_session_of_before_that_goes_on_while_those_are_written_down_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(data_dir=tmp_path, http_port=1)
    with closing(Outliving(settings, lambda: {"one": kept_in("mine"), "two": kept_in("mine")})):
        pass
    with closing(Outliving(settings, dict)) as outliving:

        def goes_on(_: Kept) -> bool:
            outliving.drop("one")
            return True

        monkeypatch.setattr(outliving, "_is_timely", goes_on)
        outliving.write()


def test_of_what_a_session_subscribed_to_first_so_much_goes_on_as_fits() -> None:
    uris = ["u" * 100, "v" * (URIS_CHARACTERS_MAX - 100), "w"]
    assert fitting(uris) == (*uris[:2],)
    assert fitting(uris[:1]) == (*uris[:1],)


def test_all_records_that_a_session_may_subscribe_to_go_on() -> None:
    uris = [f"mem://item/mem_{number:026}" for number in range(URIS_MAX)]
    assert fitting(uris) == tuple(uris)


@pytest.fixture(params=[("--port", "0"), ("--stateless",)])
def without(request: pytest.FixtureRequest, serve: Serve) -> Iterator[HttpServer]:
    with serve(*request.param) as server:
        yield server


def test_nothing_is_kept_of_who_has_no_session_or_no_lasting_address(
    without: HttpServer, tmp_path: Path
) -> None:
    HttpClient(without, "2025-11-25")("store_memory", content="Lives in Rome")
    without.end()
    assert not (tmp_path / "sessions.mdb").exists()
