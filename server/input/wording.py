"""The words for what can be wrong with an argument, and how the right call would be written.

Each function of the last part returns `(problem, suggestion)` for one kind of mistake. They look
at the declared type (`kinds`) only to name it and to sketch a value of it; whether something is wrong is
decided in `server.input.diagnosis`. What comes back is valid Unicode of bounded length, whatever came.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import inspect as mi

from memlog.errors import InvalidParameter, shorten
from server.input.kinds import (
    INTEGER_MAX,
    INTEGER_MIN,
    Reader,
    bare,
    members,
    metadata,
    reader,
    suits,
)

Words = tuple[str, str | None]
Sizeable = mi.StrType | mi.DictType | mi.ListType

EMPTY = '"…"'
SKETCH_LEVELS_MAX = 4
SKETCH_CHARACTERS_MAX = 200
KEY_CHARACTERS_MAX = 64  # a longer key is no misspelling, and difflib is slow on long texts
KEYS_LISTED_MAX = 25
SIMILAR = 0.6

ALSO_CALLED: dict[str, tuple[str, ...]] = {
    "source": ("from",),
    "subject": ("from",),
    "target": ("to", "targetEntity", "into"),
    "object": ("to", "targetEntity"),
    "to": ("targetEntity",),
    "fromentity": ("from",),
    "sourceentity": ("from",),
    "toentity": ("to",),
    "targetentity": ("to",),
    "predicate": ("relationType",),
    "entityname": ("name",),
    "projectname": ("project", "name"),
    "text": ("content", "contents"),
    "fact": ("content", "contents"),
    "memory": ("content",),
    "facts": ("observations", "contents"),
    "observations": ("contents",),
    "contents": ("observations",),
    "oldcontent": ("observation",),
    "oldtext": ("observation",),
    "newobservation": ("newContent",),
    "entities": ("entityNames", "names"),
    "sources": ("names",),
    "id": ("memoryId", "old_memory_id", "observationId"),
    "memoryid": ("id",),
    "q": ("query",),
    "category": ("type", "entityType"),
    "labels": ("tags",),
    "k": ("limit",),
    "topk": ("limit",),
    "count": ("limit",),
    "session": ("threadId",),
    "sessionid": ("threadId",),
    "conversationid": ("threadId",),
    "conversation": ("threadId",),
}
"""Keys that models know from other servers, and what they are here. Offered, never taken: what stands
under a key that was not asked for must not be stored by a guess."""


# --- naming types and values -------------------------------------------------------------------


NAMES: dict[type[mi.Type], tuple[str, str]] = {
    mi.AnyType: ("any value", "values"),
    mi.BoolType: ("true or false", "booleans"),
    mi.IntType: ("an integer", "integers"),
    mi.FloatType: ("a number", "numbers"),
    mi.StrType: ("a string", "strings"),
    mi.StructType: ("an object", "objects"),
    mi.DictType: ("an object", "objects"),
}


def described(kind: mi.Type, plural: bool = False) -> str:
    """`kind` in words: "a string", "a list of strings or objects", 'one of "replace", "merge"'."""
    names = [_described(bare(each), plural) for each in members(kind)]
    return " or ".join(dict.fromkeys(names)) or "null"


def _described(kind: mi.Type, plural: bool) -> str:
    if isinstance(kind, mi.ListType):
        return "lists" if plural else f"a list of {described(kind.item_type, plural=True)}"
    if isinstance(kind, mi.LiteralType):
        return "one of " + ", ".join(quoted(each) for each in kind.values)
    fallback = type(kind).__name__.removesuffix("Type").lower()
    return NAMES.get(type(kind), (f"a {fallback}", f"{fallback}s"))[plural]


def shown(value: Any) -> Any:
    """`value` as it may stand in an error: short, and such that any JSON encoder takes it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, (str, bool, int, float, list, tuple, dict)):
        return shorten(value)
    return f"a {type(value).__name__}"


def quoted(value: Any) -> str:
    """`value` as JSON text, shortened."""
    return json.dumps(shown(value), ensure_ascii=False)


def given(value: Any) -> str:
    if isinstance(value, str):
        return f"the string {quoted(value)}"
    if value is None or isinstance(value, bool):
        return quoted(value)
    return f"the number {shown(value)}" if _written_out(value) else str(shown(value))


def _written_out(value: Any) -> bool:
    """Whether `value` is a number that an error shows digit by digit: others are described."""
    return isinstance(value, (int, float)) and not isinstance(shown(value), str)


def example(kind: mi.Type) -> str:
    """JSON text of a value of `kind`: its own example if it has one, else the smallest shape."""
    text = msgspec.json.encode(sketch(kind)).decode()
    return text if len(text) <= SKETCH_CHARACTERS_MAX else text[:SKETCH_CHARACTERS_MAX] + "…"


def sketch(kind: mi.Type, levels: int = SKETCH_LEVELS_MAX) -> Any:
    for examples in _examples(kind):
        return examples[0]
    kind = bare(next(iter(members(kind)), kind))
    if isinstance(kind, mi.LiteralType):
        return kind.values[0]
    if isinstance(kind, mi.ListType):
        return [sketch(kind.item_type, levels - 1)] if levels else []
    if isinstance(kind, mi.StructType):
        wanted = [each for each in kind.fields if each.required] if levels else []
        return {each.encode_name: sketch(each.type, levels - 1) for each in wanted}
    if isinstance(kind, (mi.IntType, mi.FloatType)):
        return next((each for each in (kind.ge, kind.le) if each is not None), 1)
    return {mi.BoolType: True, mi.DictType: {}, mi.NoneType: None}.get(type(kind), "…")


def _examples(kind: mi.Type) -> Iterator[list[Any]]:
    told = (each.extra_json_schema or {} for each in metadata(kind))
    return (each["examples"] for each in told if each.get("examples"))


def misread(read: Reader, text: str, path: str = "it") -> Words | None:
    """What `read` has to say against `text`, which stands at `path`."""
    try:
        read(text, path)
    except InvalidParameter as refused:
        return refused.problems[0].problem, refused.suggestion
    return None


def nearest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was most likely meant (misspelt, cut short, in another case, or said in
    the words of another server), or None."""
    if len(word) > KEY_CHARACTERS_MAX:
        return None
    wanted = _folded(word)
    for other in ALSO_CALLED.get(wanted, ()):
        if other in known:
            return other
    if len(word) == 1:
        return None
    folded = {_folded(each): each for each in reversed(known)}
    close = difflib.get_close_matches(wanted, folded, n=1, cutoff=SIMILAR)
    part = [
        each for each in folded if wanted and (each.startswith(wanted) or each.endswith(wanted))
    ]
    found = close or sorted(part, key=len)
    return folded[found[0]] if found else None


def _folded(word: str) -> str:
    return re.sub(r"[\W_]+", "", word).lower()


# --- one function for each kind of mistake -----------------------------------------------------


def wrong_type(kind: mi.Type, value: Any) -> Words:
    return f"expected {described(kind)}, got {given(value)}", _mended(kind, value)


def _mended(kind: mi.Type, value: Any) -> str | None:
    for each in sorted(map(bare, members(kind)), key=lambda each: not isinstance(each, mi.IntType)):
        if isinstance(each, mi.ListType) and suits(each.item_type, value):
            return f"Pass a list: [{_as_items(value, each.item_type)}]"
        if isinstance(each, mi.StrType) and isinstance(value, (int, float)):
            read = reader(kind)
            if read is not None and (unlike := misread(read, _inner(value))):
                return unlike[1]
            written = f": {quoted(_inner(value))}" if _written_out(value) else "."
            return f"Pass it in quotes{written}"
        if isinstance(each, mi.IntType) and isinstance(value, float) and math.isfinite(value):
            return f"Pass a whole number: {math.floor(value)} or {math.ceil(value)}."
    if isinstance(value, (list, dict)) and len(value) == 1:
        only = value[0] if isinstance(value, list) else next(iter(value.values()))
        if only is not None and suits(kind, only):
            return f"Pass what is in it, by itself: {_inner(only)}"
    sample, wanted = example(kind), described(kind)
    only = bare(next(iter(members(kind)), kind))
    if isinstance(only, (mi.IntType, mi.FloatType)) and (limits := _range(only)):
        wanted = f"{wanted} {limits}"
    return f"Pass {wanted}" + (f", for example {sample}." if sample != EMPTY else ".")


def _inner(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return "[…]" if isinstance(value, list) else "{…}"
    return quoted(value)


def _as_items(value: Any, item: mi.Type) -> str:
    """What to write in a list for `value`: where its items match a pattern, what does, each between commas."""
    pattern = getattr(bare(item), "pattern", None)
    if pattern is None or not isinstance(value, str) or re.search(pattern, value):
        return _inner(value)
    if len(value) > SKETCH_CHARACTERS_MAX:
        return example(item)
    parts = [_matching(part, pattern) for part in value.split(",") if part.strip()]
    fitting = [quoted(part) for part in parts if part is not None]
    return ",".join(fitting) if fitting and len(fitting) == len(parts) else example(item)


def missing(name: str, kind: mi.Type) -> Words:
    return "required, but missing", f"Add {quoted(name)}: {example(kind)}."


def unknown(key: str, near: str | None, known: Sequence[str]) -> Words:
    problem = f"unknown key '{shorten(key)}'"
    if near is not None:
        return problem, f"Did you mean '{near}'?"
    listed = ", ".join(f"'{each}'" for each in known[:KEYS_LISTED_MAX])
    return problem, f"Known keys: {listed}." if listed else "No keys are known here; leave it out."


def unwrapped(name: str, keys: Sequence[str]) -> Words:
    """The keys of one item were passed where the list of items belongs."""
    listed = ", ".join(f"'{each}'" for each in keys)
    item = ", ".join(f"{quoted(each)}: …" for each in keys)
    return f"{listed} belong in an item of '{name}'", f'Pass {{"{name}": [{{{item}}}]}}.'


def twice(name: str, first: str, second: str) -> Words:
    return f"given twice, as '{first}' and as '{second}'", f"Keep '{name}' only."


def lone_surrogate(text: str, position: int, what: str) -> Words:
    """`position` counts characters from 1, here and below."""
    problem = (
        f"{what}contains a lone surrogate U+{ord(text[position - 1]):04X} at character {position}"
    )
    return f"{problem}, which is not valid Unicode", "Remove it or send the full pair."


def too_long(kind: Sizeable, count: int) -> Words:
    unit, advice = _unit(kind)
    size = f"too long ({count} characters)" if not unit else f"too many {unit} ({count})"
    return f"{size}. Max {kind.max_length}.", advice


def too_short(kind: Sizeable, count: int, annotated: mi.Type, required: bool) -> Words:
    unit, _ = _unit(kind)
    size = f"too short ({count} characters)" if not unit else f"too few {unit} ({count})"
    sample = example(annotated)
    if sample == EMPTY:  # it stands for a text that nobody thought of, and is none to be sent
        return (
            f"{size}. Min {kind.min_length}.",
            f"Say something in it{'.' if required else ', or leave it out.'}",
        )
    return f"{size}. Min {kind.min_length}.", f"For example: {sample}."


def _unit(kind: Sizeable) -> tuple[str, str]:
    if isinstance(kind, mi.StrType):
        return "", "Shorten it, or split it up."
    if isinstance(kind, mi.DictType):
        return "keys", "Leave some out."
    return "items", "Split them over several calls."


def unmatched(text: str, pattern: str, annotated: mi.Type) -> Words:
    problem = f"{quoted(text)} does not match {pattern}"
    plain = _matching(text, pattern)
    if plain is not None:
        return problem, f'Pass "{plain}".'
    has_example = any(_examples(annotated))
    return problem, f"For example: {example(annotated)}." if has_example else None


def _matching(text: str, pattern: str) -> str | None:
    """`text` as a tag would be written, if that matches."""
    if not text.isascii() or len(text) > SKETCH_CHARACTERS_MAX:
        return None
    plain = re.sub(r"[^a-z0-9:_-]+", "-", text.lower()).strip("-")
    return plain if re.search(pattern, plain) else None


def not_one_of(values: Sequence[Any], value: Any) -> Words:
    problem = f"{given(value)} is not one of {', '.join(quoted(each) for each in values)}"
    texts = [each for each in values if isinstance(each, str)]
    near = nearest(value, texts) if isinstance(value, str) else None
    return problem, f'Did you mean "{near}"?' if near else f"Pass {_either(values)}."


def _either(values: Sequence[Any]) -> str:
    """The values as a choice: "a", "b" or "c"."""
    *others, last = (quoted(each) for each in values)
    return f"{', '.join(others)} or {last}" if others else last


def out_of_range(kind: mi.IntType | mi.FloatType, value: float) -> Words:
    return f"{shown(value)} is out of range", f"Pass {described(kind)} {_range(kind)}."


def _range(kind: mi.IntType | mi.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f"from {kind.ge} to {kind.le}"
    if kind.ge is not None:
        return f"at least {kind.ge}"
    return "" if kind.le is None else f"at most {kind.le}"


def not_finite(value: float) -> Words:
    return f"{shown(value)} is not a number that JSON has", "Pass a finite number, or leave it out."


def too_big(value: int, kind: mi.Type) -> Words:
    """What no type of number takes: `kind` is the one that stood there, or that of any value."""
    problem = f"{shown(value)} is too large"
    if isinstance(kind, mi.IntType):
        least = INTEGER_MIN if kind.ge is None else kind.ge
        return problem, f"Pass an integer from {least} to {kind.le or INTEGER_MAX}."
    if isinstance(kind, mi.FloatType):
        return problem, "Pass a smaller number."
    return problem, "Pass a smaller number, or write it as a string."


def too_deep(levels_max: int) -> Words:
    return f"nested deeper than {levels_max} levels", "Flatten it, or pass the inner part as text."
