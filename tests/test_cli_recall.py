"""`memlog recall`: what a person is told, and what a client's hook."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from memlog.settings import TOOLSETS
from server.answering.rankings import QUERY_CHARACTERS_MAX
from server.registry import tools
from tests.command_line import CommandLine, holding_lines

SWITCHED_OFF = "Searched by words only: Search by meaning is switched off"
GUIDE = (Path(__file__).parents[1] / "docs" / "guide.md").read_text()


@pytest.fixture
def remembered(tmp_path: Path) -> CommandLine:
    return holding_lines(tmp_path)


def test_what_is_known_is_told_with_the_day_of_each_line(remembered: CommandLine) -> None:
    told = remembered("recall", "who was a banker?")
    assert (told.code, told.stderr.splitlines()) == (0, [SWITCHED_OFF])
    assert told.stdout.splitlines()[:2] == ["Jon (person)", "1. was a banker"]
    assert re.fullmatch(r"Lines by day: 2\d{3}-\d\d-\d\d: 1(-\d+)?", told.stdout.splitlines()[-1])


def test_as_json_it_is_the_answer_of_the_tool(remembered: CommandLine) -> None:
    known = remembered("recall", "banker", "--json").json
    assert known["entities"].keys() >= {"Jon"}
    assert known["tokens"] <= 1_500
    assert "was a banker" in known["text"]


def test_what_was_not_yet_known_at_a_moment_is_not_told(remembered: CommandLine) -> None:
    assert "banker" in remembered("recall", "banker", "--as-of", "3").stdout
    assert "banker" not in remembered("recall", "banker", "--as-of", "2").stdout
    assert "banker" not in remembered("recall", "banker", "--since", "3").stdout


def test_where_nothing_is_known_a_person_is_told_so(remembered: CommandLine) -> None:
    assert remembered("recall", "xyzzy").stdout == "Nothing relevant was found.\n"


def test_of_a_question_without_a_word_a_person_is_told_that_it_has_none(
    remembered: CommandLine,
) -> None:
    told = remembered("recall", " ")
    assert (told.code, told.stdout) == (0, "Nothing relevant was found.\n")
    assert "The query has no word to search by." in told.stderr


@pytest.mark.parametrize("event", ["UserPromptSubmit", "BeforeAgent"])
def test_a_hook_is_answered_under_the_name_of_its_event(
    remembered: CommandLine, event: str
) -> None:
    prompt = {"session_id": "1", "hook_event_name": event, "prompt": "Who was a banker?"}
    said = remembered("recall", "--hook", stdin=json.dumps(prompt)).json["hookSpecificOutput"]
    assert said["hookEventName"] == event
    assert "not instructions" in said["additionalContext"].splitlines()[0]
    assert "1. was a banker" in said["additionalContext"].splitlines()


@pytest.mark.parametrize("prompt", ["xyzzy", "", "  \n"])
def test_a_hook_is_told_nothing_where_nothing_is_known(
    remembered: CommandLine, prompt: str
) -> None:
    assert remembered("recall", "--hook", stdin=json.dumps({"prompt": prompt})) == (0, "", "")


def test_of_a_long_prompt_the_beginning_is_asked(remembered: CommandLine) -> None:
    beginning = "Who was a banker?".ljust(QUERY_CHARACTERS_MAX)
    told = remembered("recall", "--hook", stdin=json.dumps({"prompt": beginning + "x" * 100_000}))
    assert "was a banker" in told.stdout


@pytest.mark.parametrize("stdin", [b"", b"{", b"[]", b'{"prompt": 1}', b'{"text": "x"}', b"\xff"])
def test_a_hook_that_cannot_be_answered_keeps_no_prompt_from_being_sent(
    remembered: CommandLine, stdin: bytes
) -> None:
    refused = remembered("recall", "--hook", stdin=stdin)
    assert (refused.code, refused.stdout) == (1, "")  # 2 would
    assert "`prompt`" in refused.stderr


@pytest.mark.parametrize("arguments", [[], ["x", "--hook"]])
def test_a_question_is_named_or_comes_from_a_hook(
    remembered: CommandLine, arguments: list[str]
) -> None:
    refused = remembered("recall", *arguments)
    assert refused.code == 2
    assert "Name a question, or give a prompt on stdin with --hook." in refused.stderr


def test_the_hook_of_the_guide_answers(remembered: CommandLine) -> None:
    (block,) = re.findall(r'```json\n(\{\s+"hooks".*?)\n```', GUIDE, re.DOTALL)
    (
        (
            event,
            ((group,)),
        ),
    ) = json.loads(block)["hooks"].items()
    _, *words = shlex.split(group["hooks"][0]["command"])
    prompt = json.dumps({"hook_event_name": event, "prompt": "Who was a banker?"})
    assert "was a banker" in remembered(*words, stdin=prompt).stdout


def test_the_rules_of_the_guide_name_tools_that_there_are() -> None:
    (rules,) = re.findall(r"```md\n(.*?)\n```", GUIDE, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", rules))
    assert named and named <= tools(TOOLSETS).keys()
