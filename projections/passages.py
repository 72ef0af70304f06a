"""The passages of a text: of so many words that an embedder reads all of each, and that each is about little.

A model reads no more than its first 256 word pieces (MiniLM), and in the one vector of many sentences none of them can
be told from the others. So a long text has several vectors, and is as near to a question as the nearest of its
passages. They are of like length and end where a sentence does, if one ends thereabouts; they are a function of the
text alone.

Left to others: which of them speaks for the document in a search (`vectors`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

WHOLE_WEIGHT_MAX, PASSAGE_WEIGHT_MAX = 600, 150
"""What is not cut, and what a passage of all else holds at most, about: two or three sentences, as much as most
observations say (docs/search.md)."""

OTHER_WEIGHT = 4
"""What a character beyond ASCII weighs: a word piece is one of these, or four letters of ASCII."""

PASSAGES_MAX = 96
"""So many at most, of more than usual where the text would have more; what is too much for that, too, is found by its
words only."""

ENDS_FROM = 0.7
"""From so much of its share on, a passage ends with the next sentence."""

_CLOSING = "'\")\\]\u00bb\u201d\u2019\u300d\u300f"
_FULL_STOPS = "\u3002\uff01\uff1f"
"""Of scripts without spaces, in which a word is what stands before one of these."""
_WORD = re.compile(
    rf"\s*(?=\S)[^\s{_FULL_STOPS}]{{0,80}}[{_FULL_STOPS}]{{0,10}}[{_CLOSING}]{{0,10}}"
)
_SENTENCE_ENDS = re.compile(rf"[.!?\u2026{_FULL_STOPS}\u061f\u0964][{_CLOSING}]*$")


def passages(text: str, subject: str = "") -> list[str]:
    """The passages of a text, at least one. Where it begins with its `subject` and a colon, all of them do."""
    told = text.rstrip()  # else each blank at the end is asked for a word, all the way to the end
    weight = _weight(told)
    if weight <= WHOLE_WEIGHT_MAX:
        return [text]
    count = min(math.ceil(weight / PASSAGE_WEIGHT_MAX), int(ENDS_FROM * PASSAGES_MAX))
    share = min(weight / count, WHOLE_WEIGHT_MAX)
    first, *others = list(_cut(told, share))[:PASSAGES_MAX]
    if subject and text.startswith(f"{subject}: "):
        others = [f"{subject}: {other}" for other in others]
    return [first, *others]


def _cut(text: str, share: float) -> Iterator[str]:
    """The text in pieces of a `share` of its weight each, about."""
    start, weight = 0, 0.0
    for word in _WORD.finditer(text):
        said = word.group()
        if weight >= share or ("\n" in said and weight >= ENDS_FROM * share):
            yield text[start : word.start()].strip()
            start, weight = word.start(), 0.0
        weight += _weight(said)
        if weight >= ENDS_FROM * share and _SENTENCE_ENDS.search(said):
            yield text[start : word.end()].strip()
            start, weight = word.end(), 0.0
    if rest := text[start:].strip():
        yield rest


def _weight(text: str) -> int:
    ascii_only = len(text.encode("ascii", "ignore"))
    return ascii_only + OTHER_WEIGHT * (len(text) - ascii_only)
