"""What is too large, too much, too slow or too deep: each with its status, and the next client is served."""

from __future__ import annotations

import json
import resource
import select
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from starlette.types import Message, Scope, Send

from memlog.settings import Settings
from server.http.app import App
from server.http.bodies import Whole
from server.http.connection import Door, Served
from server.http.limits import Limits
from server.http.sockets import HEAD_BYTES_MAX, HEADERS_MAX
from server.http.weight import PARTS_MAX
from tests.asgi import LEGACY, app_over, ask, request
from tests.http_served import BOTH, HttpClient, HttpServer, get_stream, served_http
from tests.served import DEADLINE_S, ENVELOPE, REPOSITORY, run_memlog

PATIENCE_S = 0.5
BODY_MAX = 100_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with served_http(
        tmp_path_factory.mktemp("limits"),
        MEMLOG_HTTP_BODY_BYTES_MAX=str(BODY_MAX),
        MEMLOG_HTTP_PATIENCE_SECONDS=str(PATIENCE_S),
        MEMLOG_HTTP_CONNECTIONS_MAX="40",
        MEMLOG_HTTP_REQUESTS_PER_SECOND="1000000",  # the bodies sent here count as many
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def serves_the_next(server: HttpServer) -> Iterator[None]:
    """Whatever was done to it."""
    yield
    assert HttpClient(server).request("tools/list").status == 200


def let_in_again(server: HttpServer) -> None:
    """Waits until it has seen that connections were closed, or found who gives way; who asks before is not let in."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with suppress(ConnectionError):
            if server.get("/healthz").status == 200:
                return
    raise AssertionError("nobody is let in")


def until_closed(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a connection that it keeps fails the test."""
    received = b""
    try:
        while data := connection.recv(65_536):
            received += data
    except ConnectionError:  # what was still on its way when the server closed
        return received
    return received


HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


# -- sizes


def test_a_body_that_says_it_is_huge_is_refused_before_it_is_read(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 100000000\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert json.loads(body)["error"]["data"]["status"] == 413


@pytest.mark.parametrize("said", [b"Content-Length: 20000000", b"Transfer-Encoding: chunked"])
def test_who_sends_a_large_body_to_its_end_is_told_that_it_is_too_large(
    tmp_path: Path, said: bytes
) -> None:
    """Closed with the rest of it on its way, it would be a broken connection."""
    piece = b" " * 20_000
    if b"chunked" in said:
        piece = b"%x\r\n%b\r\n" % (len(piece), piece)
    with served_http(tmp_path) as server, server.connect() as connection:
        connection.sendall(HEAD + said + b"\r\n\r\n")
        for _ in range(1_000):
            connection.sendall(piece)
        if b"chunked" in said:
            connection.sendall(b"0\r\n\r\n")
        assert until_closed(connection).startswith(b"HTTP/1.1 413")


def test_who_asks_whether_to_send_a_large_body_is_told_not_to(server: HttpServer) -> None:
    with server.connect() as connection:
        expecting = b"Content-Length: 20000000\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(HEAD + expecting)
        assert until_closed(connection).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"99999999999999999999999", b"5, 6"])
def test_a_length_that_is_none_is_refused(server: HttpServer, length: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: " + length + b"\r\n\r\n{}")
        assert until_closed(connection)[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413")


def test_a_body_in_chunks_is_refused_where_it_becomes_too_large(server: HttpServer) -> None:
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    with server.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3)
        assert until_closed(connection).startswith(b"HTTP/1.1 413")


def test_a_body_that_is_too_large_and_goes_on_is_refused_once(server: HttpServer) -> None:
    """When its time is over the refusal is under way, and no other can follow."""
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    told = len(server.log())
    with server.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3)
        assert until_closed(connection).endswith(b"}")
    assert [line for line in server.log()[told:] if line["level"] == "error"] == []


def test_a_body_that_is_all_frames_is_refused(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 10_000)
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert "carry too little" in json.loads(body)["error"]["message"]


def test_a_body_in_small_pieces_is_read(server: HttpServer) -> None:
    head, _, body = asking("tools/list").partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    with server.connect() as connection:
        sent = [*lines, b"Transfer-Encoding: chunked", b"", pieces + b"0", b"", b""]
        connection.sendall(b"\r\n".join(sent))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")


def test_chunks_that_nobody_waits_for_are_not_read(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_TOKEN=TOKEN) as guarded, guarded.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        assert whole_answer(connection).startswith(b"HTTP/1.1 401")
        connection.sendall(b"no chunk\r\n")  # which would be refused, were it looked at
        assert until_closed(connection) == b""


def test_a_connection_goes_on_behind_a_refused_body_of_a_stated_length(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_TOKEN=TOKEN) as guarded, guarded.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        assert whole_answer(connection).startswith(b"HTTP/1.1 401")
        connection.sendall(b"1\n" * 500)  # which are no headers
        connection.sendall(asking("tools/list", TOKEN))
        assert whole_answer(connection).startswith(b"HTTP/1.1 200")


def test_a_body_with_both_a_length_and_chunks_is_refused(server: HttpServer) -> None:
    """Whoever stands before the server may go by the other of the two, and see another request in the rest."""
    smuggled = b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(HEAD + smuggled)
        assert until_closed(connection).startswith(b"HTTP/1.1 400")


def test_a_method_without_end_is_not_repeated(server: HttpServer) -> None:
    answer = server.ask("A" * 10_000, "/mcp", b"", {})
    assert answer.status == 405 and len(answer.body) < 1_000
    assert len(max((line.get("method", "") for line in server.log()), key=len)) < 100


def test_a_body_just_within_the_limit_is_read(server: HttpServer) -> None:
    assert HttpClient(server).post(b" " * BODY_MAX).status == 400


@pytest.mark.parametrize("line", [b"X-%d: 1\r\n", b"X-%d: " + b"x" * 2_000 + b"\r\n"])
def test_a_flood_of_headers_is_refused(server: HttpServer, line: bytes) -> None:
    with server.connect() as connection:
        try:
            for number in range(20_000):
                connection.sendall(HEAD if number == 0 else line % number)
        except ConnectionError:
            return  # refused while it was still sending
        assert until_closed(connection).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("head", ["GET /healthz?%s HTTP/1.1", "GET /healthz HTTP/1.1\r\nX-Odd: %s"])
def test_a_large_head_is_refused_though_it_comes_in_one_piece(
    server: HttpServer, head: str
) -> None:
    sent = head.replace("%s", "a" * HEAD_BYTES_MAX) + "\r\nHost: 127.0.0.1\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(sent.encode())
        status, _, _ = until_closed(connection).partition(b"\r\n")
    assert status == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(("more", "status"), [(0, 401), (1, 400)])
def test_a_head_of_many_short_headers_is_refused(
    tmp_path: Path, early: bool, more: int, status: int
) -> None:
    """Thirty kilobytes of them cost as much as twenty requests, of whoever has no token too."""
    first = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" if early else b""
    head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"a:\r\n" * (HEADERS_MAX - 3 + more)
    body = b"{%s}" % (b" \n" * 1_000)
    head += b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with served_http(tmp_path, MEMLOG_TOKEN=TOKEN) as guarded, guarded.connect() as connection:
        connection.sendall(first + head + body)
        told = until_closed(connection)
    assert f"HTTP/1.1 {status} ".encode() in told
    assert told.count(b"HTTP/1.1 ") == 1 + early


@pytest.mark.parametrize("size", [1, 3])
def test_a_body_of_many_lines_has_no_headers(server: HttpServer, size: int) -> None:
    """Wherever the network cuts it."""
    body = b"{" + b" \n" * 1_000 + b"}"
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n" % len(body)
    with server.connect() as connection:
        for part in (head + b"\r\n"[:size], b"\r\n"[size:] + body):
            connection.sendall(part)
            time.sleep(0.05)  # until it is taken; if not, less is tested
        assert b"The body is no JSON-RPC message" in until_closed(connection)


def test_a_header_without_an_end_is_refused(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"X-Long: " + b"x" * 200_000)
        assert until_closed(connection)[:12] in (b"", b"HTTP/1.1 400")


def test_a_trailer_is_no_header(server: HttpServer) -> None:
    """What is accepted is not taken from what comes behind the body."""
    with server.connect() as connection:
        body = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        versioned = b"MCP-Protocol-Version: 2026-07-28\r\nAccept: text/html\r\n"
        connection.sendall(HEAD + versioned + body + b"Accept: application/json\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 406")


def test_an_upgrade_is_not_taken_and_the_request_is_answered(server: HttpServer) -> None:
    """As Java's client offers one with its first request."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\nHost"
    with server.connect() as connection:
        connection.sendall(asking("tools/list").replace(b"Host", upgrade, 1))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
    assert not [line for line in server.log() if "pgrade" in line["message"]]


def test_what_is_no_http_is_refused_as_json(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(b"\x16\x03\x01 not http\r\n\r\n")
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400") and json.loads(body)["error"]["data"]["status"] == 400


# -- JSON


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [150, 3_000, 15_000])
def test_nesting_without_end_is_refused(
    server: HttpServer, era: str, opening: bytes, depth: int
) -> None:
    client = HttpClient(server)
    closing = b"]" if opening == b"[" else b"0}"
    deep = opening * depth + closing * (depth if opening == b"[" else 1)
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"a":' + deep + b"}}"
    for sent in (deep, body):
        answer = client.post(sent, MCP_Protocol_Version=era, Mcp_Method="tools/list")
        assert 400 <= answer.status < 500, answer
        assert "error" in answer.json


@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"9" * 5_000, b'{"jsonrpc":"2.0"}']
)
def test_what_is_no_message_is_refused(server: HttpServer, era: str, body: bytes) -> None:
    answer = HttpClient(server).post(body, MCP_Protocol_Version=era)
    assert answer.status in (202, 400, 406), answer


@pytest.mark.parametrize("in_a_session", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"[]", b"null", b'"x"', b'{"jsonrpc":"2.0"}', b'{"id":1,"method":"ping"}'),
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":["a secret"]}',
    ],
)
def test_json_that_is_no_message_is_refused_in_words(
    server: HttpServer, body: bytes, in_a_session: bool
) -> None:
    """The SDK lists what pydantic tried, over many lines and with what was sent."""
    client = HttpClient(server, "2025-11-25" if in_a_session else "2026-07-28")
    answer = client.post(body)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
    assert ("mcp-session-id" in answer.headers) or not in_a_session
    error = answer.json["error"]
    assert (answer.json["id"], error["code"]) == (None, -32602)
    assert error["message"] == "The body is no JSON-RPC message"
    assert error["data"]["suggestion"].startswith("Send one object, no batch")
    assert b"pydantic" not in answer.body
    assert b"secret" not in answer.body


@pytest.mark.parametrize("flags", [[], ["--stateless"]])
def test_a_request_with_an_id_that_none_may_have_is_refused_and_not_dropped(
    tmp_path: Path, flags: list[str]
) -> None:
    """The SDK takes it for a notification, answers 202 and does nothing."""
    with served_http(tmp_path, *flags) as server:
        client = HttpClient(server, "2025-11-25")
        for odd in ("1.5", "true", "[7]", "{}"):
            called = b'"method":"tools/call","params":{"name":"read_graph"}'
            answer = client.post(b'{"jsonrpc":"2.0","id":%b,%b}' % (odd.encode(), called))
            error = answer.json["error"]
            assert (answer.status, answer.json["id"], error["code"]) == (400, None, -32600), odd
            assert error["message"].startswith("`id` must be a string or an integer, not ")
        assert client.post(b'{"jsonrpc":"2.0","id":null,"method":"notifications/x"}').status == 202


# -- time


def test_a_request_that_never_comes_loses_its_connection(server: HttpServer) -> None:
    with server.connect() as connection:
        assert until_closed(connection) == b""


def test_a_head_that_trickles_in_loses_its_connection(server: HttpServer) -> None:
    """Each byte comes in time, all of them together never do."""
    with server.connect() as connection:
        connection.settimeout(PATIENCE_S / 5)
        for number in range(100):
            try:
                connection.sendall(HEAD[number % len(HEAD) :][:1])
                if connection.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    raise AssertionError("the server waits without end")


def test_a_body_that_trickles_in_is_refused(server: HttpServer) -> None:
    with server.connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert until_closed(connection).startswith(b"HTTP/1.1 408")


def test_a_stream_does_not_wait_for_a_body(server: HttpServer) -> None:
    """Which no client has to send; one that never comes would be waited for as long as for an answer."""
    client = HttpClient(server, "2025-11-25")
    with server.connect() as connection:
        connection.sendall(get_stream(client, Content_Length="1000"))
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")


def test_half_open_clients_hold_up_nobody(server: HttpServer) -> None:
    idle = [server.connect() for _ in range(30)]
    try:
        for connection in idle:
            connection.sendall(HEAD[:20])
        assert HttpClient(server).request("tools/list").status == 200
        for connection in idle:
            assert until_closed(connection) == b""
    finally:
        for connection in idle:
            connection.close()


TOKEN = "a-token-that-nobody-guesses-at-all"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """With few places, which nobody loses for being slow: seven, and one for who has yet to show who he is."""
    with served_http(
        tmp_path_factory.mktemp("crowded"),
        MEMLOG_TOKEN=TOKEN,
        MEMLOG_HTTP_CONNECTIONS_MAX="8",
        MEMLOG_HTTP_PATIENCE_SECONDS="600",
    ) as server:
        yield server


def is_open(connection: socket.socket) -> bool:
    """Whether the server has not closed it; what it sent stays."""
    come = select.poll()
    come.register(connection, select.POLLIN)
    if not come.poll(0):
        return True
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except ConnectionError:
        return False


def whole_answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65_536)
    return head


def listed(connection: socket.socket) -> bytes:
    """The head of what somebody with the token is answered."""
    connection.sendall(asking("tools/list", TOKEN))
    return whole_answer(connection)


def test_a_thousand_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    """As many as the server takes, of one client that sends nothing."""
    with (
        served_http(tmp_path, MEMLOG_TOKEN=TOKEN, MEMLOG_HTTP_PATIENCE_SECONDS="600") as server,
        ExitStack() as held,
    ):
        silent = [held.enter_context(server.connect()) for _ in range(1_000)]
        client = HttpClient(server, "2025-11-25", token=TOKEN)
        assert client.request("tools/list").status == 200
        assert not is_open(silent[0]) and is_open(silent[-1])


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        HEAD[:30],
        HEAD + b"Content-Length: 10\r\nConnection: close\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_who_was_not_let_in_goes_before_who_was(crowded: HttpServer, sent: bytes) -> None:
    with ExitStack() as held:
        known = [held.enter_context(crowded.connect()) for _ in range(4)]
        assert all(b" 200 " in listed(each) for each in known)
        for _ in range(40):
            held.enter_context(crowded.connect()).sendall(sent)
        with crowded.connect() as late:
            assert b" 200 " in listed(late)
        assert all(b" 200 " in listed(each) for each in known)


def test_of_those_let_in_the_one_idle_for_longest_goes_with_its_answer_whole(
    crowded: HttpServer,
) -> None:
    with ExitStack() as held:
        known = [held.enter_context(crowded.connect()) for _ in range(7)]
        for each in known[1:]:
            assert b" 200 " in listed(each)
        known[0].sendall(asking("tools/list", TOKEN))
        assert select.select([known[0]], [], [], DEADLINE_S)[0]
        for each in known[2:]:
            assert b" 200 " in listed(each)
        late = held.enter_context(crowded.connect())
        assert b" 200 " in listed(late)
        assert until_closed(known[1]) == b""
        later = held.enter_context(crowded.connect())
        assert b" 200 " in listed(later)
        assert b" 200 " in whole_answer(known[0]) and until_closed(known[0]) == b""
        assert all(b" 200 " in listed(each) for each in known[2:])


def test_where_all_connections_are_worked_for_one_more_is_refused(crowded: HttpServer) -> None:
    """Requests whose bodies are on their way."""
    request = asking("tools/list", TOKEN)
    with ExitStack() as held:
        busy = [held.enter_context(crowded.connect()) for _ in range(7)]
        for each in busy:
            each.sendall(request.replace(b"Accept", b"Expect: 100-continue\r\nAccept")[:-10])
            assert each.recv(65_536).startswith(b"HTTP/1.1 100")
        with crowded.connect() as one_more:
            one_more.sendall(request)
            refusal = until_closed(one_more)
        assert refusal.startswith(b"HTTP/1.1 503") and b"\r\nretry-after: 1" in refusal.lower()
        error = json.loads(refusal.partition(b"\r\n\r\n")[2])["error"]
        assert "All connections are in use" in error["message"] and error["data"]["suggestion"]
        for each in busy:
            each.sendall(request[-10:])
            assert b" 200 " in whole_answer(each)


def streaming(server: HttpServer, token: str) -> socket.socket:
    """A connection on which a stream has begun."""
    client = HttpClient(server, "2025-11-25", token=token)
    stream = server.connect()
    stream.sendall(get_stream(client))
    assert stream.recv(65_536).startswith(b"HTTP/1.1 200")
    return stream


def lasting(streams: list[socket.socket]) -> list[bool]:
    """Which of them have not ended; what came on them is read."""
    return [not _has_ended(each) for each in streams]


def _has_ended(stream: socket.socket) -> bool:
    come = select.poll()
    come.register(stream, select.POLLIN)
    try:
        while come.poll(0):
            if not stream.recv(65_536):
                return True
    except ConnectionError:
        return True
    return False


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpServer, str, str]]:
    """The same for two who have a token."""
    folder = tmp_path_factory.mktemp("shared")
    guest, owner = (
        run_memlog("token", "new", name, "--right", right, data_dir=folder).stdout.split()[-1]
        for name, right in (("guest", "read"), ("owner", "admin"))
    )
    few = {"MEMLOG_HTTP_CONNECTIONS_MAX": "8", "MEMLOG_HTTP_PATIENCE_SECONDS": "600"}
    with served_http(folder, **few) as server:
        yield server, guest, owner


def test_who_holds_all_connections_with_streams_keeps_nobody_else_out(
    shared: tuple[HttpServer, str, str],
) -> None:
    server, guest, owner = shared
    with ExitStack() as held:
        streams = [held.enter_context(streaming(server, guest)) for _ in range(7)]
        kept = []
        for count in range(1, 4):
            kept.append(held.enter_context(server.connect()))
            kept[-1].sendall(asking("tools/list", owner))
            assert b" 200 " in whole_answer(kept[-1])
            until_closed(streams[count - 1])
            assert lasting(streams) == [False] * count + [True] * (7 - count)
        anew = held.enter_context(streaming(server, guest))
        until_closed(streams[3])
        assert lasting([*streams[3:], anew]) == [False, True, True, True, True]
        for each in kept:
            each.sendall(asking("tools/list", owner))
            assert b" 200 " in whole_answer(each)


def test_who_holds_all_connections_with_parts_of_requests_keeps_nobody_else_out(
    shared: tuple[HttpServer, str, str],
) -> None:
    server, guest, owner = shared
    with ExitStack() as held:
        parts = [held.enter_context(server.connect()) for _ in range(7)]
        for each in parts:
            each.sendall(asking("tools/list", guest))
            assert b" 200 " in whole_answer(each)
            each.sendall(HEAD[:20])
        assert HttpClient(server, token=owner).request("tools/list").status == 200
        until_closed(parts[0])
        assert lasting(parts) == [False] + [True] * 6


def test_who_reads_none_of_many_answers_keeps_nobody_else_out(tmp_path: Path) -> None:
    """The next one has to wait until the client reads the one before: that is no work."""
    guest, owner = (
        run_memlog("token", "new", name, data_dir=tmp_path).stdout.split()[-1]
        for name in ("guest", "owner")
    )
    few = {"MEMLOG_HTTP_CONNECTIONS_MAX": "3", "MEMLOG_HTTP_PATIENCE_SECONDS": "600"}
    with served_http(tmp_path, **few) as server, ExitStack() as held:
        for _ in range(2):
            unread = held.enter_context(socket.socket())
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # else it is all taken
            unread.connect(("127.0.0.1", server.port))
            unread.sendall(60 * asking("tools/list", guest))
        until, answered = time.monotonic() + DEADLINE_S, -1
        while (count := len(server.log())) != answered:  # until nothing more can be sent
            answered = count
            time.sleep(0.5)
        while HttpClient(server, token=owner).request("tools/list").status != 200:
            assert time.monotonic() < until, server.log()[-1]


def test_the_oldest_stream_of_who_has_all_connections_goes_for_the_next_of_the_same(
    crowded: HttpServer,
) -> None:
    with ExitStack() as held:
        streams = [held.enter_context(streaming(crowded, TOKEN)) for _ in range(7)]
        assert HttpClient(crowded, token=TOKEN).request("tools/list").status == 200
        until_closed(streams[0])
        assert lasting(streams) == [False] + [True] * 6


def test_one_place_serves_one_after_another(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_CONNECTIONS_MAX="1") as narrow, ExitStack() as held:
        for _ in range(3):
            connection = held.enter_context(narrow.connect())
            connection.sendall(asking("tools/list"))
            assert b" 200 " in whole_answer(connection)


def test_where_the_only_connection_is_in_use_several_that_come_at_once_are_each_refused(
    tmp_path: Path,
) -> None:
    """None takes the place of one that is refused already, which has none and waits for its answer."""
    request = asking("tools/list")
    limits = {"MEMLOG_HTTP_CONNECTIONS_MAX": "1", "MEMLOG_HTTP_PATIENCE_SECONDS": "600"}
    with served_http(tmp_path, **limits) as narrow, ExitStack() as held:
        busy = held.enter_context(narrow.connect())
        busy.sendall(request.replace(b"Accept", b"Expect: 100-continue\r\nAccept")[:-10])
        assert busy.recv(65_536).startswith(b"HTTP/1.1 100")
        narrow.popen.send_signal(signal.SIGSTOP)
        try:
            more = [held.enter_context(narrow.connect()) for _ in range(6)]
        finally:
            narrow.popen.send_signal(signal.SIGCONT)
        assert [until_closed(each)[:12] for each in more] == [b"HTTP/1.1 503"] * 6
        busy.sendall(request[-10:])
        assert b" 200 " in whole_answer(busy)


def test_as_many_connections_as_are_let_in_leave_room_for_files(tmp_path: Path) -> None:
    """The usual limit to open files is about that of connections; a lower one stands for it here."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, limits[1]))
        try:
            served = served_http(tmp_path, MEMLOG_HTTP_PATIENCE_SECONDS="600")
            crowded = held.enter_context(served)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for _ in range(200):
            held.enter_context(crowded.connect())
        assert HttpClient(crowded)("create_project", name="one more")["name"] == "one more"


def test_where_few_files_are_granted_connections_leave_room_for_files(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))"
    )
    where = f"{tmp_path}:{REPOSITORY}"
    with ExitStack() as held:
        crowded = held.enter_context(served_http(tmp_path, PYTHONPATH=where))
        client = HttpClient(crowded, "2025-11-25")
        with crowded.connect() as kept:
            kept.sendall(get_stream(client))
            assert kept.recv(1_000).startswith(b"HTTP/1.1 200")
            flood = [held.enter_context(crowded.connect()) for _ in range(200)]
            assert until_closed(flood[0]) == b""
            let_in_again(crowded)
            assert client.request("tools/list").status == 200
        assert not [line for line in crowded.log() if line["level"] == "error"]
        for connection in flood:
            connection.close()
        let_in_again(crowded)
        assert client("create_project", name="one more")["name"] == "one more"


def asking(method: str, token: str = "") -> bytes:
    message = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": ENVELOPE}}
    )
    names = f"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n"
    if token:
        names += f"Authorization: Bearer {token}\r\n"
    lines = f"Accept: application/json\r\n{names}Content-Length: {len(message)}\r\n\r\n{message}"
    return HEAD + lines.encode()


def test_a_client_that_asks_on_and_on_without_reading_is_cut_off(server: HttpServer) -> None:
    with server.connect() as connection, pytest.raises(ConnectionError):
        for _ in range(1_000_000):
            connection.sendall(asking("tools/list"))


def test_a_client_that_does_not_take_its_answers_is_cut_off(tmp_path: Path) -> None:
    """Its window is small and its requests are few; the answers are more than the system holds. Of which the time
    begins with the first answer, the server's with the last that finds room: where answers take long the system would
    end the connection first, and without a word. So it has no such option here."""
    without = "import socket; vars(socket).pop('TCP_USER_TIMEOUT', None)"
    (tmp_path / "sitecustomize.py").write_text(without)
    variables = {
        "MEMLOG_HTTP_PATIENCE_SECONDS": str(PATIENCE_S),
        "PYTHONPATH": f"{tmp_path}:{REPOSITORY}",
    }
    with served_http(tmp_path, **variables) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(asking("tools/list") * 80)
        gone = select.poll()
        gone.register(connection, select.POLLERR | select.POLLHUP)
        assert gone.poll(1_000 * DEADLINE_S)


# -- amounts


def test_more_requests_a_second_than_a_token_may_send_are_refused(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_PER_SECOND="2") as limited:
        client = HttpClient(limited)
        answers = [client.request("tools/list") for _ in range(20)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused and answers[0].status == 200
        assert refused[0].headers["retry-after"] == "1"
        assert refused[0].json["error"]["data"]["status"] == 429


def test_large_bodies_of_a_client_that_come_at_once_are_read_one_after_another() -> None:
    """Each counts as several requests. Two hundred a second of three megabytes would be more than anybody can read."""
    statuses = []

    async def app(scope: Scope, receive: Whole, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def body() -> Message:
        return {"type": "http.request", "body": b" " * 3_000_000, "more_body": False}

    async def note(message: Message) -> None:
        statuses.append(message.get("status"))

    async def run() -> None:
        limits = Limits(Settings(http_requests_per_second=1e-6))
        for client in "phone", "phone", "desktop":
            limits.rates.take(client)  # by its head
            bounded = limits.bounded(app, lambda scope: str(scope["client"]))
            await bounded({"type": "http", "client": client}, body, note)

    anyio.run(run)
    assert [each for each in statuses if each] == [200, 429, 200]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"all": [[]] * PARTS_MAX}, 413),
        ({"all": {f"k{n}": 1 for n in range(PARTS_MAX)}}, 413),
        ({"all": ['[{:"\\[[[[['] * 10_000}, 404),
    ],
)
def test_a_body_of_too_many_parts_is_refused(
    tmp_path: Path, params: dict[str, Any], status: int
) -> None:
    """Three megabytes of lists kept everybody else waiting for a second and more; a text may hold what it likes."""
    with served_http(tmp_path) as server:
        assert HttpClient(server).request("unknown", **params).status == status


def test_a_request_that_takes_too_long_is_answered_and_still_done(tmp_path: Path) -> None:
    entities = [{"name": f"e{n}", "entityType": "t", "observations": ["x y"]} for n in range(500)]
    with served_http(tmp_path, MEMLOG_HTTP_REQUEST_SECONDS="0.001") as hasty:
        client = HttpClient(hasty)
        answer = client.request(
            "tools/call", name="create_entities", arguments={"entities": entities}
        )
        assert answer.status == 504 and "may still be done" in answer.json["error"]["message"]
        assert hasty.end() == 0
    with served_http(tmp_path) as patient:
        assert HttpClient(patient)("open_nodes", names=["e499"])["entities"]


class Hesitant(App):
    """Which takes longer than a request may."""

    def _served(self, door: Door, lasting: bool) -> Served:
        async def wait(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
            await anyio.sleep(0.1)
            return await call_next(ctx)

        served = super()._served(door, lasting)
        served.server.middleware.append(wait)
        return served


def test_who_was_told_that_a_handshake_takes_too_long_leaves_no_session(tmp_path: Path) -> None:
    """That nobody would know."""

    async def run() -> tuple[int, int]:
        async with app_over(tmp_path, Hesitant, http_request_seconds=0.01) as app:
            client = {"name": "test", "version": "1"}
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client}
            headers = {"content-type": "application/json", "accept": BOTH}
            answer = await ask(app, request("initialize", 0, params), headers.items())
            return answer.status, app._connections.sessions

    assert anyio.run(run) == (504, 0)


@pytest.mark.parametrize(("size", "status"), [(120_000, 200), (140_000, 413)])
def test_what_is_kept_as_long_as_a_client_listens_is_small(
    tmp_path: Path, size: int, status: int
) -> None:
    """All that a client listens to, and what it says beside that, is there as long as its stream."""
    uris = [f"mem://item/{'x' * (size // 100 - 14)}" for _ in range(100)]
    with served_http(tmp_path) as server, server.connect() as stream:
        params = {"notifications": {"resourceSubscriptions": uris}, "_meta": ENVELOPE}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        body = json.dumps(message).encode()
        names = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n"
        length = f"Accept: {BOTH}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        stream.sendall(HEAD + names + length + body)
        assert stream.recv(65_536).startswith(f"HTTP/1.1 {status}".encode())


def test_requests_of_one_id_at_a_time_keep_no_places(tmp_path: Path) -> None:
    """A session would wait without end for the answers to all but one of them."""
    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_MAX="4") as narrow:
        client = HttpClient(narrow, "2025-11-25")
        entities = [{"name": f"e{n}", "entityType": "t"} for n in range(1_000)]
        client("create_entities", entities=entities)
        params = {"uri": "memory://knowledge-graph"}
        message = {"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": params}
        body = json.dumps(message).encode()
        statuses: list[int] = []
        until = time.monotonic() + DEADLINE_S
        with ThreadPoolExecutor(4) as pool:
            # Where one ends before the next comes, none is refused.
            while len(statuses) < 20 or (409 not in statuses and time.monotonic() < until):
                statuses += [answer.status for answer in pool.map(client.post, [body] * 4)]
        assert {200, 409} <= set(statuses) <= {200, 409, 503}
        assert client.request("tools/list").status == 200


def test_more_requests_at_a_time_than_are_worked_on_are_refused(tmp_path: Path) -> None:
    entities = [{"name": f"e{n}", "entityType": "t", "observations": ["x y"]} for n in range(300)]

    def write(_: int) -> int:
        client = HttpClient(busy)
        return client.request(
            "tools/call", name="create_entities", arguments={"entities": entities}
        ).status

    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_MAX="1") as busy, ThreadPoolExecutor(8) as pool:
        deadline = time.monotonic() + 30
        statuses: set[int] = set()
        while statuses != {200, 503} and time.monotonic() < deadline:
            statuses |= set(pool.map(write, range(8)))
        assert statuses == {200, 503}


def test_who_asks_for_as_much_as_is_worked_on_keeps_nobody_else_out() -> None:
    """One who takes all that he gets, and the next, and the next."""
    limits = Limits(Settings(http_requests_max=100))
    whose: list[str] = []
    begun = anyio.Event()

    async def work(scope: Scope, receive: Whole, send: Send) -> None:
        whose.append(scope["client"])
        await begun.wait()

    async def body() -> Message:
        return {"type": "http.request", "body": b"{}"}

    async def run() -> list[int]:
        refusals: list[int] = []

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                refusals.append(message["status"])

        app = limits.bounded(work, lambda scope: str(scope["client"]))

        async def come(client: str) -> None:
            await app({"type": "http", "client": client}, body, told)

        async with anyio.create_task_group() as tasks:
            for client in "guest", "second", "third", "none left":
                for _ in range(101):
                    tasks.start_soon(come, client)
                await anyio.wait_all_tasks_blocked()
            begun.set()
        return refusals

    refusals = anyio.run(run)
    assert Counter(whose) == {"guest": 90, "second": 9, "third": 1}
    assert refusals == [503] * (4 * 101 - 100)


def test_the_only_request_at_a_time_is_for_whoever_comes(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_MAX="1") as narrow:
        for _ in range(2):
            assert HttpClient(narrow).request("tools/list").status == 200


def test_who_has_no_token_takes_no_place_from_who_has(tmp_path: Path) -> None:
    """Bodies that are announced and never come, within the time that one may take."""
    with (
        served_http(tmp_path, MEMLOG_TOKEN=TOKEN, MEMLOG_HTTP_REQUESTS_MAX="2") as guarded,
        ExitStack() as silent,
    ):
        for _ in range(4):
            connection = silent.enter_context(guarded.connect())
            connection.sendall(HEAD + b"Content-Length: 10\r\n\r\n")
            assert connection.recv(65_536).startswith(b"HTTP/1.1 401")
        assert HttpClient(guarded, token=TOKEN).request("tools/list").status == 200


def test_who_sends_slowly_keeps_nobody_else_out(tmp_path: Path) -> None:
    """Bodies that are begun and do not go on, within the time that one may take, of who has a token for that."""
    tokens = [
        run_memlog("token", "new", name, "--right", "read", data_dir=tmp_path).stdout.split()[-1]
        for name in ("slow", "quick")
    ]
    slow = b"Authorization: Bearer %b\r\nContent-Length: 1000\r\n\r\n{" % tokens[0].encode()
    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_MAX="4") as guarded, ExitStack() as held:
        connections = [held.enter_context(guarded.connect()) for _ in range(6)]
        for connection in connections:
            connection.sendall(HEAD + slow)
        assert until_answered(connections, 2) == [b"503"] * 2
        assert HttpClient(guarded, token=tokens[1]).request("tools/list").status == 200
        assert until_answered(connections, 3) == [b"503"] * 3


def until_answered(connections: list[socket.socket], count: int) -> list[bytes]:
    """The status of each answer, when so many are there; they stay to be read."""
    come = select.poll()
    for connection in connections:
        come.register(connection, select.POLLIN)
    until = time.monotonic() + DEADLINE_S
    while len(answered := [number for number, _ in come.poll(0)]) < count:
        assert time.monotonic() < until, "they are not answered"
        time.sleep(0.01)
    ready = [each for each in connections if each.fileno() in answered]
    return [each.recv(100, socket.MSG_PEEK).split(b" ", 2)[1] for each in ready]


def test_whose_body_is_under_way_is_told_that_the_server_stops(tmp_path: Path) -> None:
    with served_http(tmp_path) as stopping, stopping.connect() as connection:
        connection.sendall(asking("tools/list")[:-1])
        assert HttpClient(stopping).request("tools/list").status == 200  # the other has begun
        assert stopping.end() == 0
        head, _, body = until_closed(connection).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503") and b"\r\nconnection: close" in head.lower()
        assert json.loads(body)["error"]["data"]["status"] == 503
        assert [line for line in stopping.log() if line["level"] == "error"] == []


def test_a_body_that_is_too_large_and_goes_on_keeps_no_place(tmp_path: Path) -> None:
    chunk = b"%x\r\n%s\r\n" % (50_000, b"x" * 50_000)
    limits = {"MEMLOG_HTTP_REQUESTS_MAX": "1", "MEMLOG_HTTP_BODY_BYTES_MAX": str(BODY_MAX)}
    with served_http(tmp_path, **limits) as small, small.connect() as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 413")
        assert HttpClient(small).request("tools/list").status == 200


def test_a_stream_that_has_begun_keeps_no_place(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as pool,
        served_http(tmp_path, MEMLOG_HTTP_REQUESTS_MAX="1") as small,
    ):
        wanted = {"resourceSubscriptions": ["mem://recent"]}
        stream = pool.submit(
            HttpClient(small).request, "subscriptions/listen", notifications=wanted
        )
        while not any(line.get("status") == 200 for line in small.log()):
            time.sleep(0.01)  # until it has begun
        assert HttpClient(small).request("tools/list").status == 200
        assert small.end() == 0
        assert b"subscriptions/acknowledged" in stream.result().body


def test_the_page_of_metrics_counts_for_the_rate_of_its_token(tmp_path: Path) -> None:
    with served_http(tmp_path, MEMLOG_HTTP_REQUESTS_PER_SECOND="2") as limited:
        statuses = {limited.ask("GET", "/metrics", b"", {}).status for _ in range(20)}
        assert statuses == {200, 429}


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("path", [b"/mcp", b"/nowhere"])
def test_who_wants_the_connection_closed_is_told_why_its_large_body_is_refused(
    tmp_path: Path, version: bytes, path: bytes
) -> None:
    """As most proxies do. Closed with the half of the body on its way, it would be a broken connection."""
    status = {b"/mcp": b"401", b"/nowhere": b"404"}[path]
    start = b"POST %s HTTP/%s\r\nHost: localhost\r\nConnection: close\r\n" % (path, version)
    with (
        served_http(tmp_path, MEMLOG_TOKEN=TOKEN) as guarded,
        guarded.connect() as connection,
    ):
        connection.sendall(start + b"Content-Length: 4000000\r\n\r\n")
        for _ in range(400):
            connection.sendall(b" " * 10_000)
        assert until_closed(connection).split(b" ", 2)[1] == status
