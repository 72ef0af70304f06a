"""An endpoint of embeddings on this machine: a real HTTP server that answers as a test tells it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from projections.embedding.openai import OpenAI

KEY = "sk-secret-of-a-user"
Answer = tuple[int, dict[str, str], bytes | Iterator[bytes]]
"""Of parts, the end is that of the connection."""


def vectors(texts: list[str]) -> Answer:
    """What a sound endpoint says, in an order of its own: 3 numbers a text, of any length."""
    rows = [
        {"object": "embedding", "index": index, "embedding": [len(text), 4.0, 0.5]}
        for index, text in enumerate(texts)
    ]
    return 200, {}, msgspec.json.encode({"object": "list", "data": rows[::-1], "model": "m"})


def saying(status: int, body: bytes | Iterator[bytes] = b"", **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body


def turned(texts: list[str]) -> Answer:
    """Of another model: as wide as `vectors`, and in no direction of theirs."""
    return saying(200, _rows([0.5, 4.0, -len(text)] for text in texts))


def nearly(texts: list[str]) -> Answer:
    """Of the same model as `vectors`, in other precision."""
    return saying(200, _rows([len(text) * 1.1, 3.9, 0.6] for text in texts))


def _rows(vectors: Iterable[list[float]]) -> bytes:
    return msgspec.json.encode({"data": [{"embedding": vector} for vector in vectors]})


class Endpoint(http.server.ThreadingHTTPServer):
    """Answers from a script, then soundly; remembers what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Answer | Callable[[list[str]], Answer]] = []
        self.asked: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.pauses: list[float] = []

    def embedder(self, **options: Any) -> OpenAI:
        given: dict[str, Any] = {
            "base_url": self.url,
            "api_key": KEY,
            "pause": self.pauses.append,
        } | options
        return OpenAI("small", **given)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append({"path": self.path, "headers": dict(self.headers), "body": body})
        answer = self.server.script.pop(0) if self.server.script else vectors
        status, headers, content = answer(body["input"]) if callable(answer) else answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        parts = [content] if isinstance(content, bytes) else content
        if isinstance(content, bytes):
            self.send_header("Content-Length", str(len(content)))
        with suppress(ConnectionError):  # who asked may have ended meanwhile
            self.end_headers()
            for part in parts:
                self.wfile.write(part)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are no output of a test."""


@contextmanager
def endpoint_up() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
