"""Toolset `records` as a client sees it; what identifies a record is in `test_seeds`."""

from __future__ import annotations

from pathlib import Path

from tests.service import client_on


def test_a_call_without_a_limit_keeps_to_the_largest_that_the_server_allows(tmp_path: Path) -> None:
    with client_on(tmp_path, search_limit_max=3) as client:
        for number in range(5):
            client("memory_create", type="n", content=f"tea {number}", source="s", confidence=0.5)
        for tool, arguments in (("memory_list", {}), ("memory_search", {"query": "tea"})):
            assert len(client(tool, **arguments)["results"]) == 3
