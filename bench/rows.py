"""What a benchmark reports: latencies, the floor they stand on, and whether a goal was met.

A floor is the same work done by the bare parts alone (a synced write, one query of tantivy, …), measured in
the same run. Absolute figures move with the machine and its load by a factor of two; the ratio to
the floor hardly does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

NS_PER_MS = 1e6


class Goal(msgspec.Struct, frozen=True):
    """The median is to be at most `limit_ms`; `says` tells where that number comes from."""

    says: str
    limit_ms: float


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
    goal: str = ""
    met: bool | None = None
    note: str = ""


class Skipped(msgspec.Struct, frozen=True):
    """What was not measured, and why."""

    name: str
    reason: str


class Section(msgspec.Struct, frozen=True):
    """What was measured side by side: rows, floors among them, under one title."""

    title: str
    rows: list[Row]
    skipped: list[Skipped] = []


def percentile_ns(times_ns: Sequence[int], share: float) -> int:
    """The nearest-rank percentile: the smallest sample that at least `share` of all do not exceed."""
    ranked = sorted(times_ns)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def floor(name: str, times_ns: Sequence[int], *, note: str = "") -> Row:
    return Row(
        name=name,
        n=len(times_ns),
        p50_ms=percentile_ns(times_ns, 0.50) / NS_PER_MS,
        p99_ms=percentile_ns(times_ns, 0.99) / NS_PER_MS,
        is_floor=True,
        note=note,
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
    bare = floor(name, times_ns, note=note)
    floor_p50_ms = sum(each.p50_ms for each in floors)
    return msgspec.structs.replace(
        bare,
        is_floor=False,
        floor=_together([each.name for each in floors]),
        floor_p50_ms=floor_p50_ms,
        ratio=bare.p50_ms / floor_p50_ms,
        goal="; ".join(goal.says for goal in goals),
        met=all(bare.p50_ms <= goal.limit_ms for goal in goals) if goals else None,
    )


def at_most_ms(limit_ms: float) -> Goal:
    return Goal(f"≤ {limit_ms:,.4g} ms", limit_ms)


def at_most_times(factor: float, other: Row, called: str = "") -> Goal:
    """At most `factor` times the median of another row of the same run."""
    limit_ms = factor * other.p50_ms
    return Goal(f"≤ {factor:g} × {called or other.name} ({limit_ms:.3g} ms)", limit_ms)


def _together(names: Sequence[str]) -> str:
    counts = Counter(names).items()
    return " + ".join(name if count == 1 else f"{count} × {name}" for name, count in counts)
