from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from memlog import errors
from memlog.errors import PROBLEMS_MAX, InvalidParameter, LimitExceeded
from server.input import diagnosis
from tests.asked import PERSON, SAVE, Create, Meeting, Save, problem, refusal

MISTAKES: list[tuple[type[msgspec.Struct], dict[str, Any], str, str, str]] = [
    # arguments, path, part of the problem, part of the suggestion
    (Create, {"entites": [PERSON]}, "entites", "unknown key 'entites'", "'entities'?"),
    (Create, {"entities": [PERSON | {"observation": []}]}, "entities[0].observation", "unknown",
     "Did you mean 'observations'?"),
    (Create, {"entities": [{"name": "Jon", "type": "person"}]}, "entities[0].type", "unknown",
     "Did you mean 'entityType'?"),
    (Create, {"entities": [PERSON], "If-Exists": "skip"}, "If-Exists", "unknown", "'ifExists'?"),
    (Create, {"entities": [PERSON], "zzz": 1}, "zzz", "unknown key 'zzz'",
     "Known keys: 'entities', 'ifExists', 'threadId'."),
    (Create, {}, "entities", "required, but missing",
     'Add "entities": [{"name":"john-doe","entityType":"person"}].'),
    (Create, {"entities": [{"name": "Jon"}]}, "entities[0].entityType", "required, but missing",
     'Add "entityType": "person".'),
    (Create, {"entities": None}, "entities", "expected a list of objects, got null", "john-doe"),
    (Create, {"entities": PERSON}, "entities", "got an object", "Pass a list: [{…}]"),
    (Create, {"entities": '[{"name": "Jon"}]'}, "entities[0].entityType", "required, but missing",
     'Add "entityType": "person".'),
    (Create, {"entities": json.dumps(PERSON)}, "entities", "got the string", "Pass a list"),
    (Create, {"entities": '[{"name": "Jo'}, "entities", "got the string", "Pass a list"),
    (Create, {"entities": ["Jon"]}, "entities[0]", "expected an object, got the string", "person"),
    (Create, {"entities": [PERSON | {"observations": "danced"}]}, "entities[0].observations",
     'expected a list of strings, got the string "danced"', 'Pass a list: ["danced"]'),
    (Create, {"entities": [PERSON | {"observations": [{"text": "danced"}]}]},
     "entities[0].observations[0]", "expected a string, got an object", 'by itself: "danced"'),
    (Create, {"entities": [PERSON | {"observations": ["a", ["b"]]}]},
     "entities[0].observations[1]", "expected a string, got a list", 'by itself: "b"'),
    (Create, {"entities": [PERSON | {"observations": ["a", 5]}]},
     "entities[0].observations[1]", "got the number 5", 'Pass it in quotes: "5"'),
    (Create, {"entities": [PERSON | {"name": 2**70}]}, "entities[0].name",
     "expected a string, got an integer of 71 bits", "Pass it in quotes."),
    (Create, {"entities": [PERSON | {"name": float("nan")}]}, "entities[0].name",
     "expected a string, got NaN", "Pass it in quotes."),
    (Create, {"entities": [PERSON | {"notes": [True]}]}, "entities[0].notes[0]",
     "expected a string or an object, got true", 'Pass it in quotes: "true"'),
    (Create, {"entities": [PERSON | {"notes": [{"content": "x", "confidence": 7}]}]},
     "entities[0].notes[0].confidence", "7 is out of range", "from 0 to 1"),
    (Create, {"entities": [PERSON | {"name": ""}]}, "entities[0].name",
     "too short (0 characters). Min 1.", '"john-doe"'),
    (Create, {"entities": []}, "entities", "too few items (0). Min 1.", "john-doe"),
    (Create, {"entities": [PERSON], "ifExists": "Replace"}, "ifExists", '"Replace" is not one of',
     'Did you mean "replace"?'),
    (Create, {"entities": [PERSON], "ifExists": "?"}, "ifExists", '"merge", "replace", "skip"',
     'Pass "merge"'),
    (Create, {"entities": [PERSON], "ifExists": 1}, "ifExists", "got the number 1", "merge"),
    (Save, SAVE | {"confidence": "85"}, "confidence", "85 is out of range", "from 0 to 1"),
    (Save, SAVE | {"confidence": "85 %"}, "confidence", 'got the string "85 %"', "example 0.9"),
    (Save, SAVE | {"confidence": "high"}, "confidence", 'got the string "high"', "example 0.9"),
    (Save, SAVE | {"confidence": True}, "confidence", "expected a number, got true", "0.9"),
    (Save, SAVE | {"confidence": None}, "confidence", "expected a number, got null", "0.9"),
    (Save, SAVE | {"confidence": [0.5]}, "confidence", "got a list of 1", "by itself: 0.5"),
    (Save, SAVE | {"confidence": 85}, "confidence", "85 is out of range", "from 0 to 1"),
    (Save, SAVE | {"confidence": float("nan")}, "confidence", "NaN is not", "finite"),
    (Save, SAVE | {"weight": float("inf")}, "weight", "Infinity is not", "finite"),
    (Save, SAVE | {"weight": 10**400}, "weight", "too large", "Pass a smaller number."),
    (Save, SAVE | {"limit": 10.5}, "limit", "got the number 10.5", "10 or 11"),
    (Save, SAVE | {"limit": "ten"}, "limit", "expected an integer", "Pass an integer"),
    (Save, SAVE | {"limit": "10.5"}, "limit", 'got the string "10.5"', "Pass an integer"),
    (Save, SAVE | {"limit": 0}, "limit", "0 is out of range", "an integer from 1 to 50"),
    (Save, SAVE | {"final": "1"}, "final", "expected true or false", "true"),
    (Save, SAVE | {"asOf": 2**64}, "asOf", "an integer of 65 bits is too large",
     "Pass an integer from -9223372036854775808 to 18446744073709551615."),
    (Save, SAVE | {"asOf": {}}, "asOf", "expected a string or an integer, got an object", "Pass"),
    (Save, SAVE | {"tags": ["Green Tea"]}, "tags[0]", '"Green Tea" does not match',
     'Pass "green-tea".'),
    (Save, SAVE | {"tags": ["ü"]}, "tags[0]", "does not match", "topic:tea"),
    (Save, SAVE | {"content": ["x"]}, "content", "expected an object or a string", 'itself: "x"'),
    (Save, SAVE | {"content": {"deep": [{"n": float("nan")}]}}, "content.deep[0].n", "NaN",
     "finite"),
    (Save, SAVE | {"content": {"n": -(2**64)}}, "content.n", "too large", "string"),
    (Save, SAVE | {"content": {"a key": "\0"}}, 'content["a key"]', "U+0000 (NUL)", "Remove"),
    (Meeting, {"when": "tomorrow"}, "when", "Invalid RFC3339", ""),
    (Meeting, {"when": "2025-01-01T00:00:00Z", "attendees": {"jon": "one"}}, "attendees.jon",
     "expected an integer", "Pass an integer"),
]  # fmt: skip


@pytest.mark.parametrize(("into", "arguments", "path", "said", "suggested"), MISTAKES)
def test_a_common_mistake_is_named_with_its_place_and_how_to_mend_it(
    into: type[msgspec.Struct], arguments: dict[str, Any], path: str, said: str, suggested: str
) -> None:
    error = refusal(arguments, into)
    (found,) = error.problems
    assert isinstance(error, InvalidParameter)
    assert (found.path, error.message) == (path, f"{path}: {found.problem}")
    assert said in found.problem
    assert suggested in (found.suggestion or "")
    assert error.suggestion == found.suggestion


def test_all_problems_of_a_request_are_reported_at_once() -> None:
    error = refusal(
        {"entities": [{"name": 1, "entityTyp": "x" * 30, "notes": "n"}], "ifExists": "no"}, Create
    )
    assert [each.path for each in error.problems] == [
        "entities[0].name",
        "entities[0].notes",
        "entities[0].entityTyp",
        "entities[0].entityTyp",
        "ifExists",
    ]
    assert error.message.startswith("5 problems: first entities[0].name: expected a string")


def test_what_stands_under_a_misspelt_key_is_looked_at_too() -> None:
    error = refusal({"entites": [{"name": "Jon", "entityType": 5}]}, Create)
    assert [each.path for each in error.problems] == ["entites", "entites[0].entityType"]


def test_a_misspelt_key_does_not_pass_for_a_key_that_is_there() -> None:
    error = refusal({"entities": [PERSON], "entites": [PERSON]}, Create)
    assert [each.path for each in error.problems] == ["entites"]


def test_two_misspellings_of_one_required_key_do_not_hide_each_other() -> None:
    error = refusal({"entites": [PERSON], "entitys": [PERSON]}, Create)
    assert [each.path for each in error.problems] == ["entites", "entitys"]


def test_a_request_that_is_only_too_large_exceeds_a_limit() -> None:
    long = {**PERSON, "name": "x" * 21, "observations": ["x"] * 6}
    error = refusal({"entities": [long] * 4}, Create)
    assert isinstance(error, LimitExceeded)
    assert error.problems[0].problem == "too many items (4). Max 3."
    assert error.problems[1].problem == "too long (21 characters). Max 20."


def test_a_request_that_is_too_large_and_wrong_is_invalid() -> None:
    assert isinstance(refusal({"entities": [PERSON] * 4, "x": 1}, Create), InvalidParameter)


def test_behind_so_many_problems_nothing_more_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand lists of a thousand wrong ones would take seconds, though each is short enough."""
    for module in (diagnosis, errors):
        monkeypatch.setattr(module, "COUNTED_MAX", 4)
    wrong = {**PERSON, "observations": [1, 2, 3]}
    error = refusal({"entities": [wrong, wrong, wrong]}, Create)
    assert [each.path for each in error.problems] == [
        *(f"entities[0].observations[{at}]" for at in range(3)),
        "entities[1].observations[0]",
    ]
    assert error.message.startswith("at least 4 problems: first entities[0].observations[0]:")


def test_of_too_many_items_only_as_many_as_may_be_are_looked_at() -> None:
    """Hundreds of thousands of wrong ones would keep a processor busy for seconds."""
    error = refusal({"entities": [PERSON] * 3 + [{"nam": 1}] * 1_000}, Create)
    assert [each.problem for each in error.problems] == ["too many items (1003). Max 3."]
    error = refusal({"entities": [PERSON, {}, PERSON, {}]}, Create)
    assert {each.path for each in error.problems} == {
        "entities",
        "entities[1].name",
        "entities[1].entityType",
    }


def test_a_lone_surrogate_is_named_by_code_and_character() -> None:
    found = problem({**SAVE, "content": "tea \ud800!"}, Save)
    said = "contains a lone surrogate U+D800 at character 5, which is not valid Unicode"
    assert (found.problem, found.value) == (said, "tea \\ud800!")


def test_a_surrogate_and_a_control_character_in_one_text_are_both_named() -> None:
    error = refusal({**SAVE, "content": "\x1b \ud800"}, Save)
    assert [each.problem.split(" at ")[1][:11] for each in error.problems] == [
        "character 3",
        "character 1",
    ]


def test_problems_beyond_the_first_fifty_are_counted() -> None:
    error = refusal({**SAVE, "content": {str(at): "\0" for at in range(1000)}}, Save)
    assert len(error.problems) == PROBLEMS_MAX
    assert error.problems[-1].problem == "951 more problems"
    assert error.message.startswith("1000 problems: first content")


def test_arguments_that_are_no_object_are_refused() -> None:
    for sent in ([], [PERSON], "x", 5, True):
        assert problem(sent, Create).path == "arguments"


def test_errors_stay_short_however_large_the_request() -> None:
    huge = "x\ud800" * 100_000
    for arguments in ({huge: huge}, {"content": {huge: {huge: "\0"}}, "confidence": huge}):
        told = msgspec.json.encode(refusal(arguments, Save).problems)
        assert len(told) < 5_000
