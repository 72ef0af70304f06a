"""The decisions: a command against the state, giving the events that make it true.

Pure: no clock, no input or output; ids, and the log where it is asked about, arrive in the context. `decide` is a
generator, and whoever drives it evolves each event before asking for the next; so a command sees its own effects
(what its first item created exists for its second) and the rule stands in one place. A request is
judged whole before its first event; a refused command yields nothing. A wish that is already true
yields no events: success with nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from memlog.blank import require_visible
from memlog.commands import (
    AddObservations,
    AnyCommand,
    ArchiveProject,
    CreateEntities,
    CreateMemory,
    CreateProject,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    ForgetMemory,
    MergeEntities,
    RenameEntity,
    RestoreProject,
    SaveMemory,
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.decisions import graph, memories, merging, saving, undoing
from memlog.errors import ProjectArchived, ProjectExists, ProjectNotFound
from memlog.events import Event, ProjectCreated, ProjectRestored
from memlog.events import ProjectArchived as ProjectWasArchived
from memlog.rows import Project
from memlog.state import State


def decide(command: AnyCommand, state: State, context: Context) -> Iterator[Event]:
    """The events that make `command` true. Raises a MemlogError where it is refused."""
    require_visible(command)
    match command:
        case CreateProject():
            return _create_project(command, state, context)
        case ArchiveProject():
            return _archive_project(state)
        case RestoreProject():
            return _restore_project(state)
    require_active(state.project())
    match command:
        case AddObservations():
            return graph.add_observations(command, state, context)
        case CreateEntities():
            return graph.create_entities(command, state, context)
        case CreateRelations():
            return graph.create_relations(command, state, context)
        case DeleteEntities():
            return graph.delete_entities(command, state)
        case DeleteObservations():
            return graph.delete_observations(command, state)
        case DeleteRelations():
            return graph.delete_relations(command, state)
        case SaveMemory():
            return saving.save_memory(command, state, context)
        case StoreMemory():
            return memories.store_memory(command, context)
        case SupersedeMemory():
            return memories.supersede_memory(command, state)
        case CreateMemory():
            return memories.create_memory(command, state, context)
        case RenameEntity():
            return merging.rename_entity(command, state)
        case MergeEntities():
            return merging.merge_entities(command, state)
        case UpdateObservation():
            return graph.update_observation(command, state, context)
        case ForgetMemory():
            return memories.forget_memory(command, state)
        case Undo():
            return undoing.undo(command, state, context)
        case _:
            assert_never(command)


def require_active(project: Project | None) -> Project:
    """The project, if it may be read and written. Raises ProjectNotFound or ProjectArchived."""
    if project is None:
        raise ProjectNotFound("This project does not exist any more")
    if project.status == "archived":
        raise ProjectArchived.named(project.name)
    return project


def _create_project(command: CreateProject, state: State, context: Context) -> Iterator[Event]:
    if state.project() is not None:
        raise ProjectExists(f"Project '{command.name}' exists already")
    yield ProjectCreated(context.new_id("prj"), command.name, command.description)


def _archive_project(state: State) -> Iterator[Event]:
    project = state.project()
    if project is not None and project.status == "archived":
        return  # true already: nothing to say
    require_active(project)
    yield ProjectWasArchived()


def _restore_project(state: State) -> Iterator[Event]:
    project = state.project()
    if project is not None and project.status == "archived":
        yield ProjectRestored()
