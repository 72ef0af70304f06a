"""The first answers, from outside: what a client is told before the SDK is imported, and after.

Servers here wait at a gate before that import, so whatever arrives while it is closed came from an
earlier start.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import anyio
import msgspec
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.served import DEADLINE_S, ENVELOPE, REPOSITORY, Era, Message, Pipe, environment, served

GATED = REPOSITORY / "tests" / "servers" / "gated_serve.py"
LEGACY: Era = "2025-11-25"
MODERN: Era = "2026-07-28"
ERAS: list[Era] = [LEGACY, MODERN]
JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}

Open = Callable[[], None]
Gated = Callable[..., Pipe]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.fixture
def gated(tmp_path: Path, gate: Path) -> Iterator[Gated]:
    """Starts a server that waits at the gate."""
    started: list[Pipe] = []

    def start(era: Era = MODERN, *flags: str) -> Pipe:
        started.append(Pipe(gated_command(tmp_path, gate, *flags), environment(), era))
        return started[-1]

    yield start
    for each in started:
        each.release()


def gated_command(data_dir: Path, gate: Path, *flags: str) -> list[str]:
    return [sys.executable, str(GATED), str(gate), "--data-dir", str(data_dir), *flags]


def open_gate(gate: Path) -> None:
    gate.write_text("")


def opened(server: Pipe, era: Era) -> list[Message]:
    """The answers that a client asks for first. The handshake was the pipe's."""
    return [server.request(method) for method in opening_methods(era)]


def opening_methods(era: Era) -> list[str]:
    asked = ["tools/list", "prompts/list", "resources/templates/list"]
    return asked if era == LEGACY else ["server/discover", *asked]


def record(data_dir: Path, era: Era, *flags: str) -> list[Message]:
    """A first start: its answers, on disk by its end."""
    with served(data_dir, *flags, era=era) as server:
        answers = opened(server, era)
        ended_well(server)
    return answers


def ended_well(server: Pipe) -> None:
    """Nothing more was said, and nobody complained."""
    server.close_stdin()
    assert server.read() is None
    assert server.end() == (0, "")


def kept(data_dir: Path) -> Path:
    (path,) = (data_dir / "startup").iterdir()
    return path


def line(number: int, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def burst() -> bytes:
    """What `Pipe` says in a handshake and `opened` first, and a call, all at once."""
    client = {"name": "test", "version": "1"}
    return b"".join(
        (
            line(1, "initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=client),
            b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n',
            line(2, "tools/list"),
            line(3, "tools/call", name="create_entities", arguments={"entities": [JON]}),
        )
    )


@pytest.mark.parametrize("era", ERAS)
def test_a_second_start_answers_before_the_sdk_is_there_and_only_once(
    tmp_path: Path, gate: Path, gated: Gated, era: Era
) -> None:
    first = record(tmp_path, era)
    server = gated(era)
    assert opened(server, era) == first
    open_gate(gate)
    assert server("create_entities", entities=[JON])["entities"]
    assert opened(server, era)[0]["result"] == first[0]["result"]
    ended_well(server)


def test_a_burst_is_answered_as_far_as_it_is_known_and_in_order(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, LEGACY)
    server = gated()
    server.write(burst())
    early = [server.read(), server.read()]
    assert [each and each["id"] for each in early] == [1, 2]
    open_gate(gate)
    called = server.read()
    assert called
    assert (called["id"], called["result"]["isError"]) == (3, False)
    ended_well(server)


def test_a_stream_that_ends_before_the_sdk_is_there_is_served_to_its_end(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, LEGACY)
    server = gated()
    server.write(burst()[:-1])  # a last line needs no newline
    server.close_stdin()
    open_gate(gate)
    answers = [server.read() for _ in range(3)]
    assert [each and each["id"] for each in answers] == [1, 2, 3]
    assert server.read() is None
    assert server.end() == (0, "")


def test_no_stream_at_all_is_a_clean_end(tmp_path: Path, gate: Path, gated: Gated) -> None:
    server = gated()
    server.close_stdin()
    open_gate(gate)
    assert server.end() == (0, "")


def test_a_line_may_begin_before_the_sdk_is_there_and_end_after(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, LEGACY)
    server = gated()
    early, late = burst()[:-40], burst()[-40:]
    server.write(early)
    assert [server.read() is not None for _ in range(2)] == [True, True]
    open_gate(gate)
    server.write(late)
    called = server.read()
    assert called
    assert called["id"] == 3
    ended_well(server)


@pytest.mark.skipif(sys.platform != "linux", reason="a pipe as small as is asked for: Linux only")
def test_an_answer_that_is_half_sent_when_the_sdk_comes_is_sent_to_its_end(
    tmp_path: Path, gate: Path
) -> None:
    record(tmp_path, LEGACY)
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        gated_command(tmp_path, gate), stdin=subprocess.PIPE, stdout=theirs, env=environment()
    ) as server:
        os.close(theirs)
        try:
            assert server.stdin
            server.stdin.write(burst())
            server.stdin.close()
            assert select.select([ours], [], [], DEADLINE_S)[0]
            open_gate(gate)
            with open(ours, "rb") as answers:
                assert [json.loads(each)["id"] for each in answers] == [1, 2, 3]
            assert server.wait(DEADLINE_S) == 0
        finally:
            server.kill()


def test_a_client_that_says_something_else_is_answered_by_the_sdk(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, LEGACY)
    plant(tmp_path, b'{"planted":true}')
    server = gated()
    server.write(burst().replace(b'"version": "1"', b'"version": "2"'))
    open_gate(gate)
    answers = [server.read() for _ in range(3)]
    assert {each["id"] for each in answers if each and "planted" not in each["result"]} == {1, 2, 3}
    ended_well(server)


def test_an_answer_that_is_no_longer_right_is_thrown_away(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    (first, *_) = record(tmp_path, LEGACY)
    plant(tmp_path, b'{"tools":[]}', instead_of=first["result"])
    server = gated(LEGACY)
    assert server.request("tools/list")["result"] == {"tools": []}
    open_gate(gate)
    server.close_stdin()
    code, stderr = server.end()
    assert code == 0
    assert "no longer right" in stderr
    assert not list((tmp_path / "startup").iterdir())
    assert record(tmp_path, LEGACY)[0] == first


def plant(data_dir: Path, result: bytes, *, instead_of: object = None) -> None:
    """Put `result` in the place of every answer, or of the one given."""
    path = kept(data_dir)
    found = msgspec.msgpack.decode(path.read_bytes()[32:], type=dict[bytes, bytes])
    for key, before in found.items():
        if instead_of is None or json.loads(before) == instead_of:
            found[key] = result
    content = msgspec.msgpack.encode(found)
    path.write_bytes(sha256(content).digest() + content)


def test_other_settings_have_other_answers(tmp_path: Path) -> None:
    everything = record(tmp_path, MODERN)
    little = record(tmp_path, MODERN, "--toolsets", "graph", "--read-only")
    assert len(tools_in(little)) < len(tools_in(everything))
    assert tools_in(record(tmp_path, MODERN)) == tools_in(everything)


def tools_in(answers: list[Message]) -> list[str]:
    results = [each["result"] for each in answers if "result" in each]
    (tools,) = (each["tools"] for each in results if "tools" in each)
    return [each["name"] for each in tools]


def test_a_damaged_file_counts_as_none_and_is_made_anew(tmp_path: Path) -> None:
    first = record(tmp_path, MODERN)
    sound = kept(tmp_path).read_bytes()
    kept(tmp_path).write_bytes(sound[:500] + bytes([sound[500] ^ 1]) + sound[501:])
    with served(tmp_path) as server:
        assert opened(server, MODERN) == first
        server.close_stdin()
        code, stderr = server.end()
    assert code == 0
    assert "is damaged and counts as empty" in stderr
    assert kept(tmp_path).read_bytes() == sound


def test_a_folder_that_cannot_be_written_costs_nothing_but_a_line_in_the_log(
    tmp_path: Path,
) -> None:
    (tmp_path / "startup").write_text("a file")
    with served(tmp_path) as server:
        assert len(tools_in(opened(server, MODERN))) > 1
        server.close_stdin()
        code, stderr = server.end()
    assert code == 0
    assert "were not kept" in stderr


def test_a_start_that_says_nothing_new_writes_nothing(tmp_path: Path) -> None:
    record(tmp_path, MODERN)
    before = kept(tmp_path).stat()
    record(tmp_path, MODERN)
    assert kept(tmp_path).stat().st_ino == before.st_ino


def test_an_era_once_chosen_stays_also_for_what_is_known(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    for era in ERAS:
        record(tmp_path, era)
    server = gated()
    asked = line(7, "server/discover", _meta=ENVELOPE) + line(8, "tools/list", _meta=ENVELOPE)
    server.write(asked + burst())
    assert [answer and answer["id"] for answer in (server.read(), server.read())] == [7, 8]
    open_gate(gate)
    refused = server.read()
    assert refused
    assert (refused["id"], refused["error"]["code"]) == (1, -32022)


def test_who_shakes_hands_after_an_answer_that_came_too_late_has_no_second_one(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, MODERN)
    server = gated()
    server.write(line(7, "server/discover", _meta=ENVELOPE) + burst())
    discovered = server.read()
    assert discovered
    assert discovered["result"]["supportedVersions"] == [MODERN]
    open_gate(gate)
    answers = [server.read() for _ in range(3)]
    assert [answer and "result" in answer and answer["id"] for answer in answers] == [1, 2, 3]
    ended_well(server)


def test_a_client_with_one_id_for_everything_has_an_answer_to_everything(
    tmp_path: Path, gate: Path, gated: Gated
) -> None:
    record(tmp_path, LEGACY)
    server = gated()
    server.write(burst().replace(b'"id": 2', b'"id": 1').replace(b'"id": 3', b'"id": 1'))
    early = server.read()
    assert early
    assert "serverInfo" in early["result"]
    open_gate(gate)
    answers = [server.read() for _ in range(2)]
    assert {"tools" in each["result"] for each in answers if each} == {True, False}
    ended_well(server)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdks_client_is_served_twice_the_same(mode: str, tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "memlog", "serve", "--data-dir", str(tmp_path)],
            env=environment(),
        )
        with anyio.fail_after(DEADLINE_S):
            async with Client(parameters, mode=mode) as client:
                listed = [each.name for each in (await client.list_tools()).tools]
                result = await client.call_tool("create_entities", {"entities": [JON]})
                assert not result.is_error
                return listed

    assert anyio.run(scenario) == anyio.run(scenario)
