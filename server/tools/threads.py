"""Toolset `history`: the threads that wrote in a project."""

from __future__ import annotations

import msgspec
from msgspec import field

from memlog.times import iso
from projections.analytics.tables import Thread
from server.answering.cursors import (
    Count,
    CursorText,
    Limit,
    Position,
    read_cursor,
    write_cursor,
)
from server.answering.cutting import page_of
from server.registry import Arguments, Call, Result, tool


class ListThreads(Arguments, frozen=True):
    limit: Limit | None = None
    cursor: CursorText | None = None


class _ThreadsCursor(msgspec.Struct, array_like=True):
    """The threads as of `position` that wrote last before `wrote`."""

    position: Position | None = None
    wrote: Count = 2**63 - 1


class ThreadView(Result, frozen=True):
    """A thread: how many events and commands it has, and when it wrote first and last."""

    thread: str
    events: int
    commands: int
    first: str
    last: str


class ThreadsResult(Result, frozen=True):
    project: str
    threads: list[ThreadView]
    left_out: int = field(name="leftOut", default=0)
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


@tool("history", "List threads")
def list_threads(call: Call, arguments: ListThreads) -> ThreadsResult:
    """List the threads that wrote in this project, the latest first, with counts and times. Example: {}"""
    project, opened = call.open(arguments)
    start = read_cursor(_ThreadsCursor, opened.project_id, arguments) or _ThreadsCursor()
    with opened.projections.analytics().read(start.position) as counted:
        position = counted.position
        rows = [row for row in counted.threads() if row.last_position < start.wrote]
    rows.sort(key=lambda row: -row.last_position)
    page, more = page_of(map(_view, rows), arguments.limit)
    following = _ThreadsCursor(position, rows[len(page) - 1].last_position) if more else None
    cursor = write_cursor(following, opened.project_id, arguments)
    left_out = len(rows) - len(page)
    return ThreadsResult(project=project, threads=page, left_out=left_out, next_cursor=cursor)


def _view(row: Thread) -> ThreadView:
    return ThreadView(
        thread=row.thread,
        events=row.events,
        commands=row.commands,
        first=iso(row.first_us),
        last=iso(row.last_us),
    )
