"""How rows of the state look in an answer, and the cursors that lead on from a long one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, field

from memlog import state
from memlog.codec import Entry
from memlog.errors import InvalidParameter, Problem, invalid_at, refusal, shorten
from memlog.state import State
from memlog.times import iso
from server.registry import Result
from server.wording import READ

MARK_BYTES = 6
ARGUMENT_BYTES = 2

FREE = frozenset({"project", "limit", "cursor", "provenance"})
"""Arguments that may be others on each page: nothing stands elsewhere for them. The mark knows the project."""


Blame = Annotated[bool, Meta(description="Tell which event brought each item")]
"""The argument `provenance`, of every tool whose answer can tell."""


class Provenance(Result, frozen=True):
    """Which event brought something: `id` is the thing, `position` the event in the log."""

    id: str
    position: int
    time: str
    command: str
    thread: str | None = None
    actor: str | None = None


class EntityView(Result, frozen=True):
    """`aliases` are names it had before, under which it is still found. Of one that is too long for an answer,
    so many observations, relations and aliases are left out of it."""

    id: str
    name: str
    entity_type: str = field(name="entityType")
    observations: list[str]
    created_at: str = field(name="createdAt")
    updated_at: str = field(name="updatedAt")
    aliases: list[str] | None = None
    provenance: list[Provenance] | None = None
    observations_left_out: int = field(name="observationsLeftOut", default=0)
    relations_left_out: int = field(name="relationsLeftOut", default=0)
    aliases_left_out: int = field(name="aliasesLeftOut", default=0)


class RelationView(Result, frozen=True):
    id: str
    source: str = field(name="from")
    target: str = field(name="to")
    relation_type: str = field(name="relationType")
    provenance: Provenance | None = None


class ProjectView(Result, frozen=True):
    """Spelt as seed clients know it, in snake_case."""

    id: str
    name: str
    description: str
    status: str
    created_at: str
    updated_at: str


def view_provenance(thing_id: str, position: int, current: State) -> Provenance | None:
    """Which event brought a thing, read from the log that the state came with."""
    entry: Entry | None = current.entry_at(position)
    if entry is None:
        return None
    return Provenance(
        id=thing_id,
        position=position,
        time=iso(entry.time_us),
        command=entry.command_id,
        thread=entry.thread,
        actor=entry.actor,
    )


View = TypeVar("View", bound=EntityView)


def view_entity(row: state.Entity, current: State, *, blame: bool = False) -> EntityView:
    """The entity with its facts; with `blame`, who brought it and each fact, in that order."""
    facts = current.observations(row.id)
    return view_entity_as(EntityView, row, facts, current if blame else None)


def view_entity_as(
    kind: type[View],
    row: state.Entity,
    facts: Sequence[state.Observation],
    blamed: State | None = None,
    updated_us: int | None = None,
    **more: Any,
) -> View:
    """The same in a form that tells `more`, of some of its `facts`; who brought them, with the state that says so.
    `updated_us` is given where `facts` are not all of them."""
    if blamed is not None:
        things: list[state.Entity | state.Observation] = [row, *facts]
        brought = [view_provenance(each.id, each.born, blamed) for each in things]
        more["provenance"] = [each for each in brought if each is not None] or None
    if row.aliases:
        more.setdefault("aliases", list(row.aliases))
    changed_us = state.updated_us(row, facts) if updated_us is None else updated_us
    return kind(
        id=row.id,
        name=row.name,
        entity_type=row.entity_type,
        observations=[fact.content for fact in facts],
        created_at=iso(row.created_us),
        updated_at=iso(changed_us),
        **more,
    )


def view_relation(
    row: state.Relation, current: State | None = None, *, blame: bool = False
) -> RelationView:
    return RelationView(
        id=row.id,
        source=row.source,
        target=row.target,
        relation_type=row.relation_type,
        provenance=view_provenance(row.id, row.born, current) if blame and current else None,
    )


def view_project(row: state.Project) -> ProjectView:
    return ProjectView(
        id=row.id,
        name=row.name,
        description=row.description,
        status=row.status,
        created_at=iso(row.created_us),
        updated_at=iso(row.updated_us),
    )


Cursor = TypeVar("Cursor", bound=msgspec.Struct)


def write_cursor(cursor: msgspec.Struct, project_id: str, arguments: msgspec.Struct) -> str:
    """`arguments` are those of the call that the cursor leads on from."""
    given = _given(arguments)
    data = _mark(type(cursor), project_id, given) + b"".join(map(_digest, given.values()))
    data += msgspec.msgpack.encode(cursor)
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def read_cursor(
    text: str, wanted: type[Cursor], project_id: str, arguments: msgspec.Struct
) -> Cursor:
    """Raises InvalidParameter for what no answer ever gave out, one of another tool or project, or one that was given
    out for other arguments."""
    given = _given(arguments)
    digests = MARK_BYTES + ARGUMENT_BYTES * len(given)
    data = _data(text)
    try:
        if not data.startswith(_mark(wanted, project_id, given)):
            raise ValueError("positions and ids mean something else there")
        decoded: Any = msgspec.msgpack.decode(data[digests:], type=wanted)
    except (ValueError, msgspec.DecodeError) as error:
        raise _no_cursor(text) from error
    _require_same(given, data[MARK_BYTES:digests])
    return decoded  # type: ignore[no-any-return]


def _data(text: str, path: str = "cursor") -> bytes:
    """What a cursor says. Raises InvalidParameter for a text that can be none of any tool."""
    try:
        data = base64.urlsafe_b64decode((text + "=" * (-len(text) % 4)).encode())
    except ValueError:
        data = b""
    if len(data) < MARK_BYTES:
        raise _no_cursor(text, path)
    return data


def _no_cursor(text: str, path: str = "cursor") -> InvalidParameter:
    problem = "not a cursor that an answer of this tool gave out for this project"
    suggestion = "Pass `nextCursor` of the answer before, unchanged, or leave it out."
    return invalid_at(path, problem, suggestion, shorten(text))


CursorText = Annotated[str, Meta(extra={READ: _data})]
"""The argument `cursor`."""


def _require_same(given: dict[str, Any], digests: bytes) -> None:
    problems = [
        Problem(
            name,
            f"{name} is not what it was in the call that gave out this cursor",
            "Send the same arguments as before with the cursor, or leave the cursor out.",
            shorten(value),
        )
        for at, (name, value) in enumerate(given.items())
        if not digests.startswith(_digest(value), at * ARGUMENT_BYTES)
        if not (name == "asOf" and value is None)  # the cursor knows the moment
    ]
    if problems:
        raise refusal([(InvalidParameter, problem) for problem in problems])


def _given(arguments: msgspec.Struct) -> dict[str, Any]:
    """What is the same on every page, as a client spells it."""
    kind = type(arguments)
    names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    return {told: getattr(arguments, name) for name, told in names if name not in FREE}


def _digest(value: Any) -> bytes:
    return blake2b(msgspec.json.encode(value), digest_size=ARGUMENT_BYTES).digest()


def _mark(kind: type[msgspec.Struct], project_id: str, given: dict[str, Any]) -> bytes:
    """What the cursors of one tool for one project begin with."""
    told = " ".join([kind.__name__, project_id, *given])
    return blake2b(told.encode(), digest_size=MARK_BYTES).digest()
