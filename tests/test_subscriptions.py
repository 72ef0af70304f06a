"""Who is told of a change: in both eras, of this process's writes and of another's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import INVALID_PARAMS, INVALID_REQUEST

from memlog.copies.backup import back_up
from memlog.copies.taking_in import restore
from memlog.projects.purging import Target
from memlog.settings import TOOLSETS
from server import changes, subscriptions
from server.addresses import ListAddress
from server.refusals import RESOURCE_NOT_FOUND
from server.registry import tools
from tests.connected import ERAS, Joined, Mode, beside, joined, run
from tests.served import Message, Pipe, served
from tests.service import Client, client_on

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

GRAPH = "memory://knowledge-graph"
JON = {"name": "Jon", "entityType": "person"}
Told = Callable[[], Any]


@asynccontextmanager
async def listening(server: Joined, mode: Mode, *uris: str) -> AsyncIterator[Told]:
    """Listens to the URIs as the era has it; yields what waits for the next one that changed."""
    if mode == "legacy":
        for uri in uris:
            await server.client.session.subscribe_resource(uri)
        yield server.told
        return
    async with server.client.listen(resource_subscriptions=uris) as events:

        async def told() -> str:
            event = await anext(events)
            assert isinstance(event, ResourceUpdated)
            return event.uri

        yield told


# -- what is told


def test_lists_are_compared_with_no_memories_but_those_that_may_be_on_them() -> None:
    compared: list[frozenset[str]] = []

    class Labels(frozenset[str]):
        def __le__(self, other: Any) -> bool:
            compared.append(other)
            return super().__le__(other)

    class Listed(ListAddress, frozen=True):
        @property
        def labels(self) -> frozenset[str]:
            return Labels(super().labels)

    found = changes.Changes()
    for number in range(100):
        found.touch(f"mem_{number}", frozenset({"type:note", f"tag:t{number}"}))
    on = [Listed({"tags": [f"t{number}"]}, 20) for number in range(100)]
    off = [Listed({"tags": [f"t{number}"], "type": "todo"}, 20) for number in range(200)]
    assert [found.concern(each) for each in (*on, *off)] == [True] * 100 + [False] * 200
    assert len(compared) == len(on)


@ERAS
def test_a_change_of_the_graph_is_told(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server, listening(server, mode, GRAPH) as told:
            await server.call("create_entities", entities=[JON])
            assert await told() == GRAPH
            fact = {"entityName": "Jon", "contents": ["Likes tea"]}
            await server.call("add_observations", observations=[fact])
            assert await told() == GRAPH
            edge = {"from": "Jon", "to": "Ann", "relationType": "knows"}
            await server.call("create_relations", relations=[edge])
            assert await told() == GRAPH
            await server.call("delete_entities", entityNames=["Jon"])
            assert await told() == GRAPH

    run(scenario)


@ERAS
def test_only_what_a_write_touched_is_told(tmp_path: Path, mode: Mode) -> None:
    """Each write is followed by what it must have told; what else it told would come first."""

    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            one = await server.note("one", tags=["a"])
            other = await server.note("other", type="todo")
            item, fresh = f"mem://item/{one}", "mem://recent?limit=3"
            uris = (GRAPH, item, "mem://by-tags/a", "mem://by-tags/b", "mem://by-type/todo", fresh)
            async with listening(server, mode, *uris) as told:
                await server.call("create_entities", entities=[JON])
                assert await told() == GRAPH
                await server.note("third")
                assert await told() == fresh
                await server.note("fourth", type="todo", tags=["b"])
                assert {await told() for _ in range(3)} == {
                    "mem://by-tags/b",
                    "mem://by-type/todo",
                    fresh,
                }
                await server.note("one", tags=["b"])
                assert {await told() for _ in range(4)} == {
                    item,
                    "mem://by-tags/a",
                    "mem://by-tags/b",
                    fresh,
                }
                await server.call("supersede_memory", old_memory_id=one, new_memory_id=other)
                assert {await told() for _ in range(5)} == set(uris) - {GRAPH}

    run(scenario)


@ERAS
def test_a_list_that_a_record_leaves_is_told(tmp_path: Path, mode: Mode) -> None:
    """Its labels are those from before, too."""

    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.note("one", tags=["a"])
            await server.note("one", tags=["b"])
            async with listening(server, mode, "mem://by-tags/b") as told:
                await server.call("undo")
                assert await told() == "mem://by-tags/b"

    run(scenario)


@ERAS
def test_saying_again_what_is_so_changes_nothing(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.call("create_project", name="shop")
            async with listening(server, mode, GRAPH, f"{GRAPH}?project=default") as told:
                edge = {"from": "Jon", "to": "Ann", "relationType": "knows"}
                for _ in range(2):
                    await server.call("create_relations", relations=[edge])
                assert await told() == GRAPH
                await server.call("create_entities", entities=[JON], project="default")
                assert await told() == f"{GRAPH}?project=default"

    run(scenario)


@ERAS
def test_another_active_project_is_another_graph(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.call("create_project", name="shop")
            async with listening(server, mode, GRAPH) as told:
                await server.call("create_project", name="other")
                assert await told() == GRAPH
                await server.call("switch_project", name="shop")
                assert await told() == GRAPH
                await server.call("archive_project", name="shop")
                assert await told() == GRAPH

    run(scenario)


@ERAS
def test_another_active_project_is_another_graph_also_where_it_holds_only_more_memories(
    tmp_path: Path, mode: Mode
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.call("create_project", name="notes")
            for number in range(3):
                await server.call("store_memory", content=f"note {number}", project="notes")
            await server.call("create_project", name="shop")
            async with listening(server, mode, GRAPH) as told:
                await server.call("switch_project", name="notes")
                assert await told() == GRAPH

    run(scenario)


@ERAS
def test_after_very_many_writes_everything_counts_as_changed(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ENTRIES_READ_MAX", 2)

    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            note = await server.note("x")
            async with listening(server, mode, f"mem://item/{note}") as told:
                people = [{"name": name, "entityType": "person"} for name in "abc"]
                await server.call("create_entities", entities=people)
                assert await told() == f"mem://item/{note}"

    run(scenario)


def test_a_client_that_asked_hears_of_a_changed_list(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            async with server.client.listen(resources_list_changed=True) as events:
                await server.call("create_entities", entities=[JON])
                await server.note("x")
                assert await anext(events) == ResourcesListChanged()
            async with server.client.listen(resource_subscriptions=["mem://recent"]) as events:
                await server.note("y")
                assert await anext(events) == ResourceUpdated("mem://recent")

    run(scenario)


def test_a_list_that_holds_no_records_does_not_change_with_them(tmp_path: Path) -> None:
    """A client that is offered the graph alone is not told that somebody stores facts."""

    async def scenario() -> None:
        async with joined(tmp_path, toolsets=("graph",)) as server:
            other = Client(server.service)
            other.tools = tools(TOOLSETS)
            watched = server.client.listen(
                resources_list_changed=True, resource_subscriptions=[GRAPH]
            )
            async with watched as events:
                for name in ("Jon", "Ann"):
                    other("store_memory", content=f"{name} likes dancing")
                    await server.call("create_entities", entities=[{**JON, "name": name}])
                    assert await anext(events) == ResourceUpdated(GRAPH)

    run(scenario)


# -- beginning and ending


def test_who_unsubscribed_is_told_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, "legacy") as server:
            session = server.client.session
            for _ in range(2):
                await session.subscribe_resource(GRAPH)
            await session.subscribe_resource("mem://recent")
            await session.unsubscribe_resource(GRAPH)
            await session.unsubscribe_resource("mem://never/subscribed")
            await server.call("create_entities", entities=[JON])
            await server.note("x")
            assert await server.told() == "mem://recent"

    run(scenario)


def test_what_is_not_there_is_not_subscribed_to(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, "legacy") as server:
            for uri, code in (
                ("mem://everything", RESOURCE_NOT_FOUND),
                ("mem://item/mem_01h455vb4pex5vsknk084sn02q", RESOURCE_NOT_FOUND),
                (f"{GRAPH}?project=nowhere", RESOURCE_NOT_FOUND),
                ("mem://recent?project=nowhere", RESOURCE_NOT_FOUND),
                ("mem://by-type/note?project=nowhere", RESOURCE_NOT_FOUND),
                ("mem://recent?limit=0", INVALID_PARAMS),
                ("mem://recent?limit=500", INVALID_PARAMS),
            ):
                error = await server.refusal(server.client.session.subscribe_resource(uri))
                assert error.code == code

    run(scenario)


def test_one_who_listens_to_the_unknown_still_hears_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            uris = ["mem://everything", "mem://recent?limit=x%", GRAPH, GRAPH]
            async with server.client.listen(resource_subscriptions=uris) as events:
                await server.call("create_entities", entities=[JON])
                assert await anext(events) == ResourceUpdated(GRAPH)

    run(scenario)


@ERAS
def test_there_is_a_limit_to_what_is_listened_to(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "URIS_MAX", 2)

    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:

            async def listen_to(*uris: str) -> None:
                async with listening(server, mode, *uris):
                    pass

            error = await server.refusal(
                listen_to("mem://recent", "mem://recent?limit=1", "mem://recent?limit=2")
            )
            assert error.code == INVALID_REQUEST
            assert error.message.startswith("More than 2 resources are subscribed to.")
            await listen_to("mem://recent")

    run(scenario)


def test_one_who_listens_to_all_that_one_may_leaves_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a server, as all clients without a session at one door do."""
    for limit, number in {"URIS_MAX": 2, "URIS_TOGETHER_MAX": 3, "URIS_GRANTED": 1}.items():
        monkeypatch.setattr(subscriptions, limit, number)
    recent = [f"mem://recent?limit={number}" for number in range(1, 8)]

    async def scenario() -> None:
        async with joined(tmp_path) as server:

            async def listen_to(*uris: str) -> None:
                async with listening(server, "auto", *uris):
                    pass

            async with (
                listening(server, "auto", *recent[:2]),
                listening(server, "auto", *recent[1:3]),
                listening(server, "auto", recent[3]),
                listening(server, "auto", recent[4]) as told,
            ):
                error = await server.refusal(listen_to(*recent[5:7]))
                assert error.code == INVALID_REQUEST
                assert "each may have 1, not 2" in error.message
                await server.note("one")
                assert await told() == recent[4]
            await listen_to(*recent[5:7])

    run(scenario)


@ERAS
def test_the_server_says_that_it_can_be_subscribed_to(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            resources = server.client.server_capabilities.resources
            assert resources is not None and resources.subscribe is True
            assert bool(resources.list_changed) is (mode == "auto")

    run(scenario)


def test_who_listens_to_the_service_hears_of_each_write_until_it_stops(tmp_path: Path) -> None:
    heard: list[str] = []
    with client_on(tmp_path) as client:
        stop = client.service.listen(lambda: heard.append("one"))
        client.service.listen(lambda: heard.append("other"))
        client("create_entities", entities=[JON])
        stop()
        stop()
        client("delete_entities", entityNames=["Jon"])
        client("read_graph")
    assert heard == ["one", "other", "other"]


def test_a_write_wakes_no_session_but_those_that_listen_to_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may have hundreds of others, of clients that went without a word."""
    woken: list[subscriptions.Subscriptions] = []
    wake = subscriptions.Subscriptions._wake

    def counted(watching: subscriptions.Subscriptions) -> None:
        woken.append(watching)
        wake(watching)

    async def scenario() -> None:
        monkeypatch.setattr(subscriptions.Subscriptions, "_wake", counted)
        async with joined(tmp_path, "legacy") as server, beside(server), beside(server):
            await server.call("create_entities", entities=[JON])
            await anyio.wait_all_tasks_blocked()
            assert not woken
            async with listening(server, "legacy", GRAPH) as told:
                woken.clear()  # by itself, for what was written meanwhile
                await server.call("delete_entities", entityNames=["Jon"])
                assert await told() == GRAPH
            assert len(woken) == 1

    run(scenario)


def test_a_session_that_ended_listens_to_the_service_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            before = server.service._listeners
            async with beside(server):
                assert len(server.service._listeners) == len(before) + 1
            assert server.service._listeners == before

    run(scenario)


@ERAS
def test_what_a_look_that_failed_did_not_tell_the_next_one_tells(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [RuntimeError("foreseen by nobody")]
    compare = subscriptions.Subscriptions._compare

    def failing_once(watching: subscriptions.Subscriptions, heads: Any) -> Any:
        if failures:
            raise failures.pop()
        return compare(watching, heads)

    async def scenario() -> None:
        async with joined(tmp_path, mode) as server, listening(server, mode, GRAPH) as told:
            monkeypatch.setattr(subscriptions.Subscriptions, "_compare", failing_once)
            await server.call("create_entities", entities=[JON])
            assert await told() == GRAPH
            assert not failures

    run(scenario)


# -- another log in the place of the one that was looked at, which may end where that did


@ERAS
def test_what_was_erased_for_good_is_told(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.call("create_entities", entities=[JON])
            async with listening(server, mode, GRAPH) as told:
                server.service.purge("default", Target(entities=("Jon",)))
                assert await told() == GRAPH

    run(scenario)


@ERAS
def test_a_backup_of_the_same_length_that_takes_the_place_of_a_log_is_told(
    tmp_path: Path, mode: Mode
) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"

    async def scenario() -> None:
        async with joined(tmp_path / "data", mode) as server:
            store = server.service.store
            await server.call("create_entities", entities=[JON])
            back_up(store, older)
            await server.call("create_entities", entities=[{**JON, "name": "Ann"}])
            back_up(store, newer)
            store.delete("default")
            restore(store, older)
            await server.call("create_entities", entities=[{**JON, "name": "Mia"}])
            async with listening(server, mode, GRAPH) as told:
                restore(store, newer, replace=True)
                assert await told() == GRAPH

    run(scenario)


# -- several processes


def next_update(server: Pipe) -> Message:
    """The next notification of a change; answers on the way are passed over."""
    while True:
        message = server.read()
        assert message is not None, server.stderr()
        if message.get("method") == "notifications/resources/updated":
            params: Message = message["params"]
            return params


def test_a_write_of_another_process_is_told(tmp_path: Path) -> None:
    with served(tmp_path, era="2025-11-25") as server, served(tmp_path) as other:
        for uri in (GRAPH, "mem://recent"):
            assert "result" in server.request("resources/subscribe", uri=uri)
        other("create_entities", entities=[JON])
        assert next_update(server) == {"uri": GRAPH}
        other("store_memory", content="User moved to Austin")
        assert next_update(server) == {"uri": "mem://recent"}
        server.send_call("store_memory", content="User likes tea")
        assert next_update(server) == {"uri": "mem://recent"}
        server.close_stdin()
        assert server.end() == (0, "")


def test_a_listener_is_told_of_a_write_of_another_process(tmp_path: Path) -> None:
    with served(tmp_path) as server, served(tmp_path) as other:
        wanted = {"resourceSubscriptions": [GRAPH]}
        number = server.send("subscriptions/listen", notifications=wanted)
        acknowledged = server.read() or {}
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == wanted
        other("create_entities", entities=[JON])
        assert next_update(server) == {
            "uri": GRAPH,
            "_meta": {"io.modelcontextprotocol/subscriptionId": number},
        }
        server.close_stdin()
        assert server.end() == (0, "")


def test_all_sessions_of_a_server_are_told_of_a_write_of_another_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(joined(tmp_path, "legacy"))
            sessions = [first, *[await stack.enter_async_context(beside(first)) for _ in range(2)]]
            for each in sessions:
                await each.client.session.subscribe_resource(GRAPH)
            with served(tmp_path) as other:
                for name in ("Jon", "Gina"):
                    other("create_entities", entities=[{"name": name, "entityType": "person"}])
                    assert [await each.told() for each in sessions] == [GRAPH] * len(sessions)

    run(scenario)


def test_the_head_of_a_project_is_looked_up_once_in_a_tick_however_many_sessions_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def look(name: str) -> Callable[[], changes.Head]:
        def found() -> changes.Head:
            looked.append(name)
            return changes.Head(position=len(looked))

        return found

    async def scenario() -> None:
        glances = subscriptions._Glances()
        monkeypatch.setattr(subscriptions, "POLL_SECONDS", 1e12)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(glances.head, "one", look("one"))
        assert (await glances.head("two", look("two"))).position == 2
        assert looked == ["one", "two"]
        monkeypatch.setattr(subscriptions, "POLL_SECONDS", 1e-9)
        assert (await glances.head("one", look("one"))).position == 3

    run(scenario)
