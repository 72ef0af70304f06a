"""Toolset `history`: the threads that wrote in a project."""

from __future__ import annotations

import msgspec
from msgspec import field

from memlog.times import iso
from server.answering.cursors import Count, CursorText, read_cursor, write_cursor
from server.answering.cutting import within_budget
from server.registry import Arguments, Call, Result, tool


class ListThreads(Arguments, frozen=True):
    cursor: CursorText | None = None


class _Quieter(msgspec.Struct, array_like=True):
    """Threads that wrote last before `position`."""

    position: Count = 2**63 - 1


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
    start = read_cursor(_Quieter, opened.project_id, arguments) or _Quieter()
    with opened.projections.analytics().read() as counted:
        rows = [row for row in counted.threads() if row.last_position < start.position]
        latest = sorted(rows, key=lambda row: -row.last_position)
    views = [
        ThreadView(
            thread=row.thread,
            events=row.events,
            commands=row.commands,
            first=iso(row.first_us),
            last=iso(row.last_us),
        )
        for row in latest
    ]
    shown = list(within_budget(views))
    left_out = len(views) - len(shown)
    following = _Quieter(latest[len(shown) - 1].last_position) if left_out else None
    cursor = write_cursor(following, opened.project_id, arguments)
    return ThreadsResult(project=project, threads=shown, left_out=left_out, next_cursor=cursor)
