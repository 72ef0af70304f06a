"""What a deleted project leaves in the caches of vectors that all projects share: nothing that is its own alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlog.errors import StorageError
from memlog.projects.project import Project
from projections import embeddings
from projections.embedding import VectorCache
from projections.embedding.store import key_of
from server import service
from tests.command_line import CommandLine
from tests.embedder_by_hash import ByHash, opened_by_hash
from tests.idle_follower import Idle
from tests.served import FOLLOWED_S
from tests.service import Client, client_on

OWN, SHARED = "buried the gold by the mill", "runs a shop"


@pytest.fixture(autouse=True)
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    monkeypatch.setattr(service, "Follower", Idle)


def remember(client: Client, project: str, *facts: str) -> None:
    made = [{"name": "Jon", "entityType": "person", "observations": list(facts)}]
    client("create_entities", project=project, entities=made)
    client.service.open(project).projections.caught_up("vectors")


def two_projects(client: Client) -> None:
    for project, facts in {"gone": (OWN, SHARED), "kept": (SHARED,)}.items():
        client("create_project", name=project)
        remember(client, project, *facts)


def wait_for_the_sweep(client: Client) -> None:
    thread = client.service._sweeper._thread
    assert thread is not None
    thread.join(FOLLOWED_S)


def embedded(data_dir: Path) -> set[str]:
    """Of the facts, those that the cache has a vector of."""
    (file,) = (data_dir / "embeddings").glob("*.mdb")
    cache = VectorCache(file)
    facts = {each: f"Jon: {each}" for each in (OWN, SHARED)}
    found = {each for each, text in facts.items() if cache.get_many([text])[0] is not None}
    bytes_left = file.read_bytes()
    assert all((key_of(text) in bytes_left) == (each in found) for each, text in facts.items())
    cache.close()
    return found


def test_vectors_that_no_other_project_has_go_with_the_project(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        two_projects(client)
        client("delete_project", name="gone")
        wait_for_the_sweep(client)
    assert embedded(tmp_path) == {SHARED}


def test_what_was_being_embedded_as_the_project_went_goes_too(tmp_path: Path) -> None:
    """By an endpoint that takes its time, in this process or another."""
    with client_on(tmp_path, embedder="minilm") as client:
        two_projects(client)
        (cache,) = client.service.embeddings.caches().values()
        late = f"Jon: {OWN}", f"Jon: {OWN} at last"
        with cache.turn.held():
            client("delete_project", name="gone")
            client.service._sweeper._thread.join(0.5)  # type: ignore[union-attr]
            cache.put_many(late, ByHash().embed(late))
        wait_for_the_sweep(client)
        assert [each is None for each in cache.get_many(late)] == [True, True]
    assert embedded(tmp_path) == {SHARED}


def test_vectors_go_with_a_project_that_the_command_line_deletes(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        two_projects(client)
        client("archive_project", name="kept")
    assert CommandLine(tmp_path)("projects", "delete", "gone", "--yes").code == 0
    assert embedded(tmp_path) == {SHARED}


def test_what_a_process_that_ended_left_in_the_cache_goes_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        two_projects(client)
        monkeypatch.setattr(client.service._sweeper, "begin", lambda: None)
        client("delete_project", name="gone")
    assert embedded(tmp_path) == {OWN, SHARED}
    with client_on(tmp_path, secrets="off") as client:
        client.service.warm_up()
        wait_for_the_sweep(client)
    assert embedded(tmp_path) == {SHARED}


def test_no_byte_stays_where_a_process_ended_with_vectors_discarded_and_the_file_not_yet_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(_: VectorCache) -> None:
        raise OSError("the process was killed")

    with client_on(tmp_path, embedder="minilm") as client:
        two_projects(client)
        with monkeypatch.context() as patch:
            patch.setattr(VectorCache, "compact", end)
            client.service.delete("gone", wait=True)
    with client_on(tmp_path, secrets="off") as client:
        client.service.warm_up()
        wait_for_the_sweep(client)
    assert embedded(tmp_path) == {SHARED}


def test_a_deletion_that_was_refused_costs_no_vector(tmp_path: Path) -> None:
    def refuse(_: Project, command_id: str | None) -> Any:
        raise OSError("it stays")

    with client_on(tmp_path, embedder="minilm", secrets="off") as client:
        two_projects(client)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(StorageError):
            patch.setattr(Project, "remove", refuse)
            client.service.delete("gone", wait=True)
        client.service.warm_up()
        wait_for_the_sweep(client)
    assert embedded(tmp_path) == {OWN, SHARED}
