"""Erasing for good: the log stays whole, the state forgets, and no file holds a byte of it."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog.codec import Entry
from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateMemory,
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
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.differences import differences
from memlog.errors import (
    EmbeddingError,
    EntityNotFound,
    InvalidParameter,
    MemlogError,
    MemoryNotFound,
    StorageError,
)
from memlog.events import Erased
from memlog.log import Damage
from memlog.projects.project import Origin, Project
from memlog.projects.purging import Plan, Target, plan
from memlog.projects.rebuilding import evolve_in_lots
from memlog.projects.store import Store
from memlog.settings import Settings
from memlog.state import State
from memlog.storage.drafts import draft
from memlog.storage.environment import Environment
from memlog.storage.tables import place
from projections.check import compare
from projections.embeddings import Embeddings
from projections.follow import Projections
from projections.passages import passages
from tests.embedder_by_hash import opened_by_hash
from tests.service import client_on


def do(project: Project, command: AnyCommand, thread: str | None = None) -> int:
    """How many entries the command made."""
    return project.execute(command, Context(), lambda o: len(o.entries), Origin(thread=thread))


def create(name: str, *facts: str) -> CreateEntities:
    return CreateEntities(
        entities=[NewEntity(name=name, entity_type="person", observations=list(facts))]
    )


def add(name: str, *facts: str | NewObservation) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=facts)])


def relate(source: str, kind: str, target: str) -> CreateRelations:
    return CreateRelations(
        relations=[NewRelation(source=source, target=target, relation_type=kind)]
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "data")
    opened.create("one")
    yield opened
    opened.close()


def purge(store: Store, *names: str, memories: tuple[str, ...] = ()) -> Plan:
    return store.purge("one", Target(names, memories))


def said(store: Store) -> set[str]:
    """Everything that is in the graph, in words."""
    with store.project("one").read() as state:
        return told(state)


def told(state: State) -> set[str]:
    entities = {row.name for row in state.entities()}
    facts = {
        f"{entity.name}: {row.content}"
        for entity in state.entities()
        for row in state.observations(entity.id)
    }
    relations = {f"{row.source} {row.relation_type} {row.target}" for row in state.relations()}
    return entities | facts | relations


def entries(project: Project) -> list[Entry]:
    with project.snapshot() as (log, _):
        return list(log.read())


def memory_ids(project: Project) -> list[str]:
    with project.read() as state:
        return [row.id for row in state.memories()]


def assert_whole(project: Project) -> None:
    assert [each for each in project.verify() if isinstance(each, Damage)] == []
    assert project.is_as_rebuilt()


# -- what goes


def test_an_entity_goes_with_its_facts_and_relations_and_nothing_else_does(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, create("Gina", "runs a shop"))
    do(project, relate("Jon", "knows", "Gina"))
    do(project, relate("Gina", "knows", "Mia"))
    before = entries(project)
    planned = purge(store, "Jon")
    after = entries(store.project("one"))
    assert said(store) == {"Gina", "Gina: runs a shop", "Gina knows Mia"}
    assert planned.kinds == {"entity_created": 1, "observation_added": 1, "relation_added": 1}
    assert [entry.chain for entry in after] == [entry.chain for entry in before]
    assert [entry.time_us for entry in after] == [entry.time_us for entry in before]
    gone = {entry.position for entry in after if isinstance(entry.event, Erased)}
    assert gone == set(planned.positions)
    assert_whole(store.project("one"))


def test_what_others_corrected_deleted_superseded_and_merged_stays_so(store: Store) -> None:
    project = store.project("one")
    do(project, create("Gina", "has a cat", "has a dog"))
    do(project, create("G. Rossi", "runs a shop"))
    do(project, relate("Gina", "likes", "Rome"))
    do(project, relate("Gina", "knows", "Mia"))
    for content in ("lives in Rome", "lives in Oslo", "lives in Bern"):
        do(project, StoreMemory(content=content))
    last, new, old = memory_ids(project)
    before = project.head()
    do(project, create("Jon", "was a banker"))
    own = set(range(before + 1, project.head() + 1))
    cat = UpdateObservation(entity_name="Gina", observation="has a cat", new_content="has two cats")
    dog = ObservationDeletion(entity_name="Gina", observations=["has a dog"])
    rome = Edge(source="Gina", target="Rome", relation_type="likes")
    for command in (
        cat,
        DeleteObservations(deletions=[dog]),
        DeleteRelations(relations=[rome]),
        SupersedeMemory(old_memory_id=old, new_memory_id=new),
        ForgetMemory(id=last),
        MergeEntities(names=["G. Rossi"], into="Gina"),
    ):
        do(project, command)
    assert purge(store, "Jon").positions == own
    facts = {"Gina: has two cats", "Gina: runs a shop", "Gina knows Mia"}
    assert said(store) == {"Gina", *facts}
    assert memory_ids(store.project("one")) == [new]
    assert_whole(store.project("one"))


def test_a_deleted_entity_can_be_purged_and_what_it_was_called_before(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, RenameEntity(name="Jon", new_name="Jonathan"))
    do(project, DeleteEntities(entity_names=["Jonathan"]))
    do(project, create("Gina"))
    planned = purge(store, "Jon")
    assert planned.names == ("Jon", "Jonathan")
    left = [type(entry.event).__name__ for entry in entries(store.project("one"))]
    assert left == ["ProjectCreated", *["Erased"] * 5, "EntityCreated"]


@pytest.mark.parametrize("name", ["Jon", "J. Doe"])
def test_what_was_merged_into_it_goes_too(store: Store, name: str) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, create("J. Doe", "lives in Rome"))
    do(project, MergeEntities(names=["J. Doe"], into="Jon"))
    do(project, create("Gina"))
    purge(store, name)
    assert said(store) == {"Gina"}
    assert len([e for e in entries(store.project("one")) if isinstance(e.event, Erased)]) == 6


def test_a_merge_that_was_undone_costs_the_other_nothing(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, create("Gina", "runs a shop"))
    do(project, relate("Gina", "knows", "Mia"))
    do(project, relate("Jon", "knows", "Mia"))
    do(project, MergeEntities(names=["Gina"], into="Jon"))
    do(project, Undo())
    purge(store, "Jon")
    assert said(store) == {"Gina", "Gina: runs a shop", "Gina knows Mia"}
    assert_whole(store.project("one"))


def test_what_was_said_of_it_by_way_of_another_goes_though_the_merge_was_undone(
    store: Store,
) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, create("Gina", "runs a shop"))
    do(project, MergeEntities(names=["Gina"], into="Jon"))
    do(
        project,
        UpdateObservation(entity_name="Jon", observation="runs a shop", new_content="runs a bar"),
    )
    do(project, Undo(last=2))
    purge(store, "Jon")
    assert said(store) == {"Gina", "Gina: runs a shop"}
    assert not any("runs a bar" in str(entry.event) for entry in entries(store.project("one")))


def test_a_dangling_relation_goes_and_one_to_a_namesake_of_that_time_stays(store: Store) -> None:
    project = store.project("one")
    do(project, relate("Mia", "knows", "Jon"))
    do(project, create("Jon"))
    do(project, RenameEntity(name="Jon", new_name="Jonathan"))
    do(project, Undo())
    do(project, RenameEntity(name="Jon", new_name="Jack"))
    purge(store, "Jack")
    assert said(store) == set()
    assert [e.position for e in entries(store.project("one")) if isinstance(e.event, Erased)] == [
        *(2, 3, 4, 5, 6)
    ]


def test_a_name_that_only_relations_have_goes_with_them(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon"))
    do(project, relate("Jon", "knows", "Ghost"))
    do(project, relate("Ghost", "knows", "Ghost"))
    do(project, relate("Jon", "knows", "Mia"))
    do(project, Undo(position=5))
    planned = purge(store, "Ghost")
    assert (planned.names, sorted(planned.positions)) == (("Ghost",), [3, 4])
    assert planned.kinds == {"relation_added": 2}
    assert said(store) == {"Jon"}
    with pytest.raises(EntityNotFound):
        purge(store, "Ghost")
    assert purge(store, "Mia").positions == {5, 6}
    assert_whole(store.project("one"))


def test_a_name_whose_relations_were_those_of_an_entity_is_that_entitys(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon"))
    do(project, RenameEntity(name="Jon", new_name="Jonathan"))
    do(project, relate("Mia", "knows", "Jonathan"))
    do(project, Undo(position=3, cascade=True))
    with pytest.raises(EntityNotFound):
        purge(store, "Jonathan")
    assert purge(store, "Jon").names == ("Jon", "Jonathan")


def test_an_undo_of_a_command_for_several_still_counts_for_those_who_stay(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    do(project, create("Gina", "runs a shop"))
    do(project, DeleteEntities(entity_names=["Jon", "Gina"]))
    do(project, Undo())
    purge(store, "Jon")
    assert said(store) == {"Gina", "Gina: runs a shop"}
    assert_whole(store.project("one"))


def test_a_purged_successor_lets_what_it_superseded_stand_again(store: Store) -> None:
    project = store.project("one")
    do(project, StoreMemory(content="lives in Rome"))
    do(project, StoreMemory(content="lives in Oslo"))
    new, old = memory_ids(project)
    do(project, SupersedeMemory(old_memory_id=old, new_memory_id=new))
    planned = purge(store, memories=(new,))
    assert planned.kinds == {"memory_stored": 1, "memory_superseded": 1}
    project = store.project("one")
    assert memory_ids(project) == [old]
    with project.read() as state:
        row = state.memory(old)
        assert row is not None and row.superseded_by is None
        assert state.memory(new) is None
    assert_whole(project)


def test_a_purged_predecessor_leaves_its_successor_as_the_first(store: Store) -> None:
    project = store.project("one")
    do(project, StoreMemory(content="lives in Rome"))
    do(project, StoreMemory(content="lives in Oslo"))
    new, old = memory_ids(project)
    do(project, SupersedeMemory(old_memory_id=old, new_memory_id=new))
    purge(store, memories=(old,))
    with store.project("one").read() as state:
        row = state.memory(new)
        assert row is not None and row.active and row.supersedes is None
        assert state.memory(old) is None


def test_facts_that_speak_of_it_stay_and_are_named(store: Store) -> None:
    project = store.project("one")
    do(project, create("Zoë", "was a banker"))
    do(project, create("Gina", "had lunch with ZOË"))
    assert purge(store, "Zoë").mentions == (5,)
    assert said(store) == {"Gina", "Gina: had lunch with ZOË"}


MENTIONS = [
    ("E5", "E50 and E500 are no E55", False),
    ("E5", "knows E5.", True),
    ("Ed", "Edith wed Fred", False),
    ("Ed", "a line\nEd wrote", True),
    ("Ed", "is like ed", True),
    ("Ed", "日本のEdさん", True),
    ("Ed", 'so "Ed_1" is his login', True),
    ("C++", "writes C++17", True),
    ("C++", "writes ObjC++", False),
    ("東京", "住在東京都", True),
    ("김민수", "김민수는 의사다", True),
    ("กรุงเทพ", "อยู่ที่กรุงเทพมหานคร", True),
    ("Zoë", "ZOE\u0308'S cat", True),
    ('O"B', 'met O"B there', True),
    ("José Núñez", "JOSE NUNEZ called", True),
    ("Jon Doe", "met Jon\u00a0Doe", True),
    ("Jon Doe", "met Jon\nDoe", True),
    ("Schuster", "Frau Schu\u00adster", True),
    ("İrem", "irem aradı", True),  # noqa: RUF001
    ("Işıl", "ISIL aradı", True),  # noqa: RUF001
    ("דוד", "דָּוִד גר כאן", True),
    ("ＡＢＣ", "the abc club", True),  # noqa: RUF001
]


@pytest.mark.parametrize(("name", "text", "mentioned"), MENTIONS)
def test_a_name_is_found_in_a_text_as_a_word_or_where_words_have_no_spaces_within_it(
    store: Store, name: str, text: str, mentioned: bool
) -> None:
    project = store.project("one")
    do(project, create(name))
    do(project, create("Gina", text))
    assert purge(store, name).mentions == ((4,) if mentioned else ())


@pytest.mark.parametrize("name", ["Ed", "ent", "0", "act"])
def test_a_short_name_is_not_found_in_what_nobody_wrote(store: Store, name: str) -> None:
    """Neither in ids, nor in the names of events, nor in numbers."""
    project = store.project("one")
    for command in (create(name), create("Gina", "has a cat"), relate("Gina", "likes", "Rome")):
        do(project, command)
    do(project, StoreMemory(content="lives in Rome"))
    assert purge(store, name).mentions == ()


def test_what_is_not_there_is_refused_and_nothing_is_changed(store: Store) -> None:
    do(store.project("one"), create("Jon"))
    before = store.project("one").digest()
    for target, kind in (
        (Target(("Jonn",)), EntityNotFound),
        (Target((), ("mem_01h455vb4pex5vsknk084sn02q",)), MemoryNotFound),
        (Target(("Jon",), ("mem_01h455vb4pex5vsknk084sn02q",)), MemoryNotFound),
        (Target(), InvalidParameter),
    ):
        with pytest.raises(kind):
            store.purge("one", target)
    assert store.project("one").digest() == before
    assert store.project("one").generation == 0


def test_the_beginning_of_an_id_names_no_memory(store: Store) -> None:
    project = store.project("one")
    do(project, StoreMemory(content="a secret"))
    (memory_id,) = memory_ids(project)
    with pytest.raises(MemoryNotFound) as refused:
        store.purge("one", Target((), (memory_id[:-1],)))
    assert refused.value.suggestion == f"Did you mean '{memory_id}'?"


def test_a_damaged_log_is_not_purged(store: Store, tmp_path: Path) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    database = project._environment.databases["log"]

    def damage(transaction: Any) -> None:
        key = (2).to_bytes(8, "big")
        value = bytes(transaction.get(key, db=database))
        transaction.put(key, value.replace(b"person", b"Person"), db=database)

    project._environment.write(damage)
    with pytest.raises(StorageError, match="position 2"):
        purge(store, "Jon")
    assert store.project("one") is project
    assert do(project, create("Gina")) == 1


def test_a_log_without_what_was_erased_is_proved_before_it_takes_the_place_of_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(store.project("one"), create("Jon", "was a banker"))
    do(store.project("one"), create("Gina", "runs a shop"))

    def evolve_and_damage(fresh: Environment) -> None:
        evolve_in_lots(fresh)
        database = fresh.databases["log"]

        def damage(transaction: lmdb.Transaction) -> None:
            value = bytes(transaction.get(place(5), b"", db=database))
            transaction.put(place(5), value.replace(b"shop", b"ship"), db=database)

        fresh.write(damage)

    monkeypatch.setattr("memlog.projects.erasing.evolve_in_lots", evolve_and_damage)
    with pytest.raises(StorageError, match="damaged at position 5"):
        purge(store, "Jon")
    assert said(store) == {"Jon", "Jon: was a banker", "Gina", "Gina: runs a shop"}
    assert_whole(store.project("one"))


# -- afterwards


def test_an_erased_command_cannot_be_undone_and_is_passed_over(store: Store) -> None:
    project = store.project("one")
    do(project, create("Gina"))
    do(project, create("Jon"))
    purge(store, "Jon")
    project = store.project("one")
    with pytest.raises(InvalidParameter, match="erased"):
        do(project, Undo(position=3))
    do(project, Undo())
    assert said(store) == set()


def test_the_rest_of_a_command_with_a_hole_in_it_is_undone_whole(store: Store) -> None:
    project = store.project("one")
    names = ("Ann", "Jon", "Gina")
    do(
        project,
        CreateEntities(
            entities=[NewEntity(name=n, entity_type="p", observations=()) for n in names]
        ),
    )
    do(project, create("Mia"))
    purge(store, "Jon")
    do(store.project("one"), Undo(position=2))
    assert said(store) == {"Mia"}


def test_a_second_purge_goes_on_from_the_first(store: Store) -> None:
    for name in ("Jon", "Gina", "Mia"):
        do(store.project("one"), create(name, f"fact of {name}"))
    purge(store, "Jon")
    purge(store, "Gina")
    project = store.project("one")
    assert project.generation == 2
    assert said(store) == {"Mia", "Mia: fact of Mia"}
    with pytest.raises(EntityNotFound):
        purge(store, "Jon")
    assert_whole(project)


def test_whoever_still_has_the_old_file_open_is_refused(store: Store) -> None:
    stale = store.project("one")
    do(stale, create("Jon", "was a banker"))
    purge(store, "Jon")
    with pytest.raises(StorageError, match="erased"):
        do(stale, create("Gina"))
    with pytest.raises(StorageError, match="erased"), stale.snapshot():
        pass
    with pytest.raises(StorageError, match="erased"), stale.read():
        pass
    do(store.project("one"), create("Gina"))
    assert said(store) == {"Gina"}


def test_indexes_that_someone_still_has_open_cannot_come_back(store: Store) -> None:
    do(store.project("one"), create("Jon", "was a banker"))
    embeddings = Embeddings(Settings(data_dir=store.data_dir, embedder="none"))
    stale = Projections(store.project("one"), embeddings)
    stale.text()
    purge(store, "Jon")
    assert not any(each.is_dir() for each in store.project("one").folder.iterdir())
    with pytest.raises(StorageError):
        stale.rebuild("text")
    with pytest.raises(StorageError):
        stale.analytics()
    stale.close()
    fresh = Projections(store.project("one"), embeddings)
    assert compare(fresh, "text")
    assert compare(fresh, "analytics")
    fresh.close()
    folders = [each.name for each in store.project("one").folder.iterdir() if each.is_dir()]
    assert len(folders) == 2 and all(each.endswith(".1") for each in folders)


def test_vectors_that_someone_still_has_open_are_saved_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.embeddings.open_embedder", opened_by_hash)
    do(store.project("one"), create("Jon", "was a banker"))
    stale = Projections(store.project("one"), Embeddings(Settings(data_dir=store.data_dir)))
    stale.vectors()
    monkeypatch.setattr("projections.vectors.projector.SAVE_ROWS_MIN", 0)
    purge(store, "Jon")
    stale.close()
    assert not any(each.is_dir() for each in store.project("one").folder.iterdir())


def test_what_somebody_who_searches_meanwhile_has_embedded_again_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.embeddings.open_embedder", opened_by_hash)
    made = [{"name": "Jon", "entityType": "person", "observations": ["was a banker"]}]
    text = "Jon: was a banker"
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=made)
        embeddings = client.service.embeddings
        embeddings.get().vectors([text])
        forget, embedded_again = embeddings.forget, iter([True])

        def forget_first(texts: Collection[str]) -> None:
            forget(texts)
            if next(embedded_again, False):
                embeddings.get().vectors([*texts])

        monkeypatch.setattr(embeddings, "forget", forget_first)
        client.service.purge("default", Target(("Jon",)))
        assert next(embedded_again, None) is None
        with pytest.raises(EmbeddingError, match="no stored vector"):
            embeddings.get().stored([text])


def test_the_passages_of_a_long_text_go_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("projections.embeddings.open_embedder", opened_by_hash)
    told = "".join(f"was a banker on day {day}. " for day in range(200))
    parts = passages(f"Jon: {told}", "Jon")
    with client_on(tmp_path, embedder="minilm") as client:
        made = [{"name": "Jon", "entityType": "person", "observations": [told]}]
        client("create_entities", entities=made)
        client("search_nodes", query="a banker")
        embeddings = client.service.embeddings
        assert len(embeddings.get().stored(parts)) == len(parts) > 3
        client.service.purge("default", Target(("Jon",)))
        for part in parts:
            with pytest.raises(EmbeddingError, match="no stored vector"):
                embeddings.get().stored([part])


def test_what_a_crash_left_of_a_rewriting_is_in_nobodys_way(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon"))
    leftover = project.folder / "log.mdb.rewriting"
    leftover.mkdir()
    (leftover / "log.mdb").write_bytes(b"half")
    purge(store, "Jon")
    assert said(store) == set()
    assert not leftover.exists()


def test_a_purge_that_fails_gives_the_disk_back_what_it_had_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))

    def full(*_: object) -> bytes:
        raise StorageError("No space left")

    monkeypatch.setattr("memlog.projects.erasing._erased", full)
    with pytest.raises(StorageError) as failed:
        purge(store, "Jon")
    assert not (project.folder / "log.mdb.rewriting").exists()
    opened = [os.readlink(each) for each in Path("/proc/self/fd").glob("*") if each.is_symlink()]
    assert not [each for each in opened if "rewriting" in each], failed
    assert said(store) == {"Jon", "Jon: was a banker"}


def test_a_purge_holds_neither_the_log_nor_the_state_in_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlog.storage.filling.ROWS_PER_COMMIT", 100)
    monkeypatch.setattr("memlog.projects.rebuilding.ENTRIES_PER_COMMIT", 100)
    monkeypatch.setattr("memlog.storage.drafts.CHANGES_PER_COMMIT", 100)
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    texts = [f"{number}: " + "dances and sings. " * 50 for number in range(2_000)]
    do(project, create("Gina", *texts))
    before = project.head()
    tracemalloc.start()
    try:
        purge(store, "Jon")
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < sum(map(len, texts)) / 2
    assert store.project("one").head() == before
    assert_whole(store.project("one"))


def test_what_a_purge_works_out_is_in_no_file_that_others_see(store: Store) -> None:
    project = store.project("one")
    do(project, create("Jon", "was a banker"))
    there = {*project.folder.iterdir()}
    with project.snapshot() as (log, state_at), project.draft() as left:
        plan(log, state_at(log.position()), Target(("Jon",)), left)
        assert {*project.folder.iterdir()} == there


def test_a_purge_that_cannot_be_worked_out_for_want_of_room_erases_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    do(store.project("one"), create("Jon", "was a banker"))
    do(store.project("one"), create("Gina", *(f"fact {number}" for number in range(200))))
    monkeypatch.setattr(
        Project, "draft", lambda project: draft(project.folder, map_bytes=64 * 1024)
    )
    with pytest.raises(StorageError):
        purge(store, "Jon")
    assert {"Jon", "Gina"} <= said(store)


# -- over random histories

NAMES = st.sampled_from(["A", "B", "C"])
TEXTS = st.sampled_from(["x", "y", "z"])
COMMANDS = st.one_of(
    st.builds(lambda n, t: create(n, *t), NAMES, st.lists(TEXTS, max_size=2)),
    st.builds(add, NAMES, TEXTS),
    st.builds(lambda n, t, s: add(n, NewObservation(content=t, supersedes=s)), NAMES, TEXTS, TEXTS),
    st.builds(
        lambda n, t, s: UpdateObservation(entity_name=n, observation=t, new_content=s),
        NAMES,
        TEXTS,
        TEXTS,
    ),
    st.builds(lambda a, b: relate(a, "r", b), NAMES, NAMES),
    st.builds(lambda n: DeleteEntities(entity_names=[n]), NAMES),
    st.builds(lambda n, m: RenameEntity(name=n, new_name=m), NAMES, NAMES),
    st.builds(lambda n, m: MergeEntities(names=[n], into=m), NAMES, NAMES),
    st.builds(lambda t: StoreMemory(content=t), TEXTS),
    st.builds(
        lambda t: CreateMemory(
            memory_type="note", content={"a": t}, source="s", confidence=0.5, tags=(t,)
        ),
        TEXTS,
    ),
    st.builds(lambda p, c: Undo(position=p, cascade=c), st.integers(2, 40), st.booleans()),
    st.just(Undo()),
)


@settings(max_examples=150)
@given(st.lists(COMMANDS, max_size=30), NAMES)
def test_whatever_happened_the_rest_replays_and_knows_nothing_of_it(
    commands: list[AnyCommand], name: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.create("one")
        for command in commands:
            try:
                do(store.project("one"), command)
            except MemlogError:
                continue
        try:
            project = store.project("one")
            with project.snapshot() as (log, state_at), project.draft() as left:
                before = state_at(log.position())
                planned = plan(log, before, Target((name,)), left)
                after = State(left.timeline)
                lost = [
                    each
                    for each in differences(before, after)
                    if each.how == "removed" and each.kind in ("entity", "memory")
                ]
                assert {each.id for each in lost} <= planned.entities
                assert planned.positions
                expected = told(after)
        except EntityNotFound:
            store.close()
            return
        purge(store, name)
        project = store.project("one")
        assert_whole(project)
        for entry in entries(project):
            about = str(entry.event)
            assert not any(entity_id in about for entity_id in planned.entities)
        with project.read() as state:
            assert told(state) == expected
            assert state.entity_named(name) is None
            assert state.relations_touching(name) == []
        embeddings = Embeddings(Settings(data_dir=Path(folder), embedder="none"))
        projections = Projections(project, embeddings)
        projections.text()
        projections.analytics()
        projections.close()
        store.close()
