"""Toolset `records` as a client sees it; what identifies a record is in `test_seeds`."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections import embeddings
from server.addresses import read_address
from tests.embedder_by_hash import opened_by_hash
from tests.service import Refused, client_on


def test_a_call_without_a_limit_keeps_to_the_largest_that_the_server_allows(tmp_path: Path) -> None:
    with client_on(tmp_path, search_limit_max=3) as client:
        for number in range(5):
            client("memory_create", type="n", content=f"tea {number}", source="s", confidence=0.5)
        for tool, arguments in (("memory_list", {}), ("memory_search", {"query": "tea"})):
            assert len(client(tool, **arguments)["results"]) == 3


@pytest.mark.parametrize(("stored", "asked"), [("Café", "Cafe\u0301"), ("Cafe\u0301", "Café")])
def test_records_are_found_by_their_type_in_any_unicode_form(
    tmp_path: Path, stored: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="local") as client:
        made = client("memory_create", type=stored, content="tea", source="s", confidence=0.5)
        assert made["type"] == stored
        for tool, arguments in (("memory_list", {}), ("memory_search", {"query": "tea"})):
            (found,) = client(tool, {**arguments, "type": asked})["results"]
            assert found["id"] == made["id"]
        with client.service.open("default").project.read() as state:
            (row,) = state.memories()
        address = read_address(f"mem://by-type/{asked}")
        assert address.labels <= frozenset(row.labels)  # type: ignore[union-attr]


@pytest.mark.parametrize("tool", ["memory_search", "memory_list"])
def test_no_more_tags_are_looked_for_than_a_list_may_have_items(tool: str, tmp_path: Path) -> None:
    """Hundreds of thousands would take seconds and half a gigabyte."""
    arguments = {"query": "tea"} if tool == "memory_search" else {}
    with client_on(tmp_path) as client:
        client(tool, {**arguments, "tags": [f"t{number}" for number in range(1_000)]})
        with pytest.raises(Refused, match="LIMIT_EXCEEDED: tags: too many items"):
            client(tool, {**arguments, "tags": [f"t{number}" for number in range(1_001)]})


def test_the_most_tags_are_those_of_one_call_and_a_record_that_is_saved_again_keeps_all(
    tmp_path: Path,
) -> None:
    record = {"type": "n", "content": "x", "source": "s", "confidence": 0.5}
    with client_on(tmp_path, tags_max=2) as client:
        client("memory_create", **record, tags=["a", "b"])
        assert client("memory_create", **record, tags=["c", "d"])["tags"] == ["a", "b", "c", "d"]
        with pytest.raises(Refused, match=r"Too many tags \(3\). Max 2."):
            client("memory_create", **record, tags=["e", "f", "g"])


def test_keys_that_differ_by_their_unicode_form_alone_are_two_and_each_value_counts(
    tmp_path: Path,
) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    record = {"type": "n", "source": "s", "confidence": 0.5}
    with client_on(tmp_path) as client:

        def saved(content: dict[str, str]) -> str:
            return client("memory_create", **record, content=content)["id"]  # type: ignore[no-any-return]

        both = saved({composed: "tea", apart: "scones"})
        assert saved({apart: "scones", composed: "tea"}) == both
        assert saved({composed: "scones"}) != both
        assert saved({composed: "tea"}) == saved({apart: "tea"}) != both
        for word in ("tea", "scones"):
            found = client("memory_search", query=word)["results"]
            assert both in {record["id"] for record in found}


def test_a_record_that_outlived_a_later_one_that_says_the_same_is_saved_again_and_not_twice(
    tmp_path: Path,
) -> None:
    record = {"type": "fact", "content": "User likes tea", "source": "explicit", "confidence": 0.5}
    with client_on(tmp_path) as client:
        first = client("memory_create", **record)
        later = client("store_memory", content="User likes tea", source="explicit")["created"]
        client("forget_memory", id=later["id"])
        again = client("memory_create", **record)
        assert (again["id"], again["created"]) == (first["id"], False)
        assert len(client("list_recent_memories")["memories"]) == 1


def test_a_tag_that_ends_in_a_line_break_is_refused(tmp_path: Path) -> None:
    with client_on(tmp_path) as client, pytest.raises(Refused) as refused:
        client("memory_create", type="n", content="x", source="s", confidence=0.5, tags=["tea\n"])
    assert refused.value.error["problems"][0]["path"] == "tags[0]"
    assert refused.value.error["suggestion"] == 'Pass "tea".'


@pytest.mark.parametrize("tool", ["memory_list", "memory_search"])
def test_a_type_or_tag_that_no_record_has_is_said_to_be_none(tool: str, tmp_path: Path) -> None:
    query = {"query": "tea"} if tool == "memory_search" else {}
    with client_on(tmp_path) as client:
        tea = {"type": "Decision", "content": "Drink tea", "source": "s", "confidence": 0.5}
        client("memory_create", tags=["project:shop"], **tea)
        told = client(tool, **query, type="decision", tags=["project:shops"])
        assert told["results"] == []
        assert told["notice"].endswith(
            "No record has the tag 'project:shops'. Did you mean 'project:shop'? "
            "No record has the type 'decision'. Did you mean 'Decision'?"
        )
        client("memory_create", tags=["alone"], **{**tea, "type": "Note"})
        assert "No record" not in client(tool, **query, type="Decision").get("notice", "")
        apart = client(tool, **query, type="Decision", tags=["alone"])
        assert apart["results"] == []
        assert apart["notice"].endswith(
            "No record has all of tag 'alone', type 'Decision', though there are records with each of them. "
            "Ask with fewer."
        )


def test_a_record_that_is_saved_again_is_listed_under_its_old_and_its_new_tags(
    tmp_path: Path,
) -> None:
    record = {"type": "n", "content": "x", "source": "s", "confidence": 0.5}
    with client_on(tmp_path) as client:
        for tag in ("a", "b"):
            client("memory_create", **record, tags=[tag])
        for tag in ("a", "b"):
            (found,) = client("memory_list", tags=[tag])["results"]
            assert found["tags"] == ["a", "b"]
