"""What was found, as plain text of a bounded size: the best lines that fit, under headings, each once.

Pure: ranked items in, a text out, the same for the same items. A token is counted as four bytes of the text in UTF-8:
that is four letters of English, two of Arabic or Ukrainian, and a Chinese character and a third. Lines are numbered,
so that ids, which cost a model more than most facts, and days, which many lines have in common, can stand beside the
text instead of in it. What the items are and how they rank is left to who calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from memlog.canonical import canonical

BYTES_PER_TOKEN = 4
LINE_BYTES_MIN = 600
LINE_SHARE = 3
OVERHEAD_BYTES = 160
HEADING_BYTES_MAX = 80

ItemKind = Literal["entity", "observation", "relation", "memory"]
_WORDS: Mapping[ItemKind, tuple[str, str]] = {
    "entity": ("entity", "entities"),
    "observation": ("fact", "facts"),
    "relation": ("relation", "relations"),
    "memory": ("memory", "memories"),
}


class Item(msgspec.Struct, frozen=True, gc=False):
    """A thing that may be told: `line` under the heading of its group; an entity is a heading alone.

    `group` is the id of its entity, and the heading itself for what belongs to none.
    `whole` is the line before it was cut. An `extra` one was not asked for; nobody is told that it was left out.
    `time_us` is when it was written.
    """

    kind: ItemKind
    ref: str
    group: str
    heading: str
    line: str = ""
    extra: bool = False
    whole: str = ""
    time_us: int = 0

    @property
    def of_entity(self) -> bool:
        return self.group != self.heading


class Packed(msgspec.Struct, frozen=True):
    """`groups` and `numbered` are in the order of the text: the n-th item is the line numbered n."""

    text: str
    groups: tuple[str, ...]
    numbered: tuple[Item, ...]
    left_out: dict[ItemKind, int]

    @property
    def refs(self) -> tuple[str, ...]:
        """Of the n-th line."""
        return tuple(item.ref for item in self.numbered)


def tokens(text: str) -> int:
    return -(-size(text) // BYTES_PER_TOKEN)


def size(text: str) -> int:
    """In bytes."""
    return len(text) if text.isascii() else len(text.encode())


def one_line(text: str) -> str:
    return " ".join(text.split())


def clipped(text: str, budget_tokens: int) -> str:
    """`text` in one line, cut at a word where one text would take too much of the budget.

    Without this the best answer could be too long to be given at all.
    """
    return shortened(text, line_bytes_max(budget_tokens))


def line_bytes_max(budget_tokens: int) -> int:
    """A line may have a third of the budget, and `LINE_BYTES_MIN` bytes where the budget has that many."""
    room = budget_tokens * BYTES_PER_TOKEN
    least = min(LINE_BYTES_MIN, room - OVERHEAD_BYTES)
    return max(room // LINE_SHARE, least)


def shortened(text: str, bytes_max: int) -> str:
    """`text` in one line of at most so many bytes (32 or more), saying how many characters were cut."""
    line = one_line(text)
    if size(line) <= bytes_max:
        return line
    said = f" … (+{len(line)} characters)"
    kept = line.encode()[: bytes_max - size(said)].decode(errors="ignore")
    start, _, rest = kept.rpartition(" ")
    kept = start if start and len(rest) < len(start) else kept
    return f"{kept} … (+{len(line) - len(kept)} characters)"


def pack(items: Sequence[Item], budget_tokens: int, *, more: bool = False) -> Packed:
    """The best of `items`, which come best first, in at most `budget_tokens`.

    A line that does not fit is passed over for later, shorter ones. Groups stand in the order of their
    best item, lines in the order of rank. What was left out is said in the last line, and that there may be `more`
    than the items.
    """
    told = list(_distinct(items))
    room = budget_tokens * BYTES_PER_TOKEN
    chosen = _fitting(told, room)
    if more or any(_left_out(told, chosen).values()):
        chosen = _fitting(told, room - size(_footer(_left_out(told, []), more)) - 1)
    left_out = _left_out(told, chosen)
    text, numbered = _text(chosen)
    footer = _footer(left_out, more)
    whole = "\n".join(part for part in (text, footer) if part)
    return Packed(
        whole if size(whole) <= room else text,
        tuple(dict.fromkeys(item.group for item in chosen)),
        tuple(numbered),
        left_out,
    )


def _distinct(items: Sequence[Item]) -> Iterator[Item]:
    """Each thing once, and each text once under its heading."""
    seen: set[tuple[str, ...]] = set()
    for item in items:
        keys: set[tuple[str, ...]] = {("ref", item.ref)}
        if item.kind != "entity":
            keys.add(("line", item.group, canonical(item.whole or item.line)))
        if not keys & seen:
            seen |= keys
            yield item


def _fitting(items: Sequence[Item], room: int) -> list[Item]:
    chosen: list[Item] = []
    groups: set[str] = set()
    numbered = 0
    spent = -1  # the first line has no line break before it
    for item in items:
        cost = 0 if item.group in groups else size(item.heading) + 1
        if item.line:
            cost += size(f"{numbered + 1}. {item.line}") + 1
        if spent + cost > room:
            continue
        spent += cost
        groups.add(item.group)
        numbered += bool(item.line)
        chosen.append(item)
    return chosen


def _text(chosen: Sequence[Item]) -> tuple[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in chosen:
        groups.setdefault(item.group, []).append(item)
    lines: list[str] = []
    numbered: list[Item] = []
    for group in groups.values():
        lines.append(group[0].heading)
        for item in group:
            if item.line:
                numbered.append(item)
                lines.append(f"{len(numbered)}. {item.line}")
    return "\n".join(lines), numbered


def _left_out(items: Sequence[Item], chosen: Sequence[Item]) -> dict[ItemKind, int]:
    """How many things of each kind are not told; an entity is told by its heading."""
    told = {item.ref for item in chosen} | {item.group for item in chosen}
    missing = [item for item in items if not item.extra and item.ref not in told]
    groups = {item.group for item in missing if item.of_entity} - told
    counts: dict[ItemKind, int] = {"entity": len(groups)}
    for kind in ("observation", "relation", "memory"):
        counts[kind] = sum(item.kind == kind for item in missing)
    return counts


def _footer(counts: Mapping[ItemKind, int], more: bool) -> str:
    parts = [f"{count:,} {_WORDS[kind][count != 1]}" for kind, count in counts.items() if count]
    if not parts:
        return "… and there may be more" if more else ""
    return f"… left out: {', '.join(parts)}{', and there may be more' if more else ''}"
