"""The benchmarks, in the order in which they run, and running them.

Searching comes before what adds entities, so that it sees the size it says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bench import (
    append,
    calls,
    found,
    http,
    importing,
    memories,
    past,
    peers,
    replay,
    search,
    startup,
)
from bench.rows import Section
from bench.world import World


@dataclass(frozen=True)
class Benchmark:
    """`canonical` ones run when nothing else is asked for."""

    name: str
    run: Callable[[World], Iterator[Section]]
    canonical: bool = True

    @property
    def about(self) -> str:
        """The first paragraph of its module."""
        module = __import__(self.run.__module__, fromlist=["run"])
        return " ".join((module.__doc__ or "").split("\n\n")[0].split())


BENCHMARKS = (
    Benchmark("append", append.run),
    Benchmark("startup", startup.run),
    Benchmark("search", search.run),
    Benchmark("found", found.run),
    Benchmark("calls", calls.run),
    Benchmark("memories", memories.run),
    Benchmark("http", http.run),
    Benchmark("past", past.run),
    Benchmark("replay", replay.run),
    Benchmark("import", importing.run, canonical=False),
    Benchmark("peers", peers.run, canonical=False),
)


def run(world: World, names: Iterable[str]) -> Iterator[tuple[Benchmark, Section]]:
    """The sections of the benchmarks of these names, each as soon as it has been measured."""
    wanted = set(names)
    for benchmark in BENCHMARKS:
        if benchmark.name in wanted:
            for section in benchmark.run(world):
                yield benchmark, section
