"""`memlog health` asks the server that the settings describe, over HTTP and TLS, and tells well from anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.certificates import certificate_of_its_own
from tests.command_line import CommandLine, Ended
from tests.http_served import served_http
from tests.served import DEADLINE_S, FOLLOWED_S


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return certificate_of_its_own(tmp_path)


def ready(memlog: CommandLine, **variables: str) -> Ended:
    """The health of a server that may still be starting."""
    return memlog("health", "--json", "--wait", str(FOLLOWED_S), **variables)


OPEN = {"MEMLOG_TOKEN": "t" * 32, "MEMLOG_ALLOWED_HOSTS": "memory.example.com"}


@pytest.mark.parametrize(
    ("host", "reached"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "127.0.0.1")],
)
def test_a_server_is_found_where_the_settings_say_whoever_may_reach_it(
    memlog: CommandLine, host: str, reached: str
) -> None:
    with served_http(memlog.data_dir, "--host", host, **OPEN) as server:
        settings = {"MEMLOG_HTTP_HOST": host, "MEMLOG_HTTP_PORT": str(server.port)}
        assert ready(memlog, **settings).json == {
            "url": f"http://{reached}:{server.port}/readyz",
            "healthy": True,
            "status": "ready",
            "late": [],
            "problem": None,
        }
        said = memlog("health", "--host", host, "--port", str(server.port), "--alive")
        assert said.stdout == f"alive (http://{reached}:{server.port}/healthz)\n"
        server.end()
        ended = memlog("health", **settings)
        assert ended.code == 1
        assert (
            ended.stdout
            == f"unreachable: Connection refused (http://{reached}:{server.port}/readyz)\n"
        )
        assert ended.stderr.startswith("hint: Is it started (`memlog serve --transport http`)")


def test_a_certificate_that_nobody_vouches_for_is_well(
    memlog: CommandLine, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    tls = {"MEMLOG_TLS_CERT": cert, "MEMLOG_TLS_KEY": key}
    with served_http(memlog.data_dir, "--host", "127.0.0.2", **tls) as server:
        settings = {"MEMLOG_HTTP_HOST": "127.0.0.2", "MEMLOG_HTTP_PORT": str(server.port)}
        health = ready(memlog, **settings, **tls)
        assert health.json["url"] == f"https://127.0.0.2:{server.port}/readyz"
        assert (health.code, health.json["status"]) == (0, "ready")
        assert memlog("health", "--tls-cert", cert, **settings).code == 0
        assert memlog("health", **settings).code == 1, "HTTPS is expected and HTTP was spoken"


def test_the_proxy_of_the_environment_is_not_asked(memlog: CommandLine) -> None:
    with served_http(memlog.data_dir) as server:
        port = str(server.port)
        assert ready(memlog, MEMLOG_HTTP_PORT=port, http_proxy="http://127.0.0.1:9").code == 0


def test_the_path_of_mcp_is_none_of_its_business(memlog: CommandLine) -> None:
    with served_http(memlog.data_dir, MEMLOG_HTTP_PATH="/memory/mcp") as server:
        port = str(server.port)
        assert ready(memlog, MEMLOG_HTTP_PORT=port, MEMLOG_HTTP_PATH="/memory/mcp").code == 0


# -- what a server may say else


@contextmanager
def answering(*statuses: int, body: bytes) -> Iterator[str]:
    """A server of somebody, which answers so, and with the last of these from then on; its port."""
    left = list(statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield str(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_that_is_catching_up_is_not_ready_and_says_with_what(memlog: CommandLine) -> None:
    late = {"status": "catching up", "late": ["analytics", "text"]}
    with answering(503, body=json.dumps(late).encode()) as port:
        ended = memlog("health", "--port", port)
        assert ended.code == 1
        assert ended.stdout == (f"catching up: analytics, text (http://127.0.0.1:{port}/readyz)\n")
        assert memlog("health", "--port", port, "--json").json["late"] == late["late"]


def test_a_server_that_gets_ready_in_time_is_waited_for(memlog: CommandLine) -> None:
    with answering(503, 503, 200, body=b'{"status": "ready"}') as port:
        assert memlog("health", "--port", port).code == 1
        assert memlog("health", "--port", port, "--wait", str(DEADLINE_S)).code == 0
    assert memlog("health", "--port", port, "--wait", "0.1").code == 1


@pytest.mark.parametrize("body", [b"<html>\x1b[2J", b'{"status":"UP"}', b"\xff", b""])
def test_another_server_at_that_port_is_not_well(memlog: CommandLine, body: bytes) -> None:
    with answering(200, body=body) as port:
        ended = memlog("health", "--port", port)
        assert ended.code == 1
        assert ended.stdout.startswith("unknown: 200 OK")
        assert "\x1b" not in ended.stdout


def test_who_takes_too_long_is_not_well(memlog: CommandLine) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        port = str(silent.server_port)
        ended = memlog("health", "--port", port, "--timeout", "0.1", "--json")
    assert (ended.code, ended.json["status"]) == (1, "unreachable")
    assert "timed out" in ended.json["problem"]


@pytest.mark.parametrize("host", ["::", "[::]", "::1"])
def test_an_address_of_ipv6_is_asked_on_its_loopback(memlog: CommandLine, host: str) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:  # so that the port is taken
        port = str(other.server_port)
        ended = memlog("health", "--host", host, "--port", port, "--timeout", "0.1", "--json")
    assert ended.json["url"] == f"http://[::1]:{port}/readyz"


def test_port_zero_says_that_the_port_must_be_named(memlog: CommandLine) -> None:
    ended = memlog("health", MEMLOG_HTTP_PORT="0")
    assert ended.code == 1
    assert "Name it with --port" in ended.stderr


def test_what_is_no_host_is_said_to_be_none(tmp_path: Path) -> None:
    ended = CommandLine(tmp_path)("health", "--host", "two words")
    assert (ended.code, ended.stdout) == (1, "")
    assert "'two words' is not the name of a host" in ended.stderr
