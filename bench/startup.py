"""From the start of the process to the answer of `tools/list`, beside Python alone and the SDK's import."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import partial

from bench.rows import Row, Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import SERVE, Pipe, Server, result_of
from bench.world import World

STARTED_MS_MAX = 600.0
LISTED = "tools/list answered"
BARE, SDK = "python -c pass", "import of mcp.server.lowlevel"


def run(world: World) -> Iterator[Section]:
    project = world.prepared(min(world.scale.sizes)).project
    yield Section("Start of the server", started(world, project, {}))


def started(world: World, project: str, searches: Mapping[str, Mapping[str, str]]) -> list[Row]:
    """Until the tools are listed, and until each of `searches` (by name, arguments of `search_nodes`) is
    answered by a server that was started for it; then the floors."""

    def start(_: int, search: Mapping[str, str] | None = None) -> tuple[Server, bytes]:
        server = Server(SERVE, **world.variables(project))
        if search is None:
            return server, server.ask(server.request("tools/list", {}))
        return server, server.ask(server.call("search_nodes", search))

    steps = {
        LISTED: Step(start, _stopped),
        **{
            name: Step(partial(start, search=search), _stopped) for name, search in searches.items()
        },
        SDK: Step(lambda _: Pipe(_python("import mcp.server.lowlevel")).close()),
        BARE: Step(lambda _: Pipe(_python("pass")).close()),
    }
    warm_up = min(1, world.scale.warm_up)
    times = beside(world.scale.starts, steps, warm_up=warm_up, block=1)
    sdk, bare = floor(SDK, times[SDK]), floor(BARE, times[BARE])
    listed = row(LISTED, times[LISTED], [sdk], goals=[at_most_ms(STARTED_MS_MAX)])
    return [listed, *(row(name, times[name], [sdk]) for name in searches), sdk, bare]


def _stopped(outcome: tuple[Server, bytes]) -> None:
    server, answer = outcome
    server.close()
    result = result_of(answer)
    if not (result.get("tools") or result["structuredContent"]["entities"]):
        raise ValueError(f"the server listed no tools, or found nothing: {answer[:500]!r}")


def _python(program: str) -> list[str]:
    return [sys.executable, "-P", "-c", program]
