"""Arguments that are times, and `asOf` and `since`: a moment in the life of a project, as a log position or a time.

Their types name who reads them, so that one which says no time is told together with all else that is wrong.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from memlog.errors import InvalidParameter, invalid_at
from memlog.events import Erased
from memlog.projects.project import Project, clock_us
from memlog.times import iso, parse_iso
from server.answering.cursors import Cursor, read_cursor
from server.input.kinds import READ
from server.opened import Opened

MOMENT_CHARACTERS_MAX = 64
POSITION_OR_TIME = "Pass a log position, as 12, or a time, as 2026-11-20T10:02:11Z or 2026-11-20."


def parse_moment(text: str, path: str) -> int:
    """Microseconds since 1970 of a time that stands where a position could."""
    return parse_iso(text, path, POSITION_OR_TIME)


def _position_or_moment(text: str, path: str) -> int:
    return int(text) if text.isdecimal() else parse_moment(text, path)


_EXAMPLE = "2026-11-20T10:02:11Z"
_Moment = (
    Annotated[
        str,
        Meta(
            max_length=MOMENT_CHARACTERS_MAX,
            examples=[_EXAMPLE],
            extra={READ: _position_or_moment},
        ),
    ]
    | int
)
"""The text first: some clients show a model the first choice alone, and as a text a position is understood too."""

Time = Annotated[str, Meta(examples=[_EXAMPLE], extra={READ: parse_iso})]
AsOf = Annotated[
    _Moment, Meta(description="ISO UTC time (a date: its first moment) or log position")
]
Since = Annotated[_Moment, Meta(description="Log position or ISO UTC time")]
NewSince = Annotated[
    _Moment, Meta(description="Only what is newer than a position or ISO UTC time")
]
"""The argument `since` of a tool that searches."""
AllSince = Annotated[_Moment, Meta(description="Log position or ISO UTC time: all after it")]
"""The argument `since` of a tool that takes back."""


def position_of(moment: int | str | None, project: Project, path: str = "asOf") -> int | None:
    """The log position meant by `moment`; None for now. Raises InvalidParameter for the future.

    `path` is the argument that held it. A position is looked up before anything is searched: an index
    takes none beyond 64 bits.
    """
    if moment is None:
        return None
    if isinstance(moment, int) or moment.isdecimal():
        try:
            with project.read(int(moment)) as state:
                return state.position
        except InvalidParameter as refused:
            raise invalid_at(path, refused.message, refused.suggestion, moment) from None
    time_us = parse_moment(moment, path)
    if lies_ahead(time_us, project):
        instead = f"Leave {path} out to ask for now."
        suggestion = "Pass a moment that has passed." if path.endswith("since") else instead
        raise invalid_at(path, in_the_future(moment), suggestion, moment)
    return project.position_at(time_us)


def end_of(moment: int | str | None, project: Project, path: str) -> int | None:
    """As `position_of`, for what takes back all that came later. Raises InvalidParameter also where that cannot be told
    by the time: what is written while the clock stands before the newest entry is dated as that."""
    position = position_of(moment, project, path)
    if position is None or str(moment).isdecimal():
        return position
    with project.snapshot() as (log, _):
        behind = (each for each in log.read(position) if not isinstance(each.event, Erased))
        first = next(behind, None)
        if first is None:
            return position
        other = next((each for each in behind if each.command_id != first.command_id), first)
    if first.time_us <= clock_us() and (other is first or other.time_us != first.time_us):
        return position
    problem = (
        f"the clock was set back, so that no time tells what was written after {moment}: "
        f"from position {first.position} on all is dated {iso(first.time_us)} or later"
    )
    raise invalid_at(path, problem, "Pass a position, as get_history tells it.", moment)


def start_of(kind: type[Cursor], arguments: Any, opened: Opened, *more: int) -> Cursor:
    """Where the page that is asked for begins: as its cursor says, else at `asOf`, with what `more` a cursor of this
    `kind` has to say at first. Raises as `read_cursor` and `position_of`."""
    start = read_cursor(kind, opened.project_id, arguments)
    return start or kind(position_of(arguments.as_of, opened.project), *more)


def beyond(since: int | str | None, project: Project, at: int | None) -> int:
    """The position beyond which a search is to look that is given `since`; 0 for everything. Raises InvalidParameter
    where that is not before the position `at` which it asks about, if it asks about a past one."""
    position = position_of(since, project, "since") or 0
    if position and at is not None and position >= at:
        problem = f"nothing was written after {since} by then: asOf is position {at}"
        raise invalid_at("since", problem, "Pass an earlier since, or a later asOf.", since)
    return position


def in_the_future(moment: str) -> str:
    """That it lies there, and what time it is: who wrote it by a clock of another zone can tell."""
    return f"{moment} lies in the future: it is {iso(clock_us())}. A time without a zone is UTC."


def lies_ahead(time_us: int, project: Project) -> bool:
    """Whether it has not come, and nothing in the log is as late: where the machine's clock was set back, what is
    newest is ahead of it."""
    if time_us <= clock_us():
        return False
    head = project.head()
    return project.position_at(time_us - 1) >= head
