"""Decisions by which an entity gets another name or type, or becomes part of another entity."""

from __future__ import annotations

from collections.abc import Iterator

from memlog.canonical import canonical
from memlog.closest import Suggestions
from memlog.commands import MergeEntities, RenameEntity
from memlog.decisions.names import exists_already, former_names, missing_entity, required_entity
from memlog.errors import EntityExists, Problem, Refusal, invalid_at, refuse
from memlog.events import (
    EntityMerged,
    EntityRenamed,
    EntityTypeChanged,
    Event,
    ObservationDeleted,
    ObservationMoved,
    RelationDeleted,
)
from memlog.rows import Entity
from memlog.state import State


def rename_entity(command: RenameEntity, state: State) -> Iterator[Event]:
    """Another name, another type, or both. Raises InvalidParameter for neither, EntityNotFound, EntityExists."""
    new_name, new_type = command.new_name, command.new_type
    if new_name is None and new_type is None:
        problem = "required, but missing, and so is newType"
        raise invalid_at("newName", problem, "Say the new name, a newType, or both.", None)
    refuse(_unfit_names(command, state))
    entity = required_entity(command.name, "name", state)
    if new_type is not None and new_type != entity.entity_type:
        yield EntityTypeChanged(entity.id, new_type)
    if new_name is not None and new_name != entity.name:
        yield from without_doubles(entity.name, new_name, state)
        yield EntityRenamed(entity.id, new_name)


def _unfit_names(command: RenameEntity, state: State) -> Iterator[Refusal]:
    entity_id = state.entity_id_of(command.name)
    if entity_id is None:
        yield missing_entity(command.name, "name", state)
    name = command.new_name
    if name is not None and state.entity_id_of(name) not in (None, entity_id):
        problem = exists_already(name, former_names([name], state))
        suggestion = "Call merge_entities to make one of the two, or choose another name."
        yield EntityExists, Problem("newName", problem, suggestion, name)


def merge_entities(command: MergeEntities, state: State) -> Iterator[Event]:
    near = Suggestions()
    refuse(
        missing_entity(name, path, state, near)
        for path, name in (
            *((f"names[{index}]", name) for index, name in enumerate(command.names)),
            ("into", command.into),
        )
        if state.entity_id_of(name) is None
    )
    for name in command.names:
        entity = required_entity(name, "names", state)
        into = required_entity(command.into, "into", state)
        if entity.id != into.id:
            yield from handed_over(entity, into, state)
            yield EntityMerged(entity.id, into.id)


def handed_over(entity: Entity, into: Entity, state: State) -> Iterator[Event]:
    """What happens before `entity` becomes part of `into`: its facts are moved, and what would be double goes."""
    for row in state.said(entity.id):
        if state.saying(into.id, row.content):
            yield ObservationDeleted(row.id)
        else:
            yield ObservationMoved(row.id, into.id)
    yield from without_doubles(entity.name, into.name, state)


def without_doubles(name: str, new_name: str, state: State) -> Iterator[Event]:
    """Deletes the relations of `name` that `new_name` has already, or that would lead to itself."""
    old, new = canonical(name), canonical(new_name)
    for row in state.relations_touching(name):
        ends = [canonical(end) for end in (row.source, row.target)]
        moved = [new if end == old else end for end in ends]
        loops = moved[0] == moved[1] and ends[0] != ends[1]
        twin = state.relation_between(moved[0], row.relation_type, moved[1])
        if loops or (twin is not None and twin.id != row.id):
            yield RelationDeleted(row.id)
