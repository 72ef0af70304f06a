"""Specs of the decisions about the graph."""

from __future__ import annotations

import pytest

from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    Edge,
    EntityObservations,
    IfExists,
    NewEntity,
    NewObservation,
    NewRelation,
    ObservationDeletion,
    UpdateObservation,
)
from memlog.context import Context
from memlog.errors import (
    Conflict,
    EntityExists,
    EntityNotFound,
    InvalidParameter,
    ObservationNotFound,
    ProjectArchived,
)
from memlog.events import (
    CommandUndone,
    EntityCreated,
    EntityDeleted,
    EntityRenamed,
    EntityTypeChanged,
    MemoryStored,
    ObservationAdded,
    ObservationDeleted,
    ObservationSuperseded,
    RelationAdded,
    RelationDeleted,
)
from memlog.events import ProjectArchived as ProjectWasArchived
from memlog.rows import Observation, decode_observation
from tests.specs import Given

JON = EntityCreated("ent_1", "Jon", "person")
GINA = EntityCreated("ent_2", "Gina", "person")
BANKER = ObservationAdded("obs_1", "ent_1", "was a banker")
DANCER = ObservationAdded("obs_2", "ent_1", "likes dancing")
KNOWS = RelationAdded("rel_1", "Jon", "Gina", "knows")


def create(*entities: NewEntity, if_exists: IfExists | None = None) -> CreateEntities:
    return CreateEntities(entities=entities, if_exists=if_exists)


def jon(*observations: str, entity_type: str = "person") -> NewEntity:
    return NewEntity(name="Jon", entity_type=entity_type, observations=observations)


def add(name: str, *contents: str | NewObservation) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=contents)])


# -- create_entities


def test_a_new_entity_is_created_with_its_observations() -> None:
    Given().when(create(jon("was a banker"))).then(
        EntityCreated("ent_101", "Jon", "person"),
        ObservationAdded("obs_101", "ent_101", "was a banker"),
    )


def test_a_repeated_observation_of_one_entity_is_stored_once() -> None:
    Given().when(create(jon("a", "b", "a"))).then(
        EntityCreated("ent_101", "Jon", "person"),
        ObservationAdded("obs_101", "ent_101", "a"),
        ObservationAdded("obs_102", "ent_101", "b"),
    )


def test_creating_over_an_entity_keeps_what_stays_and_retires_the_rest() -> None:
    Given(JON, BANKER, DANCER).when(create(jon("likes dancing", "has a studio"))).then(
        ObservationDeleted("obs_1"),
        ObservationAdded("obs_101", "ent_1", "has a studio"),
    )


def test_creating_over_an_entity_gives_the_observations_the_order_asked_for() -> None:
    given = (
        Given(JON, BANKER, DANCER)
        .when(create(jon("likes dancing", "was a banker")))
        .then(
            ObservationDeleted("obs_1"),
            ObservationAdded("obs_101", "ent_1", "was a banker"),
        )
    )
    texts = [row.content for row in given.state().observations("ent_1")]
    assert texts == ["likes dancing", "was a banker"]


def test_creating_the_same_entity_again_says_nothing() -> None:
    Given(JON, BANKER).when(create(jon("was a banker"))).then()


def test_creating_over_an_entity_changes_its_type() -> None:
    Given(JON).when(create(jon(entity_type="dancer"))).then(EntityTypeChanged("ent_1", "dancer"))


@pytest.mark.parametrize("if_exists", ["replace", "merge", "skip", "error"])
def test_a_name_twice_in_one_request_is_one_entity_with_the_facts_of_both(
    if_exists: IfExists,
) -> None:
    twice = create(jon("a", "b"), jon("b", "c", entity_type="robot"), if_exists=if_exists)
    Given().when(twice).then(
        EntityCreated("ent_101", "Jon", "person"),
        ObservationAdded("obs_101", "ent_101", "a"),
        ObservationAdded("obs_102", "ent_101", "b"),
        ObservationAdded("obs_103", "ent_101", "c"),
    )


def test_a_name_twice_in_one_request_replaces_what_was_there_once() -> None:
    Given(JON, BANKER, DANCER).when(create(jon("likes dancing"), jon("a"))).then(
        ObservationDeleted("obs_1"), ObservationAdded("obs_101", "ent_1", "a")
    )


@pytest.mark.parametrize("names", [("Jon", "Jonathan"), ("Jonathan", "Jon")])
def test_a_former_name_beside_the_one_of_now_is_the_same_entity(names: tuple[str, str]) -> None:
    items = [
        NewEntity(name=name, entity_type="person", observations=[text])
        for name, text in zip(names, ("likes dancing", "a"), strict=True)
    ]
    renamed = EntityRenamed("ent_1", "Jonathan")
    Given(JON, BANKER, DANCER, renamed).when(create(*items)).then(
        ObservationDeleted("obs_1"), ObservationAdded("obs_101", "ent_1", "a")
    )


def test_an_existing_entity_that_is_named_by_a_former_name_is_refused_with_its_name_of_now() -> (
    None
):
    Given(JON, EntityRenamed("ent_1", "Jonathan")).when(create(jon(), if_exists="error")).refused(
        EntityExists, "Entity with name Jon exists already: it is called 'Jonathan' by now"
    )


def test_merging_adds_only_what_is_missing() -> None:
    Given(JON, BANKER).when(create(jon("was a banker", "new"), if_exists="merge")).then(
        ObservationAdded("obs_101", "ent_1", "new")
    )


def test_skipping_leaves_an_existing_entity_alone() -> None:
    other = NewEntity(name="Mia", entity_type="cat")
    Given(JON).when(create(jon("new"), other, if_exists="skip")).then(
        EntityCreated("ent_101", "Mia", "cat")
    )


def test_the_server_decides_what_happens_to_existing_names_unless_the_call_does() -> None:
    given = Given(JON, context=Context(if_exists="skip"))
    given.when(create(jon("new"))).then()
    given.when(create(jon("new"), if_exists="merge")).then(
        ObservationAdded("obs_101", "ent_1", "new")
    )


def test_an_existing_name_can_be_an_error_that_names_every_one() -> None:
    request = create(jon(), NewEntity(name="Gina", entity_type="person"), if_exists="error")
    error = Given(JON, GINA).when(request).refused(EntityExists, "Jon", "Gina")
    assert [problem.path for problem in error.problems] == ["entities[0].name", "entities[1].name"]


def test_the_same_name_in_another_unicode_form_is_the_same_entity() -> None:
    composed, decomposed = "Caf\u00e9", "Cafe\u0301"
    Given(EntityCreated("ent_1", composed, "place")).when(
        create(NewEntity(name=decomposed, entity_type="place"))
    ).then()


# -- delete_entities


def test_deleting_an_entity_takes_its_observations_and_relations_on_both_sides() -> None:
    back = RelationAdded("rel_2", "Gina", "Jon", "knows")
    Given(JON, GINA, BANKER, KNOWS, back).when(DeleteEntities(entity_names=["Jon"])).then(
        ObservationDeleted("obs_1"),
        RelationDeleted("rel_1"),
        RelationDeleted("rel_2"),
        EntityDeleted("ent_1"),
    )


def test_a_relation_to_itself_is_deleted_once() -> None:
    own = RelationAdded("rel_1", "Jon", "Jon", "knows")
    Given(JON, own).when(DeleteEntities(entity_names=["Jon"])).then(
        RelationDeleted("rel_1"), EntityDeleted("ent_1")
    )


def test_deleting_what_is_not_there_says_nothing() -> None:
    Given(JON).when(DeleteEntities(entity_names=["Mia", "Jon", "Jon"])).then(EntityDeleted("ent_1"))


def test_a_name_is_free_again_after_deletion() -> None:
    Given(JON, EntityDeleted("ent_1")).when(create(jon("new"))).then(
        EntityCreated("ent_101", "Jon", "person"), ObservationAdded("obs_101", "ent_101", "new")
    )


# -- add_observations


def test_an_observation_is_added_once() -> None:
    Given(JON, BANKER).when(add("Jon", "was a banker", "new", "new")).then(
        ObservationAdded("obs_101", "ent_1", "new")
    )


def test_an_observation_supersedes_another_by_its_text_or_its_id() -> None:
    by_text = NewObservation(content="is a dancer", supersedes="was a banker", confidence=0.8)
    by_id = NewObservation(content="hates dancing", supersedes="obs_2")
    given = Given(JON, BANKER, DANCER)
    given.when(add("Jon", by_text, by_id)).then(
        ObservationSuperseded("obs_101", "obs_1", "is a dancer", 0.8),
        ObservationSuperseded("obs_102", "obs_2", "hates dancing"),
    )
    new = given.state().observation("obs_101")
    assert new is not None
    assert (new.version, new.supersedes) == (2, "obs_1")
    old = given.state().observation("obs_1")
    assert old is not None
    assert old.superseded_by == "obs_101"


def test_superseding_a_text_by_itself_says_nothing() -> None:
    same = NewObservation(content="was a banker", supersedes="was a banker")
    Given(JON, BANKER).when(add("Jon", same)).then()


def test_superseding_by_what_the_entity_says_already_leaves_that_once() -> None:
    known = NewObservation(content="likes dancing", supersedes="was a banker")
    given = Given(JON, BANKER, DANCER)
    given.when(add("Jon", known)).then(
        ObservationDeleted("obs_2"), ObservationSuperseded("obs_101", "obs_1", "likes dancing")
    )


def test_a_fact_that_an_earlier_item_of_the_request_put_elsewhere_is_still_added() -> None:
    first = NewObservation(content="likes dancing", supersedes="was a banker")
    second = NewObservation(content="hates dancing", supersedes="obs_2")
    given = Given(JON, BANKER, DANCER)
    given.when(add("Jon", first, second)).then(
        ObservationDeleted("obs_2"),
        ObservationSuperseded("obs_101", "obs_1", "likes dancing"),
        ObservationAdded("obs_102", "ent_1", "hates dancing"),
    )


def test_every_missing_entity_is_named_with_its_nearest_and_nothing_is_written() -> None:
    request = AddObservations(
        observations=[
            EntityObservations(entity_name="Jon", contents=["new"]),
            EntityObservations(entity_name="jon d", contents=["new"]),
            EntityObservations(entity_name="Ginna", contents=["new"]),
        ]
    )
    error = (
        Given(JON, GINA)
        .when(request)
        .refused(EntityNotFound, "Entity with name Ginna not found", "Did you mean 'Gina'?")
    )
    assert [problem.path for problem in error.problems] == [
        "observations[1].entityName",
        "observations[2].entityName",
    ]


def test_superseding_what_is_not_there_offers_the_nearest_text() -> None:
    wrong = NewObservation(content="x", supersedes="was a bankr")
    Given(JON, BANKER).when(add("Jon", wrong)).refused(
        ObservationNotFound, "observations[0].contents[0].supersedes", "was a banker"
    )


def test_superseding_twice_names_the_newest_version() -> None:
    first = "obs_01h455vb4pex5vsknk084sn02q"
    chain = (
        ObservationAdded(first, "ent_1", "a"),
        ObservationSuperseded("obs_2", first, "b"),
        ObservationSuperseded("obs_3", "obs_2", "c"),
    )
    late = NewObservation(content="d", supersedes=first)
    Given(JON, *chain).when(add("Jon", late)).refused(Conflict, "obs_2", "obs_3")


FIRST = "obs_01h455vb4pex5vsknk084sn02q"
CHAIN = (
    ObservationAdded(FIRST, "ent_1", "a"),
    ObservationSuperseded("obs_2", FIRST, "b"),
    ObservationSuperseded("obs_3", "obs_2", "c"),
)


@pytest.mark.parametrize("wanted", [FIRST, "a", "obs_2", "b"])
def test_a_supersession_that_was_done_before_says_nothing(wanted: str) -> None:
    again = NewObservation(content="c", supersedes=wanted)
    Given(JON, *CHAIN).when(add("Jon", again)).then()
    update = UpdateObservation(entity_name="Jon", observation=wanted, new_content="c")
    Given(JON, *CHAIN).when(update).then()


@pytest.mark.parametrize("wanted", [FIRST, "a"])
@pytest.mark.parametrize("content", ["b", "d"])
def test_a_supersession_of_what_says_something_else_by_now_names_the_newest_version(
    wanted: str, content: str
) -> None:
    told = "was superseded already by obs_2", "Supersede its newest version instead: obs_3."
    late = NewObservation(content=content, supersedes=wanted)
    Given(JON, *CHAIN).when(add("Jon", late)).refused(Conflict, *told)
    update = UpdateObservation(entity_name="Jon", observation=wanted, new_content=content)
    Given(JON, *CHAIN).when(update).refused(Conflict, *told)


def test_a_supersession_is_not_done_where_the_entity_says_the_same_on_its_own() -> None:
    other = NewObservation(content="other", supersedes="a")
    given = Given(JON, *CHAIN, ObservationAdded("obs_4", "ent_1", "other"))
    given.when(add("Jon", other)).refused(Conflict, "'a' was superseded already by obs_2")


def test_what_another_entity_superseded_is_no_fact_of_this_one() -> None:
    late = NewObservation(content="c", supersedes="a")
    Given(JON, GINA, *CHAIN).when(add("Gina", late)).refused(
        ObservationNotFound, "'a' not found on this entity"
    )


def test_superseding_what_was_superseded_by_something_deleted_does_not_advise_what_is_gone() -> (
    None
):
    first = "obs_01h455vb4pex5vsknk084sn02q"
    chain = (
        ObservationAdded(first, "ent_1", "a"),
        ObservationSuperseded("obs_2", first, "b"),
        ObservationDeleted("obs_2"),
    )
    late = NewObservation(content="d", supersedes=first)
    Given(JON, *chain).when(add("Jon", late)).refused(
        Conflict, "Its newest version, obs_2, was deleted", "without `supersedes`"
    )


@pytest.mark.parametrize("wanted", [FIRST, "Lives in Rome"])
@pytest.mark.parametrize(
    ("others", "advice"),
    [
        ((), "It was deleted. Pass what is true now to add_observations"),
        (("Lives in Paris",), "Did you mean 'Lives in Paris'? If not, pass what is true now"),
    ],
)
def test_correcting_a_fact_that_was_deleted_says_so(
    wanted: str, others: tuple[str, ...], advice: str
) -> None:
    given = Given(JON, ObservationAdded(FIRST, "ent_1", "Lives in Rome"), ObservationDeleted(FIRST))
    for number, other in enumerate(others):
        given.happen(ObservationAdded(f"obs_{number}", "ent_1", other))
    told = ObservationNotFound, "not found on this entity", "It was deleted.", advice
    update = UpdateObservation(entity_name="Jon", observation=wanted, new_content="Lives in Oslo")
    given.when(update).refused(*told)
    late = NewObservation(content="Lives in Oslo", supersedes=wanted)
    given.when(add("Jon", late)).refused(*told)


def test_correcting_a_fact_that_was_undone_says_how_to_bring_it_back() -> None:
    given = Given(JON, GINA, ObservationAdded(FIRST, "ent_1", "a"), CommandUndone(4, 4))
    late = NewObservation(content="b", supersedes=FIRST)
    told = "of a living observation of this entity."
    there = 'It was there until position 5: undo {"position": 5} brings it back.'
    given.when(add("Jon", late)).refused(ObservationNotFound, f"{told} {there}")
    elsewhere = given.when(add("Gina", late)).refused(ObservationNotFound, told)
    assert "position" not in (elsewhere.suggestion or "")


def test_correcting_a_memory_as_if_it_were_a_fact_of_an_entity_says_how_it_is_corrected() -> None:
    memory = "mem_01h455vb4pex5vsknk084sn02q"
    given = Given(JON, MemoryStored(memory, "fact", "Jon lives in Rome", "extracted", 1.0))
    told = "That is the id of a memory. Pass what is true now to store_memory"
    update = UpdateObservation(entity_name="Jon", observation=memory, new_content="x")
    given.when(update).refused(ObservationNotFound, told)
    late = NewObservation(content="x", supersedes=memory)
    given.when(add("Jon", late)).refused(ObservationNotFound, told)


def test_superseding_a_fact_of_another_entity_names_that() -> None:
    first, second = "obs_01h455vb4pex5vsknk084sn02q", "obs_01h2xcejqtf2nbrexx3vqjhp41"
    chain = (
        ObservationAdded(first, "ent_1", "a"),
        ObservationSuperseded(second, first, "b"),
    )
    for wanted, told in (
        (second, "It is a fact of 'Jon': pass that as entityName."),
        (first, f"Its newest version, {second}, is a fact of 'Jon'"),
    ):
        late = NewObservation(content="d", supersedes=wanted)
        Given(JON, GINA, *chain).when(add("Gina", late)).refused(
            ObservationNotFound, wanted, "not found on this entity", told
        )


def test_problems_of_several_kinds_are_one_invalid_request() -> None:
    request = AddObservations(
        observations=[
            EntityObservations(entity_name="Mia", contents=["x"]),
            EntityObservations(
                entity_name="Jon", contents=[NewObservation(content="x", supersedes="y")]
            ),
        ]
    )
    Given(JON).when(request).refused(InvalidParameter, "2 problems")


# -- delete_observations


def test_observations_are_deleted_by_text_or_id_and_unknown_ones_ignored() -> None:
    request = DeleteObservations(
        deletions=[
            ObservationDeletion(entity_name="Jon", observations=["was a banker", "obs_2", "no"]),
            ObservationDeletion(entity_name="Mia", observations=["no"]),
        ]
    )
    Given(JON, BANKER, DANCER).when(request).then(
        ObservationDeleted("obs_1"), ObservationDeleted("obs_2")
    )


# -- relations


def relate(*edges: tuple[str, str, str]) -> CreateRelations:
    return CreateRelations(
        relations=[NewRelation(source=s, target=t, relation_type=r) for s, r, t in edges]
    )


def test_a_relation_is_added_once_whatever_its_ends() -> None:
    Given(JON, GINA, KNOWS).when(
        relate(("Jon", "knows", "Gina"), ("Jon", "knows", "Mia"), ("Jon", "knows", "Mia"))
    ).then(RelationAdded("rel_101", "Jon", "Mia", "knows"))


def test_a_strict_server_refuses_relations_to_missing_entities() -> None:
    Given(JON, context=Context(strict_relations=True)).when(
        relate(("Jon", "knows", "Mia"), ("Bob", "knows", "Jon"))
    ).refused(EntityNotFound, "relations[0].to", "relations[1].from")


def test_relations_are_deleted_only_when_all_three_parts_match() -> None:
    edges = [
        Edge(source="Jon", target="Gina", relation_type="likes"),
        Edge(source="Jon", target="Gina", relation_type="knows"),
    ]
    Given(JON, GINA, KNOWS).when(DeleteRelations(relations=edges)).then(RelationDeleted("rel_1"))


# -- what it costs


@pytest.mark.parametrize(
    "command",
    [
        add("Jon", "news"),
        add("Jon", NewObservation(content="news", supersedes="fact 3")),
        add("Jon", NewObservation(content="news", supersedes="obs_7")),
        create(jon("news"), if_exists="merge"),
        DeleteObservations(
            deletions=[ObservationDeletion(entity_name="Jon", observations=["obs_9"])]
        ),
        UpdateObservation(entity_name="Jon", observation="fact 3", new_content="news"),
    ],
    ids=str,
)
def test_a_command_about_one_fact_reads_no_more_where_there_are_many(
    command: AnyCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0

    def counted(row: bytes) -> Observation:
        nonlocal decoded
        decoded += 1
        return decode_observation(row)

    monkeypatch.setattr("memlog.state.decode_observation", counted)
    monkeypatch.setattr("memlog.state.decode_said", counted)

    def read_of(count: int) -> int:
        nonlocal decoded
        facts = (ObservationAdded(f"obs_{n}", "ent_1", f"fact {n}") for n in range(count))
        given = Given(JON, *facts)
        decoded = 0
        assert given.run(command)
        return decoded

    assert read_of(10) == read_of(200)


# -- a project put away


@pytest.mark.parametrize(
    "command",
    [
        create(jon()),
        add("Jon", "x"),
        relate(("a", "b", "c")),
        DeleteEntities(entity_names=["Jon"]),
        DeleteObservations(deletions=[]),
        DeleteRelations(relations=[]),
    ],
    ids=lambda command: type(command).__name__,
)
def test_nothing_is_written_to_an_archived_project(command: CreateEntities) -> None:
    Given(JON, ProjectWasArchived()).when(command).refused(ProjectArchived, "restore_project")
