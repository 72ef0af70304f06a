"""Who asks: the `I` and `my` of a question, as the texts tell of who they are.

Agents write down that the *user* lives in Austin, and ask as they were asked: where do I live? Such a question has
no word of the answer, and lies far from it in meaning too.
"""

from __future__ import annotations

import re

from projections.text.analysis import STOP_WORDS

USER = "User"

_OF_WHO_ASKS = re.compile(
    r"(?<!\S)(?P<opening>[^\w\s]*)(?P<said>[Ii]|[Mm]y|me)(?P<ending>(?:['\u2019][a-z]+)?[^\w\s]*)(?!\S)"
)
"""Between white space, with the marks around it: not in `I/O` or `my.cnf`."""

_BEFORE_ME = frozenset({"about", "by", "for", "from", "near", "of", "on", "to", "with"})
"""Before a `me` that is asked about: that of `tell me` is not."""


def of_the_user(query: str) -> str:
    """`query` as a third person would put it, of the user: itself where it says nothing of who asks."""
    return _OF_WHO_ASKS.sub(_told, query)


def _told(found: re.Match[str]) -> str:
    before = "".join(found.string[: found.start()].split()[-1:])
    match found["said"]:
        case "me" if before.lower() not in _BEFORE_ME:
            return found.group()
        case "I" if before[:1].isupper() and before.lower() not in STOP_WORDS:
            return found.group()  # World War I
        case "my" | "My":
            said = f"{USER}'s"
        case _:
            said = USER
    return f"{found['opening']}{said}{found['ending']}"
