"""`open_nodes` and `search_nodes` (by words) as of the middle of a log, in process, beside the same calls at
the present.

The first part of the log made the entities, their facts and relations; the rest corrected each fact, so that
all that is asked for has changed since and is as large. A query has words that a fact has at both moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench import corpus
from bench.replay import made
from bench.rows import Section, at_most_times, floor, row
from bench.timing import Step, beside
from bench.world import World, batches
from memlog.commands import AddObservations, EntityObservations, NewObservation
from server.performing import perform
from server.registry import Call, tools
from server.service import Service
from server.session import Session

PAST_TIMES_MAX = 3.0
EVENTS_PER_ENTITY = 2 + 2 * corpus.FACTS_PER_ENTITY
"""It and a relation are made; each of its facts is added, and corrected later."""

NAMES_OPENED = 10


def run(world: World) -> Iterator[Section]:
    with world.service(model=False) as service:
        service.store.create("past")
        opened = service.open("past")
        entities = world.draw(-(-world.scale.replay_events // EVENTS_PER_ENTITY))
        world.execute("past: log", service, opened, made(entities))
        middle = opened.project.head()
        world.execute("past: later", service, opened, _corrections(entities))
        opened.projections.caught_up("text")
        yield _calls(world, service, entities, middle, opened.project.head())


def _calls(
    world: World, service: Service, entities: Sequence[corpus.Entity], middle: int, head: int
) -> Section:
    scale = world.scale
    queries = corpus.queries(entities, scale.warm_up + scale.calls)
    asked: dict[str, Callable[[int], dict[str, Any]]] = {
        "open_nodes": lambda number: {"names": _names(entities, number)},
        "search_nodes": lambda number: {"query": queries[number], "mode": "text"},
    }
    steps = {
        f"{tool}, {when}": _step(service, tool, arguments, moment)
        for tool, arguments in asked.items()
        for when, moment in {"at present": {}, "in the past": {"asOf": middle}}.items()
    }
    times = beside(scale.calls, steps, warm_up=scale.warm_up)
    rows = []
    for tool in asked:
        present = floor(f"{tool}, at present", times[f"{tool}, at present"])
        goal = at_most_times(PAST_TIMES_MAX, present, "at present")
        past = row(f"{tool}, in the past", times[f"{tool}, in the past"], [present], goals=[goal])
        rows += [past, present]
    return Section(f"As of position {middle:,} of {head:,}, in process", rows)


def _step(
    service: Service,
    name: str,
    arguments: Callable[[int], dict[str, Any]],
    moment: Mapping[str, int],
) -> Step:
    tool, call = tools(["graph"])[name], Call(Session(service, "past"))
    return Step(
        lambda given: perform(tool, call, given).as_result(),
        after=_found,
        before=lambda number: {**arguments(number), **moment},
    )


def _found(result: Any) -> None:
    """What finds nothing measures nothing."""
    if result.is_error or not result.structured_content["entities"]:
        raise ValueError(f"a call did not do what is measured: {result.content[0].text[:500]}")


def _names(entities: Sequence[corpus.Entity], number: int) -> list[str]:
    """Names far apart in the log, other ones for each number."""
    apart = max(1, len(entities) // NAMES_OPENED)
    return [entities[(number + at) % len(entities)].name for at in range(0, len(entities), apart)]


def _corrections(entities: Sequence[corpus.Entity]) -> list[AddObservations]:
    return [
        AddObservations(observations=[_correction(each) for each in batch])
        for batch in batches(entities)
    ]


def _correction(entity: corpus.Entity) -> EntityObservations:
    return EntityObservations(
        entity_name=entity.name,
        contents=[
            NewObservation(content=f"{fact}, still", supersedes=fact)
            for fact in entity.observations
        ],
    )
