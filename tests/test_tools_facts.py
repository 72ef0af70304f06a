"""Toolset `facts` as a client sees it; how facts supersede each other is in `test_seeds`."""

from __future__ import annotations

from pathlib import Path

from tests.service import client_on


def test_facts_that_an_answer_does_not_hold_are_counted(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        for number in range(6):
            client("store_memory", content=f"tea {number} {'x' * 9_000}")
        listed = client("list_recent_memories", limit=5)
        assert len(listed["memories"]) == 3
        assert listed["notice"].startswith("2 more did not fit")
        found = client("search_memories", query="tea", limit=6)
        assert len(found["memories"]) == 3
        assert found["notice"].startswith("3 more did not fit")
        assert "notice" not in client("list_recent_memories", limit=3)
