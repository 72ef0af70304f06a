"""Specs of the decisions about history: rename, merge, new versions, undo."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice, pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memlog.codec import Entry
from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateMemory,
    CreateProject,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    Edge,
    EntityObservations,
    ForgetMemory,
    MergeEntities,
    NewEntity,
    NewObservation,
    NewRelation,
    ObservationDeletion,
    RenameEntity,
    SavedEntity,
    SavedRelation,
    SaveMemory,
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.decisions import undoing, undos
from memlog.decisions.restoring import SOFT_FIELDS
from memlog.errors import Conflict, EntityExists, EntityNotFound, InvalidParameter, MemlogError
from memlog.events import (
    EntityCreated,
    EntityDeleted,
    EntityMerged,
    EntityRenamed,
    EntityTypeChanged,
    ObservationAdded,
    ObservationDeleted,
    ObservationMoved,
    ObservationSuperseded,
    RelationAdded,
    RelationDeleted,
)
from memlog.log import Log
from memlog.projects.project import Origin, Project
from memlog.rows import ROW_TYPES
from memlog.state import State
from tests.counted import CountedRows
from tests.specs import Given
from tests.whole_state import flaws

JON = EntityCreated("ent_1", "Jon", "person")
GINA = EntityCreated("ent_2", "Gina", "person")
MIA = EntityCreated("ent_3", "Mia", "person")
BANKER = ObservationAdded("obs_1", "ent_1", "was a banker")
KNOWS = RelationAdded("rel_1", "Jon", "Gina", "knows")


def edges(state: State) -> set[tuple[str, str, str]]:
    return {(row.source, row.relation_type, row.target) for row in state.relations()}


# -- rename and merge


def test_a_renamed_entity_keeps_its_relations_and_is_found_by_both_names() -> None:
    renaming = RenameEntity(name="Jon", new_name="Jonathan")
    given = Given(JON, GINA, BANKER, KNOWS).when(renaming).then(EntityRenamed("ent_1", "Jonathan"))
    state = given.state()
    for name in ("Jon", "Jonathan"):
        entity = state.entity_named(name)
        assert entity is not None
        assert (entity.id, entity.name, entity.aliases) == ("ent_1", "Jonathan", ("Jon",))
    assert edges(state) == {("Jonathan", "knows", "Gina")}
    assert [row.target for row in state.relations_from("Jonathan")] == ["Gina"]


def test_creating_by_a_former_name_adds_facts_and_overwrites_none() -> None:
    given = Given(JON, BANKER, EntityRenamed("ent_1", "Jonathan"))
    again = NewEntity(name="Jon", entity_type="dancer", observations=["dances", "was a banker"])
    added = ObservationAdded("obs_101", "ent_1", "dances")
    given.when(CreateEntities(entities=[again], if_exists="replace")).then(added)


def test_relations_and_deletions_understand_a_former_name() -> None:
    given = Given(JON, GINA, EntityRenamed("ent_1", "Jonathan"))
    given.when(relate("Jon", "knows", "Gina")).then(
        RelationAdded("rel_101", "Jonathan", "Gina", "knows")
    )
    given.when(relate("Jonathan", "knows", "Gina")).then()
    edge = Edge(source="Jon", target="Gina", relation_type="knows")
    given.when(DeleteRelations(relations=[edge])).then(RelationDeleted("rel_101"))


def test_a_name_that_is_taken_is_refused() -> None:
    Given(JON, GINA).when(RenameEntity(name="Jon", new_name="Gina")).refused(
        EntityExists, "merge_entities"
    )


def test_a_former_name_of_another_entity_is_refused_with_its_name_of_now() -> None:
    given = Given(JON, GINA, EntityRenamed(JON.entity_id, "Jonathan"))
    given.when(RenameEntity(name="Gina", new_name="Jon")).refused(
        EntityExists, "Entity with name Jon exists already: it is called 'Jonathan' by now"
    )


def test_both_names_of_a_rename_that_cannot_be_used_are_told_at_once() -> None:
    error = (
        Given(JON)
        .when(RenameEntity(name="Mia", new_name="Jon"))
        .refused(InvalidParameter, "2 problems")
    )
    assert [problem.path for problem in error.problems] == ["name", "newName"]


def test_a_type_changes_alone_or_with_the_name_and_only_where_it_is_another() -> None:
    renamed, became = EntityRenamed("ent_1", "Jonathan"), EntityTypeChanged("ent_1", "dancer")
    given = Given(JON)
    given.when(RenameEntity(name="Jon", new_type="dancer")).then(became)
    given.when(RenameEntity(name="Jon", new_type="dancer")).then()
    Given(JON).when(RenameEntity(name="Jon", new_name="Jonathan", new_type="dancer")).then(
        became, renamed
    )
    Given(JON, GINA).when(RenameEntity(name="Jon", new_name="Gina", new_type="dancer")).refused(
        EntityExists, "merge_entities"
    )
    Given(JON).when(RenameEntity(name="Jon")).refused(InvalidParameter, "newType")


def test_an_entity_can_take_its_old_name_back() -> None:
    given = Given(JON, EntityRenamed("ent_1", "Jonathan"))
    given.when(RenameEntity(name="Jonathan", new_name="Jon")).then(EntityRenamed("ent_1", "Jon"))
    entity = given.state().entity_named("Jon")
    assert entity is not None
    assert entity.aliases == ("Jonathan",)


def test_a_renamed_entity_has_each_relation_once_where_some_waited_for_its_new_name() -> None:
    """One that led from it to that name goes, and one that led from it to itself before stays."""
    relations = (
        RelationAdded("rel_1", "Jon", "Mia", "knows"),
        RelationAdded("rel_2", "Jonathan", "Mia", "knows"),
        RelationAdded("rel_3", "Jon", "Jonathan", "knows"),
        RelationAdded("rel_4", "Jon", "Jon", "likes"),
    )
    given = Given(JON, MIA, *relations)
    given.when(RenameEntity(name="Jon", new_name="Jonathan")).then(
        RelationDeleted("rel_1"),
        RelationDeleted("rel_3"),
        EntityRenamed("ent_1", "Jonathan"),
    )
    assert edges(given.state()) == {("Jonathan", "knows", "Mia"), ("Jonathan", "likes", "Jonathan")}


def test_merging_unites_facts_once_and_relations_without_loops() -> None:
    facts = (
        ObservationAdded("obs_2", "ent_2", "was a banker"),
        ObservationAdded("obs_3", "ent_2", "runs a shop"),
    )
    relations = (
        KNOWS,
        RelationAdded("rel_2", "Jon", "Mia", "knows"),
        RelationAdded("rel_3", "Gina", "Mia", "knows"),
        RelationAdded("rel_4", "Gina", "Mia", "likes"),
    )
    given = Given(JON, GINA, MIA, BANKER, *facts, *relations)
    given.when(MergeEntities(names=["Gina"], into="Jon")).then(
        ObservationDeleted("obs_2"),
        ObservationMoved("obs_3", "ent_1"),
        RelationDeleted("rel_1"),
        RelationDeleted("rel_3"),
        EntityMerged("ent_2", "ent_1"),
    )
    state = given.state()
    assert [row.content for row in state.observations("ent_1")] == ["was a banker", "runs a shop"]
    assert edges(state) == {("Jon", "knows", "Mia"), ("Jon", "likes", "Mia")}
    merged = state.entity_named("Gina")
    assert merged is not None
    assert (merged.name, merged.aliases) == ("Jon", ("Gina",))
    assert [row.id for row in state.retired_observations("ent_1")] == ["obs_2"]


def test_merging_names_every_missing_entity() -> None:
    error = (
        Given(JON).when(MergeEntities(names=["Jon", "Ginna"], into="Bob")).refused(EntityNotFound)
    )
    assert [problem.path for problem in error.problems] == ["names[1]", "into"]


def test_merging_an_entity_into_itself_says_nothing() -> None:
    Given(JON).when(MergeEntities(names=["Jon"], into="Jon")).then()


def test_an_updated_observation_is_a_new_version() -> None:
    update = UpdateObservation(
        entity_name="Jon", observation="was a banker", new_content="is a dancer"
    )
    Given(JON, BANKER).when(update).then(ObservationSuperseded("obs_101", "obs_1", "is a dancer"))


def test_an_observation_updated_to_what_the_entity_says_already_is_said_once() -> None:
    dancer = ObservationAdded("obs_2", "ent_1", "is a dancer")
    update = UpdateObservation(
        entity_name="Jon", observation="was a banker", new_content="is a dancer"
    )
    Given(JON, BANKER, dancer).when(update).then(
        ObservationDeleted("obs_2"), ObservationSuperseded("obs_101", "obs_1", "is a dancer")
    )


# -- undo, on disk


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "prj_1")
    do(opened, CreateProject(name="one"))
    yield opened
    opened.close()


def do(
    project: Project,
    command: AnyCommand,
    thread: str | None = None,
    *,
    actor: str | None = None,
    strict: bool = False,
) -> int:
    """Executes; the number of events it took."""
    context = Context(strict_relations=strict)
    return project.execute(
        command, context, lambda outcome: len(outcome.entries), Origin(thread=thread, actor=actor)
    )


def entity(name: str, *texts: str) -> NewEntity:
    return NewEntity(name=name, entity_type="person", observations=texts)


def create(*entities: NewEntity) -> CreateEntities:
    return CreateEntities(entities=entities)


def add(name: str, *contents: str | NewObservation) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=contents)])


def relate(source: str, kind: str, target: str) -> CreateRelations:
    return CreateRelations(
        relations=[NewRelation(source=source, target=target, relation_type=kind)]
    )


def record(tags: tuple[str, ...], confidence: float) -> CreateMemory:
    return CreateMemory(
        memory_type="note", content={"a": 1}, source="s", confidence=confidence, tags=tags
    )


def first_memory(project: Project) -> list[str]:
    with project.read() as state:
        return [row.id for row in state.memories()]


def facts_of_jon(project: Project) -> list[str]:
    with project.read() as state:
        jon = state.entity_named("Jon")
        return [row.content for row in state.observations(jon.id)] if jon else []


KINDS: dict[str, AnyCommand] = {
    "create": create(entity("New", "a")),
    "overwrite": create(entity("Jon", "b", "c")),
    "add": add("Jon", "new"),
    "supersede": add("Jon", NewObservation(content="new", supersedes="a")),
    "update": UpdateObservation(entity_name="Jon", observation="a", new_content="z"),
    "delete observation": DeleteObservations(
        deletions=[ObservationDeletion(entity_name="Jon", observations=["a"])]
    ),
    "delete entity": DeleteEntities(entity_names=["Jon"]),
    "relate": relate("Gina", "likes", "Jon"),
    "unrelate": DeleteRelations(
        relations=[Edge(source="Jon", target="Gina", relation_type="knows")]
    ),
    "rename": RenameEntity(name="Jon", new_name="Jonathan"),
    "merge": MergeEntities(names=["Gina"], into="Jon"),
    "save": SaveMemory(
        entities=[
            SavedEntity(
                name="Jon",
                entity_type="Person",
                observations=["fresh fact"],
                relations=[SavedRelation(target_entity="Gina", relation_type="likes")],
                importance=0.9,
            )
        ]
    ),
    "store": StoreMemory(content="x"),
    "record": record(("a",), 0.5),
    "record again": record(("b",), 0.9),
}


@pytest.mark.parametrize("kind", KINDS)
def test_undo_gives_the_state_before_and_undoing_that_the_state_after(
    project: Project, kind: str
) -> None:
    do(project, create(entity("Jon", "a", "b"), entity("Gina", "a", "g")))
    do(project, relate("Jon", "knows", "Gina"))
    do(project, record(("t",), 0.7))
    before = project.digest()
    do(project, KINDS[kind])
    after = project.digest()
    assert after != before
    assert do(project, Undo()) == 1
    assert project.digest() == before
    do(project, Undo(position=project.head()))
    assert project.digest() == after
    assert project.is_as_rebuilt()


def test_memories_superseded_or_forgotten_come_back(project: Project) -> None:
    do(project, StoreMemory(content="old"))
    do(project, StoreMemory(content="new"))
    new, old = first_memory(project)
    for command in (SupersedeMemory(old_memory_id=old, new_memory_id=new), ForgetMemory(id=old)):
        before = project.digest()
        do(project, command)
        assert first_memory(project) == [new]
        do(project, Undo())
        assert first_memory(project) == [new, old]
        assert project.digest() == before


def test_undo_goes_further_back_each_time_and_not_in_circles(project: Project) -> None:
    digests = [project.digest()]
    for name in ("a", "b", "c"):
        do(project, create(entity(name)))
        digests.append(project.digest())
    for expected in (2, 1, 0):
        do(project, Undo())
        assert project.digest() == digests[expected]
    with pytest.raises(InvalidParameter, match="no command"):
        do(project, Undo())


def test_an_undo_of_several_commands_that_come_to_nothing_can_itself_be_undone(
    project: Project,
) -> None:
    digests = [project.digest()]
    for command in (create(entity("Jon", "a")), DeleteEntities(entity_names=["Jon"])):
        do(project, command)
        digests.append(project.digest())
    deleted = project.head()
    do(project, Undo(last=2))
    assert project.digest() == digests[0]
    undo = project.head()
    assert do(project, Undo(position=undo)) == 2
    assert do(project, Undo(position=undo)) == 0
    assert project.digest() == digests[2]
    assert project.is_as_rebuilt()
    do(project, Undo(position=deleted))
    assert project.digest() == digests[1]
    do(project, Undo())
    assert project.digest() == digests[0]


def test_undo_of_more_commands_than_there_are_says_how_many_there_are(project: Project) -> None:
    for name in ("a", "b"):
        do(project, create(entity(name)))
    before = project.digest()
    with pytest.raises(InvalidParameter, match=r"There are 2 commands to undo, not 3") as refused:
        do(project, Undo(last=3))
    assert refused.value.suggestion == "Pass last=2 to undo all there is."
    assert project.digest() == before
    do(project, Undo(last=2))
    with project.read() as state:
        assert list(state.entities()) == []


def test_undo_that_looked_not_through_all_of_the_log_says_how_far_it_looked(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undos, "SEARCHED_BACK_MAX", 3)
    do(project, create(entity("mine")), thread="me")
    for name in ("a", "b", "c"):
        do(project, create(entity(name)), thread="you")
    with pytest.raises(InvalidParameter, match="of thread 'me' among the newest 3 entries") as told:
        do(project, Undo(thread="me"))
    assert "by its position" in (told.value.suggestion or "")


def test_undo_of_a_thread_takes_back_its_last_command_only(project: Project) -> None:
    do(project, create(entity("mine")), thread="me")
    do(project, create(entity("yours")), thread="you")
    do(project, Undo(thread="me"))
    with project.read() as state:
        assert [row.name for row in state.entities()] == ["yours"]


def test_what_came_later_on_the_same_entity_stays(project: Project) -> None:
    do(project, create(entity("Jon", "a")))
    do(project, add("Jon", "b"))
    position = project.head()
    do(project, add("Jon", "c"))
    do(project, Undo(position=position))
    assert facts_of_jon(project) == ["a", "c"]


def test_undo_refuses_and_names_what_depends_on_it_unless_told_to_cascade(
    project: Project,
) -> None:
    do(project, create(entity("Jon")))
    position, before = project.head(), project.digest()
    do(project, add("Jon", "later"))
    do(project, relate("Jon", "knows", "Gina"))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=position))
    assert [problem.path for problem in caught.value.problems] == ["position 3", "position 4"]
    assert do(project, Undo(position=position, cascade=True)) == 3
    with project.read() as state:
        assert list(state.entities()) == []
        assert list(state.relations()) == []
    assert project.digest() != before


def test_of_one_row_what_is_undone_goes_and_what_was_changed_beside_it_stays(
    project: Project,
) -> None:
    do(project, create(entity("Jon")))
    do(project, RenameEntity(name="Jon", new_name="Jonathan"))
    position = project.head()
    do(project, RenameEntity(name="Jonathan", new_name="Jonathan", new_type="robot"))
    do(project, Undo(position=position))
    with project.read() as state:
        jon = state.entity_named("Jon")
        assert jon is not None
        assert (jon.name, jon.entity_type) == ("Jon", "robot")


def test_a_cascade_undoes_what_really_stands_in_the_way_and_ends(project: Project) -> None:
    before = project.digest()
    do(project, create(entity("D", "x")))
    position = project.head()
    do(project, add("D", "y"))
    do(project, RenameEntity(name="D", new_name="C"))
    do(project, Undo(position=position, cascade=True))
    assert project.digest() == before


def test_what_is_undone_already_stays_so_whatever_was_done_alike_since(project: Project) -> None:
    do(project, create(entity("Jon", "a")))
    do(project, DeleteEntities(entity_names=["Jon"]))
    position = project.head()
    do(project, Undo())
    do(project, add("Jon", "b"))
    do(project, DeleteEntities(entity_names=["Jon"]))
    again, before = project.head(), project.digest()
    assert do(project, Undo(position=position)) == 0
    assert do(project, Undo(position=position, cascade=True)) == 0
    assert project.digest() == before
    do(project, Undo(position=again))
    do(project, Undo(position=position + 1, cascade=True))  # the undo: it is deleted again
    assert do(project, Undo(position=position)) > 0
    with project.read() as state:
        assert state.entity_named("Jon") is not None


@pytest.mark.parametrize("step_us", [1, 0], ids=["a clock that goes on", "one that stands"])
def test_a_fact_does_not_come_back_to_an_entity_that_was_deleted(
    step_us: int, tmp_path: Path
) -> None:
    """Where the clock stands, what is taken from an entity leaves its own row as it was."""
    times = count(1_750_000_000_000_000, step_us)
    project = Project(tmp_path / "prj_1", clock=lambda: next(times))
    do(project, CreateProject(name="one"))
    do(project, create(entity("Jon", "a")))
    do(
        project,
        DeleteObservations(deletions=[ObservationDeletion(entity_name="Jon", observations=["a"])]),
    )
    position = project.head()
    do(project, DeleteEntities(entity_names=["Jon"]))
    with pytest.raises(Conflict):
        do(project, Undo(position=position))
    project.close()


@pytest.mark.parametrize("later_text", ["café", "cafe\u0301"])
def test_a_fact_that_was_said_again_since_does_not_come_back_beside_it(
    project: Project, later_text: str
) -> None:
    said = EntityObservations(entity_name="Jon", contents=[later_text])
    do(project, create(entity("Jon", "café")))
    do(
        project,
        DeleteObservations(
            deletions=[ObservationDeletion(entity_name="Jon", observations=["café"])]
        ),
    )
    position = project.head()
    do(project, AddObservations(observations=[said]))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=position))
    assert caught.value.problems[0].path == f"position {position + 1}"
    assert facts_of_jon(project) == [later_text]
    do(project, Undo(position=position, cascade=True))
    assert facts_of_jon(project) == ["café"]


def unrelate(source: str, kind: str, target: str) -> AnyCommand:
    return DeleteRelations(relations=[Edge(source=source, target=target, relation_type=kind)])


RENAMES_C = RenameEntity(name="C", new_name="C2")
RENAMES_D = RenameEntity(name="D", new_name="D2")


@pytest.mark.parametrize(
    ("undone", "later"),
    [
        (RENAMES_C, relate("D", "likes", "C")),
        (unrelate("C", "knows", "D"), RENAMES_D),
        (RENAMES_C, RENAMES_D),
        (DeleteEntities(entity_names=["C"]), RENAMES_D),
        (unrelate("C", "knows", "D"), MergeEntities(names=["D"], into="E")),
    ],
)
def test_a_relation_is_not_left_at_a_name_that_its_entity_no_longer_has(
    project: Project, undone: AnyCommand, later: AnyCommand
) -> None:
    do(project, create(entity("C"), entity("D"), entity("E")))
    do(project, relate("C", "knows", "D"))
    before = project.digest()
    do(project, undone)
    position = project.head()
    do(project, later)
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=position))
    assert caught.value.problems[0].path == f"position {position + 1}"
    do(project, Undo(position=position, cascade=True))
    assert project.digest() == before


def test_a_relation_does_not_come_back_to_a_name_that_was_taken_back(project: Project) -> None:
    do(project, create(entity("C"), entity("D")))
    do(project, RENAMES_C)
    renamed = project.head()
    do(project, relate("D", "knows", "C2"))
    do(project, unrelate("D", "knows", "C2"))
    deleted = project.head()
    do(project, Undo(position=renamed))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=deleted))
    assert caught.value.problems[0].path == f"position {project.head()}"


def test_what_gave_a_relation_its_end_does_not_keep_it_from_coming_back_but_the_rename_that_followed(
    project: Project,
) -> None:
    do(project, relate("D", "knows", "C"))
    do(project, unrelate("D", "knows", "C"))
    deleted = project.head()
    do(project, create(entity("C")))
    do(project, RENAMES_C)
    renamed = project.head()
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=deleted))
    assert [problem.path for problem in caught.value.problems] == [f"position {renamed}"]
    do(project, Undo(position=renamed))
    do(project, Undo(position=deleted))
    with project.read() as state:
        assert edges(state) == {("D", "knows", "C")}


def test_a_relation_is_not_left_at_a_name_that_comes_back_as_a_former_one(project: Project) -> None:
    do(project, create(entity("C"), entity("D")))
    do(project, MergeEntities(names=["D"], into="C"))
    do(project, DeleteEntities(entity_names=["C"]))
    position = project.head()
    do(project, relate("D", "waits for", "E"))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=position))
    assert caught.value.problems[0].path == f"position {position + 1}"


def test_a_merge_is_not_redone_over_a_relation_of_the_name_that_would_go(project: Project) -> None:
    do(project, create(entity("C")))
    do(project, create(entity("D")))
    created = project.head()
    do(project, MergeEntities(names=["D"], into="C"))
    do(project, Undo(position=created, cascade=True))
    undone = project.head()
    do(project, relate("D", "waits for", "E"))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=undone))
    assert caught.value.problems[0].path == f"position {undone + 1}"


def test_a_relation_that_waited_for_a_name_does_not_keep_a_rename_from_being_undone(
    project: Project,
) -> None:
    do(project, create(entity("C"), entity("D")))
    do(project, relate("D", "waits for", "C2"))
    do(project, RENAMES_C)
    position = project.head()
    do(project, RENAMES_D)
    do(project, Undo(position=position))
    with project.read() as state:
        assert edges(state) == {("D2", "waits for", "C2")}


@pytest.mark.parametrize("what", ["facts", "relations"])
def test_an_entity_is_not_taken_from_what_an_undo_brought_back_to_it(
    project: Project, what: str
) -> None:
    do(project, create(entity("Jon", "a banker", "a dancer"), entity("Gina")))
    strict = what == "relations"
    if strict:
        do(project, relate("Jon", "knows", "Gina"))
        do(project, unrelate("Jon", "knows", "Gina"))
    else:
        do(project, DeleteObservations([ObservationDeletion("Jon", ["a banker", "a dancer"])]))
    deleted = project.head()
    do(project, DeleteEntities(entity_names=["Jon"]))
    do(project, Undo(position=project.head()))
    there = project.head()
    do(project, Undo(position=deleted))
    with pytest.raises(Conflict) as refused:
        do(project, Undo(position=there), strict=strict)
    assert [each.path for each in refused.value.problems] == [f"position {there + 1}"]
    with project.read() as state:
        assert flaws(state) == []
    do(project, Undo(position=there + 1), strict=strict)
    do(project, Undo(position=there), strict=strict)
    with project.read() as state:
        assert [each.name for each in state.entities()] == ["Gina"]
        assert flaws(state) == []


def test_a_relation_comes_back_to_what_was_deleted_since_only_where_relations_may_wait(
    project: Project,
) -> None:
    edge = Edge(source="Jon", target="Gina", relation_type="knows")
    do(project, create(entity("Jon"), entity("Gina")))
    do(project, relate("Jon", "knows", "Gina"))
    do(project, DeleteRelations(relations=[edge]))
    parted = project.head()
    do(project, DeleteEntities(entity_names=["Gina"]))
    gone = project.head()
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=parted), strict=True)
    assert [problem.path for problem in caught.value.problems] == [f"position {gone}"]
    do(project, Undo(position=parted))
    with project.read() as state:
        assert edges(state) == {("Jon", "knows", "Gina")}
        assert state.entity_named("Gina") is None
    do(project, Undo(position=project.head()))
    do(project, Undo(position=parted, cascade=True), strict=True)
    with project.read() as state:
        assert edges(state) == {("Jon", "knows", "Gina")}
        assert state.entity_named("Gina") is not None


def test_a_memory_that_was_forgotten_later_is_not_listed_again(project: Project) -> None:
    do(project, StoreMemory(content="old"))
    do(project, StoreMemory(content="new"))
    new, old = first_memory(project)
    do(project, SupersedeMemory(old_memory_id=old, new_memory_id=new))
    position = project.head()
    do(project, ForgetMemory(id=old))
    with pytest.raises(Conflict):
        do(project, Undo(position=position))
    assert first_memory(project) == [new]


def test_what_is_saved_again_is_kept_also_where_the_same_was_forgotten_before(
    project: Project,
) -> None:
    for _ in range(2):
        do(project, StoreMemory(content="tea"))
    undone = project.head()
    do(project, ForgetMemory(id=first_memory(project)[1]))
    do(project, Undo(position=undone))
    assert first_memory(project) == []
    do(
        project,
        CreateMemory(memory_type="fact", content="tea", source="extracted", confidence=1.0),
    )
    assert len(first_memory(project)) == 1


@pytest.mark.parametrize("superseded", [False, True])
def test_a_record_that_was_saved_again_since_does_not_come_back_beside_it(
    project: Project, superseded: bool
) -> None:
    do(project, record(("x",), 0.5))
    (first,) = first_memory(project)
    do(project, StoreMemory(content="later"))
    later = first_memory(project)[0]
    if superseded:
        do(project, SupersedeMemory(old_memory_id=first, new_memory_id=later))
    else:
        do(project, ForgetMemory(id=first))
    position = project.head()
    do(project, record(("y",), 0.9))
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=position))
    assert caught.value.problems[0].path == f"position {position + 1}"
    do(project, Undo(position=position, cascade=True))
    assert first_memory(project) == [later, first]


@pytest.mark.parametrize("cascade", [False, True])
def test_a_record_that_was_saved_again_unchanged_does_not_vanish_with_its_first_save(
    project: Project, cascade: bool
) -> None:
    before = project.digest()
    for _ in range(2):
        do(project, record(("a",), 0.5))
    first, again = project.head() - 1, project.head()
    with pytest.raises(Conflict) as caught:
        do(project, Undo(position=first))
    assert [problem.path for problem in caught.value.problems] == [f"position {again}"]
    assert len(first_memory(project)) == 1
    if not cascade:
        do(project, Undo(position=again))
        do(project, Undo(position=project.head()))  # it was saved again after all
        with pytest.raises(Conflict):
            do(project, Undo(position=first))
        do(project, Undo(position=again))
    do(project, Undo(position=first, cascade=cascade))
    assert project.digest() == before


def test_a_fact_comes_back_beside_one_that_says_the_same(project: Project) -> None:
    do(project, StoreMemory(content="tea"))
    (first,) = first_memory(project)
    do(project, ForgetMemory(id=first))
    position = project.head()
    do(project, StoreMemory(content="tea"))
    do(project, Undo(position=position))
    assert len(first_memory(project)) == 2


def test_the_life_of_a_project_is_not_undone(project: Project) -> None:
    with pytest.raises(InvalidParameter, match="life of the project"):
        do(project, Undo(position=1))


# -- undo, over random histories

FORGETS = ForgetMemory(id="newest")
SUPERSEDES = SupersedeMemory(old_memory_id="oldest", new_memory_id="newest")
NAMES = st.sampled_from(["A", "B", "C"])
TEXTS = st.sampled_from(["x", "y", "z"])
UNDO_AT = st.builds(lambda p, c: Undo(position=p, cascade=c), st.integers(2, 30), st.booleans())
ABOUT_MEMORIES = st.one_of(
    st.builds(lambda t: record((t,), 0.5), TEXTS),
    st.builds(StoreMemory, content=TEXTS),
    st.just(FORGETS),
    st.just(SUPERSEDES),
    st.builds(Undo, last=st.integers(1, 2)),
    UNDO_AT,
)
COMMANDS = st.one_of(
    st.builds(lambda n, t: create(entity(n, *t)), NAMES, st.lists(TEXTS, max_size=2)),
    st.builds(add, NAMES, TEXTS),
    st.builds(lambda n, t, s: add(n, NewObservation(content=t, supersedes=s)), NAMES, TEXTS, TEXTS),
    st.builds(lambda a, b: relate(a, "r", b), NAMES, NAMES),
    st.builds(lambda n: DeleteEntities(entity_names=[n]), NAMES),
    st.builds(lambda n, m: RenameEntity(name=n, new_name=m), NAMES, NAMES),
    st.builds(lambda n, m: RenameEntity(name=n, new_type=m), NAMES, NAMES),
    st.builds(lambda n, m: MergeEntities(names=[n], into=m), NAMES, NAMES),
    ABOUT_MEMORIES,
)
HISTORIES = st.lists(COMMANDS, max_size=25) | st.lists(ABOUT_MEMORIES, min_size=12, max_size=25)


def meant(command: AnyCommand, project: Project) -> AnyCommand:
    """The command with the ids of the living memories that it means, where there are any."""
    living = first_memory(project)
    if living and command == FORGETS:
        return ForgetMemory(id=living[0])
    if living and command == SUPERSEDES:
        return SupersedeMemory(old_memory_id=living[-1], new_memory_id=living[0])
    return command


def records(project: Project) -> int:
    with project.read() as state:
        return sum(row.memory_type != "fact" for row in state.memories())


@given(HISTORIES)
def test_whatever_happened_the_last_command_can_be_undone_and_redone(
    commands: list[AnyCommand],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        before = after = project.digest()
        changed = 0
        for command in commands:
            now = project.digest()
            try:
                if do(project, meant(command, project)):
                    before, after, changed = now, project.digest(), project.head()
            except MemlogError:
                assert project.digest() == now
            assert records(project) <= 1, "all of them say the same"
        if changed:
            do(project, Undo(position=changed, cascade=True))
            assert project.digest() == before
            do(project, Undo(position=project.head(), cascade=True))
            assert project.digest() == after
        assert project.is_as_rebuilt()
        project.close()


@given(HISTORIES)
def test_where_relations_are_strict_none_leads_to_nothing_whatever_is_undone(
    commands: list[AnyCommand],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        for command in (create(entity("A"), entity("B"), entity("C")), *commands):
            with suppress(MemlogError):
                do(project, meant(command, project), strict=True)
            with project.read() as state:
                ends = {end for row in state.relations() for end in (row.source, row.target)}
                assert all(state.entity_named(end) for end in ends)
        project.close()


TABLES = (b"E", b"N", b"O", b"C", b"I", b"H", b"R", b"K", b"T", b"M", b"A", b"L", b"B", b"X")


def rows(project: Project) -> dict[bytes, object]:
    """All that stands in the tables, but for when it was last touched."""

    def told(key: bytes, row: bytes | None) -> object:
        kind = ROW_TYPES.get(key[:1])
        if kind is None or row is None:
            return row
        fields = msgspec.structs.asdict(msgspec.msgpack.decode(row, type=kind))
        return {name: value for name, value in fields.items() if name not in SOFT_FIELDS}

    with project.read() as state:
        keys = [key for table in TABLES for key in state.keys(table)]
        return {key: told(key, state.row(key)) for key in keys}


@given(HISTORIES)
def test_what_undoes_all_that_happened_the_latest_first_goes_back_through_every_state_there_was(
    commands: list[AnyCommand],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        states = {project.head(): rows(project)}
        for command in commands:
            with suppress(MemlogError):
                do(project, meant(command, project))
            states[project.head()] = rows(project)
        *heads, last = states
        assert rows(project) == states[last]
        for head, before in pairwise([last, *reversed(heads)]):
            do(project, Undo(position=head))
            assert rows(project) == states[before]
        project.close()


@given(HISTORIES, st.integers(1, 30))
@example(
    [
        *[record(("x",), 0.5)] * 3,
        FORGETS,
        *[record(("x",), 0.5)] * 4,
        *(FORGETS, Undo(last=2), FORGETS, Undo(position=11, cascade=True)),
    ],
    1,
)
@example(
    [
        *[record(("x",), 0.5)] * 3,
        SUPERSEDES,
        *[record(("x",), 0.5)] * 4,
        *(Undo(), record(("x",), 0.5), Undo(position=9)),
    ],
    1,
)
def test_what_undoes_all_since_a_position_goes_back_to_what_was_there(
    commands: list[AnyCommand], since: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        states = {project.head(): rows(project)}
        for command in commands:
            with suppress(MemlogError):
                do(project, meant(command, project))
            states[project.head()] = rows(project)
        if since in states and since < project.head():
            for _ in range(2):
                with suppress(InvalidParameter):  # all of it is undone already
                    do(project, Undo(since=since))
                assert rows(project) == states[since]
        project.close()


def test_undo_since_a_position_takes_back_undos_too_and_of_one_actor_only_what_that_one_did(
    project: Project,
) -> None:
    do(project, create(entity("Jon", "a banker")), actor="desk")
    do(project, create(entity("Gina")), actor="desk")
    since = project.head()
    do(project, Undo(), actor="phone")
    do(project, add("Jon", "a thief"), actor="phone")
    do(project, add("Jon", "a dancer"), actor="desk")
    do(
        project,
        DeleteObservations(deletions=[ObservationDeletion("Jon", ["a banker"])]),
        actor="phone",
    )
    do(project, Undo(since=since, actor="phone"))
    assert facts_of_jon(project) == ["a banker", "a dancer"]
    with project.read() as state:
        assert state.entity_named("Gina") is not None
    with pytest.raises(InvalidParameter, match=f"no command by 'tablet' after position {since}"):
        do(project, Undo(since=since, actor="tablet"))


def test_undo_since_a_position_within_a_command_leaves_that_command(project: Project) -> None:
    do(project, create(entity("Jon", "a", "b")))
    within = project.head() - 1
    do(project, add("Jon", "c"))
    do(project, Undo(since=within))
    assert facts_of_jon(project) == ["a", "b"]


def test_undo_since_refuses_where_what_others_did_depends_on_it_unless_told_to_cascade(
    project: Project,
) -> None:
    since = project.head()
    do(project, create(entity("Jon")), thread="b")
    do(project, add("Jon", "a dancer"), thread="a")
    with pytest.raises(Conflict) as refused:
        do(project, Undo(since=since, thread="b"))
    assert [each.path for each in refused.value.problems] == [f"position {project.head()}"]
    do(project, Undo(since=since, thread="b", cascade=True))
    with project.read() as state:
        assert list(state.entities()) == []


def by_hand(position: int, project: Project) -> None:
    """Undoes it, and before that what a refusal names as in the way, the latest first. Raises as `undo` does."""
    tried: set[int] = set()
    while True:
        try:
            do(project, Undo(position=position))
            return
        except Conflict as refused:
            named = {int(each.path.removeprefix("position ")) for each in refused.problems} - tried
            if not named:
                raise
        latest = max(named)
        tried.update(of_one_command(latest, project))
        by_hand(latest, project)


def of_one_command(position: int, project: Project) -> list[int]:
    with project.snapshot() as (log, _):
        entries = list(log.read(0))
    command = entries[position - 1].command_id
    return [each.position for each in entries if each.command_id == command]


STEPS_MAX = 300


def as_told(position: int, project: Project) -> Iterator[int]:
    """Does what each refusal says, the latest that it names first, and tells at which position, until it is done or a
    refusal names nothing more to undo."""
    wanted = [position]
    while wanted:
        yield wanted[-1]
        try:
            do(project, Undo(position=wanted[-1]))
            wanted.pop()
        except Conflict as refused:
            if not refused.problems:
                assert refused.suggestion == undoing.ANEW
                return
            wanted.append(max(int(each.path.split()[-1]) for each in refused.problems))


@given(st.lists(COMMANDS | UNDO_AT, max_size=30), st.integers(2, 30))
def test_who_does_what_a_refusal_says_comes_to_an_end(
    commands: list[AnyCommand], position: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder) / "prj_1")
        do(project, CreateProject(name="one"))
        for command in commands:
            with suppress(MemlogError):
                do(project, meant(command, project))
        if position <= project.head():
            steps = list(islice(as_told(position, project), STEPS_MAX))
            assert len(steps) < STEPS_MAX, steps
        project.close()


def test_an_undo_made_as_a_refusal_says_is_not_named_as_in_the_way_itself(
    project: Project,
) -> None:
    do(project, record(("x",), 0.5))
    do(project, ForgetMemory(id=first_memory(project)[0]))
    forgot = project.head()
    do(project, record(("y",), 0.5))
    do(project, Undo())
    wanted = project.head()
    do(project, Undo(position=forgot))
    brought_back = project.head()
    do(project, record(("z",), 0.5))
    again = project.head()
    assert list(as_told(wanted, project)) == [wanted, again, wanted, brought_back, wanted]
    with project.read() as state:
        assert [row.tags for row in state.memories()] == [("y",)]


def test_what_another_undo_brought_back_of_an_undone_command_is_said_to_go_with_that_command(
    project: Project,
) -> None:
    before = project.digest()
    do(project, create(entity("Gina")))
    created = project.head()
    jon = SavedEntity(
        name="Jon",
        entity_type="Person",
        observations=["was a banker"],
        relations=[SavedRelation(target_entity="Gina", relation_type="knows")],
    )
    do(project, SaveMemory(entities=[jon]))
    related = project.head()
    do(project, DeleteEntities(entity_names=["Gina"]))
    deleted = project.head()
    do(project, Undo(position=related))
    undo = project.head()
    do(project, Undo(position=deleted))  # with the relation to Jon
    assert list(as_told(created, project)) == [created, undo, created, related, created]
    assert project.digest() == before


def undone(project: Project, after: int) -> list[object]:
    with project.snapshot() as (log, _):
        return [entry.event for entry in log.read(after)]


@given(HISTORIES, st.integers(2, 30))
@example(
    [
        *(record(("x",), 0.5), ForgetMemory(id="newest")),
        *(record(("y",), 0.5), record(("y",), 0.5), record(("x",), 0.5), Undo(last=2)),
        *(record(("x",), 0.5), ForgetMemory(id="newest"), record(("x",), 0.5)),
    ],
    7,
)
def test_a_cascade_undoes_what_one_would_undo_by_hand_the_latest_first(
    commands: list[AnyCommand], position: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        at_once = Project(Path(folder) / "prj_1")
        do(at_once, CreateProject(name="one"))
        for command in commands:
            with suppress(MemlogError):
                do(at_once, meant(command, at_once))
        head = at_once.head()
        shutil.copytree(Path(folder) / "prj_1", Path(folder) / "prj_2")
        one_by_one = Project(Path(folder) / "prj_2")
        refused: MemlogError | None = None
        try:
            do(at_once, Undo(position=position, cascade=True))
        except MemlogError as error:
            refused = error
        if refused is None:
            by_hand(position, one_by_one)
            both = undone(at_once, head), undone(one_by_one, head)
            if (
                len(of_one_command(position, at_once)) > 1
            ):  # of several undos, each comes with what is in its way
                both = sorted(both[0], key=repr), sorted(both[1], key=repr)
            assert both[0] == both[1]
        elif refused.suggestion != undoing.BY_HAND:  # an undo, which no cascade takes back
            with pytest.raises(MemlogError):
                by_hand(position, one_by_one)
        one_by_one.close()
        at_once.close()


def test_a_cascade_goes_through_a_thousand_commands_each_of_which_depends_on_the_last(
    project: Project,
) -> None:
    do(project, create(entity("Jon")))
    before = project.digest()
    do(project, add("Jon", "is 0"))
    position = project.head()
    for age in range(1_000):
        old, new = f"is {age}", f"is {age + 1}"
        do(project, UpdateObservation(entity_name="Jon", observation=old, new_content=new))
    assert do(project, Undo(position=position, cascade=True)) == 1_001
    assert project.digest() == before


def test_an_undo_of_many_commands_reads_each_entry_a_few_times_however_many_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, context = Project(tmp_path), Context()
    project.execute(CreateProject(name="many"), context, lambda _: None)
    for number in range(400):
        command = CreateEntities(entities=[NewEntity(name=f"e{number}", entity_type="thing")])
        origin = Origin(thread="seldom" if number % 10 == 0 else "often")
        project.execute(command, context, lambda _: None, origin)
    reads = 0
    look = Log.entry

    def counted(log: Log, position: int) -> Entry | None:
        nonlocal reads
        reads += 1
        return look(log, position)

    monkeypatch.setattr(Log, "entry", counted)
    project.execute(Undo(last=40, thread="seldom"), context, lambda _: None)
    assert reads < 4 * 401
    with project.read() as state:
        assert {entity.name for entity in state.entities()} == {
            f"e{number}" for number in range(400) if number % 10
        }
    project.close()


def test_an_undo_of_all_since_reads_each_entry_a_few_times_also_where_one_builds_on_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, look, looks = list[int](), Log.entry, 0

    def counted(log: Log, position: int) -> Entry | None:
        nonlocal looks
        looks += 1
        return look(log, position)

    monkeypatch.setattr(Log, "entry", counted)
    for renames in (50, 200):
        project = Project(tmp_path / f"prj_{renames}")
        do(project, CreateProject(name="one"))
        do(project, create(entity("0")))
        since, before = project.head(), rows(project)
        for number in range(renames):
            do(project, RenameEntity(name=str(number), new_name=str(number + 1)))
        looks = 0
        do(project, Undo(since=since))
        reads.append(looks)
        assert rows(project) == before
        project.close()
    assert reads[1] < 5 * reads[0]


def rows_read(project: Project, command: AnyCommand, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows and entries are read to decide about it, be it refused or not."""
    monkeypatch.setattr("memlog.projects.contents.LmdbRows", CountedRows)
    before, entries, look = CountedRows.reads, 0, Log.entry

    def counted(log: Log, position: int) -> Entry | None:
        nonlocal entries
        entries += 1
        return look(log, position)

    monkeypatch.setattr(Log, "entry", counted)
    with suppress(Conflict):
        do(project, command)
    monkeypatch.undo()
    return CountedRows.reads - before + entries


def test_of_a_command_that_is_in_the_way_of_an_undo_each_part_is_read_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    for facts in (100, 400):
        project = Project(tmp_path / f"prj_{facts}")
        do(project, CreateProject(name="one"))
        do(project, create(entity("Jon")))
        born = project.head()
        do(project, add("Jon", *(f"is {number}" for number in range(facts))))
        read.append(rows_read(project, Undo(position=born), monkeypatch))
        project.close()
    assert read[1] < 5 * read[0]


def test_a_cascade_over_a_record_saved_again_and_again_looks_once_at_what_of_each_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    for times in (50, 200):
        project = Project(tmp_path / f"prj_{times}")
        do(project, CreateProject(name="one"))
        saved = project.head() + 1
        for _ in range(times):
            do(project, CreateMemory(memory_type="note", content="x", source="s", confidence=0.5))
        command = Undo(position=saved, cascade=True)
        read.append(rows_read(project, command, monkeypatch))
        assert project.head() == 1 + 2 * times
        project.close()
    assert read[1] < 5 * read[0]


def test_what_was_said_before_of_an_entity_that_is_merged_is_of_the_other_from_then_on() -> None:
    said = ObservationAdded("obs_1", "ent_1", "dances")
    given = Given(JON, GINA, said, ObservationDeleted("obs_1"), EntityMerged("ent_1", "ent_2"))
    (row,) = given.state().retired_observations("ent_2")
    assert (row.id, row.entity_id) == ("obs_1", "ent_2")
    assert given.state().observation("obs_1") == row


def test_every_name_of_an_entity_that_is_merged_goes_with_the_other_when_that_is_deleted() -> None:
    renamed = EntityRenamed("ent_1", "Jonathan")
    given = Given(JON, GINA, renamed, EntityMerged("ent_1", "ent_2"))
    assert (into := given.state().entity("ent_2")) and into.aliases == ("Jonathan", "Jon")
    given.happen(EntityDeleted("ent_2"))
    assert [given.state().entity_id_of(name) for name in ("Jon", "Jonathan", "Gina")] == [None] * 3
