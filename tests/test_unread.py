"""A server whose stderr is a pipe that nobody reads, and one that is read late: real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.served import environment

DEADLINE_S = 60.0
LINES = 3_000
"""Of nonsense, each of which is logged: several times what a pipe holds."""

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def request(number: int, method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


@contextmanager
def serving(data_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server on stdio, and the end of its stderr at which nobody reads."""
    unread, stderr = os.pipe()
    popen = subprocess.Popen(
        [sys.executable, "-m", "memlog", "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment(MEMLOG_DATA_DIR=str(data_dir)),
    )
    os.close(stderr)
    try:
        yield popen, unread
    finally:
        popen.kill()
        popen.communicate()
        os.close(unread)


def test_a_client_that_never_reads_stderr_is_answered_whatever_is_logged(tmp_path: Path) -> None:
    with serving(tmp_path) as (popen, _):
        sent = request(1, "initialize", **INITIALIZE) + b"nonsense\n" * LINES
        sent += request(2, "tools/call", name="list_projects", arguments={})
        out, _ = popen.communicate(sent, timeout=DEADLINE_S)
        answers = [json.loads(line) for line in out.splitlines()]
        assert {1, 2} <= {answer["id"] for answer in answers}
        assert len(answers) == LINES + 2
        assert popen.returncode == 0


def test_who_reads_stderr_late_is_told_how_much_is_missing_and_reads_no_half_line(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as (popen, unread):
        assert popen.stdin is not None
        assert popen.stdout is not None
        popen.stdin.write(request(1, "initialize", **INITIALIZE) + b"nonsense\n" * LINES)
        popen.stdin.flush()
        for _ in range(LINES + 1):
            assert popen.stdout.readline()
        logged = os.read(unread, 1 << 20)
        popen.communicate(b"nonsense\n", timeout=DEADLINE_S)
        while more := os.read(unread, 1 << 20):
            logged += more
        lines = logged.decode().splitlines()
        refused = [line for line in lines if line.endswith("expected ident at line 1 column 2")]
        (gap,) = [line for line in lines if "is missing, for nobody read stderr" in line]
        assert sorted(lines) == sorted([*refused, gap])
        assert len(refused) + int(gap.split()[-1]) == LINES + 1
