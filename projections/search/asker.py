"""Who asks: the `I` and `my` of a question, as the texts tell of who they are.

Agents write down that the *user* lives in Austin, and ask as they were asked: where do I live? Such a question has
no word of the answer, and lies far from it in meaning too.
"""

from __future__ import annotations

import re

from projections.text.analysis import STOP_WORDS

USER = "User"

_OF_WHO_ASKS = re.compile(
    r"(?<!\S)(?P<opening>[^\w\s]*)(?P<said>[Ii]|[Mm]y|me)(?P<ending>(?P<short>['\u2019][a-z]+)?[^\w\s]*)(?!\S)"
)
"""Between white space, with the marks around it: not in `I/O` or `my.cnf`."""

_AUXILIARY = (
    "am can could did do had have may might must need shall should want was were will would"
)
_BESIDE_I = frozenset(_AUXILIARY.split())
"""One of them stands before or after an `i`, or an `I` that opens a query: else it may be another language's, as the
`in` of Norwegian, the `and` of Polish, an article of Italian."""

_BEFORE_ME = frozenset({"about", "by", "for", "from", "near", "of", "on", "to", "with"})
"""Before a `me` that is asked about: that of `tell me` is not."""


def of_the_user(query: str) -> str:
    """`query` as a third person would put it, of the user: itself where it says nothing of who asks."""
    return _OF_WHO_ASKS.sub(_told, query)


def _told(found: re.Match[str]) -> str:
    if not _is_who_asks(found):
        return found.group()
    said = f"{USER}'s" if found["said"].lower() == "my" else USER
    return f"{found['opening']}{said}{found['ending']}"


def _is_who_asks(found: re.Match[str]) -> bool:
    before = "".join(found.string[: found.start()].split()[-1:])
    after = "".join(found.string[found.end() :].split()[:1])
    match found["said"]:
        case "my" | "My":
            return True
        case "me":
            return before.lower() in _BEFORE_ME
        case "I" if before:  # not in World War I
            return not before[0].isupper() or before.lower() in STOP_WORDS
        case _:
            return bool(found["short"]) or not _BESIDE_I.isdisjoint((before.lower(), after.lower()))
