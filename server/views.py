"""How rows of the state look in an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from msgspec import Meta, field

from memlog import state
from memlog.codec import Entry
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
