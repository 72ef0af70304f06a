"""How far the projections of this process have come: for those who watch the server, and for metrics.

The follower hears of what is written and searched here. Of what another process wrote, or a search found in memory
alone, it hears from whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from memlog.errors import MemlogError
from memlog.projects.project import clock_us
from projections.follow import ON_DISK
from server.opened import Opened
from server.service import Service

LAG_SECONDS_MAX = 10
"""A projection is caught up if it has seen all that was written longer ago: under a steady stream of
writes the newest is never in it, and a search catches up itself."""

_NEEDED = tuple(ON_DISK)
"""Without vectors a search still finds by words, and says so: an endpoint that is away is no reason to
send clients elsewhere."""


class Progress(msgspec.Struct, frozen=True):
    """One project: where its log ends, where each projection that is open is, and vectors also where they are not, but
    for a search that goes by words only; and which are late."""

    project: str
    head: int
    positions: dict[str, int]
    late: tuple[str, ...]

    def behind(self, projection: str) -> int:
        return max(0, self.head - self.positions.get(projection, self.head))


def progress(service: Service) -> Iterator[Progress]:
    """Of every open project, but for those that go away at this moment. What is behind is caught up from now on."""
    for opened in service.opened():
        try:
            row = opened.project.status()
            positions = opened.projections.positions_anew()
            head = opened.project.head()
            due = opened.project.position_at(clock_us() - LAG_SECONDS_MAX * 1_000_000)
        except MemlogError:
            continue
        if row is None or row.status == "archived":  # by another process
            continue
        if any(
            positions.get(each, head) < head for each in (*_NEEDED, *_unopened(service, opened))
        ):
            service.behind(opened)
        late = tuple(each for each in _NEEDED if positions.get(each, due) < due)
        yield Progress(row.name, head, positions, late)


def _unopened(service: Service, opened: Opened) -> Iterator[str]:
    """Vectors that nobody asked for since the start: their texts may be embedded, all of them. Where the embedder is
    away it is not asked for each time that somebody looks."""
    if service.embeddings.at_hand and "vectors" not in opened.projections.positions():
        yield "vectors"
