"""memlog side by side with another memory server over stdio, through the nine tools that both have.

The peer is the reference server, or the one that `--peer` names; it is told by `MEMORY_FILE_PATH` where to keep
its file. Where it has something in it all the same, it is left alone: that may be somebody's memory. Both hold the same
entities and relations; every ratio is memlog's time over the peer's, so below 1 memlog is faster. What they do is not
the same: memlog's writes are on the disk when it answers, the reference's are not; memlog's `read_graph` is a page, the
reference's is everything.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import click
import msgspec

from bench import corpus, reference
from bench.rows import Row, Section, Skipped, floor, row
from bench.timing import Step, beside
from bench.wire import SERVE, Server, result_of
from bench.world import World, batches
from memlog.errors import counted

Calls = Callable[[int], tuple[str, dict[str, Any]]]
"""The call of a tool for each number of a sample."""


def run(world: World) -> Iterator[Section]:
    size = min(world.scale.sizes)
    title = f"Beside another memory server, {size:,} observations"
    try:
        command = shlex.split(world.peer) if world.peer else reference.command()
    except reference.Unavailable as reason:
        yield Section(title, [], [Skipped("the nine tools", str(reason))])
        return
    name = world.peer or f"{reference.NAME} {reference.VERSION}"
    entities = world.draw(-(-size // corpus.FACTS_PER_ENTITY))
    with ExitStack() as servers:
        memlog = Server(SERVE, MEMLOG_EMBEDDER="none", **world.variables("peers"))
        _fill(servers.enter_context(memlog), entities)
        try:
            peer = Server(command, MEMORY_FILE_PATH=str(world.folder / "peer.jsonl"))
            servers.enter_context(peer)
            if held := _entities(peer):
                raise click.UsageError(
                    f"{name} remembers {counted(held, 'entities')} already. What is measured would be mixed with "
                    "them: have it keep its memory elsewhere."
                )
            _fill(peer, entities)
        except (OSError, ValueError, LookupError) as problem:
            raise click.UsageError(f"{name} is no memory server over stdio: {problem}") from problem
        yield Section(f"{title}: {name}", list(_rows(world, entities, memlog, peer)))


def _entities(server: Server) -> int:
    """How many it holds. Raises ValueError where it does not say."""
    read = result_of(server.ask(server.call("read_graph", {})))
    graph = read.get("structuredContent") or json.loads(read["content"][0]["text"])
    return len(graph["entities"])


def _fill(server: Server, entities: Sequence[corpus.Entity]) -> None:
    for batch in batches(entities):
        made = {"entities": [each.as_json() for each in batch]}
        result_of(server.ask(server.call("create_entities", made)))
    edges = msgspec.to_builtins(corpus.relations(entities))
    result_of(server.ask(server.call("create_relations", {"relations": edges})))


def _rows(
    world: World, entities: Sequence[corpus.Entity], memlog: Server, peer: Server
) -> Iterator[Row]:
    samples, warm_up = world.scale.calls, world.scale.warm_up
    count = samples + warm_up
    for calls in _calls(entities, world.draw(count), corpus.queries(entities, count)):
        tool, _ = calls(0)
        steps = {"memlog": _step(memlog, calls, count), "peer": _step(peer, calls, count)}
        times = beside(samples, steps, warm_up=warm_up)
        theirs = floor(f"{tool} of the peer", times["peer"])
        yield row(tool, times["memlog"], [theirs])
        yield theirs


def _step(server: Server, calls: Calls, count: int) -> Step:
    messages = [server.call(*calls(number)) for number in range(count)]
    return Step(lambda number: server.ask(messages[number]), result_of)


def _calls(
    known: Sequence[corpus.Entity], fresh: Sequence[corpus.Entity], queries: Sequence[str]
) -> Iterator[Calls]:
    """In an order in which each finds what it works on: what is created is read, and deleted at the end."""
    first = known[0].name

    def edge(number: int) -> dict[str, str]:
        return {"from": fresh[number].name, "to": first, "relationType": "knows"}

    def fact(number: int, key: str) -> dict[str, Any]:
        told = [f"fact {number} that was not there before"]
        return {"entityName": known[number % len(known)].name, key: told}

    yield lambda number: ("create_entities", {"entities": [fresh[number].as_json()]})
    yield lambda number: ("create_relations", {"relations": [edge(number)]})
    yield lambda number: ("add_observations", {"observations": [fact(number, "contents")]})
    yield lambda number: ("search_nodes", {"query": queries[number].split()[0]})
    yield lambda number: ("open_nodes", {"names": [fresh[number].name]})
    yield lambda number: ("read_graph", {})
    yield lambda number: ("delete_observations", {"deletions": [fact(number, "observations")]})
    yield lambda number: ("delete_relations", {"relations": [edge(number)]})
    yield lambda number: ("delete_entities", {"entityNames": [fresh[number].name]})
