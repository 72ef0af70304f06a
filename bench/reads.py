"""Every kind of search over stdio and in process, beside the bare parts that it is made of.

What embeds its query is measured twice: with queries that were never asked, and with the same again, whose
vectors memlog still has. The past is the moment at which half of the entities were there; queries are made of
the words of that half, so that both moments have an answer.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench import corpus
from bench.calls import NO_OP_NAME, no_op_step
from bench.floors import BareText, BareVectors
from bench.rows import Goal, Row, Section, at_most_growth, at_most_ms, floor, row
from bench.search import BARE_TEXT, BARE_VECTORS, MODEL
from bench.timing import Step, beside
from bench.wire import Server, result_of
from bench.world import Prepared, World
from server.performing import perform
from server.registry import Call, tools
from server.service import Service
from server.session import Session

REPEATED, IN_PROCESS = ", repeated query", ", in process"

SIZE_LARGE = 100_000
"""Up to this size the goals for it hold, beyond it those for a million."""

STDIO_MS_MAX = {0.50: 5.0, 0.99: 10.0}
STDIO_LARGER_MS_MAX = {0.50: 10.0, 0.99: 25.0}
IN_PROCESS_MS_MAX = 1.0

LISTED = 40
"""So many entities of a type there are at each size, the answers of which are to be compared."""


class Kind(NamedTuple):
    """A kind of call: the arguments for each number of a sample, the floors besides that of any call.

    By meaning alone, a query may be near nothing that a small memory holds: then it `may_miss`.
    """

    name: str
    tool: str
    arguments: Callable[[int], dict[str, Any]]
    floors: tuple[str, ...]
    may_miss: bool = False

    @property
    def embeds(self) -> bool:
        return MODEL in self.floors


def sections(
    world: World, prepared: Prepared, server: Server, service: Service, smallest: Mapping[str, Row]
) -> Iterator[Section]:
    """Over stdio, then in process. `smallest` has the rows of the smallest size, for the growth."""
    scale = world.scale
    kinds = _kinds(world, prepared)
    bare = BareText(world.folder / f"tantivy-{prepared.project}")
    bare.finish(bare.add(prepared.texts))
    queries = corpus.queries(prepared.entities, scale.warm_up + scale.calls)
    steps = {
        NO_OP_NAME: no_op_step(world),
        BARE_TEXT: Step(lambda number: bare.search(queries[number])),
    }
    if world.has_model:
        vectors = BareVectors(service.embeddings.get().vectors(prepared.texts))
        steps[MODEL] = Step(lambda number: world.embedder.embed([queries[number]]))
        steps[BARE_VECTORS] = Step(vectors.search)
    floors = list(steps)
    call = Call(Session(service, prepared.project))
    for kind in kinds:
        steps |= _both(kind, kind.name, _over_stdio(kind, server, scale.warm_up + scale.calls))
        if kind.floors:
            steps |= _both(kind, kind.name + IN_PROCESS, _in_process(kind, call))
    # The collector is not to walk through what the benchmark itself holds, ever so many texts.
    gc.collect()
    gc.freeze()
    times = beside(scale.calls, steps, warm_up=scale.warm_up)
    gc.unfreeze()
    for where, suffix in (("over stdio", ""), ("in process", IN_PROCESS)):
        own = [floor(name, times[name]) for name in floors if name != NO_OP_NAME or not suffix]
        rows = _rows(kinds, suffix, times, own, prepared.size, smallest)
        yield Section(f"Search {where}, {prepared.size:,} observations", [*rows, *own])


def _kinds(world: World, prepared: Prepared) -> list[Kind]:
    count = world.scale.warm_up + world.scale.calls
    half = prepared.entities[: -(-len(prepared.entities) // 2)]
    queries = iter(corpus.queries(half, 4 * count))
    past = {"asOf": prepared.middle}

    def searching(**more: Any) -> Callable[[int], dict[str, Any]]:
        """Each kind has queries of its own, so that no other has had them embedded."""
        own = [next(queries) for _ in range(count)]
        return lambda number: {"query": own[number], **more}

    worded = searching(mode="text")
    types = sorted({each.entity_type for each in prepared.entities})

    def listing(number: int) -> dict[str, Any]:
        return {"entityType": types[number % len(types)], "limit": LISTED}

    by_words, by_meaning = (BARE_TEXT,), (MODEL, BARE_VECTORS)
    kinds = [
        Kind("search_nodes, text", "search_nodes", worded, by_words),
        Kind("search_nodes, text, asOf", "search_nodes", lambda n: worded(n) | past, by_words),
        Kind("query_nodes, by type", "query_nodes", listing, ()),
    ]  # fmt: skip
    if world.has_model:
        both = (*by_words, *by_meaning)
        kinds += [
            Kind("search_nodes, semantic", "search_nodes", searching(mode="semantic"), by_meaning, may_miss=True),
            Kind("search_nodes, hybrid", "search_nodes", searching(), both),
            Kind("search_nodes, hybrid, asOf", "search_nodes", searching(**past), both),
            Kind("memory_search, by type and tag", "memory_search", _filtered(prepared, count), both),
        ]  # fmt: skip
    return kinds


def _filtered(prepared: Prepared, count: int) -> Callable[[int], dict[str, Any]]:
    """Words of a record, its type and its tag."""
    records = prepared.records
    asked = corpus.queries_of([record.summary for record in records], count)

    def arguments(number: int) -> dict[str, Any]:
        query, which = asked[number]
        return {
            "query": query,
            "type": records[which].record_type,
            "tags": [records[which].tag],
        }

    return arguments


def _both(kind: Kind, name: str, step: Step) -> dict[str, Step]:
    """A block of what embeds is asked, then asked again."""
    return {name: step, name + REPEATED: step} if kind.embeds else {name: step}


def _over_stdio(kind: Kind, server: Server, count: int) -> Step:
    messages = [server.call(kind.tool, kind.arguments(number)) for number in range(count)]
    return Step(
        lambda number: server.ask(messages[number]),
        lambda answer: _check(kind, result_of(answer)["structuredContent"]),
    )


def _in_process(kind: Kind, call: Call) -> Step:
    tool = tools(["graph", "records"])[kind.tool]
    return Step(
        lambda arguments: perform(tool, call, arguments).as_result(),
        lambda result: _check(kind, result.structured_content),
        kind.arguments,
    )


def _check(kind: Kind, structured: Mapping[str, Any]) -> None:
    """What finds nothing, or goes without the model, measures nothing."""
    found = structured.get("entities") or structured.get("results")
    if not (found or kind.may_miss) or structured.get("notice"):
        raise ValueError(f"a call did not do what is measured: {structured!r:.500}")


def _rows(
    kinds: Sequence[Kind],
    suffix: str,
    times: Mapping[str, Sequence[int]],
    floors: Sequence[Row],
    size: int,
    smallest: Mapping[str, Row],
) -> Iterator[Row]:
    called = [] if suffix else [NO_OP_NAME]
    by_name = {each.name: each for each in floors}
    for kind in kinds:
        for again in ("", REPEATED):
            name = kind.name + suffix + again
            if name not in times:
                continue
            bare = [*called, *(each for each in kind.floors if not (again and each == MODEL))]
            goals = _goals(kind, size, in_process=bool(suffix), embeds=kind.embeds and not again)
            if size <= SIZE_LARGE:
                goals += at_most_growth(name, smallest)
            yield row(name, times[name], [by_name[each] for each in bare], goals=goals)


def _goals(kind: Kind, size: int, *, in_process: bool, embeds: bool) -> list[Goal]:
    """In process, where nothing is embedded; over stdio, all in all."""
    if in_process:
        return [at_most_ms(IN_PROCESS_MS_MAX)] if size <= SIZE_LARGE and not embeds else []
    limits_ms = STDIO_MS_MAX if size <= SIZE_LARGE else STDIO_LARGER_MS_MAX
    return [at_most_ms(limit, share) for share, limit in limits_ms.items()]
