"""What was written a moment ago is found by the next search, which waits for as little as it can."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from memlog.errors import StorageError
from memlog.niceness import be_nice, is_nice
from projections import embeddings, follow
from projections.embedding.cached import CachedEmbedder
from projections.embedding.pieces import Asked
from projections.search import asking
from projections.text import projector as text
from projections.text.projector import TextProjector
from projections.vectors.index import Vectors
from server import service
from tests.embedder_by_hash import ByHash
from tests.idle_follower import Idle
from tests.service import Client, client_on


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "Follower", Idle)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def tell(client: Client, name: str, *facts: str) -> None:
    entity = {"name": name, "entityType": "person", "observations": list(facts)}
    client("create_entities", entities=[entity])


def found(client: Client, query: str, **arguments: Any) -> set[str]:
    answer = client("search_nodes", query=query, **arguments)
    return {each["name"] for each in answer["entities"]}


def behind(client: Client, name: str = "text") -> int:
    projections = client.service.open("default").projections
    return projections.head() - projections.positions()[name]


def test_words_are_found_before_the_index_on_disk_has_them_and_somebody_is_told_to_add_them(
    client: Client,
) -> None:
    follower = client.service._follower
    assert isinstance(follower, Idle)
    tell(client, "Ada", "sings in a choir")
    assert found(client, "choir") == {"Ada"}
    client("delete_entities", entityNames=["Ada"])
    tell(client, "Bob", "left the choir")
    follower.told.clear()
    assert found(client, "choir") == {"Bob"}
    assert behind(client) > 0
    assert follower.told == [client.service.open("default")]


def test_where_many_entries_are_new_the_index_on_disk_has_them_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "AHEAD_ENTRIES_MAX", 2)
    tell(client, "Ada", "sings in a choir")
    assert found(client, "choir") == {"Ada"}
    assert behind(client) == 0


def test_where_one_entry_makes_many_documents_the_index_on_disk_has_them_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "AHEAD_DOCUMENTS_MAX", 8)
    tell(client, "Ada", "sings in a choir", "plays chess", "reads")
    assert found(client, "choir") == {"Ada"}
    assert behind(client) > 0
    client("rename_entity", name="Ada", newName="Eve")
    assert found(client, "choir") == {"Eve"}
    assert behind(client) == 0


def test_where_the_newest_cannot_be_taken_ahead_the_index_on_disk_has_them_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise StorageError("no memory", suggestion="")

    monkeypatch.setattr(TextProjector, "look_ahead", failing)
    tell(client, "Ada", "sings in a choir")
    assert found(client, "choir") == {"Ada"}
    assert behind(client) == 0


def embedding(monkeypatch: pytest.MonkeyPatch, done: Callable[[Sequence[str]], object]) -> None:
    """`done` is told of all texts that are embedded, before they are."""

    class Told(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            done(texts)
            return super().embed(texts)

    monkeypatch.setattr(embeddings, "open_embedder", lambda _: Told())


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_a_question_is_embedded_while_the_newest_texts_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    asked = threading.Event()

    def done(texts: Sequence[str]) -> None:
        if list(texts) == ["Ada: sings"]:
            asked.set()
        else:
            assert asked.wait(60)

    embedding(monkeypatch, done)
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client, "Ada", "sings")
        # The fact is the very question, so it is among the texts and not embedded alone.
        assert found(client, "Ada: sings", mode=mode) == {"Ada"}
        assert behind(client, "vectors") == 0


def test_a_question_is_embedded_where_no_thread_is_free_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding(monkeypatch, lambda _: None)
    monkeypatch.setattr(asking, "MEANWHILE", ThreadPoolExecutor(1))  # the search itself has it
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client, "Ada", "sings")
        assert found(client, "Ada: sings", mode="semantic") == {"Ada"}


def test_a_text_that_is_embedded_in_the_background_is_not_embedded_again_by_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def done(texts: Sequence[str]) -> None:
        told.extend(texts)
        if len(texts) > 1:
            begun.set()
            assert go_on.wait(60)

    embedding(monkeypatch, done)
    queried = CachedEmbedder.query

    def query(self: CachedEmbedder, text: str) -> tuple[Vectors, Asked | None]:
        go_on.set()
        return queried(self, text)

    monkeypatch.setattr(CachedEmbedder, "query", query)
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client, "Ada", "sings")
        projections = client.service.open("default").projections
        follower = threading.Thread(target=projections.vectors)
        follower.start()
        assert begun.wait(60)
        assert found(client, "who sings?", mode="hybrid") == {"Ada"}
        follower.join()
    assert sorted(told) == ["Ada (person)", "Ada: sings", "who sings?"]


def test_a_thread_is_nice_from_when_it_says_so_and_no_other_is() -> None:
    told: list[bool] = []

    def background() -> None:
        told.append(is_nice())
        be_nice()
        told.append(is_nice())

    thread = threading.Thread(target=background)
    thread.start()
    thread.join()
    assert (told, is_nice()) == ([False, True], False)


def test_where_threads_have_no_numbers_of_processes_no_process_is_made_nice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "setpriority", lambda *each: told.append(each))
    thread = threading.Thread(target=be_nice)
    thread.start()
    thread.join()
    assert told == []


def test_a_search_by_meaning_does_not_wait_for_the_text_index_to_catch_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index tells it which words are rare, without which it finds a little less."""
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client, "Ada", "sings in a choir")
        monkeypatch.setattr(follow, "AHEAD_ENTRIES_MAX", -1)
        idle = client.service._follower
        assert isinstance(idle, Idle)
        idle.told.clear()
        assert found(client, "who makes music in a group?", mode="semantic") == {"Ada"}
        assert behind(client) and not behind(client, "vectors")
        assert idle.told


def test_a_search_of_the_past_does_not_wait_for_newer_texts_to_be_embedded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client, "Ada", "sings in a choir")
        assert found(client, "who makes music in a group?") == {"Ada"}
        position = client.service.open("default").projections.head()
        tell(client, "Bob", "plays in an orchestra")
        monkeypatch.delattr(follow.Projections, "vectors")
        for mode in ("hybrid", "semantic"):
            past = {"query": "who makes music in a group?", "mode": mode, "asOf": position}
            answer = client("search_nodes", **past)
            assert [each["name"] for each in answer["entities"]] == ["Ada"]
            assert "notice" not in answer
