"""What `memlog search` shows: entities, facts and records together; and what a search of one kind says of another."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.answering.findings import IN_GRAPH, IN_MEMORIES, findings
from tests.service import Client, client_on


def test_entities_facts_and_records_are_found_together_best_first(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        first = client(
            "create_entities",
            entities=[{"name": "Austin", "entityType": "city", "observations": ["is in Texas"]}],
        )
        client("store_memory", content="User moved to Austin")
        client(
            "memory_create",
            type="note",
            content={"plan": "open an office in Austin"},
            source="s",
            confidence=1,
            tags=["topic:offices"],
        )
        found = findings(client.service.open("default"), "Austin", "text", 10)
    assert [(group.name, group.kind) for group in found.groups[:1]] == [("Austin", "city")]
    assert {group.kind for group in found.groups} == {"city", "fact", "note topic:offices"}
    assert found.groups[0].lines == ["is in Texas"]
    assert found.groups[0].days == [first["entities"][0]["createdAt"][:10]]


def test_what_was_superseded_is_not_shown(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        old = client("store_memory", content="User lives in Seattle")["created"]["id"]
        new = client("store_memory", content="User left Seattle")["created"]["id"]
        client("supersede_memory", old_memory_id=old, new_memory_id=new)
        found = findings(client.service.open("default"), "Seattle", "text", 10)
    assert [group.id for group in found.groups] == [new]


def test_a_relation_whose_ends_are_no_entities_is_shown_by_itself(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        edge = {"from": "gx", "to": "gy", "relationType": "overshadows"}
        client("create_relations", relations=[edge])
        found = findings(client.service.open("default"), "overshadows", "text", 10)
    (group,) = found.groups
    assert (group.name, group.kind, group.id[:4]) == ("gx overshadows gy", "relation", "rel_")


SEARCHES = {"graph": "search_nodes", "facts": "search_memories", "records": "memory_search"}


def told(client: Client, tool: str, query: str, **more: object) -> str | None:
    """What a search says of other kinds of memory, without what it says where there is no model."""
    notice = str(client(tool, query=query, **more).get("notice"))
    return notice if (IN_GRAPH in notice or IN_MEMORIES in notice) else None


def remember_both(client: Client) -> None:
    client("store_memory", content="Ann is allergic to penicillin", threadId="clinic")
    player = {"name": "Bob", "entityType": "person", "observations": ["plays the cello"]}
    client("create_entities", entities=[player])


def test_a_search_that_finds_nothing_says_that_another_kind_of_memory_has_it(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        remember_both(client)
        assert IN_MEMORIES in str(told(client, "search_nodes", "penicillin"))
        assert IN_MEMORIES in str(told(client, "search_nodes", "penicillin", threadId="clinic"))
        assert told(client, "search_nodes", "penicillin", threadId="garden") is None
        assert told(client, "search_nodes", "cello") is None
        for tool in ("search_memories", "memory_search"):
            assert IN_GRAPH in str(told(client, tool, "cello"))
            assert IN_GRAPH in str(told(client, tool, "cello", since=2))
            assert told(client, tool, "cello", since=4) is None
            assert told(client, tool, "penicillin") is None
        for tool in SEARCHES.values():
            assert told(client, tool, "bassoon") is None
            assert told(client, tool, "penicillin cello", asOf=1) is None
        assert IN_MEMORIES in str(told(client, "search_nodes", "penicillin", asOf=2))
        assert told(client, "memory_search", "cello", type="fact") is None


@pytest.mark.parametrize("toolset", SEARCHES)
def test_a_search_sends_nobody_to_a_tool_that_is_not_offered(tmp_path: Path, toolset: str) -> None:
    with client_on(tmp_path) as client:
        remember_both(client)
    with client_on(tmp_path, toolsets=(toolset,)) as client:
        assert told(client, SEARCHES[toolset], "penicillin") is None
        assert told(client, SEARCHES[toolset], "cello") is None
