"""The short way of a call over stdio, from outside: a process in which only it has tools, and whose SDK knows none."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Literal

import pytest

from tests.test_transport import (  # noqa: F401 (fixtures)
    Message,
    Process,
    Start,
    call,
    deadline,
    gate,
    initialize,
    line,
    modern,
    request,
)

LEGACY = "2025-11-25"
DIRECT_SERVER = Path(__file__).parent / "servers" / "direct_server.py"


Thread = Literal["call", "solo"]


def running_in(name: Thread, server: Process) -> Process:
    """The server, once its next call will be run by such a thread: the first is run by one that is woken for it."""
    for number in range(1_000, 1_200):
        if name == "call":
            return server
        if said(server.ask(call(number, "thread", text=""))) == name:
            name = "call"
    raise AssertionError("the reading is never lent")


@pytest.fixture(params=["call", "solo"])
def start(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    deadline: None,  # noqa: F811
) -> Iterator[Start]:
    """Starts a server whose next call is run by the one or the other kind of thread."""
    started: list[Process] = []

    def start(**options: Any) -> Process:
        started.append(Process(tmp_path, DIRECT_SERVER, **options))
        started[-1].initialize()
        return running_in(request.param, started[-1])

    yield start
    for each in started:
        each.clean_up()


def happened(journal: list[str]) -> list[str]:
    """The journal without what the start of a server may have left in it."""
    return [each for each in journal if each != "first answer"]


def said(answer: Message) -> str:
    text: str = answer["result"]["structuredContent"]["text"]
    return text


def test_calls_come_the_short_way_from_the_handshake_on(tmp_path: Path, deadline: None) -> None:  # noqa: F811
    server = Process(tmp_path, DIRECT_SERVER)
    try:
        early = line(call(1, "echo", text="too early"))
        server.write(early + line(initialize(LEGACY)) + line(call(2, "echo", text="in one go")))
        answers = {each["id"]: each for each in (server.read() for _ in range(3))}
        assert answers[1]["error"]["code"] == answers[2]["error"]["code"] == -32601
        assert answers[0]["result"]["protocolVersion"] == LEGACY
        assert said(server.ask(call(3, "echo", text="für Ñandú 🦤"))) == "für Ñandú 🦤"
        assert server.ask(modern(call(4, "echo", text="other era")))["error"]["code"] == -32600
    finally:
        server.clean_up()


def test_a_client_without_handshake_is_left_to_the_sdk(tmp_path: Path, deadline: None) -> None:  # noqa: F811
    server = Process(tmp_path, DIRECT_SERVER)
    try:
        server.ask(modern(request(1, "server/discover")))
        assert server.ask(initialize(LEGACY, 2))["error"]["code"] == -32022
        assert "error" in server.ask(call(3, "echo", text="no handshake"))
    finally:
        server.clean_up()


def test_unknown_tools_and_ids_in_use_are_left_to_the_sdk(start: Start, gate: Path) -> None:  # noqa: F811
    server = start()
    assert server.ask(call(1, "eco", text=""))["error"]["code"] == -32601
    server.send(call(2, "slow", gate=str(gate)), call(2, "echo", text="the same id"))
    assert server.read()["error"]["code"] == -32601
    gate.write_text("finished")
    assert said(server.read()) == "finished"


def test_two_hundred_calls_at_once_have_two_hundred_answers(start: Start) -> None:
    server = start()
    server.send(*(call(n, "echo", text=f"text {n}") for n in range(200)), request(200, "ping"))
    answers = [server.read() for _ in range(201)]
    texts = {each["id"]: said(each) for each in answers if each["id"] != 200}
    assert texts == {n: f"text {n}" for n in range(200)}


def test_answers_of_any_size_stay_whole_beside_those_of_the_sdk(start: Start) -> None:
    server = start()
    for number in range(0, 30, 3):
        server.send(
            call(number, "big", characters=number * 20_000),
            request(number + 1, "ping"),
            call(number + 2, "echo", text="between"),
        )
    answers = {each["id"]: each for each in (server.read() for _ in range(30))}
    assert set(answers) == set(range(30))
    assert all(len(said(answers[n])) == n * 20_000 for n in range(0, 30, 3))


def test_a_slow_reader_holds_up_nobody(start: Start, gate: Path) -> None:  # noqa: F811
    server = start()
    server.send(call(1, "big", characters=5_000_000))
    assert server.stdout.read(1) == b"{"
    server.send(call(2, "slow", gate=str(gate)), request(3, "ping"))
    gate.write_text("meanwhile")
    assert len(said(json.loads(b"{" + server.stdout.readline()))) == 5_000_000
    assert {each["id"] for each in (server.read(), server.read())} == {2, 3}


@pytest.mark.parametrize("at_once", [True, False])
def test_writes_wait_for_those_that_came_before_and_reads_for_nobody(
    start: Start,
    gate: Path,  # noqa: F811
    at_once: bool,
) -> None:
    server = start()
    calls = [
        call(1, "slow_write", gate=str(gate)),
        call(2, "write", text="second"),
        call(3, "write", text="third"),
        call(4, "echo", text="meanwhile"),
    ]
    for sent in [calls] if at_once else [[each] for each in calls]:
        server.send(*sent)
    assert server.read()["id"] == 4
    gate.write_text("first")
    assert {server.read()["id"] for _ in range(3)} == {1, 2, 3}
    server.close_stdin()
    _, journal, _ = server.end()
    assert happened(journal) == ["echo", "slow write", "write second", "write third", "closed"]


@pytest.mark.parametrize("spelt", [1, "1"])
def test_a_cancelled_call_is_run_to_its_end_and_never_answered(
    start: Start,
    gate: Path,  # noqa: F811
    spelt: int | str,
) -> None:
    server = start()
    server.send(call(1, "slow", gate=str(gate)))
    with gate.open("w") as opened:
        cancelled = {"requestId": spelt}
        server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        assert server.ask(request(2, "ping"))["id"] == 2
        opened.write("finished")
    server.close_stdin()
    assert server.stdout.read() == b""
    code, journal, _ = server.end()
    assert (code, happened(journal)) == (0, ["slow finished", "closed"])


def test_an_id_that_was_cancelled_in_time_or_too_late_is_answered_when_it_comes_again(
    start: Start,
    gate: Path,  # noqa: F811
) -> None:
    server, params = start(), {"requestId": 1}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    server.send(call(1, "slow", gate=str(gate)))
    with gate.open("w") as opened:
        server.send(cancelled)
        assert server.ask(request(2, "ping"))["id"] == 2
        opened.write("finished")
    while "error" in (answer := server.ask(call(1, "echo", text="again"))):
        pass  # it is in use for a moment more
    assert said(answer) == "again"
    server.send(cancelled)
    assert server.ask(request(3, "ping"))["id"] == 3
    assert said(server.ask(call(1, "echo", text="once more"))) == "once more"


@pytest.mark.parametrize("tool", ["fail", "half_a_pair"])
def test_an_unforeseen_exception_stays_in_the_log(start: Start, tool: str) -> None:
    server = start()
    error = server.ask(call(1, tool, text="swordfish"))["error"]
    assert error["code"] == -32603
    assert "swordfish" not in json.dumps(error)
    assert said(server.ask(call(2, "echo", text="still here"))) == "still here"
    server.close_stdin()
    _, journal, stderr = server.end()
    assert f"internal error {error['data']['reference']}" in stderr
    assert "Traceback" in stderr
    assert happened(journal) == [tool, "echo", "closed"]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, None])
def test_at_the_end_calls_in_flight_are_finished_and_answered(
    start: Start,
    gate: Path,  # noqa: F811
    end: int | None,
) -> None:
    server = start()
    server.send(call(1, "slow", gate=str(gate)))
    with gate.open("w") as opened:
        server.kill(end) if end else server.close_stdin()
        opened.write("finished")
    assert said(server.read()) == "finished"
    code, journal, _ = server.end()
    assert (code, happened(journal)) == (0, ["slow finished", "closed"])


def test_a_call_stuck_in_its_thread_is_left_behind_without_closing(
    start: Start,
    gate: Path,  # noqa: F811
) -> None:
    server = start(drain_s=0.05, teardown_s=0.5)
    server.send(call(1, "slow", gate=str(gate)))
    with gate.open("w"):
        server.close_stdin()
        exit_code, journal, stderr = server.end()
    assert (exit_code, happened(journal)) == (1, [])
    assert "Timeout" in stderr


def test_a_client_that_never_reads_does_not_keep_the_server_up(start: Start) -> None:
    server = start(drain_s=0.05)
    server.send(call(1, "big", characters=5_000_000))
    assert server.stdout.read(1) == b"{"
    server.kill(signal.SIGTERM)
    code, journal, _ = server.end()
    assert (code, happened(journal)) == (0, ["big", "closed"])


def test_a_closed_stdout_is_a_clean_end(start: Start, gate: Path) -> None:  # noqa: F811
    server = start()
    server.send(call(1, "slow", gate=str(gate)))
    server.stdout.close()
    server.send(call(2, "echo", text="to nobody"))
    gate.write_text("finished")
    code, journal, stderr = server.end()
    assert (code, journal[-1], stderr) == (0, "closed", "")
    assert "slow finished" in journal


def test_the_first_answer_is_told_once_and_after_it(tmp_path: Path, deadline: None) -> None:  # noqa: F811
    server = Process(tmp_path, DIRECT_SERVER)
    try:
        server.initialize()
        for number in range(1, 20):
            server.ask(call(number, "echo", text=""))
        server.close_stdin()
        code, journal, _ = server.end()
        assert (code, journal[0], journal[-1]) == (0, "echo", "closed")
        assert journal.count("first answer") == 1
    finally:
        server.clean_up()


def test_the_thread_that_reads_a_call_runs_it_until_something_else_arrives(
    start: Start,
    gate: Path,  # noqa: F811
) -> None:
    server = running_in("solo", start())
    assert said(server.ask(call(1, "thread", text=""))) == "solo"
    server.send(call(2, "slow", gate=str(gate)))
    with gate.open("w") as opened:
        assert said(server.ask(call(3, "thread", text=""))).startswith("call")
        assert server.ask(request(4, "ping"))["id"] == 4
        opened.write("finished")
    assert said(server.read()) == "finished"
    running_in("solo", server)


def test_lines_that_come_in_pieces_or_together_are_all_answered(start: Start) -> None:
    server = start()
    whole = b"".join(line(call(n, "echo", text="é" * n)) for n in range(60))
    for at in range(0, len(whole), 7):
        server.write(whole[at : at + 7])
    texts = {each["id"]: said(each) for each in (server.read() for _ in range(60))}
    assert texts == {n: "é" * n for n in range(60)}


def test_what_is_no_call_comes_between_calls_in_any_order(start: Start) -> None:
    server = start()
    for number in range(0, 90, 3):
        assert said(server.ask(call(number, "echo", text="before"))) == "before"
        assert server.ask(request(number + 1, "ping"))["id"] == number + 1
        server.write(b"no message\n")
        assert server.read()["error"]["code"] == -32700
        server.write(b"\n" + line(call(number + 2, "thread", text=""))[:-1])
        server.write(b"\n")
        assert server.read()["id"] == number + 2


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_in_whatever_pieces_each_request_has_one_answer(
    start: Start, seed: int
) -> None:
    draw, server = Random(seed), start()
    told: list[Message] = []
    reading = threading.Thread(target=lambda: told.extend(map(json.loads, server.stdout)))
    reading.start()
    numbers, cancelled = iter(range(100_000)), set()

    def asked() -> tuple[int, bytes]:
        number = next(numbers)
        size = draw.choice([1, 1, 1, 50, 5_000, 100_000])
        kinds = [
            request(number, "ping"),
            call(number, "echo", text="x" * size),
            call(number, "big", characters=size),
            call(number, "eco", text=""),
        ]
        return number, line(draw.choices(kinds, [2, 6, 3, 1])[0])

    def answered(number: int) -> bool:
        return any(each["id"] == number for each in told)

    for _ in range(120):
        number, sent = asked()
        match draw.choice(["whole", "whole", "pieces", "several", "cancelled", "nonsense"]):
            case "whole":
                server.write(sent)
                while not answered(number):
                    time.sleep(0)
            case "pieces":
                at = draw.randrange(len(sent))
                server.write(sent[:at])
                time.sleep(draw.random() / 1_000)
                server.write(sent[at:])
            case "several":
                server.write(sent + b"".join(asked()[1] for _ in range(draw.randrange(8))))
            case "cancelled":
                server.write(sent)
                time.sleep(draw.choice([0, draw.random() / 1_000]))
                params = {"requestId": number}
                server.send(
                    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
                )
                cancelled.add(number)
            case "nonsense":
                server.write(b"nonsense\n\n" + sent)
    server.close_stdin()
    reading.join()
    counts = Counter(each["id"] for each in told if each["id"] is not None)
    assert set(counts.values()) <= {1}
    assert set(range(next(numbers))) - cancelled <= set(counts)
    assert server.end()[0] == 0
