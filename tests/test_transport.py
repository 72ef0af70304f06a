"""The stdio transport, from outside: a real process, its pipes and its signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

TEST_S_MAX = 60
FOREVER_S = 3600.0
ECHO_SERVER = Path(__file__).parent / "servers" / "echo_server.py"
LEGACY_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
Message = dict[str, Any]


class Process:
    """A server of `tests/servers` with its three pipes in hand."""

    def __init__(
        self,
        folder: Path,
        script: Path = ECHO_SERVER,
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        drain_s: float = FOREVER_S,
        teardown_s: float = FOREVER_S,
    ) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        self._popen = subprocess.Popen(
            [sys.executable, script, self._journal, str(drain_s), str(teardown_s)],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in os.environ if name != "PYTHONUNBUFFERED"},
        )
        assert self._popen.stderr
        self.stderr = self._popen.stderr

    @property
    def stdout(self) -> IO[bytes]:
        assert self._popen.stdout
        return self._popen.stdout

    def write(self, data: bytes) -> None:
        assert self._popen.stdin
        self._popen.stdin.write(data)
        self._popen.stdin.flush()

    def send(self, *messages: Message) -> None:
        self.write(b"".join(line(message) for message in messages))

    def read(self) -> Message:
        answer = self.stdout.readline()
        assert answer.endswith(b"\n"), f"the wire ended in {answer[-80:]!r}"
        message: Message = json.loads(answer)
        return message

    def ask(self, message: Message) -> Message:
        self.send(message)
        return self.read()

    def initialize(self, version: str = LEGACY_VERSIONS[-1]) -> Message:
        answer = self.ask(initialize(version))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def close_stdin(self) -> None:
        assert self._popen.stdin
        self._popen.stdin.close()

    def kill(self, number: int) -> None:
        self._popen.send_signal(number)

    def end(self) -> tuple[int, list[str], str]:
        """Wait for it: exit code, journal, stderr."""
        stderr = self.stderr.read().decode()
        return self._popen.wait(), self._journal.read_text().splitlines(), stderr

    def peak_memory_bytes(self) -> int:
        status = Path(f"/proc/{self._popen.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    def clean_up(self) -> None:
        self._popen.kill()
        with self._popen:
            pass


def line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def request(number: int, method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def initialize(version: str, number: int = 0) -> Message:
    client = {"name": "test", "version": "1"}
    return request(
        number, "initialize", protocolVersion=version, capabilities={}, clientInfo=client
    )


def call(number: int, tool: str, **arguments: Any) -> Message:
    return request(number, "tools/call", name=tool, arguments=arguments)


def modern(message: Message) -> Message:
    return message | {"params": message["params"] | {"_meta": ENVELOPE}}


def text_of(answer: Message) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """Every wait of a test, in Python or in the kernel, ends with the test's time."""

    def too_late(number: int, frame: object) -> None:
        raise TimeoutError(f"the test took more than {TEST_S_MAX} s")

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(TEST_S_MAX)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, deadline: None) -> Iterator[Start]:
    started: list[Process] = []

    def start(**options: Any) -> Process:
        started.append(Process(tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One server past its handshake, for tests that leave it as they found it."""
    server = Process(tmp_path_factory.mktemp("shaken"))
    server.initialize()
    yield server
    server.clean_up()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_a_client_of_each_older_version_shakes_hands_and_calls(start: Start, version: str) -> None:
    server = start()
    assert server.initialize(version)["result"]["protocolVersion"] == version
    listed = server.ask(request(1, "tools/list"))["result"]["tools"]
    assert {"echo", "slow"} <= {tool["name"] for tool in listed}
    assert text_of(server.ask(call(2, "echo", text="für Ñandú 🦤"))) == "für Ñandú 🦤"


def test_a_client_of_2026_needs_no_handshake(start: Start) -> None:
    server = start()
    discovered = server.ask(modern(request(1, "server/discover")))["result"]
    assert discovered["supportedVersions"] == ["2026-07-28"]
    answer = server.ask(modern(call(2, "echo", text="hello")))
    assert text_of(answer) == "hello"
    assert answer["result"]["resultType"] == "complete"


def test_an_era_once_chosen_stays(start: Start) -> None:
    server = start()
    server.ask(modern(request(1, "tools/list")))
    assert server.ask(initialize("2025-11-25", 2))["error"]["code"] == -32022


def test_a_client_that_waited_too_long_for_the_newest_era_may_still_shake_hands(
    start: Start,
) -> None:
    server = start()
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    server.send(modern(request(1, "server/discover")), cancelled, initialize("2025-11-25", 2))
    given_up, shaken = server.read(), server.read()
    assert (given_up["id"], given_up["error"]["code"]) == (1, -32600)
    assert (shaken["id"], shaken["result"]["protocolVersion"]) == (2, "2025-11-25")
    assert text_of(server.ask(call(3, "echo", text="hello"))) == "hello"


def test_a_question_between_the_two_has_chosen_the_newest_era(start: Start) -> None:
    server = start()
    asked = [modern(request(1, "server/discover")), modern(request(2, "tools/list"))]
    server.send(*asked, initialize("2025-11-25", 3))
    answers = {answer["id"]: answer for answer in (server.read() for _ in range(3))}
    assert "result" in answers[1] and "result" in answers[2]
    assert answers[3]["error"]["code"] == -32022


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_sdk_client_works_in_both_eras(mode: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=[str(ECHO_SERVER), str(tmp_path / "journal"), "10", "5"],
        )
        with anyio.fail_after(TEST_S_MAX):
            async with Client(parameters, mode=mode) as client:
                assert len((await client.list_tools()).tools) > 2
                result = await client.call_tool("echo", {"text": "hello"})
                assert isinstance(result.content[0], TextContent)
                assert result.content[0].text == "hello"

    anyio.run(scenario)
    assert (tmp_path / "journal").read_text().splitlines() == ["torn down", "closed"]


@pytest.mark.parametrize("era", [modern, lambda message: message], ids=["modern", "legacy"])
def test_two_hundred_pipelined_calls_have_two_hundred_answers(
    start: Start, era: Callable[[Message], Message]
) -> None:
    server = start()
    if era is not modern:
        server.initialize()
    server.send(*(era(call(n, "echo", text=f"text {n}")) for n in range(200)))
    answers = [server.read() for _ in range(200)]
    assert {each["id"]: text_of(each) for each in answers} == {n: f"text {n}" for n in range(200)}


def test_a_message_may_arrive_byte_by_byte(start: Start) -> None:
    server = start()
    for byte in line(modern(call(1, "echo", text="ü"))):
        server.write(bytes([byte]))
    assert text_of(server.read()) == "ü"


@pytest.mark.parametrize(
    ("sent", "code", "answered_id"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"ping"', -32700, 5),
        (b"nonsense", -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'[{"jsonrpc":"2.0","id":5,"method":"ping"}]', -32600, None),
        (b'{"jsonrpc":"1.0","id":"five","method":"ping"}', -32600, "five"),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', -32600, 5),
        (b'{"jsonrpc":"2.0","id":5.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"\\ud800"}}', -32602, 5),
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":"\xff"}}', -32700, 5),
    ],
)
def test_a_line_that_is_no_message_is_answered_and_the_next_one_served(
    shaken: Process, sent: bytes, code: int, answered_id: object
) -> None:
    shaken.write(sent + b"\n")
    answer = shaken.read()
    assert answer["error"]["code"] == code
    assert answer["id"] == answered_id
    assert shaken.ask(call(6, "echo", text="still here"))["id"] == 6


def test_blank_lines_and_notifications_are_never_answered(shaken: Process) -> None:
    shaken.write(b"\n  \n\r\n")
    shaken.write(b'{"jsonrpc":"2.0","method":"notifications/unheard_of"}\n')
    shaken.write(b'{"jsonrpc":"2.0","id":null,"method":"tools/call"}\n')
    shaken.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}\n')
    assert shaken.ask(request(1, "ping"))["id"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of another process: Linux only")
def test_a_line_beyond_the_limit_is_refused_without_being_kept(start: Start) -> None:
    server = start()
    server.initialize()
    before = server.peak_memory_bytes()
    server.write(b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"')
    for _ in range(256):
        server.write(b"x" * 1024 * 1024)
    server.write(b'"}}\n')
    answer = server.read()
    assert (answer["id"], answer["error"]["code"]) == (5, -32600)
    assert server.peak_memory_bytes() - before < 160 * 1024 * 1024
    assert text_of(server.ask(call(6, "echo", text="still here"))) == "still here"


def test_a_call_before_initialize_is_named_as_such(start: Start) -> None:
    server = start()
    assert server.ask(call(1, "echo", text="too early"))["error"]["code"] == -32002
    assert server.ask(request(2, "unheard/of"))["error"]["code"] == -32601
    assert "result" in server.ask(request(3, "ping"))
    server.initialize()
    assert text_of(server.ask(call(4, "echo", text="now"))) == "now"


@pytest.mark.parametrize("tool", ["fail", "half_a_pair"])
@pytest.mark.parametrize("era", [modern, lambda message: message], ids=["modern", "legacy"])
def test_an_unforeseen_exception_stays_in_the_log(
    start: Start, era: Callable[[Message], Message], tool: str
) -> None:
    server = start()
    if era is not modern:
        server.initialize()
    error = server.ask(era(call(1, tool)))["error"]
    assert error["code"] == -32603
    assert "swordfish" not in json.dumps(error)
    server.close_stdin()
    _, _, stderr = server.end()
    assert f"internal error {error['data']['reference']}" in stderr
    assert "Traceback" in stderr


def test_at_eof_calls_in_flight_are_finished_and_answered(start: Start, gate: Path) -> None:
    server = start()
    server.send(modern(call(1, "slow", gate=str(gate))))
    server.close_stdin()
    gate.write_text("finished")
    assert text_of(server.read()) == "finished"
    assert server.end()[:2] == (0, ["slow finished", "torn down", "closed"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("era", [modern, lambda message: message], ids=["modern", "legacy"])
def test_a_signal_lets_calls_in_flight_finish(
    start: Start, gate: Path, number: int, era: Callable[[Message], Message]
) -> None:
    server = start()
    if era is not modern:
        server.initialize()
    server.send(era(call(1, "slow", gate=str(gate))))
    with gate.open("w") as opened:
        server.kill(number)
        opened.write("finished")
    assert text_of(server.read()) == "finished"
    assert server.end()[:2] == (0, ["slow finished", "torn down", "closed"])


def test_a_signal_ends_an_idle_server(start: Start) -> None:
    server = start()
    server.initialize()
    server.kill(signal.SIGTERM)
    assert server.end() == (0, ["torn down", "closed"], "")
    assert server.stdout.read() == b""


def test_eof_without_a_single_message_ends_the_server(start: Start) -> None:
    assert start(stdin=subprocess.DEVNULL).end() == (0, ["torn down", "closed"], "")


def test_a_second_signal_ends_the_wait(start: Start, gate: Path) -> None:
    server = start()
    server.send(modern(call(1, "endless", gate=str(gate))))
    gate.write_text("go")
    server.kill(signal.SIGTERM)
    server.kill(signal.SIGINT)
    assert server.read()["error"]["message"] == "Connection closed"
    assert server.end()[:2] == (0, ["endless started", "torn down", "closed"])


def test_calls_that_outlast_the_wait_are_cancelled_and_told_so(start: Start, gate: Path) -> None:
    server = start(drain_s=0.05)
    server.send(modern(call(1, "endless", gate=str(gate))))
    gate.write_text("go")
    server.close_stdin()
    assert server.read()["error"]["message"] == "Connection closed"
    assert server.end()[:2] == (0, ["endless started", "torn down", "closed"])


def test_a_call_stuck_in_a_thread_is_left_behind_without_closing(start: Start, gate: Path) -> None:
    server = start(drain_s=0.05, teardown_s=0.5)
    server.send(modern(call(1, "slow", gate=str(gate))))
    with gate.open("w"):
        server.close_stdin()
        exit_code, journal, stderr = server.end()
    assert (exit_code, journal) == (1, [])
    assert "Timeout" in stderr
    assert "in work" in stderr.split("Timeout")[1]


def test_a_cancelled_call_is_not_waited_for(start: Start, gate: Path) -> None:
    server = start()
    server.initialize()
    server.send(call(1, "endless", gate=str(gate)))
    gate.write_text("go")
    cancel = {"requestId": 1, "reason": "changed my mind"}
    server.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel})
    server.close_stdin()
    assert server.end()[0] == 0
    assert server.stdout.read() == b""


def test_a_client_that_listens_does_not_keep_the_server_up(start: Start) -> None:
    server = start()
    wanted = {"toolsListChanged": True}
    acknowledged = server.ask(modern(request(1, "subscriptions/listen", notifications=wanted)))
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    server.close_stdin()
    assert server.end()[0] == 0


def test_a_closed_stdout_is_a_clean_end(start: Start, gate: Path) -> None:
    server = start()
    server.send(modern(call(1, "slow", gate=str(gate))))
    server.stdout.close()
    server.send(modern(call(2, "echo", text="to nobody")))
    gate.write_text("finished")
    assert server.end() == (0, ["slow finished", "torn down", "closed"], "")


def test_a_slow_reader_holds_up_nobody_and_gets_whole_messages(start: Start, gate: Path) -> None:
    server = start()
    server.initialize()
    server.send(call(1, "big", characters=5_000_000), call(2, "slow", gate=str(gate)))
    gate.write_text("meanwhile")
    first, second = server.read(), server.read()
    assert (first["id"], len(text_of(first))) == (1, 5_000_000)
    assert (second["id"], text_of(second)) == (2, "meanwhile")


@pytest.mark.parametrize("blocking", [True, False])
def test_a_socket_for_stdin_and_stdout_serves_as_well(
    start: Start, gate: Path, blocking: bool
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(blocking)
        start(stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        ours.sendall(line(modern(call(1, "big", characters=5_000_000))))
        assert ours.recv(1) == b"{"
        ours.sendall(line(modern(call(2, "slow", gate=str(gate)))))
        gate.write_text("meanwhile")
        with ours.makefile("rb") as answers:
            assert json.loads(b"{" + answers.readline())["id"] == 1
            assert text_of(json.loads(answers.readline())) == "meanwhile"


def test_cancelling_a_call_that_is_writing_does_not_tear_the_wire(start: Start, gate: Path) -> None:
    server = start()
    server.initialize()
    chatty = call(1, "chatty", characters=5_000_000)
    chatty["params"]["_meta"] = {"progressToken": 1}
    server.send(chatty)
    assert server.stdout.read(1) == b"{"
    server.send(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
        call(2, "slow", gate=str(gate)),
    )
    gate.write_text("meanwhile")
    assert len(json.loads(b"{" + server.stdout.readline())["params"]["message"]) == 5_000_000
    assert text_of(server.read()) == "meanwhile"


def test_a_client_that_never_reads_does_not_keep_the_server_up(start: Start) -> None:
    server = start(drain_s=0.05)
    server.send(modern(call(1, "big", characters=5_000_000)))
    assert server.stdout.read(1) == b"{"
    server.kill(signal.SIGTERM)
    assert server.end()[:2] == (0, ["torn down", "closed"])


def test_a_notification_that_nobody_reads_does_not_keep_the_server_up(start: Start) -> None:
    server = start(drain_s=0.05, teardown_s=5)
    server.initialize()
    chatty = call(1, "chatty", characters=5_000_000)
    chatty["params"]["_meta"] = {"progressToken": 1}
    server.send(chatty)
    assert server.stdout.read(1) == b"{"
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    server.send(cancelled)
    server.close_stdin()
    assert server.end()[:2] == (0, ["torn down", "closed"])


def test_stray_output_goes_to_stderr_at_once_and_stray_input_is_empty(start: Start) -> None:
    server = start()
    server.initialize()
    server.send(call(1, "stray"), call(2, "echo", text="untouched"))
    assert {each["id"]: text_of(each) for each in (server.read(), server.read())} == {
        1: "",
        2: "untouched",
    }
    said = [server.stderr.readline() for _ in range(3)]
    assert said == [b"stray print\n", b"stray write\n", b"stray child\n"]


def test_stdin_may_be_a_file(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b"".join(line(modern(call(n, "echo", text=str(n)))) for n in range(3))[:-1])
    with file.open() as stdin:
        server = start(stdin=stdin.fileno())
    assert sorted(text_of(server.read()) for _ in range(3)) == ["0", "1", "2"]
    assert server.end() == (0, ["torn down", "closed"], "")
