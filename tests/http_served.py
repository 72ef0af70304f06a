"""A real `memlog serve --transport http` process, and a client that sends what it is told to.

The log goes to a file, and so is whole: of a pipe that nobody reads a server leaves out what does not fit.
"""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.served import DEADLINE_S, ENVELOPE, Era, environment
from tests.service import Refused

Message = dict[str, Any]
BOTH = "application/json, text/event-stream"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpServer:
    """The process, its address and its log."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self._log = log
        self.url: str = self._announced()
        self.port = int(urlsplit(self.url).port or 0)

    def _announced(self) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for line in self.log():
                if "url" in line:
                    url: str = line["url"]
                    return url
            if self.popen.poll() is not None:
                break
            time.sleep(0.01)  # a file tells nobody that it has grown
        raise AssertionError(f"the server does not serve: {self._log.read_text()}")

    def log(self) -> list[Message]:
        return [
            json.loads(line)
            for line in self._log.read_text().splitlines(keepends=True)
            if line.startswith("{") and line.endswith("\n")
        ]

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(DEADLINE_S)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, b"", headers)

    def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, answer.read())
        finally:
            connection.close()


class HttpClient:
    """Speaks MCP to a server, a connection for each request; opens a session in the handshake era."""

    def __init__(
        self, server: HttpServer, era: Era = "2026-07-28", *, path: str = "/mcp", token: str = ""
    ) -> None:
        self.server = server
        self.era = era
        self.path = path
        self.headers = {"Content-Type": "application/json", "Accept": BOTH}
        if token:
            self.headers["Authorization"] = f"Bearer {token}"
        self._ids = count(1)
        if era != "2026-07-28":
            self._shake_hands()

    def _shake_hands(self) -> None:
        client = {"name": "test", "version": "1"}
        answer = self.request(
            "initialize", protocolVersion=self.era, capabilities={}, clientInfo=client
        )
        assert answer.status == 200, answer
        self.headers["MCP-Protocol-Version"] = self.era
        if "mcp-session-id" in answer.headers:
            self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert self.post(json.dumps(told).encode()).status == 202

    def post(self, body: bytes, **headers: str) -> Answer:
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.ask("POST", self.path, body, {**self.headers, **headers})

    def request(self, method: str, /, **params: Any) -> Answer:
        headers = {}
        if self.era == "2026-07-28":
            params["_meta"] = ENVELOPE
            headers = {"MCP-Protocol-Version": self.era, "Mcp-Method": method}
            if named := params.get("name", params.get("uri")):
                headers["Mcp-Name"] = named
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return self.post(json.dumps(message).encode(), **headers)

    def __call__(self, tool: str, /, **arguments: Any) -> Message:
        """`structuredContent` of a call. Raises Refused for an answer with isError."""
        answer = self.request("tools/call", name=tool, arguments=arguments)
        assert answer.status == 200, answer
        result = answer.json["result"]
        if result.get("isError"):
            raise Refused(result["structuredContent"]["error"])
        structured: Message = result["structuredContent"]
        return structured

    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.request("tools/list").json["result"]["tools"]}


def until_told(server: HttpServer, text: str, times: int = 1) -> Message:
    """The last of the lines of its log that have `text`, once there are so many."""
    until = time.monotonic() + DEADLINE_S
    while len(found := [each for each in server.log() if text in each["message"]]) < times:
        assert time.monotonic() < until, (text, server.log())
        time.sleep(0.05)
    return found[-1]


def get_stream(client: HttpClient, **headers: str) -> bytes:
    """The head of a request for the stream of a session, as it goes over the socket."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    head = {**client.headers, "Accept": "text/event-stream", "Host": "localhost", **given}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    return f"GET {client.path} HTTP/1.1\r\n{lines}\r\n".encode()


def heard_until(stream: socket.socket, wanted: bytes) -> bytes:
    """What comes by a stream, up to that."""
    heard = b""
    while wanted not in heard:
        heard += (part := stream.recv(1_000))
        assert part, heard
    return heard


@contextmanager
def served_http(data_dir: Path, *flags: str, **variables: str) -> Iterator[HttpServer]:
    """`memlog serve --transport http` over `data_dir` on any free port, killed at the end."""
    data_dir.mkdir(exist_ok=True)
    log = data_dir / "http.log"
    command = [sys.executable, "-m", "memlog", "serve", "--transport", "http", "--port", "0"]
    variables = {"MEMLOG_LOG_LEVEL": "info", **variables}
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [*command, "--data-dir", str(data_dir), *flags],
            stderr=stderr,
            env=environment(**variables),
        ) as popen,
    ):
        try:
            yield HttpServer(popen, log)
        finally:
            if popen.poll() is None:
                popen.kill()
