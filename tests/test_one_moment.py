"""A search beside a write or a purge: it does look, and what it tells is as of the moment at which it looked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memlog.settings import Mode
from projections.protocol import Batch
from projections.search.searcher import Found, Searcher
from projections.text.projector import TextProjector
from server.following import Follower
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


def test_a_search_whose_index_goes_while_it_catches_up_as_by_a_purge_elsewhere_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Follower, "_catch_up_indexes", lambda *_: None)
    monkeypatch.setattr("projections.follow.AHEAD_ENTRIES_MAX", -1)
    applied, gone = TextProjector.apply, list[Path]()

    def apply_amid_a_purge(self: TextProjector, batch: Batch) -> None:
        if self.position and not gone:
            gone.extend(tmp_path.glob("projects/*/text-v*"))
            shutil.rmtree(gone[0])
        applied(self, batch)

    monkeypatch.setattr(TextProjector, "apply", apply_amid_a_purge)
    with client_on(tmp_path) as client:
        for name in ("Ann Lee", "Bob Lee"):
            client("create_entities", entities=[{"name": name, "entityType": "person"}])
            found = client("search_nodes", query="Lee")["entities"]
    assert len(gone) == 1 and {each["name"] for each in found} == {"Ann Lee", "Bob Lee"}
