"""Catching up: how a log is cut into batches, and who is told how far it is."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from filelock import FileLock

from memlog.commands import CreateEntities, DeleteEntities, NewEntity, RenameEntity
from memlog.context import Context
from memlog.errors import ProjectNotFound, StorageError
from memlog.projects.project import Project
from memlog.projects.store import Store
from memlog.settings import Settings
from projections import batches, driving
from projections.analytics.projector import ANALYTICS_VERSION, AnalyticsProjector
from projections.check import compare
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.passages import PASSAGES_MAX
from projections.protocol import Batch
from projections.text.projector import TextProjector
from projections.vectors.projector import VectorProjector
from tests.embedder_by_hash import opened_by_hash
from tests.service import client_on

ROOT = Path(__file__).parent.parent


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    store = Store(tmp_path)
    store.create("one")
    project = store.project("one")
    known = [
        NewEntity(name=f"n{number}", entity_type="thing", observations=[f"fact {number}"])
        for number in range(20)
    ]
    for command in (CreateEntities(entities=known), DeleteEntities(entity_names=["n3", "n19"])):
        project.execute(command, Context(), lambda _: None)
    yield project
    store.close()


@pytest.fixture
def projections(project: Project, tmp_path: Path) -> Iterator[Projections]:
    projections = Projections(project, Embeddings(Settings(data_dir=tmp_path, embedder="none")))
    yield projections
    projections.close()


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each batch that text applies ends."""
    found: list[int] = []
    apply = TextProjector.apply

    def applied(self: TextProjector, batch: Batch) -> None:
        apply(self, batch)
        found.append(batch.position)

    monkeypatch.setattr(TextProjector, "apply", applied)
    return found


@pytest.mark.parametrize("name", ["text", "analytics"])
def test_an_index_that_is_asked_for_while_the_project_is_away_is_where_it_belongs_once_that_is_back(
    project: Project, projections: Projections, tmp_path: Path, name: str
) -> None:
    """As where others archive it and restore it, and a thread that began before comes to the index in between."""
    home, away = project.folder, tmp_path / "away"
    home.rename(away)
    project.folder = away
    with suppress(StorageError):
        projections.caught_up(name)
    away.rename(home)
    project.folder = home
    project.execute(DeleteEntities(entity_names=["n1"]), Context(), lambda _: None)
    assert projections.caught_up(name).position == project.head()


def test_text_is_told_how_far_it_is_while_a_batch_lasts(
    projections: Projections, monkeypatch: pytest.MonkeyPatch, ends: list[int]
) -> None:
    monkeypatch.setattr(batches, "TAKEN_ENTRIES", 10)
    told: list[tuple[str, int, int]] = []
    projections.rebuild("text", lambda *step: told.append(step))
    head = projections.head()
    assert ends == [head]
    assert told == [("text", at, head) for at in [*range(10, head, 10), head, head]]


@pytest.mark.parametrize("name", ["text", "analytics"])
def test_between_two_batches_whoever_waits_for_the_index_has_a_turn(
    project: Project, projections: Projections, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(TextProjector, "batch_entries", 10)
    monkeypatch.setattr(AnalyticsProjector, "batch_entries", 10)
    turns: list[int] = []

    def slept(seconds: float) -> None:
        with FileLock(project.folder / f"{name}.lock", timeout=0):  # else it raises Timeout
            turns.append(projections.positions()[name])
        assert seconds > driving.LOCK_POLL_SECONDS

    monkeypatch.setattr(time, "sleep", slept)
    projections.caught_up(name)
    assert turns == [*range(10, project.head(), 10)]


def test_an_index_that_another_process_is_at_is_told_as_far_as_it_was_seen(
    project: Project, projections: Projections
) -> None:
    projections.text()
    with FileLock(project.folder / "text.lock"):
        assert projections.positions_anew()["text"] == project.head()


def test_who_has_a_project_open_that_was_put_away_makes_no_folder_in_its_place(
    project: Project, projections: Projections
) -> None:
    """Of one that was deleted the texts would be on the disk again."""
    projections.text()
    seen = project.head()
    project.execute(DeleteEntities(entity_names=["n4"]), Context(), lambda _: None)
    away = project.folder.rename(project.folder.with_name("away"))
    with pytest.raises(StorageError):
        projections.text()
    assert projections.positions_anew()["text"] == seen
    assert not project.folder.exists()
    away.rename(project.folder)


def test_a_batch_ends_where_its_entries_are_large_and_the_index_is_the_same(
    projections: Projections, monkeypatch: pytest.MonkeyPatch, ends: list[int]
) -> None:
    whole = projections.text().digest()
    monkeypatch.setattr(TextProjector, "batch_bytes", 2_000)
    projections.rebuild("text")
    assert projections.text().digest() == whole
    assert len(ends) > 3  # the one before, and several
    assert compare(projections, "text")
    assert compare(projections, "analytics")


def test_an_entry_larger_than_a_batch_may_be_is_a_batch(
    projections: Projections, monkeypatch: pytest.MonkeyPatch, ends: list[int]
) -> None:
    monkeypatch.setattr(TextProjector, "batch_bytes", 1)
    projections.text()
    assert ends == list(range(1, projections.head() + 1))


def test_long_texts_come_to_be_embedded_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.embeddings.open_embedder", opened_by_hash)
    rows, apply = [0], VectorProjector.apply

    def applied(self: VectorProjector, batch: Batch) -> None:
        apply(self, batch)
        rows.append(self.rows)

    monkeypatch.setattr(VectorProjector, "apply", applied)
    long = [f"{day} " + "was told of the day. " * 450 for day in range(40)]
    with client_on(tmp_path, embedder="minilm") as client:
        entities = [{"name": "Diary", "entityType": "book", "observations": long}]
        client("create_entities", entities=entities)
        client.session.open(None)[1].projections.vectors()
    assert rows[-1] > 60 * len(long)
    assert max(later - before for before, later in pairwise(rows)) <= 5 * PASSAGES_MAX


def test_the_texts_of_a_log_are_told_some_at_a_time_however_many_an_entry_has(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [NewEntity(name="Diary", entity_type="book", observations=["was told of it. " * 500])]
    project.execute(CreateEntities(entities=long), Context(), lambda _: None)
    (every,) = batches.texts(project)
    monkeypatch.setattr(batches, "TEXTS_MAX", 7)
    some = list(batches.texts(project))
    assert [text for each in some for text in each] == every
    assert max(map(len, some)) == 7


def test_of_entries_that_change_much_few_are_held_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new name of an entity of thousands of facts is one short entry, and in the text of every fact."""
    facts = [f"fact {number}" for number in range(30)]
    hub = NewEntity(name="hub", entity_type="thing", observations=facts)
    project.execute(CreateEntities(entities=[hub]), Context(), lambda _: None)
    for number in range(20):
        renaming = RenameEntity(
            name=f"hub{number - 1}" if number else "hub", new_name=f"hub{number}"
        )
        project.execute(renaming, Context(), lambda _: None)
    ((_, whole),) = batches.lots(project, 0, project.head())
    most = 100 * batches.CHANGE_CHARACTERS
    monkeypatch.setattr(batches, "TAKEN_CHARACTERS", most)
    lots = list(batches.lots(project, 0, project.head()))
    assert [change for _, found in lots for change in found] == whole
    assert [found[-1].position for _, found in lots] == [position for position, _ in lots]
    one = 2 * len([*facts, "hub"])  # all die and are born anew
    assert max(len(found) for _, found in lots) <= 100 + one


def test_whoever_closes_does_not_wait_for_the_end_of_a_long_batch(
    projections: Projections, monkeypatch: pytest.MonkeyPatch, ends: list[int]
) -> None:
    monkeypatch.setattr(batches, "TAKEN_ENTRIES", 10)

    def closing(name: str, position: int, until: int) -> None:
        monkeypatch.setattr(projections, "_closed", True)

    with pytest.raises(ProjectNotFound):
        projections.rebuild("text", closing)
    assert ends == []
    monkeypatch.setattr(projections, "_closed", False)
    assert projections.text().position == projections.head()


BEGINS_ANEW_AND_DIES = """
import sys
import time
from pathlib import Path
from projections.analytics.projector import AnalyticsProjector
AnalyticsProjector(Path(sys.argv[1])).reset()
"""


def test_analytics_that_another_process_began_anew_and_left_so_are_counted_before_they_are_read(
    project: Project, projections: Projections
) -> None:
    with projections.analytics().read() as counted:
        before = counted.totals()
    folder = project.folder / f"analytics-v{ANALYTICS_VERSION}"
    subprocess.run([sys.executable, "-c", BEGINS_ANEW_AND_DIES, str(folder)], cwd=ROOT, check=True)
    with projections.analytics().read() as counted:
        assert (counted.position, counted.totals()) == (projections.head(), before)


@pytest.mark.parametrize("tool", ["archive_project", "delete_project"])
def test_a_project_that_went_away_before_it_was_caught_up_is_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tool: str
) -> None:
    with client_on(tmp_path) as client:
        client("create_project", name="away")
        client("store_memory", content="tea", project="away")
        opened = client.service.open("away")
        client(tool, name="away")
        client.service._follower._indexes._catch_up_one(opened)
    assert not caplog.text


def test_indexes_that_are_closed_under_who_catches_them_up_are_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
        opened = client.service.open("default")
        opened.projections.close()
        client.service._follower._indexes._catch_up_one(opened)
    assert not caplog.text
