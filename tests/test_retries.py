"""Calls that are sent again under the id they had, with or without the name of their project."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import Client, Refused, client_on

FACT = {"content": "fact k2"}
NAMED = {**FACT, "project": "default"}
RECORD = {
    "type": "note",
    "content": {"a": 0, "b": {"d": 2, "c": 1}},
    "source": "chat",
    "confidence": 1.0,
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def facts(client: Client) -> list[str]:
    return [row["content"] for row in client("list_recent_memories", project="default")["memories"]]


@pytest.mark.parametrize(("first", "again"), [(FACT, NAMED), (NAMED, FACT), (NAMED, NAMED)])
def test_a_call_sent_again_is_the_same_whether_it_names_its_project_or_not(
    client: Client, first: dict[str, Any], again: dict[str, Any]
) -> None:
    told = client.as_command("K2", "store_memory", first)
    assert client.as_command("K2", "store_memory", again) == told
    assert facts(client) == ["fact k2"]


def test_a_call_sent_again_after_a_restart_finds_its_answer_by_the_name_of_its_project(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        told = client.as_command("K2", "store_memory", FACT)
        client("create_project", name="other")
    with client_on(tmp_path, project="other") as client:
        assert client.as_command("K2", "store_memory", NAMED) == told
        assert client("list_recent_memories")["memories"] == []


def test_a_record_sent_again_is_the_same_in_whatever_order_its_keys_are(client: Client) -> None:
    told = client.as_command("K2", "memory_create", RECORD)
    content = {"b": {"d": 2, "c": 1}, "a": 0}
    assert client.as_command("K2", "memory_create", {**RECORD, "content": content}) == told
    with pytest.raises(Refused, match="CONFLICT"):
        client.as_command("K2", "memory_create", {**RECORD, "content": {**content, "a": 1}})


def test_another_call_under_an_id_that_was_used_is_refused_as_ever(client: Client) -> None:
    client.as_command("K2", "store_memory", FACT)
    with pytest.raises(Refused) as caught:
        client.as_command("K2", "store_memory", {**NAMED, "content": "another fact"})
    assert caught.value.error["code"] == "CONFLICT"
    assert facts(client) == ["fact k2"]
