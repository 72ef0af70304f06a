"""The measure of what a search finds, on a conversation that was made up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from bench.ablation import VARIANTS
from bench.locomo import conversations
from bench.quality import Figures, ablation_table, asked, by_session, by_turn, main, stored, tables
from bench.shortened import shortened
from bench.wire import ROOT
from tests.service import client_on

ANIMALS = ("heron", "badger", "otter", "beaver", "marten", "lynx")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sessions = {
        f"session_{session}": [
            {
                "dia_id": f"D{session}:{turn}",
                "speaker": ("Ann", "Bob")[turn % 2],
                "text": f"We saw the {animal} on day {session}." if turn else "Hello again",
            }
            for turn, animal in enumerate(ANIMALS)
        ]
        for session in (1, 2)
    }
    questions = [
        {"question": "Who saw the otter on day 2?", "evidence": ["D2:2", "D9:9"], "category": 4},
        {"question": "When did they see the lynx?", "evidence": ["D1:5", "D2:5"], "category": 2},
        {"question": "Who is the queen?", "evidence": ["D1:1"], "category": 5},
    ]
    noted = {
        "session_1_observation": {"Bob": [["Bob saw a lynx.", "D1:5"]]},
        "session_2_observation": {
            "Ann": [["Ann saw an otter.", "D2:2"], ["Ann met a lynx.", ["D2:5", "D2:0"]]]
        },
    }
    sample = {
        "sample_id": "made up",
        "conversation": sessions,
        "qa": questions,
        "observation": noted,
    }
    written: Path = tmp_path_factory.mktemp("quality") / "made-up.json"
    written.write_text(json.dumps([sample]))
    return written


@pytest.mark.parametrize(
    ("words", "unsaid", "asked"),
    [(1, False, ["otter", "lynx"]), (2, False, ["otter 2"]), (1, True, ["otter", "see"])],
)
def test_a_question_is_cut_down_to_its_rarest_words_in_their_order(
    path: Path, words: int, unsaid: bool, asked: list[str]
) -> None:
    (conversation,) = conversations(path)
    short = shortened(conversation, words, unsaid=unsaid)
    assert [each.text for each in short.questions] == asked
    assert short.turns == conversation.turns


def test_what_has_no_answer_and_what_is_no_turn_is_left_out(path: Path) -> None:
    (conversation,) = conversations(path)
    assert [(each.evidence, each.category) for each in conversation.questions] == [
        (("D2:2",), 4),
        (("D1:5", "D2:5"), 2),
    ]


@pytest.mark.parametrize(
    "held", ["", "no JSON", "{}", "[{}]", '[{"conversation": {}}]', '{"a": 1}']
)
def test_a_file_of_anything_else_is_named_as_none_of_the_data(held: str, tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    file.write_text(held)
    ran = CliRunner().invoke(main, [str(file)])
    assert ran.exit_code == 2
    assert f"Error: {file} is no file of LoCoMo" in ran.output


def test_the_day_of_its_session_stands_behind_what_was_said(tmp_path: Path) -> None:
    said = [{"dia_id": "D1:1", "speaker": "Ann", "text": "I moved yesterday."}]
    sample = {
        "sample_id": "dated",
        "conversation": {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023"},
        "qa": [{"question": "When did Ann move?", "evidence": ["D1:1"], "category": 2}],
        "observation": {"session_1_observation": {"Ann": [["Ann moved.", "D1:1"]]}},
    }
    written = tmp_path / "dated.json"
    written.write_text(json.dumps([sample]))
    (said_then,), (noted_then,) = (
        [turn.text for each in conversations(written, told_in) for turn in each.turns.values()]
        for told_in in ("turns", "facts")
    )
    assert (said_then, noted_then) == (
        "I moved yesterday. (8 May, 2023)",
        "Ann moved. (8 May, 2023)",
    )


def test_the_evidence_of_a_question_about_notes_is_those_of_its_turns(path: Path) -> None:
    (conversation,) = conversations(path, "facts")
    assert [turn.text for turn in conversation.turns.values()] == [
        "Bob saw a lynx.",
        "Ann saw an otter.",
        "Ann met a lynx.",
    ]
    told = [[conversation.turns[each].text for each in q.evidence] for q in conversation.questions]
    assert told == [["Ann saw an otter."], ["Bob saw a lynx.", "Ann met a lynx."]]


def test_the_evidence_of_a_question_about_sessions_is_those_of_its_turns(path: Path) -> None:
    (said,), (conversation,) = conversations(path), conversations(path, "sessions")
    assert list(conversation.turns) == list(
        dict.fromkeys(turn.session for turn in said.turns.values())
    )
    for turn in said.turns.values():
        assert f"{turn.speaker}: {turn.text}" in conversation.turns[turn.session].text.split("\n")
    assert [set(each.evidence) for each in conversation.questions] == [
        {said.turns[turn].session for turn in each.evidence} for each in said.questions
    ]


def test_recall_hits_and_ranks_are_those_of_the_places() -> None:
    figures = Figures.of([(2, (1, 26)), (1, ()), (1, (4,))])
    assert figures.recall == pytest.approx((100 / 6, 50, 50, 50, 200 / 3))
    assert figures.hit == pytest.approx(200 / 3)
    assert figures.reciprocal_rank == pytest.approx((1 + 0 + 1 / 4) / 3)


def test_every_question_is_asked_in_every_mode_and_its_evidence_found(
    path: Path, tmp_path: Path
) -> None:
    (conversation,) = conversations(path)
    with client_on(tmp_path) as client:
        about = stored(client.service, conversation)
        answers = list(asked(client.service, about, ("text",)))
    assert [answer.wanted for answer in answers] == [1, 2]
    assert answers[0].places[0] <= 2
    assert answers[1].places == (1, 2)
    assert by_turn(answers).recall[-1] == by_session(answers).recall[-1] == 100
    assert [table.row_count for table in tables(answers)] == [3, 3, 1]


def test_what_goes_into_a_file_is_told_in_whole_words(path: Path) -> None:
    command = [sys.executable, "-m", "bench.quality", "--words-only", str(path)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "single-hop" in told
    assert "\N{HORIZONTAL ELLIPSIS}" not in told


def test_a_variant_changes_what_is_found_and_nothing_after(path: Path, tmp_path: Path) -> None:
    (conversation,) = conversations(path)
    with client_on(tmp_path, embedder="minilm") as client:
        about = stored(client.service, conversation)
        before = [answer.places for answer in asked(client.service, about, ("hybrid",))]
        table = ablation_table(client.service, [about])
        after = [answer.places for answer in asked(client.service, about, ("hybrid",))]
    assert table.row_count == len(VARIANTS)
    assert before == after
    Console(quiet=True).print(table)
