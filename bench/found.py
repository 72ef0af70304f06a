"""How long until what was just written is found: an entity created, then searched for, to the last byte.

Nothing waits in between; the search sees to it that it finds the newest where the follower has not.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from bench import corpus
from bench.calls import NO_OP_NAME, no_op_step
from bench.floors import BareText, SyncedWrite
from bench.rows import Row, Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import Server, result_of
from bench.world import Prepared, World

FOUND_MS_MAX = 15.0
COMMIT = "tantivy alone, one document committed"
EMBEDDED, ASKED = "embedding of an entity and its facts", "embedding of a query"
BY_WORDS, HYBRID = "created, then found by words", "created, then found, hybrid"


def run(world: World) -> Iterator[Section]:
    prepared = world.prepared(min(world.scale.sizes))
    memlog = world.server(prepared.project, model=world.has_model)
    yield Section(
        f"Written, then found, {prepared.size:,} observations",
        written_then_found(world, prepared, memlog),
        world.skipped(HYBRID),
    )


def written_then_found(world: World, prepared: Prepared, memlog: Server) -> list[Row]:
    """By words and, where there is the model, by both; then the floors."""
    scale, folder = world.scale, world.folder / "tantivy-found"
    index = BareText(folder)
    index.finish(index.add(prepared.texts))
    synced = SyncedWrite(world.folder / "synced")
    by_words = {
        BY_WORDS: _created_and_found(world, memlog, {"mode": "text"}),
        NO_OP_NAME: no_op_step(world),
        synced.name: Step(synced.write),
        COMMIT: Step(lambda number: index.add([f"fact {number}"]), index.finish),
    }
    times = beside(scale.found, by_words, warm_up=scale.warm_up, block=1)
    if world.has_model:  # apart: it would have to embed what the other had just created, too
        drawn = world.draw(scale.warm_up + scale.found)
        hybrid = {
            HYBRID: _created_and_found(world, memlog, {}),
            EMBEDDED: Step(lambda number: world.embedder.embed(_texts(drawn[number]))),
            ASKED: Step(lambda number: world.embedder.embed([drawn[number].name])),
        }
        times |= beside(scale.found, hybrid, warm_up=scale.warm_up, block=1)
    synced.close()
    shutil.rmtree(folder)
    floors = {name: floor(name, times[name]) for name in times if name not in (BY_WORDS, HYBRID)}
    return [*_rows(times, floors), *floors.values()]


def _created_and_found(world: World, server: Server, arguments: dict[str, str]) -> Step:
    """Both calls on the clock; off it, whether the search did find what the first one made."""
    entities = world.draw(world.scale.warm_up + world.scale.found)
    messages = [
        (
            server.call("create_entities", {"entities": [each.as_json()]}),
            server.call("search_nodes", {"query": each.name, **arguments}),
        )
        for each in entities
    ]

    def run(number: int) -> tuple[str, bytes, bytes]:
        create, search = messages[number]
        return entities[number].name, server.ask(create), server.ask(search)

    def after(outcome: tuple[str, bytes, bytes]) -> None:
        name, created, answer = outcome
        result_of(created)
        found = result_of(answer)["structuredContent"]["entities"]
        if name not in [each["name"] for each in found]:
            raise ValueError(f"{name!r} was created and not found")

    return Step(run, after)


def _texts(entity: corpus.Entity) -> list[str]:
    return [entity.name, *entity.observations]


def _rows(times: dict[str, list[int]], floors: dict[str, Row]) -> list[Row]:
    """Two calls, a commit of the log and one of the text index; with the model, what came and what is asked."""
    no_op = floors[NO_OP_NAME]
    written = [no_op, no_op, floors[SyncedWrite.name], floors[COMMIT]]
    goals = [at_most_ms(FOUND_MS_MAX)]
    measured = [row(BY_WORDS, times[BY_WORDS], written, goals=goals)]
    if HYBRID in times:
        embedded = [*written, floors[EMBEDDED], floors[ASKED]]
        measured.append(row(HYBRID, times[HYBRID], embedded, goals=goals))
    return measured
