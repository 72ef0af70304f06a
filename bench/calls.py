"""Calls over stdio at each size: a ping, and an entity created with two facts.

The server is a child process on two pipes; beside it stand a bare echo, a call that does nothing, and a
synced write. Creating is measured with the model and without it: the follower embeds in the background
what was created, on the same processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bench.floors import SyncedWrite
from bench.rows import Row, Section, at_most_growth, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import ECHO, Pipe, Server, result_of
from bench.world import World

CREATE_MS_MAX = 1.2
NO_OP_NAME = "no-op call of the bare SDK"
ECHO_NAME = "line echoed by a bare Python"


def no_op_step(world: World) -> Step:
    """A call of the tool that does nothing."""
    message = world.no_op.call("nothing", {})
    return Step(lambda _: world.no_op.ask(message))


def run(world: World) -> Iterator[Section]:
    smallest: dict[str, Row] = {}
    for size in sorted(world.scale.sizes):
        project, rows = world.prepared(size).project, []
        for model in (True, False) if world.has_model else (False,):
            server, suffix = world.server(project, model=model), ", with the model" if model else ""
            if not smallest:
                yield _ping(world, server)
            measured, *floors = created(world, server, suffix, smallest)
            smallest.setdefault(measured.name, measured)
            rows += [measured, *floors]
        yield Section(f"Creating over stdio, {size:,} observations", rows)


def _ping(world: World, server: Server) -> Section:
    message = server.ping()
    with Pipe(ECHO) as echo:
        steps = {
            "ping": Step(lambda _: server.ask(message), result_of),
            NO_OP_NAME: no_op_step(world),
            ECHO_NAME: Step(lambda _: echo.ask(message)),
        }
        times = beside(world.scale.calls, steps, warm_up=world.scale.warm_up)
    floors = [floor(name, times[name]) for name in (NO_OP_NAME, ECHO_NAME)]
    return Section(
        "A ping over stdio", [*(row("ping", times["ping"], [each]) for each in floors), *floors]
    )


def created(
    world: World, server: Server, suffix: str, smallest: Mapping[str, Row]
) -> Iterator[Row]:
    """The row, beside that of the smallest size where there is one; then its floors."""
    scale, name = world.scale, f"create_entities{suffix}"
    entities = world.draw(scale.warm_up + scale.calls)
    messages = [server.call("create_entities", {"entities": [e.as_json()]}) for e in entities]
    synced = SyncedWrite(world.folder / "synced")
    steps = {
        name: Step(lambda number: server.ask(messages[number]), result_of),
        NO_OP_NAME: no_op_step(world),
        synced.name: Step(synced.write),
    }
    times = beside(scale.calls, steps, warm_up=scale.warm_up)
    synced.close()
    floors = [floor(each + suffix, times[each]) for each in (NO_OP_NAME, synced.name)]
    goals = [at_most_ms(CREATE_MS_MAX), *at_most_growth(name, smallest)]
    yield row(name, times[name], floors, goals=goals)
    yield from floors
