"""Hostile input: to the tools, to the pipe, to `import`, and in the log itself."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memlog import codec
from memlog.copies import chronicle, transfer
from memlog.errors import InvalidParameter, LimitExceeded, StorageError
from server.registry import tools
from tests.fuzz import fuzz
from tests.served import served

CASES = 3_000
LINES = 400


def test_no_request_brings_a_tool_down_or_writes_a_part_or_is_told_of_the_inside() -> None:
    fuzzed = fuzz(CASES, seed=1)
    reached = {what.partition(" ")[0] for what in fuzzed.counts}
    assert reached == set(tools(("graph", "projects", "knowledge", "facts", "records", "history")))
    done = sum(count for what, count in fuzzed.counts.items() if what.endswith("done"))
    assert CASES / 10 < done < CASES * 9 / 10, "cases that all fail or all succeed prove little"


def mutated(line: bytes, dice: random.Random) -> bytes:
    """The line with a few bytes flipped, cut out, doubled or put in; still one line."""
    data = bytearray(line)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data))
        match dice.randrange(4):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                del data[at : at + dice.randint(1, 20)]
            case 2:
                data[at:at] = data[at : at + dice.randint(1, 30)]
            case _:
                data[at:at] = dice.choice(
                    (b"\0", b"\xff", b"{", b"[" * 300, b'"', b"1e999", b"null")
                )
        if not data:
            data = bytearray(b"{")
    return bytes(data).replace(b"\n", b" ") + b"\n"


def test_no_line_on_the_pipe_stops_the_server_or_costs_another_its_answer(tmp_path: Path) -> None:
    dice = random.Random(3)
    with served(tmp_path) as server:
        server("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
        call = {"name": "open_nodes", "arguments": {"names": ["Jon"]}}
        message = {"jsonrpc": "2.0", "id": "fuzz", "method": "tools/call", "params": call}
        for number in range(LINES):
            server.write(mutated(json.dumps(message).encode(), dice))
            if number % 20 == 0:
                probe = server.send("tools/list")
                while (answer := server.read()) is not None and answer.get("id") != probe:
                    text = json.dumps(answer)
                    assert "Traceback" not in text and ".py" not in text, text
                assert answer is not None, server.stderr()
        last = server.send_call("open_nodes", names=["Jon"])
        while (answer := server.read()) is not None and answer.get("id") != last:
            continue
        assert answer is not None and answer["result"]["structuredContent"]["notFound"] == []


def test_a_graph_file_of_any_bytes_is_read_or_refused() -> None:
    good = b'{"type":"entity","name":"Jon","entityType":"person","observations":["a"]}\n'

    @settings(max_examples=300)
    @given(seed=st.integers(0, 10**9), data=st.binary(max_size=80))
    def read(seed: int, data: bytes) -> None:
        for text in (data, mutated(good * 2, random.Random(seed)), good + data):
            try:
                transfer.read(text)
            except (InvalidParameter, LimitExceeded) as error:
                assert error.problems or error.message

    read()


def test_a_history_of_any_bytes_is_read_or_refused() -> None:
    heading = json.dumps({"memlog": "history", "version": 1, "project": "prj_" + "0" * 26}).encode()
    chain = "0" * 64
    entry = {"position": 1, "time_us": 1, "command": "c", "chain": chain}
    event = {"type": "project_created.v1", "project_id": "p", "name": "n", "description": ""}
    line = json.dumps({**entry, "event": event}).encode()

    @settings(max_examples=300)
    @given(seed=st.integers(0, 10**9), data=st.binary(max_size=80))
    def read(seed: int, data: bytes) -> None:
        dice = random.Random(seed)
        for text in (data, mutated(heading, dice), heading + b"\n" + mutated(line, dice)):
            try:
                _, entries = chronicle.read(text)
                list(entries)
            except InvalidParameter as error:
                assert error.problems

    read()


@settings(max_examples=500)
@given(kind=st.integers(0, 255), data=st.binary(max_size=120))
@example(
    kind=0,
    data=msgspec.msgpack.encode([1, "c", None, None, ["memory_deleted.v1", "ab"]])[:-2]
    + b"\xff\xff",
)
def test_an_entry_of_any_bytes_is_decoded_or_refused(kind: int, data: bytes) -> None:
    for value in (data, bytes([kind]) + bytes(32) + data):
        try:
            codec.decode(7, value)
        except StorageError as error:
            assert "position 7" in error.message
