"""Searches of what is newer than a moment, as a client and a person at a terminal ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlog.settings import Mode
from tests.command_line import CommandLine
from tests.service import Client, client_on

NOTE = {"type": "note", "source": "s", "confidence": 1}


def head(client: Client) -> int:
    return client.service.open("default").project.head()


@pytest.mark.parametrize("mode", ["text", "hybrid"])
def test_facts_and_records_are_searched_for_among_what_is_newer(tmp_path: Path, mode: Mode) -> None:
    with client_on(
        tmp_path, embedder="minilm" if mode == "hybrid" else "none", search_mode=mode
    ) as client:
        client("store_memory", content="The user likes tea")
        client("memory_create", content="Tea is bought on Mondays", **NOTE)
        then = head(client)
        fact = client("store_memory", content="The user drinks no tea any more")["created"]["id"]
        record = client("memory_create", content="Tea is bought no more", **NOTE)["id"]
        asked: dict[str, Any] = {"query": "tea", "since": then}
        facts = client("search_memories", **asked)
        records = client("memory_search", **asked)
        (page,) = client("memory_search", **asked, limit=1)["results"]
        cursor = client("memory_search", **asked, limit=1)["nextCursor"]
        (other,) = client("memory_search", **asked, limit=1, cursor=cursor)["results"]
        everything = client("search_memories", query="tea")["memories"]
        nothing = client("search_memories", query="tea", since=head(client))["memories"]
    assert {each["id"] for each in facts["memories"]} == {fact, record}
    assert {each["id"] for each in records["results"]} == {fact, record}
    assert {page["id"], other["id"]} == {fact, record}
    assert (len(everything), nothing) == (4, [])


def test_a_record_is_new_with_other_tags_and_when_it_is_brought_back_and_not_as_it_was(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        said: dict[str, Any] = {"content": "Tea is bought on Mondays", **NOTE}
        record = client("memory_create", **said, tags=["a"])["id"]
        then = head(client)

        def new_since(position: int) -> list[str]:
            found = client("memory_search", query="tea", since=position)["results"]
            return [each["id"] for each in found]

        client("memory_create", **said, tags=["a"])
        assert (head(client) > then, new_since(then)) == (True, [])
        client("memory_create", **said, tags=["b"])
        assert new_since(then) == [record]
        deleted = head(client)
        client("forget_memory", id=record)
        client("undo")
        assert new_since(deleted) == [record]


def test_what_was_renamed_is_new_again_and_its_neighbours_are_not(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        people = [
            {"name": name, "entityType": "person", "observations": [f"{name} dances"]}
            for name in ("Jon", "Ann")
        ]
        client("create_entities", entities=people)
        then = head(client)
        client("rename_entity", name="Jon", newName="Jonathan")
        answer = client("recall", query="Who dances?", since=then)
    assert answer["text"].split("\n") == ["Jonathan (person)", "1. Jon dances"]


def test_the_command_line_searches_what_is_newer(tmp_path: Path) -> None:
    memlog = CommandLine(tmp_path / "data")
    with client_on(tmp_path / "data") as client:
        client("store_memory", content="The user likes tea")
        then = head(client)
        client("store_memory", content="The user drinks no tea any more")
    (group,) = memlog("search", "tea", "--since", str(then), "--json").json["groups"]
    assert group["name"] == "The user drinks no tea any more"
    refused = memlog("search", "tea", "--since", "2999-01-01")
    assert refused.code == 1
    assert "lies in the future" in refused.stderr
    assert "Pass a moment that has passed." in refused.stderr
