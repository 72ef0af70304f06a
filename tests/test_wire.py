"""Lines and messages: what is cut, what is read, what is refused and under which id."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from server.stdio.lines import BYTE_ORDER_MARK, LineCutter, Oversized
from server.stdio.wire import Refused, decode, encode


def cut(cutter: LineCutter, *chunks: bytes) -> list[bytearray | Oversized]:
    lines = [line for chunk in chunks for line in cutter.feed(chunk)]
    return [*lines, *cutter.finish()]


def refusal(line: bytes | Oversized) -> JSONRPCError | None:
    with pytest.raises(Refused) as refused:
        decode(bytearray(line) if isinstance(line, bytes) else line)
    return refused.value.reply


def test_a_byte_order_mark_is_skipped_where_the_stream_begins_and_nowhere_else() -> None:
    marked = BYTE_ORDER_MARK + b"{}"
    found = cut(LineCutter(), *(bytes([byte]) for byte in marked + b"\n" + marked))
    assert found == [bytearray(b"{}"), bytearray(marked)]
    assert cut(LineCutter(), BYTE_ORDER_MARK + b"\n", b"[]") == [bytearray(b"[]")]


@given(st.lists(st.binary(max_size=12).map(lambda chunk: chunk.replace(b"a", b"\n"))))
def test_lines_do_not_depend_on_how_the_stream_is_chunked(chunks: list[bytes]) -> None:
    stream = b"".join(chunks).removeprefix(BYTE_ORDER_MARK)
    whole = [bytearray(line) for line in stream.split(b"\n") if line.strip()]
    assert cut(LineCutter(), *chunks) == whole


@given(st.binary(max_size=64), st.integers(1, 32))
def test_lines_beyond_the_limit_are_measured_and_the_rest_is_kept(
    stream: bytes, line_bytes_max: int
) -> None:
    assume(not stream.startswith(BYTE_ORDER_MARK))
    found = cut(LineCutter(line_bytes_max), *(bytes([byte]) for byte in stream))
    lines = [each for each in stream.split(b"\n") if each.strip() or len(each) > line_bytes_max]
    measured = [each.bytes_total if isinstance(each, Oversized) else len(each) for each in found]
    assert measured == [len(each) for each in lines]
    for kept, line in zip(found, lines, strict=True):
        assert isinstance(kept, Oversized) == (len(line) > line_bytes_max)
        if isinstance(kept, Oversized):
            assert line.startswith(kept.head)
            assert line.endswith(kept.tail)
        else:
            assert kept == line


def test_of_a_line_beyond_the_limit_only_the_two_ends_are_kept() -> None:
    (kept,) = cut(LineCutter(5000), b"a" * 4990, b"b" * 20, b"c" * 5000, b"d" * 20 + b"\n")
    assert kept == Oversized(10030, 5000, head=b"a" * 1024, tail=b"c" * 1004 + b"d" * 20)
    (kept,) = cut(LineCutter(5000), b"a" * 4990, b"b" * 20)
    assert kept == Oversized(5010, 5000, head=b"a" * 1024, tail=b"a" * 1004 + b"b" * 20)


@given(st.binary(max_size=200))
@example(b'{"jsonrpc":"2.0","method":"n","params":{"id":1,"n":' + b"9" * 5000 + b"}}")
@example(b'{"id":' + b"9" * 5000 + b',"method":1}')
@example(b'{"id":"\\ud800","method":"m","jsonrpc":"2.0"}')
@example(b'{"id":"\\ud800","method":"m"')
@example(b"[" * 5000)
@example(b'{"a":' * 5000)
@example(b"\xef\xbb\xbf{}")
@example(b'{"id": 1, "method": "m", "params": {"a": "\x00"}}')
def test_no_bytes_break_the_reader(line: bytes) -> None:
    try:
        decode(bytearray(line))
    except Refused as refused:
        if refused.reply is not None:
            assert json.loads(encode(refused.reply))["error"]["message"]


json_values = st.none() | st.booleans() | st.integers() | st.text(max_size=5)


@given(
    st.integers() | st.text(),
    st.text(),
    st.dictionaries(st.text(max_size=5), json_values),
    st.randoms(),
)
def test_a_request_survives_any_order_of_its_members(
    number: int | str, method: str, params: dict[str, Any], random: Any
) -> None:
    members = [("jsonrpc", "2.0"), ("id", number), ("method", method), ("params", params)]
    random.shuffle(members)
    message = decode(bytearray(json.dumps(dict(members)).encode()))
    assert message == JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)


@pytest.mark.parametrize(
    ("line", "code", "answered_id", "named"),
    [
        (b'{"jsonrpc":"2.0","id":"a","method":"m"', -32700, "a", "EOF"),
        (b'{"method":"m","id":7,"jsonrpc":"2.0","params":{"a":}}', -32700, 7, "column"),
        (b'{"jsonrpc":"2.0","params":{"method":"m","id":7},}', -32700, None, "column"),
        (b'{"jsonrpc":"2.0","id":7,"result":{"method":"m"', -32700, None, "EOF"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":["a\xff"]}', -32700, 7, "0xff"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":"\\udc00"}}', -32602, 7, "surr"),
        (b'{"jsonrpc":"2.0","id":"\\udc00","method":"m"}', -32700, None, "surrogate"),
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":"\\udc00"}}', -32700, None, "surrogate"),
        (b'{"jsonrpc":"2.0","id":7}', -32600, 7, "`method`: Field required"),
        (b'{"jsonrpc":"2.0","id":7,"method":"m","params":3}', -32600, 7, "`params`"),
        (b'{"jsonrpc":"2.0","id":7,"result":3}', -32600, None, "`method`"),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, None, "not true"),
        (b'{"jsonrpc":"2.0","i\\u0064":true,"method":"m"}', -32600, None, "not true"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', -32600, None, "not a list of 1"),
        (b"[]", -32600, None, "batches"),
        (b"7", -32600, None, "not 7"),
        (Oversized(9, 8, b'{"jsonrpc":"2.0","id":7,"method":"m","params":', b"}}"), -32600, 7, "9"),
        (Oversized(9, 8, b'{"method":"m","params":{"id":8', b'},"id":7}'), -32600, 7, "9"),
        (Oversized(9, 8, b'{"method":"m","params":{', b'"id":7}}'), -32600, None, "9"),
        (Oversized(9, 8, b'{"result":{', b'},"id":7}'), -32600, None, "9"),
    ],
)
def test_a_refusal_names_the_cause_under_the_id_it_is_sure_of(
    line: bytes | Oversized, code: int, answered_id: object, named: str
) -> None:
    reply = refusal(line)
    assert reply is not None
    assert (reply.error.code, reply.id) == (code, answered_id)
    assert named in reply.error.message


@pytest.mark.parametrize("half", ["\\ud83d", "\\ud83dy", "\\ude00", "\\ud83d\\ud83d\\ude00"])
def test_half_an_emoji_is_named_as_such_wherever_it_stands(half: str) -> None:
    text = f'{{"jsonrpc":"2.0","id":7,"method":"m","params":{{"a":["x{half}"]}}}}'
    reply = refusal(text.encode())
    assert reply is not None
    code = "U+DE00" if half == "\\ude00" else "U+D83D"
    assert reply.error.message.startswith(
        f"Invalid params: a text contains a lone surrogate {code}"
    )


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"m","params":3}',
        b'{"jsonrpc":"2.0","method":"m","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"1.0","id":null,"method":"m"}',
    ],
)
def test_a_malformed_notification_is_refused_in_silence(line: bytes) -> None:
    assert refusal(line) is None


def test_a_null_id_makes_a_notification() -> None:
    message = decode(bytearray(b'{"jsonrpc":"2.0","id":null,"method":"m"}'))
    assert isinstance(message, JSONRPCNotification)


def test_a_response_that_json_cannot_carry_becomes_an_internal_error() -> None:
    response = JSONRPCResponse(jsonrpc="2.0", id=7, result={"text": "\ud800"})
    answer = json.loads(encode(response))
    assert (answer["id"], answer["error"]["code"]) == (7, -32603)


@given(st.dictionaries(st.text(), json_values))
def test_an_encoded_message_is_one_line(result: dict[str, Any]) -> None:
    line = encode(JSONRPCResponse(jsonrpc="2.0", id=1, result=result))
    assert line.count(b"\n") == 1
    assert json.loads(line)["result"] == result


def test_a_client_that_says_nothing_of_its_capabilities_has_none() -> None:
    params = {"protocolVersion": "2024-11-05", "clientInfo": {"name": "agent", "version": "1.0"}}
    asked = {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params}
    message = decode(bytearray(json.dumps(asked).encode()))
    assert isinstance(message, JSONRPCRequest)
    assert message.params == {**params, "capabilities": {}}
    able = {**params, "capabilities": {"roots": {}}}
    message = decode(bytearray(json.dumps({**asked, "params": able}).encode()))
    assert isinstance(message, JSONRPCRequest)
    assert message.params == able
