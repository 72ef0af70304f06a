"""A search beside a write: what it tells is as of the moment at which it looked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memlog.settings import Mode
from projections.search.searcher import Found, Searcher
from tests.service import client_on


def entities_told(found: dict[str, Any]) -> object:
    return [(each["name"], each["observations"]) for each in found["entities"]]


def facts_told(found: dict[str, Any]) -> object:
    return [each["content"] for each in found["memories"]]


def records_told(found: dict[str, Any]) -> object:
    return [each["type"] for each in found["results"]]


@pytest.mark.parametrize("mode", ["text", "hybrid"])
@pytest.mark.parametrize(
    ("tool", "told", "expected"),
    [
        ("search_nodes", entities_told, [("Ann", ["Likes tea"])]),
        ("search_memories", facts_told, ["The tea is green"]),
        ("memory_search", records_told, ["fact"]),
    ],
)
def test_what_is_deleted_while_it_searches_is_told_as_it_was_before(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: Mode,
    tool: str,
    told: Callable[[dict[str, Any]], object],
    expected: object,
) -> None:
    searched = Searcher.search
    with client_on(tmp_path, search_mode=mode) as client:
        entity = {"name": "Ann", "entityType": "person", "observations": ["Likes tea"]}
        client("create_entities", entities=[entity])
        fact = client("store_memory", content="The tea is green")["created"]

        def search_then_write(self: Searcher, *query: Any, **scope: Any) -> Found:
            found = searched(self, *query, **scope)
            gone = {"entityName": "Ann", "observations": ["Likes tea"]}
            client("delete_observations", deletions=[gone])
            client("forget_memory", id=fact["id"])
            return found

        with monkeypatch.context() as patched:
            patched.setattr(Searcher, "search", search_then_write)
            assert told(client(tool, query="tea")) == expected
        assert told(client(tool, query="tea")) == []
