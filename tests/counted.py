"""A project written to, and its analytics caught up by hand; the rows that are read, counted."""

from __future__ import annotations

from collections.abc import Iterator

from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.projects.project import Origin, Project
from memlog.storage.tables import LmdbRows
from projections.analytics.projector import AnalyticsProjector


class CountedRows(LmdbRows):
    """In place of those of `memlog.projects.project`: how many rows are read, by all of them together."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        CountedRows.reads += 1
        return super().get(key)

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        for row in super().scan(prefix, start):
            CountedRows.reads += 1
            yield row

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        rows = super().under(prefix)
        CountedRows.reads += len(rows)
        return rows

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for row in super().back(prefix):
            CountedRows.reads += 1
            yield row

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        CountedRows.reads += 1
        return super().ceiling(key)


def do(project: Project, command: AnyCommand, thread: str | None = None) -> None:
    project.execute(command, Context(), lambda _: None, Origin(thread=thread))


def catch_up(analytics: AnalyticsProjector, project: Project, until: int | None = None) -> None:
    """Brings the analytics to a position (default: the head) in one batch."""
    with project.snapshot() as (log, state_at):
        head = log.position() if until is None else until
        analytics.apply(log, state_at, head)
