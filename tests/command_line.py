"""The command line run inside the test: settings only from the call, all streams in hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from memlog.settings import SETTINGS
from server.cli import main
from tests.served import environment

Line = dict[str, Any]

JON: Line = {
    "type": "entity",
    "name": "Jon",
    "entityType": "person",
    "observations": ["was a banker"],
}
ODD: Line = {
    "type": "entity",
    "name": "東京 🙂",
    "entityType": "a/b",
    "observations": ["x\ty", '"q"'],
}
BARE: Line = {"type": "entity", "name": "Mia", "entityType": "person", "observations": []}
KNOWS: Line = {"type": "relation", "from": "Jon", "to": "Mia", "relationType": "knows"}
LOOSE: Line = {"type": "relation", "from": "Jon", "to": "nobody", "relationType": "waits for"}
LINES = [JON, ODD, BARE, KNOWS, LOOSE]
"""A small memory, as the reference server's file has it. Imported it is nine entries of the log."""


class Ended(NamedTuple):
    """How a command ended. `json` parses what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


class CommandLine:
    """Runs commands over one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir

    def __call__(self, *arguments: str | Path, stdin: bytes | str = b"", **variables: str) -> Ended:
        settings: dict[str, str | None] = {
            name: None for each in SETTINGS for name in each.variables
        }
        settings |= environment(MEMLOG_DATA_DIR=str(self.data_dir), **variables)
        code: Any = 0
        with CliRunner().isolation(input=stdin, env=settings) as (stdout, stderr, _):
            try:
                main([str(argument) for argument in arguments])
            except SystemExit as end:
                code = end.code
            return Ended(code or 0, stdout.getvalue().decode(), stderr.getvalue().decode())


def holding_lines(folder: Path) -> CommandLine:
    """One whose memory is LINES."""
    memlog = CommandLine(folder / "data")
    assert memlog("import", written(folder / "before.jsonl", LINES)).code == 0
    return memlog


def written(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def lines_of(text: str) -> list[Line]:
    return [json.loads(line) for line in text.splitlines()]
