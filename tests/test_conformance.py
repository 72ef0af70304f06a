"""What `scripts/conformance` makes of what the suite says."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.conformance.__main__ import REVISIONS, judge, suite


class Server:
    url = "http://127.0.0.1:1"


def test_a_revision_of_which_the_suite_checks_nothing_is_told_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, *others = REVISIONS

    def ran(command: list[str], **_: Any) -> CompletedProcess[bytes]:
        folder = Path(command[-1])
        if folder.name != known:
            return CompletedProcess(command, 1, b"", b"Unknown version")
        (folder / "ping").mkdir(parents=True)
        checked = [{"id": "ping", "status": "SUCCESS"}]
        (folder / "ping" / "checks.json").write_text(json.dumps(checked))
        return CompletedProcess(command, 0, b"", b"")

    monkeypatch.setattr("subprocess.run", ran)
    failures, passed = suite(tmp_path, Server(), tmp_path / "results")  # type: ignore[arg-type]
    assert passed == 1
    told = [f"{each}: the suite: nothing was checked: Unknown version" for each in others]
    assert judge(failures)[: len(told)] == told
