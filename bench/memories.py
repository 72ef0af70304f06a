"""Facts and analytics over stdio at each size: storing, searching, superseding, listing; what a graph amounts to.

Storing a fact embeds it to find what is similar, a search its query; the rest touches a few rows. Goals called the
seed's are the upper bounds of the specification from which these four tools come. The graph beside them is as
large as the section says, the facts are those that the run itself stores.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import corpus
from bench.calls import NO_OP_NAME, no_op_step
from bench.floors import SyncedWrite
from bench.rows import Row, Section, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import Server, result_of
from bench.world import World

GOALS = {
    "store_memory": [at_most_ms(15), at_most_ms(500, of="seed")],
    "search_memories": [at_most_ms(200, of="seed")],
    "supersede_memory": [at_most_ms(2), at_most_ms(100, of="seed")],
    "list_recent_memories": [at_most_ms(2), at_most_ms(100, of="seed")],
    "get_analytics": [at_most_ms(3)],
}
WRITES = ("store_memory", "supersede_memory")


def run(world: World) -> Iterator[Section]:
    for size in sorted(world.scale.sizes):
        project = world.prepared(size).project
        server = world.server(project, model=world.has_model)
        rows = list(_measured(world, server))
        yield Section(f"Facts and analytics over stdio, {size:,} observations", rows)


def _measured(world: World, server: Server) -> Iterator[Row]:
    """The rows, then their floors."""
    count = world.scale.warm_up + world.scale.calls
    facts = [entity.observations[0] for entity in world.draw(2 * count + 1)]
    ids = [_stored(server, fact) for fact in facts[count:]]
    storing = [server.call("store_memory", {"content": fact}) for fact in facts[:count]]
    superseding = [
        server.call("supersede_memory", {"old_memory_id": old, "new_memory_id": ids[-1]})
        for old in ids[:-1]
    ]
    queries = [query for query, _ in corpus.queries_of(facts[count:], count)]
    searching = [server.call("search_memories", {"query": query}) for query in queries]
    listing = server.call("list_recent_memories", {})
    counting = server.call("get_analytics", {})
    synced = SyncedWrite(world.folder / "synced")
    steps = {
        "store_memory": Step(lambda number: server.ask(storing[number]), result_of),
        "search_memories": Step(lambda number: server.ask(searching[number]), result_of),
        "supersede_memory": Step(lambda number: server.ask(superseding[number]), result_of),
        "list_recent_memories": Step(lambda _: server.ask(listing), result_of),
        "get_analytics": Step(lambda _: server.ask(counting), result_of),
        NO_OP_NAME: no_op_step(world),
        synced.name: Step(synced.write),
    }
    times = beside(world.scale.calls, steps, warm_up=world.scale.warm_up)
    synced.close()
    no_op, write = floor(NO_OP_NAME, times[NO_OP_NAME]), floor(synced.name, times[synced.name])
    for name, goals in GOALS.items():
        floors = [no_op, write] if name in WRITES else [no_op]
        yield row(name, times[name], floors, goals=goals)
    yield no_op
    yield write


def _stored(server: Server, fact: str) -> str:
    answer = result_of(server.ask(server.call("store_memory", {"content": fact})))
    memory_id: str = answer["structuredContent"]["created"]["id"]
    return memory_id
