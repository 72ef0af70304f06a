"""The arguments `asOf` and `since`: a moment in the life of a project, as a log position or a time."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from memlog.errors import invalid_at
from memlog.project import Project, clock_us
from memlog.times import parse_iso

MOMENT_CHARACTERS_MAX = 64
POSITION_OR_TIME = "Pass a log position, as 12, or a time, as 2026-11-20T10:02:11Z or 2026-11-20."

_Moment = int | Annotated[str, Meta(max_length=MOMENT_CHARACTERS_MAX)]

AsOf = Annotated[_Moment, Meta(description="As of this ISO time or log position")]
Since = Annotated[_Moment, Meta(description="Log position or ISO time")]


def parse_moment(text: str, path: str) -> int:
    """Microseconds since 1970 of a time that stands where a position could."""
    return parse_iso(text, path, POSITION_OR_TIME)


def position_of(moment: int | str | None, project: Project, path: str = "asOf") -> int | None:
    """The log position meant by `moment`; None for now. Raises InvalidParameter for the future.

    `path` is the argument that held it. A position is looked up before anything is searched: an index
    takes none beyond 64 bits.
    """
    if moment is None:
        return None
    if isinstance(moment, int) or moment.isdecimal():
        with project.read(int(moment)) as state:
            return state.position
    time_us = parse_moment(moment, path)
    if time_us > clock_us():
        problem, suggestion = f"{moment} lies in the future", f"Leave {path} out to ask for now."
        raise invalid_at(path, problem, suggestion, moment)
    return project.position_at(time_us)
