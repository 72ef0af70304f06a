"""What must not bring a server down, over a real pipe: each is refused in words or answered right,
nothing of it is written, and the next call is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.served import ENVELOPE, Pipe, all_facts, served
from tests.service import Refused

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}
GINA = {"name": "Gina", "entityType": "person", "observations": ["sells clothes"]}
KNOWS = {"from": "Jon", "to": "Gina", "relationType": "knows"}
MEGABYTE = "x" * 1_000_000
DEEP: Any = []
for _ in range(150):
    DEEP = [DEEP]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    """One server with a small graph, which every test leaves as it is."""
    with served(tmp_path_factory.mktemp("data"), era="2025-11-25") as started:
        started("create_entities", entities=[JON, GINA])
        started("create_relations", relations=[KNOWS])
        yield started


@pytest.fixture
def unchanged(server: Pipe) -> Iterator[None]:
    """The log is no longer afterwards, and the server answers."""
    before = positions(server)
    yield
    assert positions(server) == before
    assert len(server("search_nodes", query="person")["entities"]) == 2


def positions(server: Pipe) -> str:
    """How far the log reaches, in the words of a refusal."""
    with pytest.raises(Refused) as refused:
        server("read_graph", asOf=1_000_000)
    message: str = refused.value.error["message"]
    assert "is not in the log, which ends at" in message
    return message


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "a text for a list": ("create_entities", {"entities": "Jon"}),
    "a number for an item": ("create_entities", {"entities": [JON, 5]}),
    "null for what is required": ("create_entities", {"entities": None}),
    "a number for a name": ("create_entities", {"entities": [{**GINA, "name": 5}]}),
    "a text for observations": ("create_entities", {"entities": [{**GINA, "observations": "x"}]}),
    "an empty name": ("create_entities", {"entities": [GINA, {**GINA, "name": ""}]}),
    "no type": ("create_entities", {"entities": [{"name": "Mia"}]}),
    "a choice that is none": ("create_entities", {"entities": [JON], "ifExists": "overwrite"}),
    "an unknown key": ("create_entities", {"entities": [{**GINA, "observation": ["x"]}]}),
    "an unknown key at the top": ("read_graph", {"limits": 5}),
    "no arguments at all": ("delete_entities", {}),
    "a missing entity": (
        "add_observations",
        {
            "observations": [
                {"entityName": "Jon", "contents": ["new"]},
                {"entityName": "Jonn", "contents": ["new"]},
            ]
        },
    ),
    "nothing to supersede": (
        "add_observations",
        {
            "observations": [
                {"entityName": "Jon", "contents": ["new", {"content": "x", "supersedes": "y"}]}
            ]
        },
    ),
    "an importance beyond 1": ("create_relations", {"relations": [{**KNOWS, "importance": 1.5}]}),
    "a truth for a number": ("create_relations", {"relations": [{**KNOWS, "importance": True}]}),
    "a limit of 0": ("read_graph", {"limit": 0}),
    "a limit of 10**40": ("read_graph", {"limit": 10**40}),
    "a limit of 1.5": ("search_nodes", {"query": "x", "limit": 1.5}),
    "a cursor of one's own": ("search_nodes", {"query": "x", "cursor": "AAAA"}),
    "a cursor of emoji": ("read_graph", {"cursor": "🙂"}),
    "NUL": ("create_entities", {"entities": [{**GINA, "name": "a\0b"}]}),
    "an escape sequence": (
        "create_entities",
        {"entities": [{**GINA, "observations": ["\x1b[2J"]}]},
    ),
    "DEL": ("delete_entities", {"entityNames": ["a\x7f"]}),
    "a C1 control": ("open_nodes", {"names": ["a\x9bb"]}),
    "a name of a megabyte": ("create_entities", {"entities": [{**GINA, "name": MEGABYTE}]}),
    "a type of a megabyte": (
        "create_relations",
        {"relations": [{**KNOWS, "relationType": MEGABYTE}]},
    ),
    "an observation of a megabyte": (
        "add_observations",
        {"observations": [{"entityName": "Jon", "contents": ["new", MEGABYTE]}]},
    ),
    "a query of a megabyte": ("search_nodes", {"query": MEGABYTE}),
    "a project of a megabyte": ("read_graph", {"project": MEGABYTE}),
    "a time of a megabyte": ("read_graph", {"asOf": MEGABYTE}),
    "a cursor of a megabyte": ("read_graph", {"cursor": MEGABYTE}),
    "a key of a megabyte": ("read_graph", {MEGABYTE: 1}),
    "a missing entity of 500 characters": (
        "add_observations",
        {"observations": [{"entityName": "x" * 500, "contents": ["new"]}]},
    ),
    "10,000 entities": (
        "create_entities",
        {"entities": [{"name": f"e{n}", "entityType": "t"} for n in range(10_000)]},
    ),
    "100,000 wrong items": ("create_entities", {"entities": [5] * 100_000}),
    "100,000 unknown keys": ("read_graph", {f"k{n}": n for n in range(100_000)}),
    "150 levels": ("create_entities", {"entities": DEEP}),
    "150 levels in an unknown key": ("read_graph", {"deep": DEEP}),
    "a position of tomorrow": ("search_nodes", {"query": "banker", "asOf": 2**63 - 1}),
    "a position beyond 64 bits": ("search_nodes", {"query": "banker", "asOf": 2**63}),
    "a position before the first": ("search_nodes", {"query": "banker", "asOf": -1}),
    "a position of 30 digits": ("search_nodes", {"query": "banker", "asOf": "9" * 30}),
    "a position of 5,000 digits": ("read_graph", {"asOf": "9" * 5_000}),
    "a time that is none": ("open_nodes", {"names": ["Jon"], "asOf": "yesterday"}),
    "a project that is not there": ("read_graph", {"project": "defualt"}),
    "a project without a name": ("create_project", {"name": ""}),
    "a project to restore that is not there": ("restore_project", {"name": "nothing"}),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_is_refused_in_words(server: Pipe, unchanged: None, wrong: str) -> None:
    tool, arguments = WRONG[wrong]
    result = server.result(tool, **arguments)
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    assert error["code"] not in ("STORAGE_ERROR", "CONFLICT")
    assert error["message"]
    assert error.get("suggestion") or all("suggestion" in each for each in error["problems"])
    assert len(json.dumps(result)) < 40_000, "a refusal shows values shortened"


def raw(arguments: str, number: str = "7") -> bytes:
    """A call of create_entities whose arguments are spelt by hand."""
    params = f'{{"name":"create_entities","arguments":{arguments}}}'
    line = f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}\n'
    return line.encode()


UNREADABLE = {
    "half a surrogate pair": (raw('{"entities":[{"name":"\\ud83d","entityType":"t"}]}'), -32602),
    "two halves in the wrong order": (
        raw('{"entities":[{"name":"\\ude00\\ud83d","entityType":"t"}]}'),
        -32602,
    ),
    "a newline that is not escaped": (raw('{"entities":[{"name":"a\tb"}]}'), -32700),
    "100,000 levels": (raw('{"entities":' + "[" * 100_000 + "]" * 100_000 + "}"), -32700),
    "arguments that are a list": (raw("[]"), -32602),
    "arguments that are a text": (raw('"Jon"'), -32602),
    "Latin-1": (raw('{"entities":[]}').replace(b"[]", b'[{"name":"\xe9"}]'), -32700),
    "an end in the middle": (raw('{"entities":[{"name":"Jon"')[:-3] + b"\n", -32700),
}


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_a_line_that_cannot_be_read_is_a_json_rpc_error(
    server: Pipe, unchanged: None, unreadable: str
) -> None:
    line, code = UNREADABLE[unreadable]
    server.write(line)
    answer = server.read()
    assert answer is not None
    assert answer["error"]["code"] == code
    assert answer["id"] in (7, None)


@pytest.mark.parametrize("importance", ["1e999", "NaN", "-Infinity", "1" * 5_000])
def test_a_number_that_no_float_holds_is_refused(
    server: Pipe, unchanged: None, importance: str
) -> None:
    relation = f'{{"from":"a","to":"b","relationType":"r","importance":{importance}}}'
    line = raw(f'{{"relations":[{relation}]}}').replace(b"create_entities", b"create_relations")
    server.write(line)
    answer = server.read()
    assert answer is not None
    assert "error" in answer or answer["result"]["isError"]


def test_bad_and_good_calls_at_once_have_their_own_answers(server: Pipe, unchanged: None) -> None:
    bad = [server.send_call(tool, **arguments) for tool, arguments in WRONG.values()]
    good = [server.send_call("open_nodes", names=["Jon"]) for _ in range(20)]
    answers = [server.read() for _ in [*bad, *good]]
    failed = {answer["id"]: answer["result"]["isError"] for answer in answers if answer}
    assert failed == dict.fromkeys(bad, True) | dict.fromkeys(good, False)


def test_what_is_large_but_allowed_is_taken_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(tmp_path_factory.mktemp("large")) as server:
        many = [{"name": f"e{n}", "entityType": "t"} for n in range(999)]
        full = {
            "name": "n" * 500,
            "entityType": "t" * 200,
            "observations": [f"{n:04}" + "ü" * 9_996 for n in range(100)],
        }
        created = server("create_entities", entities=[*many, full])
        assert f"{1_000 - len(created['entities'])} of 1,000 entities" in created["notice"]
        both = ["n" * 500, "e998"]  # one fact of the first fills an answer
        first = server("open_nodes", names=both)
        second = server("open_nodes", names=both, cursor=first["nextCursor"])
        opened = [*first["entities"], *second["entities"]]
        assert [entity["name"] for entity in opened] == both
        assert all_facts(server, "n" * 500) == full["observations"]
        assert server("create_entities", entities=[])["entities"] == []
        assert server("search_nodes", query="x" * 10_000)["entities"] == []
        gone = server("delete_entities", names=[entity["name"] for entity in many])
        assert gone["deleted"] == 999


# -- anything at all

TEXTS = st.sampled_from(
    ["Jon", "Gina", "person", "default", "", " ", "AND", '"', "é", "🙂", "\0", "9" * 40, "a" * 600]
) | st.text(max_size=20)
NUMBERS = st.sampled_from([0, -1, 1, 2, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 0.5, 1e308])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def drawn_from(schema: dict[str, Any], root: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that `schema` allows or nearly so, and now and then anything at all."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema:
        fitting: st.SearchStrategy[Any] = st.sampled_from(schema["enum"])
    elif "anyOf" in schema:
        fitting = st.one_of([drawn_from(each, root) for each in schema["anyOf"]])
    elif schema.get("type") == "object":
        fields = {
            name: drawn_from(each, root) for name, each in schema.get("properties", {}).items()
        }
        needed = {name: fields.pop(name) for name in schema.get("required", ())}
        fitting = st.fixed_dictionaries(needed, optional=fields)
    elif schema.get("type") == "array":
        fitting = st.lists(drawn_from(schema.get("items", {}), root), max_size=3)
    else:
        fitting = {
            "string": TEXTS,
            "integer": NUMBERS,
            "number": NUMBERS,
            "boolean": st.booleans(),
        }.get(schema.get("type", ""), JSON)
    return st.integers(0, 20).flatmap(lambda dice: JSON if dice == 0 else fitting)


@pytest.fixture(scope="module")
def guinea_pig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    with served(tmp_path_factory.mktemp("fuzzed")) as started:
        yield started


@pytest.mark.parametrize("listed", ["tools", "prompts", "resources", "resources/templates"])
def test_a_list_that_is_told_on_one_page_takes_no_cursor(server: Pipe, listed: str) -> None:
    error = server.request(f"{listed}/list", cursor="second")["error"]
    assert error["code"] == -32602
    assert error["message"] == "cursor: there is only one page; leave it out"
    assert "result" in server.request(f"{listed}/list")
    assert "result" in server.request(f"{listed}/list", cursor="")


@pytest.fixture(scope="module")
def schemas(guinea_pig: Pipe) -> dict[str, Any]:
    tools = guinea_pig.request("tools/list")["result"]["tools"]
    return {tool["name"]: tool["inputSchema"] for tool in tools}


@settings(max_examples=300)
@given(data=st.data())
def test_whatever_is_sent_to_a_tool_is_answered_or_refused_and_never_an_internal_error(
    guinea_pig: Pipe, schemas: dict[str, Any], data: st.DataObject
) -> None:
    tool = data.draw(st.sampled_from(sorted(schemas)))
    arguments = data.draw(drawn_from(schemas[tool], schemas[tool]))
    params = {"name": tool, "arguments": arguments, "_meta": ENVELOPE}
    line = {"jsonrpc": "2.0", "id": "fuzz", "method": "tools/call", "params": params}
    guinea_pig.write(json.dumps(line).encode() + b"\n")
    answer = guinea_pig.read()
    assert answer is not None, guinea_pig.stderr()
    if "error" in answer:
        assert answer["error"]["code"] == -32602, (params, answer, guinea_pig.stderr())
        assert not isinstance(arguments, dict)
    elif answer["result"]["isError"]:
        error = answer["result"]["structuredContent"]["error"]
        assert error["code"] != "STORAGE_ERROR", (params, error)
    else:
        json.loads(answer["result"]["content"][0]["text"])
