"""Positions that follow each other without a gap, as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby


def runs(positions: Iterable[int]) -> Iterator[range]:
    """Of positions in order, each once: those that follow each other together."""
    for _, numbered in groupby(enumerate(positions), lambda each: each[1] - each[0]):
        run = [position for _, position in numbered]
        yield range(run[0], run[-1] + 1)
