"""One observation made durable: `Project.execute`, beside a bare synced write and a bare transaction."""

from __future__ import annotations

from collections.abc import Iterator

from bench.floors import SyncedWrite, ThreePuts
from bench.rows import Section, at_most_times, floor, row
from bench.timing import Step, beside
from bench.world import World, creations
from memlog.commands import AddObservations, EntityObservations

RATIO_MAX = 2.5
ENTITIES = 200


def run(world: World) -> Iterator[Section]:
    """Each observation goes to an entity in turn; none is twice the same."""
    entities = world.draw(ENTITIES)
    texts = [f"{number}: {e.observations[0]}" for number, e in enumerate(entities)]
    with world.service(model=False) as service:
        service.store.create("append")
        project = service.open("append").project
        for command in creations(entities):
            project.execute(command, service.store.context, lambda _: None)

        def append(number: int) -> None:
            lap, which = divmod(number, ENTITIES)
            added = EntityObservations(
                entity_name=entities[which].name, contents=[f"{lap} {texts[which]}"]
            )
            command = AddObservations(observations=[added])
            project.execute(command, service.store.context, lambda _: None)

        synced, puts = SyncedWrite(world.folder / "synced"), ThreePuts(world.folder / "puts.mdb")
        steps = {
            "append": Step(append),
            synced.name: Step(synced.write),
            puts.name: Step(puts.write),
        }
        times = beside(world.scale.appends, steps, warm_up=world.scale.warm_up)
        synced.close()
        puts.close()
    bare = floor(synced.name, times[synced.name])
    transaction = floor(puts.name, times[puts.name])
    goal = at_most_times(RATIO_MAX, bare)
    yield Section(
        "One observation made durable, in process",
        [
            row("append", times["append"], [bare], goals=[goal]),
            row("append", times["append"], [transaction]),
            bare,
            transaction,
        ],
    )
