"""Each common mistake comes back with its code and with what is needed to write the right call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from server.listing import answer_schema
from tests.mistakes import MISTAKES, Mistake
from tests.service import Client, Refused, client_on

CODES = {
    *("INVALID_PARAMETER", "PROJECT_NOT_FOUND", "PROJECT_EXISTS", "PROJECT_ARCHIVED"),
    *("ENTITY_NOT_FOUND", "ENTITY_EXISTS", "OBSERVATION_NOT_FOUND", "MEMORY_NOT_FOUND"),
    *("CONFLICT", "LIMIT_EXCEEDED"),
}


class World:
    """A little memory to make mistakes in, and the ids in it by name."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client("create_project", name="old-app")
        client("archive_project", name="old-app")
        client("switch_project", name="default")
        john = {"name": "john-doe", "entityType": "person", "observations": ["Lives in Paris"]}
        techcorp = {"name": "techcorp", "entityType": "organization"}
        client("create_entities", entities=[john, techcorp])
        self.ids = {
            city.lower(): client("store_memory", content=f"User moved to {city}")["created"]["id"]
            for city in ("Seattle", "Austin", "Boise")
        }
        self.call("supersede_memory", {"old_memory_id": "$seattle", "new_memory_id": "$austin"})

    def told(self, text: str) -> str:
        """`text` with the ids of this world in it; `$austinx` is an id with a letter too many."""
        return Template(text).safe_substitute(self.ids, austinx=self.ids["austin"] + "x")

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return self.client(tool, json.loads(self.told(json.dumps(arguments))))

    def head(self) -> int:
        return self.client.service.open("default").project.head()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with client_on(tmp_path) as client:
        yield World(client)


def title(mistake: Mistake) -> str:
    return f"{mistake.tool}-{mistake.path or mistake.code.lower()}"


@pytest.mark.parametrize("mistake", MISTAKES, ids=title)
def test_a_mistake_is_told_so_that_the_right_call_can_be_written(
    world: World, mistake: Mistake
) -> None:
    head = world.head()
    with pytest.raises(Refused) as refused:
        world.call(mistake.tool, mistake.wrong)
    error = refused.value.error
    assert error["code"] == mistake.code
    assert world.told(mistake.said) in error["message"]
    assert world.told(mistake.advice) in error["suggestion"]
    if mistake.path:
        (found,) = error["problems"]
        assert found["path"] == mistake.path
        assert found["suggestion"] == error["suggestion"]
    answer = json.loads(world.client.texts[-1])
    assert answer["error"] == json.loads(json.dumps(error))
    jsonschema.validate(answer, answer_schema(world.client.tools[mistake.tool]))
    assert world.head() == head, "a refused call writes nothing"
    world.call(mistake.tool, mistake.right)


def test_the_id_of_an_entity_where_its_name_belongs_is_answered_with_the_name(world: World) -> None:
    (john,) = world.call("open_nodes", {"names": ["john-doe"]})["entities"]
    edge = {"targetEntity": john["id"], "relationType": "knows"}
    ann = {
        "name": "Ann",
        "entityType": "Person",
        "observations": ["Likes tea"],
        "relations": [edge],
    }
    fact = {"entityName": john["id"], "contents": ["Likes tea"]}
    for tool, arguments in (
        ("add_observations", {"observations": [fact]}),
        ("save_memory", {"threadId": "t1", "entities": [ann]}),
        ("get_history", {"entityName": john["id"]}),
        ("rename_entity", {"name": john["id"], "newName": "john"}),
        ("find_relation_path", {"from": john["id"], "to": "techcorp"}),
    ):
        with pytest.raises(Refused) as refused:
            world.call(tool, arguments)
        told = refused.value.error["suggestion"]
        assert told.startswith("That is the id of 'john-doe': pass the name."), tool
    answer = world.call("open_nodes", {"names": [john["id"]]})
    assert answer["suggestions"] == {john["id"]: ["john-doe"]}


def test_an_id_that_is_none_of_a_memory_is_answered_with_what_it_is(world: World) -> None:
    (john,) = world.call("open_nodes", {"names": ["john-doe"]})["entities"]
    recalled = world.call("recall", {"query": "Who lives in Paris?"})
    fact = next(each for each in recalled["ids"] if each.startswith("obs_"))
    address = f"mem://item/{world.ids['austin']}"
    for wanted, told in (
        (fact, "That is the id of a fact of 'john-doe': update_observation and"),
        (john["id"], "That is the id of the entity 'john-doe': the tools for"),
        (address, f"Did you mean '{world.ids['austin']}'?"),
        (f"{address}?project=default", f"Did you mean '{world.ids['austin']}'?"),
    ):
        with pytest.raises(Refused) as refused:
            world.call("forget_memory", {"id": wanted})
        assert refused.value.error["code"] == "MEMORY_NOT_FOUND"
        assert refused.value.error["suggestion"].startswith(told), wanted
    gone = {"deletions": [{"entityName": "john-doe", "observations": [fact]}]}
    assert world.call("delete_observations", gone)["deleted"] == 1


def test_the_table_meets_every_code_that_a_wrong_call_can_have() -> None:
    assert {mistake.code for mistake in MISTAKES} == CODES


def test_several_mistakes_of_one_call_are_told_at_once_and_in_place(world: World) -> None:
    entity = {"name": "jon", "type": "person", "observations": "Likes tea"}
    with pytest.raises(Refused) as refused:
        world.call("create_entities", {"entities": [entity], "ifexists": "merge"})
    error = refused.value.error
    assert error["message"].startswith(
        "3 problems: first entities[0].observations: expected a list"
    )
    assert error["suggestion"].startswith("Mend every item under `problems`")
    assert [(each["path"], each["suggestion"]) for each in error["problems"]] == [
        ("entities[0].observations", 'Pass a list: ["Likes tea"]'),
        ("entities[0].type", "Did you mean 'entityType'?"),
        ("ifexists", "Did you mean 'ifExists'?"),
    ]


def test_a_read_with_several_mistakes_speaks_of_no_writing(world: World) -> None:
    with pytest.raises(Refused) as refused:
        world.call("find_relation_path", {"from": "jon-doe", "to": "tech"})
    assert refused.value.error["message"] == (
        "2 problems, nothing was done. First: Entity with name jon-doe not found (at from)"
    )


def test_a_fact_that_would_supersede_what_the_same_call_adds_is_told_so(world: World) -> None:
    newer = {"content": "Retries 5 times", "supersedes": "Retries 3 times"}
    added = {"entityName": "john-doe", "contents": ["Retries 3 times", newer]}
    with pytest.raises(Refused) as refused:
        world.call("add_observations", {"observations": [added]})
    error = refused.value.error
    assert error["code"] == "OBSERVATION_NOT_FOUND"
    assert error["message"].endswith("is not there yet: this request itself adds it")
    assert error["suggestion"].startswith("Pass only the newer text, without `supersedes`")


def test_a_name_that_is_in_the_request_and_in_memory_is_offered_once(world: World) -> None:
    edge = {"targetEntity": "jon-do", "relationType": "knows"}
    john = {"name": "john-doe", "entityType": "Person", "observations": ["Likes tea"]}
    with pytest.raises(Refused) as refused:
        world.call("save_memory", {"threadId": "t1", "entities": [{**john, "relations": [edge]}]})
    assert refused.value.error["suggestion"].startswith("Did you mean 'john-doe'? targetEntity")


def test_of_names_that_are_as_near_those_that_stand_first_in_the_request_are_offered(
    world: World,
) -> None:
    teams = [
        {
            "name": f"Team{letter}",
            "entityType": "Team",
            "observations": ["Plays football"],
            "relations": [{"targetEntity": target, "relationType": "plays against"}],
        }
        for letter, target in zip("abcdefg", ["Teamx", *["Teama"] * 6], strict=True)
    ]
    with pytest.raises(Refused) as refused:
        world.call("save_memory", {"threadId": "t1", "entities": teams})
    near = "Did you mean 'Teama' or 'Teamb' or 'Teamc'? targetEntity"
    assert refused.value.error["suggestion"].startswith(near)


def test_without_an_active_project_the_call_is_told_how_to_name_one(tmp_path: Path) -> None:
    with client_on(tmp_path, project="") as client, pytest.raises(Refused) as refused:
        client("read_graph")
    assert refused.value.error["code"] == "NO_ACTIVE_PROJECT"
    assert refused.value.error["message"] == "No active project. Use switch_project to select one."
    assert '{"project": "…"}' in refused.value.error["suggestion"]


def test_a_relation_to_nothing_is_refused_where_relations_are_strict(tmp_path: Path) -> None:
    with client_on(tmp_path, strict_relations=True) as client:
        client("create_entities", entities=[{"name": "techcorp", "entityType": "organization"}])
        edge = {"from": "techcorp", "to": "techcop", "relationType": "owns"}
        with pytest.raises(Refused) as refused:
            client("create_relations", relations=[edge])
    (problem,) = refused.value.error["problems"]
    assert refused.value.error["code"] == "ENTITY_NOT_FOUND"
    assert (problem["path"], problem["suggestion"]) == (
        "relations[0].to",
        "Did you mean 'techcorp'?",
    )


def test_a_name_that_is_nearly_right_is_offered_the_right_one_where_it_is_no_error(
    world: World,
) -> None:
    answer = world.call("open_nodes", {"names": ["jon-doe"]})
    assert answer["notFound"] == ["jon-doe"]
    assert answer["suggestions"] == {"jon-doe": ["john-doe"]}


def test_a_relation_to_a_name_that_is_nearly_right_is_stored_and_offered_the_right_one(
    world: World,
) -> None:
    edge = {"from": "jon-doe", "to": "techcorp", "relationType": "works_for"}
    answer = world.call("create_relations", {"relations": [edge]})
    assert answer["warnings"] == [
        "Entity with name jon-doe not found: the relation waits for it; the nearest name is 'john-doe'"
    ]
    assert answer["suggestions"] == {"jon-doe": ["john-doe"]}


BY_WORDS = "Searched by words only: Search by meaning is switched off. "
"""What a search says besides, without an embedder."""


@pytest.mark.parametrize(
    ("tool", "others"),
    [
        ("query_nodes", {}),
        ("search_nodes", {"query": "mug"}),
        ("recall", {"query": "mug"}),
        ("search_memories", {"query": "mug"}),
        ("memory_search", {"query": "mug"}),
        ("memory_list", {}),
        ("list_recent_memories", {}),
        ("get_history", {}),
        ("get_observation_history", {"entityName": "john-doe"}),
        ("get_analytics", {}),
    ],
)
def test_of_a_thread_that_never_wrote_it_is_said_so_and_which_was_perhaps_meant(
    world: World, tool: str, others: dict[str, str]
) -> None:
    mug = {"name": "mug", "entityType": "object", "observations": ["is blue"]}
    world.call("create_entities", {"entities": [mug], "threadId": "planning-2026"})
    said = "Nothing was written under the threadId 'planing-2026'. Did you mean 'planning-2026'?"
    notice = world.call(tool, {**others, "threadId": "planing-2026"})["notice"]
    assert notice.removeprefix(BY_WORDS) == said
    there = {**others, "entityName": "mug"} if "entityName" in others else others
    for thread in ({"threadId": "planning-2026"}, *[{}] * (not others)):
        assert said not in world.call(tool, {**there, **thread}).get("notice", "")


def test_what_is_deleted_by_nearly_the_right_words_is_offered_the_right_ones(world: World) -> None:
    long = "Keeps a diary of every journey, " * 12
    world.call(
        "add_observations", {"observations": [{"entityName": "john-doe", "contents": [long]}]}
    )
    world.call(
        "create_relations",
        {"relations": [{"from": "john-doe", "to": "techcorp", "relationType": "works_for"}]},
    )
    head = world.head()
    gone = [
        {"entityName": "john-doe", "observations": ["lives in paris", long[:-9]]},
        {"entityName": "jon-doe", "observations": ["Lives in Paris"]},
    ]
    facts = world.call("delete_observations", {"deletions": gone})
    assert (facts["deleted"], facts["suggestions"]["jon-doe"]) == (0, ["john-doe"])
    assert facts["suggestions"]["lives in paris"] == ["Lives in Paris"]
    (by_id,) = facts["suggestions"][long[:80] + "…"]
    assert by_id.startswith("obs_")

    entities = world.call("delete_entities", {"entityNames": ["jon-doe"]})
    assert (entities["deleted"], entities["suggestions"]) == (0, {"jon-doe": ["john-doe"]})

    edge = {"from": "techcorp", "to": "john-doe", "relationType": "works for"}
    edges = world.call("delete_relations", {"relations": [edge]})
    there = {"from": "john-doe", "to": "techcorp", "relationType": "works_for"}
    assert (edges["notFound"], edges["suggestions"]) == ([edge], [there])
    assert world.head() == head

    found = {"entityName": "john-doe", "observations": ["Lives in Paris", by_id]}
    told = world.call("delete_observations", {"deletions": [found]})
    assert (told["deleted"], told["suggestions"]) == (2, {})
    assert world.call("delete_relations", {"relations": [there]})["suggestions"] == []
    assert world.call("delete_entities", {"entityNames": ["john-doe"]})["suggestions"] == {}
