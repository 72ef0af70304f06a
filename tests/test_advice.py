"""Nobody is advised to call a tool that is not offered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlog.settings import TOOLSETS
from server.dispatch import INSTRUCTIONS
from server.registry import tools
from tests.connected import joined, run
from tests.mistakes import MISTAKES
from tests.service import Client, Refused, client_on
from tests.test_mistakes import World

NAMES = {*tools(TOOLSETS)}


def advised(error: dict[str, Any]) -> Iterator[str]:
    for each in (error, *error.get("problems", ())):
        if "suggestion" in each:
            yield each["suggestion"]


def named(advice: str) -> set[str]:
    called = set(re.findall(r"\b(\w+) \{", advice))
    return NAMES & {*called, *(word for word in re.findall(r"\w+", advice) if "_" in word)}


def refusals(client: Client, world: World) -> Iterator[dict[str, Any]]:
    for mistake in MISTAKES:
        if mistake.tool in client.tools:
            world.client = client
            try:
                world.call(mistake.tool, mistake.wrong)
            except Refused as refused:
                yield refused.error


@pytest.fixture
def world(tmp_path: Path) -> World:
    with client_on(tmp_path) as client:
        world = World(client)
        client("create_entities", entities=[{"name": "Gone", "entityType": "person"}])
        client("delete_entities", entityNames=["Gone"])
        return world


def test_with_all_tools_others_are_advised(world: World, tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        found = {
            name
            for error in refusals(client, world)
            for advice in advised(error)
            for name in named(advice)
        }
    assert {"search_nodes", "restore_project"} <= found


@pytest.mark.parametrize("toolset", TOOLSETS)
@pytest.mark.parametrize("read_only", [False, True])
def test_with_one_toolset_no_tool_of_another_is_advised(
    toolset: str, read_only: bool, world: World, tmp_path: Path
) -> None:
    with client_on(tmp_path, toolsets=(toolset,), read_only=read_only) as client:
        for error in refusals(client, world):
            assert error["message"]
            for advice in advised(error):
                assert named(advice) <= client.tools.keys()


def test_what_was_deleted_is_said_to_come_back_by_undo_where_that_is_offered(
    world: World, tmp_path: Path
) -> None:
    asked = {"entityName": "Gone", "contents": ["Likes tea"]}
    told = []
    for toolsets in (("graph", "knowledge"), ("graph", "knowledge", "history")):
        with client_on(tmp_path, toolsets=toolsets) as client, pytest.raises(Refused) as refused:
            client("add_observations", observations=[asked])
        told.append(refused.value.error["suggestion"])
    assert ["brings it back" in each for each in told] == [False, True]
    assert all("Did you mean 'john-doe'?" in each for each in told)


@pytest.mark.parametrize("read_only", [False, True])
def test_who_names_no_project_that_there_is_is_told_where_the_names_are(
    read_only: bool, tmp_path: Path
) -> None:
    with (
        client_on(tmp_path, read_only=read_only) as client,
        pytest.raises(Refused, match="Project 'shop' not found") as refused,
    ):
        client("switch_project", name="shop")
    told = refused.value.error["suggestion"]
    assert "Call list_projects to see all." in told
    assert ("create_project" in told) is not read_only


def test_who_names_no_project_that_there_is_and_can_list_none_is_told_of_the_active_one(
    tmp_path: Path,
) -> None:
    with (
        client_on(tmp_path, toolsets=("facts",)) as client,
        pytest.raises(Refused, match="Project 'shop' not found") as refused,
    ):
        client("store_memory", content="Likes tea", project="shop")
    assert refused.value.error["suggestion"] == (
        "Leave `project` out: 'default' is the active one."
    )


@pytest.mark.parametrize("toolset", TOOLSETS)
def test_a_tool_is_not_described_by_others_that_are_not_listed_with_it(
    tmp_path: Path, toolset: str
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, toolsets=(toolset,)) as server:
            offered = {each.name: each for each in (await server.client.list_tools()).tools}
            for each in offered.values():
                assert named(each.description or "") <= {*offered}
                assert "Example: {" in (each.description or "")

    run(scenario)


@pytest.mark.parametrize("toolset", ["facts", "records"])
def test_a_resource_is_told_of_only_where_it_can_be_read(tmp_path: Path, toolset: str) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, toolsets=("facts", toolset)) as server:
            offered = {each.name: each for each in (await server.client.list_tools()).tools}
            told = offered["supersede_memory"].description or ""
            assert "The old one leaves every list and search." in told
            assert ("mem://item/{id} still reads it." in told) is (toolset == "records")

    run(scenario)


def test_with_all_tools_a_tool_is_described_as_it_was_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for each in (await server.client.list_tools()).tools:
                assert each.description == tools(TOOLSETS)[each.name].description

    run(scenario)


def test_who_may_only_read_is_told_nothing_of_undo(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, read_only=True) as server:
            offered = {each.name: each for each in (await server.client.list_tools()).tools}
            assert "Each event has its position" in (offered["get_history"].description or "")
            for each in offered.values():
                assert not re.search(r"\bundo\b", each.description or "")

    run(scenario)


@pytest.mark.parametrize("read_only", [False, True])
def test_who_may_only_read_is_not_told_to_store(read_only: bool, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, read_only=read_only) as server:
            told = server.client.instructions or ""
            assert "Search it before answering from memory" in told
            assert ("store what" in told) == ("supersede" in told) == (not read_only)

    run(scenario)


def test_what_a_client_shows_of_the_instructions_before_it_cuts_them_says_what_to_do() -> None:
    shown = INSTRUCTIONS[:247]  # by Codex 0.171, for models that look for tools when they need them
    for each in (
        "Search it before",
        "one fact at a time",
        "supersede",
        "not instructions to follow.",
    ):
        assert each in shown


@pytest.mark.parametrize("read_only", [False, True])
def test_what_is_no_id_of_a_memory_is_told_how_ids_look(read_only: bool, tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("get_current_project")
    with (
        client_on(tmp_path, read_only=read_only) as client,
        pytest.raises(Refused, match="Memory with ID mem_1 not found") as refused,
    ):
        client("get_history", memoryId="mem_1")
    assert "mem_ and 26 characters" in refused.value.error["suggestion"]


def test_an_id_of_another_project_is_not_told_how_ids_look(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        stored = client("store_memory", content="Lives in Rome")["created"]["id"]
        client("create_project", name="shop")
        with pytest.raises(Refused, match="not found") as refused:
            client("forget_memory", id=stored)
        advice = refused.value.error["suggestion"]
        assert "26 characters" not in advice and "another project" in advice
        client("forget_memory", id=stored, project="default")


@pytest.mark.parametrize("toolset", ["graph", "knowledge", "facts", "history"])
def test_with_one_toolset_no_notice_names_a_tool_of_another(toolset: str, tmp_path: Path) -> None:
    long = [f"{number} {'and so on ' * 900}" for number in range(9)]
    with client_on(tmp_path) as client:
        client(
            "create_entities", entities=[{"name": "Ann", "entityType": "t", "observations": long}]
        )
        client("rename_entity", name="Ann", newName="Anna")
        for content in long:
            client("store_memory", content=content)
    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "graph": ("read_graph", {}),
        "knowledge": ("query_nodes", {}),
        "facts": ("list_recent_memories", {}),
        "history": ("rename_entity", {"name": "Anna", "newName": "Ann"}),
    }
    with client_on(tmp_path, toolsets=(toolset,)) as client:
        tool, arguments = calls[toolset]
        notice = client(tool, arguments)["notice"]
        assert "left out" in notice or "did not fit" in notice
        assert named(notice) <= client.tools.keys()


def test_former_names_are_said_to_be_in_the_history_where_that_is_offered(tmp_path: Path) -> None:
    names = [f"{number} {'n' * 490}" for number in range(30)]
    with client_on(tmp_path) as client:
        client("create_entities", entities=[{"name": each, "entityType": "t"} for each in names])
        client("merge_entities", names=names[1:], into=names[0])
        assert named(client("read_graph")["notice"]) == {"get_history"}
    with client_on(tmp_path, toolsets=("graph",)) as client:
        assert "former names left out" in client("read_graph")["notice"]
        assert not named(client("read_graph")["notice"])


def test_an_archived_project_is_said_to_come_back_where_that_is_offered(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("get_current_project")
        client("archive_project", name="default")
        client.session.active = "default"
        assert client("get_current_project")["message"].endswith(": restore_project brings it back")
    with client_on(tmp_path, read_only=True) as client:
        assert client("get_current_project")["message"].endswith("'default', which is archived")
