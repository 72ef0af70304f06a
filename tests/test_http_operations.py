"""What those see who run the server: health, metrics, the log, TLS."""

from __future__ import annotations

import http.client
import json
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from http.client import HTTPSConnection
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from opentelemetry.trace import NoOpTracer

from memlog.errors import EmbeddingError
from projections import embeddings
from projections.embedding import Embedder, EmbedderSpec
from projections.vectors.index import Vectors
from server.http.listening import OPENING_MAX
from server.http.metrics import Metrics
from server.http.progress import progress
from tests.asgi import Answer, app_over, ask
from tests.certificates import certificate_of_its_own
from tests.connected import joined, run
from tests.embedder_by_hash import ByHash, opened_by_hash
from tests.http_served import BOTH, HttpClient, HttpServer, served_http, until_told
from tests.idle_follower import Idle
from tests.served import DEADLINE_S, FOLLOWED_S, REPOSITORY, run_memlog
from tests.service import Client, client_on

JON = {"name": "Jon", "entityType": "person", "observations": ["likes dancing"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    with served_http(tmp_path_factory.mktemp("operated")) as server:
        HttpClient(server)("create_entities", entities=[JON])
        HttpClient(server)("search_nodes", query="dancing")
        yield server


def until_ready(server: HttpServer) -> Any:
    until = time.monotonic() + FOLLOWED_S
    while (answer := server.get("/readyz")).status != 200 and time.monotonic() < until:
        time.sleep(0.05)
    return answer.json


def test_it_is_alive_and_ready(server: HttpServer) -> None:
    assert server.get("/healthz").json == {"status": "alive"}
    assert until_ready(server) == {"status": "ready", "late": []}


def test_it_is_late_while_a_projection_has_not_seen_what_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower never comes, and what was written counts as due at once."""
    monkeypatch.setattr("server.http.progress.LAG_SECONDS_MAX", -1)
    monkeypatch.setattr("server.following.QUIET_SECONDS", DEADLINE_S)
    monkeypatch.setattr("server.following.BEHIND_SECONDS_MAX", DEADLINE_S)
    with client_on(tmp_path) as client:
        client("create_entities", entities=[JON])
        client.service.open("default").projections.text()
        (before,) = progress(client.service)
        client("create_entities", entities=[{**JON, "name": "Ann"}])
        (after,) = progress(client.service)
        assert (before.late, after.late) == ((), ("text",))
        assert (before.behind("text"), after.behind("text")) == (0, 2)


def test_text_and_analytics_of_a_project_catch_up_while_an_endpoint_keeps_the_texts_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answered = Event(), Event()

    class Hanging(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            asked.set()
            answered.wait(2 * FOLLOWED_S)
            return super().embed(texts)

    monkeypatch.setattr(embeddings, "open_embedder", lambda spec: Hanging())
    monkeypatch.setattr("server.http.progress.LAG_SECONDS_MAX", -1)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_project", name="other")
        client("create_entities", project="other", entities=[JON])
        assert asked.wait(FOLLOWED_S)
        client("create_entities", project="default", entities=[JON])
        projections = client.service.open("default").projections
        head, until = projections.head(), time.monotonic() + FOLLOWED_S
        seen: dict[str, int] = {}
        try:
            while {seen.get(each) for each in ("text", "analytics")} != {head}:
                assert time.monotonic() < until, seen
                time.sleep(0.05)
                seen = projections.positions()
            assert [each.late for each in progress(client.service)] == [(), ()]
        finally:
            answered.set()


def until_nothing_is_late(client: Client) -> None:
    """By looking alone, as what watches a server does."""
    until = time.monotonic() + FOLLOWED_S
    while late := [each for each in progress(client.service) if each.late]:
        assert time.monotonic() < until, late
        time.sleep(0.3)  # longer than the follower waits for a quiet moment


def test_what_another_process_wrote_is_caught_up_without_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.progress.LAG_SECONDS_MAX", -1)
    with client_on(tmp_path) as client:
        client("create_entities", entities=[JON])
        client("search_nodes", query="dancing")
        until_nothing_is_late(client)
        done = run_memlog("undo", "--project", "default", data_dir=tmp_path, stdin=b"y\n")
        assert done.returncode == 0, done.stderr
        until_nothing_is_late(client)


def test_what_another_process_indexed_is_not_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower of this one never comes."""
    with client_on(tmp_path) as client:
        client("create_entities", entities=[JON])
        client.service.open("default").projections.text()
        monkeypatch.setattr("server.http.progress.LAG_SECONDS_MAX", -1)
        monkeypatch.setattr("server.following.QUIET_SECONDS", DEADLINE_S)
        monkeypatch.setattr("server.following.BEHIND_SECONDS_MAX", DEADLINE_S)
        assert run_memlog("undo", data_dir=tmp_path, stdin=b"y\n").returncode == 0
        assert run_memlog("doctor", data_dir=tmp_path).returncode == 0
        (seen,) = progress(client.service)
        assert ("text" in seen.late, seen.behind("text")) == (False, 0)


def test_no_project_stays_behind_where_many_are_written_and_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.http.progress.LAG_SECONDS_MAX", -1)
    with client_on(tmp_path) as client:
        for number in range(12):
            client("create_project", name=f"p{number}")
        for number in range(12):
            client("search_nodes", project=f"p{number}", query="dancing")
        until_nothing_is_late(client)
        assert len([*progress(client.service)]) >= 12


def metric(page: str, pattern: str) -> float:
    found = re.search(rf"^memlog_{pattern} (\S+)$", page, re.MULTILINE)
    assert found, f"{pattern} is not in\n{page}"
    return float(found[1])


AWAY = {"embedder": "openai", "embedder_url": "http://127.0.0.1:9/v1", "embedder_retries": 0}
"""Nobody listens there."""

PENDING = r'embeddings_pending\{project="default"\}'
VECTORS_LAG = r'projection_lag\{project="default",projection="vectors"\}'


def metrics_of(client: Client) -> str:
    return Metrics(client.service, lambda: 0).page().decode()


def test_texts_wait_to_be_embedded_while_the_embedder_cannot_be_loaded(tmp_path: Path) -> None:
    with client_on(tmp_path, **AWAY) as client:
        client("create_entities", entities=[JON])
        page = metrics_of(client)
        assert (metric(page, PENDING), metric(page, VECTORS_LAG)) == (3, 3)
    with client_on(tmp_path, **AWAY) as client:
        client("search_nodes", query="dancing")
        assert metric(metrics_of(client), PENDING) == 3
    with client_on(tmp_path) as client:  # switched off, nothing waits
        client("search_nodes", query="dancing")
        page = metrics_of(client)
        assert metric(page, PENDING) == 0 and 'projection="vectors"' not in page


def test_of_an_embedder_that_cannot_be_loaded_what_is_on_disk_counts_and_of_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(spec: EmbedderSpec) -> Embedder:
        raise EmbeddingError("it is away")

    monkeypatch.setattr("server.service.Follower", Idle)
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    own = {"embedder": "minilm", "embedder_model": "own"}
    with client_on(tmp_path, **own) as client:
        client("create_entities", entities=[JON])
        client.service.open("default").projections.vectors().save()
        client("create_entities", entities=[{**JON, "name": "Ann"}])
    monkeypatch.setattr(embeddings, "open_embedder", away)
    for settings, pending in ((own, 2), ({**own, "embedder_model": "other"}, 5)):
        with client_on(tmp_path, **settings) as client:
            client.service.open("default")
            assert metric(metrics_of(client), PENDING) == pending


def test_vectors_that_nobody_asked_for_since_the_start_are_taken_up_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their texts are embedded, and wait for nothing but that somebody opens them."""
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[JON])
        client.service.open("default").projections.vectors()
    with client_on(tmp_path, embedder="minilm") as client:
        client.service.embeddings.get()
        client.service.open("default")
        until = time.monotonic() + FOLLOWED_S
        while metric(metrics_of(client), PENDING):
            assert time.monotonic() < until
            time.sleep(0.3)  # longer than the follower waits for a quiet moment


def test_a_project_that_another_process_archived_is_in_no_metric(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_project", name="other")
        client("create_entities", entities=[JON], project="other")
        assert metric(metrics_of(client), r'log_head\{project="other"\}') == 3
        assert run_memlog("projects", "archive", "other", data_dir=tmp_path).returncode == 0
        assert '"other"' not in metrics_of(client)


def test_metrics_count_calls_by_tool_and_outcome(server: HttpServer) -> None:
    HttpClient(server).request("tools/call", name="open_nodes", arguments={"nams": []})
    page = server.get("/metrics").body.decode()
    assert metric(page, r'calls_total\{outcome="ok",tool="create_entities"\}') == 1
    assert metric(page, r'calls_total\{outcome="INVALID_PARAMETER",tool="open_nodes"\}') >= 1
    assert metric(page, r'call_seconds_count\{tool="create_entities"\}') == 1
    assert metric(page, r'http_answers_total\{status="200"\}') >= 2


def test_metrics_tell_where_the_log_and_its_projections_are(server: HttpServer) -> None:
    lag = r'projection_lag\{project="default",projection="text"\}'
    until = time.monotonic() + FOLLOWED_S
    while metric(page := server.get("/metrics").body.decode(), lag) and time.monotonic() < until:
        time.sleep(0.05)  # the follower waits for a quiet moment
    assert metric(page, lag) == 0
    assert metric(page, r'log_head\{project="default"\}') == 3
    assert metric(page, r'embeddings_pending\{project="default"\}') == 0
    assert metric(page, "open_projects") == 1
    assert metric(page, "open_sessions") == 0
    HttpClient(server, "2025-11-25")
    assert metric(server.get("/metrics").body.decode(), "open_sessions") == 1


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("POST", b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'),
        ("POST", b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'),
        ("GET", b""),
        ("DELETE", b""),
    ],
)
def test_who_is_refused_a_session_is_named_none_and_none_is_kept(
    server: HttpServer, method: str, body: bytes
) -> None:
    before = metric(server.get("/metrics").body.decode(), "open_sessions")
    headers = {"Content-Type": "application/json", "Accept": BOTH}
    answer = server.ask(method, "/mcp", body, headers)
    assert "error" in answer.json and "mcp-session-id" not in answer.headers
    assert metric(server.get("/metrics").body.decode(), "open_sessions") == before


def test_a_request_id_comes_back_and_stands_in_the_log(server: HttpServer) -> None:
    given = server.get("/nowhere", **{"X-Request-Id": "from-the-client.1"})
    assert given.headers["x-request-id"] == "from-the-client.1"
    for odd in ("a b", "x" * 65, "<script>", "ü"):
        made = server.get("/healthz", **{"X-Request-Id": odd}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{16}", made)
    lines = [line for line in server.log() if line.get("request_id") == "from-the-client.1"]
    assert [(line["path"], line["status"]) for line in lines] == [("/nowhere", 404)]


def test_what_is_refused_below_the_application_is_counted_and_logged_under_an_id_of_its_own(
    tmp_path: Path,
) -> None:
    """Behind a request on the same connection, whose body came later than its head."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n"
    with served_http(tmp_path) as server, server.connect() as connection:
        connection.sendall(head + b" " * 70_000)
        connection.recv(65_536)
        connection.sendall(b"GARBAGE\r\n\r\n")
        answer = b""
        while data := connection.recv(65_536):
            answer += data
        found = re.search(rb"^x-request-id: (\w+)\r$", answer.lower(), re.MULTILINE)
        assert answer.startswith(b"HTTP/1.1 400") and found, answer
        page = server.get("/metrics").body.decode()
        assert metric(page, r'http_answers_total\{status="400"\}') == 1
        (line,) = [line for line in server.log() if line.get("status") == 400]
        assert line["request_id"] == found[1].decode()
        assert [line for line in server.log() if line["logger"] == "uvicorn.error"] == []


def test_what_watches_a_server_all_day_is_not_in_its_log_while_it_is_well(
    server: HttpServer,
) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/nowhere"):
        server.get(path, **{"X-Request-Id": "watching"})
    server.ask("POST", "/healthz", b"", {"X-Request-Id": "watching"})
    lines = [line for line in server.log() if line.get("request_id") == "watching"]
    assert [(line["path"], line["status"]) for line in lines] == [
        ("/nowhere", 404),
        ("/healthz", 405),
    ]


def test_what_libraries_tell_of_themselves_is_not_in_the_log(tmp_path: Path) -> None:
    """The loader of faiss names each variant that it did not find, with the exception; filelock each look at an index,
    which whoever may connect has taken by asking whether the server is ready."""
    with served_http(tmp_path, MEMLOG_EMBEDDER="minilm", MEMLOG_LOG_LEVEL="debug") as server:
        client = HttpClient(server)
        client("store_memory", content="was a banker")
        client("search_nodes", query="money", mode="semantic")
        server.get("/readyz")
        assert {line["logger"] for line in server.log()} == {"memlog.http"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("GET", "/mcp//", 404), ("PUT", "/mcp", 405), ("POST", "/healthz", 405)],
)
def test_what_is_not_served_is_refused_as_json(
    server: HttpServer, method: str, path: str, status: int
) -> None:
    answer = server.ask(method, path, b"", {})
    assert (answer.status, answer.json["error"]["data"]["status"]) == (status, status)


def test_an_address_with_a_slash_too_many_is_told_so(tmp_path: Path) -> None:
    with served_http(tmp_path) as server:
        for path, advised in (("/mcp//", True), ("/healthz/", True), ("/", False), ("/x", False)):
            answer = server.ask("POST", path, b"{}", {"Content-Type": "application/json"})
            assert answer.status == 404
            said = answer.json["error"]["data"].get("suggestion", "")
            assert (said == "Leave out the slash at the end.") == advised, path


def test_who_looks_for_an_authorization_server_here_is_told_that_the_token_is_meant(
    server: HttpServer,
) -> None:
    """VS Code, mcp-remote and others do where a token is refused and no issuer named; some show what they are told."""
    for method, path in (("POST", "/register"), ("GET", "/authorize"), ("POST", "/token")):
        answer = server.ask(method, path, b"{}", {"Content-Type": "application/json"})
        assert answer.status == 404
        said = answer.json["error"]["data"]["suggestion"]
        assert "no authorization server" in said and "Authorization: Bearer TOKEN" in said


def test_a_project_with_a_slash_in_its_name_is_reached_by_its_path(server: HttpServer) -> None:
    HttpClient(server)("create_project", name="a/b")
    there = HttpClient(server, path="/mcp/p/a%2Fb")
    assert there("get_current_project")["project"] == "a/b"
    assert HttpClient(server, path="/mcp/p/a%2Fc").request("tools/list").status == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/default"])
def test_a_method_that_is_not_served_is_not_named_as_allowed(server: HttpServer, path: str) -> None:
    refused = server.ask("OPTIONS", path, b"", {})
    assert refused.status == 405
    assert set(refused.headers["allow"].split(", ")) == {"POST", "GET", "DELETE"}
    assert server.ask("HEAD", path, b"", {}).status == 405


def test_what_nobody_foresaw_is_answered_as_json_with_the_id_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*arguments: Any) -> None:
        raise RuntimeError("swordfish")

    async def scenario() -> Answer:
        async with app_over(tmp_path) as app:
            headers = [("X-Request-Id", "mine"), ("Content-Type", "application/json")]
            return await ask(app, b"{}", headers)

    monkeypatch.setattr("server.http.connections.Connections.handle", fail)
    answer = run(scenario)
    assert (answer.status, answer.json["error"]["code"]) == (500, -32603)
    assert answer.json["error"]["message"] == "Internal error (request mine in the log)"
    assert caplog.text.count("RuntimeError: swordfish") == 1


def test_a_usual_project_that_is_put_away_is_no_failure_of_the_start(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_project", name="default")
        client("archive_project", name="default")
    with served_http(tmp_path) as server:
        until_ready(server)
        assert [line for line in server.log() if line["level"] == "error"] == []


def test_a_port_that_is_taken_is_named(server: HttpServer, tmp_path: Path) -> None:
    port = str(server.port)
    ended = run_memlog("serve", "--transport", "http", "--port", port, data_dir=tmp_path)
    assert ended.returncode == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in ended.stderr


def test_a_warning_of_a_library_is_a_line_of_json_too() -> None:
    """Also once what looks for credentials was loaded, which sets aside who is told of warnings."""
    script = """
import logging, warnings
from server.http.logs import log_json_to_stderr
from server.rights.detectors import detectors

log_json_to_stderr(logging.INFO)
detectors()
warnings.warn("the key is short", stacklevel=1)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        timeout=DEADLINE_S,
        capture_output=True,
        check=True,
    )
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (line["level"], line["message"]) == ("warning", "UserWarning: the key is short")


# -- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate_of_its_own(tmp_path_factory.mktemp("tls"))


def test_https_is_served_with_a_certificate(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with served_http(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(cert))
        connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=DEADLINE_S)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize(
    ("ciphers", "taken"),
    [("ECDHE+AESGCM", True), ("ECDHE+CHACHA20", True), ("ECDHE+AES:!AESGCM", False)],
)
def test_tls_is_opened_with_no_cipher_that_chains_blocks(
    tmp_path: Path, certificate: tuple[Path, Path], ciphers: str, taken: bool
) -> None:
    """Scanners of TLS find fault with them (LUCKY13)."""
    cert, key = certificate
    context = ssl.create_default_context(cafile=str(cert))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    with served_http(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        if taken:
            serial_shown(server, context)
        else:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                serial_shown(server, context)


def test_a_tls_handshake_that_never_comes_loses_its_connection(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    variables = {"MEMLOG_TLS_CERT": cert, "MEMLOG_TLS_KEY": key}
    with served_http(tmp_path, MEMLOG_HTTP_PATIENCE_SECONDS="0.5", **variables) as server:
        for begun in (b"", b"\x16\x03\x01\x02\x00"):
            with server.connect() as connection:
                connection.settimeout(DEADLINE_S / 3)
                connection.sendall(begun)
                assert connection.recv(1) == b""


def test_clients_that_never_open_tls_leave_files_to_open(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """Nobody counts a connection before TLS is open; and the usual limit to open files is soon reached."""
    cert, key = map(str, certificate)
    variables = {"MEMLOG_TLS_CERT": cert, "MEMLOG_TLS_KEY": key}
    with (
        ExitStack() as held,
        served_http(tmp_path, MEMLOG_HTTP_CONNECTIONS_MAX="4", **variables) as server,
    ):
        come = [held.enter_context(server.connect()) for _ in range(4 + OPENING_MAX + 20)]
        turned_away = 0
        while turned_away < 20:
            ready, _, _ = select.select(come, [], [], DEADLINE_S)
            assert ready, f"{turned_away} of {len(come)} were turned away"
            for connection in ready:
                assert connection.recv(1) == b""
                come.remove(connection)
                turned_away += 1
        assert len(come) == 4 + OPENING_MAX
        for connection in come:
            connection.close()
        context = ssl.create_default_context(cafile=cert)
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:  # until it has seen that they were closed
            again = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=DEADLINE_S)
            with suppress(ConnectionError, ssl.SSLEOFError), closing(again):
                again.request("GET", "/healthz")
                assert again.getresponse().status == 200
                return
            time.sleep(0.05)
        raise AssertionError("whoever comes later is turned away, too")


def serial_shown(server: HttpServer, context: ssl.SSLContext) -> int:
    with (
        server.connect() as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as opened,
    ):
        der = opened.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number


def test_a_certificate_that_was_renewed_is_shown_from_a_hangup_on_and_a_bad_one_never(
    tmp_path: Path,
) -> None:
    """Here from one kind of key to another, and the connections that are open go on."""
    cert, key = certificate_of_its_own(tmp_path, rsa.generate_private_key(65537, 2048))
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with served_http(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        open_before = HTTPSConnection("127.0.0.1", server.port, context=anybody, timeout=DEADLINE_S)
        open_before.connect()
        first = serial_shown(server, anybody)
        certificate_of_its_own(tmp_path)
        assert serial_shown(server, anybody) == first
        server.popen.send_signal(signal.SIGHUP)
        until_told(server, "were read anew")
        second = serial_shown(server, anybody)
        assert second != first
        key.write_bytes(cert.read_bytes())
        server.popen.send_signal(signal.SIGHUP)
        refused = until_told(server, "still shown")
        assert refused["level"] == "error" and str(key) in refused["message"]
        assert serial_shown(server, anybody) == second
        open_before.request("GET", "/healthz")
        assert open_before.getresponse().status == 200
        open_before.close()
        assert server.end() == 0


@pytest.mark.parametrize(
    "sent",
    [
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    ],
    ids=["answered", "sending"],
)
def test_the_end_waits_for_no_client_to_close_tls_in_turn(
    tmp_path: Path, certificate: tuple[Path, Path], sent: str
) -> None:
    """Those that keep a connection for later look at it when they ask again."""
    cert, key = certificate
    context = ssl.create_default_context(cafile=str(cert))
    with (
        served_http(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server,
        server.connect() as connection,
        context.wrap_socket(connection, server_hostname="127.0.0.1") as opened,
    ):
        opened.sendall(sent.encode())
        assert opened.recv(100).startswith(b"HTTP/1.1 ")
        assert server.end() == 0
        assert {each["level"] for each in server.log()} == {"info"}


def test_who_gives_way_is_not_waited_for_to_close_tls_in_turn(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    """Else those whose places were taken would keep others out by being open still."""
    cert, key = map(str, certificate)
    context = ssl.create_default_context(cafile=cert)
    variables = {
        "MEMLOG_TLS_CERT": cert,
        "MEMLOG_TLS_KEY": key,
        "MEMLOG_HTTP_CONNECTIONS_MAX": "2",
        "MEMLOG_HTTP_PATIENCE_SECONDS": "600",
    }
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with served_http(tmp_path, **variables) as server, ExitStack() as held:
        raw = [held.enter_context(server.connect()) for _ in range(2)]
        below = held.enter_context(socket.fromfd(raw[0].fileno(), raw[0].family, raw[0].type))
        below.settimeout(DEADLINE_S)
        for each in raw:
            opened = held.enter_context(context.wrap_socket(each, server_hostname="127.0.0.1"))
            opened.sendall(asked)
            assert opened.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises(ConnectionResetError):
            while below.recv(65_536):
                pass
        assert {each["level"] for each in server.log()} == {"info"}


def test_a_hangup_ends_no_server_that_has_no_certificate(tmp_path: Path) -> None:
    with served_http(tmp_path) as server:
        server.popen.send_signal(signal.SIGHUP)
        until_told(server, "no certificate")
        assert server.get("/healthz").status == 200
        assert server.end() == 0


def test_who_could_not_open_tls_is_told_of_in_the_log_with_the_reason(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    with served_http(tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as server:
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.get("/healthz")
        told = until_told(server, "TLS was not opened from 127.0.0.1: ")
        assert "http request" in told["message"] and told["level"] == "info"
        until = time.monotonic() + DEADLINE_S
        while not any("unknown ca" in each["message"] for each in server.log()):
            assert time.monotonic() < until, server.log()
            with suppress(ssl.SSLError):  # who does not trust it; one a second is told of
                serial_shown(server, ssl.create_default_context())
            time.sleep(0.05)
        assert sum("TLS was not" in each["message"] for each in server.log()) == 2


def test_a_key_with_a_password_is_refused_and_the_password_not_asked_for(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"swordfish"),
        )
    )
    flags = ("--port", "0", "--tls-cert", cert, "--tls-key", locked)
    told = b"swordfish\n" * 2
    ended = run_memlog("serve", "--transport", "http", *flags, data_dir=tmp_path, stdin=told)
    assert ended.returncode == 1
    assert "cannot be used: the key has a password" in ended.stderr
    assert "pass phrase" not in ended.stderr


@pytest.mark.parametrize(
    ("cert", "key", "said"),
    [
        (True, False, "one of them is missing"),
        (True, True, "cannot be used"),
    ],
)
def test_a_certificate_without_its_key_is_refused(
    tmp_path: Path, certificate: tuple[Path, Path], cert: bool, key: bool, said: str
) -> None:
    flags: list[str | Path] = ["--tls-cert", certificate[0]] if cert else []
    flags += ["--tls-key", certificate[0]] if key else []
    ended = run_memlog("serve", "--transport", "http", "--port", "0", *flags, data_dir=tmp_path)
    assert ended.returncode == 1
    assert said in ended.stderr


def test_of_certificate_and_key_the_file_that_cannot_be_read_is_named(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    files = {"MEMLOG_TLS_CERT": str(certificate[0]), "MEMLOG_TLS_KEY": str(tmp_path / "nowhere")}
    arguments = ("serve", "--transport", "http", "--port", "0")
    ended = run_memlog(*arguments, data_dir=tmp_path, stdin=b"", **files)
    assert ended.returncode == 1
    assert f"No such file or directory: '{tmp_path / 'nowhere'}'" in ended.stderr


# -- spans


def test_a_call_is_a_span_of_whatever_opentelemetry_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's tracer is that of the provider set for the process; here it is one that notes names."""
    started: list[str] = []

    class Noting(NoOpTracer):
        def start_as_current_span(self, name: str, *args: Any, **keywords: Any) -> Any:
            started.append(name)
            return super().start_as_current_span(name, *args, **keywords)

    async def scenario() -> None:
        async with joined(tmp_path) as server:
            await server.call("open_nodes", names=["Jon"])

    monkeypatch.setattr("mcp.shared._otel._tracer", Noting())
    run(scenario)
    assert "tools/call open_nodes" in started


@pytest.mark.parametrize(
    ("flush", "said"),
    [("print('sent', flush=True)", b"sent\n"), ("Event().wait()", b""), ("1 / 0", b"")],
)
def test_spans_are_sent_at_the_end_which_waits_for_them_briefly_and_ends_in_any_case(
    flush: str, said: bytes
) -> None:
    """Of the SDK of OpenTelemetry, which is not among what memlog runs on, this is what is asked."""
    script = f"""
from threading import Event
from opentelemetry import trace
from server.stdio.leaving import leave

class Provider(trace.NoOpTracerProvider):
    def force_flush(self, timeout_millis=30_000):
        {flush}

trace.set_tracer_provider(Provider())
leave(3)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, cwd=REPOSITORY, timeout=DEADLINE_S, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, said)
