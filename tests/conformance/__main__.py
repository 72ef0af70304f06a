"""`scripts/conformance`: the official suite, the Inspector's command line, and the TypeScript clients.

    python -m tests.conformance FOLDER      FOLDER holds node_modules; node is on the path

The suite runs over HTTP, against each revision of the protocol. Ends with 1 where a check fails that
`exceptions.txt` does not name in these words, or where nothing fails by one of its lines.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.http_served import HttpServer, served_http
from tests.served import environment

HERE = Path(__file__).parent
REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")
DEADLINE_S = 120


class Excepted(NamedTuple):
    """A check that may fail, if its message holds these words."""

    check: str
    words: str


class Failure(NamedTuple):
    revision: str
    check: str
    message: str


def exceptions() -> set[Excepted]:
    lines = (HERE / "exceptions.txt").read_text().splitlines()
    parts = (line.split(" | ", 1) for line in lines if line and not line.startswith("#"))
    return {Excepted(check, words) for check, words in parts}


def suite(modules: Path, server: HttpServer, results: Path) -> tuple[list[Failure], int]:
    """What fails, and how many checks passed. A revision of which nothing was checked is a failure."""
    failures, passed = [], 0
    program = modules / "@modelcontextprotocol/conformance/dist/index.js"
    for revision in REVISIONS:
        folder = results / revision
        asked = ["--url", f"{server.url}/mcp", "--spec-version", revision, "--suite", "all"]
        command = ["node", str(program), "server", *asked, "-o", str(folder)]
        ended = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        found = list(checks(folder))
        if not found:
            said = (ended.stderr or ended.stdout).decode(errors="replace").strip()[-500:]
            failures.append(Failure(revision, "the suite", f"nothing was checked: {said}"))
        for check in found:
            passed += check["status"] == "SUCCESS"
            if check["status"] == "FAILURE":
                message = check.get("errorMessage", "")
                failures.append(Failure(revision, check["id"], message))
    return failures, passed


def checks(folder: Path) -> Iterator[dict[str, str]]:
    for file in sorted(folder.glob("*/checks.json")):
        yield from json.loads(file.read_text())


def judge(failures: list[Failure]) -> list[str]:
    """What is wrong with these failures, in words."""
    known = exceptions()
    wrong, met = [], set()
    for each in failures:
        found = {line for line in known if line.check == each.check and line.words in each.message}
        met |= found
        if not found:
            wrong.append(f"{each.revision}: {each.check}: {each.message}")
    wrong += [f"nothing fails by this line any more: {' | '.join(line)}" for line in known - met]
    return wrong


def inspect(modules: Path, target: list[str], name: str) -> None:
    """A store, search and supersede round with the Inspector's command line."""
    program = str(modules / ".bin/inspector")

    def call(tool: str, **arguments: str) -> dict[str, object]:
        pairs = [f"{key}={value}" for key, value in arguments.items()]
        given = ["--tool-arg", *pairs] if pairs else []
        command = ["node", program, "--cli", *target, "--method", "tools/call"]
        ended = subprocess.run(
            [*command, "--tool-name", tool, *given],
            capture_output=True,
            env=environment(),
            timeout=DEADLINE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        answer = json.loads(ended.stdout)
        assert not answer.get("isError"), answer
        structured: dict[str, object] = answer["structuredContent"]
        return structured

    def store(content: str) -> str:
        created = call("store_memory", content=content)["created"]
        assert isinstance(created, dict)
        return str(created["id"])

    old, new = store(f"Lives in Seattle ({name})"), store(f"Moved to Austin ({name})")
    call("supersede_memory", old_memory_id=old, new_memory_id=new)
    found = call("search_memories", query=f"Seattle Austin {name}")["memories"]
    assert isinstance(found, list)
    ids = [each["id"] for each in found]
    assert new in ids and old not in ids, ids
    print(f"✓ Inspector over {name}")


def main(folder: Path) -> int:
    # As an exception, so that the server goes, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    modules = folder / "node_modules"
    with tempfile.TemporaryDirectory() as work, served_http(Path(work) / "data") as server:
        failures, passed = suite(modules, server, Path(work) / "results")
        wrong = judge(failures)
        print(f"✓ conformance: {passed} checks passed, {len(failures)} are named exceptions")
        for line in wrong:
            print(f"✗ {line}")
        data_dir = str(Path(work) / "data")
        stdio = [sys.executable, "-m", "memlog", "serve", "--data-dir", data_dir]
        inspect(modules, [f"{server.url}/mcp"], "HTTP")
        inspect(modules, stdio, "stdio")
        command = ["node", str(folder / "round.mjs"), f"{server.url}/mcp", *stdio]
        rounds = subprocess.run(command, env=environment(), timeout=DEADLINE_S, check=False)
    return int(bool(wrong) or not passed or rounds.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
