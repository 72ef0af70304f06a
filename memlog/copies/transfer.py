"""In and out of the reference server's file: one JSON object a line, entities and relations.

    {"type":"entity","name":"Jon","entityType":"person","observations":["Likes dancing"]}
    {"type":"relation","from":"Jon","to":"Gina","relationType":"knows"}

A file that is one object {"entities": […], "relations": […]}, or an array of such lines, is read too. Reading is
strict: a file with anything that cannot be kept is refused whole, with every line that is wrong. What is taken
otherwise than it stands there, `doubts` names. Importing goes through ordinary commands that add what is
missing, so an interrupted import is simply repeated.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import TypeVar

import msgspec
from msgspec import field

from memlog.blank import blanks
from memlog.canonical import canonical, strings
from memlog.closest import did_you_mean
from memlog.commands import (
    AnyCommand,
    Content,
    CreateEntities,
    CreateRelations,
    EntityName,
    NewEntity,
    NewRelation,
    TypeName,
)
from memlog.controls import CONTROL, control_character
from memlog.errors import InvalidParameter, Problem, invalid_at, refuse, shorten
from memlog.state import State

ITEMS_PER_COMMAND = 200
PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}
"""How a packed file begins, and what unpacks it."""
DATABASE = b"SQLite format 3\0"
"""How one begins in which other servers keep their memory."""
WIDE = {
    "UTF-32": re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff|[^\0]\0\0\0|\0\0\0[^\0]"),
    "UTF-16": re.compile(rb"\xff\xfe|\xfe\xff|[^\0]\0[^\0]|\0[^\0]\0"),
}
"""How a text begins of which each character takes more than a byte, with a mark or without."""
NEWLINE = b"\n"
_LISTS = re.compile(rb'\s*\{\s*"(entities|relations)"\s*:')
"""How an object with lists begins, be it damaged further on."""
LINES_LOOKED_AT = 100
"""How far the second line that says something is looked for."""

STRAY_KEYS_TOLD = 10
"""Of a line."""
MISSPELT = 0.8
"""How alike a key of a line is to one that it lacks, as difflib counts it, to be meant for that."""

Value = TypeVar("Value")
_BYTE = re.compile(r"\(byte (\d+)\)")


class EntityLine(
    msgspec.Struct, frozen=True, tag="entity", tag_field="type", forbid_unknown_fields=True
):
    name: EntityName
    entity_type: TypeName = field(name="entityType")
    observations: Sequence[Content] = ()


class RelationLine(
    msgspec.Struct, frozen=True, tag="relation", tag_field="type", forbid_unknown_fields=True
):
    source: EntityName = field(name="from")
    target: EntityName = field(name="to")
    relation_type: TypeName = field(name="relationType")


Line = EntityLine | RelationLine
Placed = tuple[str, Line]
"""A line and where it stands: `line 3`, or `entities[2]` in a file that is one value."""


class _Whole(msgspec.Struct, frozen=True):
    entities: Sequence[msgspec.Raw] | None = None
    relations: Sequence[msgspec.Raw] | None = None


_all_keys = json.JSONDecoder(
    object_pairs_hook=lambda pairs: [key for key, _ in pairs], parse_int=str
).decode
"""Of an object; msgspec drops one that stands there twice."""
_line = msgspec.json.Decoder(EntityLine | RelationLine)
_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def read(data: bytes, without: Collection[str] = ()) -> list[Placed]:
    """The lines of a file, each with its place, but for what stands under the keys `without`. Raises InvalidParameter
    with every line that cannot be kept."""
    found: list[Placed] = []
    problems = []
    for place, text in objects(data):
        try:
            found.append((place, _decoded(text, without)))
        except (ValueError, RecursionError) as error:
            shown = text[:80].decode("utf-8", "replace")
            mend = _advised(error, _mend(error, text, without))
            problems.append(Problem(place, _said(error, text), mend, shown))
    refuse((InvalidParameter, problem) for problem in problems)
    return found


def require_ends(lines: Sequence[Placed], state: State) -> None:
    """Raises InvalidParameter with every relation that would wait for an entity."""
    mend = "Add a line for it or remove this one."
    refuse(
        (
            InvalidParameter,
            Problem(place, f"Entity with name {shorten(name)} not found", mend, name),
        )
        for place, name in loose_ends(lines, state)
    )


def loose_ends(lines: Sequence[Placed], state: State) -> Iterator[tuple[str, str]]:
    """Each end of a relation that is no entity, there or among the lines, and where it stands."""
    names = {canonical(line.name) for _, line in lines if isinstance(line, EntityLine)}
    for place, line in lines:
        for name in (line.source, line.target) if isinstance(line, RelationLine) else ():
            if canonical(name) not in names and state.entity_id_of(name) is None:
                yield place, name


def _decoded(text: bytes, without: Collection[str]) -> Line:
    """Raises ValueError for what no tool would take either."""
    line: Line = _line.decode(_reduced(text, without) if without else text)
    for key in _repeated(_keys(text)):
        raise ValueError(f"the key {shorten(key)!r} stands there twice")
    for blank in blanks(line):
        raise ValueError(f"{blank.path}: {blank.problem}")
    for value in strings(msgspec.to_builtins(line)):
        control = CONTROL.search(value)
        if control is not None:
            problem, _ = control_character(value, control.start() + 1)
            raise ValueError(f"{shorten(value)!r} {problem}")
    return line


def _reduced(text: bytes, without: Collection[str]) -> bytes:
    """An object without some of its keys. Raises ValueError."""
    values = _values(text)
    return _encode({key: value for key, value in values.items() if key not in without})


def _mend(error: Exception, text: bytes, without: Collection[str]) -> str:
    """What to do about a line. One with a key that another server adds is not to be removed for it."""
    said, mend = str(error), "Mend the line or remove it."
    if said.startswith("JSON is malformed: trailing characters"):
        return f"Is what stands behind that byte a line of its own? {mend}"
    if not said.startswith("Object contains unknown field"):
        return mend
    try:
        values = _values(text)
    except (ValueError, RecursionError):  # further on more is wrong
        return mend
    kind = EntityLine if msgspec.json.decode(values["type"]) == "entity" else RelationLine
    known = ["type", *(field.encode_name for field in msgspec.structs.fields(kind))]
    strays = [key for key in values if key not in known and key not in without]
    if not strays:  # it says twice, and otherwise, what it is
        return mend
    near = get_close_matches(strays[0], set(known).difference(values), n=1, cutoff=MISSPELT)
    if near:
        return f"Did you mean '{near[0]}'? {mend}"
    required = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
    lacking = [key for key in known if key in required.difference(values)]
    if lacking:  # left out, what is needed would still not be there
        lacks = " and no ".join(map(repr, lacking))
        return f"There is no {lacks} in it: does it stand there under another key? {mend}"
    options = " ".join(f"--without {shlex.quote(shorten(key))}" for key in strays[:STRAY_KEYS_TOLD])
    return f"There is no place for what it says: take it out there, or everywhere by {options}."


def objects(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each object of the file as JSON, with its place. Raises InvalidParameter for a file that is no such thing."""
    _require_text(data)
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = [line.strip() for line in data.splitlines()]
    begins = [line for line in lines[:LINES_LOOKED_AT] if line][:2]
    if begins and begins[0].startswith(b"["):
        items = _value(data, list[msgspec.Raw])
        yield from ((f"[{index}]", bytes(item)) for index, item in enumerate(items))
        return
    over_lines = len(begins) == 2 and begins[0] == b"{" and begins[1].startswith(b'"')
    as_one = over_lines or _LISTS.match(data) is not None
    try:
        whole = _value(data, _Whole)
    except InvalidParameter:
        if as_one:
            raise
        whole = _Whole()
    if as_one or whole != _Whole():
        _require_known_keys(data)
        for kind, name, found in (
            ("entity", "entities", whole.entities),
            ("relation", "relations", whole.relations),
        ):
            for index, item in enumerate(found or ()):
                yield f"{name}[{index}]", _typed(kind, bytes(item))
        return
    for number, line in enumerate(lines, 1):
        if line:
            yield f"line {number}", line


def _typed(kind: str, item: bytes) -> bytes:
    """An object that stands in a list of this kind, saying so itself. One that is none is told of where it is read."""
    try:
        keys = _values(item)
    except (ValueError, RecursionError):
        return item
    if "type" in keys:
        return item
    begin = b'{"type":"%b"' % kind.encode()
    return b"%b,%b" % (begin, item[1:]) if keys else begin + b"}"


def _keys(data: bytes) -> list[str]:
    """Those of one JSON object as they stand there."""
    keys: list[str] = _all_keys(data.decode("utf-8", "replace"))
    return keys


def _repeated(keys: list[str]) -> list[str]:
    """Those that stand there more than once: of the values a parser would keep the last and lose the others."""
    if len(set(keys)) == len(keys):
        return []
    return [key for key, count in Counter(keys).items() if count > 1]


def _require_text(data: bytes) -> None:
    """Raises InvalidParameter for a file whose text is packed, in another encoding or in a database."""
    for begin, name in PACKED.items():
        if data.startswith(begin):
            raise invalid_at("the file", f"it is packed by {name}", "Unpack it first.")
    if data.startswith(DATABASE):
        mend = "Write what it holds as JSON: docs/migration.md has an example."
        raise invalid_at("the file", "it is a SQLite database", mend)
    for name, begins in WIDE.items():
        if begins.match(data):
            raise invalid_at("the file", f"it is {name}", "Save it as UTF-8.")


def _value(data: bytes, kind: type[Value]) -> Value:
    """The file as one JSON value. Raises InvalidParameter with the line that is wrong, where that can be told."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError) as error:
        at = _BYTE.search(str(error))
        end = len(data) if at is None else int(at[1])
        told = at is not None or "truncated" in str(error)
        place = f"line {data[:end].count(NEWLINE) + 1}" if told else "the file"
        mend = _advised(error, "Mend it there: the file is one JSON value.")
        raise invalid_at(place, _said(error, data), mend) from error


def _said(error: Exception, data: bytes) -> str:
    """What is wrong. Half a surrogate pair right before its end makes msgspec call whole JSON truncated."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8: no character is written with byte 0x{error.object[error.start]:02x} there"
    if "truncated" not in str(error):
        return str(error)
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return str(error)
    return "JSON is malformed: unexpected end of escaped utf-16 surrogate pair"


def _advised(error: Exception, mend: str) -> str:
    if not isinstance(error, UnicodeDecodeError):
        return mend
    return f"Save the file as UTF-8. Is it in this place alone? {mend}"


def _require_known_keys(data: bytes) -> None:
    """Raises InvalidParameter for a key beside those of `_Whole`, or one that stands there twice: what it holds would
    be lost."""
    try:
        keys = _keys(data)
    except RecursionError as error:
        raise invalid_at("the file", str(error)) from error
    expected = _Whole.__struct_fields__
    if not set(keys).intersection(expected):  # of one that is something else no key is misspelt
        mend = "docs/migration.md tells how what another server keeps is brought along."
        raise invalid_at("the object", f"it has no {' and no '.join(expected)}", mend)
    problems = [
        Problem("the object", f"the key {key!r} stands there twice", "Put both lists in one.", key)
        for key in _repeated(keys)
        if key in expected
    ]
    problems += [
        Problem(
            "the object",
            f"unknown key {shorten(key)!r}",
            did_you_mean(key, expected) or f"There are: {', '.join(expected)}.",
            shorten(key),
        )
        for key in dict.fromkeys(keys)
        if key not in expected
    ]
    refuse((InvalidParameter, problem) for problem in problems)


def commands(lines: Sequence[Line]) -> Iterator[tuple[AnyCommand, int]]:
    """Commands that store the lines, each with the number of lines it finishes."""
    entities: list[NewEntity] = []
    size = finished = 0
    for line in lines:
        if not isinstance(line, EntityLine):
            continue
        starts = range(0, max(len(line.observations), 1), ITEMS_PER_COMMAND)
        for start in starts:
            part = line.observations[start : start + ITEMS_PER_COMMAND]
            entities.append(
                NewEntity(name=line.name, entity_type=line.entity_type, observations=part)
            )
            size += 1 + len(part)
            finished += start == starts[-1]
            if size >= ITEMS_PER_COMMAND:
                yield CreateEntities(entities=entities, if_exists="merge"), finished
                entities, size, finished = [], 0, 0
    if entities:
        yield CreateEntities(entities=entities, if_exists="merge"), finished
    relations = [
        NewRelation(source=line.source, target=line.target, relation_type=line.relation_type)
        for line in lines
        if isinstance(line, RelationLine)
    ]
    for start in range(0, len(relations), ITEMS_PER_COMMAND):
        chunk = relations[start : start + ITEMS_PER_COMMAND]
        yield CreateRelations(relations=chunk), len(chunk)


def write(state: State) -> Iterator[bytes]:
    """The lines of the file that says what the state says, each ending in a newline."""
    for entity in state.entities():
        observations = [row.content for row in state.observations(entity.id)]
        yield _encode(EntityLine(entity.name, entity.entity_type, observations)) + b"\n"
    for relation in state.relations():
        yield (
            _encode(RelationLine(relation.source, relation.target, relation.relation_type)) + b"\n"
        )
