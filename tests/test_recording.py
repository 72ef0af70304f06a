"""What is noted of the SDK's answers, and what is not sent a second time."""

from __future__ import annotations

from pathlib import Path

from server.starting.answers import Answers
from server.starting.conversation import Conversation, answer_line
from server.starting.recording import Recorder

TOOLS = bytearray(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
ANSWER = answer_line(1, b'{"tools":[]}')
ERROR = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no"}}\n'


def kept(path: Path) -> bytes | None:
    question = Conversation().hear(TOOLS)
    assert question
    return Answers(path).get(question.key)


def test_an_answer_is_noted_and_sent(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {})
    recorder.heard(TOOLS)
    assert recorder.answered(1, ANSWER)
    recorder.close()
    assert kept(tmp_path / "answers") == b'{"tools":[]}'


def test_an_error_is_sent_and_not_noted(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {})
    recorder.heard(TOOLS)
    assert recorder.answered(1, ERROR)
    recorder.close()
    assert kept(tmp_path / "answers") is None


def test_what_the_client_had_already_is_held_back_once(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {1: ANSWER})
    recorder.heard(TOOLS)
    assert not recorder.answered(1, ANSWER)
    assert recorder.answered(1, ANSWER)


def test_an_id_of_two_open_requests_is_not_trusted(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {})
    recorder.heard(TOOLS)
    recorder.doubt(1)
    assert recorder.answered(1, ANSWER)
    recorder.close()
    assert kept(tmp_path / "answers") is None


def test_the_id_of_a_request_that_was_cancelled_is_free_again(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {1: ANSWER})
    recorder.heard(TOOLS)
    recorder.unanswered(1)
    assert recorder.answered(1, answer_line(1, b'{"content":[]}'))
    recorder.close()
    assert kept(tmp_path / "answers") is None


def test_one_wrong_answer_costs_all_that_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "answers"
    Answers(path).keep(b"another", b"{}")
    recorder = Recorder(Answers(path), {1: answer_line(1, b'{"tools":["old"]}')})
    recorder.heard(TOOLS)
    assert not recorder.answered(1, ANSWER)
    recorder.close()
    assert not path.exists()


def test_of_two_requests_with_one_id_only_the_answer_given_is_held_back(tmp_path: Path) -> None:
    recorder = Recorder(Answers(tmp_path / "answers"), {1: ANSWER})
    recorder.heard(TOOLS)
    recorder.doubt(1)
    assert recorder.answered(1, answer_line(1, b'{"content":[]}'))
    assert not recorder.answered(1, ANSWER)
    assert recorder.answered(1, ANSWER)
