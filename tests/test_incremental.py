"""Whatever the history and wherever it was caught up: what grew equals what is rebuilt from the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

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
    SavedEntity,
    SavedRelation,
    SaveMemory,
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.errors import MemlogError
from memlog.evolve import evolve
from memlog.ids import new_id
from memlog.projects.project import Origin, Project
from memlog.projects.store import Store
from memlog.settings import Mode, Settings
from memlog.state import Known, State
from memlog.storage.tables import MemoryRows, Timeline
from projections import embeddings
from projections.check import compare
from projections.embeddings import Embeddings
from projections.follow import PROJECTIONS, Projections
from projections.search.searcher import Searcher
from tests.embedder_by_hash import opened_by_hash

NAMES = ("Jon", "Gina", "jon", "e\u0301lan", "élan", "café 7", "X-4471-b", "東京")
TYPES = ("person", "place")
TEXTS = (
    "likes dancing",
    "likes dark mode in editors",
    "was a banker, was a banker",
    "runs a store",
    "lives in 東京",
    "é",
)
MODES: tuple[Mode, ...] = ("text", "hybrid", "semantic")
QUERIES = ("dancing", "banker OR store", '"dark mode"', "ank", "Jon", "東京", "person", "é")

name = st.just(NAMES[0]) | st.sampled_from(NAMES)  # histories that meet the same thing again
text = st.sampled_from(TEXTS[:2]) | st.sampled_from(TEXTS)
edge_type = st.sampled_from(["knows", "owns"])


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, min_size=1, max_size=3)


graph_command = st.one_of(
    st.builds(
        CreateEntities,
        entities=few(
            st.builds(
                NewEntity,
                name=name,
                entity_type=st.sampled_from(TYPES),
                observations=st.lists(text, max_size=3),
            )
        ),
        if_exists=st.sampled_from(["replace", "merge", "skip", "error"]),
    ),
    st.builds(
        AddObservations,
        observations=few(
            st.builds(
                EntityObservations,
                entity_name=name,
                contents=few(
                    text | st.builds(NewObservation, content=text, supersedes=st.none() | text)
                ),
            )
        ),
    ),
    st.builds(DeleteEntities, entity_names=few(name)),
    st.builds(
        DeleteObservations,
        deletions=few(st.builds(ObservationDeletion, entity_name=name, observations=few(text))),
    ),
    st.builds(
        CreateRelations,
        relations=few(st.builds(NewRelation, source=name, target=name, relation_type=edge_type)),
    ),
    st.builds(
        DeleteRelations,
        relations=few(st.builds(Edge, source=name, target=name, relation_type=edge_type)),
    ),
    st.builds(
        SaveMemory,
        entities=few(
            st.builds(
                SavedEntity,
                name=name,
                entity_type=st.sampled_from(TYPES),
                observations=few(text),
                relations=few(
                    st.builds(
                        SavedRelation, target_entity=name, relation_type=st.sampled_from(["knows"])
                    )
                ),
                importance=st.sampled_from([0.5, 0.9]),
            )
        ),
    ),
)

which = st.integers(0, 5).map(str)  # stands for the id of the memory stored as that one
memory_command = st.one_of(
    st.builds(StoreMemory, content=text, confidence=st.sampled_from([0.5, 1.0])),
    st.builds(
        CreateMemory,
        memory_type=st.sampled_from(["note", "fact"]),
        content=text | st.fixed_dictionaries({"summary": text}),
        source=st.sampled_from(["here", "there"]),
        confidence=st.sampled_from([0.5, 1.0]),
        tags=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2, unique=True),
    ),
    st.builds(SupersedeMemory, old_memory_id=which, new_memory_id=which),
    st.builds(ForgetMemory, id=which),
)
history_command = st.one_of(
    st.builds(RenameEntity, name=name, new_name=name),
    st.builds(RenameEntity, name=name, new_name=name, new_type=name),
    st.builds(MergeEntities, names=few(name), into=name),
    st.builds(UpdateObservation, entity_name=name, observation=text, new_content=text),
    st.builds(
        Undo,
        position=st.none() | st.integers(1, 30),
        last=st.integers(1, 3),
        thread=st.sampled_from([None, "one"]),
        cascade=st.booleans(),
    ),
)
move = st.tuples(
    graph_command | history_command | memory_command,
    st.sampled_from([None, "one", "two"]),
    st.sampled_from(["nothing", "nothing", *PROJECTIONS, "all", "save", "reopen"]),
)
Moves = list[tuple[AnyCommand, str | None, str]]


class World:
    """One project with its indexes, which may be put down and taken up again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._embeddings = Embeddings(Settings(data_dir=folder, embedder="minilm"))
        self._store = Store(folder)
        self._store.create("world")
        self._open()
        known = [NewEntity(name=each, entity_type="person", observations=TEXTS) for each in NAMES]
        self.do(CreateEntities(entities=known[:2]), None)

    def _open(self) -> None:
        self.project = self._store.project("world")
        self.projections = Projections(self.project, self._embeddings)
        self.searcher = Searcher(self.projections, self._embeddings, lambda: None)

    def do(self, wanted: AnyCommand, thread: str | None) -> None:
        """A refused command changes nothing, and that is right too."""
        before = self.project.head()
        try:
            self.project.execute(
                self._addressed(wanted), Context(), lambda _: None, Origin(thread=thread)
            )
        except MemlogError:
            assert self.project.head() == before

    def _addressed(self, wanted: AnyCommand) -> AnyCommand:
        """The command, with the ids of memories in place of their numbers."""
        with self.project.read() as state:
            ids = list(state.memory_ids(""))

        def id_of(number: str) -> str:
            return ids[int(number)] if int(number) < len(ids) else new_id("mem")

        match wanted:
            case SupersedeMemory(old_memory_id=old, new_memory_id=new):
                return SupersedeMemory(old_memory_id=id_of(old), new_memory_id=id_of(new))
            case ForgetMemory(id=number):
                return ForgetMemory(id=id_of(number))
            case _:
                return wanted

    def follow(self, step: str) -> None:
        for projection in PROJECTIONS:
            if step in (projection, "all"):
                self.projections.caught_up(projection)
        if step == "save":
            self.projections.vectors().save()
        if step == "reopen":
            self.projections.close()
            self._store.close()
            self._store = Store(self._folder)
            self._open()

    def close(self) -> None:
        self.projections.close()
        self._embeddings.close()
        self._store.close()


@contextmanager
def world() -> Iterator[World]:
    with (
        patch.object(embeddings, "open_embedder", opened_by_hash),
        TemporaryDirectory() as folder,
    ):
        opened = World(Path(folder))
        try:
            yield opened
        finally:
            opened.close()


def entries_of(project: Project) -> list[Entry]:
    with project.snapshot() as (log, _):
        return list(log.read())


def as_told_by(entries: Sequence[Entry]) -> State:
    """The state of a project that has seen these entries and no more."""
    timeline = Timeline(MemoryRows(), MemoryRows())
    for entry in entries:
        evolve(timeline, entry)
    return State(timeline)


def whole(known: Known | None) -> list[Any]:
    assert known is not None
    return [known.entity, known.observations, list(known.relations)]


def everything(state: State) -> dict[str, Any]:
    """All that can be read of a state, by every way of reading it."""
    entities = list(state.entities())
    *together, nobody = state.known([*(each.id for each in entities), "ent_nobody"])
    assert nobody is None
    assert [*map(whole, together)] == [*map(whole, map(state.known_of, entities))]
    return {
        "project": state.project(),
        "entities": entities,
        "observations": {each.id: state.observations(each.id) for each in entities},
        "ever": {each.id: list(state.every_observation(each.id)) for each in entities},
        "retired": {each.id: state.retired_observations(each.id) for each in entities},
        "relations": list(state.relations()),
        "by name": {each: state.entity_named(each) for each in NAMES},
        "leaving": {each: state.relations_from(each) for each in NAMES},
        "touching": {each: state.relations_touching(each) for each in NAMES},
        "memories": [state.memory(each) for each in state.memory_ids("")],
        "listed": list(state.memories()),
        "labelled": {each: list(state.memories([each])) for each in sorted(state.labels())},
    }


@settings(max_examples=60)
@given(moves=st.lists(move, min_size=1, max_size=12), data=st.data())
def test_what_grew_equals_what_is_rebuilt_and_every_past_what_it_was(
    moves: Moves, data: st.DataObject
) -> None:
    with world() as grown:
        for wanted, thread, step in moves:
            grown.do(wanted, thread)
            grown.follow(step)
        project = grown.project
        head = project.head()
        assert project.is_as_rebuilt()
        for projection in PROJECTIONS:
            assert compare(grown.projections, projection), projection

        entries = entries_of(project)
        positions = data.draw(st.sets(st.integers(0, head), max_size=5)) | {head}
        for position in positions:
            then = as_told_by(entries[:position])
            with project.read(position) as state:
                assert everything(state) == everything(then)

        with project.read() as state:
            now = everything(state)
        assert now == everything(as_told_by(entries))
        project.rebuild()
        with project.read() as state:
            assert everything(state) == now


@settings(max_examples=60)
@given(moves=st.lists(move, min_size=1, max_size=10), data=st.data())
def test_a_search_finds_then_and_now_what_lived_and_nothing_else(
    moves: Moves, data: st.DataObject
) -> None:
    with world() as grown:
        for wanted, thread, step in moves:
            grown.do(wanted, thread)
            grown.follow(step)
            at = data.draw(st.none() | st.integers(1, grown.project.head()))
            mode = data.draw(st.sampled_from(MODES))
            require_alive(grown, data.draw(st.sets(st.sampled_from(QUERIES))), mode, at)


def require_alive(grown: World, queries: set[str], mode: Mode, at: int | None) -> None:
    """What a search finds lives at that position; and all that holds a plain part is found."""
    entries = entries_of(grown.project)
    then = as_told_by(entries if at is None else entries[:at])
    living = {
        entity.id: {entity.id, *(row.id for row in then.observations(entity.id))}
        for entity in then.entities()
    }
    for query in queries:
        hits = grown.searcher.search(query, mode=mode, at=at).hits
        refs = [hit.ref for hit in hits]
        assert len(refs) == len(set(refs))
        for hit in hits:
            if hit.kind == "memory":
                memory = then.memory(hit.ref)
                assert memory is not None and memory.active
            else:
                assert hit.ref in living[hit.entity]
        if mode == "text" and query in ("dancing", "ank", "東京"):
            assert {hit.ref for hit in hits if hit.kind != "memory"} == holding(query, then)


def holding(part: str, state: State) -> set[str]:
    """What has `part` in the text under which it is found."""
    found = set()
    for entity in state.entities():
        known_as = (f"{entity.name} ({entity.entity_type})", *entity.aliases)
        if any(part in each for each in known_as):
            found.add(entity.id)
        for row in state.observations(entity.id):
            if part in f"{entity.name}: {row.content}":
                found.add(row.id)
    return found
