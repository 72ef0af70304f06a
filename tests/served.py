"""A real `memlog serve` process with its pipes in hand, for tests that look from outside.

Every wait has a deadline. Lines are read by a thread of their own, so a server that answers with
megabytes never waits for a test that still writes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Literal

from memlog.settings import VARIABLES
from tests.service import Refused

REPOSITORY = Path(__file__).parents[1]
MEMLOG = ("-m", "memlog")
"""What Python runs, to be the command line."""

DEADLINE_S = 60.0
FOLLOWED_S = 5 * DEADLINE_S
"""For what is done in the background, which gets next to nothing of a processor while others are busy."""

STILL_AT_IT = "left as it is on disk"
"""So a server says of an index that it has waited for long enough, as happens where disk or processors are busy."""

Era = Literal["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
Message = dict[str, Any]

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def environment(**variables: str) -> dict[str, str]:
    """That of this process without anyone's settings of memlog; by words only unless told."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    ours = {
        "PYTHONPATH": str(REPOSITORY),
        "MEMLOG_EMBEDDER": "none",
        "MEMLOG_LOG_LEVEL": "warn",
    }
    return kept | ours | variables


class Pipe:
    """A process that speaks JSON-RPC, a message a line, on its stdin and stdout."""

    def __init__(self, command: list[str], variables: dict[str, str], era: Era) -> None:
        self._era = era
        self._ids = count(1)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=variables,
        )
        self._reader = Thread(target=self._read_lines, daemon=True)
        self._reader.start()
        if era != "2026-07-28":
            self._shake_hands()

    def _read_lines(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if line.endswith(b"\n"):  # a killed server may leave half a line behind
                self._lines.put(line)
        self._lines.put(b"")

    def _shake_hands(self) -> None:
        answer = self.request(
            "initialize",
            protocolVersion=self._era,
            capabilities={},
            clientInfo={"name": "test", "version": "1"},
        )
        assert answer["result"]["protocolVersion"] == self._era
        self.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    # -- messages

    def write(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(data)
        self.popen.stdin.flush()

    def read_line(self) -> bytes:
        """The next message as it came; nothing where the server has ended."""
        try:
            return self._lines.get(timeout=DEADLINE_S)
        except Empty:
            raise TimeoutError(
                f"no answer within {DEADLINE_S} s; stderr: {self.stderr()}"
            ) from None

    def read(self) -> Message | None:
        """The next message; None where the server has ended."""
        line = self.read_line()
        if not line:
            return None
        message: Message = json.loads(line)
        return message

    def send(self, method: str, /, **params: Any) -> int:
        """Sends a request and returns its id, without waiting."""
        number = next(self._ids)
        if self._era == "2026-07-28":
            params["_meta"] = ENVELOPE | params.get("_meta", {})
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")
        return number

    def request(self, method: str, /, **params: Any) -> Message:
        number = self.send(method, **params)
        answer = self.read()
        assert answer is not None, f"the server ended instead of answering: {self.stderr()}"
        assert answer["id"] == number
        return answer

    # -- tools

    def send_call(self, tool: str, /, **arguments: Any) -> int:
        return self.send("tools/call", name=tool, arguments=arguments)

    def result(self, tool: str, /, **arguments: Any) -> Message:
        """The whole result of a call; a JSON-RPC error fails the test."""
        answer = self.request("tools/call", name=tool, arguments=arguments)
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    def __call__(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """`structuredContent` of a call. Raises Refused for an answer with isError."""
        result = self.result(tool, **arguments)
        if result.get("isError"):
            raise Refused(result["structuredContent"]["error"])
        structured: dict[str, Any] = result["structuredContent"]
        return structured

    # -- the end

    def close_stdin(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def end(self) -> tuple[int, str]:
        """Waits for it: exit code and stderr, but for what is said on a busy machine alone."""
        code = self.popen.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        lines = self.stderr().splitlines(keepends=True)
        return code, "".join(line for line in lines if STILL_AT_IT not in line)

    def kill(self) -> None:
        """Ends it as a power failure would, and waits until it is gone."""
        self.popen.kill()
        self.end()

    def release(self) -> None:
        if self.popen.poll() is None:
            self.kill()
        for stream in (self.popen.stdin, self.popen.stdout, self._stderr):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # a killed server took what was still in the buffer with it


def start(
    data_dir: Path,
    *flags: str,
    era: Era = "2026-07-28",
    program: Sequence[str] = MEMLOG,
    variables: dict[str, str] | None = None,
) -> Pipe:
    """`memlog serve` over `data_dir`. The caller releases it."""
    command = [sys.executable, *program, "serve", "--data-dir", str(data_dir), *flags]
    return Pipe(command, environment(**(variables or {})), era)


@contextmanager
def served(
    data_dir: Path,
    *flags: str,
    era: Era = "2026-07-28",
    program: Sequence[str] = MEMLOG,
    **variables: str,
) -> Iterator[Pipe]:
    """`memlog serve` over `data_dir`, killed at the end unless it has ended."""
    server = start(data_dir, *flags, era=era, program=program, variables=variables)
    try:
        yield server
    finally:
        server.release()


def all_facts(server: Pipe, name: str) -> list[str]:
    """What an entity says, page by page, the oldest first."""
    pages = [server("open_nodes", names=[name])]
    while "nextCursor" in pages[-1]:
        pages.append(server("open_nodes", names=[name], cursor=pages[-1]["nextCursor"]))
    return [fact for page in reversed(pages) for fact in page["entities"][0]["observations"]]


def run_memlog(
    *arguments: str | Path, data_dir: Path, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs one command of the command line to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "memlog", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        env=environment(MEMLOG_DATA_DIR=str(data_dir), **variables),
        timeout=DEADLINE_S,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )
