"""`memlog serve` as a client meets it: a real process, both eras, every tool, a clean end."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from memlog.projects.store import Store
from tests.served import (
    DEADLINE_S,
    Era,
    Message,
    Pipe,
    all_facts,
    environment,
    run_memlog,
    served,
)
from tests.service import Refused, client_on

Structured = dict[str, Any]
Call = Callable[[str, Structured], Awaitable[Structured]]

LEGACY: Era = "2025-11-25"
MODERN: Era = "2026-07-28"
ERAS: list[Era] = [LEGACY, MODERN]

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}
MARY = {"name": "mary", "entityType": "person", "observations": ["Runs a small bakery"]}
KNOWS = {"from": "Jon", "to": "mary", "relationType": "knows"}

SAVED = [
    {
        "name": "Ann",
        "entityType": "Person",
        "observations": ["Works at Acme"],
        "relations": [{"targetEntity": "Acme", "relationType": "works at"}],
    },
    {
        "name": "Acme",
        "entityType": "organization",
        "observations": ["Makes anvils"],
        "relations": [{"targetEntity": "Ann", "relationType": "employs"}],
    },
]
HUMS = {"content": "hums", "supersedes": "sings"}
NOTE = {
    "type": "note",
    "content": {"summary": "Adopt blue/green"},
    "source": "chat",
    "confidence": 0.5,
    "tags": ["project:shop"],
}

ROUND: list[tuple[str, Structured]] = [
    ("create_entities", {"entities": [JON, MARY]}),
    ("create_entities", {"entities": [{**JON, "observations": ["dances"]}], "threadId": "one"}),
    ("create_relations", {"relations": [KNOWS, {**KNOWS, "to": "nobody"}]}),
    ("create_relations", {"relations": [KNOWS]}),
    ("add_observations", {"observations": [{"entityName": "Jon", "contents": ["sings"]}]}),
    ("add_observations", {"observations": [{"entityName": "Jon", "contents": [HUMS]}]}),
    ("read_graph", {}),
    ("read_graph", {"limit": 1, "provenance": True}),
    ("read_graph", {"asOf": 2}),
    ("search_nodes", {"query": "bakery", "provenance": True}),
    ("search_nodes", {"query": "person", "limit": 1, "mode": "text"}),
    ("search_nodes", {"query": "xyzzy"}),
    ("open_nodes", {"names": ["Jon", "jom"], "provenance": True}),
    (
        "delete_observations",
        {"deletions": [{"entityName": "Jon", "observations": ["hums", "never"]}]},
    ),
    ("delete_relations", {"relations": [KNOWS, {**KNOWS, "relationType": "likes"}]}),
    ("save_memory", {"entities": SAVED, "threadId": "two"}),
    ("get_observation_history", {"entityName": "Jon"}),
    ("query_nodes", {"entityType": "Person", "limit": 1, "provenance": True}),
    ("find_relation_path", {"from": "Ann", "to": "Acme"}),
    ("find_relation_path", {"from": "Ann", "to": "Jon"}),
    ("get_analytics", {}),
    ("get_analytics", {"threadId": "two", "limit": 1}),
    ("search_nodes", {"query": "dances", "threadId": "one"}),
    ("recall", {"query": "dances", "threadId": "two"}),
    ("store_memory", {"content": "User lives in Seattle"}),
    ("store_memory", {"content": "User moved to Austin", "source": "extracted"}),
    ("supersede_memory", {"old_memory_id": "$0", "new_memory_id": "$1"}),
    ("search_memories", {"query": "Austin", "provenance": True}),
    ("list_recent_memories", {"limit": 1, "provenance": True}),
    ("memory_create", NOTE),
    ("memory_create", {**NOTE, "tags": ["topic:etl"]}),
    ("memory_search", {"query": "blue", "type": "note", "tags": ["topic:etl"]}),
    ("memory_search", {"query": "blue", "provenance": True}),
    ("memory_list", {"limit": 1}),
    ("memory_list", {"provenance": True}),
    ("recall", {"query": "Jon dances"}),
    ("recall", {"query": "Jon", "budgetTokens": 200, "asOf": 4}),
    ("get_history", {"entityName": "Jon"}),
    ("get_history", {"limit": 1}),
    ("changes_since", {"since": 3}),
    ("list_threads", {}),
    ("rename_entity", {"name": "Jon", "newName": "John"}),
    (
        "update_observation",
        {"entityName": "John", "observation": "dances", "newContent": "dances well"},
    ),
    ("merge_entities", {"names": ["mary"], "into": "John"}),
    ("undo", {"dryRun": True}),
    ("undo", {}),
    ("forget_memory", {"id": "$1"}),
    ("delete_entities", {"entityNames": ["John", "nobody"]}),
    ("get_current_project", {}),
    ("create_project", {"name": "other", "description": "of another kind"}),
    ("switch_project", {"name": "default"}),
    ("list_projects", {"status": "all"}),
    ("archive_project", {"name": "other"}),
    ("restore_project", {"name": "other"}),
    ("delete_project", {"name": "other"}),
    ("archive_project", {"name": "default"}),
    ("get_current_project", {}),
]
"""Calls that succeed, in this order, on an empty directory; every tool is among them. `$0` stands for
the id of the first memory stored."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    """One server for tests that leave it able to serve the next."""
    with served(tmp_path_factory.mktemp("data")) as started:
        yield started


def listed(server: Pipe) -> dict[str, Message]:
    return {tool["name"]: tool for tool in server.request("tools/list")["result"]["tools"]}


def names(answer: Structured) -> list[str]:
    return [entity["name"] for entity in answer["entities"]]


# -- a round of remembering


async def remember_and_forget(call: Call) -> None:
    """Store, relate, supersede, search by words and by meaning, delete."""
    await call("create_entities", {"entities": [JON, MARY]})
    related = await call("create_relations", {"relations": [KNOWS]})
    assert related["warnings"] == []

    newer = {"content": "is a dancer", "supersedes": "was a banker"}
    added = await call(
        "add_observations", {"observations": [{"entityName": "Jon", "contents": [newer]}]}
    )
    assert added["results"][0]["observations"][0]["version"] == 2

    by_words = await call("search_nodes", {"query": "dancer"})
    assert names(by_words) == ["Jon"]
    assert [edge["to"] for edge in by_words["relations"]] == ["mary"]
    assert names(await call("search_nodes", {"query": "banker", "mode": "text"})) == []
    meant = {"query": "who can bake bread?", "mode": "semantic"}
    assert names(await call("search_nodes", meant))[0] == "mary"

    assert (await call("delete_entities", {"entityNames": ["mary"]}))["deleted"] == 1
    assert names(await call("search_nodes", meant)) == []
    graph = await call("read_graph", {})
    assert (names(graph), graph["relations"]) == (["Jon"], [])
    assert graph["entities"][0]["observations"] == ["is a dancer"]


@pytest.mark.parametrize(("mode", "era"), [("legacy", LEGACY), ("auto", MODERN)])
def test_the_sdks_client_remembers_and_forgets_in_either_era(
    mode: str, era: Era, tmp_path: Path
) -> None:
    async def scenario() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "memlog", "serve"],
            env=environment(MEMLOG_DATA_DIR=str(tmp_path), MEMLOG_EMBEDDER="minilm"),
        )
        with anyio.fail_after(DEADLINE_S):
            async with Client(parameters, mode=mode) as client:
                assert client.protocol_version == era

                async def call(tool: str, arguments: Structured) -> Structured:
                    result = await client.call_tool(tool, arguments)
                    assert not result.is_error
                    assert result.structured_content is not None
                    return dict(result.structured_content)

                await remember_and_forget(call)
                refused = await client.call_tool("open_nodes", {"name": "Jon"})
                assert refused.is_error
                assert refused.structured_content is not None
                assert refused.structured_content["error"]["code"] == "INVALID_PARAMETER"

    anyio.run(scenario)


@pytest.mark.parametrize("era", ERAS)
def test_a_raw_pipe_remembers_and_forgets_in_either_era(era: Era, tmp_path: Path) -> None:
    with served(tmp_path, era=era, MEMLOG_EMBEDDER="minilm") as server:

        async def call(tool: str, arguments: Structured) -> Structured:
            return server(tool, **arguments)

        anyio.run(remember_and_forget, call)
        server.close_stdin()
        assert server.end()[0] == 0


@pytest.mark.parametrize("era", ERAS)
def test_whoever_shares_a_stateless_server_moves_nobody_to_another_project(
    era: Era, tmp_path: Path
) -> None:
    with served(tmp_path, "--stateless", era=era) as server:
        assert "name it in each call" in server("create_project", name="other")["message"]
        with pytest.raises(Refused, match="no session"):
            server("switch_project", name="other")
        assert server("create_entities", entities=[JON])["project"] == "default"
        server("create_entities", entities=[MARY], project="other")
        assert [each["name"] for each in server("read_graph")["entities"]] == ["Jon"]


def test_where_none_is_active_a_stateless_server_says_how_to_name_a_project(tmp_path: Path) -> None:
    with served(tmp_path, "--stateless", "--project", "") as server:
        with pytest.raises(Refused) as refused:
            server("read_graph")
        assert refused.value.error["code"] == "NO_ACTIVE_PROJECT"
        assert "Name one in each call" in refused.value.error["suggestion"]


# -- the list of tools


def test_every_tool_says_what_a_model_needs_to_know(server: Pipe) -> None:
    for name, tool in listed(server).items():
        assert tool["title"], name
        assert "Example" in tool["description"], name
        hints = {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}
        assert set(tool["annotations"]) == hints, name
        assert tool["annotations"]["openWorldHint"] is False, name
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object", name
        assert tool["inputSchema"]["additionalProperties"] is False, name


def test_what_takes_things_out_of_every_list_is_said_to_be_destructive(server: Pipe) -> None:
    tools = listed(server)
    for name in ("undo", "forget_memory", "delete_entities"):
        assert tools[name]["annotations"]["destructiveHint"] is True, name


def closed(schema: Any) -> Any:
    """The schema of a result with unknown keys forbidden, so that it has to name every key."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: closed(each) for key, each in schema.items()}
    if isinstance(schema.get("properties"), dict):
        strict.setdefault("additionalProperties", False)
    return strict


def test_real_answers_of_every_tool_match_its_schemas_to_the_last_key(tmp_path: Path) -> None:
    ids: list[str] = []
    with served(tmp_path, era=LEGACY) as server:
        tools = listed(server)
        assert {tool for tool, _ in ROUND} == set(tools), "ROUND has a call of every tool"
        for tool, given in ROUND:
            arguments = {
                key: ids[int(value[1:])] if str(value).startswith("$") else value
                for key, value in given.items()
            }
            jsonschema.validate(arguments, tools[tool]["inputSchema"])
            result = server.result(tool, **arguments)
            assert not result.get("isError"), (tool, result)
            structured = result["structuredContent"]
            jsonschema.validate(structured, tools[tool]["outputSchema"])
            jsonschema.validate(structured, closed(tools[tool]["outputSchema"]))
            assert "project" in structured
            text = json.loads(result["content"][0]["text"])
            assert text == structured or text in structured.values(), tool
            if tool == "store_memory":
                ids.append(structured["created"]["id"])


def test_what_every_tool_refuses_matches_its_schema_to_the_last_key(server: Pipe) -> None:
    for name, tool in listed(server).items():
        result = server.result(name, unheardOf=1)
        assert result["isError"] is True
        jsonschema.validate(result["structuredContent"], closed(tool["outputSchema"]))


def test_an_answer_that_is_neither_a_result_nor_an_error_matches_no_schema(server: Pipe) -> None:
    for name, tool in listed(server).items():
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"project": "default"}, tool["outputSchema"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"error": {"code": name}}, tool["outputSchema"])


def test_an_error_of_a_tool_is_a_result_that_says_the_same_twice(server: Pipe) -> None:
    result = server.result("create_project", name="")
    assert result["isError"] is True
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    error = result["structuredContent"]["error"]
    assert error["code"] == "INVALID_PARAMETER"
    assert error["problems"][0]["path"] == "name"


GRAPH = {
    "create_entities",
    "create_relations",
    "add_observations",
    "delete_entities",
    "delete_observations",
    "delete_relations",
    "read_graph",
    "search_nodes",
    "open_nodes",
}
PROJECTS = {
    "list_projects",
    "create_project",
    "switch_project",
    "get_current_project",
    "archive_project",
    "restore_project",
    "delete_project",
}


def test_one_toolset_is_offered_alone_by_flag_and_all_by_default(
    server: Pipe, tmp_path: Path
) -> None:
    everything = listed(server)
    assert set(everything) >= GRAPH | PROJECTS
    with served(tmp_path, "--toolsets", "graph", MEMLOG_TOOLSETS="projects") as graph:
        alone = listed(graph)
    assert {*alone} == GRAPH
    assert undescribed(alone) == {name: undescribed(everything)[name] for name in alone}


def undescribed(offered: dict[str, Any]) -> dict[str, Any]:
    """The tools without what they say of other tools, which is for tests/test_advice.py."""
    return {name: {**each, "description": ""} for name, each in offered.items()}


def test_read_only_hides_every_tool_that_writes_and_still_reads(
    server: Pipe, tmp_path: Path
) -> None:
    with client_on(tmp_path) as writer:
        writer("create_entities", entities=[JON])
    reading = {
        name: tool for name, tool in listed(server).items() if tool["annotations"]["readOnlyHint"]
    }
    with served(tmp_path, "--read-only") as reader:
        assert undescribed(listed(reader)) == undescribed(reading)
        assert names(reader("search_nodes", query="banker")) == ["Jon"]
        error = reader.request(
            "tools/call", name="delete_entities", arguments={"entityNames": ["Jon"]}
        )["error"]
        assert error["code"] == -32601
        assert names(reader("read_graph")) == ["Jon"]


def test_read_only_over_an_empty_directory_makes_no_project_and_says_so(tmp_path: Path) -> None:
    with served(tmp_path, "--read-only") as reader:
        for tool, arguments in {
            "read_graph": {},
            "search_nodes": {"query": "banker"},
            "list_threads": {},
            "get_current_project": {},
        }.items():
            with pytest.raises(Refused, match="PROJECT_NOT_FOUND") as refused:
                reader(tool, **arguments)
            assert "read-only" in refused.value.error["message"]
        assert reader("list_projects")["projects"] == []
    assert not list(tmp_path.glob("projects/*"))


def test_the_environment_sets_toolsets_and_read_only_too(tmp_path: Path) -> None:
    with served(tmp_path, MEMLOG_TOOLSETS="projects", MEMLOG_READ_ONLY="1") as server:
        assert set(listed(server)) == {"list_projects", "switch_project", "get_current_project"}


def test_what_is_sent_right_after_a_switch_is_stored_in_the_project_switched_to(
    tmp_path: Path,
) -> None:
    with served(tmp_path, era="2025-11-25") as server:
        for name in "ab":
            server("create_project", name=name)
        for number in range(40):
            wanted = "ab"[number % 2]
            server.send_call("switch_project", name=wanted)
            server.send_call("store_memory", content=f"Round {number}")
            answers = [server.read() or {} for _ in range(2)]
            told = [each["result"]["structuredContent"] for each in answers]
            assert [each["project"] for each in told if "created" in each] == [wanted]


@pytest.mark.parametrize("era", ERAS)
def test_writes_that_are_sent_together_are_done_in_the_order_they_came(
    tmp_path: Path, era: Era
) -> None:
    with served(tmp_path, era=era) as server:
        for number in range(40):
            jon = {"name": "Jon", "entityType": "person", "observations": [f"Round {number}"]}
            fact = {"entityName": "Jon", "contents": ["Likes tea"]}
            server.send_call("delete_entities", entityNames=["Jon"])
            server.send_call("create_entities", entities=[jon])
            server.send_call("add_observations", observations=[fact])
            for _ in range(3):
                server.read()
            assert all_facts(server, "Jon") == [f"Round {number}", "Likes tea"]


def test_a_variable_that_does_nothing_is_told_in_the_log_at_the_start(tmp_path: Path) -> None:
    done = run_memlog(
        "serve",
        data_dir=tmp_path,
        MEMLOG_READONLY="1",
        MEMORY_FILE_PATH="memory.json",
        DATABASE_URL="postgres://",
    )
    assert (done.returncode, done.stdout) == (0, "")
    first, second = done.stderr.splitlines()
    assert (
        "MEMLOG_READONLY is no setting and does nothing. Did you mean 'MEMLOG_READ_ONLY'" in first
    )
    assert "MEMORY_FILE_PATH is no setting and does nothing." in second
    assert not run_memlog("serve", data_dir=tmp_path).stderr


def test_flags_that_do_not_fit_are_refused_in_words_before_anything_is_served(
    tmp_path: Path,
) -> None:
    done = run_memlog("serve", "--toolsets", "grahp", "--log-level", "loud", data_dir=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Did you mean 'graph'?" in done.stderr
    assert "--log-level: log_level is 'loud'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_tool_is_a_json_rpc_error_that_offers_the_nearest(server: Pipe) -> None:
    answer = server.request("tools/call", name="serch_nodes", arguments={"query": "x"})
    assert answer["error"]["code"] == -32601
    assert "search_nodes" in answer["error"]["message"]
    assert server.request("tools/list")["result"]["tools"]


# -- the end

UNDER_WAY = 20
"""So many writes a server finishes within the time that it has at its end, also where each takes half a second."""


def names_on_disk(data_dir: Path) -> set[str]:
    store = Store(data_dir)
    try:
        with store.project("default").read() as state:
            return {entity.name for entity in state.entities()}
    finally:
        store.close()


def send_creates(server: Pipe) -> dict[int, str]:
    """Requests under way, from their ids to the names they create."""
    return {
        server.send_call(
            "create_entities", entities=[{"name": f"e{n}", "entityType": "t"}]
        ): f"e{n}"
        for n in range(UNDER_WAY)
    }


@pytest.mark.parametrize("era", ERAS)
def test_at_eof_everything_sent_is_answered_and_on_disk(era: Era, tmp_path: Path) -> None:
    with served(tmp_path, era=era) as server:
        sent = send_creates(server)
        server.close_stdin()
        answered = set()
        while (answer := server.read()) is not None:
            assert not answer["result"]["isError"]
            answered.add(answer["id"])
        assert server.end() == (0, "")
        assert answered == set(sent)
    assert names_on_disk(tmp_path) == set(sent.values())


@pytest.mark.parametrize(("era", "number"), [(LEGACY, signal.SIGTERM), (MODERN, signal.SIGINT)])
def test_at_a_signal_everything_acknowledged_is_on_disk(
    era: Era, number: signal.Signals, tmp_path: Path
) -> None:
    with served(tmp_path, era=era) as server:
        sent = send_creates(server)
        acknowledged = set()
        while (answer := server.read()) is not None:
            acknowledged.add(sent[answer["id"]])
            if len(acknowledged) == 5:
                server.popen.send_signal(number)
        assert server.end() == (0, "")
    assert len(acknowledged) >= 5
    assert acknowledged <= names_on_disk(tmp_path)


def test_an_idle_server_that_loaded_the_model_ends_cleanly(tmp_path: Path) -> None:
    with served(tmp_path, MEMLOG_EMBEDDER="minilm") as server:
        server("create_entities", entities=[MARY])
        server("search_nodes", query="who can bake bread?", mode="semantic")
        server.popen.send_signal(signal.SIGTERM)
        assert server.end() == (0, "")
