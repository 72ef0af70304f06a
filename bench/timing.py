"""Taking samples of several things in turn, so that what disturbs the machine disturbs them alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

BLOCK = 10
"""Samples of one thing in a row. Single ones would find the processor's caches full of the other thing."""


@dataclass(frozen=True)
class Step:
    """What is timed, and what happens off the clock around it.

    `run` is given the number of the sample, or what `before` made of that; `after` its result.
    """

    run: Callable[[Any], Any]
    after: Callable[[Any], object] | None = None
    before: Callable[[int], Any] | None = None


def beside(
    samples: int, steps: Mapping[str, Step], *, warm_up: int = 0, block: int = BLOCK
) -> dict[str, list[int]]:
    """Nanoseconds of each step, `samples` of them; the first `warm_up` more are run and forgotten.

    Every step sees each number from 0 to warm_up + samples - 1 once.
    """
    times: dict[str, list[int]] = {name: [] for name in steps}
    total = warm_up + samples
    for start in range(0, total, block):
        for name, step in steps.items():
            for number in range(start, min(start + block, total)):
                given = number if step.before is None else step.before(number)
                begun = perf_counter_ns()
                result = step.run(given)
                times[name].append(perf_counter_ns() - begun)
                if step.after is not None:
                    step.after(result)
    return {name: taken[warm_up:] for name, taken in times.items()}
