"""A child process and its two pipes: one line out, one line back, nothing else on the clock.

Messages are made before and read after what is timed, so the time is that of the pipe and the child.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from memlog.settings import VARIABLES

ROOT = Path(__file__).parent.parent
PROTOCOL = "2025-11-25"
LIFE_SECONDS_MAX = 43_200.0
"""Embedding a million observations takes hours, while children that were started before wait."""

CLOSING_SECONDS_MAX = 60.0

ECHO = (
    sys.executable,
    "-P",
    "-c",
    "import sys\nfor line in sys.stdin.buffer:\n sys.stdout.buffer.write(line)\n sys.stdout.flush()",
)
NO_OP = (sys.executable, "-P", "-m", "bench.no_op_server")
SERVE = (sys.executable, "-P", "-m", "memlog", "serve")


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """This process's, without settings of memlog that the caller's shell may have, and with `more`."""
    ours = {*VARIABLES} - {"MEMLOG_MODEL_DIR"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "PYTHONPATH": str(ROOT), "MEMLOG_LOG_LEVEL": "error", **more}


_living: set[Pipe] = set()


def close_all() -> None:
    """Ends every child, also one whose start or whose call an exception cut short."""
    for pipe in list(_living):
        pipe.close()


class Pipe:
    """A command as a child that answers lines. Its stderr is ours."""

    def __init__(self, command: Sequence[str], **variables: str) -> None:
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(variables),
        )
        _living.add(self)
        assert self._popen.stdin and self._popen.stdout
        self._stdin, self._stdout = self._popen.stdin, self._popen.stdout
        # A child that hangs would hang its caller in readline for ever.
        self._end_of_life = threading.Timer(LIFE_SECONDS_MAX, self._popen.kill)
        self._end_of_life.daemon = True
        self._end_of_life.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, line: bytes) -> bytes:
        """Sends a line and waits for one. Raises ConnectionError where the child has gone."""
        self._stdin.write(line)
        self._stdin.flush()
        return self.read()

    def read(self) -> bytes:
        answer = self._stdout.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionError(f"the child ended with exit code {self._popen.wait()}")
        return answer

    def close(self) -> None:
        with suppress(BrokenPipeError):  # what a child that has gone was not told any more
            self._stdin.close()
        try:
            self._popen.wait(CLOSING_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._stdout.close()
        self._end_of_life.cancel()
        _living.discard(self)


class Server(Pipe):
    """A child that speaks MCP, past its handshake."""

    def __init__(self, command: Sequence[str], **variables: str) -> None:
        super().__init__(command, **variables)
        self._ids = itertools.count(1)
        self.ask(self.hello())
        self._stdin.write(initialized())

    def ping(self) -> bytes:
        return self.request("ping", {})

    def hello(self) -> bytes:
        client = {"name": "bench", "version": "1"}
        return self.request(
            "initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
        )

    def call(self, tool: str, arguments: Mapping[str, Any]) -> bytes:
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        return _line({"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params})


def initialized() -> bytes:
    return _line({"jsonrpc": "2.0", "method": "notifications/initialized"})


def result_of(answer: bytes) -> dict[str, Any]:
    """What a request gave. Raises ValueError for an error, which no benchmark is to measure."""
    message = json.loads(answer)
    result: dict[str, Any] | None = message.get("result")
    if result is None or result.get("isError"):
        raise ValueError(f"the server answered {answer[:500]!r}")
    return result


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
