"""Any answer as of any moment: asked later, it is what the same call answered then."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog.times import iso
from server.answering import moments
from server.answering.moments import parse_moment
from tests.service import Client, Refused, client_on

NAMES = st.sampled_from(["Ann", "Bob", "Cy"])
TEXTS = st.sampled_from(["likes tea", "likes coffee", "lives in Oslo", "has a dog"])
KINDS = st.sampled_from(["Person", "Robot"])
Step = tuple[str, dict[str, Any]]


def _create(name: str, kind: str, texts: list[str]) -> Step:
    return "create_entities", {
        "entities": [{"name": name, "entityType": kind, "observations": texts}]
    }


def _add(name: str, text: str, old: str | None) -> Step:
    content: Any = text if old is None else {"content": text, "supersedes": old}
    return "add_observations", {"observations": [{"entityName": name, "contents": [content]}]}


STEPS = st.one_of(
    st.builds(_create, NAMES, KINDS, st.lists(TEXTS, max_size=2)),
    st.builds(_add, NAMES, TEXTS, st.none() | TEXTS),
    st.builds(
        lambda a, b: (
            "create_relations",
            {"relations": [{"from": a, "to": b, "relationType": "knows"}]},
        ),
        NAMES,
        NAMES,
    ),
    st.builds(lambda name: ("delete_entities", {"entityNames": [name]}), NAMES),
    st.builds(lambda a, b: ("rename_entity", {"name": a, "newName": b}), NAMES, NAMES),
    st.builds(lambda a, b: ("merge_entities", {"names": [a], "into": b}), NAMES, NAMES),
    st.builds(lambda text: ("store_memory", {"content": text}), TEXTS),
    st.builds(
        lambda text, tag: (
            "memory_create",
            {
                "type": "note",
                "content": {"text": text},
                "source": "s",
                "confidence": 0.5,
                "tags": [tag],
            },
        ),
        TEXTS,
        st.sampled_from(["a", "b"]),
    ),
    st.just(("undo", {})),
)

READS: list[Step] = [
    ("read_graph", {}),
    ("open_nodes", {"names": ["Ann", "Bob", "Cy"]}),
    ("query_nodes", {"entityType": "Person"}),
    ("list_recent_memories", {}),
    ("memory_list", {"tags": ["a"]}),
    ("find_relation_path", {"from": "Ann", "to": "Cy"}),
    ("get_analytics", {}),
    ("search_nodes", {"query": "likes"}),
    ("search_nodes", {"query": "Ann"}),
    ("search_memories", {"query": "tea"}),
    ("memory_search", {"query": "oslo", "tags": ["b"]}),
]
VOLATILE = {"accessed_at", "nextCursor"}


def settled(value: Any) -> Any:
    """An answer without what may differ: orders and scores may not."""
    if isinstance(value, dict):
        return {key: settled(each) for key, each in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [settled(each) for each in value]
    return value


def answers(client: Client, at: int | None) -> list[Any]:
    found = []
    for tool, arguments in READS:
        moment = {} if at is None else {"asOf": at}
        try:
            found.append(settled(client(tool, {**arguments, **moment})))
        except Refused as refused:
            found.append(refused.error["code"])
    return found


@settings(max_examples=25)
@given(st.lists(STEPS, max_size=10))
def test_what_was_answered_then_is_answered_again(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder, client_on(Path(folder)) as client:
        client("read_graph")
        project = client.service.open("default").project
        given_then = {project.head(): answers(client, None)}
        for tool, arguments in steps:
            try:
                client(tool, arguments)
            except Refused:
                continue
            given_then[project.head()] = answers(client, None)
        for position, expected in given_then.items():
            assert answers(client, position) == expected


@pytest.mark.parametrize("mode", ["text", "semantic", "hybrid"])
def test_pages_are_those_of_the_first_whatever_is_written_between_them(
    tmp_path: Path, mode: str
) -> None:
    """What is rare then is not what is rare now."""

    def entities(kind: str, many: int) -> Any:
        facts = [f"{kind} number {number} was paid" for number in range(many)]
        return [{"name": fact, "entityType": kind, "observations": [fact]} for fact in facts]

    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[*entities("invoice", 10), *entities("parking", 30)])
        search = partial(client, "search_nodes", query="invoice or parking", mode=mode, limit=10)

        def rest(page: dict[str, Any], between: Callable[[], object]) -> list[Any]:
            found = []
            while "nextCursor" in page:
                between()
                page = search(cursor=page["nextCursor"])
                found += page["entities"]
            return found

        first, batches = search(), count()
        told = rest(first, lambda: None)
        assert len({each["name"] for each in (*first["entities"], *told)}) == 40
        assert told == rest(
            first,
            lambda: client("create_entities", entities=entities(f"invoice {next(batches)}", 40)),
        )


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("get_observation_history", {"entityName": "Ann"}),
        ("find_relation_path", {"from": "Ann", "to": "Ann"}),
    ],
)
@pytest.mark.parametrize("moment", [0, 1, "2026-01-01"])
def test_what_was_not_there_yet_is_said_to_have_come_later(
    tool: str, arguments: dict[str, Any], moment: int | str, tmp_path: Path
) -> None:
    with client_on(tmp_path) as client:
        client("read_graph")
        client(*_create("Anna", "Person", []))
        client(*_create("Ann", "Person", ["likes tea"]))
        with pytest.raises(Refused) as refused:
            client(tool, {**arguments, "asOf": moment})
        problem = refused.value.error["problems"][0]
        assert problem["suggestion"] == "It came later, at position 3: ask as of then."
        client(tool, {**arguments, "asOf": 3})


def test_between_two_lives_of_a_name_the_end_of_the_first_is_not_taken_for_the_beginning_of_the_second(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        client(*_create("Ann", "Person", ["likes tea"]))
        client("delete_entities", entityNames=["Ann"])
        client(*_create("Ann", "Robot", []))
        with pytest.raises(Refused) as refused:
            client("get_observation_history", entityName="Ann", asOf=5)
        assert refused.value.error["suggestion"] == (
            "It came later, at position 6: ask as of then. "
            'Its facts until position 5 are told with "asOf": 4.'
        )


def test_the_time_that_an_answer_gave_is_known_though_the_clock_was_set_back_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        made = client(*_create("Ann", "Person", ["likes tea"]))["entities"][0]
        now_us = parse_moment(made["createdAt"], "createdAt")
        monkeypatch.setattr(moments, "clock_us", lambda: now_us - 3_600_000_000)
        assert client("read_graph", asOf=made["createdAt"])["entities"][0]["name"] == "Ann"
        with pytest.raises(Refused, match="lies in the future"):
            client("read_graph", asOf=iso(now_us + 1))


def test_changes_since_an_answer_are_not_said_to_lie_in_the_future_where_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        made = client(*_create("Ann", "Person", ["likes tea"]))["entities"][0]
        now_us = parse_moment(made["createdAt"], "createdAt")
        monkeypatch.setattr(moments, "clock_us", lambda: now_us - 3_600_000_000)
        client(*_create("Bob", "Person", ["likes coffee"]))
        answer = client("changes_since", since=made["createdAt"])
        assert "Bob" in answer["text"] and answer.get("notice") is None
        assert "lies in the future" in client("changes_since", since="2999-01-01")["notice"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_graph", {"asOf": "2999-01-01"}),
        ("recall", {"query": "tea", "since": "2999-01-01"}),
        ("get_history", {"since": "2999-01-01"}),
    ],
)
def test_a_time_that_has_not_come_is_refused_with_the_time_it_is_and_whose_clock_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    """East of Greenwich what was ten minutes ago lies ahead, if it is written without its zone."""
    with client_on(tmp_path) as client:
        client(*_create("Ann", "Person", ["likes tea"]))
        now_us = parse_moment("2998-12-31T23:50:00Z", "now")
        monkeypatch.setattr(moments, "clock_us", lambda: now_us)
        with pytest.raises(Refused) as refused:
            client(tool, arguments)
        said = refused.value.error["message"]
        assert f"it is {iso(now_us)}. A time without a zone is UTC." in said
