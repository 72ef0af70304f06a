"""The short way of a call over stdio: the same bytes as the SDK's way, and whatever is not plain left to it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.lowlevel import Server
from mcp_types import JSONRPCRequest, JSONRPCResponse
from mcp_types.methods import serialize_server_result
from opentelemetry.trace import NoOpTracerProvider

from server.calls import HandshakeForm, is_untraced, plain_call
from server.performing import Answer
from server.registry import Link
from server.stdio.faults import guard
from server.stdio.wire import decode, encode
from tests.served import Era, Pipe, served
from tests.test_stdio import ROUND

LEGACY = "2025-11-25"
Message = dict[str, Any]


def call(number: int, tool: str, **arguments: Any) -> Message:
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


WRONG: list[tuple[str, Any]] = [
    ("read_graph", {}),
    ("restore_project", {"name": "default"}),
    ("switch_project", {"name": "default"}),
    ("open_nodes", {"names": ["nobody"], "nmaes": []}),
    ("create_entities", {"entities": "none"}),
    ("create_entities", {"entities": [{"name": "a\u0007b", "entityType": ""}]}),
    ("search_nodes", {"query": "x" * 20_000}),
    ("create_project", {"name": "default"}),
    ("switch_project", {"name": "nowhere"}),
    ("read_graph", {"asOf": 10**30}),
    ("memory_create", {"type": "n", "content": {"n": 1e16, "z": -0.0}, "source": "", "confidence": 2}),
    ("store_memory", {"content": "the key is AKIA" + "IOSFODNN7EXAMPLE"}),
    ("memory_create", {"type": "n", "content": {"n": 1e16, "é": "\u2028😀"}, "source": "s", "confidence": 1}),
    ("memory_search", {"query": "😀"}),
    ("read_graph", None),
]  # fmt: skip
"""Calls that are refused or odd, for the end of `ROUND`."""

_ID = re.compile(rb"\b[a-z]{3}_[0-9a-z]{26}\b")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z")
_CURSOR = re.compile(rb'(?<=ursor)(\\*":\\*")[^"\\]+')
_MEASURED = re.compile(rb"\d\.\d{2,}")
"""Scores have the age of things in them."""
_HASH = re.compile(rb"\b[0-9a-f]{32,64}\b")


def masked(answer: bytes) -> bytes:
    """Without what is different each time it is made."""
    answer = _CURSOR.sub(rb"\1CURSOR", answer)
    answer = _MEASURED.sub(b"0.1", answer)
    return _HASH.sub(b"HASH", _TIME.sub(b"TIME", _ID.sub(b"ID", answer)))


def filled_in(asked: Any, ids: Sequence[str]) -> Any:
    """Arguments of a round; `$0` stands for the first of the ids that it was given."""
    return asked and {
        key: ids[int(value[1:])] if re.fullmatch(r"\$\d", str(value)) else value
        for key, value in asked.items()
    }


def a_round(server: Pipe, meta: Message) -> list[bytes]:
    """The answers to `ROUND` and `WRONG`, each call with `meta`."""
    ids: list[str] = []
    answers = []
    for number, (tool, asked) in enumerate([*ROUND, *WRONG]):
        arguments = filled_in(asked, ids)
        sent = call(number, tool) | {
            "params": {"name": tool, "arguments": arguments, "_meta": meta}
        }
        server.write(line(sent))
        answers.append(server.read_line())
        if tool == "store_memory":
            assert b"created" in answers[-1], answers[-1]
            ids.append(json.loads(answers[-1])["result"]["structuredContent"]["created"]["id"])
    return answers


# -- the same bytes


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_every_tool_answers_the_same_bytes_on_the_short_way_and_on_the_sdks(
    version: Era, tmp_path: Path
) -> None:
    with served(tmp_path / "short", era=version) as server:
        short = a_round(server, {"progressToken": "p"})
    with served(tmp_path / "long", era=version) as server:
        long = a_round(server, {"unheard.of/key": 1})
    assert sum(b'"isError":true' in each for each in short) >= 8
    for one, other in zip(short, long, strict=True):
        assert masked(one) == masked(other)


NOTE = {"type": "note", "content": "tea", "source": "s", "confidence": 1}


def kinds(answer: Message) -> list[str]:
    """Of the contents of a result."""
    return [each["type"] for each in answer["result"]["content"]]


@pytest.mark.parametrize("meta", [{}, {"unheard.of/key": 1}], ids=["short", "sdk"])
@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2024-11-05", ["text"]),
        ("2025-03-26", ["text"]),
        ("2025-06-18", ["text", "resource_link"]),
        ("2025-11-25", ["text", "resource_link"]),
    ],
)
def test_links_come_in_the_revisions_that_have_them(
    version: Era, expected: list[str], meta: Message, tmp_path: Path
) -> None:
    listing = call(2, "memory_list")
    listing["params"]["_meta"] = meta
    with served(tmp_path, era=version) as server:
        server.write(line(call(1, "memory_create", **NOTE)))
        server.read_line()
        server.write(line(listing))
        assert kinds(json.loads(server.read_line())) == expected


@pytest.mark.parametrize("meta", [{}, {"unheard.of/key": 1}], ids=["short", "sdk"])
def test_a_server_told_so_sends_no_links_to_clients_that_fail_at_them(
    meta: Message, tmp_path: Path
) -> None:
    listing = call(2, "memory_list")
    listing["params"]["_meta"] = meta
    with served(tmp_path, era="2025-11-25", MEMLOG_RESOURCE_LINKS="0") as server:
        server.write(line(call(1, "memory_create", **NOTE)))
        server.read_line()
        server.write(line(listing))
        answer = json.loads(server.read_line())
    assert kinds(answer) == ["text"]
    (found,) = answer["result"]["structuredContent"]["results"]
    assert found["uri"].startswith("mem://item/"), "what the link would say"


texts = st.text(st.characters(codec="utf-8"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any that a tool could give."""
    structured = draw(st.dictionaries(texts, values))
    links = st.lists(st.builds(Link, uri=texts, name=texts), max_size=2)
    return Answer(
        structured,
        draw(st.just(structured) | values),
        draw(st.lists(texts, max_size=1)),
        draw(links),
        draw(st.sampled_from(["ok", "CONFLICT"])),
    )


@given(answers())
def test_any_answer_is_written_as_the_sdk_writes_it(answer: Answer) -> None:
    dumped = answer.as_result().model_dump(by_alias=True, mode="json", exclude_none=True)
    result = serialize_server_result("tools/call", LEGACY, dumped)
    expected = encode(JSONRPCResponse(jsonrpc="2.0", id=7, result=result))
    assert HandshakeForm().result(b"7", answer) + b"\n" == expected


# -- what is plain

PLAIN = line(call(1, "echo", text="hello"))
NEAR = [
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"echo","arguments":null}}',
    b'{"params":{"arguments":{},"name":"echo","_meta":{"progressToken":1}},"method":"tools/call","id":-3,"jsonrpc":"2.0"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/call","params":{"name":"a","name":"echo","arguments":{"a":1,"a":2}}}',
]
ODD = [
    b'{"jsonrpc":"2.0","id":1.0,"method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":-0,"method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":true,"method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":"7","method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":"\\u0041","method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","task":null}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":null}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"traceparent":"x"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":1.5}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":true}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"memlog/commandId":""}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","_meta":{"memlog/commandId":7}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":1e400}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"a":NaN}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"extra":1}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}',
    line(call(1, "echo", text=json.loads("[" * 198 + "]" * 198))),
    line(call(1, "echo", _meta={}) | {"id": 10**15}),
]
"""Lines of which no one else than the SDK is to say what they mean."""


@pytest.mark.parametrize("sent", [PLAIN, *NEAR])
def test_a_plain_call_is_known_as_one(sent: bytes) -> None:
    assert plain_call(bytearray(sent)) is not None


@pytest.mark.parametrize("sent", ODD)
def test_what_is_not_plain_is_left_to_the_sdk(sent: bytes) -> None:
    assert plain_call(bytearray(sent)) is None


@given(
    line=st.sampled_from([PLAIN, *NEAR, *ODD]),
    value=st.sampled_from(
        [b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b'"\x01"', b"-0",
         b"01", b"1e5", b"1E+5", b"0.1e-400", b"1" * 400, b"[" * 150 + b"]" * 150, b'{"a":1,"a":2}', b'"\\u0000"', b""]
    ) | st.binary(max_size=6),
    data=st.data(),
)  # fmt: skip
def test_whatever_is_taken_for_a_call_the_sdk_reads_alike(
    line: bytes, value: bytes, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(start, min(start + 8, len(line))))
    sent = bytearray(line[:start] + value + line[end:])
    call = plain_call(sent)
    if call is None:
        return
    request_id, request = call
    params = msgspec.json.decode(bytes(sent))["params"]
    assert decode(sent) == JSONRPCRequest(
        jsonrpc="2.0", id=request_id, method="tools/call", params=params
    )
    assert params.get("arguments") == request.params.arguments
    assert (params["name"], json.loads(bytes(request.id))) == (request.params.name, request_id)


# -- who else wants to see calls


def test_a_server_with_other_middleware_answers_by_the_sdk() -> None:
    server: Server[Any] = Server("watched")
    guard(server)
    assert is_untraced(server)

    async def other(ctx: Any, call_next: Any) -> Any:
        return await call_next(ctx)

    server.middleware.append(other)
    assert not is_untraced(server)


def test_a_server_that_is_traced_answers_by_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Server[Any] = Server("traced")
    monkeypatch.setattr("server.calls.get_tracer_provider", NoOpTracerProvider)
    assert not is_untraced(server)
