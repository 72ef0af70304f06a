"""One huge thing: what a call does about it goes by what is told of it, not by all that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memlog import closest
from memlog.rows import Relation
from memlog.state import State
from projections.search.searcher import DEPTH
from server.answering import recollection
from tests.counted import CountedRows
from tests.idle_follower import Idle
from tests.service import Client, client_on

MANY = 600
"""Twice as many relations, or facts, as an answer holds."""

CITIES = [
    "Rome",
    "Oslo",
    "Bonn",
    "Kiev",
    "Lima",
    "Cairo",
    "Paris",
    "Delhi",
    "Tokyo",
    "Quito",
    "Seoul",
    "Turin",
]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr("server.service.Follower", Idle)  # it would read, too
    with client_on(tmp_path) as client:
        yield client


def hub(client: Client, leaves: int) -> None:
    """A project whose entity `hub` has so many relations."""
    client("create_project", name=f"{leaves}")
    client("switch_project", name=f"{leaves}")
    client("create_entities", entities=[{"name": "hub", "entityType": "t", "observations": ["a"]}])
    names = [f"leaf {number:05}" for number in range(leaves)]
    for start in range(0, leaves, MANY):
        edges = [
            {"from": "hub", "to": name, "relationType": "knows"}
            for name in names[start : start + MANY]
        ]
        client("create_relations", relations=edges)


def every_page(client: Client, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    found = [client(tool, **arguments)]
    while "nextCursor" in found[-1]:
        found.append(client(tool, **arguments, cursor=found[-1]["nextCursor"]))
    return found


def pages(client: Client, tool: str, **arguments: Any) -> int:
    """How many pages an answer has."""
    return len(every_page(client, tool, **arguments))


@pytest.fixture
def relations_read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """How many rows of relations are read while something is done."""
    read = 0
    whole = State.relation

    def counted(state: State, relation_id: str) -> Relation | None:
        nonlocal read
        read += 1
        return whole(state, relation_id)

    monkeypatch.setattr(State, "relation", counted)

    def during(client: Client, tool: str, **arguments: Any) -> int:
        nonlocal read
        read = 0
        client(tool, **arguments)
        return read

    return during


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("open_nodes", {"names": ["hub"]}),
        ("open_nodes", {"names": ["hub", "nobody"]}),
        ("search_nodes", {"query": "hub", "mode": "text"}),
    ],
)
def test_of_the_relations_of_a_hub_no_more_are_read_where_there_are_more(
    client: Client, relations_read: Callable[..., int], tool: str, arguments: dict[str, Any]
) -> None:
    read = []
    for leaves in (MANY, 2 * MANY):
        hub(client, leaves)
        client("search_nodes", query="hub", mode="text")  # brings the index up to date
        read.append(relations_read(client, tool, **arguments))
    assert 0 < read[0] == read[1]


def test_pages_come_to_an_end_where_relations_that_are_listed_are_not_there(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub(client, MANY)
    monkeypatch.setattr(State, "relation", lambda state, relation_id: None)
    assert pages(client, "open_nodes", names=["hub"]) <= 2


def test_pages_of_twice_the_versions_read_twice_as_much_together(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlog.projects.contents.LmdbRows", CountedRows)
    client("create_entities", entities=[{"name": "Jon", "entityType": "t", "observations": []}])
    read, told = [], []
    for count in (MANY, 2 * MANY):
        facts = [f"fact {number:05}" for number in range(count)]
        for start in range(0, count, MANY):
            contents = facts[start : start + MANY]
            client("add_observations", observations=[{"entityName": "Jon", "contents": contents}])
        CountedRows.reads = 0
        told.append(pages(client, "get_observation_history", entityName="Jon", limit=50))
        read.append(CountedRows.reads)
    assert told == [MANY / 50, 2 * MANY / 50]
    assert read[1] < 2.5 * read[0]


def test_a_recall_looks_at_the_words_of_no_relation_where_it_names_the_hub_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlog.projects.contents.LmdbRows", CountedRows)
    texts: list[str] = []

    def counted(text: str) -> frozenset[str]:
        texts.append(text)
        return whole(text)

    whole = recollection._terms
    monkeypatch.setattr(recollection, "_terms", counted)
    looked_at, read = [], []
    for leaves in (MANY, 2 * MANY):
        hub(client, leaves)
        client("search_nodes", query="hub", mode="text")
        texts.clear()
        CountedRows.reads = 0
        client("recall", query="hub")
        looked_at.append(len(texts))
        read.append(CountedRows.reads)
    assert 0 < looked_at[0] == looked_at[1]
    assert read[1] - read[0] <= 2 * MANY  # where it is listed, and its row


def test_the_relations_of_a_hub_are_made_ready_once_for_all_that_were_not_found(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[str] = []

    def counted(name: str) -> str:
        ready.append(name)
        return whole(name)

    whole = closest._ready
    monkeypatch.setattr(closest, "_ready", counted)
    made = []
    for leaves in (MANY, 2 * MANY):
        hub(client, leaves)
        ready.clear()
        edges = [
            {"from": "hub", "to": f"laef {number:05}", "relationType": "knows"}
            for number in range(10)
        ]
        answer = client("delete_relations", relations=edges)
        assert {"from": "hub", "to": "leaf 00003", "relationType": "knows"} in answer["suggestions"]
        made.append(len(ready))
    assert made[1] - made[0] == MANY


@pytest.mark.parametrize("limit", [1, 3, 4, None])
@pytest.mark.parametrize(
    "asked",
    [
        {"query": "tea", "mode": "text"},
        {"query": "a cup of tea", "mode": "semantic"},
        {"query": "tea"},
        {"query": "tea NOT coffee"},
        {"query": "mint tea", "threadId": "mine"},
    ],
)
def test_a_search_gives_a_cursor_only_where_it_finds_more(
    many_facts: Client, asked: dict[str, Any], limit: int | None
) -> None:
    """Most of the texts that are found are of one entity."""
    arguments = {**asked, "limit": limit} if limit else asked
    told: list[list[str]] = []
    for page in every_page(many_facts, "search_nodes", **arguments):
        told.append([each["name"] for each in page["entities"]])
    assert all(told)
    assert sorted(name for page in told for name in page) == ["Ann", "Bea", "Jon", "Lea"]


@pytest.mark.parametrize("limit", [20, 60])
@pytest.mark.parametrize("tool", ["search_memories", "memory_search"])
def test_a_search_for_memories_gives_a_cursor_only_where_it_finds_more(
    client: Client, tool: str, limit: int
) -> None:
    for number in range(DEPTH):  # just what a first search finds
        client("store_memory", content=f"cup of tea {number}")
    limit = min(limit, 20) if tool == "search_memories" else limit
    told = every_page(client, tool, query="tea", limit=limit)
    assert len(told) == DEPTH / limit


@pytest.fixture(scope="module")
def many_facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A project in which one entity has hundreds of facts about tea, and three others have one."""
    with client_on(tmp_path_factory.mktemp("tea"), embedder="minilm") as client:
        facts = [f"drinks mint tea at {hour} in {city}" for hour in range(24) for city in CITIES]
        client("create_entities", entities=[{"name": "Jon", "entityType": "t"}], threadId="mine")
        added = [{"entityName": "Jon", "contents": facts}]
        client("add_observations", observations=added, threadId="mine")
        others = [
            {"name": name, "entityType": "t", "observations": [f"{name} pours a cup of mint tea"]}
            for name in ("Ann", "Bea", "Lea")
        ]
        client("create_entities", entities=others, threadId="mine")
        yield client
