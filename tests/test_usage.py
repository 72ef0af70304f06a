"""What is counted and is no event."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from server.usage import Usage


def test_what_one_process_counted_the_next_adds_to(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(Usage(tmp_path / "usage.mdb")) as usage:
            usage.count("saved")
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.count("saved")
        assert usage.counted("saved") == 3


def test_a_memory_was_last_read_when_the_last_of_all_read_it_whoever_wrote_it_down_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in (2_000, 1_000):
        monkeypatch.setattr("server.usage.clock_us", lambda now=now: now)
        with closing(Usage(tmp_path / "usage.mdb")) as usage:
            usage.read(["mem_1"])
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        assert usage.accessed_us("mem_1") == 2_000
