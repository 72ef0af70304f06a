"""All that is wrong with a request by itself is told in one refusal, whatever is looked at first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service import Client, Refused, client_on

KNOWS = {"from": "Jon", "to": "Gina", "relationType": "knows"}
TIME = "is not a time"
BLANK = "has no character that shows"
SEVERAL: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    # the tool, its arguments, each place and part of what is said of it
    ("query_nodes", {"createdAfter": "yesterday", "updatedAfter": 5},
     {"createdAfter": TIME, "updatedAfter": "expected a string"}),
    ("query_nodes", {"createdAfter": "yesterday", "updatedAfter": "today", "asOf": "now"},
     {"createdAfter": TIME, "updatedAfter": TIME, "asOf": TIME}),
    ("query_nodes", {"created_after": " ", "max_confidence": 7},
     {"created_after": TIME, "max_confidence": "out of range"}),
    ("search_nodes", {"query": "x", "limit": 0, "asOf": "never"},
     {"limit": "out of range", "asOf": TIME}),
    ("get_history", {"since": "never", "limit": 0}, {"since": TIME, "limit": "out of range"}),
    ("changes_since", {"since": "never", "budgetTokens": 1},
     {"since": TIME, "budgetTokens": "out of range"}),
    ("read_graph", {"asOf": "never", "project": "no such"}, {"asOf": TIME}),
    ("add_observations",
     {"observations": [{"entityName": "Jon",
                        "contents": [" ", {"content": "\u200b", "confidence": 7}]}]},
     {"observations[0].contents[0]": BLANK, "observations[0].contents[1].content": BLANK,
      "observations[0].contents[1].confidence": "out of range"}),
    ("create_entities", {"entities": [{"name": "\n", "entityType": "x"}], "threadId": " "},
     {"entities[0].name": BLANK, "threadId": BLANK}),
    ("create_relations", {"relations": [KNOWS | {"to": " "}, KNOWS | {"importance": 2}]},
     {"relations[0].to": BLANK, "relations[1].importance": "out of range"}),
    ("memory_create", {"type": " ", "content": "\t", "source": "chat", "confidence": "high"},
     {"type": BLANK, "content": BLANK, "confidence": "expected a number"}),
    ("memory_create", {"type": "x", "content": "x" * 10_001, "source": "chat", "confidence": 1,
                       "tags": [f"t{at}" for at in range(21)]},
     {"content": "content is too long", "tags": "Too many tags"}),
    ("list_threads", {"cursor": "page-2", "limits": 5},
     {"cursor": "not a cursor", "limits": "unknown key"}),
    ("query_nodes", {"cursor": "?", "createdAfter": "x"},
     {"cursor": "not a cursor", "createdAfter": TIME}),
    ("undo", {"last": 0, "threadId": " "}, {"last": "out of range", "threadId": BLANK}),
]  # fmt: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def told(client: Client, tool: str, arguments: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What is said of each place in the refusal of this call."""
    with pytest.raises(Refused) as refused:
        client(tool, arguments)
    return {each["path"]: each for each in refused.value.error["problems"]}


@pytest.mark.parametrize(("tool", "arguments", "said"), SEVERAL)
def test_whatever_is_wrong_with_a_request_by_itself_is_told_at_once(
    client: Client, tool: str, arguments: dict[str, Any], said: dict[str, str]
) -> None:
    problems = told(client, tool, arguments)
    assert problems.keys() == said.keys()
    for path, words in said.items():
        assert words in problems[path]["problem"]
        assert problems[path]["suggestion"]


def test_what_is_too_much_for_a_memory_is_told_with_its_value(client: Client) -> None:
    record = {
        "type": "x",
        "source": "chat",
        "confidence": 1,
        "tags": [f"t{at}" for at in range(21)],
    }
    for content, shown in (
        ("x" * 10_001, "x" * 80 + "…"),
        ({"a": "x" * 10_001}, "an object with 1 key"),
    ):
        problems = told(client, "memory_create", record | {"content": content})
        assert problems["content"]["value"] == shown
        assert problems["tags"]["value"] == "a list of 21"


def test_a_number_that_is_too_large_is_told_the_range_and_to_be_no_string(client: Client) -> None:
    problem = told(client, "undo", {"position": 2**64})["position"]
    assert problem["suggestion"] == "Pass an integer from 1 to 18446744073709551615."


@pytest.mark.parametrize(
    ("tool", "key", "value", "advice"),
    [
        ("read_graph", "asOf", True, "Pass a log position, as 12, or a time, as 2026-11-20"),
        ("read_graph", "asOf", 10.5, "Pass a whole number: 10 or 11."),
        ("read_graph", "asOf", {}, 'for example "2026-11-20T10:02:11Z"'),
        ("query_nodes", "updatedAfter", 5, "Write it as 2026-11-20T10:02:11Z, or as a date"),
        ("query_nodes", "updatedAfter", False, "Write it as 2026-11-20T10:02:11Z, or as a date"),
        ("query_nodes", "createdAfter", 20261120, 'Pass it in quotes: "20261120"'),
        ("query_nodes", "createdAfter", {}, 'for example "2026-11-20T10:02:11Z"'),
        ("changes_since", "since", None, "for example 0"),
        *(
            (tool, "cursor", 5, "Pass `nextCursor` of the answer before, unchanged")
            for tool in ("read_graph", "open_nodes", "get_history", "memory_list", "list_projects")
        ),
    ],
)
def test_what_is_no_time_and_no_cursor_is_told_what_one_is(
    client: Client, tool: str, key: str, value: Any, advice: str
) -> None:
    assert advice in told(client, tool, {key: value})[key]["suggestion"]


@pytest.mark.parametrize(
    ("tool", "arguments", "path", "may_be_left_out"),
    [
        ("save_memory", {"entities": [], "threadId": " "}, "threadId", False),
        ("create_entities", {"entities": [], "threadId": " "}, "threadId", True),
        ("rename_entity", {"name": "Jon", "newName": " "}, "newName", True),
        ("open_nodes", {"names": [""]}, "names[0]", True),
        ("forget_memory", {"id": ""}, "id", False),
        ("create_entities", {"entities": [{"name": "x", "entityType": "y", "observations": [" "]}]},
         "entities[0].observations[0]", True),
    ],
)  # fmt: skip
def test_only_what_is_not_required_is_advised_to_be_left_out(
    client: Client, tool: str, arguments: dict[str, Any], path: str, may_be_left_out: bool
) -> None:
    advice = told(client, tool, arguments)[path]["suggestion"]
    assert ("leave it out" in advice) is may_be_left_out


def test_a_filter_that_only_finds_may_be_blank(client: Client) -> None:
    assert client("query_nodes", threadId=" ", entityType="\u200b")["entities"] == []
    assert client("get_history", threadId=" ")["events"] == []
    assert client("memory_search", query=" ", type=" ")["results"] == []


ANN = {
    "name": "Ann",
    "entityType": "Person",
    "observations": ["Works at Acme"],
    "relations": [{"targetEntity": "Ann", "relationType": "knows"}],
}
LONG = "Observation too long (153 chars). Max 150."
ALONE = "Entity 'Ann' must have at least 1 relation"


@pytest.mark.parametrize(
    ("changed", "beside", "said"),
    [
        ({"observations": ["x" * 153], "relations": []}, {},
         {"threadId": "required, but missing", "entities[0].observations[0]": LONG,
          "entities[0].relations": ALONE}),
        ({"observations": ["x" * 153], "importance": 7}, {"threadId": " "},
         {"threadId": BLANK, "entities[0].importance": "out of range",
          "entities[0].observations[0]": LONG}),
        ({"observations": "Works at Acme", "relations": [], "entity_type": "", "entityType": ""},
         {"thread_id": "t"},
         {"entities[0].entity_type": "given twice", "entities[0].observations": "expected a list",
          "entities[0].relations": ALONE, "entities[0].entityType": "Entity type is empty"}),
        ({"name": 5, "observations": ["x" * 153]}, {"threadId": "t"},
         {"entities[0].name": "expected a string"}),
    ],
)  # fmt: skip
def test_what_is_asked_of_entities_is_told_beside_what_is_wrong_with_the_form(
    client: Client, changed: dict[str, Any], beside: dict[str, Any], said: dict[str, str]
) -> None:
    problems = told(client, "save_memory", {"entities": [{**ANN, **changed}], **beside})
    assert {
        path: words in problems[path]["problem"] for path, words in said.items()
    } == dict.fromkeys(problems, True)
    entities = {
        each.get("entity") for path, each in problems.items() if said[path] in (LONG, ALONE)
    }
    assert entities <= {"Ann"}


def test_where_the_form_is_right_all_is_told_by_who_knows_what_is_stored(client: Client) -> None:
    relations = [{"target_entity": "Bob", "relation_type": "knows"}]
    asked = {
        "entities": [{**ANN, "observations": ["x" * 153], "relations": relations}],
        "thread_id": "t",
    }
    assert list(told(client, "save_memory", asked)) == [
        "entities[0].observations[0]",
        "entities[0].relations[0].targetEntity",
    ]


def test_of_many_problems_of_both_kinds_the_rest_is_counted(client: Client) -> None:
    asked = {"entities": [{**ANN, "importance": 7, "relations": []}] * 40, "threadId": "t"}
    with pytest.raises(Refused, match="80 problems: first") as refused:
        client("save_memory", asked)
    *_, last = refused.value.error["problems"]
    assert last["problem"] == "31 more problems"
    asked = {"entities": [{**ANN, "observations": [5] * 1_000}] * 20}
    with pytest.raises(Refused, match=r"at least 100\d\d problems: first"):
        client("save_memory", asked)


def test_what_is_said_of_an_entity_beside_its_list_is_said_where_it_stands(client: Client) -> None:
    problems = told(client, "save_memory", {**ANN, "observations": ["x" * 153], "threadId": "t"})
    assert problems.keys() == {"arguments", "observations[0]"}
    assert problems["observations[0]"]["problem"] == LONG


@pytest.mark.parametrize(
    ("tool", "arguments", "path", "value"),
    [
        ("read_graph", {"asOf": -5}, "asOf", -5),
        ("search_nodes", {"query": "x", "asOf": "99"}, "asOf", "99"),
        ("get_history", {"since": 99}, "since", 99),
        ("get_history", {"entityName": "Jon", "memoryId": "mem_1"}, "memoryId", "mem_1"),
        ("undo", {"position": 1, "last": 2}, "last", 2),
    ],
)
def test_what_fits_neither_the_log_nor_another_argument_is_told_with_its_place(
    client: Client, tool: str, arguments: dict[str, Any], path: str, value: Any
) -> None:
    assert told(client, tool, arguments)[path]["value"] == value
