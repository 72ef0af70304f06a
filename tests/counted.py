"""A project written to, and its analytics caught up by hand."""

from __future__ import annotations

from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.projects.project import Origin, Project
from projections.analytics.projector import AnalyticsProjector


def do(project: Project, command: AnyCommand, thread: str | None = None) -> None:
    project.execute(command, Context(), lambda _: None, Origin(thread=thread))


def catch_up(analytics: AnalyticsProjector, project: Project, until: int | None = None) -> None:
    """Brings the analytics to a position (default: the head) in one batch."""
    with project.snapshot() as (log, state_at):
        head = log.position() if until is None else until
        analytics.apply(log, state_at, head)
