"""What `scripts/conformance` makes of what the suite says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import pytest

from tests.conformance.__main__ import REVISIONS, judge, suite
from tests.served import DEADLINE_S, environment

STOPPED_MEANWHILE = """
import sys, time
from pathlib import Path
import tests.conformance.__main__ as conformance

def suite(modules, server, results):
    print(server.popen.pid, flush=True)
    time.sleep(600)

conformance.suite = suite
conformance.main(Path(sys.argv[1]))
"""


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


def test_a_run_that_is_stopped_leaves_no_server_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STOPPED_MEANWHILE, str(tmp_path)]
    with Popen(command, env=environment(), stdout=PIPE) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        run.terminate()
        assert run.wait(DEADLINE_S) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
