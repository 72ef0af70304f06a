from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlog.errors import InvalidParameter, LimitExceeded, MemlogError
from memlog.settings import TOOLSETS
from server.input.arguments import decode
from server.input.diagnosis import LEVELS_MAX, spellings
from server.registry import Tool, tools
from tests.asked import PERSON, SAVE, Create, Meeting, Person, Save, Tree, problem, refusal


def test_arguments_spelt_as_in_the_schema_become_the_struct() -> None:
    asked = {"entities": [{**PERSON, "observations": ["danced"]}], "ifExists": "merge"}
    person = Person(name="Jon", entity_type="person", observations=["danced"])
    assert decode(asked, Create) == Create(entities=[person], if_exists="merge")


def test_every_key_is_taken_in_the_other_case_at_any_depth() -> None:
    snake = {"entities": [{"name": "Jon", "entity_type": "person"}], "thread_id": "t"}
    camel = {"entities": [PERSON], "threadId": "t"}
    assert decode(snake, Create) == decode(camel, Create)
    assert decode({**SAVE, "as_of": 5}, Save).as_of == 5


def test_an_alias_of_the_struct_is_taken() -> None:
    assert decode({"people": [PERSON]}, Create) == decode({"entities": [PERSON]}, Create)


def test_any_mapping_is_taken_for_the_object() -> None:
    assert decode(MappingProxyType({"entities": [PERSON]}), Create).entities[0].name == "Jon"
    assert problem(MappingProxyType({"entites": [PERSON]}), Create).path == "entites"


def test_no_arguments_at_all_are_an_empty_object() -> None:
    assert decode(None, Tree) == Tree()
    assert problem(None, Create).path == "entities"


def test_what_was_sent_is_not_changed() -> None:
    sent: dict[str, Any] = {"entities": [{"name": "Jon", "entity_type": "person"}]}
    before = json.dumps(sent)
    decode(sent, Create)
    assert json.dumps(sent) == before


def test_both_spellings_at_once_are_refused_whatever_they_say() -> None:
    found = problem({"entities": [{**PERSON, "entity_type": "person"}]}, Create)
    assert found.path == "entities[0].entity_type"
    assert found.problem == "given twice, as 'entityType' and as 'entity_type'"
    assert problem({"people": [PERSON], "entities": [PERSON]}, Create).path == "entities"


def test_null_for_an_optional_key_is_as_if_it_had_not_been_given() -> None:
    sent = {"entities": [PERSON], "ifExists": None, "threadId": None}
    assert decode(sent, Create) == decode({"entities": [PERSON]}, Create)
    assert decode({**SAVE, "limit": None, "tags": None}, Save) == decode(SAVE, Save)


def test_a_string_that_says_null_is_null_where_no_string_may_stand() -> None:
    assert decode({**SAVE, "limit": "null", "tags": "null"}, Save) == decode(SAVE, Save)
    assert decode({**SAVE, "content": "null"}, Save).content == "null"
    assert problem({"entities": "null"}, Create).problem.startswith("expected a list of objects")


def test_an_empty_string_for_an_optional_key_is_as_if_it_had_not_been_given() -> None:
    sent = {"entities": [PERSON], "ifExists": "", "threadId": ""}
    assert decode(sent, Create) == decode({"entities": [PERSON]}, Create)
    assert decode({**SAVE, "limit": "", "tags": "", "as_of": ""}, Save) == decode(SAVE, Save)


@pytest.mark.parametrize("tool", tools(TOOLSETS).values(), ids=lambda tool: tool.name)
def test_every_optional_key_of_every_tool_may_be_an_empty_string(tool: Tool) -> None:
    fields = msgspec.structs.fields(tool.arguments)
    optional = {field.encode_name for field in fields if not field.required}
    try:
        assert decode(dict.fromkeys(optional, ""), tool.arguments) == tool.arguments()
    except MemlogError as refused:
        assert not optional & {each.path for each in refused.problems}


def test_a_string_that_holds_as_json_what_belongs_there_is_taken_for_that_at_any_depth() -> None:
    person = {**PERSON, "observations": ["danced", '["x"]']}
    whole = decode({"entities": [person]}, Create)
    assert decode({"entities": json.dumps([person])}, Create) == whole
    assert decode({"entities": [json.dumps(person)]}, Create) == whole
    quoted = {**person, "observations": f"\n{json.dumps(person['observations'])} "}
    assert decode({"entities": json.dumps([quoted])}, Create) == whole
    numbers = {"confidence": "0.5", "limit": "10", "final": "true", "tags": '["tea"]'}
    meant = {"confidence": 0.5, "limit": 10, "final": True, "tags": ["tea"]}
    assert decode({**SAVE, **numbers}, Save) == decode({**SAVE, **meant}, Save)


def test_a_string_stays_one_where_one_may_stand() -> None:
    assert decode({**SAVE, "content": '{"x": 1}', "asOf": "5"}, Save).content == '{"x": 1}'
    assert decode({**SAVE, "asOf": "5"}, Save).as_of == "5"
    assert decode({"entities": [{**PERSON, "name": "[1]"}]}, Create).entities[0].name == "[1]"


def test_what_a_string_holds_is_looked_at_like_all_else() -> None:
    assert (
        problem({"entities": json.dumps([{**PERSON, "name": "\0"}])}, Create).path
        == "entities[0].name"
    )
    assert problem({**SAVE, "tags": '["Green Tea"]'}, Save).path == "tags[0]"
    deep = f"{'[' * 100_000}{']' * 100_000}"
    assert problem({"entities": deep}, Create).path == "entities"
    kids = '[{"kids": ' * LEVELS_MAX + "[]" + "}]" * LEVELS_MAX
    assert problem({"kids": kids}, Tree).problem == "nested deeper than 64 levels"


def test_a_whole_float_is_an_integer() -> None:
    limit = decode({**SAVE, "limit": 10.0}, Save).limit
    assert (limit, type(limit)) == (10, int)


@pytest.mark.parametrize(
    "text", ["\ud800", "ok \udfff", "\udc00\ud800", "a\x00", "\x1b[31m", "\x7f", "\x85"]
)
@pytest.mark.parametrize("where", ["text", "free text", "free key", "unknown key"])
def test_no_lone_surrogate_or_control_character_gets_through(text: str, where: str) -> None:
    places: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
        "text": (Create, {"entities": [{**PERSON, "observations": [text]}]}),
        "free text": (Save, {**SAVE, "content": {"a": [text]}}),
        "free key": (Save, {**SAVE, "content": {text: 1}}),
        "unknown key": (Save, {**SAVE, text: 1}),
    }
    into, arguments = places[where]
    assert refusal(arguments, into).problems


@pytest.mark.parametrize(
    "text", ["a\nb\tc\r", "C:\\bin\\user", "\\u0000", "Â\xa0é", "😀 null", "[" * 99]
)
def test_text_that_only_looks_odd_is_taken(text: str) -> None:
    assert decode({**SAVE, "content": text}, Save).content == text
    content = {"k " + text: [text, None]}
    assert decode({**SAVE, "content": content}, Save).content == content


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_as_many_levels_as_are_allowed_are_taken_and_one_more_is_not() -> None:
    content = {"a": nested(LEVELS_MAX - 2)}
    assert decode({**SAVE, "content": content}, Save).content == content
    found = problem({**SAVE, "content": {"a": nested(LEVELS_MAX - 1)}}, Save)
    assert found.problem == "nested deeper than 64 levels"
    assert found.path.startswith("content.a[0][0]")


@pytest.mark.parametrize(
    ("into", "key"), [(Save, "content"), (Save, "tags"), (Create, "entities"), (Create, "zzz")]
)
@pytest.mark.parametrize("levels", [900, 100_000])
def test_very_deep_values_are_refused_in_words(
    into: type[msgspec.Struct], key: str, levels: int
) -> None:
    assert refusal({**SAVE, key: {"a": nested(levels)}}, into).problems
    assert refusal({**SAVE, key: nested(levels)}, into).problems
    assert refusal({**SAVE, key: "[" * levels + "]" * levels}, Create).problems


def test_a_type_that_holds_itself_is_bounded_in_depth_too() -> None:
    tree: dict[str, Any] = {}
    for _ in range(100):
        tree = {"kids": [tree]}
    assert problem(tree, Tree).problem == "nested deeper than 64 levels"


def test_a_struct_that_would_drop_unknown_keys_is_refused_as_a_declaration() -> None:
    class Careless(msgspec.Struct):
        name: str

    with pytest.raises(TypeError, match="Careless must be declared with forbid_unknown_fields"):
        decode({"name": "x"}, Careless)


# Biased towards the keys and values that the structs know, so that the walk gets past the first.
STRUCTS: list[type[msgspec.Struct]] = [Create, Save, Tree, Meeting, Person]
KEYS = st.sampled_from(sorted({"entites", *(key for into in STRUCTS for key in spellings(into))}))
TEXT = st.text(st.characters(), max_size=25) | st.text(st.characters(categories=["Cs", "Cc"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), 10**400, 0, 1, 10.0, "0.5", "[1]", '{"a":1}', "merge", ""])
    | st.floats()
    | TEXT
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(arguments=st.dictionaries(KEYS | TEXT, JSON, max_size=5) | JSON)
@example(arguments={"when": "2025-01-01T00:00:00Z", "attendees": {"a": 2**70}})
def test_any_json_becomes_the_struct_or_one_error_with_places(arguments: Any) -> None:
    for into in STRUCTS:
        try:
            decoded = decode(arguments, into)
        except MemlogError as error:
            assert isinstance(error, (InvalidParameter, LimitExceeded))
            assert error.problems
            for each in error.problems:
                assert each.path
                assert each.problem
            told = [error.message, error.suggestion, msgspec.to_builtins(error.problems)]
            json.dumps(told, allow_nan=False, ensure_ascii=False).encode()
        else:
            assert isinstance(decoded, into)
            msgspec.msgpack.encode(decoded)


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=19).map(
    "a".__add__  # something that shows
)
PEOPLE = st.fixed_dictionaries(
    {"name": NAMES, "entity_type": NAMES}, optional={"observations": st.lists(NAMES, max_size=5)}
)


@given(people=st.lists(PEOPLE, min_size=1, max_size=3), merge=st.sampled_from(["merge", None]))
def test_the_walk_and_the_quick_way_agree(people: list[dict[str, Any]], merge: str | None) -> None:
    camel = [
        {{"entity_type": "entityType"}.get(key, key): each for key, each in person.items()}
        for person in people
    ]
    quick = decode({"entities": camel, "ifExists": merge}, Create)
    assert decode({"people": people, "if_exists": merge}, Create) == quick
    assert msgspec.to_builtins(quick)["entities"] == [
        {"observations": [], "notes": [], **person} for person in camel
    ]
