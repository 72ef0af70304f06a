"""From the start of the process to the answer of `tools/list`, beside Python alone and the SDK's import."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.rows import Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import SERVE, Pipe, Server, result_of
from bench.world import World

STARTED_MS_MAX = 600.0
BARE, SDK = "python -c pass", "import of mcp.server.lowlevel"


def run(world: World) -> Iterator[Section]:
    project = world.prepared(min(world.scale.sizes)).project

    def started(_: int) -> tuple[Server, bytes]:
        server = Server(SERVE, **world.variables(project))
        return server, server.ask(server.request("tools/list", {}))

    def stopped(outcome: tuple[Server, bytes]) -> None:
        server, answer = outcome
        server.close()
        if not result_of(answer)["tools"]:
            raise ValueError("the server listed no tools")

    steps = {
        "tools/list answered": Step(started, stopped),
        SDK: Step(lambda _: Pipe(_python("import mcp.server.lowlevel")).close()),
        BARE: Step(lambda _: Pipe(_python("pass")).close()),
    }
    warm_up = min(1, world.scale.warm_up)
    times = beside(world.scale.starts, steps, warm_up=warm_up, block=1)
    sdk, bare = floor(SDK, times[SDK]), floor(BARE, times[BARE])
    taken = times["tools/list answered"]
    goals = [at_most_ms(STARTED_MS_MAX)]
    yield Section(
        "Start of the server",
        [row("tools/list answered", taken, [sdk], goals=goals), sdk, bare],
    )


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]
