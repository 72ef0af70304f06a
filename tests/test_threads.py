"""A thread as a filter: what one conversation wrote, found among all that others did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.tools import querying
from tests.service import Client, client_on

MODES = ("hybrid", "text", "semantic")
SAID = f"gave a dance lesson once {'and then talked of something else ' * 4}".strip()
OTHERS = 150
"""More than a search looks at, of each way of finding."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """With a model. Thread `mine` wrote one fact, one record and a relation, each the poorest match among many of
    thread `other`."""
    with client_on(tmp_path_factory.mktemp("threads"), embedder="minilm") as client:
        lessons = [f"dance lesson {number}" for number in range(OTHERS)]
        create(client, *lessons)
        note = {"type": "note", "source": "s", "confidence": 1}
        for lesson in lessons:
            client("memory_create", content=lesson, **note, threadId="other")
        add(client, "Jon", SAID, threadId="mine")
        client("memory_create", content=SAID, **note, threadId="mine")
        relate(client, "teaches_dance_to", "Gina", threadId="mine")
        relate(client, "dances_with", "Ann", threadId="other")
        yield client


def create(client: Client, *facts: str) -> None:
    entity = {"name": "Jon", "entityType": "person", "observations": facts}
    client("create_entities", entities=[entity], threadId="other")


def add(client: Client, name: str, *contents: str, threadId: str) -> None:
    observations = [{"entityName": name, "contents": list(contents)}]
    client("add_observations", observations=observations, threadId=threadId)


def relate(client: Client, relation: str, to: str, threadId: str) -> None:
    edge = {"from": "Jon", "to": to, "relationType": relation}
    client("create_relations", relations=[edge], threadId=threadId)


def pages(client: Client, tool: str, items: str, **arguments: Any) -> Iterator[list[Any]]:
    answer = client(tool, **arguments)
    while True:
        yield answer[items]
        if "nextCursor" not in answer:
            return
        answer = client(tool, **arguments, cursor=answer["nextCursor"])


@pytest.mark.parametrize("mode", MODES)
def test_what_a_thread_wrote_is_found_though_a_hundred_of_others_are_nearer(
    client: Client, mode: str
) -> None:
    asked = {"query": "dance lesson", "mode": mode}
    (jon,) = client("search_nodes", **asked, threadId="mine")["entities"]
    assert SAID in jon["observations"]
    everything = client("search_nodes", **asked, limit=1)["entities"][0]["score"]
    assert jon["score"] < everything, "what others wrote would have been found first"
    (found,) = client("memory_search", query="dance lesson", threadId="mine")["results"]
    (fact,) = client("search_memories", query="dance lesson", threadId="mine")["memories"]
    (listed,) = client("memory_list", threadId="mine")["results"]
    (recent,) = client("list_recent_memories", threadId="mine")["memories"]
    assert {found["id"], fact["id"], listed["id"], recent["id"]} == {found["id"]}


def test_what_is_recalled_of_a_thread_is_what_it_wrote_and_nothing_beside_it(
    client: Client,
) -> None:
    answer = client("recall", query="dance lesson", threadId="mine", budgetTokens=20_000)
    text = answer["text"]
    assert text.count("gave a dance lesson once") == 2
    assert "→ teaches_dance_to Gina" in text
    assert "dances_with" not in text
    assert "dance lesson 1" not in text
    assert "dances_with Ann" in client("recall", query="dance lesson", budgetTokens=20_000)["text"]


def test_a_thread_is_asked_as_of_a_moment(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        create(client, "is a banker")
        before = client("get_history", limit=1)["events"][0]["position"]
        add(client, "Jon", "sold tickets", threadId="mine")
        asked: dict[str, Any] = {"query": "tickets", "threadId": "mine"}
        assert client("search_nodes", **asked)["entities"]
        assert not client("search_nodes", **asked, asOf=before)["entities"]
        assert "tickets" in client("recall", **asked)["text"]
        assert "tickets" not in client("recall", **asked, asOf=before)["text"]


def test_what_others_did_to_it_since_leaves_a_fact_in_the_thread_that_wrote_it(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        create(client, "is a banker")
        add(client, "Jon", SAID, threadId="mine")

        def found(thread: str) -> list[str]:
            asked: dict[str, Any] = {"query": "something else", "threadId": thread}
            return [each["name"] for each in client("search_nodes", **asked)["entities"]]

        client("rename_entity", name="Jon", newName="Jonathan", threadId="other")
        nobody = {"name": "J.", "entityType": "person"}
        client("create_entities", entities=[nobody], threadId="other")
        client("merge_entities", names=["Jonathan"], into="J.", threadId="other")
        assert (found("mine"), found("other")) == (["J."], [])
        client("undo", last=2, threadId="other")
        assert (found("mine"), found("other")) == (["Jonathan"], [])
        newer = {"entityName": "Jonathan", "observation": SAID, "newContent": "something else"}
        client("update_observation", **newer, threadId="other")
        assert (found("mine"), found("other")) == ([], ["Jonathan"])


@pytest.mark.parametrize("at_most", [0, 4, 2_000])
def test_entities_of_a_thread_are_the_same_whether_they_are_looked_up_or_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    monkeypatch.setattr(querying, "LOOKED_UP_MAX", at_most)
    with client_on(tmp_path) as client:
        people = [{"name": name, "entityType": "person"} for name in ("Jon", "Gina", "Ann")]
        client("create_entities", entities=people, threadId="other")
        for number in range(3):
            add(client, "Jon", f"danced {number}", threadId="mine")
        add(client, "Ann", "sings", threadId="mine")
        tom = {"name": "Tom", "entityType": "cat", "observations": ["purrs"]}
        client("create_entities", entities=[tom], threadId="mine")
        (position,) = (each["position"] for each in client("get_history", limit=1)["events"])
        client("merge_entities", names=["Jon"], into="Gina", threadId="other")
        client("delete_observations", deletions=[{"entityName": "Ann", "observations": ["sings"]}])
        client("delete_entities", entityNames=["Tom"])

        def found(**arguments: Any) -> list[str]:
            told = pages(client, "query_nodes", "entities", threadId="mine", **arguments)
            return [each["name"] for page in told for each in page]

        assert found() == ["Gina"]
        for limit in ({}, {"limit": 1}):
            assert found(asOf=position, **limit) == ["Jon", "Ann", "Tom"]
        client("undo", threadId="other")
        client("undo", last=2)
        assert found(limit=2) == ["Jon", "Ann", "Tom"]
        assert found(entityType="cat") == ["Tom"]


@pytest.mark.parametrize(
    ("tool", "items", "arguments"),
    [
        ("search_memories", "memories", {"query": "dance lesson", "limit": 20}),
        ("memory_search", "results", {"query": "dance lesson", "limit": 40}),
        ("list_recent_memories", "memories", {"limit": 40}),
        ("memory_list", "results", {"limit": 40}),
    ],
)
def test_pages_of_memories_give_each_once_and_all_of_them(
    client: Client, tool: str, items: str, arguments: dict[str, Any]
) -> None:
    for thread, count in (({}, OTHERS + 1), ({"threadId": "other"}, OTHERS)):
        told = list(pages(client, tool, items, **arguments, **thread))
        assert all(len(page) <= arguments["limit"] for page in told)
        ids = [each["id"] for page in told for each in page]
        assert len(ids) == len(set(ids)) == count
