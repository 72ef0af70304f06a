"""What the tools cost a model in every conversation: run with `-s` to see it tool by tool.

A token is counted as four characters of what a client hands to the model: name, description and the
schema of the arguments. Clients do not hand on the schema of the result.
"""

from __future__ import annotations

import json

import pytest

from memlog.settings import TOOLSETS
from server.listing import listed
from server.registry import Tool, tools

CHARACTERS_PER_TOKEN = 4
TOKENS_MAX = {"graph": 2_000}
TOKENS_MAX_OF_ALL = 7_000
TOKENS_MAX_OF_A_TOOL = 500
_SHORTER = "a model reads this in every conversation: say it shorter, here or in another tool (-s shows them all)"


def tokens(tool: Tool) -> int:
    shown = listed(tool)
    schema = json.dumps(shown.input_schema, ensure_ascii=False, separators=(",", ":"))
    characters = len(shown.name) + len(shown.description or "") + len(schema)
    return -(-characters // CHARACTERS_PER_TOKEN)


def test_all_tools_together_stay_within_their_budget() -> None:
    costs = dict.fromkeys(TOOLSETS, 0)
    for name, tool in tools(TOOLSETS).items():
        cost = tokens(tool)
        costs[tool.toolset] += cost
        print(f"{tool.toolset:10} {name:26} {cost:6}")
        assert cost <= TOKENS_MAX_OF_A_TOOL, f"{name}: {_SHORTER}"
    for toolset, cost in costs.items():
        print(f"{toolset:10} {'':26} {cost:6}")
        assert 0 < cost <= TOKENS_MAX.get(toolset, TOKENS_MAX_OF_ALL), f"{toolset}: {_SHORTER}"
    print(f"{'all':10} {'':26} {sum(costs.values()):6}")
    assert sum(costs.values()) <= TOKENS_MAX_OF_ALL, _SHORTER


def test_those_that_only_read_cost_less() -> None:
    reading = sum(map(tokens, tools(TOOLSETS, read_only=True).values()))
    assert 0 < reading < sum(map(tokens, tools(TOOLSETS).values())) / 1.5


@pytest.mark.parametrize("name", sorted(tools(TOOLSETS)))
def test_no_description_was_shortened_to_nothing(name: str) -> None:
    tool = tools(TOOLSETS)[name]
    assert tool.title
    assert "Example: {" in tool.description
    assert len(tool.description.partition("Example: ")[0]) >= 35, "what it is for"
    assert tool.description == tool.description.strip()


@pytest.mark.parametrize(
    ("name", "words"),
    [("recall", ["search", "memory", "known"]), ("store_memory", ["remember", "fact"])],
)
def test_a_model_that_looks_for_a_tool_finds_it_by_what_it_wants_to_do(
    name: str, words: list[str]
) -> None:
    told = tools(TOOLSETS)[name].description.partition("Example: ")[0].lower()
    assert [word for word in words if word not in told] == []


def test_whoever_reads_the_schemas_alone_learns_what_a_date_means_as_a_moment() -> None:
    asked = {
        name: listed(tool).input_schema["properties"] for name, tool in tools(TOOLSETS).items()
    }
    told = {schema["asOf"]["description"] for schema in asked.values() if "asOf" in schema}
    assert told == {"ISO UTC time (a date: its first moment) or log position"}


@pytest.mark.parametrize("key", ["asOf", "since", "createdAfter"])
def test_whoever_reads_the_schemas_alone_learns_in_which_zone_a_time_without_one_is(
    key: str,
) -> None:
    asked = [listed(tool).input_schema["properties"] for tool in tools(TOOLSETS).values()]
    told = [schema[key]["description"] for schema in asked if key in schema]
    assert told and all("UTC" in each for each in told)


@pytest.mark.parametrize("name", ["create_entities", "save_memory"])
def test_whoever_reads_the_descriptions_alone_learns_what_becomes_of_an_entity_that_exists(
    name: str,
) -> None:
    said = tools(TOOLSETS)[name].description
    assert "An entity that exists" in said or "An entity of the same name" in said


def test_what_is_said_to_become_of_an_entity_that_exists_is_true_whatever_the_server_is_set_to() -> (
    None
):
    said = tools(TOOLSETS)["create_entities"].description
    assert "An entity of the same name is replaced by default" in said


def test_whoever_reads_the_description_alone_learns_that_a_similar_fact_may_be_true_as_well() -> (
    None
):
    assert "both are true" in tools(TOOLSETS)["store_memory"].description
