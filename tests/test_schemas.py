from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from msgspec import Meta, field

from memlog import commands
from memlog.errors import MemlogError
from memlog.settings import TOOLSETS
from server.input.arguments import decode
from server.input.schemas import COUNTED_OUT_MAX, countable, input_schema, output_schema
from server.listing import listed
from server.registry import tools


class Detailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For readers of the code."""

    content: Annotated[str, Meta(min_length=1, description="One fact", examples=["tea"])]
    confidence: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    least: Annotated[float, Meta(ge=0, le=1, description="The least, from 0 to 1")] = 0.0
    most: Annotated[float, Meta(ge=0, le=1, description="The most, from 0 to 1")] = 1.0
    inclusive: Annotated[bool, Meta(description="Whether the ends belong to it")] = True


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """For readers of the code."""

    entity_name: Annotated[str, Meta(max_length=9, examples=["Jon"])] = field(name="entityName")
    contents: Annotated[list[str | Detailed], Meta(max_length=3)]
    mode: Annotated[
        Literal["hybrid", "text"] | None, Meta(description="How", title="Search mode")
    ] = None
    as_of: Annotated[str, Meta(description="Time")] | int | None = field(default=None, name="asOf")
    limit: Annotated[int, Meta(ge=1, le=50)] | msgspec.UnsetType = msgspec.UNSET
    extra: dict[str, Any] | None = None
    nothing: str | None
    confidence: Annotated[Range | None, Meta(description="Of confidence")] = None
    importance: Range | None = None


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    supersedes: str | None = None


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    found: list[Plain]
    next_cursor: str | None = field(default=None, name="nextCursor")


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    cursor: str | None = None


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    inner: Node | None = None


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    name: str


def everything_in(schema: Any) -> list[Any]:
    inner = schema.values() if isinstance(schema, dict) else schema
    nodes = [each for each in inner if isinstance(each, (dict, list))]
    return [schema, *(deeper for node in nodes for deeper in everything_in(node))]


def characters(schema: Any) -> int:
    return len(json.dumps(schema, separators=(",", ":")))


def test_the_root_is_a_closed_object_written_out() -> None:
    schema = input_schema(Ask)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["entityName", "contents", "nothing"]
    assert not {"$ref", "anyOf", "title", "description"} & schema.keys()


def test_limits_descriptions_and_defaults_stay() -> None:
    schema = input_schema(Ask)
    assert schema["properties"]["entityName"] == {"type": "string", "maxLength": 9}
    assert schema["properties"]["limit"] == {"type": "integer", "minimum": 1, "maximum": 50}
    assert schema["properties"]["contents"]["maxItems"] == 3
    detailed = schema["properties"]["contents"]["items"]["anyOf"][1]
    assert detailed["properties"]["content"]["description"] == "One fact"
    assert detailed["properties"]["confidence"]["default"] == 1.0
    assert detailed["additionalProperties"] is False


def test_a_client_that_lets_no_unnamed_key_through_learns_that_a_record_may_have_any() -> None:
    content = listed(tools(TOOLSETS)["memory_create"]).input_schema["properties"]["content"]
    assert {"type": "object", "additionalProperties": True} in content["anyOf"]


def test_a_server_of_local_models_is_shown_no_bound_that_its_grammar_could_not_count_out() -> None:
    asked = [listed(tool).input_schema for tool in tools(TOOLSETS).values()]
    told = [each for schema in asked for each in everything_in(schema) if isinstance(each, dict)]
    bounds = [each[key] for each in told for key in ("maxLength", "maxItems") if key in each]
    assert 150 in bounds and max(bounds) < COUNTED_OUT_MAX


def test_a_bound_that_is_not_shown_leaves_all_else_as_it_is() -> None:
    texts = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 2_000}}
    named = {
        "properties": {"maxItems": {"anyOf": [{**texts, "maxItems": 1_000}], "maximum": 2_000}}
    }
    short = {"type": "array", "items": {"type": "string", "minLength": 1}}
    assert countable(named) == {"properties": {"maxItems": {"anyOf": [short], "maximum": 2_000}}}


def test_a_model_that_is_held_to_the_schema_can_leave_no_text_of_save_memory_empty() -> None:
    entity = listed(tools(TOOLSETS)["save_memory"]).input_schema["properties"]["entities"]["items"]
    relation = entity["properties"]["relations"]["items"]["properties"]
    texts = [relation["targetEntity"], relation["relationType"], entity["properties"]["name"]]
    assert [text["minLength"] for text in texts] == [1, 1, 1]


@pytest.mark.parametrize("key", ["asOf", "since"])
def test_a_client_that_shows_a_model_the_first_choice_alone_shows_that_a_moment_is_a_text(
    key: str,
) -> None:
    asked = [listed(tool).input_schema["properties"] for tool in tools(TOOLSETS).values()]
    choices = [schema[key]["anyOf"] for schema in asked if key in schema]
    assert choices and {each[0]["type"] for each in choices} == {"string"}


def test_a_client_that_makes_functions_of_tools_is_shown_what_must_be_given_first() -> None:
    for tool in tools(TOOLSETS).values():
        asked = listed(tool).input_schema
        needed = asked.get("required", [])
        assert set(list(asked["properties"])[: len(needed)]) == set(needed), tool.name


def test_an_optional_argument_is_shown_without_its_null() -> None:
    properties = input_schema(Ask)["properties"]
    assert properties["mode"] == {
        "type": "string",
        "enum": ["hybrid", "text"],
        "description": "How",
        "title": "Search mode",
    }
    assert properties["asOf"] == {
        "anyOf": [{"type": "string", "description": "Time"}, {"type": "integer"}]
    }
    assert properties["extra"] == {"type": "object"}


def test_a_null_that_must_be_given_is_shown() -> None:
    assert input_schema(Ask)["properties"]["nothing"] == {
        "anyOf": [{"type": "string"}, {"type": "null"}]
    }


def test_examples_and_docstrings_are_kept_out() -> None:
    assert not [each for each in everything_in(input_schema(Ask)) if "examples" in each]
    assert "For readers of the code" not in json.dumps(input_schema(Ask))


def test_a_long_definition_used_twice_is_shared_and_keeps_what_is_said_at_its_use() -> None:
    schema = input_schema(Ask)
    assert list(schema["$defs"]) == ["Range"]
    assert schema["properties"]["importance"] == {"$ref": "#/$defs/Range"}
    assert schema["properties"]["confidence"] == {
        "$ref": "#/$defs/Range",
        "description": "Of confidence",
    }


def test_a_short_definition_used_twice_is_written_out() -> None:
    both = msgspec.defstruct("Both", [("one", Page), ("two", Page)])
    page = {"type": "object", "properties": {"cursor": {"type": "string"}}}
    assert output_schema(both)["properties"] == {"one": page, "two": page}


def test_a_result_is_open_and_shows_the_null_that_is_written() -> None:
    schema = output_schema(Sparse)
    assert "additionalProperties" not in json.dumps(schema)
    item = schema["properties"]["found"]["items"]
    assert item["properties"]["supersedes"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert schema["properties"]["nextCursor"] == {"type": "string"}
    written = msgspec.to_builtins(Sparse(found=[Plain(id="obs_1")]))
    Draft202012Validator(schema).validate(written)


@pytest.mark.parametrize("schema_of", [input_schema, output_schema])
def test_a_type_that_holds_itself_or_is_no_object_has_no_schema(schema_of: Any) -> None:
    with pytest.raises(TypeError, match="Node holds itself"):
        schema_of(Node)
    with pytest.raises(TypeError, match="Row is not written as a JSON object"):
        schema_of(Row)


COMMANDS = [
    each
    for each in vars(commands).values()
    if isinstance(each, type) and issubclass(each, commands.Command) and each.__struct_fields__
]


@pytest.mark.parametrize("of", [Ask, Sparse, Range, *COMMANDS])
def test_schemas_are_valid_and_shorter_than_msgspec_makes_them(of: type[msgspec.Struct]) -> None:
    for schema in (input_schema(of), output_schema(of)):
        Draft202012Validator.check_schema(schema)
        assert characters(schema) < characters(msgspec.json.schema(of))


TEXT = st.sampled_from(["", "tea", "hybrid", "more than nine"])
LEAVES = TEXT | st.sampled_from([None, True, 0, 1, 0.5, 10.0, 51, -1, {"content": ""}])
ITEMS = TEXT | st.fixed_dictionaries({"content": TEXT}, optional={"confidence": LEAVES})
RANGES = st.fixed_dictionaries({}, optional={"least": LEAVES, "inclusive": LEAVES})
ASKED = st.fixed_dictionaries(
    {"entityName": TEXT, "contents": st.lists(ITEMS | LEAVES, max_size=4), "nothing": LEAVES},
    optional={
        "mode": LEAVES,
        "asOf": LEAVES,
        "limit": LEAVES,
        "extra": st.dictionaries(TEXT, LEAVES, max_size=2) | LEAVES,
        "confidence": RANGES | LEAVES,
        "unknown": LEAVES,
    },
)


@given(arguments=ASKED)
@example({"entityName": "tea", "contents": [], "nothing": None, "limit": ""})
def test_what_the_schema_allows_is_what_is_taken_apart_from_what_says_nothing(
    arguments: dict[str, Any],
) -> None:
    allowed = Draft202012Validator(input_schema(Ask)).is_valid(arguments)
    try:
        decode(arguments, Ask)
    except MemlogError:
        assert not allowed
    else:
        assert allowed or any(leaf in (None, "") for leaf in _leaves(arguments))


def _leaves(value: Any) -> list[Any]:
    if not isinstance(value, (dict, list)):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [leaf for each in inner for leaf in _leaves(each)]
