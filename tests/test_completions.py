"""What is offered while a client's user types: for templates and for prompts."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from mcp_types import INVALID_PARAMS, Completion, PromptReference, ResourceTemplateReference

from server import completions
from tests.connected import ERAS, Joined, Mode, joined, run
from tests.service import client_on

ITEM = "mem://item/{id}{?project}"
BY_TAGS = "mem://by-tags/{tags}{?limit,project}"
BY_TYPE = "mem://by-type/{type}{?limit,project}"
FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")


async def offered(server: Joined, of: str, name: str, typed: str, **given: str) -> Completion:
    """What completes an argument of a template, or of a prompt."""
    ref = ResourceTemplateReference(uri=of) if "://" in of else PromptReference(name=of)
    asked = {"name": name, "value": typed}
    return (await server.client.complete(ref, asked, context_arguments=given or None)).completion


async def values(server: Joined, of: str, name: str, typed: str, **given: str) -> list[str]:
    return (await offered(server, of, name, typed, **given)).values


@ERAS
def test_types_and_tags_are_completed_whatever_the_case(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.note("a", tags=["project:alpha", "topic:etl"])
            await server.note("b", type="Decision", tags=["project:beta"])
            await server.note("c", type="doc", tags=["project:alpha"])
            await server.call("store_memory", content="User likes tea")
            assert await values(server, BY_TYPE, "type", "d") == ["Decision", "doc"]
            assert await values(server, BY_TYPE, "type", "") == ["Decision", "doc", "fact", "note"]
            assert await values(server, BY_TYPE, "type", "x") == []
            assert await values(server, "memory_save", "type", "DO") == ["doc"]
            for of in (BY_TAGS, "memory_recall", "memory_save"):
                assert await values(server, of, "tags", "PROJ") == ["project:alpha", "project:beta"]
                assert await values(server, of, "tags", "project:alpha,") == [
                    "project:alpha,project:beta",
                    "project:alpha,topic:etl",
                ]
                assert await values(server, of, "tags", "project:alpha, to") == [
                    "project:alpha,topic:etl"
                ]

    run(scenario)


def test_what_is_typed_is_completed_however_its_letters_are_composed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for form in FORMS:
                name = f"{unicodedata.normalize(form, 'Café')} {form}"
                await server.note(form, type=name)
                made = [{"name": name, "entityType": "bar", "observations": []}]
                await server.call("create_entities", entities=made)
            for form in FORMS:
                typed = unicodedata.normalize(form, "CAFÉ")
                for of, name in ((BY_TYPE, "type"), ("memory_recall", "query")):
                    assert len(await values(server, of, name, typed)) == 2, (of, form)

    run(scenario)


def test_labels_of_records_that_are_gone_are_not_offered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            old = await server.note("old", type="draft", tags=["status:wip"])
            new = await server.note("new")
            await server.call("supersede_memory", old_memory_id=old, new_memory_id=new)
            assert await values(server, BY_TYPE, "type", "") == ["note"]
            assert await values(server, BY_TAGS, "tags", "") == []

    run(scenario)


@ERAS
def test_at_most_a_hundred_are_offered_and_the_rest_is_counted(tmp_path: Path, mode: Mode) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            for part in range(6):
                tags = [f"n:{number:03}" for number in range(part * 20, part * 20 + 20)]
                await server.note(f"note {part}", tags=tags)
            many = await offered(server, BY_TAGS, "tags", "n:")
            assert (len(many.values), many.total, many.has_more) == (100, 120, True)
            assert many.values[0] == "n:000"
            few = await offered(server, BY_TAGS, "tags", "n:11")
            assert (few.values[-1], few.total, few.has_more) == ("n:119", 10, False)

    run(scenario)


def test_ids_are_completed_the_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            ids = [await server.note(f"note {number}") for number in range(5)]
            await server.call("supersede_memory", old_memory_id=ids[0], new_memory_id=ids[4])
            assert await values(server, ITEM, "id", "MEM_") == ids[::-1]
            assert await values(server, ITEM, "id", ids[0]) == [ids[0]]
            assert await values(server, ITEM, "id", "mem_0_") == []
            monkeypatch.setattr(completions, "IDS_READ_MAX", 3)
            many = await offered(server, ITEM, "id", "mem_")
            assert (many.values, many.total, many.has_more) == (ids[:0:-1], None, True)

    run(scenario)


def test_names_of_entities_are_offered_to_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            people = [{"name": name, "entityType": "person"} for name in ("Zoë", "jon", "Joan")]
            await server.call("create_entities", entities=people)
            assert await values(server, "memory_recall", "query", "JO") == ["Joan", "jon"]
            assert await values(server, "memory_recall", "query", "zOË") == ["Zoë"]
            monkeypatch.setattr(completions, "ENTITIES_READ_MAX", 2)
            some = await offered(server, "memory_recall", "query", "jo")
            assert (some.values, some.total, some.has_more) == (["jon"], None, True)

    run(scenario)


def test_names_are_offered_as_search_finds_them_without_accents_and_dots(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            names = ("İstanbul", "Ésope", "Eva", "شَمْس", "ＡＰＩ", "Izmir")  # noqa: RUF001
            entities = [{"name": name, "entityType": "thing"} for name in names]
            await server.call("create_entities", entities=entities)
            for typed, expected in (
                ("istan", ["İstanbul"]),
                ("I", ["İstanbul", "Izmir"]),
                ("e", ["Ésope", "Eva"]),
                ("شمس", ["شَمْس"]),
                ("api", ["ＡＰＩ"]),  # noqa: RUF001
            ):
                assert await values(server, "memory_recall", "query", typed) == expected

    run(scenario)


def test_without_the_graph_no_name_of_an_entity_is_offered(tmp_path: Path) -> None:
    async def scenario(*toolsets: str) -> list[str]:
        async with joined(tmp_path, toolsets=toolsets) as server:
            return await values(server, "memory_recall", "query", "jo")

    with client_on(tmp_path) as client:
        client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
    assert run(lambda: scenario("graph", "records")) == ["Jon"]
    assert run(lambda: scenario("records")) == []


def test_projects_and_limits_are_completed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for name in ("shop", "Shed", "old"):
                await server.call("create_project", name=name)
            await server.call("archive_project", name="old")
            assert await values(server, ITEM, "project", "sh") == ["Shed", "shop"]
            assert await values(server, "memory_save", "project", "o") == []
            assert await values(server, BY_TYPE, "limit", "1") == ["10", "100"]

    run(scenario)


def test_the_active_project_is_offered_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            for name in ("attic", "shop", "shed"):
                await server.call("create_project", name=name)
            await server.call("switch_project", name="shop")
            for of in (ITEM, "memory_save"):
                assert await values(server, of, "project", "") == ["shop", "attic", "shed"]
                assert await values(server, of, "project", "sh") == ["shop", "shed"]
                assert await values(server, of, "project", "a") == ["attic"]

    run(scenario)


@ERAS
def test_what_a_prompt_can_do_without_is_offered_once_something_is_typed(
    tmp_path: Path, mode: Mode
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            await server.call("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
            await server.note("a", type="doc", tags=["topic:etl"])
            for of in ("memory_recall", "memory_save"):
                assert await values(server, of, "tags", "") == []
                assert await values(server, of, "tags", "t") == ["topic:etl"]
            assert await values(server, "memory_save", "type", "") == []
            assert await values(server, "memory_save", "type", "d") == ["doc"]
            assert await values(server, "memory_recall", "query", "") == ["Jon"]
            assert await values(server, BY_TAGS, "tags", "") == ["topic:etl"]

    run(scenario)


def test_the_project_that_was_chosen_is_looked_into(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            await server.note("x", type="there")
            await server.call("create_project", name="shop")
            assert await values(server, BY_TYPE, "type", "") == []
            assert await values(server, BY_TYPE, "type", "", project="default") == ["there"]
            assert await values(server, BY_TYPE, "type", "", project="nowhere") == []
        async with joined(tmp_path, project="") as server:
            assert await values(server, BY_TYPE, "type", "") == []

    run(scenario)


def test_completing_makes_no_project(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            assert await values(server, BY_TYPE, "type", "") == []
            assert server.service.store.projects("all") == []

    run(scenario)


def test_nothing_is_offered_while_the_data_directory_is_away(tmp_path: Path) -> None:
    data_dir, away = tmp_path / "data", tmp_path / "away"

    async def scenario() -> None:
        async with joined(data_dir) as server:
            await server.note("a")
            data_dir.rename(away)
            for of, name in (("memory_recall", "project"), (BY_TYPE, "type"), (ITEM, "id")):
                assert await values(server, of, name, "") == []
            away.rename(data_dir)
            assert await values(server, "memory_recall", "project", "") == ["default"]

    run(scenario)


def test_free_text_and_endless_text_are_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            await server.note("x")
            assert await values(server, "memory_save", "content", "x") == []
            for of, name in ((ITEM, "id"), (BY_TAGS, "tags"), (BY_TYPE, "type")):
                assert await values(server, of, name, "m" * 1_000) == []
                assert await values(server, of, name, "m" * 100_000) == []

    run(scenario)


@ERAS
@pytest.mark.parametrize(
    ("of", "name", "message"),
    [
        (
            "mem://everything/{x}",
            "x",
            "Unknown template 'mem://everything/{x}'. There are: memory:",
        ),
        (BY_TYPE, "tipe", "Unknown argument 'tipe'. Did you mean 'type'?"),
        (BY_TYPE, "id", "Unknown argument 'id'. There are: type, limit, project."),
        ("memory_recal", "query", "Unknown prompt 'memory_recal'. Did you mean 'memory_recall'"),
        ("memory_recall", "content", "Unknown argument 'content'."),
    ],
)
def test_what_is_not_on_offer_is_refused(
    tmp_path: Path, mode: Mode, of: str, name: str, message: str
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            error = await server.refusal(offered(server, of, name, ""))
            assert error.code == INVALID_PARAMS
            assert message in error.message

    run(scenario)


def test_where_no_prompt_is_offered_that_is_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, toolsets=("graph",)) as server:
            error = await server.refusal(offered(server, "x", "query", ""))
            assert error.message == "Unknown prompt 'x'. There are: none."

    run(scenario)


def test_a_template_may_be_named_without_its_parameters(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with joined(tmp_path) as server:
            await server.note("x")
            assert await values(server, "mem://by-type/{type}", "type", "") == ["note"]

    run(scenario)
