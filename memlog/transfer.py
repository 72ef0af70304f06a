"""In and out of the reference server's file: one JSON object a line, entities and relations.

    {"type":"entity","name":"Jon","entityType":"person","observations":["Likes dancing"]}
    {"type":"relation","from":"Jon","to":"Gina","relationType":"knows"}

A file that is one object {"entities": […], "relations": […]} is read too. Reading is strict: a file
with anything that cannot be kept is refused whole, with every line that is wrong. Importing goes
through ordinary commands that add what is missing, so an interrupted import is simply repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

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
from memlog.errors import InvalidParameter, Problem, refusal, shorten
from memlog.state import State

ITEMS_PER_COMMAND = 200


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


class _Whole(msgspec.Struct, frozen=True):
    entities: Sequence[dict[str, object]] | None = None
    relations: Sequence[dict[str, object]] | None = None


_line = msgspec.json.Decoder(EntityLine | RelationLine)
_encode = msgspec.json.Encoder().encode


def read(data: bytes, known: Callable[[str], bool] | None = None) -> list[Line]:
    """The lines of a file. Raises InvalidParameter with every line that cannot be kept.

    With `known`, which tells whether an entity is there already, a relation cannot be kept that leads to
    one that is neither there nor in the file.
    """
    found: list[tuple[int, Line]] = []
    problems = []
    for number, text in objects(data):
        try:
            found.append((number, _decoded(text)))
        except ValueError as error:
            shown = text[:80].decode("utf-8", "replace")
            problems.append(_unfit(number, str(error), "Mend the line or remove it.", shown))
    if known is not None:
        problems += _loose_ends(found, known)
    if problems:
        raise refusal([(InvalidParameter, problem) for problem in problems])
    return [line for _, line in found]


def _loose_ends(
    lines: Sequence[tuple[int, Line]], known: Callable[[str], bool]
) -> Iterator[Problem]:
    names = {canonical(line.name) for _, line in lines if isinstance(line, EntityLine)}
    for number, line in lines:
        for name in (line.source, line.target) if isinstance(line, RelationLine) else ():
            if canonical(name) not in names and not known(name):
                problem = f"Entity with name {shorten(name)} not found"
                yield _unfit(number, problem, "Add a line for it or remove this one.", name)


def _unfit(number: int, problem: str, suggestion: str, shown: str) -> Problem:
    return Problem(f"line {number}", problem, suggestion, shown)


def _decoded(text: bytes) -> Line:
    """Raises ValueError for what no tool would take either."""
    line: Line = _line.decode(text)
    for blank in blanks(line):
        raise ValueError(f"{blank.path}: {blank.problem}")
    for value in strings(msgspec.to_builtins(line)):
        control = CONTROL.search(value)
        if control is not None:
            problem, _ = control_character(value, control.start() + 1)
            raise ValueError(f"{shorten(value)!r} {problem}")
    return line


def objects(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each object of the file as JSON, with its line, or its number in a file that is one object."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        whole = msgspec.json.decode(data, type=_Whole)
    except msgspec.DecodeError:
        whole = _Whole()
    if whole != _Whole():
        _require_known_keys(data)
        tagged = [{"type": "entity", **item} for item in whole.entities or ()]
        tagged += [{"type": "relation", **item} for item in whole.relations or ()]
        yield from ((number, _encode(item)) for number, item in enumerate(tagged, 1))
        return
    for number, text in enumerate(data.splitlines(), 1):
        if text.strip():
            yield number, text


def _require_known_keys(data: bytes) -> None:
    """Raises InvalidParameter for a key beside those of `_Whole`: what it holds would be lost."""
    keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    expected = _Whole.__struct_fields__
    problems = [
        Problem(
            "the object",
            f"unknown key {shorten(key)!r}",
            did_you_mean(key, expected) or f"There are: {', '.join(expected)}.",
            shorten(key),
        )
        for key in keys
        if key not in expected
    ]
    if problems:
        raise refusal([(InvalidParameter, problem) for problem in problems])


def commands(lines: Sequence[Line]) -> Iterator[tuple[AnyCommand, int]]:
    """Commands that store the lines, each with the number of lines it finishes."""
    entities: list[NewEntity] = []
    size = finished = 0
    for line in lines:
        if not isinstance(line, EntityLine):
            continue
        for start in range(0, max(len(line.observations), 1), ITEMS_PER_COMMAND):
            part = line.observations[start : start + ITEMS_PER_COMMAND]
            entities.append(
                NewEntity(name=line.name, entity_type=line.entity_type, observations=part)
            )
            size += 1 + len(part)
            if size >= ITEMS_PER_COMMAND:
                yield CreateEntities(entities=entities, if_exists="merge"), finished
                entities, size, finished = [], 0, 0
        finished += 1
    if entities or finished:
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
