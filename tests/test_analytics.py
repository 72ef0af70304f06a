"""Analytics: what is counted and ranked, and what the file they are kept in promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memlog.commands import (
    AddObservations,
    CreateEntities,
    CreateProject,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    Edge,
    EntityObservations,
    NewEntity,
    NewRelation,
    ObservationDeletion,
    RenameEntity,
    SavedEntity,
    SavedRelation,
    SaveMemory,
    Undo,
)
from memlog.projects.project import Project
from memlog.rows import Entity
from memlog.state import State
from memlog.storage.tables import MemoryRows, Timeline
from projections.analytics.counting import Counting
from projections.analytics.projector import FILE, AnalyticsProjector
from projections.analytics.tables import UNRANKED_MAX, Analytics, Order, Reason
from tests.counted import CountedRows, catch_up, do
from tests.test_mending import made_of, project_of, repaired_before

ORDERS: tuple[Order, ...] = ("recent", "important", "connected", "orphaned")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "prj_1")
    do(opened, CreateProject(name="one"))
    yield opened
    opened.close()


@pytest.fixture
def analytics(tmp_path: Path) -> Iterator[AnalyticsProjector]:
    opened = AnalyticsProjector(tmp_path / "analytics")
    yield opened
    opened.close()


def create(*names: str) -> CreateEntities:
    return CreateEntities(entities=[NewEntity(name=name, entity_type="person") for name in names])


def add(name: str, *contents: str) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=contents)])


def rate(name: str, importance: float) -> SaveMemory:
    relations = [SavedRelation(target_entity=name, relation_type="is")]
    entity = SavedEntity(
        name=name,
        entity_type="Person",
        observations=["is here"],
        relations=relations,
        importance=importance,
    )
    return SaveMemory(entities=[entity])


def relate(source: str, *targets: str) -> CreateRelations:
    return CreateRelations(
        relations=[
            NewRelation(source=source, target=target, relation_type="knows") for target in targets
        ]
    )


class Told:
    """What analytics tell of a project that they follow, by the names of its entities."""

    def __init__(self, analytics: AnalyticsProjector, project: Project) -> None:
        self._analytics = analytics
        self._project = project

    def order(self, order: Order, thread: str | None = None, at: int | None = None) -> list[str]:
        catch_up(self._analytics, self._project)
        with self._project.read(at) as state, self._analytics.read(at) as counted:
            rows = [state.entity(row.id) for row in counted.ranked(order, thread)]
        return [row.name for row in rows if row is not None]

    def ends(self, name: str) -> tuple[int, int, Reason | None]:
        """Degree, broken relations, and why the entity is an orphan."""
        catch_up(self._analytics, self._project)
        with self._project.read() as state, self._analytics.read() as counted:
            entity = state.entity_named(name)
            assert entity is not None
            row = counted.entity(entity.born)
            assert row is not None
            return row.degree, row.broken, row.orphaned


@pytest.fixture
def told(analytics: AnalyticsProjector, project: Project) -> Told:
    return Told(analytics, project)


# -- what is counted


def test_an_entity_without_relations_is_an_orphan_until_it_gets_one(
    told: Told, project: Project
) -> None:
    do(project, create("Jon", "Gina"))
    assert told.ends("Jon") == (0, 0, "no_relations")
    do(project, relate("Jon", "Gina"))
    assert told.ends("Jon") == told.ends("Gina") == (1, 0, None)


def test_a_relation_to_nobody_is_broken_until_somebody_of_that_name_is_there(
    told: Told, project: Project
) -> None:
    do(project, create("Jon"))
    do(project, relate("Jon", "Gina", "Tom"))
    assert told.ends("Jon") == (0, 2, "broken_relation")
    do(project, create("Gina"))
    assert told.ends("Jon") == (1, 1, "broken_relation")
    assert told.ends("Gina") == (1, 0, None)
    do(project, create("Tom"))
    assert told.ends("Jon") == (2, 0, None)


def test_the_relations_of_a_deleted_entity_go_with_it(told: Told, project: Project) -> None:
    do(project, create("Jon", "Gina"))
    do(project, relate("Jon", "Gina"))
    do(project, DeleteEntities(entity_names=["Gina"]))
    assert told.ends("Jon") == (0, 0, "no_relations")
    assert told.order("recent") == ["Jon"]


def test_a_loop_is_one_relation_and_several_between_two_are_several(
    told: Told, project: Project
) -> None:
    do(project, create("Jon", "Gina"))
    do(project, relate("Jon", "Jon", "Gina"))
    do(project, relate("Gina", "Jon"))
    assert told.ends("Jon") == (3, 0, None)
    assert told.ends("Gina") == (2, 0, None)


def test_relations_follow_an_entity_to_its_new_name_and_back(told: Told, project: Project) -> None:
    do(project, create("Jon", "Gina"))
    do(project, relate("Jon", "Gina", "Tom"))
    do(project, RenameEntity(name="Gina", new_name="Tom"))
    assert told.ends("Jon") == (1, 0, None)  # the second of two alike went
    assert told.ends("Tom") == (1, 0, None)
    do(project, Undo())
    assert told.ends("Jon") == (1, 1, "broken_relation")
    assert told.ends("Gina") == (1, 0, None)


def test_undoing_the_creation_of_an_entity_breaks_the_relations_at_it(
    told: Told, project: Project
) -> None:
    do(project, create("Jon"))
    do(project, relate("Jon", "Gina"))
    do(project, create("Gina"))
    assert told.ends("Jon") == (1, 0, None)
    do(project, Undo())
    assert told.ends("Jon") == (0, 1, "broken_relation")
    assert told.order("recent") == ["Jon"]


# -- how it is ranked


def test_a_fact_that_a_repair_left_without_its_entity_counts_when_that_is_there_again(
    tmp_path: Path, analytics: AnalyticsProjector
) -> None:
    commands = create("Jon"), add("Jon", "dances"), DeleteEntities(entity_names=["Jon"])
    history = made_of(tmp_path, *commands)
    with project_of(repaired_before(history)) as project:

        def counted() -> tuple[int, int, int]:
            catch_up(analytics, project)
            with analytics.read() as read:
                totals = read.totals()
            return totals.entities, totals.observations, totals.atomic

        assert counted() == (0, 0, 0)
        do(project, Undo(position=len(history.entries)))
        assert counted() == (1, 1, 1)
        do(project, Undo(position=len(history.entries) + 1))
        assert counted() == (0, 0, 0)
        do(project, Undo(position=3))  # the fact alone, while its entity is not there
        assert counted() == (0, 0, 0)
        do(project, create("Jon"))
        assert counted() == (1, 0, 0)


def test_each_order_begins_with_its_first_and_the_newest_among_equals(
    told: Told, project: Project
) -> None:
    do(project, create("Jon"))
    do(project, create("Gina"))
    do(project, create("Tom"))
    assert told.order("recent") == told.order("important") == ["Tom", "Gina", "Jon"]
    do(project, add("Jon", "likes tea"))
    assert told.order("recent") == ["Jon", "Tom", "Gina"]
    do(project, rate("Gina", 0.9))
    assert told.order("important") == ["Gina", "Tom", "Jon"]
    do(project, relate("Jon", "Tom", "Gina"))
    assert told.order("connected") == ["Gina", "Jon", "Tom"]
    do(
        project,
        DeleteRelations(relations=[Edge(source="Jon", target="Tom", relation_type="knows")]),
    )
    assert told.order("connected") == ["Gina", "Jon"]
    assert told.order("orphaned") == ["Tom"]


def test_every_past_is_still_told(told: Told, project: Project) -> None:
    do(project, create("Jon"))
    do(project, create("Gina"))
    before = project.head()
    do(project, relate("Jon", "Gina"))
    do(project, add("Jon", "likes tea"))
    do(project, DeleteEntities(entity_names=["Gina"]))
    assert told.order("recent", at=before) == told.order("orphaned", at=before) == ["Gina", "Jon"]
    assert told.order("connected", at=before) == []
    assert told.order("connected", at=before + 1) == ["Gina", "Jon"]
    assert told.order("recent") == told.order("orphaned") == ["Jon"]


@pytest.mark.parametrize("others", [0, UNRANKED_MAX], ids=["few entities", "many entities"])
def test_a_thread_is_told_of_what_it_touched_in_the_order_of_all(
    told: Told, project: Project, others: int
) -> None:
    do(project, create("Jon", "Gina", "Tom"))
    do(project, create(*(f"other {number}" for number in range(others))), "mine")
    do(project, add("Jon", "likes tea"), "mine")
    do(project, relate("Gina", "Jon", "nobody"), "mine")
    do(project, add("Gina", "likes jam"), "theirs")
    assert told.order("recent", "mine")[:2] == ["Gina", "Jon"]
    assert "Tom" not in told.order("recent", "mine")
    assert len(told.order("important", "mine")) == others + 2
    assert told.order("connected", "mine") == ["Gina", "Jon"]
    assert told.order("orphaned", "mine")[-1] == "Gina"
    assert told.order("recent", "theirs") == told.order("connected", "theirs") == ["Gina"]
    assert told.order("recent", "nobody's") == []


def test_an_entity_that_comes_back_is_again_one_of_those_its_threads_touched(
    told: Told, project: Project
) -> None:
    do(project, create("Jon"), "mine")
    do(project, DeleteEntities(entity_names=["Jon"]), "theirs")
    assert told.order("recent", "mine") == []
    do(project, Undo())
    assert told.order("recent", "mine") == told.order("recent", "theirs") == ["Jon"]


class Watched(MemoryRows):
    """Rows that count how often they are asked."""

    asked = 0

    def get(self, key: bytes) -> bytes | None:
        self.asked += 1
        return super().get(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for row in super().scan(prefix, start):
            self.asked += 1
            yield row


def asked_for_the_first(project: Project, order: Order, thread: str | None) -> int:
    rows = Watched()
    timeline = Timeline(rows, MemoryRows())
    with project.snapshot() as (log, state_at):
        counting = Counting(timeline, state_at)
        for entry in log.read():
            counting.count(entry)
    rows.asked = 0
    next(Analytics(timeline, project.head()).ranked(order, thread))
    return rows.asked


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("thread", [None, "mine"])
def test_the_first_of_a_ranking_costs_the_same_in_a_graph_of_any_size(
    order: Order, thread: str | None, project: Project
) -> None:
    costs = []
    for size in (2 * UNRANKED_MAX, 8 * UNRANKED_MAX):
        do(project, create(*(f"{size} {number}" for number in range(size))), "mine")
        do(project, relate(f"{size} 1", f"{size} 2"), "mine")
        costs.append(asked_for_the_first(project, order, thread))
    assert costs[0] == costs[1] < 10


def test_of_facts_that_go_in_one_command_none_is_read_to_tell_when_the_entity_changed(
    told: Told, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [f"fact {number}" for number in range(20)]
    do(project, create("Jon"))
    do(project, add("Jon", *facts))
    told.order("recent")
    read: list[str] = []
    whole = State.updated_us

    def counted(state: State, row: Entity) -> int:
        read.append(row.name)
        return whole(state, row)

    monkeypatch.setattr(State, "updated_us", counted)
    deletion = ObservationDeletion(entity_name="Jon", observations=facts[1:])
    do(project, DeleteObservations(deletions=[deletion]))
    assert told.order("recent") == ["Jon"]
    assert read == []


def test_an_undo_at_an_entity_of_many_facts_is_counted_without_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlog.projects.contents.LmdbRows", CountedRows)
    read = []
    for size in (50, 100):
        project = Project(tmp_path / f"prj_{size}")
        analytics = AnalyticsProjector(tmp_path / f"analytics_{size}")
        do(project, CreateProject(name="one"))
        do(project, create("Jon"))
        do(project, add("Jon", *(f"fact {number}" for number in range(size))))
        do(project, add("Jon", "one more"))
        do(project, Undo())
        catch_up(analytics, project, project.head() - 1)
        CountedRows.reads = 0
        catch_up(analytics, project)
        read.append(CountedRows.reads)
        analytics.close()
        project.close()
    assert 0 < read[0] == read[1]


# -- the file


def test_a_batch_seen_before_changes_nothing(
    analytics: AnalyticsProjector, project: Project
) -> None:
    do(project, create("Jon"))
    with project.snapshot() as (log, state_at):
        analytics.apply(log, state_at, 2)
        digest = analytics.digest()
        analytics.apply(log, state_at, 2)
    assert (analytics.position, analytics.digest()) == (2, digest)


def test_what_was_counted_is_there_after_reopening_and_gone_after_a_reset(
    tmp_path: Path, project: Project
) -> None:
    do(project, create("Jon"))
    first = AnalyticsProjector(tmp_path / "kept")
    catch_up(first, project)
    digest = first.digest()
    first.close()
    second = AnalyticsProjector(tmp_path / "kept")
    assert (second.position, second.digest()) == (2, digest)
    second.reset()
    assert second.position == 0
    catch_up(second, project)
    assert second.digest() == digest
    second.close()


def test_a_file_that_is_none_is_started_anew(tmp_path: Path, project: Project) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1_000)
    opened = AnalyticsProjector(tmp_path)
    assert opened.position == 0
    catch_up(opened, project)
    assert opened.position == 1
    opened.close()
