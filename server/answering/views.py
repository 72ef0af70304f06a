"""How rows of the state look in an answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from memlog import rows
from memlog.codec import Entry
from memlog.commands import RELATION_IMPORTANCE
from memlog.errors import DamagedLog
from memlog.state import State
from memlog.times import iso
from server.registry import Result

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
    """`importance` is told where it is not that of most relations, 0.7."""

    id: str
    source: str = field(name="from")
    target: str = field(name="to")
    relation_type: str = field(name="relationType")
    importance: float | None = None
    provenance: Provenance | None = None


class ProjectView(Result, frozen=True):
    """Spelt as clients of other memory servers know it, in snake_case."""

    id: str
    name: str
    description: str
    status: str
    created_at: str
    updated_at: str


def view_provenance(
    row: rows.Entity | rows.Observation | rows.Relation | rows.Memory, blamed: State | None
) -> Provenance | None:
    """Which event brought it, as the log says that the state came with; None where nobody is `blamed`, or that entry is
    damaged."""
    try:
        entry: Entry | None = None if blamed is None else blamed.entry_at(row.born)
    except DamagedLog:
        return None
    if entry is None:
        return None
    return Provenance(
        id=row.id,
        position=row.born,
        time=iso(entry.time_us),
        command=entry.command_id,
        thread=entry.thread,
        actor=entry.actor,
    )


def view_relation(row: rows.Relation, blamed: State | None = None) -> RelationView:
    return RelationView(
        id=row.id,
        source=row.source,
        target=row.target,
        relation_type=row.relation_type,
        importance=None if row.importance == RELATION_IMPORTANCE else row.importance,
        provenance=view_provenance(row, blamed),
    )


def view_project(row: rows.Project) -> ProjectView:
    return ProjectView(
        id=row.id,
        name=row.name,
        description=row.description,
        status=row.status,
        created_at=iso(row.created_us),
        updated_at=iso(row.updated_us),
    )
