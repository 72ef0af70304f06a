"""What happened: immutable facts in the past tense, as they are stored.

The tag of an event is the name of its storage format and never changes its meaning. A new meaning
is a new struct with a new tag, and an upcast from the old one in `codec` (`Stored`). Old tags are read for ever.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

Id: TypeAlias = Annotated[str, "an id"]
"""A text that memlog made (`ids`), in distinction from what somebody wrote."""


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base: fields are stored by place, so a field may be added only at the end, with a default.

    None is part of a circle, and a replay makes millions: the collector of circles is spared them.
    """


class ProjectCreated(_Event, frozen=True, tag="project_created.v1"):
    project_id: Id
    name: str
    description: str


class ProjectArchived(_Event, frozen=True, tag="project_archived.v1"):
    pass


class ProjectRestored(_Event, frozen=True, tag="project_restored.v1"):
    pass


class EntityCreated(_Event, frozen=True, tag="entity_created.v1"):
    entity_id: Id
    name: str
    entity_type: str
    confidence: float = 1.0
    importance: float = 0.5


class EntityTypeChanged(_Event, frozen=True, tag="entity_type_changed.v1"):
    entity_id: Id
    entity_type: str


class EntityDeleted(_Event, frozen=True, tag="entity_deleted.v1"):
    """Its observations and relations were deleted by events of their own, just before."""

    entity_id: Id


class EntityRated(_Event, frozen=True, tag="entity_rated.v1"):
    entity_id: Id
    confidence: float
    importance: float


class EntityRenamed(_Event, frozen=True, tag="entity_renamed.v1"):
    """Its relations follow; the old name stays an alias."""

    entity_id: Id
    name: str


class EntityMerged(_Event, frozen=True, tag="entity_merged.v1"):
    """`entity_id` became part of `into`: its names are aliases of it, its relations are its relations.

    What would be double or lead from `into` to itself was deleted, and its observations were moved,
    by events of their own, just before.
    """

    entity_id: Id
    into: Id


class ObservationAdded(_Event, frozen=True, tag="observation_added.v1"):
    observation_id: Id
    entity_id: Id
    content: str
    confidence: float = 1.0
    importance: float = 0.5


class ObservationSuperseded(_Event, frozen=True, tag="observation_superseded.v1"):
    """`observation_id` with `content` is the next version of the observation `supersedes`."""

    observation_id: Id
    supersedes: Id
    content: str
    confidence: float = 1.0
    importance: float = 0.5


class ObservationDeleted(_Event, frozen=True, tag="observation_deleted.v1"):
    observation_id: Id


class ObservationMoved(_Event, frozen=True, tag="observation_moved.v1"):
    """To another entity, with its history."""

    observation_id: Id
    entity_id: Id


class RelationAdded(_Event, frozen=True, tag="relation_added.v1"):
    """An edge between two names; either end may be missing from the graph for now."""

    relation_id: Id
    source: str
    target: str
    relation_type: str
    importance: float = 0.7


class RelationDeleted(_Event, frozen=True, tag="relation_deleted.v1"):
    relation_id: Id


class MemoryStored(_Event, frozen=True, tag="memory_stored.v1"):
    """A fact or a record. `content` is a text or a JSON object."""

    memory_id: Id
    memory_type: str
    content: str | dict[str, Any]
    source: str
    confidence: float
    tags: tuple[str, ...] = ()


class MemoryMerged(_Event, frozen=True, tag="memory_merged.v1"):
    """The same record was saved again; `tags` and `confidence` are what it has from now on."""

    memory_id: Id
    tags: tuple[str, ...]
    confidence: float


class MemorySuperseded(_Event, frozen=True, tag="memory_superseded.v1"):
    memory_id: Id
    superseded_by: Id


class MemoryDeleted(_Event, frozen=True, tag="memory_deleted.v1"):
    memory_id: Id


class CommandUndone(_Event, frozen=True, tag="command_undone.v1"):
    """What the entries from `first` to `last` changed stands again as it was before them."""

    first: int
    last: int


class Erased(_Event, frozen=True, tag="erased"):
    """What happened here was erased for good, or lost with a damage of the file. Never written as an event: it is
    what reading gives."""

    lost: bool = False


Event: TypeAlias = (
    ProjectCreated
    | ProjectArchived
    | ProjectRestored
    | EntityCreated
    | EntityTypeChanged
    | EntityDeleted
    | EntityMerged
    | EntityRated
    | EntityRenamed
    | ObservationAdded
    | ObservationSuperseded
    | ObservationDeleted
    | ObservationMoved
    | RelationAdded
    | RelationDeleted
    | MemoryStored
    | MemoryMerged
    | MemorySuperseded
    | MemoryDeleted
    | CommandUndone
)

Happened: TypeAlias = Event | Erased
"""What an entry that was read says."""


def name_of(event: Happened) -> str:
    """That of its storage format, whatever its version: entity_created"""
    return str(type(event).__struct_config__.tag).partition(".")[0]
