"""From the JSON arguments of a tool call to the struct that the tool declares.

Promises the struct, or one `InvalidParameter` or `LimitExceeded` that names every problem of the
request that can be seen without what is stored; nothing else is raised, whatever JSON was sent. What arrives is
valid Unicode without control characters (in what is only searched they are spaces), finite, and no deeper than 64
levels; texts that are stored show something where they may not be empty, and times are times. So nothing behind
has to ask again.

A request spelt as the schema says costs one conversion and one encoding, both in C: the encoder
refuses lone surrogates and escapes control characters, where a search finds them. Only when
something looks odd is the value walked, in `server.input.diagnosis`. That search may be wrong in the
careful direction (a backslash before a b looks like an escape); the walk then finds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import inspect as mi

from memlog.blank import SHOWS_NOT
from memlog.commands import only_finds
from memlog.errors import InvalidParameter, invalid_at
from server.input.diagnosis import LEVELS_MAX, Diagnosis, Place
from server.input.kinds import Reader, reader
from server.input.wording import misread

T = TypeVar("T", bound=msgspec.Struct)

_REFUSALS = (msgspec.MsgspecError, ValueError, ArithmeticError, TypeError, RecursionError)
_ESCAPED_CONTROL = re.compile(rb"\\[bfu]")
_C1_CONTROL = re.compile(b"\xc2[\x80-\x9f]")
_BLANK = re.compile(rf'"(?:\\[nrt]|[{SHOWS_NOT}])+"')
_PLACE_IN_REFUSAL = re.compile(r"^(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)

_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode


def decode(arguments: Mapping[str, Any] | None, into: type[T]) -> T:
    """`arguments` as `into`, which forbids unknown fields and so do the structs within.

    Every key is taken in camelCase and snake_case and under `into.aliases`, a ClassVar from
    other names to canonical ones. 10.0 is taken for an integer; where no string may stand, one
    that holds as JSON what may (`"10"`, `"[…]"`) is taken for that. null and "" are taken for every
    optional key: "", and null where the type has no place for it, count as not given.
    """
    plan = _plan(into)
    raw: Any = {} if arguments is None else arguments
    if not isinstance(raw, dict) and isinstance(raw, Mapping):
        raw = dict(raw)
    try:
        decoded = msgspec.convert(raw, into, strict=True)
        if not _odd(raw, plan):
            return decoded
    except _REFUSALS:
        pass  # the walk has the words for all of it, not only for the first
    diagnosis = Diagnosis()
    mended = diagnosis.walk(raw, plan.kind, Place())
    if error := diagnosis.error():
        raise error
    try:
        return msgspec.convert(mended, into, strict=True)
    except _REFUSALS as refusal:
        raise _refused(refusal) from None


def _odd(raw: Any, plan: _Plan) -> bool:
    """Whether `raw`, of the right shape, may hold something that no argument may hold."""
    encoded = _encode_json(raw)
    if (
        b'""' in encoded
        or (b"\\" in encoded and _ESCAPED_CONTROL.search(encoded))
        or b"\x7f" in encoded
        or (b"\xc2" in encoded and _C1_CONTROL.search(encoded))
    ):
        return True
    if plan.patterned and b'\\n"' in encoded:  # msgspec's `$` also matches before a last line break
        return True
    if plan.stores and _BLANK.search(encoded.decode()):
        return True
    for name, read in plan.read:
        if isinstance(text := raw.get(name), str) and misread(read, text):
            return True
    if not plan.unbounded:
        return False
    _encode_msgpack(raw)  # refuses what does not fit 64 bits
    # NaN and infinities are encoded as null; as many brackets as levels are the least it takes
    return b"null" in encoded or encoded.count(b"[") + encoded.count(b"{") > LEVELS_MAX


def _refused(refusal: Exception) -> InvalidParameter:
    found = _PLACE_IN_REFUSAL.match(str(refusal))
    assert found is not None
    path, problem = found["path"] or "arguments", found["problem"].replace("`", "")
    return invalid_at(path, problem)


class _Plan(NamedTuple):
    kind: mi.Type
    unbounded: bool
    patterned: bool
    stores: bool
    """Whether any of its texts is stored."""
    read: tuple[tuple[str, Reader], ...]
    """The keys of texts that somebody reads, and who; none of them lies deeper."""


@cache
def _plan(into: type[msgspec.Struct]) -> _Plan:
    """Raises TypeError for a struct that would drop an unknown key without a word."""
    kind = mi.type_info(into)
    within = list(parts(kind))
    for part in within:
        if isinstance(part, mi.StructType) and not part.forbid_unknown_fields:
            raise TypeError(f"{part.cls.__name__} must be declared with forbid_unknown_fields")
    patterned = any(isinstance(part, mi.StrType) and part.pattern is not None for part in within)
    assert isinstance(kind, mi.StructType)
    readers = ((field.encode_name, reader(field.type)) for field in kind.fields)
    read = tuple((name, each) for name, each in readers if each is not None)
    return _Plan(kind, any(map(_unbounded, within)), patterned, _stores(kind), read)


def _stores(kind: mi.StructType) -> bool:
    return any(not only_finds(kind.cls, field.name) for field in kind.fields)


def parts(kind: mi.Type, holders: tuple[type, ...] = ()) -> Iterator[mi.Type]:
    """`kind` and every type within it. Where a struct may hold itself stands "anything"."""
    yield kind
    match kind:
        case mi.Metadata():
            yield from parts(kind.type, holders)
        case mi.UnionType():
            for each in kind.types:
                yield from parts(each, holders)
        case mi.DictType():
            yield from parts(kind.value_type, holders)
        case mi.ListType():
            yield from parts(kind.item_type, holders)
        case mi.StructType() if kind.cls in holders:
            yield mi.AnyType()
        case mi.StructType():
            for field in kind.fields:
                yield from parts(field.type, (*holders, kind.cls))


def _unbounded(kind: mi.Type) -> bool:
    """Whether `kind` lets through NaN, numbers of any size or values of any depth."""
    if isinstance(kind, (mi.IntType, mi.FloatType)):
        return kind.ge is None or kind.le is None
    return isinstance(kind, mi.AnyType)
