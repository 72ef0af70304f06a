"""The short way of a call over HTTP: the same status, headers and bytes as the SDK's way, and the same guards."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp_types import JSONRPCResponse
from mcp_types.methods import serialize_server_result

from server.calls import EnvelopedForm, plain_call
from server.dispatch import build_server
from server.http.app import App
from server.http.connection import Door, Served
from server.performing import Answer as Answered
from server.registry import Arguments, Call, Result, Tool, tools
from server.rights.grants import Grant
from server.rights.tokens import Tokens, tokens_path
from server.session import Session
from tests.asgi import LEGACY, MODERN, Answer, BySdk, Client, app_over, ask, request
from tests.connected import run
from tests.served import ENVELOPE, Era
from tests.test_direct import NOTE, WRONG, answers, filled_in, kinds, masked
from tests.test_stdio import ROUND

ERAS = pytest.mark.parametrize("era", [LEGACY, "2024-11-05", MODERN])
BOTH_ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
UNHEARD_OF = {"unheard.of/key": 1}


class OnlyShort(App):
    """Whose SDK knows no tool: what is answered by one came the short way."""

    def _served(self, door: Door, lasting: bool) -> Served:
        served = super()._served(door, lasting)
        session = Session(self._service, "default", door.grant, lasting=lasting)
        return served._replace(server=build_server(session, {}))


# -- the same answers


async def a_round(app: App, era: Era) -> list[Answer]:
    client = Client(app, era)
    await client.open()
    ids: list[str] = []
    answers = []
    for number, (tool, asked) in enumerate([*ROUND, *WRONG]):
        arguments = filled_in(asked, ids)
        meta = {"progressToken": "p", "memlog/commandId": f"command-{number}"}
        answers.append(await client.call(tool, arguments, meta, number))
        if tool == "store_memory" and not answers[-1].json["result"]["isError"]:
            ids.append(answers[-1].json["result"]["structuredContent"]["created"]["id"])
    return answers


def alike(one: Answer, other: Answer) -> None:
    """But for what is different each time it is made, and how long that is."""

    def names(answer: Answer) -> list[tuple[bytes, bytes]]:
        changing = (b"mcp-session-id", b"content-length")
        return [(name, b"" if name in changing else value) for name, value in answer.headers]

    assert (one.status, names(one)) == (other.status, names(other))
    assert masked(one.body) == masked(other.body)
    for each in (one, other):
        assert dict(each.headers)[b"content-length"] == str(len(each.body)).encode()


@ERAS
@pytest.mark.parametrize("stateless", [False, True])
def test_every_tool_answers_the_same_on_the_short_way_and_on_the_sdks(
    era: Era, stateless: bool, tmp_path: Path
) -> None:
    async def scenario(kind: type[App], folder: str) -> list[Answer]:
        path = tmp_path / folder
        async with app_over(path, kind, http_stateless=stateless, project="default") as app:
            return await a_round(app, era)

    short = run(lambda: scenario(App, "short"))
    long = run(lambda: scenario(BySdk, "long"))
    assert sum(b'"isError":true' in each.body for each in short) >= 8
    for one, other in zip(short, long, strict=True):
        alike(one, other)


@pytest.mark.parametrize("kind", [App, BySdk])
@pytest.mark.parametrize("stateless", [False, True])
@pytest.mark.parametrize(
    ("era", "expected"),
    [
        ("2025-03-26", ["text"]),
        ("2025-06-18", ["text", "resource_link"]),
        (MODERN, ["text", "resource_link"]),
    ],
)
def test_links_come_in_the_revisions_that_have_them(
    era: Era, expected: list[str], stateless: bool, kind: type[App], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, kind, http_stateless=stateless, project="default") as app:
            client = Client(app, era)
            await client.open()
            if era == "2025-03-26":
                del client.headers["mcp-protocol-version"]  # which came with the next revision
            await client.call("memory_create", NOTE)
            assert kinds((await client.call("memory_list", {})).json) == expected

    run(scenario)


@pytest.mark.parametrize("kind", [App, BySdk])
def test_the_revision_that_a_session_agreed_on_last_is_that_of_its_calls(
    kind: type[App], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()
            await client.call("memory_create", NOTE)
            for revision, expected in (
                ("2025-03-26", ["text"]),
                ("unheard of", ["text", "resource_link"]),
                ("2024-11-05", ["text"]),
                (7, ["text"]),
                ("2025-06-18", ["text", "resource_link"]),
            ):
                about = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
                await client.post(request("initialize", 1, {"protocolVersion": revision, **about}))
                assert kinds((await client.call("memory_list", {})).json) == expected, revision

    run(scenario)


@example(Answered({"small": 1e-05, "smaller": -9.9e-05}, None, (), (), "ok"))
@example(Answered({"smallest": 1e-07, "large": 1e16}, None, (), (), "ok"))
@given(answers())
def test_any_answer_is_written_as_the_sdk_writes_it_without_sessions(answer: Answered) -> None:
    dumped = answer.as_result().model_dump(by_alias=True, mode="json", exclude_none=True)
    result = serialize_server_result("tools/call", MODERN, dumped)
    result["_meta"] = {"io.modelcontextprotocol/serverInfo": SERVER.server_info_stamp}
    message = JSONRPCResponse(jsonrpc="2.0", id=7, result=result)
    body = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    expected = json.dumps(body, separators=(",", ":")).encode()
    assert EnvelopedForm(SERVER).result(b"7", answer) == expected


SERVER = build_server(Session(None, ""), {})  # type: ignore[arg-type]


# -- whatever is sent

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"open_nodes","arguments":{"names":["Jon"]}%b}}'
META = json.dumps(ENVELOPE).encode()
PLAIN = {
    LEGACY: BODY % b"",
    MODERN: BODY % (b',"_meta":' + META),
}
ROUTED = {"mcp-method": "tools/call", "mcp-name": "open_nodes"}

ODD_META = [
    b"null",
    b"{}",
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}',
    META.replace(b"2026-07-28", b"2025-11-25"),
    META.replace(b"2026-07-28", b"2027-01-01"),
    META.replace(b'"2026-07-28"', b"null"),
    META.replace(b'"name": "test", ', b""),
    META.replace(b'"test"', b"7"),
    META.replace(b'{"name": "test", "version": "1"}', b"null"),
    META.replace(b'"name": "test"', b'"name": "test", "name": "\\ud83d"'),
    META.replace(b'"clientCapabilities": {}', b'"clientCapabilities": []'),
    META.replace(b"{}", b'{"roots": 7}'),
    META.replace(b"{}", b'{"experimental": {"x": {"y": 1}}, "unheard": 1}'),
    META.replace(b"{}", b'{"extensions": {"a/b": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}}"),
    META[:-1] + b',"progressToken":1.5}',
    META[:-1] + b',"progressToken":"p"}',
    META[:-1] + b',"memlog/commandId":""}',
    META[:-1] + b',"memlog/commandId":7}',
    META[:-1] + b',"memlog/commandId":"a"}',
    META[:-1] + b',"io.modelcontextprotocol/logLevel":"debug"}',
    META[:-1] + b',"io.modelcontextprotocol/logLevel":"loud"}',
    META[:-1] + b',"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}',
]
ODD = [
    (b'"open_nodes"', b'"eco"'),
    (b'"open_nodes"', b"7"),
    (b'"tools/call"', b'"tools/cal"'),
    (b'"tools/call"', b'"ping"'),
    (b'"id":1', b'"id":1.0'),
    (b'"id":1', b'"id":"7"'),
    (b'"id":1', b'"id":"\\u0041"'),
    (b'"id":1', b'"id":null'),
    (b'"id":1', b'"id":true'),
    (b'"id":1', b'"id":-7'),
    (b'"id":1', b'"id":"a b"'),
    (b'"id":1,', b""),
    (b'"2.0"', b'"1.0"'),
    (b'{"names":["Jon"]}', b"null"),
    (b'{"names":["Jon"]}', b"[]"),
    (b'{"names":["Jon"]}', b"{}"),
    (b'"Jon"', b"NaN"),
    (b'"Jon"', b"-Infinity"),
    (b'"Jon"', b"1e400"),
    (b'"Jon"', b"1" * 5_000),
    (b'"Jon"', b'"\\ud83d"'),
    (b'"Jon"', b'"\xed\xa0\xbd"'),
    (b'"Jon"', b'"\xff"'),
    (b'"Jon"', b'"\\u0000"'),
    (b'"Jon"', '"J\u00f6n \U0001f600 \u2028 \u007f"'.encode()),
    (b'"Jon"', b"[" * 190 + b"]" * 190),
    (b'"Jon"', b"[" * 210 + b"]" * 210),
    (b'"params":{', b'"params":{"task":null,'),
    (b'"params":{', b'"params":{"inputResponses":{},"requestState":"x",'),
    (b'{"jsonrpc"', b'{"extra":1,"jsonrpc"'),
    (b'{"jsonrpc"', b'\xef\xbb\xbf{"jsonrpc"'),
    (b'{"jsonrpc"', b'[{"jsonrpc"'),
]
ODD_HEADERS: list[dict[str, str | None]] = [
    {"mcp-name": None},
    {"mcp-name": "eco"},
    {"mcp-name": "=?base64?b3Blbl9ub2Rlcw==?="},
    {"mcp-name": "=?base64?b3Blbl9ub2Rlcx==?="},
    {"mcp-method": None},
    {"mcp-method": "tools/list"},
    {"mcp-method": "TOOLS/CALL"},
    {"mcp-protocol-version": None},
    {"mcp-protocol-version": ""},
    {"mcp-protocol-version": "2027-01-01"},
    {"mcp-protocol-version": "2025-03-26"},
    {"mcp-param-names": "Jon"},
    {"accept": None},
    {"accept": "text/event-stream"},
    {"accept": "text/html"},
    {"accept": "text/html, application/json;q=0.5"},
    {"accept": "application/*"},
    {"accept": "*/*"},
    {"accept": "text/html, " * 40 + "application/json"},
    {"content-type": None},
    {"content-type": "text/plain"},
    {"content-type": "application/json; charset=utf-8"},
    {"content-type": "Application/JSON"},
    {"content-type": "application/jsonp"},
    {"mcp-session-id": "nobody"},
    {"origin": "http://localhost:1"},
    {"origin": "http://evil.example"},
]


@contextmanager
def pair(tmp_path: Path, era: Era) -> Iterator[Any]:
    """Asks both ways, over one service, and compares."""
    with ExitStack() as stack:
        portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
        short, long = (
            stack.enter_context(
                portal.wrap_async_context_manager(app_over(tmp_path / folder, kind))
            )
            for folder, kind in (("short", App), ("long", BySdk))
        )
        clients = [Client(app, era) for app in (short, long)]
        for client in clients:
            portal.call(client.open)

        def both(body: bytes, changed: dict[str, str | None]) -> Answer:
            answers = []
            for app, client in zip((short, long), clients, strict=True):
                routed = ROUTED if era == MODERN else {}
                headers = {**client.headers, **routed, **changed}
                lines = [(name, value) for name, value in headers.items() if value is not None]
                answers.append(portal.call(ask, app, body, lines))
            alike(*answers)
            return answers[0]

        yield both


@BOTH_ERAS
def test_odd_requests_are_answered_alike(era: Era, tmp_path: Path) -> None:
    plain = PLAIN[era]
    metas = [BODY % (b',"_meta":' + each) for each in ODD_META]
    odd = [plain.replace(old, new, 1) for old, new in ODD]
    with pair(tmp_path, era) as both:
        assert both(plain, {}).status == 200
        statuses = {both(body, {}).status for body in [*metas, *odd, b"", b"{", plain + b"x"]}
        statuses |= {both(plain, headers).status for headers in ODD_HEADERS}
    assert {200, 400, 403, 404, 406} <= statuses | ({404, 406} if era == MODERN else set())


@BOTH_ERAS
def test_a_header_that_comes_twice_is_left_to_the_sdk(era: Era, tmp_path: Path) -> None:
    async def scenario(kind: type[App]) -> list[Answer]:
        async with app_over(tmp_path / kind.__name__, kind) as app:
            client = Client(app, era)
            await client.open()
            routed = ROUTED if era == MODERN else {}
            once = [*client.headers.items(), *routed.items()]
            return [await ask(app, PLAIN[era], [*once, each]) for each in once]

    for one, other in zip(run(lambda: scenario(App)), run(lambda: scenario(BySdk)), strict=True):
        alike(one, other)


def test_mutated_bodies_are_answered_alike(tmp_path: Path) -> None:
    with pair(tmp_path / MODERN, MODERN) as modern, pair(tmp_path / LEGACY, LEGACY) as legacy:

        @settings(max_examples=150, deadline=None)
        @given(
            value=st.sampled_from(
                [b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\xed\xa0\x80"', b"-0", b"01", b"1e5", b"0.1e-400",
                 b'{"a":1,"a":2}', b""]
            ) | st.binary(max_size=6),
            data=st.data(),
        )  # fmt: skip
        def compare(value: bytes, data: st.DataObject) -> None:
            era = data.draw(st.sampled_from([LEGACY, MODERN]))
            body = PLAIN[era]
            start = data.draw(st.integers(0, len(body)))
            end = data.draw(st.integers(start, min(start + 8, len(body))))
            (modern if era == MODERN else legacy)(body[:start] + value + body[end:], {})

        compare()


@pytest.mark.parametrize("meta", ODD_META)
def test_an_odd_envelope_is_left_to_the_sdk_or_read_as_by_it(meta: bytes) -> None:
    body = BODY % (b',"_meta":' + meta)
    call = plain_call(body, enveloped=True)
    assert call is None or call.request.params.arguments == {"names": ["Jon"]}


@pytest.mark.parametrize("tool", ["store_memory", "list_threads"])
def test_a_command_id_with_half_a_character_is_refused(tool: str, tmp_path: Path) -> None:
    async def scenario() -> Answer:
        async with app_over(tmp_path) as app:
            client = Client(app, MODERN)
            await client.open()
            arguments = {"content": "tea"} if tool == "store_memory" else {}
            return await client.call(tool, arguments, {"memlog/commandId": "a\ud83d"})

    answer = run(scenario)
    assert answer.json["error"]["code"] == -32602, answer.body
    assert "memlog/commandId" in answer.json["error"]["message"]


def test_an_introduction_that_is_long_is_left_to_the_sdk() -> None:
    body = PLAIN[MODERN]
    assert plain_call(body, enveloped=True) is not None
    long = body.replace(b'"test"', b'"' + b"x" * 2_000 + b'"')
    assert plain_call(long, enveloped=True) is None


# -- the way, and who stands on it


@BOTH_ERAS
def test_plain_calls_come_the_short_way(era: Era, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, OnlyShort) as app:
            client = Client(app, era)
            await client.open()
            assert (await client.call("open_nodes", {"names": []})).json["result"]
            assert "error" in (await client.call("open_nodes", {"names": []}, UNHEARD_OF)).json
            assert "error" in (await client.call("eco", {})).json
            opened = app._connections
            for each in (*opened._sessions.values(), *opened._shared.values()):
                assert not each.direct._running, "a call that is answered is kept"

    run(scenario)


def test_a_session_without_a_handshake_is_left_to_the_sdk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path, OnlyShort) as app:
            client = Client(app, LEGACY)
            client.headers["mcp-protocol-version"] = LEGACY
            assert (await client.call("open_nodes", {"names": []})).status == 400
            refused = await client.post(
                b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'
            )
            assert "error" in refused.json
            assert b"mcp-session-id" not in dict(refused.headers)

    run(scenario)


@BOTH_ERAS
def test_a_token_is_as_narrow_on_the_short_way(era: Era, tmp_path: Path) -> None:
    async def scenario(kind: type[App]) -> list[Answer]:
        path = tmp_path / kind.__name__
        path.mkdir()
        async with app_over(path, kind) as app:
            kept = Tokens(tokens_path(app._service.settings))
            reads = kept.new(Grant("reads", "read", ("default",), ("graph",)))
            writes = kept.new(Grant("writes", "write"))
            nobody = Client(app, era)
            answers = [await nobody.call("open_nodes", {"names": []})]
            writer, reader = (Client(app, era, token=each) for each in (writes, reads))
            await writer.open()
            await reader.open()
            asked: list[tuple[Client, str, Any]] = [
                (writer, "create_entities", {"entities": []}),
                (writer, "create_project", {"name": "other"}),
                (reader, "open_nodes", {"names": ["Jon"]}),
                (reader, "open_nodes", {"names": ["Jon"], "project": "other"}),
                (reader, "create_entities", {"entities": []}),
                (reader, "store_memory", {"content": "x"}),
                (reader, "get_history", {}),
            ]
            answers += [await client.call(tool, given) for client, tool, given in asked]
            reader.headers["authorization"] = f"Bearer {writes}"
            answers.append(await reader.call("open_nodes", {"names": []}))
            kept.revoke("writes")
            answers.append(await writer.call("open_nodes", {"names": []}))
            return answers

    short, long = run(lambda: scenario(App)), run(lambda: scenario(BySdk))
    for one, other in zip(short, long, strict=True):
        alike(one, other)
    assert {each.status for each in short} >= {200, 401}


@BOTH_ERAS
def test_one_request_too_many_is_refused_on_the_short_way(era: Era, tmp_path: Path) -> None:
    async def scenario() -> list[Answer]:
        async with app_over(tmp_path, http_requests_per_second=0.001, http_stateless=True) as app:
            client = Client(app, era)
            client.headers["mcp-protocol-version"] = era
            return [await client.call("open_nodes", {"names": []}) for _ in range(2)]

    assert [each.status for each in run(scenario)] == [200, 429]


@BOTH_ERAS
def test_a_path_fixes_the_project_on_the_short_way(era: Era, tmp_path: Path) -> None:
    async def scenario(kind: type[App]) -> list[Answer]:
        async with app_over(tmp_path / kind.__name__, kind) as app:
            anywhere = Client(app, era)
            await anywhere.open()
            await anywhere.call("create_project", {"name": "one"})
            inside, nowhere = (Client(app, era, path=f"/mcp/p/{name}") for name in ("one", "no"))
            await inside.open()
            return [
                await inside.call("create_entities", {"entities": []}),
                await inside.call("open_nodes", {"names": [], "project": "default"}),
                await inside.call("list_projects", {}),
                await nowhere.call("open_nodes", {"names": []}),
            ]

    short, long = run(lambda: scenario(App)), run(lambda: scenario(BySdk))
    for one, other in zip(short, long, strict=True):
        alike(one, other)
    assert [each.status for each in short] == [200, 200, 200, 404]


# -- calls that wait, fail, or are given up


class Gate:
    """Tools that every application offers: one that waits to be let go, and one that fails."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def tools(self, *_: Any, **__: Any) -> dict[str, Tool]:
        like = tools(["graph"])["read_graph"]
        waits = msgspec.structs.replace(
            like, name="waits", handler=self._wait, links=None, bare=None
        )
        return {
            "waits": waits,
            "fails": msgspec.structs.replace(waits, name="fails", handler=_fail),
        }

    def _wait(self, call: Call, arguments: Arguments) -> Result:
        self.entered.set()
        assert self.opened.wait(30)
        return Result()

    async def was_entered(self) -> None:
        assert await anyio.to_thread.run_sync(self.entered.wait, 30)


def _fail(call: Call, arguments: Arguments) -> Result:
    raise RuntimeError("the password is swordfish")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate()
    monkeypatch.setattr("server.http.app.tools", gate.tools)
    return gate


KINDS = pytest.mark.parametrize("kind", [App, BySdk])


async def _with_one_waiting(gate: Gate, then: Any, waiting: Client) -> Answer:
    """What a call was told during which `then` was done."""
    answers: list[Answer] = []

    async def call() -> None:
        answers.append(await waiting.call("waits", {}, number=5))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await gate.was_entered()
        await then()
    return answers[0]


@KINDS
@pytest.mark.parametrize("spelt", [5, "5"])
def test_a_cancelled_call_is_run_to_its_end_and_told_so(
    kind: type[App], spelt: int | str, gate: Gate, tmp_path: Path
) -> None:
    async def scenario() -> Answer:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()

            async def cancel() -> None:
                params = json.dumps({"requestId": spelt}).encode()
                told = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params
                assert (await client.post(told)).status == 202
                await anyio.wait_all_tasks_blocked()
                gate.opened.set()

            return await _with_one_waiting(gate, cancel, client)

    answer = run(scenario)
    assert answer.status == 200
    assert answer.body == (
        b'{"jsonrpc":"2.0","id":5,"error":{"code":-32800,"message":"Request cancelled"}}'
    )
    assert [name for name, _ in answer.headers] == [
        b"content-type",
        b"mcp-session-id",
        b"content-length",
    ]


@KINDS
def test_nobody_cancels_the_call_of_another(kind: type[App], gate: Gate, tmp_path: Path) -> None:
    told = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}'

    async def scenario(era: Era, stateless: bool) -> Answer:
        async with app_over(tmp_path, kind, http_stateless=stateless) as app:
            client, other = Client(app, era), Client(app, era)
            await client.open()
            await other.open()

            async def cancel() -> None:
                assert (await other.post(told)).status == 202
                gate.opened.set()

            return await _with_one_waiting(gate, cancel, client)

    for era, stateless in ((LEGACY, False), (LEGACY, True), (MODERN, False)):
        gate.entered.clear()
        gate.opened.clear()
        assert "result" in run(lambda: scenario(era, stateless)).json  # noqa: B023


@KINDS
def test_no_call_is_cancelled_but_the_one_that_is_named(
    kind: type[App], gate: Gate, tmp_path: Path
) -> None:
    told = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}'

    async def scenario() -> Answer:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()

            async def cancel() -> None:
                assert (await client.post(told)).status == 202
                gate.opened.set()

            return await _with_one_waiting(gate, cancel, client)

    assert "result" in run(scenario).json


@pytest.mark.parametrize(("kind", "status"), [(App, 200), (BySdk, 409)])
def test_two_calls_of_a_session_under_one_id_are_both_answered_unless_they_are_the_sdks(
    kind: type[App], status: int, gate: Gate, tmp_path: Path
) -> None:
    async def scenario() -> tuple[Answer, Answer]:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()
            second: list[Answer] = []

            async def again() -> None:
                second.append(await client.call("fails", {}, number=5))
                gate.opened.set()

            return await _with_one_waiting(gate, again, client), second[0]

    first, second = run(scenario)
    assert "result" in first.json and "error" in second.json
    assert (first.status, second.status) == (200, status)


@KINDS
def test_who_waits_in_a_session_that_ends_is_told_so(
    kind: type[App], gate: Gate, tmp_path: Path
) -> None:
    async def scenario() -> Answer:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()

            async def end() -> None:
                assert (await client.end()).status == 200
                await anyio.wait_all_tasks_blocked()
                gate.opened.set()

            return await _with_one_waiting(gate, end, client)

    answer = run(scenario)
    assert answer.status == 500
    assert answer.body == (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,'
        b'"message":"Session terminated before the request completed"}}'
    )
    assert [name for name, _ in answer.headers] == [
        b"content-type",
        b"mcp-session-id",
        b"content-length",
    ]


def test_a_call_without_a_session_is_answered_though_its_token_was_revoked_meanwhile(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.connections.SWEEP_SECONDS", 0.01)

    async def scenario() -> Answer:
        async with app_over(tmp_path) as app:
            client = Client(app, MODERN)
            await client.open()

            async def revoke() -> None:
                monkeypatch.setattr(app._connections, "_still_holds", lambda grant: False)
                while app._connections._shared:
                    await anyio.sleep(0.001)
                gate.opened.set()

            return await _with_one_waiting(gate, revoke, client)

    assert "result" in run(scenario).json


@KINDS
@BOTH_ERAS
def test_an_unforeseen_failure_stays_in_the_log_under_the_id_of_its_request(
    era: Era, kind: type[App], gate: Gate, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            from server.http.logs import request_id

            seen.append(request_id.get())

    async def scenario() -> tuple[Answer, bytes]:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, era)
            await client.open()
            client.headers["x-request-id"] = "mine"
            logger.addHandler(handler)
            return await client.call("fails", {}), app._metrics.page()

    logger, handler = logging.getLogger("server.stdio.faults"), Noting()
    try:
        answer, page = run(scenario)
    finally:
        logger.removeHandler(handler)
    assert (answer.status, answer.json["error"]["code"]) == (200, -32603)
    assert b"swordfish" not in answer.body
    assert seen == ["mine"]
    assert b'memlog_calls_total{outcome="INTERNAL_ERROR",tool="fails"} 1.0' in page


@KINDS
def test_the_end_waits_for_a_call_in_its_thread(
    kind: type[App], gate: Gate, tmp_path: Path
) -> None:
    finished: list[str] = []

    def let_go() -> None:
        finished.append("call")
        gate.opened.set()

    async def scenario() -> None:
        async with app_over(tmp_path, kind) as app:
            client = Client(app, LEGACY)
            await client.open()

            async def call() -> None:
                await client.call("waits", {})

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await gate.was_entered()
                tasks.cancel_scope.cancel()
                threading.Timer(0.1, let_go).start()
        finished.append("end")

    run(scenario)
    assert finished == ["call", "end"]


@BOTH_ERAS
def test_a_media_type_is_the_same_in_whatever_case(era: Era, tmp_path: Path) -> None:
    with pair(tmp_path, era) as both:
        for written in ("Application/JSON", "APPLICATION/JSON; charset=UTF-8"):
            assert both(PLAIN[era], {"content-type": written}).status == 200
