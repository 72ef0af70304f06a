"""Resources as a client sees them: listed, by template, read, refused; and the links to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.uri_template import UriTemplate
from mcp_types import INVALID_PARAMS, ResourceLink

from server.refusals import RESOURCE_NOT_FOUND
from tests.connected import ERAS, Joined, Mode, joined, run

NOBODY = "mem_01h455vb4pex5vsknk084sn02q"
NOT_FOUND = {"legacy": RESOURCE_NOT_FOUND, "auto": INVALID_PARAMS}


async def listed_ids(server: Joined, uri: str) -> list[str]:
    return [each["id"] for each in json.loads(await server.read(uri))["results"]]


async def listed_uris(server: Joined) -> list[str]:
    return [each.uri for each in (await server.client.list_resources()).resources]


# -- records


@ERAS
def test_a_record_is_searched_and_read_by_its_link(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            content = {
                "summary": "Adopt Blue/Green deploy for service-x",
                "rationale": ["zero-downtime", "fast rollback"],
            }
            tags = ["project:service-x", "topic:release", "status:accepted"]
            saved = await server.call(
                "memory_create",
                type="decision",
                content=content,
                source="chat://claude/session-2025-09-17",
                tags=tags,
                confidence=0.9,
            )
            found = await server.client.call_tool(
                "memory_search",
                {"query": "rollback for service-x deploy", "tags": tags[:2], "limit": 3},
            )
            (link,) = [each for each in found.content if isinstance(each, ResourceLink)]
            record = json.loads(await server.read(link.uri))
        assert record == {
            "project": "default",
            "id": saved["id"],
            "type": "decision",
            "content": content,
            "source": "chat://claude/session-2025-09-17",
            "confidence": 0.9,
            "tags": tags,
            "createdAt": saved["createdAt"],
            "updatedAt": saved["updatedAt"],
            "supersedes": None,
            "supersededBy": None,
            "deletedAt": None,
        }

    run(scenario)


@ERAS
def test_search_and_list_give_a_link_beside_each_result(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            for summary in ("tea is green", "tea is black"):
                await server.note(summary, type="finding")
            for tool, arguments in (("memory_search", {"query": "tea"}), ("memory_list", {})):
                result = await server.client.call_tool(tool, arguments)
                text, *links = result.content
                assert text.type == "text"
                assert json.loads(text.text) == result.structured_content
                results = (result.structured_content or {})["results"]
                assert len(results) == 2
                assert [each.model_dump(exclude_none=True) for each in links] == [
                    {
                        "type": "resource_link",
                        "uri": each["uri"],
                        "name": f"finding {each['id']}",
                        "mime_type": "application/json",
                    }
                    for each in results
                ]

    run(scenario)


@ERAS
def test_a_superseded_fact_is_still_read_but_on_no_list(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            old = (await server.call("store_memory", content="User lives in Seattle"))["created"]
            new = (await server.call("store_memory", content="User moved to Austin"))["created"]
            tagged = await server.note("x", type="fact", tags=["a"])
            lists = ("mem://recent", "mem://by-type/fact", "mem://by-tags/a")
            assert [await listed_ids(server, uri) for uri in lists] == [
                [tagged, new["id"], old["id"]],
                [tagged, new["id"], old["id"]],
                [tagged],
            ]
            for outdated in (old["id"], tagged):
                await server.call(
                    "supersede_memory", old_memory_id=outdated, new_memory_id=new["id"]
                )
            assert [await listed_ids(server, uri) for uri in lists] == [[new["id"]]] * 2 + [[]]
            assert await listed_uris(server) == [
                "memory://knowledge-graph",
                f"mem://item/{new['id']}",
            ]
            record = json.loads(await server.read(f"mem://item/{old['id']}"))
            assert record["content"] == "User lives in Seattle"
            assert record["supersededBy"] == new["id"]
            newer = json.loads(await server.read(f"mem://item/{new['id']}"))
            assert newer["supersededBy"] is None

    run(scenario)


@ERAS
def test_every_template_is_read_as_it_expands(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            first = await server.note("first", tags=["project:alpha", "topic:etl"])
            await server.note("second", tags=["project:alpha"])
            third = await server.note("third", type="todo", tags=["topic:etl", "project:alpha"])
            found = await server.client.list_resource_templates()
            templates = {each.uri_template: each for each in found.resource_templates}
            assert list(templates) == [
                "memory://knowledge-graph{?project}",
                "mem://item/{id}{?project}",
                "mem://recent{?limit,project}",
                "mem://by-tags/{tags}{?limit,project}",
                "mem://by-type/{type}{?limit,project}",
            ]
            assert all(each.mime_type == "application/json" for each in templates.values())
            assert all(each.name and each.title and each.description for each in templates.values())

            def expanded(template: str, **values: str | list[str]) -> str:
                return UriTemplate.parse(template).expand(values)

            graph, item, recent, by_tags, by_type = templates
            assert json.loads(await server.read(expanded(graph, project="default"))) == {
                "entities": [],
                "relations": [],
            }
            assert first in await server.read(expanded(item, id=first))
            assert await listed_ids(server, expanded(recent, limit="1")) == [third]
            both = ["project:alpha", "topic:etl"]
            assert await listed_ids(server, expanded(by_tags, tags=both)) == [third, first]
            assert await listed_ids(server, expanded(by_tags, tags=",".join(both))) == [
                third,
                first,
            ]
            assert await listed_ids(server, expanded(by_type, type="todo", limit="5")) == [third]

    run(scenario)


def test_the_uris_of_the_guide_are_read_as_they_stand_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, "legacy") as server:
            note = await server.note("x", tags=["project:alpha", "topic:etl"])
            for uri in (
                "mem://recent?limit=20",
                "mem://by-tags/project:alpha,topic:etl?limit=50",
                "mem://by-type/note?limit=100",
            ):
                assert await listed_ids(server, uri) == [note]

    run(scenario)


def test_a_list_is_what_memory_list_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for number in range(30):
                await server.note(f"note {number}", tags=[f"even:{1 - number % 2}"])
            listed = await server.call("memory_list", tags=["even:1"], limit=7)
            assert json.loads(await server.read("mem://by-tags/even:1?limit=7")) == listed
            assert "content" not in listed["results"][0]
            assert len(await listed_ids(server, "mem://recent")) == 20
            assert len(await listed_ids(server, "mem://by-type/note")) == 30
            rest = await server.call("memory_list", tags=["even:1"], cursor=listed["nextCursor"])
            assert len(rest["results"]) == 8

    run(scenario)


def test_lists_keep_to_the_largest_limit_of_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, search_limit_max=3) as server:
            for number in range(5):
                await server.note(f"note {number}")
            assert len(await listed_ids(server, "mem://recent")) == 3
            error = await server.refusal(server.read("mem://recent?limit=4"))
            assert (error.code, error.data["code"]) == (INVALID_PARAMS, "LIMIT_EXCEEDED")

    run(scenario)


def test_a_list_whose_uri_names_no_limit_keeps_to_the_size_of_an_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            tags = [f"{number:02d}:{'x' * 90}" for number in range(20)]
            for number in range(40):
                await server.note(f"note {number}", tags=tags)
            text = await server.read("mem://by-type/note")
            assert len(text) < 33_000
            told = json.loads(text)
            rest = await server.call(
                "memory_list", type="note", limit=40, cursor=told["nextCursor"]
            )
            assert len(told["results"]) + len(rest["results"]) == 40
            assert len(await listed_ids(server, "mem://by-type/note?limit=40")) == 40

    run(scenario)


def test_reading_a_record_counts_as_using_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            note = await server.note("x")
            await server.read("mem://recent")
            assert server.service.usage.accessed_us(note) == 0
            await server.read(f"mem://item/{note}")
            assert server.service.usage.accessed_us(note) > 0

    run(scenario)


# -- the knowledge graph


@ERAS
def test_the_graph_is_read_whole(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            people = [
                {"name": f"p{number}", "entityType": "person", "observations": ["x" * 300]}
                for number in range(300)
            ]
            await server.call("create_entities", entities=people)
            edge = {"from": "p0", "to": "p1", "relationType": "knows"}
            await server.call("create_relations", relations=[edge])
            graph = json.loads(await server.read("memory://knowledge-graph"))
            (resource,) = (await server.client.list_resources()).resources
        assert list(graph) == ["entities", "relations"]
        assert [
            {key: each[key] for key in ("name", "entityType", "observations")}
            for each in graph["entities"]
        ] == people
        assert [edge.items() <= each.items() for each in graph["relations"]] == [True]
        assert resource.model_dump(exclude_none=True) == {
            "uri": "memory://knowledge-graph",
            "name": "knowledge-graph",
            "title": "Knowledge Graph",
            "description": "The full knowledge graph with all entities and relations",
            "mime_type": "application/json",
        }

    run(scenario)


# -- listing


def test_the_list_shows_the_newest_records_by_what_they_say(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for number in range(25):
                await server.note(f"note {number}")
            await server.note("x", content={"steps": ["a", "b"]}, type="runbook")
            await server.note("x", content="word " * 40)
            _, *records = (await server.client.list_resources()).resources
            assert len(records) == 20
            assert records[0].name == "note: " + ("word " * 16).rstrip() + "…"
            assert records[1].name == 'runbook: {"steps":["a","b"]}'
            assert records[2].name == "note: note 24"
            assert all(each.mime_type == "application/json" for each in records)
            assert "note 24" in await server.read(records[2].uri)

    run(scenario)


def test_listing_makes_no_project(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            assert await listed_uris(server) == ["memory://knowledge-graph"]
            assert server.service.store.projects("all") == []
        async with joined(tmp_path, project="") as server:
            assert await listed_uris(server) == ["memory://knowledge-graph"]

    run(scenario)


def test_there_is_no_second_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for listing in (server.client.list_resources, server.client.list_resource_templates):
                error = await server.refusal(listing(cursor="2"))
                assert error.code == INVALID_PARAMS

    run(scenario)


@pytest.mark.parametrize(
    ("toolsets", "offered", "refused"),
    [
        (("graph",), "memory://knowledge-graph", "mem://recent"),
        (("records",), "mem://recent", "memory://knowledge-graph"),
    ],
)
def test_resources_come_with_their_toolset(
    tmp_path: Path, toolsets: tuple[str, ...], offered: str, refused: str
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, toolsets=toolsets) as server:
            await server.read(offered)
            error = await server.refusal(server.read(refused))
            assert error.message.startswith(f"Resource not found: {refused}. There are: ")
            assert f"{offered}{{?" in error.message and f"{refused}{{" not in error.message
            listed = await server.client.list_resource_templates()
            assert {each.uri_template.partition(":")[0] for each in listed.resource_templates} == {
                offered.partition(":")[0]
            }

    run(scenario)


def test_without_those_toolsets_there_are_no_resources(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, toolsets=("projects",)) as server:
            assert server.client.server_capabilities.resources is None
            assert server.client.server_capabilities.completions is None

    run(scenario)


# -- projects


def test_a_uri_may_name_another_project(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            await server.call("create_project", name="my app")
            await server.call("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
            note = await server.note("in my app")
            await server.call("switch_project", name="default")
            for uri, text in (
                ("memory://knowledge-graph", "Jon"),
                ("mem://recent", note),
                ("mem://by-type/note", note),
                (f"mem://item/{note}", "in my app"),
            ):
                assert text in await server.read(f"{uri}?project=my%20app")
            error = await server.refusal(server.read(f"mem://item/{note}"))
            assert error.data["code"] == "MEMORY_NOT_FOUND"
            (there,) = json.loads(await server.read("mem://recent?project=my%20app"))["results"]
            assert there["uri"] == f"mem://item/{note}?project=my%20app"
            assert note in await server.read(there["uri"])

    run(scenario)


@ERAS
def test_a_project_that_cannot_be_read_is_said_to_be_so(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode, project="") as server:
            await server.call("create_project", name="old")
            await server.call("archive_project", name="old")

            async def refusal(uri: str) -> tuple[int, Any]:
                error = await server.refusal(server.read(uri))
                return error.code, error.data["code"]

            there_is_none = NOT_FOUND[mode]
            assert await refusal("mem://recent") == (INVALID_PARAMS, "NO_ACTIVE_PROJECT")
            error = await server.refusal(server.read("memory://knowledge-graph"))
            assert error.message == (
                "No active project. Use switch_project to select one. "
                "The URI can name one: …?project=NAME."
            )
            error = await server.refusal(server.read("mem://recent?limit=5"))
            assert error.message.endswith(" The URI can name one: …&project=NAME.")
            assert await refusal("mem://recent?project=old") == (there_is_none, "PROJECT_ARCHIVED")
            assert await refusal("memory://knowledge-graph?project=odl") == (
                there_is_none,
                "PROJECT_NOT_FOUND",
            )

    run(scenario)


# -- refusals


@ERAS
def test_an_unknown_resource_is_an_error_that_says_what_there_is(
    tmp_path: Path, mode: Mode
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            for uri in ("mem://everything", "file:///etc/passwd", "mem://item/a/../b"):
                error = await server.refusal(server.read(uri))
                assert error.code == NOT_FOUND[mode]
                assert error.message.startswith(f"Resource not found: {uri}. There are: memory://")
                assert error.message.endswith("mem://by-type/{type}{?limit,project}")
                assert error.data == {"uri": uri}

    run(scenario)


@ERAS
@pytest.mark.parametrize(
    "memory_id", [NOBODY, "123e4567", "%2e%2e%2flog.mdb", "x" * 200, "%C3%BC" * 90, "mem_"]
)
def test_a_record_that_is_not_there_is_not_found(
    tmp_path: Path, mode: Mode, memory_id: str
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.note("something else")
            error = await server.refusal(server.read(f"mem://item/{memory_id}"))
            assert (error.code, error.data["code"]) == (NOT_FOUND[mode], "MEMORY_NOT_FOUND")

    run(scenario)


@ERAS
@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("mem://recent?limit=0", "limit: 0 is out of range"),
        ("mem://recent?limit=-1", "limit: -1 is out of range. Pass an integer at least 1."),
        ("mem://recent?limit=9999999999", "limit is 9999999999. Max 100."),
        ("mem://recent?limit=many", 'got the string "many"'),
        ("mem://recent?limit=1e9", 'got the string "1e9"'),
        ("mem://recent?limit=1.0", 'the string "1.0". Write it in digits, 18 at most: limit=20'),
        ("mem://by-type/note?limit=true", 'the string "true". Write it in digits, 18 at most'),
        ("mem://recent?limit=٣", "expected an integer"),
        ("mem://recent?limit=101", "limit is 101. Max 100."),
        ("mem://recent?limit=" + "9" * 400, "expected an integer"),
        ("mem://by-type/note?limit=1000000", "Max 100."),
        ("mem://by-tags/a,B?limit=3", 'tags[1]: "B" does not match'),
        ("mem://by-tags/a,,b", 'tags[1]: "" does not match'),
        ("mem://by-type/" + "t" * 201, "type"),
        ("mem://by-type/note?tag=a", "unknown parameter 'tag'"),
        ("mem://item/%E0%A4%A", "% must be followed by two hexadecimal digits"),
        ("mem://recent?project=" + "p" * 101, "project"),
    ],
)
def test_a_wrong_part_of_a_uri_is_named(tmp_path: Path, mode: Mode, uri: str, message: str) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            error = await server.refusal(server.read(uri))
            assert error.code == INVALID_PARAMS
            assert message in error.message
            assert len(error.message) < 500

    run(scenario)
