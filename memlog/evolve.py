"""The only place that changes state: one entry of the log, applied to the tables.

Accepts everything `decide` ever produced, in the order in which it was appended. It does not judge,
does not read a clock and does not log; what a name or an id means was settled by `decide`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from memlog import rows as tables
from memlog.canonical import canonical
from memlog.codec import Entry
from memlog.decisions.restoring import restore
from memlog.events import (
    CommandUndone,
    EntityCreated,
    EntityDeleted,
    EntityMerged,
    EntityRated,
    EntityRenamed,
    EntityTypeChanged,
    Erased,
    MemoryDeleted,
    MemoryMerged,
    MemoryStored,
    MemorySuperseded,
    ObservationAdded,
    ObservationDeleted,
    ObservationMoved,
    ObservationSuperseded,
    ProjectArchived,
    ProjectCreated,
    ProjectRestored,
    RelationAdded,
    RelationDeleted,
)
from memlog.rows import Entity, Memory, Observation, Project, Relation, Status, encode_row
from memlog.state import State
from memlog.storage.tables import Timeline, place

_PRESENT = b"\x01"
_replace = msgspec.structs.replace


def evolve(timeline: Timeline, entry: Entry) -> None:
    """Applies one entry. The timeline remembers what was there before, under the entry's position."""
    timeline.move_to(entry.position)
    _Evolution(timeline, entry).apply()
    timeline.list_touched()


class _Evolution:
    def __init__(self, timeline: Timeline, entry: Entry) -> None:
        self._timeline = timeline
        self._state = State(timeline)
        self._entry = entry

    def apply(self) -> None:
        match self._entry.event:
            case ObservationAdded() as event:
                self._observation_added(event)
            case EntityCreated() as event:
                self._entity_created(event)
            case RelationAdded() as event:
                self._relation_added(event)
            case ObservationSuperseded() as event:
                self._observation_superseded(event)
            case ObservationDeleted() as event:
                self._observation_deleted(event)
            case RelationDeleted() as event:
                self._relation_deleted(event)
            case EntityTypeChanged() as event:
                self._change_entity(event.entity_id, entity_type=event.entity_type)
            case EntityDeleted() as event:
                self._entity_deleted(event)
            case EntityRated() as event:
                self._change_entity(
                    event.entity_id, confidence=event.confidence, importance=event.importance
                )
            case EntityRenamed() as event:
                self._entity_renamed(event)
            case EntityMerged() as event:
                self._entity_merged(event)
            case ObservationMoved() as event:
                self._observation_moved(event)
            case CommandUndone() as event:
                self._command_undone(event)
            case MemoryStored() as event:
                self._memory_stored(event)
            case MemoryMerged() as event:
                self._memory_merged(event)
            case MemorySuperseded() as event:
                self._memory_superseded(event)
            case MemoryDeleted() as event:
                self._retire_memory(event.memory_id, deleted_us=self._entry.time_us)
            case ProjectCreated() as event:
                self._project_created(event)
            case ProjectArchived():
                self._project_status("archived")
            case ProjectRestored():
                self._project_status("active")
            case Erased():
                pass
            case event:
                assert_never(event)

    # -- project

    def _project_created(self, event: ProjectCreated) -> None:
        now = self._entry.time_us
        row = Project(event.project_id, event.name, event.description, "active", now, now)
        self._timeline.put(tables.PROJECT_KEY, encode_row(row))

    def _project_status(self, status: Status) -> None:
        project = self._state.project()
        assert project is not None, "a project's log begins with its creation"
        row = _replace(project, status=status, updated_us=self._entry.time_us)
        self._timeline.put(tables.PROJECT_KEY, encode_row(row))

    # -- entities

    def _entity_created(self, event: EntityCreated) -> None:
        entry = self._entry
        row = Entity(
            id=event.entity_id,
            name=event.name,
            entity_type=event.entity_type,
            created_us=entry.time_us,
            updated_us=entry.time_us,
            born=entry.position,
            thread=entry.thread,
            confidence=event.confidence,
            importance=event.importance,
        )
        self._timeline.put(tables.entity_key(row.id), encode_row(row))
        self._timeline.put(tables.name_key(row.name), row.id.encode())

    def _change_entity(self, entity_id: str, **changes: object) -> None:
        entity = self._entity(entity_id)
        row = _replace(entity, updated_us=self._entry.time_us, **changes)
        if row != entity:
            self._timeline.put(tables.entity_key(entity_id), encode_row(row))

    def _entity_deleted(self, event: EntityDeleted) -> None:
        entity = self._entity(event.entity_id)
        self._timeline.delete(tables.entity_key(entity.id))
        for name in (entity.name, *entity.aliases):
            self._timeline.delete(tables.name_key(name))

    def _entity_renamed(self, event: EntityRenamed) -> None:
        entity = self._entity(event.entity_id)
        former = [name for name in (*entity.aliases, entity.name) if not _same(name, event.name)]
        self._reattach(entity.name, event.name)
        self._timeline.put(tables.name_key(event.name), entity.id.encode())
        self._change_entity(entity.id, name=event.name, aliases=tuple(former))

    def _entity_merged(self, event: EntityMerged) -> None:
        gone, into = self._entity(event.entity_id), self._entity(event.into)
        self._reattach(gone.name, into.name)
        for name in (gone.name, *gone.aliases):
            self._timeline.put(tables.name_key(name), into.id.encode())
        for row in self._state.retired_observations(gone.id):
            self._timeline.delete(tables.retired_key(gone.id, row.born))
            key = tables.retired_key(into.id, row.born)
            self._timeline.put(key, encode_row(_replace(row, entity_id=into.id)))
            self._timeline.put(tables.observation_index_key(row.id), key)
        self._timeline.delete(tables.entity_key(gone.id))
        self._change_entity(into.id, aliases=(*into.aliases, gone.name, *gone.aliases))

    def _entity(self, entity_id: str) -> Entity:
        entity = self._state.entity(entity_id)
        assert entity is not None, f"decide named an entity that does not live: {entity_id}"
        return entity

    # -- observations

    def _observation_moved(self, event: ObservationMoved) -> None:
        row = self._living(event.observation_id)
        self._lose(row)
        self._change_entity(row.entity_id)
        self._bear(_replace(row, entity_id=event.entity_id))
        self._change_entity(event.entity_id)

    def _observation_added(self, event: ObservationAdded) -> None:
        """The entity's own row stays as it is: see `State.updated_us`."""
        self._bear(self._version(event, event.entity_id))

    def _observation_superseded(self, event: ObservationSuperseded) -> None:
        old = self._living(event.supersedes)
        self._retire(old, superseded_by=event.observation_id)
        self._bear(self._version(event, old.entity_id, old.version + 1, old.id))
        self._change_entity(old.entity_id)

    def _version(
        self,
        event: ObservationAdded | ObservationSuperseded,
        entity_id: str,
        version: int = 1,
        supersedes: str | None = None,
    ) -> Observation:
        entry = self._entry
        return Observation(
            id=event.observation_id,
            entity_id=entity_id,
            content=event.content,
            created_us=entry.time_us,
            born=entry.position,
            version=version,
            supersedes=supersedes,
            superseded_by=None,
            deleted_us=None,
            thread=entry.thread,
            confidence=event.confidence,
            importance=event.importance,
        )

    def _observation_deleted(self, event: ObservationDeleted) -> None:
        old = self._living(event.observation_id)
        self._retire(old, deleted_us=self._entry.time_us)
        self._change_entity(old.entity_id)

    def _living(self, observation_id: str) -> Observation:
        old = self._state.observation(observation_id)
        assert old is not None, f"decide named an observation that is not there: {observation_id}"
        return old

    def _bear(self, row: Observation) -> None:
        key = tables.observation_key(row.entity_id, row.born)
        self._timeline.add(key, encode_row(row))
        self._timeline.put(tables.observation_index_key(row.id), key)
        self._timeline.add(_said_at(row), _PRESENT)

    def _lose(self, row: Observation) -> None:
        self._timeline.delete(tables.observation_key(row.entity_id, row.born))
        self._timeline.delete(_said_at(row))

    def _retire(self, row: Observation, **changes: object) -> None:
        key = tables.retired_key(row.entity_id, row.born)
        self._lose(row)
        self._timeline.put(key, encode_row(_replace(row, **changes)))
        self._timeline.put(tables.observation_index_key(row.id), key)

    # -- relations

    def _relation_added(self, event: RelationAdded) -> None:
        entry = self._entry
        self._attach(
            Relation(
                id=event.relation_id,
                source=event.source,
                target=event.target,
                relation_type=event.relation_type,
                created_us=entry.time_us,
                born=entry.position,
                thread=entry.thread,
                importance=event.importance,
            )
        )

    def _reattach(self, name: str, new_name: str) -> None:
        """Gives every relation at `name` to `new_name`."""
        for row in self._state.relations_touching(name):
            self._detach(row)
            source = new_name if _same(row.source, name) else row.source
            target = new_name if _same(row.target, name) else row.target
            self._attach(_replace(row, source=source, target=target))

    def _attach(self, row: Relation) -> None:
        edge = tables.edge_key(row.source, row.relation_type, row.target)
        self._timeline.put(tables.relation_key(row.id), encode_row(row))
        self._timeline.put(edge, row.id.encode())
        for key, end in tables.touching(row).items():
            self._timeline.put(key, end)

    def _relation_deleted(self, event: RelationDeleted) -> None:
        row = self._state.relation(event.relation_id)
        assert row is not None, f"decide named a relation that is not there: {event.relation_id}"
        self._detach(row)

    def _detach(self, row: Relation) -> None:
        self._timeline.delete(tables.relation_key(row.id))
        self._timeline.delete(tables.edge_key(row.source, row.relation_type, row.target))
        for key in tables.touching(row):
            self._timeline.delete(key)

    # -- memories

    def _memory_stored(self, event: MemoryStored) -> None:
        entry = self._entry
        row = Memory(
            id=event.memory_id,
            memory_type=event.memory_type,
            content=event.content,
            source=event.source,
            confidence=event.confidence,
            tags=event.tags,
            created_us=entry.time_us,
            updated_us=entry.time_us,
            born=entry.position,
            thread=entry.thread,
            supersedes=None,
            superseded_by=None,
            deleted_us=None,
        )
        self._put_memory(row)
        self._list(tables.listed_keys(row))

    def _memory_merged(self, event: MemoryMerged) -> None:
        old = self._memory(event.memory_id)
        now = self._entry.time_us
        row = _replace(old, tags=event.tags, confidence=event.confidence, updated_us=now)
        self._put_memory(row)
        known = set(tables.listed_keys(old))
        self._list(key for key in tables.listed_keys(row) if key not in known)

    def _memory_superseded(self, event: MemorySuperseded) -> None:
        self._retire_memory(event.memory_id, superseded_by=event.superseded_by)
        successor = self._memory(event.superseded_by)
        now = self._entry.time_us
        self._put_memory(_replace(successor, supersedes=event.memory_id, updated_us=now))

    def _retire_memory(self, memory_id: str, **changes: object) -> None:
        row = self._memory(memory_id)
        if row.active:
            for key in tables.listed_keys(row):
                self._timeline.delete(key)
        self._put_memory(_replace(row, updated_us=self._entry.time_us, **changes))

    def _list(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._timeline.put(key, _PRESENT)

    def _put_memory(self, row: Memory) -> None:
        self._timeline.put(tables.memory_key(row.id), encode_row(row))

    def _memory(self, memory_id: str) -> Memory:
        row = self._state.memory(memory_id)
        assert row is not None, f"decide named a memory that is not there: {memory_id}"
        return row

    # -- taking back

    def _command_undone(self, event: CommandUndone) -> None:
        before = 0 < event.first <= event.last < self._entry.position
        assert before, "decide undoes what has happened"
        rows, blocked = restore(event.first, event.last, self._state)
        assert not blocked, "decide saw to it that nothing stands in the way"
        for key, value in rows.items():
            if value is None:
                self._timeline.delete(key)
            else:
                self._timeline.put(key, value)


def _said_at(row: Observation) -> bytes:
    return tables.saying_key(row.entity_id, row.content) + place(row.born)


def _same(name: str, other: str) -> bool:
    return canonical(name) == canonical(other)
