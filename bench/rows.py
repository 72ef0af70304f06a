"""What a benchmark reports: latencies and sizes, the floor they stand on, and whether a goal was met.

A floor is the same work done by the bare parts alone (a synced write, one query of tantivy, …), measured in
the same run. Absolute figures move with the machine and its load by a factor of two; the ratio to
the floor hardly does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

NS_PER_MS = 1e6
GROWTH_MAX = 1.5
"""Of a median, from the smallest size on."""


class Goal(msgspec.Struct, frozen=True):
    """The percentile at `share` is to be at most `limit_ms`; `says` tells where that number comes from."""

    says: str
    limit_ms: float
    share: float = 0.50


class Judged(msgspec.Struct, frozen=True):
    """A goal as it is shown, and whether it was met."""

    says: str
    met: bool


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`n` samples of one thing, in milliseconds. A floor itself has no floor.

    `floor` names the floors it stands on, `floor_p50_ms` is the sum of their medians and `ratio` how
    many times that this takes.
    """

    name: str
    n: int
    p50_ms: float
    p99_ms: float
    is_floor: bool = False
    floor: str = ""
    floor_p50_ms: float | None = None
    ratio: float | None = None
    goals: list[Judged] = []
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether every goal was met; None where there is none."""
        return all(goal.met for goal in self.goals) if self.goals else None


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """What something takes in memory or on the disk, in megabytes of a million bytes, and how many times
    that is what the `floor` takes."""

    name: str
    megabytes: float
    floor: str
    floor_megabytes: float
    ratio: float
    goals: list[Judged] = []

    @property
    def met(self) -> bool | None:
        return all(goal.met for goal in self.goals) if self.goals else None


class Skipped(msgspec.Struct, frozen=True):
    """What was not measured, and why."""

    name: str
    reason: str


class Section(msgspec.Struct, frozen=True):
    """What was measured side by side: rows, floors among them, under one title; or sizes.

    `observations` is how many the memory held, where that is what a section varies.
    """

    title: str
    rows: list[Row]
    skipped: list[Skipped] = []
    sizes: list[Size] = []
    observations: int | None = None


def percentile_ns(times_ns: Sequence[int], share: float) -> int:
    """The nearest-rank percentile: the smallest sample that at least `share` of all do not exceed."""
    ranked = sorted(times_ns)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def floor(name: str, times_ns: Sequence[int]) -> Row:
    return Row(
        name=name,
        n=len(times_ns),
        p50_ms=percentile_ns(times_ns, 0.50) / NS_PER_MS,
        p99_ms=percentile_ns(times_ns, 0.99) / NS_PER_MS,
        is_floor=True,
    )


def row(
    name: str,
    times_ns: Sequence[int],
    floors: Sequence[Row],
    *,
    goals: Sequence[Goal] = (),
    note: str = "",
) -> Row:
    """What was measured above `floors`; a floor that is paid twice is listed twice."""
    bare = floor(name, times_ns)
    floor_p50_ms = sum(each.p50_ms for each in floors)
    return msgspec.structs.replace(
        bare,
        is_floor=False,
        floor=_together([each.name for each in floors]),
        floor_p50_ms=floor_p50_ms,
        ratio=bare.p50_ms / floor_p50_ms,
        goals=[_judged(goal, times_ns) for goal in goals],
        note=note,
    )


def at_most_ms(limit_ms: float, share: float = 0.50, *, of: str = "") -> Goal:
    """`of` names who set the goal, where it is not this project."""
    said = "" if share == 0.50 else f"p{100 * share:g} "
    return Goal(f"{of and of + ': '}{said}≤ {limit_ms:,.4g} ms", limit_ms, share)


def size(
    name: str, megabytes: float, floor: tuple[str, float], *, goals: Sequence[Judged] = ()
) -> Size:
    """`floor` is what it is compared with, and its megabytes."""
    says, floor_megabytes = floor
    return Size(
        name=name,
        megabytes=megabytes,
        floor=says,
        floor_megabytes=floor_megabytes,
        ratio=megabytes / floor_megabytes,
        goals=list(goals),
    )


def at_most_megabytes(limit: float, megabytes: float) -> Judged:
    return Judged(f"≤ {limit:,.4g} MB", megabytes <= limit)


def at_most_times(factor: float, other: Row, called: str = "") -> Goal:
    """At most `factor` times the median of another row of the same run."""
    limit_ms = factor * other.p50_ms
    return Goal(f"≤ {factor:g} × {called or other.name} ({limit_ms:.3g} ms)", limit_ms)


def at_most_growth(name: str, smallest: Mapping[str, Row]) -> list[Goal]:
    """Beside the row of this name among those of the smallest size, if it is there."""
    if name not in smallest:
        return []
    return [at_most_times(GROWTH_MAX, smallest[name], "at the smallest size")]


def _judged(goal: Goal, times_ns: Sequence[int]) -> Judged:
    return Judged(goal.says, percentile_ns(times_ns, goal.share) / NS_PER_MS <= goal.limit_ms)


def _together(names: Sequence[str]) -> str:
    counts = Counter(names).items()
    return " + ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)
