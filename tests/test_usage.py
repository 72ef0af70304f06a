"""What is counted and is no event."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from server.usage import Usage


def test_what_one_process_counted_the_next_adds_to(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(Usage(tmp_path / "usage.mdb")) as usage:
            usage.count("saved")
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.count("saved")
        assert usage.counted("saved") == 3
