"""The requests that the servers memlog stands in for were documented with, as their clients send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.seed_requests import (
    ALICE,
    BACKUP,
    DECISION,
    HEALTH,
    LAB,
    PORTFOLIO,
    ROLLBACK,
    TOO_LONG,
    WITH_JOHN,
    WORKS_FOR,
)
from tests.service import Client, Refused, client_on


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


@pytest.fixture
def with_model(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path, embedder="minilm") as opened:
        yield opened


def names(answer: dict[str, Any]) -> list[str]:
    return [entity["name"] for entity in answer["entities"]]


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether all that a client asked for stands in what it got, beside ids and times."""
    return {key: found[key] for key in wanted} == wanted


# -- facts that supersede each other: Seattle, then Austin


def test_the_conversation_about_seattle_and_austin_comes_out_as_written(with_model: Client) -> None:
    client = with_model
    old = client("store_memory", content="User lives in Seattle", confidence=0.9)
    assert (old["similar"], old["action_required"]) == ([], None)
    new = client(
        "store_memory",
        content="User moved to Austin last month",
        confidence=1.0,
        source="explicit",
    )
    mem_123, mem_789 = old["created"]["id"], new["created"]["id"]
    assert same(
        new["created"],
        {"content": "User moved to Austin last month", "confidence": 1.0, "source": "explicit"},
    )
    assert [(each["id"], each["content"]) for each in new["similar"]] == [
        (mem_123, "User lives in Seattle")
    ]
    assert new["action_required"] == (
        f'Call supersede_memory("{mem_123}", "{mem_789}") to mark the old memory as outdated.'
    )

    done = client("supersede_memory", old_memory_id=mem_123, new_memory_id=mem_789)
    assert done["success"] is True
    assert done["message"] == f"Memory {mem_123} marked as superseded by {mem_789}"

    found = client("search_memories", query="Where does the user live?", limit=3)["memories"]
    assert [each["content"] for each in found] == ["User moved to Austin last month"]
    assert found[0]["supersedes"] == mem_123
    assert 0 < found[0]["relevance_score"] <= 1


def test_facts_that_have_nothing_to_do_with_a_new_one_are_not_offered(with_model: Client) -> None:
    for content in (
        "User is allergic to peanuts",
        "User has a dog named Rex",
        "User prefers dark mode in editors",
        "User's manager is Tom",
    ):
        answer = with_model("store_memory", content=content)
        assert (answer["similar"], answer["action_required"]) == ([], None)
    answer = with_model("store_memory", content="User moved to Austin last month")
    assert (answer["similar"], answer["action_required"]) == ([], None)


def test_the_requests_about_facts_are_answered_as_documented(with_model: Client) -> None:
    client = with_model
    for content in (
        "User moved to Austin",
        "User works remotely from home in Austin",
        "User is planning a trip to Japan in March",
        "User prefers window seats on flights",
    ):
        client("store_memory", content=content, confidence=1.0, source="explicit")

    found = client("search_memories", query="Where does the user live?", limit=3)["memories"]
    assert {each["content"] for each in found[:2]} == {
        "User moved to Austin",
        "User works remotely from home in Austin",
    }
    recent = client("list_recent_memories", limit=5)["memories"]
    assert [each["content"] for each in recent[:2]] == [
        "User prefers window seats on flights",
        "User is planning a trip to Japan in March",
    ]
    fields = {"id", "content", "confidence", "source", "created_at", "updated_at", "accessed_at"}
    assert recent[0].keys() == fields
    assert found[0].keys() == fields | {"relevance_score"}


def test_a_memory_that_does_not_exist_is_refused_in_the_documented_words(client: Client) -> None:
    kept = client("store_memory", content="User moved to Austin")["created"]["id"]
    with pytest.raises(Refused) as refused:
        client("supersede_memory", old_memory_id="mem_xyz789", new_memory_id=kept)
    assert refused.value.error["code"] == "MEMORY_NOT_FOUND"
    assert refused.value.error["message"] == "Memory with ID mem_xyz789 not found"


# -- entities saved with their relations


def test_the_valid_request_with_dots_in_versions_and_file_names_is_accepted(client: Client) -> None:
    answer = client("save_memory", PORTFOLIO)
    assert answer["success"] is True
    assert answer["created"] == {"entities": 3, "relations": 6}
    assert answer["warnings"] == []
    assert answer["quality_score"] == 1.0
    assert "validation_errors" not in answer
    opened = client("open_nodes", names=["Python Scripts", "Portfolio"])["entities"]
    assert [entity["observations"] for entity in opened] == [
        entity["observations"] for entity in PORTFOLIO["entities"][1:]
    ]


def refused_save(client: Client, request: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(Refused):
        client("save_memory", request)
    answer: dict[str, Any] = json.loads(client.texts[-1])
    assert answer["success"] is False
    assert answer["created"] == {"entities": 0, "relations": 0}
    assert client("read_graph")["entities"] == []
    return answer


@pytest.mark.parametrize(
    ("characters", "relations", "score"),
    [(75, 2, 1.0), (75, 1, 0.75), (75, 3, 1.0), (100, 2, 0.92), (150, 2, 0.75), (150, 1, 0.5)],
)
def test_the_quality_of_what_is_saved_grows_with_relations_and_with_short_observations(
    client: Client, characters: int, relations: int, score: float
) -> None:
    leads = [
        {"targetEntity": "Ann", "relationType": f"relates to {each}"} for each in range(relations)
    ]
    ann = {"name": "Ann", "entityType": "Person", "relations": leads}
    answer = client(
        "save_memory", entities=[ann | {"observations": ["x" * characters]}], threadId="t"
    )
    assert answer["quality_score"] == score


def test_an_observation_that_is_too_long_is_refused_with_its_true_length(client: Client) -> None:
    entity = {
        "name": "Test",
        "entityType": "Example",
        "observations": [TOO_LONG],
        "relations": [{"targetEntity": "Other", "relationType": "related"}],
    }
    answer = refused_save(client, {"entities": [entity], "threadId": "test"})
    assert answer["validation_errors"] == [
        "Observation too long (153 chars). Max 150.",
        "Target entity 'Other' not found in request",
    ]
    long, _ = answer["error"]["problems"]
    assert long["entity"] == "Test"
    assert TOO_LONG.startswith(long["value"].rstrip("…"))
    assert long["suggestion"].startswith("Split into 3 observations: 1) 'This is a very long")


def test_an_entity_without_relations_is_refused(client: Client) -> None:
    entity = {
        "name": "Isolated Entity",
        "entityType": "Test",
        "observations": ["Some fact"],
        "relations": [],
    }
    answer = refused_save(client, {"entities": [entity], "threadId": "test"})
    assert answer["error"]["message"] == "Entity 'Isolated Entity' must have at least 1 relation"
    assert answer["error"]["suggestion"].startswith("Add relations to show connections: e.g., {")
    assert answer["error"]["problems"][0]["entity"] == "Isolated Entity"


def test_a_relation_to_an_entity_that_is_not_there_is_refused(client: Client) -> None:
    andrii = PORTFOLIO["entities"][0] | {
        "relations": [{"targetEntity": "NonExistent", "relationType": "created"}]
    }
    answer = refused_save(client, {"entities": [andrii], "threadId": "test"})
    assert answer["error"]["message"] == "Target entity 'NonExistent' not found in request"
    assert answer["error"]["problems"][0]["value"] == "NonExistent"
    assert "same save_memory call" in answer["error"]["suggestion"]


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ({"relations": None}, "relations: expected a list of objects, got null"),
        ({"importance": 8}, "importance: 8 is out of range"),
        ({"observation": "Works at Google"}, "observation: unknown key 'observation'"),
    ],
)
def test_a_save_that_is_not_even_of_the_right_form_is_refused_with_the_same_fields(
    client: Client, mistake: dict[str, Any], told: str
) -> None:
    andrii = PORTFOLIO["entities"][0] | mistake
    answer = refused_save(client, {"entities": [andrii], "threadId": "test"})
    assert answer["validation_errors"] == [f"entities[0].{told}"]
    assert (answer["warnings"], answer["quality_score"]) == ([], 0.0)


def test_a_save_without_a_thread_or_without_relations_is_refused_with_the_same_fields(
    client: Client,
) -> None:
    bare = {"name": "Andrii", "entityType": "Person", "observations": ["Works at Google"]}
    answer = refused_save(client, {"entities": [bare]})
    assert answer["validation_errors"] == [
        "entities[0].relations: required, but missing",
        "threadId: required, but missing",
    ]


def test_a_fact_that_changed_shows_both_versions_in_its_history(client: Client) -> None:
    client("save_memory", PORTFOLIO)
    replaced = {"content": "Uses python-docx 1.3.0", "supersedes": "Uses python-docx 1.2.0"}
    client(
        "add_observations", observations=[{"entityName": "Python Scripts", "contents": [replaced]}]
    )
    history = client("get_observation_history", entityName="Python Scripts")["history"]
    chain = [each for each in history if "python-docx" in each["content"]]
    assert [(each["content"], each["version"]) for each in chain] == [
        ("Uses python-docx 1.2.0", 1),
        ("Uses python-docx 1.3.0", 2),
    ]
    assert chain[0]["superseded_by"] == chain[1]["id"]
    by_id = client(
        "get_observation_history", entityName="Python Scripts", observationId=chain[0]["id"]
    )
    assert by_id["history"] == chain


def test_the_tools_that_save_memory_stands_for_still_work(client: Client) -> None:
    assert names(client("create_entities", entities=[ALICE, LAB])) == [ALICE["name"], LAB["name"]]
    assert len(client("create_relations", relations=[WORKS_FOR])["relations"]) == 1
    for tool in ("create_entities", "create_relations"):
        assert "save_memory is preferred" in client.tools[tool].description


# -- the nine tools of the graph


def test_the_nine_documented_requests_are_answered_as_documented(client: Client) -> None:
    created = client("create_entities", entities=[ALICE, LAB])["entities"]
    assert all(same(*pair) for pair in zip(created, (ALICE, LAB), strict=True))

    related = client("create_relations", relations=[WORKS_FOR, WITH_JOHN])
    wanted = (WORKS_FOR, WITH_JOHN)
    assert all(same(*pair) for pair in zip(related["relations"], wanted, strict=True))
    assert related["warnings"] == ["Entity with name john-doe not found: the relation waits for it"]

    promoted = {
        "entityName": "alice-smith",
        "contents": [
            "Recently promoted to Principal Data Scientist",
            "Leading the NLP research team",
            "Speaks at international AI conferences",
        ],
    }
    added = client("add_observations", observations=[promoted])["results"]
    assert [each["addedObservations"] for each in added] == [promoted["contents"]]

    whole = client("read_graph", {})
    assert names(whole) == ["alice-smith", "ai-research-lab"]
    assert len(whole["relations"]) == 2

    assert names(client("search_nodes", query="data scientist")) == ["alice-smith"]
    asked = ["alice-smith", "ai-research-lab", "non-existent-entity"]
    opened = client("open_nodes", names=asked)
    assert (names(opened), opened["notFound"]) == (asked[:2], asked[2:])

    deletion = {
        "entityName": "alice-smith",
        "observations": [
            "PhD in Machine Learning from Stanford",
            "Published 15+ research papers",
        ],
    }
    assert client("delete_observations", deletions=[deletion])["deletions"] == [deletion]
    gone = client("delete_relations", relations=[WORKS_FOR])["relations"]
    assert [same(each, WORKS_FOR) for each in gone] == [True]

    removed = client("delete_entities", entityNames=["alice-smith", "obsolete-project"])
    assert (names(removed), removed["notFound"]) == (["alice-smith"], ["obsolete-project"])
    assert client("read_graph")["relations"] == [], "relations go with their entity"


@pytest.mark.parametrize("query", ["alice", "person", "machine learning", "senior data"])
def test_the_documented_searches_find_alice(client: Client, query: str) -> None:
    client("create_entities", entities=[ALICE, LAB])
    assert names(client("search_nodes", query=query))[0] == "alice-smith"


# -- projects, each a memory of its own


def test_a_project_is_made_left_archived_restored_and_deleted(tmp_path: Path) -> None:
    with client_on(tmp_path, project="") as client:
        with pytest.raises(
            Refused, match=r"No active project\. Use switch_project to select one\."
        ):
            client("read_graph")
        made = client("create_project", name="shop-backend", description="The shop's back end")
        keys = {"id", "name", "description", "status", "created_at", "updated_at"}
        assert keys <= made.keys()
        assert client("get_current_project")["current"]["name"] == "shop-backend"

        entity = {"name": "postgres", "entity_type": "technology"}
        client("create_entities", entities=[entity | {"observations": ["Stores the orders"]}])
        client("create_entities", entities=[{"name": "orders", "entity_type": "concept"}])
        note = {"entity_name": "postgres", "contents": ["Runs in version 16"]}
        client("add_observations", observations=[note])
        edge = {"from": "orders", "to": "postgres", "relation_type": "uses"}
        client("create_relations", relations=[edge])
        for query in ("orders AND stores", "post*", "postgres NOT kafka", '"version 16"'):
            assert "postgres" in names(client("search_nodes", query=query)), query

        client("create_project", name="marketing-site")
        assert client("read_graph")["entities"] == [], "projects share nothing"
        client("switch_project", name="shop-backend")
        assert len(client("read_graph")["relations"]) == 1
        client("archive_project", name="shop-backend")
        assert client("get_current_project")["current"] is None
        with pytest.raises(Refused, match="PROJECT_ARCHIVED"):
            client("switch_project", name="shop-backend")
        listed = client("list_projects", status="archived")["projects"]
        assert [(each["name"], each["status"]) for each in listed] == [("shop-backend", "archived")]

        client("restore_project", name="shop-backend")
        client("switch_project", name="shop-backend")
        client("delete_relations", relations=[edge])
        deletion = {"entity_name": "postgres", "observations": ["Runs in version 16"]}
        assert client("delete_observations", deletions=[deletion])["deleted"] == 1
        assert client("delete_entities", names=["orders", "postgres"])["deleted"] == 2
        client("delete_project", name="shop-backend")
        assert [each["name"] for each in client("list_projects", status="all")["projects"]] == [
            "marketing-site"
        ]


# -- records, saved once


def test_a_record_saved_again_unites_tags_and_keeps_the_higher_confidence(client: Client) -> None:
    first = client("memory_create", DECISION)
    assert (first["created"], first["uri"]) == (True, f"mem://item/{first['id']}")
    shuffled = dict(reversed(DECISION["content"].items()))
    tags = ["topic:release", "env:prod"]
    again = client(
        "memory_create", DECISION | {"content": shuffled, "tags": tags, "confidence": 0.6}
    )
    assert (again["created"], again["id"]) == (False, first["id"])
    assert again["tags"] == [*DECISION["tags"], "env:prod"]
    assert again["confidence"] == 0.9
    assert again["updatedAt"] > first["updatedAt"]
    assert len(client("memory_list")["results"]) == 1


def test_the_documented_searches_for_records_find_them(with_model: Client) -> None:
    client = with_model
    ids = {
        title: client("memory_create", record)["id"]
        for title, record in (("health", HEALTH), ("backup", BACKUP), ("rollback", ROLLBACK))
    }
    answer = client(
        "memory_search",
        query="readiness check endpoint for alpha",
        tags=["project:alpha", "topic:observability"],
        limit=3,
    )
    (found,) = answer["results"]
    assert found["id"] == ids["health"]
    assert 0 < found["similarity"] <= 1
    assert found.keys() == {"id", "uri", "type", "similarity", "tags", "createdAt"}
    answer = client(
        "memory_search",
        query="rollback steps for service-x deploy",
        tags=["project:service-x", "topic:release"],
        limit=3,
    )
    assert [each["id"] for each in answer["results"]] == [ids["rollback"]]
    answer = client(
        "memory_search",
        query="deployment checklist for service-x",
        type="note",
        tags=["project:service-x", "env:prod"],
        limit=5,
    )
    assert answer["results"] == [], "no record has all of these"


def test_what_is_found_is_in_the_order_of_the_numbers_that_are_told(with_model: Client) -> None:
    for content in (
        "User prefers short answers",
        "User's mother Joan lives in York",
        "User drives a blue Skoda Fabia",
        "User moved to Manchester in May",
    ):
        with_model("store_memory", content=content)
    found = with_model("search_memories", query="Where does the user live?")["memories"]
    told = [each["relevance_score"] for each in found]
    assert told == sorted(told, reverse=True), found
    assert len(told) == 4 and min(told) > 0
    results = with_model("memory_search", query="Where does the user live?")["results"]
    assert [each["similarity"] for each in results] == told
    best = with_model("search_memories", query="Where does the user live?", limit=2)["memories"]
    assert [each["relevance_score"] for each in best] == told[:2], "whatever else is asked for"


def test_records_are_listed_by_type_and_by_tags(client: Client) -> None:
    for record in (DECISION, HEALTH, BACKUP, ROLLBACK):
        client("memory_create", record)

    def listed(**wanted: Any) -> list[str]:
        return [each["type"] for each in client("memory_list", **wanted)["results"]]

    assert listed() == ["runbook", "runbook", "note", "decision"]
    assert listed(type="decision", tags=["project:service-x"]) == ["decision"]
    assert listed(type="decision", tags=["project:alpha"]) == []
    assert listed(tags=["project:alpha", "topic:resilience"]) == ["runbook"]
    assert listed(type="todo", tags=["project:service-x"]) == []
