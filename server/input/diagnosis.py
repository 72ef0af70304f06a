"""A walk over arguments that were refused: spelling is mended, whatever else is wrong is named.

This is the slow way, taken only when the quick one in `server.input.arguments` failed. It promises to
end, for any JSON value, in a value in canonical spelling or in one error with every problem (of very
many the first ones), its place and how to mend it. It judges what JSON can express: keys, types, sizes,
ranges, patterns, choices, valid text, finite numbers and depth; that a text which is stored shows something; and
what a type names a reader for (`kinds.READ`), such as times. What a type asks beyond that (a set, a bound
that is out of range itself, a tagged union, `__post_init__`) stays as it was sent and is left to the conversion that
follows.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import cache
from itertools import islice
from typing import Any

import msgspec
from msgspec import inspect as mi

from memlog.blank import blank_text, is_blank
from memlog.commands import SavedEntity, only_finds
from memlog.controls import CONTROL, control_character
from memlog.decisions.saving import unsound
from memlog.errors import (
    COUNTED_MAX,
    MEND_ALL,
    PROBLEMS_MAX,
    InvalidParameter,
    LimitExceeded,
    MemlogError,
    Problem,
    least,
    shorten,
)
from server.input import kinds, wording
from server.input.kinds import bare
from server.input.wording import Words

LEVELS_MAX = 64
PLACE_CHARACTERS_MAX = 300
ITEM_KEYS_MIN = 2  # a single stray key may as well be a misspelling

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,79}")


class Place:
    """Where a value sits, linked to what holds it; written out (`entities[3].name`) on demand.

    `required` says that it cannot be left out, `finds` that it is not stored.
    """

    __slots__ = ("depth", "finds", "outer", "required", "step")

    def __init__(
        self,
        outer: Place | None = None,
        step: str | int = "",
        *,
        required: bool = False,
        finds: bool = False,
    ) -> None:
        self.outer = outer
        self.step = step
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.required = required
        self.finds: bool = finds or (outer is not None and outer.finds)

    def down(self, step: str | int) -> Place:
        return Place(self, step)

    def held(self, key: str, field: mi.Field, cls: type[msgspec.Struct]) -> Place:
        """That of a field of `cls`, under the key as it was spelt."""
        return Place(self, key, required=field.required, finds=only_finds(cls, field.name))

    def __str__(self) -> str:
        steps: list[str] = []
        here = self
        while here.outer is not None:
            steps.append(_step(here.step))
            here = here.outer
        path = "".join(reversed(steps)).removeprefix(".") or "arguments"
        return path if len(path) <= PLACE_CHARACTERS_MAX else path[:PLACE_CHARACTERS_MAX] + "…"


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN_KEY.fullmatch(step):
        return f".{step}"
    return f"[{json.dumps(shorten(step), ensure_ascii=False)}]"


@cache
def spellings(cls: type) -> dict[str, int]:
    """Every spelling under which a field of `cls` is taken -> the field's index.

    A canonical name wins over another field's alias or other case.
    """
    index = {field.encode_name: at for at, field in enumerate(msgspec.structs.fields(cls))}
    aliases: dict[str, str] = getattr(cls, "aliases", {})
    known = dict(index)
    for name, at in index.items():
        for spelling in (_snake(name), _camel(name)):
            known.setdefault(spelling, at)
    for alias, name in aliases.items():
        for spelling in (alias, _snake(alias), _camel(alias)):
            known.setdefault(spelling, index[name])
    return known


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def _camel(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])_([a-z0-9])", lambda letter: letter[1].upper(), name)


class Diagnosis:
    """The problems of one request. `walk` returns the value mended as far as it can be."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.count = 0
        self.count_oversize = 0
        self._sound: list[tuple[dict[str, Any], type, Place]] = []

    def report(
        self,
        place: Place,
        value: Any,
        words: Callable[..., Words],
        *details: Any,
        oversize: bool = False,
    ) -> None:
        """Count one problem. Its words are made only while there is room: a list of a million
        wrong items must not cost a million texts."""
        self.count += 1
        self.count_oversize += oversize
        if self.count <= PROBLEMS_MAX:
            problem, suggestion = words(*details)
            self.problems.append(Problem(str(place), problem, suggestion, wording.shown(value)))

    def error(self) -> MemlogError | None:
        """What was found as one error: LimitExceeded if all of it is size, None if nothing."""
        if not self.count:
            return None
        problems = [*self.problems, *islice(self._judged(), max(0, COUNTED_MAX - self.count))]
        count = self.count + len(problems) - len(self.problems)
        kind = LimitExceeded if self.count_oversize == count else InvalidParameter
        first = problems[0]
        told = f"{first.path}: {first.problem}"
        if count == 1:
            return kind(told, suggestion=first.suggestion, problems=problems)
        if count > PROBLEMS_MAX:
            more = count - PROBLEMS_MAX + 1
            rest = Problem("arguments", f"{least(count)}{more} more problems", "Mend these first.")
            problems = [*problems[: PROBLEMS_MAX - 1], rest]
        told = f"{least(count)}{count} problems: first {told}"
        return kind(told, suggestion=MEND_ALL, problems=problems)

    def _judged(self) -> Iterator[Problem]:
        """What others say against that of which the form is right. Where nothing else is wrong they are not asked:
        they will be, and know more then."""
        for sound, cls, place in self._sound:
            yield from _JUDGES[cls](sound, str(place) if place.depth else "")

    def walk(self, value: Any, annotated: mi.Type, place: Place) -> Any:
        if self.count >= COUNTED_MAX:
            return value
        kind = bare(annotated)
        if isinstance(kind, mi.UnionType):
            chosen = next((each for each in kind.types if kinds.suits(each, value)), None)
            if chosen is None:
                return self._mistyped(value, annotated, place)
            return self.walk(value, chosen, place)
        if not kinds.suits(kind, value):
            return self._mistyped(value, annotated, place)
        if isinstance(value, (dict, list)) and self._too_deep(value, place):
            return value
        match kind:
            case mi.StructType():
                return self._struct(value, kind, place)
            case mi.DictType():
                return self._dict(value, kind, place)
            case mi.ListType():
                self._size(value, kind, annotated, place)
                # Of too many items only as many as may be: a million wrong ones would take seconds.
                items = enumerate(value[: kind.max_length])
                return [self.walk(each, kind.item_type, place.down(at)) for at, each in items]
            case mi.LiteralType():
                if not any(type(each) is type(value) and each == value for each in kind.values):
                    self.report(place, value, wording.not_one_of, kind.values, value)
            case mi.StrType():
                value = kinds.searchable(annotated, value)
                self._string(value, kind, annotated, place)
            case mi.IntType() | mi.FloatType():
                return self._number(value, kind, place)
            case mi.AnyType():
                self._free(value, place)
        return value

    def _mistyped(self, value: Any, annotated: mi.Type, place: Place) -> Any:
        """Some clients send what is no string as one that holds it as JSON: that is taken, and all else reported."""
        if isinstance(value, str) and (meant := kinds.unquoted(annotated, value)) is not None:
            return self.walk(meant, annotated, place)
        self.report(place, value, wording.wrong_type, annotated, value)
        return value

    def _struct(self, raw: dict[Any, Any], kind: mi.StructType, place: Place) -> dict[str, Any]:
        spelt, fields = spellings(kind.cls), kind.fields
        given: dict[int, str] = {}
        strays: list[str] = []
        mended: dict[str, Any] = {}
        sound: dict[str, Any] = {}
        for key, value in raw.items():
            at = spelt.get(key)
            if at is None:
                strays.append(key)
                continue
            field = fields[at]
            if at in given:
                name = field.encode_name
                self.report(place.down(key), value, wording.twice, name, given[at], key)
            given.setdefault(at, key)
            if not field.required and _says_nothing(value, field.type):
                continue
            known = self.count
            within = self.walk(value, field.type, place.held(key, field, kind.cls))
            mended[field.encode_name] = within
            if self.count == known:
                sound[field.encode_name] = within
        if kind.cls in _JUDGES:
            self._sound.append((sound, kind.cls, place))
        for key in self._unwrapped(raw, strays, kind, given, place):
            self._stray(key, raw[key], kind, given, place)
        for at, field in enumerate(fields):
            if field.required and at not in given:
                name = field.encode_name
                self.report(place.down(name), None, wording.missing, name, field.type)
        return mended

    def _unwrapped(
        self,
        raw: dict[Any, Any],
        strays: list[str],
        kind: mi.StructType,
        given: dict[int, str],
        place: Place,
    ) -> list[str]:
        """Report the keys of one item that were passed where its list belongs; one slip, one
        problem. Gives back the other strays."""
        for at, field in enumerate(kind.fields):
            item = kinds.item_of(field.type)
            if at in given or not field.required or item is None:
                continue
            inside = [key for key in strays if key in spellings(item.cls)]
            if len(inside) < ITEM_KEYS_MIN:
                continue
            given[at] = field.encode_name
            self.report(place, raw, wording.unwrapped, field.encode_name, inside)
            self._struct({key: raw[key] for key in inside}, item, place)
            return [key for key in strays if key not in inside]
        return strays

    def _stray(
        self, key: str, value: Any, kind: mi.StructType, given: dict[int, str], place: Place
    ) -> None:
        """Report an unknown key. Where the key it was meant for is absent, look at the value as
        if it had been spelt right, and do not call that key missing too: one slip, one problem."""
        names = [field.encode_name for field in kind.fields]
        near = wording.nearest(key, names) if self.count < PROBLEMS_MAX else None
        self.report(place.down(key), value, wording.unknown, key, near, names)
        if near is not None and (at := names.index(near)) not in given:
            given[at] = key
            field = kind.fields[at]
            self.walk(value, field.type, place.held(key, field, kind.cls))

    def _dict(self, raw: dict[Any, Any], kind: mi.DictType, place: Place) -> dict[Any, Any]:
        self._size(raw, kind, kind, place)
        for key in raw:
            if isinstance(key, str):
                self._text(key, place.down(key), what="key ")
        wanted = kind.value_type
        return {key: self.walk(each, wanted, place.down(key)) for key, each in raw.items()}

    def _free(self, value: Any, place: Place) -> None:
        """A value of any shape: still valid text, finite numbers, 64 bits."""
        if isinstance(value, str):
            self._text(value, place)
        elif isinstance(value, dict):
            self._dict(value, _FREE_DICT, place)
        elif isinstance(value, list):
            for at, each in enumerate(value):
                self.walk(each, _FREE, place.down(at))
        elif isinstance(value, float) and not math.isfinite(value):
            self.report(place, value, wording.not_finite, value)
        elif isinstance(value, int) and not _fits(value, _FREE):
            self.report(place, value, wording.too_big, value, _FREE)

    def _too_deep(self, value: Any, place: Place) -> bool:
        deep = place.depth >= LEVELS_MAX
        if deep:
            self.report(place, value, wording.too_deep, LEVELS_MAX)
        return deep

    def _string(self, text: str, kind: mi.StrType, annotated: mi.Type, place: Place) -> None:
        """Valid text of the right size and form; of one that is, also whether it shows, and what it says."""
        known = self.count
        self._text(text, place)
        self._size(text, kind, annotated, place)
        if kind.pattern is not None and not re.fullmatch(kind.pattern, text):
            self.report(place, text, wording.unmatched, text, kind.pattern, annotated)
        if self.count > known:
            return
        if kind.min_length and not place.finds and is_blank(text):
            self.report(place, ascii(text), blank_text, text, place.required)
        read = kinds.reader(annotated)
        if read is not None and (unlike := wording.misread(read, text, str(place))):
            self.report(place, text, lambda: unlike)

    def _text(self, text: str, place: Place, what: str = "") -> None:
        for pattern, words in _FAULTS:
            if found := pattern.search(text):
                self.report(place, text, words, text, found.start() + 1, what)

    def _size(self, value: Sized, kind: wording.Sizeable, annotated: mi.Type, place: Place) -> None:
        count = len(value)
        if kind.max_length is not None and count > kind.max_length:
            self.report(place, value, wording.too_long, kind, count, oversize=True)
        elif kind.min_length is not None and count < kind.min_length:
            self.report(place, value, wording.too_short, kind, count, annotated, place.required)

    def _number(self, value: float, kind: mi.IntType | mi.FloatType, place: Place) -> float:
        if isinstance(value, float) and not math.isfinite(value):
            self.report(place, value, wording.not_finite, value)
            return value
        if isinstance(kind, mi.IntType):
            value = int(value)
        if _outside(value, kind):
            self.report(place, value, wording.out_of_range, kind, value)
        elif isinstance(value, int) and not _fits(value, kind):
            self.report(place, value, wording.too_big, value, kind)
        return value


_JUDGES: Mapping[type, Callable[[Mapping[str, Any], str], Iterable[Problem]]] = {
    SavedEntity: unsound
}
"""Who has words of their own for what may be wrong, beyond its form, with an object at a place: its fields that have
the right form are given."""

_FREE = mi.AnyType()
_FREE_DICT = mi.DictType(key_type=mi.StrType(), value_type=_FREE)
_FAULTS = (
    (kinds.SURROGATE, wording.lone_surrogate),
    (CONTROL, control_character),
)


def _says_nothing(value: Any, kind: mi.Type) -> bool:
    """Models and the forms of clients write null and "" for "not given": of an optional key they can mean no more.
    Some write "null" for the one, which is a text where that may stand."""
    if value == "null" and not kinds.suits(kind, value):
        value = None
    return value == "" or (value is None and not kinds.nullable(kind))


def _fits(value: int, kind: mi.Type) -> bool:
    if isinstance(kind, mi.FloatType):
        return abs(value) <= sys.float_info.max
    return kinds.INTEGER_MIN <= value <= kinds.INTEGER_MAX


def _outside(value: float, kind: mi.IntType | mi.FloatType) -> bool:
    too_low = kind.ge is not None and value < kind.ge
    return too_low or (kind.le is not None and value > kind.le)
