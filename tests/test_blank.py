"""Texts of white space or of characters that nobody sees: refused wherever an empty one is, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlog.blank import is_blank
from tests.command_line import CommandLine
from tests.service import Client, Refused, client_on

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}
KNOWS = {"from": "Jon", "to": "Gina", "relationType": "knows"}
SAVED = {
    "name": "Ann",
    "entityType": "Person",
    "observations": ["Works at Acme"],
    "relations": [{"targetEntity": "Jon", "relationType": "knows"}],
}
RECORD = {"type": "note", "content": "x", "source": "chat://1", "confidence": 1}
BLANK = [
    "   ",
    "\n",
    "\t\r\n",
    "\u00a0\u3000",
    "\u200b",
    "\ufeff",
    "\u200d\u2060 ",
    "\u3164",
    "\u2800",
]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        opened("create_entities", entities=[JON])
        yield opened


def holding(text: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """The place of `text` -> the call that would store it there."""
    added = [{"entityName": "Jon", "contents": ["x", {"content": text}]}]
    return {
        "entities[0].name": ("create_entities", {"entities": [{**JON, "name": text}]}),
        "entities[0].entityType": ("create_entities", {"entities": [{**JON, "entityType": text}]}),
        "entities[1].observations[1]": (
            "create_entities",
            {"entities": [JON, {**JON, "observations": ["x", text]}]},
        ),
        "relations[0].from": ("create_relations", {"relations": [{**KNOWS, "from": text}]}),
        "relations[0].to": ("create_relations", {"relations": [{**KNOWS, "to": text}]}),
        "relations[0].relationType": (
            "create_relations",
            {"relations": [{**KNOWS, "relationType": text}]},
        ),
        "observations[0].contents[0]": (
            "add_observations",
            {"observations": [{"entityName": "Jon", "contents": [text]}]},
        ),
        "observations[0].contents[1].content": ("add_observations", {"observations": added}),
        "newContent": (
            "update_observation",
            {"entityName": "Jon", "observation": "was a banker", "newContent": text},
        ),
        "newName": ("rename_entity", {"name": "Jon", "newName": text}),
        "content": ("store_memory", {"content": text}),
        "type": ("memory_create", {**RECORD, "type": text}),
        "source": ("memory_create", {**RECORD, "source": text}),
        "name": ("create_project", {"name": text}),
        "threadId": ("create_entities", {"entities": [JON], "threadId": text}),
    }


@pytest.mark.parametrize("text", BLANK, ids=ascii)
@pytest.mark.parametrize("path", holding(""))
def test_a_text_in_which_nothing_shows_is_refused_where_it_would_be_stored(
    client: Client, path: str, text: str
) -> None:
    before = client("read_graph")
    tool, arguments = holding(text)[path]
    with pytest.raises(Refused) as caught:
        client(tool, arguments)
    error = caught.value.error
    assert error["code"] == "INVALID_PARAMETER"
    assert error["message"] == f"{path}: {text!a} has no character that shows"
    assert [problem["path"] for problem in error["problems"]] == [path]
    assert client("read_graph") == before


@pytest.mark.parametrize("path", sorted(holding("").keys() - {"newName", "threadId"}))
def test_an_empty_one_is_refused_at_the_same_places_where_it_is_required(
    client: Client, path: str
) -> None:
    tool, arguments = holding("")[path]
    with pytest.raises(Refused, match="too short"):
        client(tool, arguments)


@pytest.mark.parametrize("text", [*BLANK, ""], ids=ascii)
def test_the_content_of_a_record_is_an_object_or_a_text_that_shows(
    client: Client, text: str
) -> None:
    with pytest.raises(Refused) as caught:
        client("memory_create", {**RECORD, "content": text})
    error = caught.value.error
    assert error["code"] == "INVALID_PARAMETER"
    assert [problem["path"] for problem in error["problems"]] == ["content"]
    assert client("memory_list")["results"] == []
    assert client("memory_create", {**RECORD, "content": {"text": text}})["created"]


@pytest.mark.parametrize("text", [*BLANK, ""], ids=ascii)
def test_validated_saving_says_it_in_its_own_words(client: Client, text: str) -> None:
    changed: dict[str, dict[str, Any]] = {
        "Name is empty": {"name": text},
        "Entity type is empty": {"entityType": text},
        "Relation type is empty": {"relations": [{"targetEntity": "Jon", "relationType": text}]},
        "Observation is empty": {"observations": [text * 5 if text else " " * 5]},
    }
    for words, change in changed.items():
        with pytest.raises(Refused, match=words):
            client("save_memory", entities=[{**SAVED, **change}], threadId="t")


def test_all_of_them_are_named_at_once(client: Client) -> None:
    with pytest.raises(Refused) as caught:
        client("create_entities", entities=[{**JON, "name": " ", "observations": ["x", "\u200b"]}])
    paths = [problem["path"] for problem in caught.value.error["problems"]]
    assert paths == ["entities[0].name", "entities[0].observations[1]"]


def test_what_only_finds_something_may_be_blank(client: Client) -> None:
    """What was stored by an earlier build can still be found and deleted."""
    assert client("delete_entities", entityNames=[" "])["notFound"] == [" "]
    assert client("open_nodes", names=["\u200b"])["notFound"] == ["\u200b"]
    assert client("delete_relations", relations=[{**KNOWS, "to": " "}])["deleted"] == 0
    deletion = {"entityName": "Jon", "observations": [" "]}
    assert client("delete_observations", deletions=[deletion])["deleted"] == 0
    assert client("create_project", name="shop", description=" ")["description"] == " "


@pytest.mark.parametrize("text", [" x ", "\u200bx", "é", "e\u0301", "🙂", ".", "東", "\u0301", "0"])
def test_whatever_shows_something_is_taken_as_it_is(client: Client, text: str) -> None:
    assert not is_blank(text)
    client("create_entities", entities=[{**JON, "name": text}])
    assert client("open_nodes", names=[text])["entities"][0]["name"] == text


def test_an_import_names_the_line(tmp_path: Path) -> None:
    good = b'{"type":"entity","name":"Jon","entityType":"person","observations":[]}\n'
    blank = '{"type":"entity","name":"Ann","entityType":"person","observations":["x","\u200b"]}\n'
    memlog = CommandLine(tmp_path)
    ended = memlog("import", "-", stdin=good + blank.encode())
    assert ended.code != 0
    assert "line 2: observations[1]: '\\u200b' has no character that shows" in ended.stderr
    assert memlog("import", "-", "--json", stdin=good).json["events"] == 1
