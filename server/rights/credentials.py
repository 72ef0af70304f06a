"""What looks like a credential among the texts that a call is about to store: where, of which kind, never what.

Nothing is verified, so nothing leaves the machine. Where nothing is found, nothing is proved: this catches accidents,
not intent.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from memlog.blank import IGNORABLE
from memlog.commands import CreateProject, only_finds
from memlog.errors import InvalidParameter, LimitExceeded, MemlogError, Problem, refusal
from memlog.settings import Secrets
from server.input.diagnosis import Place
from server.rights.detectors import Detector, detectors
from server.rights.shapes import NAMED, PASSWORD_SIGNS, SHAPES, Shape

SECONDS_MAX = 1.0
"""Of the processor, for the texts of one call. Waiting does not count: for the detectors, which the first call imports,
or for others who compute."""

PIECE_CHARACTERS = 10_000
"""Longer texts are looked through in pieces that overlap by half, so a credential of half a piece is always seen
whole, and that the time is up is seen soon."""

RUN_CHARACTERS_MIN = 16
_SIGNS = ("://", "private key", "putty-user-key-file", "xox", *PASSWORD_SIGNS)
"""What every shape has: so long a run without a space, or one of these signs."""

_UNSEEN = re.compile(
    f"[{IGNORABLE}\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\ufff9-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f]+"
)
"""What is ignorable, and Unicode's other signs of format (Cf)."""

PATHS_MAX = 10

_REMEDY = (
    "Say where it is kept instead of what it is. Whoever runs the server chooses by MEMLOG_SECRETS."
)

_ERASING = (
    "Deleting keeps it in the history: only `memlog purge PROJECT --entity NAME` (or `--memory ID`) erases it for "
    "good, with all of the entity or memory."
)
_ERASING_PROJECT = (
    "Archiving keeps it: only deleting the project (`memlog projects delete`) erases it for good."
)


class Finding(NamedTuple):
    """Where something looks like a credential, and like which."""

    path: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path} ({self.kind})"


class Doubt(NamedTuple):
    """What to tell the caller of a tool that writes, in places and kinds."""

    found: list[Finding]
    unfinished: bool
    of_project: bool

    def said(self, *, stored: bool = True) -> str:
        """As a warning; `stored`, where the call wrote anything at all."""
        told = []
        if self.found:
            places = ", ".join(map(str, self.found[:PATHS_MAX]))
            more = len(self.found) - PATHS_MAX
            if more > 0:
                places += f" and {more} more"
            erasing = _ERASING_PROJECT if self.of_project else _ERASING
            told += [
                f"Stored, though it looks like a credential: {places}. Tell the user. {erasing}"
                if stored
                else f"This looks like a credential: {places}. This call stored nothing. Tell the user.",
                "MEMLOG_SECRETS=reject makes the server refuse such texts.",
            ]
        if self.unfinished:
            told.append(
                "Not all of it was looked through for credentials: it would have taken long."
            )
        return " ".join(told)


def judge(arguments: Any, secrets: Secrets, command_id: str | None = None) -> Doubt | None:
    """What there is to warn of, or None.

    Raises InvalidParameter with every place where such texts are refused, and LimitExceeded where it would take
    longer than SECONDS_MAX to look for them. No error and no warning holds any of the text.
    """
    if secrets == "off":
        return None
    found: list[Finding] = []
    unfinished = False
    until = time.thread_time() + SECONDS_MAX
    try:
        found.extend(look(command_id, Place().down("_meta").down("memlog/commandId"), until))
        for each in look(arguments, Place(), until):
            found.append(each)
    except LimitExceeded:
        if secrets == "reject" and not found:
            raise
        unfinished = True
    if found and secrets == "reject":
        raise _refused(found)
    of_project = isinstance(arguments, CreateProject)
    return Doubt(found, unfinished, of_project) if found or unfinished else None


def judge_lines(lines: Iterable[tuple[str, bytes]], secrets: Secrets) -> list[Finding]:
    """What is found in the lines of a file that is about to be imported, JSON or not, each with its place.

    Raises InvalidParameter with every place where such texts are refused.
    """
    found: list[Finding] = []
    for place, text in lines if secrets != "off" else ():
        try:
            within = list(look(msgspec.json.decode(text), Place()))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The import says what is wrong.
            within = list(look({"text": text.decode("utf-8", "replace")}, Place()))
        found += (Finding(f"{place}, {each.path}", each.kind) for each in within)
    if found and secrets == "reject":
        raise _refused(found)
    return found


def _refused(found: list[Finding]) -> MemlogError:
    """The refusal of everything that was found."""
    problems = (
        Problem(path, f"This looks like a credential ({kind}), and none is stored", _REMEDY)
        for path, kind in found
    )
    return refusal([(InvalidParameter, each) for each in problems])


# -- looking


def look(value: Any, place: Place, until: float = float("inf")) -> Iterator[Finding]:
    """The findings in every text of `value` that would be stored, keys of JSON objects among them.

    What a struct names in `looked_up` only finds what is stored already, and is passed over: otherwise nobody
    could delete or rename a credential. Raises LimitExceeded when the thread's clock (`thread_time`) says `until`.
    """
    if isinstance(value, str):
        yield from (Finding(str(place), kind) for kind in kinds(value, until))
    elif isinstance(value, msgspec.Struct):
        for name, spelt in _stored(type(value)):
            yield from look(getattr(value, name), place.down(spelt), until)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _look_at_pair(key, item, place, until)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from look(item, place.down(index), until)


def _look_at_pair(key: str, item: Any, place: Place, until: float) -> Iterator[Finding]:
    """Key and value are read together, as a file of settings has them: some secrets are known by their name."""
    found = kinds(f'"{key}": "{item}"' if isinstance(item, str) else key, until)
    within = place.down("…" if found and kinds(key, until) else key)
    yield from (Finding(str(within), kind) for kind in found)
    if not isinstance(item, str):
        yield from look(item, within, until)


@cache
def _stored(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """The fields of which texts are stored: their names in Python and on the wire."""
    fields = msgspec.structs.fields(cls)
    return tuple((each.name, each.encode_name) for each in fields if not only_finds(cls, each.name))


def kinds(text: str, until: float = float("inf")) -> list[str]:
    """As what `text` would be a credential, in words. Raises as `look`."""
    text = plain(text)
    if not may_hold(text):
        return []
    pieces = [(piece, piece.lower()) for piece in _pieces(text)]
    return _shaped(pieces, (*detectors(), *SHAPES), until) or _shaped(pieces, NAMED, until)


def _shaped(
    pieces: Sequence[tuple[str, str]], shapes: Sequence[Shape | Detector], until: float
) -> list[str]:
    """The pieces of a text, as they are and in small letters."""
    found: list[str] = []
    for shape in shapes:
        if shape.kind in found:
            continue
        for piece, small in pieces:
            if not shape.may_be_in(small):
                continue
            if time.thread_time() >= until:
                raise LimitExceeded(
                    f"It would take more than {SECONDS_MAX:g} s to look for credentials in this request",
                    suggestion="Send it in several smaller requests.",
                )
            if shape.found_in(piece):
                found.append(shape.kind)
                break
    return found


def may_hold(text: str) -> bool:
    """False where no shape can be found, as in almost all prose, told in a tenth of the time."""
    if max(map(len, text.split()), default=0) >= RUN_CHARACTERS_MIN:
        return True
    small = text.lower()
    return any(sign in small for sign in _SIGNS)


def plain(text: str) -> str:
    """The text without signs that nobody sees, and with wide letters as those of ASCII: what is copied from a page, a
    chat or a slide may hold both."""
    if text.isascii():
        return text
    return _UNSEEN.sub("", unicodedata.normalize("NFKC", text))


def _pieces(text: str) -> Iterator[str]:
    step = PIECE_CHARACTERS // 2
    for start in range(0, max(len(text) - step, 1), step):
        yield text[start : start + PIECE_CHARACTERS]
