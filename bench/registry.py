"""The benchmarks, in the order in which they run, and running them.

Searching comes before what adds entities, so that it sees the size it says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bench import (
    append,
    calls,
    embedding,
    found,
    http,
    importing,
    memories,
    past,
    peers,
    replay,
    scale,
    search,
    startup,
)
from bench.rows import Section
from bench.world import World


@dataclass(frozen=True)
class Benchmark:
    """`canonical` ones run when nothing else is asked for; rows named by `headlines` are told again at the
    end, those of the last section that has them."""

    name: str
    run: Callable[[World], Iterator[Section]]
    headlines: tuple[str, ...] = ()
    canonical: bool = True

    @property
    def about(self) -> str:
        """The first paragraph of its module."""
        told = sys.modules[self.run.__module__].__doc__ or ""
        return " ".join(told.split("\n\n")[0].split())


BENCHMARKS = (
    Benchmark("append", append.run, ("append",)),
    Benchmark("startup", startup.run, (startup.LISTED,)),
    Benchmark("search", search.run, (search.TEXT, search.HYBRID, search.REPEATED)),
    Benchmark("embedding", embedding.run, (embedding.CACHED,)),
    Benchmark("found", found.run, (found.BY_WORDS, found.HYBRID)),
    Benchmark("calls", calls.run, ("create_entities",)),
    Benchmark("memories", memories.run, ("store_memory",)),
    Benchmark("http", http.run),
    Benchmark("past", past.run),
    Benchmark("replay", replay.run, ("state", "text")),
    Benchmark("import", importing.run, canonical=False),
    Benchmark("peers", peers.run, canonical=False),
    Benchmark("scale", scale.run, scale.HEADLINES, canonical=False),
)


def run(world: World, names: Iterable[str]) -> Iterator[tuple[Benchmark, Section]]:
    """The sections of the benchmarks of these names, each as soon as it has been measured."""
    wanted = set(names)
    for benchmark in BENCHMARKS:
        if benchmark.name in wanted:
            for section in benchmark.run(world):
                yield benchmark, section
