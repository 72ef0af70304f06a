"""Numbers that follow each other without a gap, such as positions, as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby


def runs(numbers: Iterable[int]) -> Iterator[range]:
    """Of numbers in order, each once: those that follow each other together."""
    for _, numbered in groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        run = [number for _, number in numbered]
        yield range(run[0], run[-1] + 1)
