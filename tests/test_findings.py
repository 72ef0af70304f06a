"""What `memlog search` shows: entities, facts and records together."""

from __future__ import annotations

from pathlib import Path

from server.answering.findings import findings
from tests.service import client_on


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
