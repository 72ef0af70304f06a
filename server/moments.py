"""The argument `asOf`: a moment in the life of a project, as a log position or a time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from memlog.errors import InvalidParameter
from memlog.project import Project, clock_us
from memlog.times import parse_iso

MOMENT_CHARACTERS_MAX = 64

AsOf = Annotated[
    int | Annotated[str, Meta(max_length=MOMENT_CHARACTERS_MAX)] | None,
    Meta(description="Answer as of this ISO time or log position"),
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
    time_us = parse_iso(moment)
    if time_us > clock_us():
        raise InvalidParameter(
            f"asOf {moment} lies in the future", suggestion="Leave asOf out to ask for now."
        )
    return project.position_at(time_us)
