"""What a reader is told to be different between two states."""

from __future__ import annotations

import tracemalloc

import pytest

from memlog.differences import Difference, _compared, _entity_in_words, differences
from memlog.events import (
    CommandUndone,
    EntityCreated,
    EntityDeleted,
    EntityMerged,
    EntityRated,
    EntityRenamed,
    EntityTypeChanged,
    Event,
    MemoryDeleted,
    MemoryMerged,
    MemoryStored,
    MemorySuperseded,
    ObservationAdded,
    ObservationDeleted,
    ObservationSuperseded,
    RelationAdded,
    RelationDeleted,
)
from memlog.rows import Entity
from tests.specs import Given

JON = EntityCreated("ent_1", "Jon", "person")
GINA = EntityCreated("ent_2", "Gina", "person")
FACT = ObservationAdded("obs_1", "ent_1", "was a banker")
KNOWS = RelationAdded("rel_1", "Jon", "Gina", "knows")
TEA = MemoryStored("mem_1", "fact", "likes tea", "s", 1.0)
COFFEE = MemoryStored("mem_2", "fact", "likes coffee", "s", 1.0)
BEFORE = (JON, GINA, FACT, KNOWS, TEA)


def since(*later: Event) -> list[Difference]:
    given = Given(*BEFORE)
    position = given.position
    for event in later:
        given.happen(event)
    return list(differences(given.state(at=position), given.state()))


@pytest.mark.parametrize(
    ("event", "difference"),
    [
        (
            EntityCreated("ent_3", "Mia", "person"),
            Difference("entity", "added", "ent_3", None, "Mia (person)"),
        ),
        (
            EntityTypeChanged("ent_1", "dancer"),
            Difference("entity", "changed", "ent_1", "Jon (person)", "Jon (dancer)"),
        ),
        (
            EntityRated("ent_1", 0.5, 0.25),
            Difference(
                "entity",
                "changed",
                "ent_1",
                "Jon (person), no other names, confidence 1, importance 0.5",
                "Jon (person), no other names, confidence 0.5, importance 0.25",
            ),
        ),
        (
            ObservationAdded("obs_2", "ent_2", "dances"),
            Difference("observation", "added", "obs_2", None, "Gina: dances"),
        ),
        (
            ObservationDeleted("obs_1"),
            Difference("observation", "removed", "obs_1", "Jon: was a banker"),
        ),
        (
            ObservationSuperseded("obs_2", "obs_1", "dances"),
            Difference("observation", "changed", "obs_1", "Jon: was a banker", "Jon: dances"),
        ),
        (RelationDeleted("rel_1"), Difference("relation", "removed", "rel_1", "Jon knows Gina")),
        (
            RelationAdded("rel_2", "Gina", "Jon", "knows"),
            Difference("relation", "added", "rel_2", None, "Gina knows Jon"),
        ),
        (MemoryDeleted("mem_1"), Difference("memory", "removed", "mem_1", "fact: likes tea")),
        (
            MemoryMerged("mem_1", ("hot",), 1.0),
            Difference(
                "memory",
                "changed",
                "mem_1",
                "fact: likes tea, no tags, source s, confidence 1",
                "fact: likes tea, tags hot, source s, confidence 1",
            ),
        ),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, Difference) else each.how,
)
def test_each_change_is_told_once(event: Event, difference: Difference) -> None:
    assert since(event) == [difference]


def test_what_came_and_went_again_is_no_difference() -> None:
    assert since(EntityTypeChanged("ent_1", "dancer"), EntityTypeChanged("ent_1", "person")) == []
    assert since(RelationDeleted("rel_1"), CommandUndone(7, 7)) == []


def test_a_record_superseded_by_another_is_one_change_also_over_several_versions() -> None:
    later = MemoryStored("mem_3", "fact", "likes water", "s", 1.0)
    found = since(
        COFFEE, MemorySuperseded("mem_1", "mem_2"), later, MemorySuperseded("mem_2", "mem_3")
    )
    assert found == [
        Difference("memory", "changed", "mem_1", "fact: likes tea", "fact: likes water")
    ]


def test_a_rename_is_told_of_the_entity_and_of_what_bears_its_name() -> None:
    found = since(EntityRenamed("ent_1", "Jonathan"))
    assert [(each.kind, each.was, each.now) for each in found] == [
        ("entity", "Jon (person)", "Jonathan (person)"),
        ("relation", "Jon knows Gina", "Jonathan knows Gina"),
    ]


def test_a_merge_takes_one_entity_away_and_gives_the_other_its_name() -> None:
    found = since(RelationDeleted("rel_1"), EntityMerged("ent_2", "ent_1"))
    assert [(each.kind, each.how, each.id) for each in found] == [
        ("entity", "changed", "ent_1"),
        ("entity", "removed", "ent_2"),
        ("relation", "removed", "rel_1"),
    ]
    assert found[0].now == "Jon (person), also Gina, confidence 1, importance 0.5"


class Pinned(Entity, frozen=True):
    """The row of an entity with one field more."""

    pinned: bool = False


def test_a_field_that_a_row_gets_is_told_without_being_named_anywhere_else() -> None:
    rows = [
        Pinned("ent_1", "Jon", "person", 1, 1, 1, None, 1.0, 0.5, (), on) for on in (False, True)
    ]
    before, after = ({row.id: row} for row in rows)
    (found,) = _compared("entity", before, after, _entity_in_words, _entity_in_words)
    told = "Jon (person), no other names, confidence 1, importance 0.5, pinned"
    assert (found.was, found.now) == (f"{told} False", f"{told} True")


def test_backwards_what_was_added_is_removed() -> None:
    given = Given(*BEFORE)
    position = given.position
    for event in (RelationDeleted("rel_1"), ObservationDeleted("obs_1"), EntityDeleted("ent_1")):
        given.happen(event)
    forwards = differences(given.state(at=position), given.state())
    backwards = differences(given.state(), given.state(at=position))
    assert {(each.id, each.was) for each in forwards if each.how == "removed"} == {
        (each.id, each.now) for each in backwards if each.how == "added"
    }


def test_what_is_the_same_on_both_sides_takes_no_memory() -> None:
    given = Given(*BEFORE)
    for number in range(1_000, 3_000):
        given.happen(EntityCreated(f"ent_same_{number}", f"{number}", "person"))
        given.happen(ObservationAdded(f"obs_same_{number}", f"ent_same_{number}", "x" * 1_000))
        given.happen(MemoryStored(f"mem_same_{number}", "fact", "y" * 1_000, f"{number}", 1.0))
    position = given.position
    given.happen(ObservationDeleted("obs_1"))
    tracemalloc.start()
    try:
        found = list(differences(given.state(at=position), given.state()))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [each.id for each in found] == ["obs_1"]
    assert most_bytes < 1_000_000
