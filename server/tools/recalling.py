"""Toolset `history`: what is known of a question, the tool that a conversation begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, field

from memlog.times import day
from projections.documents import thread_labels
from server.answering.cutting import together
from server.answering.moments import AsOf, NewSince, beyond, position_of
from server.answering.nearest import silent_thread
from server.answering.packing import Item, ItemKind, pack, tokens
from server.answering.rankings import QueryText
from server.answering.recollection import Recollection
from server.registry import Arguments, Call, Result, WroteThread, tool

TOKENS_OF_FACT = 40
"""Of a larger budget, one more text is looked for for so many tokens."""

BUDGET_MIN, BUDGET, BUDGET_MAX = 100, 1_500, 20_000
"""Tokens: at least, if none is named, at most."""

Budget = Annotated[int, Meta(ge=BUDGET_MIN, le=BUDGET_MAX)]


class Recall(Arguments, frozen=True):
    query: Annotated[QueryText, Meta(examples=["What does Jon do for a living?"])]
    budget_tokens: Budget = field(name="budgetTokens", default=BUDGET)
    thread_id: WroteThread | None = field(name="threadId", default=None)
    since: NewSince | None = None
    as_of: AsOf | None = field(name="asOf", default=None)


class LeftOut(Result, frozen=True, omit_defaults=False):
    """What was found and did not fit."""

    entities: int
    observations: int
    relations: int
    memories: int


class RecallResult(Result, frozen=True):
    """`ids[n - 1]` is the id of line n of the text, `entities` gives those of the headings. `days` tells which lines
    were written on which day (UTC)."""

    project: str
    text: str
    tokens: int
    ids: list[str]
    days: dict[str, list[int]]
    entities: dict[str, str]
    left_out: LeftOut = field(name="leftOut")
    position: int
    notice: str | None = None


@tool("history", "Recall")
def recall(call: Call, arguments: Recall) -> RecallResult:
    """Call this first, with the question itself: searches all memory and tells what is known in a short text.

    Line n has the id `ids[n - 1]`; `days` tells when it was written. Line breaks are lost.
    Example: {"query": "What does Jon do for a living?"}
    """
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    # What is written while it searches is not all found, and so counts as later: changes_since tells it.
    position = opened.project.head() if at is None else at
    mode = call.service.settings.search_mode
    budget = arguments.budget_tokens
    thread, since = arguments.thread_id, beyond(arguments.since, opened.project, at)
    found = opened.searcher.search(
        arguments.query,
        mode=mode,
        at=at,
        labels=thread_labels(thread),
        since=since,
        depth=budget // TOKENS_OF_FACT,
    )
    with opened.project.snapshot() as (_, state_at):
        state = state_at(position)
        recollection = Recollection(state, arguments.query, budget, thread, since)
        packed = pack(recollection.items(found.hits), budget, more=found.deeper)
        rows = [row for group in packed.groups if (row := state.entity(group)) is not None]
    return RecallResult(
        project=project,
        text=packed.text,
        tokens=tokens(packed.text),
        ids=list(packed.refs),
        days=_days(packed.numbered),
        entities={row.name: row.id for row in rows},
        left_out=_left_out(packed.left_out),
        position=position,
        notice=found.notice
        if packed.text
        else together(found.notice, silent_thread(thread, opened)),
    )


def _days(numbered: Sequence[Item]) -> dict[str, list[int]]:
    """The numbers of the lines by the day on which each was written, the first day first."""
    days: dict[str, list[int]] = {}
    for when, line in sorted((day(item.time_us), at) for at, item in enumerate(numbered, 1)):
        days.setdefault(when, []).append(line)
    return days


def _left_out(counts: dict[ItemKind, int]) -> LeftOut:
    return LeftOut(
        entities=counts["entity"],
        observations=counts["observation"],
        relations=counts["relation"],
        memories=counts["memory"],
    )
