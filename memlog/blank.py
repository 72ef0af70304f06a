"""Texts that hold nothing anyone can see, and a refusal of them wherever an empty one is refused.

White space, characters of no width, fillers: a name made of these looks like none and cannot be typed again. What
is stored so already is still found by its text, to be renamed or deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect as mi

from memlog.commands import only_finds
from memlog.errors import InvalidParameter, Problem, invalid_at, refuse, shorten

IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt), such as soft hyphens and the selectors of emoji,
as it stands in a class of a regular expression."""

UNSEEN = re.compile(f"[{IGNORABLE}]+")

SHOWS_NOT = f"\\s{IGNORABLE}\u2800"
"""White space, what is ignorable, and the empty Braille cell; as they stand in such a class, too."""

_SHOWS = re.compile(f"[^{SHOWS_NOT}]")


def is_blank(text: str) -> bool:
    return _SHOWS.search(text) is None


def blank_text(text: str, required: bool) -> tuple[str, str]:
    """The problem with such a text, which no one could see in it, and what to do instead."""
    problem = f"{shorten(ascii(text))} has no character that shows"
    return problem, f"Say it in characters that show{'.' if required else ', or leave it out.'}"


def require_visible(command: msgspec.Struct) -> None:
    """Raises InvalidParameter with every text of `command` that is blank, would be stored, and may not be empty."""
    problems = list(blanks(command))
    if len(problems) == 1:
        (only,) = problems
        raise invalid_at(only.path, only.problem, only.suggestion, only.value)
    refuse((InvalidParameter, problem) for problem in problems)


def blanks(value: msgspec.Struct, path: str = "") -> Iterator[Problem]:
    """The blank texts of a struct that may not be empty, what its `looked_up` names passed over."""
    for name, spelt, required in _judged(type(value)):
        place = f"{path}.{spelt}" if path else spelt
        held = getattr(value, name)
        if isinstance(held, str):
            yield from _blank(held, place, required)
        elif isinstance(held, (list, tuple)):
            yield from _among(held, place)


def _among(items: Sequence[Any], path: str) -> Iterator[Problem]:
    for index, item in enumerate(items):
        if isinstance(item, str):
            yield from _blank(item, f"{path}[{index}]", required=False)
        else:
            yield from blanks(item, f"{path}[{index}]")


def _blank(text: str, path: str, required: bool) -> Iterator[Problem]:
    if is_blank(text):
        yield Problem(path, *blank_text(text, required), shorten(ascii(text)))


@cache
def _judged(cls: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """The fields that hold texts which may not be empty: their names in Python and on the wire, and whether they
    are required."""
    kind = mi.type_info(cls)
    assert isinstance(kind, mi.StructType)
    return tuple(
        (field.name, field.encode_name, field.required)
        for field in kind.fields
        if not only_finds(cls, field.name) and _is_judged(field.type)
    )


def _is_judged(kind: mi.Type) -> bool:
    match kind:
        case mi.StrType():
            return bool(kind.min_length)
        case mi.Metadata():
            return _is_judged(kind.type)
        case mi.UnionType():
            return any(map(_is_judged, kind.types))
        case mi.ListType() | mi.VarTupleType():
            return _is_judged(kind.item_type)
        case mi.StructType():
            return bool(_judged(kind.cls))
    return False
