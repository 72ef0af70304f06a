"""Declared types, seen from JSON: what a value of one may be, which ones suit it, what a text of it has to be besides.

Whether something is wrong is decided in `server.input.diagnosis`, and said in `server.input.wording`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect as mi

from memlog.controls import CONTROL

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character, which JSON can spell and no text may hold."""

READ = "read"
"""In `Meta.extra`: what reads the text as something else, a time. Takes it and its place, raises InvalidParameter."""

SEARCHED = "searched"
"""In `Meta.extra`: true of a text that is only looked for. What no text may hold separates words in it."""

Reader = Callable[[str, str], object]


def bare(kind: mi.Type) -> mi.Type:
    """`kind` without its annotations."""
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def members(kind: mi.Type) -> tuple[mi.Type, ...]:
    """What a value of `kind` may be, null left out; annotations on the members are kept."""
    inner = bare(kind)
    if not isinstance(inner, mi.UnionType):
        return (kind,)
    found = (one for each in inner.types for one in members(each))
    return tuple(each for each in found if not isinstance(bare(each), mi.NoneType))


def item_of(kind: mi.Type) -> mi.StructType | None:
    """The struct that a list of `kind` holds, if it holds nothing else."""
    inner = bare(kind)
    item = bare(inner.item_type) if isinstance(inner, mi.ListType) else None
    return item if isinstance(item, mi.StructType) else None


def nullable(kind: mi.Type) -> bool:
    inner = bare(kind)
    each = inner.types if isinstance(inner, mi.UnionType) else (inner,)
    return any(isinstance(bare(one), (mi.NoneType, mi.AnyType)) for one in each)


def integral(value: Any) -> bool:
    """An integer, or a float that is one (10.0)."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


SUITS: dict[type[mi.Type], Callable[[Any], bool]] = {
    mi.AnyType: lambda value: True,
    mi.NoneType: lambda value: value is None,
    mi.BoolType: lambda value: isinstance(value, bool),
    mi.IntType: integral,
    mi.FloatType: lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    mi.StrType: lambda value: isinstance(value, str),
    mi.StructType: lambda value: isinstance(value, dict),
    mi.DictType: lambda value: isinstance(value, dict),
    mi.ListType: lambda value: isinstance(value, list),
}


def suits(kind: mi.Type, value: Any) -> bool:
    """Whether `value` is of the JSON type that `kind` wants, whatever its size and content."""
    kind = bare(kind)
    if isinstance(kind, mi.UnionType):
        return any(suits(each, value) for each in kind.types)
    if isinstance(kind, mi.LiteralType):
        return any(type(each) is type(value) for each in kind.values)
    test = SUITS.get(type(kind))
    return value is not None if test is None else test(value)


def unquoted(kind: mi.Type, text: str) -> Any:
    """What `text` holds as JSON, where that is of the JSON type that `kind` wants; otherwise None."""
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return value if suits(kind, value) else None


def metadata(kind: mi.Type) -> Iterator[mi.Metadata]:
    """Its annotations, and those of its members."""
    while isinstance(kind, mi.Metadata):
        yield kind
        kind = kind.type
    if isinstance(kind, mi.UnionType):
        for each in kind.types:
            yield from metadata(each)


def reader(kind: mi.Type) -> Reader | None:
    """Who reads a text of this type, if it says more than a text."""
    readers = ((each.extra or {}).get(READ) for each in metadata(kind))
    return next(filter(None, readers), None)


def searchable(kind: mi.Type, text: str) -> str:
    """A text of this type; of one that is only looked for, without what no text may hold."""
    if not any((each.extra or {}).get(SEARCHED) for each in metadata(kind)):
        return text
    return CONTROL.sub(" ", SURROGATE.sub(" ", text))
