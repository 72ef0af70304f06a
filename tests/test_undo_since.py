"""Undo of all since a moment, or of what one thread or actor did since: what goes, what stays, and how often."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.commands import AnyCommand, CreateProject, DeleteEntities, RenameEntity, Undo
from memlog.context import Context
from memlog.decisions.undoing import undone
from memlog.errors import Conflict, InvalidParameter, MemlogError
from memlog.projects.project import Project
from tests.test_history import COMMANDS, add, create, do, entity, meant, rows, rows_read


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "prj_1")
    do(opened, CreateProject(name="one"))
    yield opened
    opened.close()


def test_undo_since_of_a_thread_can_be_undone_and_made_again(project: Project) -> None:
    since, before = project.head(), rows(project)
    do(project, create(entity("Jon", "a banker")), thread="a")
    done = rows(project)
    for _ in range(2):
        do(project, Undo(since=since, thread="a"), thread="a")
        assert rows(project) == before
        with pytest.raises(InvalidParameter, match="no command of thread 'a' after position"):
            do(project, Undo(since=since, thread="a"), thread="a")
        do(project, Undo(position=project.head()))
        assert rows(project) == done


def test_what_one_undid_already_is_not_in_the_way_of_what_others_wrote_since(
    project: Project,
) -> None:
    since = project.head()
    do(project, create(entity("Gina", "a thief")), actor="phone")
    do(project, create(entity("Mia")), actor="phone")
    do(project, Undo(position=since + 1), actor="phone")
    do(project, create(entity("Gina", "a dancer")), actor="desk")
    do(project, Undo(since=since, actor="phone"))
    with project.read() as state:
        assert {each.name for each in state.entities()} == {"Gina"}
        gina = state.entity_named("Gina")
        assert gina is not None
        assert [fact.content for fact in state.observations(gina.id)] == ["a dancer"]


@pytest.mark.parametrize("by", ["phone", "boss"])
def test_what_others_built_on_what_one_did_stays_undone_with_it(project: Project, by: str) -> None:
    """Though who undid it was the one whose undos are taken back."""
    since, before = project.head(), rows(project)
    do(project, create(entity("Jon")), actor="phone")
    do(project, add("Jon", "a dancer"), actor="desk")
    do(project, Undo(position=project.head()), actor="phone")
    do(project, Undo(position=since + 1), actor=by)
    assert rows(project) == before
    with suppress(InvalidParameter):  # nothing is left
        assert do(project, Undo(since=since, actor="phone")) == 0
    assert rows(project) == before


def test_what_one_undid_of_others_comes_back_where_it_can_stand(project: Project) -> None:
    do(project, create(entity("Jon")), actor="desk")
    since = project.head()
    do(project, add("Jon", "a dancer"), actor="desk")
    there = rows(project)
    do(project, Undo(position=project.head()), actor="phone")
    do(project, create(entity("Gina")), actor="phone")
    do(project, Undo(since=since, actor="phone"))
    assert rows(project) == there


def test_what_a_refused_undo_since_names_is_undone_in_the_same_thread_as_in_any_other(
    project: Project,
) -> None:
    since, before = project.head(), rows(project)
    do(project, create(entity("Jon")), thread="a")
    do(project, add("Jon", "a dancer"), thread="b")
    with pytest.raises(Conflict):
        do(project, Undo(since=since, thread="a"), thread="a")
    do(project, Undo(position=project.head()), thread="a")
    do(project, Undo(since=since, thread="a"), thread="a")
    assert rows(project) == before
    assert do(project, Undo(since=since, thread="a"), thread="a") == 0


def test_an_undo_of_all_since_that_is_made_again_writes_nothing(project: Project) -> None:
    since = project.head()
    do(project, create(entity("Jon")))
    do(project, create(entity("Gina")))
    do(project, Undo())
    do(project, Undo(since=since))
    with pytest.raises(InvalidParameter):
        do(project, Undo(since=since))


def test_an_undo_of_all_since_before_the_project_began_that_is_made_again_writes_nothing(
    project: Project,
) -> None:
    do(project, create(entity("Jon")))
    do(project, create(entity("Gina")))
    do(project, Undo())
    do(project, Undo(since=0))
    head = project.head()
    with pytest.raises(InvalidParameter):
        do(project, Undo(since=0))
    assert project.head() == head


def test_an_undo_of_all_since_amid_a_command_that_is_made_again_writes_nothing(
    project: Project,
) -> None:
    since = project.head() + 1
    do(project, create(entity("Jon", "was a banker"), entity("Gina")))
    do(project, create(entity("Mia")))
    do(project, Undo())
    do(project, create(entity("Mia")))
    do(project, Undo(since=since))
    head = project.head()
    with pytest.raises(InvalidParameter):
        do(project, Undo(since=since))
    assert project.head() == head


def test_what_a_refused_undo_since_names_is_there_and_leads_on(project: Project) -> None:
    """Not an undo that the refused one had made on its way."""
    since = project.head()
    do(project, create(entity("Jon", "a banker")), actor="phone")
    do(project, Undo(position=since + 1), actor="phone")
    do(project, create(entity("Jon")))
    do(project, Undo(position=since + 3, cascade=True), actor="phone")
    do(project, DeleteEntities(entity_names=["Jon"]))
    deleted = project.head() - 1
    command = Undo(since=since, actor="phone", cascade=True)
    for suggestion, named, advised in ((f"{deleted}}}", [], deleted), ("by position", [7], 7)):
        with pytest.raises(Conflict, match="cannot be undone alone") as refused:
            do(project, command)
        assert suggestion in str(refused.value.suggestion)
        assert [each.path for each in refused.value.problems] == [f"position {x}" for x in named]
        do(project, Undo(position=advised))
    with pytest.raises(InvalidParameter, match="no command by 'phone' after position"):
        do(project, command)


def test_an_undo_of_all_since_whose_undo_is_undone_reads_each_entry_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    for times in (20, 80):
        project = Project(tmp_path / f"prj_{times}")
        do(project, CreateProject(name="one"))
        do(project, create(entity("Jon")))
        since, before = project.head(), rows(project)
        for number in range(times):
            do(project, add("Jon", f"is {number}"))
        do(project, Undo(since=since))
        do(project, Undo(position=project.head()))
        read.append(rows_read(project, Undo(since=since), monkeypatch))
        assert rows(project) == before
        project.close()
    assert read[1] < 5 * read[0]


def by_phone(project: Project, since: int) -> tuple[set[int], set[str]]:
    """The positions of what phone did after one, and the ids of what it was the first to tell of. Not of what others
    undid: where phone had deleted a part of that, the part comes back with the undo of the deletion."""
    told, positions, first = set[str](), set[int](), set[str]()
    with project.snapshot() as (log, _):
        entries = list(log.read(0))
    others = set(undone(each for each in entries if each.actor != "phone"))
    for entry in entries:
        names = ("entity_id", "observation_id", "relation_id", "memory_id")
        ids = {getattr(entry.event, name) for name in names if hasattr(entry.event, name)}
        if entry.actor == "phone" and entry.position > since:
            positions.add(entry.position)
            first |= ids - told if entry.position not in others else set()
        told |= ids
    return positions, first


def visible(project: Project) -> set[str]:
    """The ids of all that stands."""
    with project.read() as state:
        entities = [each.id for each in state.entities()]
        facts = [fact.id for each in entities for fact in state.observations(each)]
        memories = [each.id for each in state.memories() if each.active]
        return {*entities, *facts, *memories, *(each.id for each in state.relations())}


NO_TYPES = COMMANDS.filter(lambda each: not isinstance(each, RenameEntity) or each.new_type is None)
"""But for types: one that another set anew, to what it was before, cannot be told from the former."""


@given(
    st.lists(st.tuples(st.sampled_from(["phone", "desk"]), NO_TYPES), max_size=25),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from(["phone", "boss"]),
)
def test_undo_since_of_one_actor_takes_back_what_that_one_did_and_nothing_else(
    commands: list[tuple[str, AnyCommand]], since: int, cascade: bool, by: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        heads = {project.head()}
        for actor, command in commands:
            with suppress(MemlogError):
                do(project, meant(command, project), actor=actor)
            heads.add(project.head())
        if since in heads:
            undo_of_phone(project, Undo(since=since, actor="phone", cascade=cascade), by)
        project.close()


def undo_of_phone(project: Project, command: Undo, by: str) -> None:
    """Does it, and tells what has to hold then, be it refused or not."""
    assert command.since is not None
    before, (positions, wrote) = rows(project), by_phone(project, command.since)
    with suppress(MemlogError):
        rehearsed = project.rehearse(command, Context(), lambda outcome: len(outcome.entries))
    try:
        done = do(project, command, actor=by)
    except MemlogError:
        assert rows(project) == before
        return
    after = rows(project)
    assert done == rehearsed
    assert not visible(project) & wrote
    if not command.cascade:
        with project.read() as state:
            touched = {key for each in positions for key in state.touched(each)}
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        assert {key for key in changed if key[:1] in b"EORM"} <= touched
    if command.cascade and by == "phone":  # what it took along was undone by phone then
        return
    with suppress(InvalidParameter):  # nothing is left
        assert do(project, command, actor=by) == 0
    if done:
        do(project, Undo(position=project.head()), actor="boss")
        assert rows(project) == before
        with suppress(InvalidParameter):  # it changed no more than when something was last touched
            do(project, command, actor=by)
    assert rows(project) == after
