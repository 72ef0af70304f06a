"""Openings of conversations: which questions are the same, and where knowing them ends."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCResponse

from server.starting.conversation import (
    LINE_BYTES_MAX,
    QUESTIONS_MAX,
    Conversation,
    Question,
    answer_line,
    result_in,
)
from server.stdio.lines import Oversized
from server.stdio.wire import encode

HELLO = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}'
INITIALIZED = '{"jsonrpc":"2.0","method":"notifications/initialized"}'
TOOLS = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'


def heard(*lines: str) -> list[Question | None]:
    conversation = Conversation()
    return [conversation.hear(bytearray(each.encode())) for each in lines]


def test_the_same_opening_has_the_same_keys_whatever_the_ids() -> None:
    before = heard(HELLO, INITIALIZED, TOOLS)
    again = heard(HELLO.replace(":0,", ':"a",'), INITIALIZED, TOOLS.replace(":1,", ": 99, "))
    assert [each and each.key for each in before] == [each and each.key for each in again]
    assert [each and each.id for each in again] == ["a", None, 99]


@pytest.mark.parametrize(
    "opening",
    [
        (HELLO.replace("2025-11-25", "2025-06-18"), INITIALIZED, TOOLS),
        (HELLO, TOOLS),
        (TOOLS,),
        (HELLO, INITIALIZED, TOOLS.replace("tools", "prompts")),
        (HELLO, INITIALIZED, TOOLS.replace("}", ',"params":{}}')),
        (HELLO, INITIALIZED, TOOLS.replace(":1,", ":2,").replace("tools/list", "ping"), TOOLS),
    ],
)
def test_what_was_said_before_belongs_to_the_key(opening: tuple[str, ...]) -> None:
    last = heard(*opening)[-1]
    usual = heard(HELLO, INITIALIZED, TOOLS)[-1]
    assert last and usual
    assert last.key != usual.key


@pytest.mark.parametrize(
    "stranger",
    [
        '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"read_graph"}}',
        '{"jsonrpc":"2.0","id":5,"method":"resources/list"}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}',
        '{"jsonrpc":"2.0","method":"tools/list"}',
        '{"jsonrpc":"2.0","id":5,"method":"notifications/initialized"}',
        '{"jsonrpc":"1.0","id":5,"method":"ping"}',
        '{"jsonrpc":"2.0","id":0,"method":"ping"}',
        '{"jsonrpc":"2.0","id":true,"method":"ping"}',
        '{"jsonrpc":"2.0","id":5.0,"method":"ping"}',
        '{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}',
        '{"jsonrpc":"2.0","id":5,"method":["ping"]}',
        '{"jsonrpc":"2.0","id":5,"method":"ping","more":1}',
        '{"jsonrpc":"2.0","id":5,"method":"ping","params":"' + "x" * LINE_BYTES_MAX + '"}',
        '[{"jsonrpc":"2.0","id":5,"method":"ping"}]',
        "[" * 10_000,
        "nonsense",
    ],
)
def test_after_anything_else_nothing_is_known(stranger: str) -> None:
    first, strange, later = heard(HELLO, stranger, TOOLS)
    assert first
    assert (strange, later) == (None, None)


def test_a_line_beyond_the_limit_ends_it_too() -> None:
    conversation = Conversation()
    assert conversation.hear(Oversized(10, 5, b"a", b"b")) is None
    assert conversation.over


def test_a_client_that_goes_on_asking_is_not_followed_for_ever() -> None:
    pings = [json.dumps({"jsonrpc": "2.0", "id": n, "method": "ping"}) for n in range(20)]
    known = [each for each in heard(*pings) if each]
    assert len(known) == QUESTIONS_MAX


@given(st.binary(max_size=100))
def test_no_bytes_break_the_listener(line: bytes) -> None:
    conversation = Conversation()
    assert conversation.hear(bytearray(line)) is None
    assert conversation.over


@given(
    st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers()),
)
def test_an_answer_told_again_is_the_sdks_to_the_byte(
    request_id: int | str, result: dict[str, int]
) -> None:
    line = encode(JSONRPCResponse(jsonrpc="2.0", id=request_id, result=result))
    found = result_in(request_id, line)
    assert found is not None
    assert json.loads(found) == result
    assert answer_line(request_id, found) == line
    assert result_in("another", line) is None
