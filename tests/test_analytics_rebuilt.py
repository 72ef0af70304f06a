"""Whatever the history, undone or not, and the batches: analytics say what the state itself says, at any time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

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
from memlog.errors import MemlogError
from memlog.events import MemoryStored
from memlog.projects.project import Project
from memlog.rows import Entity, Relation
from memlog.state import State
from projections.analytics.changes import Changes
from projections.analytics.projector import AnalyticsProjector
from projections.analytics.tables import Count, Counts, Effect, Order, Thread, Totals
from projections.analytics.told import Telling
from tests.counted import catch_up, do

ORDERS: tuple[Order, ...] = get_args(Order)
NAMES = ("Jon", "Gina", "e\u0301lan", "élan", "東京")
THREADS = ("one", "two")
TEXTS = ("likes tea", "was a banker", "x" * 150, "x" * 151)


class Clock:
    """Goes on only when told, so that several commands may share a microsecond."""

    now_us = 1_000

    def __call__(self) -> int:
        return self.now_us


# -- the definition, from the state alone


class World:
    """All that lives at one position, read row by row."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.entities = {row.id: row for row in state.entities()}
        self.relations = {row.id: row for row in state.relations()}
        self.observations = {
            row.id: row for each in self.entities for row in state.observations(each)
        }

    def ends(self, relation: Relation) -> list[str]:
        ids = map(self.state.entity_id_of, (relation.source, relation.target))
        return [each for each in ids if each is not None]

    def counts(self, entity: Entity) -> Counts:
        touching = [
            ends for row in self.relations.values() if entity.id in (ends := self.ends(row))
        ]
        owned = [row for row in self.observations.values() if row.entity_id == entity.id]
        return Counts(
            id=entity.id,
            born=entity.born,
            updated_us=self.state.updated_us(entity),
            importance=entity.importance,
            observations=len(owned),
            degree=sum(len(ends) == 2 for ends in touching),
            broken=sum(len(ends) == 1 for ends in touching),
        )

    def totals(self, time_us: int, threads: int) -> Totals:
        rows = [self.counts(entity) for entity in self.entities.values()]
        return Totals(
            time_us=time_us,
            entities=len(rows),
            observations=len(self.observations),
            atomic=sum(len(row.content) <= 150 for row in self.observations.values()),
            relations=len(self.relations),
            related=sum(row.degree > 0 for row in rows),
            orphaned=sum(row.orphaned is not None for row in rows),
            threads=threads,
        )


SORTED_BY: dict[Order, Callable[[Counts], tuple[float, int]]] = {
    "recent": lambda row: (-row.updated_us, -row.born),
    "important": lambda row: (-row.importance, -row.born),
    "connected": lambda row: (-row.degree, -row.born),
    "orphaned": lambda row: (0, -row.born),
}


def in_order(rows: Sequence[Counts], order: Order) -> list[Counts]:
    if order == "connected":
        rows = [row for row in rows if row.degree]
    if order == "orphaned":
        rows = [row for row in rows if row.broken or not row.degree]
    return sorted(rows, key=SORTED_BY[order])


def touched_between(before: World, after: World) -> set[str]:
    """The entities that changed, whose observations changed, or that got or lost a relation."""
    found = {
        entity_id
        for entity_id in {*before.entities, *after.entities}
        if before.entities.get(entity_id) != after.entities.get(entity_id)
    }
    for here, there in ((before, after), (after, before)):
        found |= {
            row.entity_id
            for row in here.observations.values()
            if there.observations.get(row.id) != row
        }
        for row in here.relations.values():
            if row.id not in there.relations:
                found |= set(here.ends(row))
    return found


def types_of(world: World, memory_ids: Sequence[str]) -> set[Count]:
    found = Counter(("entity", row.entity_type) for row in world.entities.values())
    for memory_id in memory_ids:
        row = world.state.memory(memory_id)
        if row is not None:
            gone = "superseded" if row.superseded_by else "active"
            found["deleted" if row.deleted_us else gone, row.memory_type] += 1
    return {Count(what, name, number) for (what, name), number in found.items()}  # type: ignore[arg-type]


# -- random histories

BEGINNING: tuple[AnyCommand, ...] = (
    CreateEntities(
        entities=[
            NewEntity(name=name, entity_type="person", observations=TEXTS[:2]) for name in NAMES[:3]
        ]
    ),
    CreateRelations(
        relations=[
            NewRelation(source=source, target=target, relation_type="knows")
            for source, target in (("Jon", "Gina"), ("Gina", "東京"), ("Jon", "élan"))
        ]
    ),
)
"""One of these relations leads to a name that nobody has yet."""

name = st.sampled_from(NAMES)
text = st.sampled_from(TEXTS)
relation_type = st.sampled_from(["knows", "owns"])
kind = st.sampled_from(["person", "place"])
share = st.sampled_from([0.0, -0.0, 0.5, 0.7, 1.0])


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, min_size=1, max_size=2)


relation = st.builds(NewRelation, source=name, target=name, relation_type=relation_type)
saved = st.builds(
    lambda one, another, share: SaveMemory(
        entities=[
            SavedEntity(
                name=each,
                entity_type="Person",
                observations=["is here"],
                relations=[SavedRelation(target_entity=another, relation_type="knows")],
                importance=share,
            )
            for each in dict.fromkeys((one, another))
        ]
    ),
    name,
    name,
    share,
)
command = st.one_of(
    st.builds(
        CreateEntities,
        entities=few(
            st.builds(
                NewEntity, name=name, entity_type=kind, observations=st.lists(text, max_size=3)
            )
        ),
        if_exists=st.sampled_from(["replace", "merge"]),
    ),
    saved,
    st.builds(
        AddObservations,
        observations=few(st.builds(EntityObservations, entity_name=name, contents=few(text))),
    ),
    st.builds(UpdateObservation, entity_name=name, observation=text, new_content=text),
    st.builds(DeleteEntities, entity_names=few(name)),
    st.builds(
        DeleteObservations,
        deletions=few(st.builds(ObservationDeletion, entity_name=name, observations=few(text))),
    ),
    st.builds(CreateRelations, relations=few(relation)),
    st.builds(CreateRelations, relations=few(relation)),
    st.builds(
        DeleteRelations,
        relations=few(st.builds(Edge, source=name, target=name, relation_type=relation_type)),
    ),
    st.builds(RenameEntity, name=name, new_name=name),
    st.builds(MergeEntities, names=few(name), into=name),
    st.builds(Undo, last=st.integers(1, 3), cascade=st.booleans()),
    st.builds(StoreMemory, content=text),
    st.builds(
        CreateMemory,
        memory_type=st.sampled_from(["note", "fact"]),
        content=text,
        source=st.just("chat"),
        confidence=st.just(1.0),
    ),
    st.sampled_from(["supersede", "forget"]),
)
step = st.tuples(command, st.sampled_from([None, *THREADS]), st.integers(0, 1), st.booleans())


def memory_ids(project: Project) -> list[str]:
    with project.snapshot() as (log, _):
        stored = (entry.event for entry in log.read())
        return [event.memory_id for event in stored if isinstance(event, MemoryStored)]


def meant(wanted: AnyCommand | str, project: Project) -> AnyCommand | None:
    """The command, or one about the memories there are."""
    ids = memory_ids(project) if isinstance(wanted, str) else []
    if wanted == "supersede" and len(ids) > 1:
        return SupersedeMemory(old_memory_id=ids[0], new_memory_id=ids[-1])
    if wanted == "forget" and ids:
        return ForgetMemory(id=ids[len(ids) // 2])
    return None if isinstance(wanted, str) else wanted


@settings(max_examples=50)
@given(steps=st.lists(step, min_size=4, max_size=25), unranked_max=st.sampled_from([0, 1, 3, 128]))
def test_whatever_happened_and_however_it_was_read_analytics_say_what_the_state_says(
    steps: Sequence[tuple[AnyCommand | str, str | None, int, bool]], unranked_max: int
) -> None:
    clock = Clock()
    with TemporaryDirectory() as folder:
        project = Project(Path(folder, "prj_1"), clock=clock)
        do(project, CreateProject(name="one"))
        for first in BEGINNING:
            do(project, first, "zero")
        incremental = AnalyticsProjector(Path(folder, "incremental"), unranked_max=unranked_max)
        for wanted, thread, later_us, follows in steps:
            clock.now_us += later_us
            command = meant(wanted, project)
            try:
                if command is not None:
                    do(project, command, thread)
            except MemlogError:
                pass  # what is refused changes nothing
            if follows:
                middle = (incremental.position + project.head() + 1) // 2
                catch_up(incremental, project, middle)
        catch_up(incremental, project)
        rebuilt = AnalyticsProjector(Path(folder, "rebuilt"), unranked_max=unranked_max)
        catch_up(rebuilt, project)

        assert incremental.digest() == rebuilt.digest()
        assert incremental.position == rebuilt.position == project.head()
        everywhere_as_the_state_says(incremental, project)
        what_an_entry_tells_by_itself_is_what_comparing_finds(project)
        for each in (incremental, rebuilt, project):
            each.close()


def everywhere_as_the_state_says(analytics: AnalyticsProjector, project: Project) -> None:
    ids = memory_ids(project)
    touched: dict[str, set[str]] = {}
    wrote: dict[str, list[Entry]] = {}
    with project.snapshot() as (log, state_at):
        before = World(state_at(0))
        for entry in log.read():
            after = World(state_at(entry.position))
            if entry.thread is not None:
                known = touched.setdefault(entry.thread, set())
                known |= touched_between(before, after)
                wrote.setdefault(entry.thread, []).append(entry)
            before = after
            at = None if entry.position == analytics.position else entry.position
            with analytics.read(at) as counted:
                assert counted.totals() == after.totals(entry.time_us, len(touched))
                assert set(counted.counts()) == types_of(after, ids)
                assert {row.thread: replace(row, ranked=False) for row in counted.threads()} == {
                    thread: as_counted(thread, touched[thread], wrote[thread]) for thread in wrote
                }
                rows = [after.counts(entity) for entity in after.entities.values()]
                for order in ORDERS:
                    assert list(counted.ranked(order)) == in_order(rows, order)
                    for thread in THREADS:
                        members = touched.get(thread, set())
                        theirs = [row for row in rows if row.id in members]
                        assert list(counted.ranked(order, thread)) == in_order(theirs, order)


def what_an_entry_tells_by_itself_is_what_comparing_finds(project: Project) -> None:
    counted: dict[int, Counts | None] = {}
    with project.snapshot() as (log, state_at):
        waited: set[bytes] = set()
        telling = Telling(state_at, counted.get, waited.__contains__)
        for entry in log.read():
            changes = Changes(entry, state_at)
            compared, told = changes.effect(counted.get), telling.effect(entry)
            if told is not None:
                assert as_said(told) == as_said(compared)
            elif changes.names:
                telling.forget_names()
            waited.update(compared.waiting)
            for old, new in compared.rows:
                row = new or old
                assert row is not None
                counted[row.born] = new


def as_said(effect: Effect) -> tuple[object, ...]:
    types = {each for each in effect.types if each[-1]}
    return (
        effect.rows,
        set(effect.touched),
        types,
        effect.atomic,
        effect.relations,
        set(effect.waiting),
    )


def as_counted(thread: str, touched: set[str], wrote: list[Entry]) -> Thread:
    return Thread(
        thread,
        entities=len(touched),
        events=len(wrote),
        commands=len({entry.command_id for entry in wrote}),
        first_us=wrote[0].time_us,
        last_us=wrote[-1].time_us,
        last_position=wrote[-1].position,
        command=wrote[-1].command_id,
    )
