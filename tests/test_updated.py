"""When an entity was last changed, though adding a fact leaves its row alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateProject,
    DeleteObservations,
    EntityObservations,
    MergeEntities,
    NewEntity,
    ObservationDeletion,
    RenameEntity,
    Undo,
    UpdateObservation,
)
from memlog.projects.project import Project
from memlog.state import State
from projections.analytics.projector import AnalyticsProjector
from tests.counted import catch_up, do


class Clock:
    """A second later with every command."""

    now_us = 0

    def __call__(self) -> int:
        self.now_us += 1_000_000
        return self.now_us


def entity(name: str, *facts: str) -> CreateEntities:
    new = NewEntity(name=name, entity_type="person", observations=list(facts))
    return CreateEntities(entities=[new])


def fact(name: str, text: str) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=[text])])


def gone(name: str, text: str) -> DeleteObservations:
    return DeleteObservations(
        deletions=[ObservationDeletion(entity_name=name, observations=[text])]
    )


STORY: list[tuple[AnyCommand, dict[str, int]]] = [
    (CreateProject(name="one"), {}),
    (entity("Jon", "a banker"), {"Jon": 2}),
    (entity("Gina"), {"Jon": 2, "Gina": 3}),
    (fact("Jon", "dances"), {"Jon": 4, "Gina": 3}),
    (Undo(last=1), {"Jon": 2, "Gina": 3}),
    (fact("Gina", "sings"), {"Jon": 2, "Gina": 6}),
    (gone("Jon", "a banker"), {"Jon": 7, "Gina": 6}),
    (Undo(last=1), {"Jon": 2, "Gina": 6}),
    (
        UpdateObservation(entity_name="Gina", observation="sings", new_content="sings well"),
        {"Jon": 2, "Gina": 9},
    ),
    (Undo(last=1), {"Jon": 2, "Gina": 6}),
    (RenameEntity(name="Jon", new_name="Jonathan"), {"Jonathan": 11, "Gina": 6}),
    (fact("Jon", "has a studio"), {"Jonathan": 12, "Gina": 6}),
    (MergeEntities(names=["Gina"], into="Jonathan"), {"Jonathan": 13}),
    (Undo(last=1), {"Jonathan": 12, "Gina": 6}),
]
"""Commands, a second apart, and the second in which each entity was last changed after them."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "prj_1", clock=Clock())
    yield opened
    opened.close()


def seconds(state: State) -> dict[str, int]:
    return {row.name: state.updated_us(row) // 1_000_000 for row in state.entities()}


def test_an_entity_was_last_changed_when_it_or_any_of_its_facts_was(project: Project) -> None:
    heads = []
    for command, expected in STORY:
        do(project, command)
        heads.append(project.head())
        with project.read() as state:
            assert seconds(state) == expected
    for head, (_, expected) in zip(heads, STORY, strict=True):
        with project.read(head) as state:
            assert seconds(state) == expected


def test_analytics_know_the_same_caught_up_at_once_or_step_by_step(
    project: Project, tmp_path: Path
) -> None:
    stepwise = AnalyticsProjector(tmp_path / "stepwise")
    for command, expected in STORY:
        do(project, command)
        catch_up(stepwise, project)
        assert ranked(stepwise) == sorted(expected.values(), reverse=True)
    at_once = AnalyticsProjector(tmp_path / "at once")
    catch_up(at_once, project)
    assert at_once.digest() == stepwise.digest()
    stepwise.close()
    at_once.close()


def ranked(analytics: AnalyticsProjector) -> list[int]:
    with analytics.read() as counted:
        return [row.updated_us // 1_000_000 for row in counted.ranked("recent")]


def test_adding_a_fact_leaves_the_row_of_its_entity_alone(project: Project) -> None:
    for command in (CreateProject(name="one"), entity("Jon", "a banker")):
        do(project, command)
    with project.read() as state:
        before = list(state.entities())
    do(project, fact("Jon", "dances"))
    with project.read() as state:
        assert list(state.entities()) == before
