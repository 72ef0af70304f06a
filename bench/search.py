"""`search_nodes` over stdio at each size, with queries of three words of a stored fact.

Each query is asked once, since memlog keeps the vectors of queries; how long a repeated one takes is a row
of its own. Beside it stand the bare parts: a call that does nothing, the model, tantivy, FAISS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench import corpus
from bench.calls import NO_OP_NAME, no_op_step
from bench.floors import BareText, BareVectors
from bench.rows import Row, Section, at_most_growth, at_most_ms, floor, row
from bench.timing import Step, beside
from bench.wire import Server, result_of
from bench.world import Prepared, World

TEXT_MS_MAX = 1.2
HYBRID_MS_MAX, HYBRID_MS_P99_MAX = 5.0, 10.0

TEXT, HYBRID, REPEATED = (
    "search_nodes, text",
    "search_nodes, hybrid",
    "search_nodes, hybrid, repeated query",
)
BARE_TEXT, BARE_VECTORS, MODEL = "tantivy alone", "FAISS alone", "embedding of a query"


def run(world: World) -> Iterator[Section]:
    smallest: dict[str, Row] = {}
    for size in sorted(world.scale.sizes):
        prepared = world.prepared(size)
        section = _search(world, prepared, smallest)
        smallest = smallest or {measured.name: measured for measured in section.rows}
        yield section


def _search(world: World, prepared: Prepared, smallest: Mapping[str, Row]) -> Section:
    scale = world.scale
    queries = corpus.queries(prepared.entities, scale.warm_up + scale.calls)
    bare = BareText(world.folder / f"tantivy-{prepared.project}")
    bare.finish(bare.add(prepared.texts))
    memlog = world.server(prepared.project, model=world.has_model)
    steps = {
        TEXT: _asked(memlog, queries, {"mode": "text"}),
        NO_OP_NAME: no_op_step(world),
        BARE_TEXT: Step(lambda number: bare.search(queries[number])),
    }
    if world.has_model:
        vectors = BareVectors(world.vectors(prepared.texts))
        steps[HYBRID] = _asked(memlog, queries, {})
        steps[REPEATED] = _asked(memlog, queries[:1] * len(queries), {})
        steps[MODEL] = Step(lambda number: world.embedder.embed([queries[number]]))
        steps[BARE_VECTORS] = Step(vectors.search)
    times = beside(scale.calls, steps, warm_up=scale.warm_up)
    return Section(
        f"Search over stdio, {prepared.size:,} observations",
        _rows(times, smallest),
        world.skipped(HYBRID),
    )


def _asked(server: Server, queries: Sequence[str], arguments: Mapping[str, str]) -> Step:
    messages = [server.call("search_nodes", {"query": query, **arguments}) for query in queries]
    return Step(lambda number: server.ask(messages[number]), _found)


def _found(answer: bytes) -> None:
    """A query of stored words that finds nothing, or goes without the model, measures nothing."""
    found = result_of(answer)["structuredContent"]
    if not found["entities"] or found.get("notice"):
        raise ValueError(f"a search did not do what is measured: {answer[:500]!r}")


def _rows(times: Mapping[str, Sequence[int]], smallest: Mapping[str, Row]) -> list[Row]:
    floors = {
        name: floor(name, times[name])
        for name in (NO_OP_NAME, BARE_TEXT, MODEL, BARE_VECTORS)
        if name in times
    }
    stands_on = {
        TEXT: (NO_OP_NAME, BARE_TEXT),
        HYBRID: (NO_OP_NAME, BARE_TEXT, BARE_VECTORS, MODEL),
        REPEATED: (NO_OP_NAME, BARE_TEXT, BARE_VECTORS),
    }
    goals_of = {
        TEXT: [at_most_ms(TEXT_MS_MAX)],
        HYBRID: [at_most_ms(HYBRID_MS_MAX), at_most_ms(HYBRID_MS_P99_MAX, 0.99)],
    }
    measured = []
    for name in filter(times.__contains__, stands_on):
        goals = [*goals_of.get(name, []), *at_most_growth(name, smallest)]
        own = [floors[each] for each in stands_on[name]]
        measured.append(row(name, times[name], own, goals=goals))
    return [*measured, *floors.values()]
