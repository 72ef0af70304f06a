"""The argument `asOf`: a moment in the life of a project, as a log position or a time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from memlog.errors import InvalidParameter, Problem
from memlog.project import Project, clock_us
from memlog.times import parse_iso

MOMENT_CHARACTERS_MAX = 64

AsOf = Annotated[
    int | Annotated[str, Meta(max_length=MOMENT_CHARACTERS_MAX)],
    Meta(description="As of this ISO time or log position"),
]


def position_of(moment: int | str | None, project: Project) -> int | None:
    """The log position meant by `moment`; None for now. Raises InvalidParameter for the future.

    A position is looked up before anything is searched: an index takes none beyond 64 bits.
    """
    if moment is None:
        return None
    if isinstance(moment, int) or moment.isdecimal():
        with project.read(int(moment)) as state:
            return state.position
    time_us = parse_iso(moment, "asOf")
    if time_us > clock_us():
        problem, suggestion = f"{moment} lies in the future", "Leave asOf out to ask for now."
        raise InvalidParameter(
            f"asOf: {problem}",
            suggestion=suggestion,
            problems=[Problem("asOf", problem, suggestion, moment)],
        )
    return project.position_at(time_us)
