"""Calls over HTTP on loopback: a read and a search by one client, and by 8; then 64 that read, search and write.

Each client keeps a connection of its own and asks again when it has its answer, so that 8 clients are 8
requests at any time; then 8 clients with pauses, as those who have something to do in between. They run in other
processes than the server, on the same processors. No answer may be an error, and every write that was
acknowledged is looked for at the end.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from random import Random

from bench import corpus
from bench.http_wire import NOTHING, Connection, body_of, call, result_of
from bench.rows import Section, at_most_ms, floor, row
from bench.wire import SERVE, environment
from bench.world import World, batches

CLIENTS, CLIENTS_UNDER_LOAD = 8, 64
PAUSE_SECONDS = 0.25
"""Between an answer and the next call, in the mean; exponentially distributed."""

PROCESSES = 2
READ_MS_MAX, SEARCH_MS_MAX = 2.0, 8.0
START_SECONDS_MAX = 60.0
BARE = "a request that does nothing"


def run(world: World) -> Iterator[Section]:
    prepared = world.prepared(max(world.scale.sizes))
    names = [entity.name for entity in prepared.entities]
    reads = [_read(name) for name in names[: world.scale.calls]]
    queries = corpus.queries(prepared.entities, 2 * world.scale.calls)
    searches = [_search(query) for query in queries]
    by_words = [_search(query, mode="text") for query in queries]
    with _served(world, prepared.project) as port, _clients() as pool:
        for start, clients in enumerate((1, CLIENTS)):
            times = {
                name: _together(pool, port, clients, calls)
                for name, calls in (
                    (BARE, [NOTHING] * len(reads)),
                    ("open_nodes", reads),
                    ("search_nodes, text", by_words[start::2]),
                    ("search_nodes", searches[start::2]),  # none whose vector is in the cache
                )
            }
            nothing = floor(BARE, times[BARE])
            goals = [at_most_ms(READ_MS_MAX)] if clients == 1 else []
            sought = [at_most_ms(SEARCH_MS_MAX)] if clients == CLIENTS else []
            yield Section(
                f"HTTP, {clients} client{'s' * (clients > 1)}, {prepared.size:,} observations",
                [
                    row("open_nodes", times["open_nodes"], [nothing], goals=goals),
                    row("search_nodes, text", times["search_nodes, text"], [nothing]),
                    row("search_nodes", times["search_nodes"], [nothing], goals=sought),
                    nothing,
                ],
            )
        yield _unhurried(world, pool, port, prepared.size, names)
        yield _load(world, pool, port, names, queries)


def _unhurried(
    world: World, pool: ProcessPoolExecutor, port: int, size: int, names: Sequence[str]
) -> Section:
    count = world.scale.calls
    reads = [_read(name) for name in names[:count]]
    fresh = corpus.queries(world.draw(count), count)  # their vectors are in no cache
    searches = [_search(query) for query in fresh]
    nothing, *times = (
        _together(pool, port, CLIENTS, calls, PAUSE_SECONDS)
        for calls in ([NOTHING] * count, reads, searches)
    )
    bare = floor(BARE, nothing)
    return Section(
        f"HTTP, {CLIENTS} clients that pause for {PAUSE_SECONDS:g} s, {size:,} observations",
        [
            row("open_nodes", times[0], [bare], goals=[at_most_ms(READ_MS_MAX)]),
            row("search_nodes", times[1], [bare], goals=[at_most_ms(SEARCH_MS_MAX)]),
            bare,
        ],
    )


def _load(
    world: World, pool: ProcessPoolExecutor, port: int, names: Sequence[str], queries: Sequence[str]
) -> Section:
    seconds, share = world.scale.load_seconds, CLIENTS_UNDER_LOAD // PROCESSES
    parts = [
        pool.submit(mixed, port, range(each * share, (each + 1) * share), seconds, names, queries)
        for each in range(PROCESSES)
    ]
    times: list[int] = []
    written: list[str] = []
    for part in parts:
        taken, acknowledged = part.result()
        times += taken
        written += acknowledged
    _require_there(port, written)
    nothing = floor(f"{BARE}, by one client alone", _together(pool, port, 1, [NOTHING] * 50))
    note = f"{len(times) / seconds:,.0f} calls/s, {len(written):,} writes, none lost"
    return Section(
        f"HTTP, {CLIENTS_UNDER_LOAD} clients for {seconds:g} s, mixed",
        [row("a read, a search or a write", times, [nothing], note=note), nothing],
    )


def _require_there(port: int, written: Sequence[str]) -> None:
    with Connection(port) as connection:
        for asked in batches(written, 100):
            answer = connection.ask(call("open_nodes", {"names": asked}))
            found = result_of(answer)["structuredContent"]["entities"]
            lost = set(asked) - {entity["name"] for entity in found}
            if lost:
                raise ValueError(
                    f"{len(lost)} acknowledged writes are lost, {min(lost)} among them"
                )


def _read(name: str) -> bytes:
    return call("open_nodes", {"names": [name]})


def _search(query: str, **more: str) -> bytes:
    return call("search_nodes", {"query": query, "limit": 10, **more})


# -- in the processes of the clients


def together(port: int, clients: int, requests: Sequence[bytes], pause_seconds: float) -> list[int]:
    """Nanoseconds of each request, made by so many clients at a time, each with a share of them."""
    with ThreadPoolExecutor(clients) as threads:
        parts = [
            threads.submit(_one, port, requests[each::clients], each, pause_seconds)
            for each in range(clients)
        ]
        return [taken for part in parts for taken in part.result()]


def _one(port: int, requests: Sequence[bytes], number: int, pause_seconds: float) -> list[int]:
    times, draw = [], Random(number)
    with Connection(port) as connection:
        for request in requests:
            if pause_seconds:
                time.sleep(draw.expovariate(1 / pause_seconds))
            begun = time.perf_counter_ns()
            answer = connection.ask(request)
            times.append(time.perf_counter_ns() - begun)
            (body_of if request == NOTHING else result_of)(answer)
    return times


def mixed(
    port: int, numbers: range, seconds: float, names: Sequence[str], queries: Sequence[str]
) -> tuple[list[int], list[str]]:
    """What each of these clients does for so long: times, and the names of what was written."""
    with ThreadPoolExecutor(len(numbers)) as threads:
        parts = [threads.submit(_mix, port, number, seconds, names, queries) for number in numbers]
        done = [part.result() for part in parts]
    return [taken for times, _ in done for taken in times], [w for _, each in done for w in each]


def _mix(
    port: int, number: int, seconds: float, names: Sequence[str], queries: Sequence[str]
) -> tuple[list[int], list[str]]:
    times: list[int] = []
    written: list[str] = []
    end = time.monotonic() + seconds
    turn = 0
    with Connection(port) as connection:
        while time.monotonic() < end:
            turn += 1
            at = number * 7 + turn
            name = f"load {number}-{turn}"
            request = _read(names[at % len(names)])
            if turn % 4 == 0:
                request = _search(queries[at % len(queries)])
            elif turn % 4 == 2:
                entity = {"name": name, "entityType": "load", "observations": []}
                request = call("create_entities", {"entities": [entity]})
            begun = time.perf_counter_ns()
            answer = connection.ask(request)
            times.append(time.perf_counter_ns() - begun)
            result_of(answer)
            if turn % 4 == 2:
                written.append(name)
    return times, written


# -- processes


def _together(
    pool: ProcessPoolExecutor,
    port: int,
    clients: int,
    requests: Sequence[bytes],
    pause_seconds: float = 0.0,
) -> list[int]:
    return pool.submit(together, port, clients, requests, pause_seconds).result()


def _clients() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))


@contextmanager
def _served(world: World, project: str) -> Iterator[int]:
    """`memlog serve --transport http` over the data directory, on a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    variables = {
        **world.variables(project),
        "MEMLOG_EMBEDDER": "minilm" if world.has_model else "none",
        "MEMLOG_HTTP_REQUESTS_PER_SECOND": "1000000",
    }
    command = [*SERVE, "--transport", "http", "--port", str(port)]
    with subprocess.Popen(command, env=environment(variables)) as server:
        try:
            _await(port)
            yield port
        finally:
            server.terminate()
            server.wait(START_SECONDS_MAX)


def _await(port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            with Connection(port) as connection:
                connection.ask(NOTHING)
            return
        except ConnectionError:
            time.sleep(0.05)
    raise TimeoutError(f"the server did not answer within {START_SECONDS_MAX:g} s")
