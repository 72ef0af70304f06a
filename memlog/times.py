"""Times: microseconds since 1970 inside, ISO 8601 in UTC with Z outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache

from memlog.errors import invalid_at, shorten

DAY_US = 86_400_000_000

LATEST_US = 253_402_300_799_999_999
"""The last microsecond that has a date, in the year 9999: no later one can be told."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=4_096)
def iso(time_us: int) -> str:
    """`time_us` as 2026-11-20T10:02:11.123456Z. An answer tells the same times again and again."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"


def day(time_us: int) -> str:
    """That of `time_us` in UTC, as 2026-11-20."""
    return iso(time_us).partition("T")[0]


A_TIME = "Write it as 2026-11-20T10:02:11Z, or as a date, 2026-11-20."


def parse_iso(text: str, path: str, suggestion: str = A_TIME) -> int:
    """Microseconds since 1970 of an ISO 8601 time; one without a zone is UTC, a date its first moment.

    Raises InvalidParameter with `suggestion` for anything else; `path` is the argument that held it.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        problem = f"{shorten(text)!r} is not a time"
        raise invalid_at(path, problem, suggestion, shorten(text)) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)
