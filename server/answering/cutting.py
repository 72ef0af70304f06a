"""How much an answer holds, and how lists are cut to it: at a whole item, and what was left out is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from memlog.errors import counted

ANSWER_CHARACTERS = 20_000
"""What an answer holds unless the caller asks for more: near 8,000 tokens. JSON with ids and times in it has 2.7 bytes
a token, counted in answers of each kind with `o200k_base` and with the published tokenizer of Claude. Copilot CLI shows
a model an answer of at most 20,480 bytes, Qwen Code one of 25,000 characters; what is longer they put into a file."""

PORTION_CHARACTERS = ANSWER_CHARACTERS // 4
"""What one item has that would not fit an answer with others."""

Item = TypeVar("Item")

_encode = msgspec.json.Encoder().encode


def within_budget(
    items: Iterable[Item],
    most: int = ANSWER_CHARACTERS,
    told: Callable[[Item], object] = lambda item: item,
) -> Iterator[Item]:
    """The first items whose JSON, or that of what is `told` of them, fits an answer; at least one."""
    first, spent = True, 0
    for item in items:
        spent += len(_encode(told(item))) + 1  # the comma
        if spent > most and not first:
            return
        first = False
        yield item


def page_of(items: Iterable[Item], limit: int | None) -> tuple[list[Item], bool]:
    """So many of the items where the caller asked for a number, else what an answer holds; and whether there are
    more."""
    if limit:
        some = list(islice(items, limit + 1))
        return some[:limit], len(some) > limit
    taken = 0

    def looked_at() -> Iterator[Item]:
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    page = list(within_budget(looked_at()))
    return page, taken > len(page)


def said(texts: Sequence[str], what: str = "warnings", then: str | None = None) -> list[str]:
    """The first of many texts, how many more there are, and `then` what to do about them, if there are any."""
    told = list(within_budget(texts, most=PORTION_CHARACTERS))
    if len(told) < len(texts):
        told.append(f"… and {counted(len(texts) - len(told), f'more {what}')}")
    return [*told, then] if told and then else told


def each_fitting(
    items: Sequence[Item], shortened: Callable[[Item, int], Item], most: int
) -> Sequence[Item]:
    """Items that hold lists: as they are where there is room for all, else each `shortened` to a size."""
    if len(_encode(items)) <= most:
        return items
    size = most if len(items) == 1 else PORTION_CHARACTERS
    return [shortened(item, size) for item in items]


class Room:
    """What is left of an answer while its lists are put into it, the most important first."""

    def __init__(self) -> None:
        self._left = ANSWER_CHARACTERS
        self._missing: list[str] = []

    def take(self, items: Sequence[Item], what: str, share: int = 1) -> list[Item]:
        """As many of the first items as fit into one part in `share` of what is left; at least one."""
        told = list(within_budget(items, most=self._left // share))
        self._left -= sum(len(_encode(item)) + 1 for item in told)
        self.leave(len(items) - len(told), what, len(items))
        return told

    def leave(self, count: int, what: str, of: int | None = None) -> None:
        """Notes that so many are not told."""
        if count:
            self._missing.append(
                counted(count, what) if of is None else f"{count:,} of {of:,} {what}"
            )

    @property
    def left(self) -> int:
        return self._left

    def say(
        self, texts: Sequence[str], what: str = "warnings", then: str | None = None
    ) -> list[str]:
        """`said`, in what is left."""
        told = said(texts, what, then)
        self._left -= sum(map(len, told))
        return told

    def notice(self, remedy: str, *others: str | None) -> str | None:
        """What was left out, and what to do about it; then what else there is to say."""
        missing = f"Left out, for the answer is long: {', '.join(self._missing)}. {remedy}"
        return together(missing if self._missing else None, *others)


def together(*notices: str | None) -> str | None:
    """What there is to say, if anything, one sentence after the other."""
    told = [each for each in notices if each]
    ended = [each if each.endswith((".", "!", "?")) else f"{each}." for each in told[:-1]]
    return " ".join([*ended, *told[-1:]]) or None
