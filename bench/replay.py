"""Everything derived is thrown away and built from the log again: state, text, and vectors of known texts.

The floor of all is reading the log; that of text also a bare index of the same texts, that of vectors
also reading them from the cache and adding them to a flat index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench import corpus
from bench.floors import BareText, BareVectors
from bench.rows import Section, Skipped, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.world import ITEMS_PER_COMMAND, World, creations, document_texts
from memlog.commands import CreateEntities, CreateRelations
from memlog.project import Project

STATE_MS_MAX = 3_000.0
TEXT_MS_MAX = 4_000.0
GOALS_FOR_EVENTS = 100_000
EVENTS_PER_ENTITY = 2 + corpus.FACTS_PER_ENTITY
SCAN = "log scanned and decoded"


def run(world: World) -> Iterator[Section]:
    yield _state_and_text(world)
    yield _vectors(world)


def _state_and_text(world: World) -> Section:
    with world.service(model=False) as service:
        service.store.create("replay")
        opened = service.open("replay")
        wanted = -(-world.scale.replay_events // EVENTS_PER_ENTITY)
        world.execute("replay: log", service, opened, made(world.draw(wanted)))
        texts = document_texts(opened.project)
        steps = {
            "state": Step(lambda _: opened.project.rebuild()),
            "text": Step(lambda _: opened.projections.rebuild("text")),
            SCAN: Step(lambda _: _scan(opened.project)),
            "tantivy alone": Step(lambda _: BareText.over(texts, world.folder / "tantivy-replay")),
        }
        times = beside(world.scale.replays, steps, block=1)
        events = opened.project.head()
    scan = floor(SCAN, times[SCAN])
    tantivy = floor(f"tantivy alone, {len(texts):,} texts", times["tantivy alone"])
    share = events / GOALS_FOR_EVENTS
    return Section(
        f"Replay of {events:,} events",
        [
            row("state", times["state"], [scan], goals=[at_most_ms(STATE_MS_MAX * share)]),
            row("text", times["text"], [scan, tantivy], goals=[at_most_ms(TEXT_MS_MAX * share)]),
            scan,
            tantivy,
        ],
    )


def _vectors(world: World) -> Section:
    prepared = world.prepared(min(world.scale.sizes))
    title = f"Replay of the vectors of {len(prepared.texts):,} documents, embedded before"
    if not world.has_model:
        return Section(title, [], [Skipped("vectors", world.without_model or "")])
    with world.service(model=True) as service:
        opened = service.open(prepared.project)
        opened.projections.vectors()
        texts = document_texts(opened.project)
        cache = service.embeddings.get()
        steps = {
            "vectors": Step(lambda _: opened.projections.rebuild("vectors")),
            SCAN: Step(lambda _: _scan(opened.project)),
            "flat": Step(lambda _: BareVectors(cache.vectors(texts))),
        }
        times = beside(world.scale.replays, steps, block=1)
    scan = floor(SCAN, times[SCAN])
    flat = floor("vectors read from the cache, added to FAISS", times["flat"])
    return Section(title, [row("vectors", times["vectors"], [scan, flat]), scan, flat])


def made(entities: Sequence[corpus.Entity]) -> list[CreateEntities | CreateRelations]:
    """Commands that make entities with their facts, then one relation from each."""
    relations = corpus.relations(entities)
    starts = range(0, len(relations), ITEMS_PER_COMMAND)
    return [
        *creations(entities),
        *(CreateRelations(relations=relations[at : at + ITEMS_PER_COMMAND]) for at in starts),
    ]


def _scan(project: Project) -> None:
    with project.snapshot() as (log, _):
        for _entry in log.read():
            pass
