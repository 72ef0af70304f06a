"""Everything derived is thrown away and built from the log again: state, text, analytics, and vectors of known texts.

The floor of all is reading the log; that of text also a bare index of the same texts, that of vectors
also reading them from the cache and adding them to a bare index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from bench import corpus
from bench.floors import BareText, BareVectors
from bench.rows import Goal, Row, Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.world import World, batches, creations, document_texts
from memlog.commands import CreateEntities, CreateRelations
from memlog.projects.project import Project
from server.opened import Opened
from server.service import Service

SECONDS_MAX_PER_MILLION = {"state": 20.0, "text": 30.0, "analytics": 15.0}
"""Goals for a million events; of fewer, their share, down to where what one commit costs weighs too much."""

GOALS_FROM_EVENTS = 100_000
EVENTS_PER_ENTITY = 2 + corpus.FACTS_PER_ENTITY
SCAN, TANTIVY = "log scanned and decoded", "tantivy alone"
FAISS = "vectors read from the cache, added to FAISS"


def run(world: World) -> Iterator[Section]:
    samples = world.scale.replays
    with world.service(model=False) as service:
        service.store.create("replay")
        opened = service.open("replay")
        wanted = -(-world.scale.replay_events // EVENTS_PER_ENTITY)
        world.execute("replay: log", service, opened, made(world.draw(wanted)))
        rows = replayed(world, service, opened, ("state", "text", "analytics"), samples)
        yield Section(f"Replay of {opened.project.head():,} events", rows)
    prepared = world.prepared(min(world.scale.sizes))
    title = f"Replay of the vectors of {len(prepared.texts):,} documents, embedded before"
    if not world.has_model:
        yield Section(title, [], world.skipped("vectors"))
        return
    with world.service(model=True) as service:
        opened = service.open(prepared.project)
        opened.projections.vectors()
        yield Section(title, replayed(world, service, opened, ("vectors",), samples))


def replayed(
    world: World, service: Service, opened: Opened, names: Sequence[str], samples: int
) -> list[Row]:
    """The state and the projections of these names, each rebuilt so often; then the floors."""
    project, texts = opened.project, document_texts(opened.project)
    steps = {name: Step(partial(_rebuild, opened, name)) for name in names}
    stands_on = {name: [SCAN] for name in names}
    steps[SCAN] = Step(lambda _: _scan(project))
    if "text" in names:
        steps[TANTIVY] = Step(lambda _: BareText.over(texts, world.folder / "tantivy-replay"))
        stands_on["text"].append(TANTIVY)
    if "vectors" in names:
        cache = service.embeddings.get()
        steps[FAISS] = Step(lambda _: BareVectors(cache.vectors(texts)))
        stands_on["vectors"].append(FAISS)
    times = beside(samples, steps, block=1)
    floors = {name: floor(name, times[name]) for name in steps if name not in names}
    rows = [
        row(
            name,
            times[name],
            [floors[each] for each in stands_on[name]],
            goals=goals_of(name, project.head()),
        )
        for name in names
    ]
    return [*rows, *floors.values()]


def _rebuild(opened: Opened, name: str, _: int) -> None:
    if name == "state":
        opened.project.rebuild()
    else:
        opened.projections.rebuild(name)


def goals_of(name: str, events: int) -> list[Goal]:
    if name not in SECONDS_MAX_PER_MILLION or events < GOALS_FROM_EVENTS:
        return []
    return [at_most_ms(SECONDS_MAX_PER_MILLION[name] * events / 1_000)]


def made(entities: Sequence[corpus.Entity]) -> list[CreateEntities | CreateRelations]:
    """Commands that make entities with their facts, then one relation from each."""
    relations = batches(corpus.relations(entities))
    return [*creations(entities), *(CreateRelations(relations=batch) for batch in relations)]


def _scan(project: Project) -> None:
    with project.snapshot() as (log, _):
        for _entry in log.read():
            pass
