"""A log with holes: what the tables tell of them, what stands in, and that the rest replays."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog import codec
from memlog.codec import CHAIN_END, DIGEST_END, ERASED, GENESIS, MENDED, WRITTEN, Entry
from memlog.commands import (
    AddObservations,
    AnyCommand,
    ArchiveProject,
    Command,
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
    NewRelation,
    ObservationDeletion,
    RenameEntity,
    RestoreProject,
    SavedEntity,
    SavedRelation,
    SaveMemory,
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.copies import chronicle
from memlog.errors import MemlogError
from memlog.events import (
    CommandUndone,
    EntityCreated,
    EntityDeleted,
    EntityRated,
    EntityRenamed,
    EntityTypeChanged,
    Erased,
    Event,
    Happened,
    ObservationAdded,
    ObservationDeleted,
    ObservationMoved,
    ProjectCreated,
    RelationDeleted,
)
from memlog.projects.contents import DATABASES
from memlog.projects.project import LOG_FILE, Origin, Project
from memlog.projects.store import Store
from memlog.repair.mending import Changed, Mended, mend, tables_of
from memlog.repair.piecing import Piece, Standing, pieces
from memlog.repair.retelling import retold
from memlog.sentences import sentence
from memlog.settings import Settings
from memlog.storage.environment import Environment
from memlog.storage.filling import fill
from memlog.storage.pages import Pages
from memlog.storage.tables import Reader, place
from projections import embeddings
from projections.check import compare
from projections.embeddings import Embeddings
from projections.follow import PROJECTIONS, Projections
from tests.embedder_by_hash import opened_by_hash
from tests.test_incremental import Moves, as_told_by, everything, move, world
from tests.whole_state import flaws

CREATED = ProjectCreated("prj_1", "world", "")


class History(msgspec.Struct, frozen=True):
    """A log as it is stored, by position from 1 on, its entries, and the tables that were evolved from it."""

    stored: list[tuple[int, bytes]]
    entries: list[Entry]
    tables: Reader


def history_of(moves: Moves) -> History:
    with world() as made:
        for wanted, thread, _ in moves:
            made.do(wanted, thread)
        return read_back(made.project)


def read_back(project: Project) -> History:
    with project.snapshot() as (log, _):
        stored, entries = list(log.stored()), list(log.read())
    pages = Pages(project.folder / LOG_FILE)
    tables = tables_of(pages)
    pages.close()
    assert tables is not None
    return History(stored, entries, tables)


def with_holes(history: History, holes: set[int]) -> list[Piece]:
    """The chain is known at the end of each hole, as an entry that follows proves it."""
    return [
        Piece(
            b"" if {position, position + 1} <= holes else value[1:CHAIN_END],
            None if position in holes else value,
        )
        for position, value in history.stored
    ]


def replayed(mended: Mended, folder: Path) -> Project:
    """The project that has this log."""
    environment = Environment(folder / LOG_FILE, DATABASES)
    fill(environment, "log", ((place(position), value) for position, value in mended.entries))
    environment.close()
    return Project(folder)


@contextmanager
def project_of(mended: Mended) -> Iterator[Project]:
    with TemporaryDirectory() as folder:
        project = replayed(mended, Path(folder) / f"prj_{0:026}")
        yield project
        project.close()


def require_whole(project: Project) -> None:
    """Its state is as the log alone gives it, and one that commands can have left."""
    assert project.is_as_rebuilt()
    with project.read() as state:
        assert flaws(state) == []


moves = st.lists(move, min_size=1, max_size=12)


@settings(max_examples=60)
@given(moves=moves)
def test_the_tables_tell_what_every_entry_said_but_an_undo(moves: Moves) -> None:
    history = history_of(moves)
    for entry in history.entries:
        told = retold(entry.position, history.tables)
        if isinstance(entry.event, CommandUndone) or not history.tables.touched(entry.position):
            continue
        assert told is not None, entry
        if isinstance(entry.event, EntityRated):  # with the values that it had, as a type may be
            assert isinstance(told.event, EntityRated | EntityTypeChanged)
        else:
            assert told.event == entry.event


OF_EACH_KIND: tuple[AnyCommand, ...] = (
    CreateEntities(
        entities=[
            NewEntity(name=name, entity_type="thing", observations=["is new"])
            for name in ("X", "Y")
        ]
    ),
    SaveMemory(
        entities=[
            SavedEntity(
                name="Jon",
                entity_type="person",
                observations=["is loved"],
                relations=[SavedRelation(target_entity="Gina", relation_type="knows")],
                importance=0.9,
            )
        ]
    ),
    UpdateObservation(entity_name="Jon", observation="is loved", new_content="was loved"),
    DeleteObservations(
        deletions=[ObservationDeletion(entity_name="Jon", observations=["was loved"])]
    ),
    DeleteRelations(relations=[Edge(source="Jon", target="Gina", relation_type="knows")]),
    RenameEntity(name="Jon", new_name="John", new_type="human"),
    MergeEntities(names=["Gina", "X"], into="John"),
    DeleteEntities(entity_names=["Y"]),
    StoreMemory(content="likes tea"),
    StoreMemory(content="likes coffee"),
    CreateMemory(memory_type="note", content="a note", source="here", confidence=1.0, tags=["a"]),
    CreateMemory(memory_type="note", content="a note", source="here", confidence=1.0, tags=["b"]),
    SupersedeMemory(old_memory_id="0", new_memory_id="1"),
    ForgetMemory(id="2"),
)


def test_the_tables_tell_of_every_kind_of_event_but_an_undo() -> None:
    """Of which the histories drawn above have some seldom."""
    with world() as made:
        for wanted in OF_EACH_KIND:
            made.do(wanted, "one")
        for life in (ArchiveProject(name="world"), RestoreProject(name="world")):
            made.project.execute(life, Context(), lambda _: None)
        history = read_back(made.project)
    told = [retold(entry.position, history.tables) for entry in history.entries]
    assert [each and each.event for each in told] == [entry.event for entry in history.entries]
    assert {type(entry.event) for entry in history.entries} == {*get_args(Event)} - {CommandUndone}


@settings(max_examples=60)
@given(moves=moves, data=st.data())
def test_what_the_tables_tell_brings_everything_back(moves: Moves, data: st.DataObject) -> None:
    history = history_of(moves)
    holes = data.draw(st.sets(st.integers(1, len(history.entries)), min_size=1, max_size=30))
    undone = {e.position for e in history.entries if isinstance(e.event, CommandUndone)}
    silent = {e.position for e in history.entries if not history.tables.touched(e.position)}
    holes -= undone | silent
    mended = mend(with_holes(history, holes), history.tables, CREATED)
    assert (mended.changed.lost, mended.changed.stood_in, mended.changed.unfit) == ((), (), ())
    assert set(mended.changed.retold) <= holes
    with project_of(mended) as project:
        assert list(project.verify()) == [position for position, _ in history.stored]
        with project.read() as state:
            assert everything(state) == everything(as_told_by(history.entries))


@settings(max_examples=60)
@given(moves=moves, later=st.lists(move, max_size=4), data=st.data())
def test_without_the_tables_the_rest_replays_to_a_whole_state_and_every_change_is_told(
    moves: Moves, later: Moves, data: st.DataObject
) -> None:
    history = history_of(moves)
    holes = data.draw(st.sets(st.integers(1, len(history.entries) - 1), min_size=1, max_size=9))
    mended = mend(with_holes(history, holes), None, CREATED)
    changed = mended.changed
    assert changed.retold == ()
    assert holes <= {*changed.lost, *changed.stood_in}
    assert not holes & {*changed.unfit}
    assert not {*changed.stood_in} & {*changed.lost, *changed.unfit}
    others = {*changed.lost, *changed.stood_in, *changed.unfit}
    with project_of(mended) as project:
        assert list(project.verify()) == [position for position, _ in history.stored]
        with project.snapshot() as (log, _):
            entries = list(log.read())
        for was, now in zip(history.entries, entries, strict=True):
            if now.position not in others:
                assert now == was
            elif now.position not in changed.stood_in:
                assert now.event == Erased(lost=True)
        assert [each.time_us for each in entries] == sorted(each.time_us for each in entries)
        require_whole(project)
        for wanted, thread, _ in later:
            with suppress(MemlogError):
                project.execute(wanted, Context(), lambda _: None, Origin(thread=thread))
            require_whole(project)
        with (
            patch.object(embeddings, "open_embedder", opened_by_hash),
            closing(Embeddings(Settings(data_dir=project.folder, embedder="minilm"))) as embedder,
            closing(Projections(project, embedder)) as projections,
        ):
            for projection in PROJECTIONS:
                assert compare(projections, projection), projection


# -- what is told of single entries


def repaired_before(history: History) -> Mended:
    """As a repair left it that did not put back what goes before a deletion: what deleted each fact is lost."""
    holes = {e.position for e in history.entries if isinstance(e.event, ObservationDeleted)}
    with patch("memlog.repair.mending.missing_before", return_value=[]):
        return mend(with_holes(history, holes), None, CREATED)


def made_of(folder: Path, *commands: AnyCommand | Callable[[list[str]], AnyCommand]) -> History:
    """Of these commands; one about memories is made of the ids of those that were stored before, the oldest first."""
    store = Store(folder)
    store.create("world")
    project = store.project("world")
    for each in commands:
        with project.read() as state:
            command = each if isinstance(each, Command) else each(list(state.memory_ids("")))
        project.execute(command, Context(), lambda _: None, Origin(thread="one"))
    history = read_back(project)
    store.close()
    return history


def jon(*facts: str) -> CreateEntities:
    entity = NewEntity(name="Jon", entity_type="person", observations=list(facts))
    return CreateEntities(entities=[entity])


def test_a_gap_within_a_command_is_proved_by_the_chain(tmp_path: Path) -> None:
    history = made_of(tmp_path, jon("one fact", "another"))
    mended = mend(with_holes(history, {3, 4}), history.tables, CREATED)
    assert (mended.entries, mended.changed) == (history.stored, Changed())
    assert mended.whole == 4


def test_the_name_of_the_project_is_taken_from_who_knows_it(tmp_path: Path) -> None:
    history = made_of(tmp_path, jon("one fact"))
    mended = mend(with_holes(history, {1}), None, CREATED)
    assert mended.changed.stood_in == (1,)
    with project_of(mended) as project:
        row = project.status()
        assert row is not None and (row.id, row.name) == ("prj_1", "world")


def ann(*commands: AnyCommand) -> list[AnyCommand]:
    """Jon and Gina, who both know Ann, and what happens then."""
    others = [NewEntity(name=each, entity_type="person") for each in ("Gina", "Ann")]
    edges = [
        NewRelation(source=each, target="Ann", relation_type="knows") for each in ("Jon", "Gina")
    ]
    return [
        jon("one fact"),
        CreateEntities(entities=others),
        CreateRelations(relations=edges),
        *commands,
    ]


MERGE = MergeEntities(names=["Jon"], into="Gina")
DELETE = DeleteEntities(entity_names=["Jon"])


@pytest.mark.parametrize(
    ("command", "kind"),
    [(MERGE, ObservationMoved), (MERGE, RelationDeleted), (DELETE, ObservationDeleted)],
)
def test_what_had_to_happen_before_what_is_kept_is_put_in_the_place_of_what_is_lost(
    tmp_path: Path, command: AnyCommand, kind: type[Happened]
) -> None:
    history = made_of(tmp_path, *ann(command))
    events = [each.event for each in history.entries]
    holes = {at for at, each in enumerate(events, 1) if isinstance(each, kind)}
    mended = mend(with_holes(history, holes), None, CREATED)
    assert mended.changed == Changed(stood_in=tuple(holes))
    with project_of(mended) as project:
        require_whole(project)
        with project.snapshot() as (log, _):
            assert [each.event for each in log.read()] == events
        project.execute(Undo(), Context(), lambda _: None)
        require_whole(project)


def test_a_relation_to_a_name_that_only_a_lost_undo_gave_back_is_one_to_the_present_name(
    tmp_path: Path,
) -> None:
    edge = NewRelation(source="Jon", target="Ann", relation_type="likes")
    history = made_of(tmp_path, *ann(MERGE, Undo(), CreateRelations(relations=[edge])))
    (undo,) = (e.position for e in history.entries if isinstance(e.event, CommandUndone))
    mended = mend(with_holes(history, {undo}), None, CREATED)
    assert mended.changed == Changed(stood_in=(undo + 1,), lost=(undo,))
    assert [codec.decode(*each).time_us for each in mended.entries[undo:]] == [
        history.entries[-1].time_us
    ]
    with project_of(mended) as project:
        require_whole(project)
        project.execute(
            DeleteRelations(relations=[Edge(source="Jon", target="Ann", relation_type="likes")]),
            Context(),
            lambda _: None,
        )
        with project.read() as state:
            assert [row.relation_type for row in state.relations()] == ["knows"]


def test_a_fact_that_only_a_lost_undo_brought_back_is_not_moved_and_stays_deleted(
    tmp_path: Path,
) -> None:
    forget = ObservationDeletion(entity_name="Jon", observations=["one fact"])
    delete = DeleteObservations(deletions=[forget])
    history = made_of(tmp_path, *ann(delete, Undo(), MERGE))
    events = [each.event for each in history.entries]
    (undo,) = (at for at, each in enumerate(events, 1) if isinstance(each, CommandUndone))
    (moved,) = (at for at, each in enumerate(events, 1) if isinstance(each, ObservationMoved))
    mended = mend(with_holes(history, {undo}), None, CREATED)
    assert mended.changed == Changed(lost=(undo,), unfit=(moved,))
    with project_of(mended) as project:
        require_whole(project)
        with project.read() as state:
            gina = state.entity_named("Jon")
            assert gina is not None and state.said(gina.id) == []
            assert len(state.retired_observations(gina.id)) == 1


GINA = DeleteEntities(entity_names=["Gina"])
FACT = AddObservations(
    observations=[EntityObservations(entity_name="Jon", contents=["another fact"])]
)


@pytest.mark.parametrize(
    ("commands", "lost", "unfit"),
    [
        ([jon(), DELETE, jon()], EntityDeleted, EntityCreated),
        (ann(GINA, RenameEntity(name="Jon", new_name="Gina")), EntityDeleted, EntityRenamed),
        ([jon(), FACT, Undo(), Undo()], CommandUndone, CommandUndone),
    ],
)
def test_what_takes_a_name_that_is_not_free_or_undoes_what_others_depend_on_is_set_aside(
    tmp_path: Path, commands: list[AnyCommand], lost: type[Happened], unfit: type[Happened]
) -> None:
    history = made_of(tmp_path, *commands)
    hole = min(e.position for e in history.entries if isinstance(e.event, lost))
    last = max(e.position for e in history.entries if isinstance(e.event, unfit))
    mended = mend(with_holes(history, {hole}), None, CREATED)
    assert mended.changed == Changed(lost=(hole,), unfit=(last,))
    with project_of(mended) as project:
        require_whole(project)


def without_its_undo(history: History) -> Mended:
    (undo,) = (e.position for e in history.entries if isinstance(e.event, CommandUndone))
    mended = mend(with_holes(history, {undo}), history.tables, CREATED)
    assert mended.changed == Changed(lost=(undo,), unfit=(undo + 1,))
    return mended


def test_what_the_chain_proved_and_can_no_longer_happen_leaves_its_link_to_what_follows(
    tmp_path: Path,
) -> None:
    names = ("Jon", "Gina")
    both = [NewEntity(name=each, entity_type="person", observations=["one fact"]) for each in names]
    history = made_of(tmp_path, jon("another"), Undo(), CreateEntities(entities=both))
    (undo,) = (e.position for e in history.entries if isinstance(e.event, CommandUndone))
    of_jon, fact, gina = range(undo + 1, undo + 4)
    mended = mend(with_holes(history, {undo, fact, gina}), history.tables, CREATED)
    assert mended.changed == Changed(lost=(undo,), unfit=(of_jon, fact))
    with project_of(mended) as project:
        require_whole(project)
        with project.read() as state:
            assert [each.name for each in state.entities()] == list(names)


def test_what_one_memory_superseded_and_after_a_lost_undo_the_other_is_no_circle(
    tmp_path: Path,
) -> None:
    seattle, austin = "lives in Seattle", "lives in Austin"
    history = made_of(
        tmp_path,
        *(StoreMemory(content=each) for each in (seattle, austin)),
        lambda stored: SupersedeMemory(old_memory_id=stored[0], new_memory_id=stored[1]),
        Undo(),
        lambda stored: SupersedeMemory(old_memory_id=stored[1], new_memory_id=stored[0]),
    )
    with project_of(without_its_undo(history)) as project:
        require_whole(project)
        with project.read() as state:
            assert [each.content for each in state.memories()] == [austin]


def test_a_record_that_only_a_lost_undo_brought_back_is_not_listed_by_its_new_tags(
    tmp_path: Path,
) -> None:
    note = CreateMemory(memory_type="note", content="Ann", source="x", confidence=1.0, tags=["a"])
    history = made_of(
        tmp_path,
        note,
        lambda stored: ForgetMemory(id=stored[0]),
        Undo(),
        msgspec.structs.replace(note, tags=["b"]),
    )
    with project_of(without_its_undo(history)) as project:
        require_whole(project)
        with project.read() as state:
            assert list(state.memories(["tag:b"])) == []


def test_what_cannot_happen_for_lack_of_a_place_for_what_goes_before_is_set_aside(
    tmp_path: Path,
) -> None:
    facts = EntityObservations(entity_name="Jon", contents=["another", "a third"])
    add = AddObservations(observations=[facts])
    history = made_of(tmp_path, jon(), add, Undo(), DELETE)
    (undo,) = (e.position for e in history.entries if isinstance(e.event, CommandUndone))
    mended = mend(with_holes(history, {undo}), None, CREATED)
    assert mended.changed == Changed(lost=(undo,), unfit=(len(history.entries),))
    with project_of(mended) as project, project.read() as state:
        (entity,) = state.entities()
        assert [each.content for each in state.said(entity.id)] == ["another", "a third"]


def test_what_stands_in_says_so_in_every_form_of_the_log(tmp_path: Path) -> None:
    history = made_of(tmp_path / "from", jon("one fact", "another", "a third"))
    mended = mend(with_holes(history, {2, 4}), None, CREATED)
    assert (mended.changed.stood_in, mended.changed.lost) == ((2,), (4,))
    with project_of(mended) as project:
        lines = list(chronicle.write(project))
        _, values = chronicle.read(b"".join(lines))
        assert [*values] == mended.entries
        with project.snapshot() as (log, state_at):
            said = [sentence(entry, state_at) for entry in log.read()]
        assert said[1].endswith("(lost) was created")
        assert said[3] == "what happened here was lost with a damage"
        project.erase(lambda log, state: {2, 3})
        erased = Project(project.folder)
        assert list(erased.verify()) == [1, 2, 3, 4, 5]
        with erased.snapshot() as (log, _):
            assert [each.event for each in log.read()][1:4] == [
                Erased(lost=True),
                Erased(),
                Erased(lost=True),
            ]
        erased.close()


def test_a_changed_byte_of_what_stands_in_is_found(tmp_path: Path) -> None:
    history = made_of(tmp_path, jon("one fact"))
    mended = mend(with_holes(history, {2}), None, CREATED)
    value = mended.entries[1][1]
    for at in range(1, len(value)):
        changed = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        assert not codec.follows(GENESIS, 2, changed)
    assert not codec.follows(GENESIS, 3, value)


# -- pieces


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    facts = [f"fact {number} " + "x" * number for number in range(6)]
    return made_of(tmp_path_factory.mktemp("history"), jon(*facts))


def standing(history: History) -> Standing:
    return {position: {value} for position, value in history.stored}


def whole(found: list[Piece]) -> list[tuple[int, bytes | None]]:
    return [(position, piece.value) for position, piece in enumerate(found, 1)]


@given(data=st.data())
def test_what_was_erased_stays_so_where_a_backup_has_it_and_what_was_lost_comes_back(
    history: History, data: st.DataObject
) -> None:
    """In whatever order the log and the backup, or an old page of either, are looked through."""
    position, value = data.draw(st.sampled_from(history.stored))
    time_us = history.entries[position - 1].time_us
    erased = codec.erase(position, value, time_us)
    lost = codec.mend(position, value[1:CHAIN_END], time_us)
    for there, stays in (
        ({value, erased}, erased),
        ({value, lost}, value),
        ({erased, lost}, erased),
    ):
        found = pieces(standing(history) | {position: there})
        assert found[position - 1].value == stays
        assert [piece.link for piece in found] == [each[1:CHAIN_END] for _, each in history.stored]


@given(data=st.data())
def test_one_wrong_byte_is_made_right_wherever_it_is(history: History, data: st.DataObject) -> None:
    position, value = data.draw(st.sampled_from(history.stored))
    at = data.draw(st.integers(1, len(value) - 1))
    other = data.draw(st.integers(1, 255))
    wrong = value[:at] + bytes([value[at] ^ other]) + value[at + 1 :]
    assert whole(pieces(standing(history) | {position: {wrong}})) == history.stored


@given(data=st.data())
def test_an_entry_that_says_it_is_of_another_kind_is_what_the_chain_proves(
    history: History, data: st.DataObject
) -> None:
    position, value = data.draw(st.sampled_from(history.stored))
    erased = codec.erase(position, value, history.entries[position - 1].time_us)
    for each in (value, erased):
        for kind in (WRITTEN, ERASED, MENDED):
            found = pieces(standing(history) | {position: {bytes([kind]) + each[1:]}})
            assert len(found) == len(history.stored)
            assert found[position - 1].value == each


@pytest.mark.parametrize("end", [b"", b"\0" * 7, b"\0" * 40, b"\xff" * 8])
def test_what_was_erased_is_whole_with_a_time_that_fits_where_it_has_none(
    history: History, end: bytes
) -> None:
    for (position, value), entry in zip(history.stored, history.entries, strict=True):
        erased = codec.erase(position, value, entry.time_us)
        there = {position: {erased[:DIGEST_END] + end}}
        mended = mend(pieces(standing(history) | there), None, CREATED)
        before = history.entries[position - 2].time_us if position > 1 else 0
        assert mended.entries[position - 1] == (position, codec.erase(position, value, before))
        assert mended.changed == Changed()


@given(data=st.data())
def test_an_entry_under_a_key_with_one_wrong_bit_is_found(
    history: History, data: st.DataObject
) -> None:
    position, value = data.draw(st.sampled_from(history.stored))
    there = standing(history)
    del there[position]
    there.setdefault(position ^ 1 << data.draw(st.integers(0, 63)), set()).add(value)
    assert whole(pieces(there)) == history.stored


@given(data=st.data())
def test_behind_a_hole_the_log_goes_on_from_what_another_follows(
    history: History, data: st.DataObject
) -> None:
    """The first behind a hole is known by its chain only; where that is damaged too, the next is."""
    end = len(history.stored)
    gone = data.draw(st.sets(st.integers(1, end), max_size=end))
    there = {
        position: values for position, values in standing(history).items() if position not in gone
    }
    kept = {at for at in there if at == 1 or at - 1 in there}
    found = pieces(there)
    assert len(found) == max(kept, default=0)
    for position, piece in enumerate(found, 1):
        value = history.stored[position - 1][1]
        assert piece.value == (value if position in kept else None)
        assert piece.link in (value[1:CHAIN_END], b"")
        assert piece.link or position + 1 not in kept


def test_many_bytes_that_are_wrong_are_not_looked_for_for_ever() -> None:
    value = bytes([codec.WRITTEN]) + bytes(32) + b"x" * 100_000
    assert pieces({1: {value}}) == []


def test_twice_as_many_lost_entities_take_twice_as_long_to_stand_in_for() -> None:
    """A server does that before it serves what is whole of a log."""

    def steps(count: int) -> int:
        link, found = GENESIS, []
        ids = [f"ent_{each}" for each in range(count)]
        said: list[Event] = [CREATED]
        said += [EntityCreated(each, f"thing {each}", "thing") for each in ids]
        said += [ObservationAdded(f"obs_{each}", each, "x") for each in ids]
        for position, event in enumerate(said, 1):
            entry, value = codec.encode(link, position, position, "cmd_1", None, None, event)
            lost = isinstance(event, EntityCreated)
            found.append(Piece(entry.chain, None if lost else value))
            link = entry.chain
        calls = Counter[str]()
        sys.setprofile(lambda frame, event, argument: calls.update([event]))
        try:
            mended = mend(found, None, CREATED)
        finally:
            sys.setprofile(None)
        assert len(mended.changed.stood_in) == count
        return calls["call"]

    assert steps(800) < 3 * steps(400)
