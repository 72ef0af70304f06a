"""Decisions about the graph: entities, their observations, and the relations between names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import assert_never

import msgspec
from msgspec import UNSET, UnsetType

from memlog.canonical import canonical
from memlog.closest import Suggestions
from memlog.commands import (
    CONFIDENCE,
    IMPORTANCE,
    RELATION_IMPORTANCE,
    AddObservations,
    CreateEntities,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    EntityObservations,
    NewEntity,
    NewObservation,
    UpdateObservation,
)
from memlog.context import Context
from memlog.decisions.facts import Facts
from memlog.decisions.names import (
    CREATE_IT,
    exists_already,
    former_names,
    missing_entity,
    required_entity,
)
from memlog.decisions.superseding import Superseded, rated, supersede
from memlog.errors import (
    Conflict,
    EntityExists,
    ObservationNotFound,
    Problem,
    Refusal,
    refusal,
    refuse,
    shorten,
)
from memlog.events import (
    EntityCreated,
    EntityDeleted,
    EntityTypeChanged,
    Event,
    ObservationAdded,
    ObservationDeleted,
    RelationAdded,
    RelationDeleted,
)
from memlog.rows import Entity, Relation
from memlog.state import State

# -- entities


def create_entities(command: CreateEntities, state: State, context: Context) -> Iterator[Event]:
    if_exists = command.if_exists or context.if_exists
    if if_exists == "error":
        refuse(_existing(command, state))
    for items in _by_entity(command.entities, state):
        facts = chain.from_iterable(each.observations for each in items)
        item = msgspec.structs.replace(items[0], observations=tuple(facts))
        entity = state.entity_named(item.name)
        if entity is None:
            yield from _new_entity(item, context)
            continue
        match if_exists:
            case "replace" if not former_names((each.name for each in items), state):
                yield from _replace(entity, item, state, context)
            case "replace" | "merge":
                # Who replaces it by a former name does not know what it holds by now.
                yield from add_texts(entity.id, item.observations, state, context)
            case "skip" | "error":
                continue
            case _:
                assert_never(if_exists)


def _by_entity(items: Iterable[NewEntity], state: State) -> list[list[NewEntity]]:
    """Those of one entity together, in the order of the first of each, by whichever of its names."""
    found: dict[str, list[NewEntity]] = {}
    for item in items:
        of = state.entity_id_of(item.name) or canonical(item.name)
        found.setdefault(of, []).append(item)
    return list(found.values())


def _new_entity(item: NewEntity, context: Context) -> Iterator[Event]:
    entity_id = context.new_id("ent")
    yield EntityCreated(entity_id, item.name, item.entity_type)
    for content in _once(item.observations):
        yield ObservationAdded(context.new_id("obs"), entity_id, content)


def _replace(entity: Entity, item: NewEntity, state: State, context: Context) -> Iterator[Event]:
    """Keeps the observations that stay in their order, retires the others, adds what is new."""
    if entity.entity_type != item.entity_type:
        yield EntityTypeChanged(entity.id, item.entity_type)
    wanted = _once(item.observations)
    kept = 0
    for observation in state.observations(entity.id):
        if kept < len(wanted) and canonical(observation.content) == canonical(wanted[kept]):
            kept += 1
        else:
            yield ObservationDeleted(observation.id)
    for content in wanted[kept:]:
        yield ObservationAdded(context.new_id("obs"), entity.id, content)


def delete_entities(command: DeleteEntities, state: State) -> Iterator[Event]:
    for name in command.entity_names:
        entity = state.entity_named(name)
        if entity is None:
            continue
        for observation in state.observations(entity.id):
            yield ObservationDeleted(observation.id)
        for relation in state.relations_touching(entity.name):
            yield RelationDeleted(relation.id)
        yield EntityDeleted(entity.id)


def _existing(command: CreateEntities, state: State) -> Iterator[Refusal]:
    suggestion = 'Use add_observations to add to it, or pass "ifExists": "merge" or "replace".'
    former = former_names((item.name for item in command.entities), state)
    for index, item in enumerate(command.entities):
        if state.entity_id_of(item.name) is not None:
            problem = exists_already(item.name, former)
            yield EntityExists, Problem(f"entities[{index}].name", problem, suggestion, item.name)


# -- observations


def add_observations(command: AddObservations, state: State, context: Context) -> Iterator[Event]:
    refuse(_unfit_additions(command, state))
    for item in command.observations:
        entity_id = state.entity_id_of(item.entity_name)
        assert entity_id is not None, "every name was found a moment ago"
        for content in item.contents:
            if isinstance(content, str):
                yield from add_texts(entity_id, [content], state, context)
            else:
                yield from _add_observation(entity_id, content, state, context)


def _add_observation(
    entity_id: str, new: NewObservation, state: State, context: Context
) -> Iterator[Event]:
    facts = Facts(state, entity_id)
    old = None if new.supersedes is None else facts.find(new.supersedes)
    if old is not None:
        yield from supersede(old, new, facts, context)
    elif not facts.saying(new.content):
        yield ObservationAdded(context.new_id("obs"), entity_id, new.content, *rated(new))


def add_texts(
    entity_id: str,
    contents: Iterable[str],
    state: State,
    context: Context,
    confidence: float = CONFIDENCE,
    importance: float = IMPORTANCE,
) -> Iterator[Event]:
    """Those that the entity does not say yet."""
    for content in contents:
        if not state.saying(entity_id, content):
            new_id = context.new_id("obs")
            yield ObservationAdded(new_id, entity_id, content, confidence, importance)


def update_observation(
    command: UpdateObservation, state: State, context: Context
) -> Iterator[Event]:
    entity = required_entity(command.entity_name, "entityName", state)
    facts = Facts(state, entity.id)
    old = facts.find(command.observation)
    if old is None:
        superseded = Superseded(state)
        if superseded.by(command.new_content, command.observation, facts):
            return
        raise refusal([superseded.refusal(command.observation, "observation", facts)])
    new = NewObservation(
        content=command.new_content, confidence=old.confidence, importance=old.importance
    )
    yield from supersede(old, new, facts, context)


def delete_observations(command: DeleteObservations, state: State) -> Iterator[Event]:
    for item in command.deletions:
        entity_id = state.entity_id_of(item.entity_name)
        if entity_id is None:
            continue
        facts = Facts(state, entity_id)
        for wanted in item.observations:
            for row in facts.meant_by(wanted):
                yield ObservationDeleted(row.id)


def _unfit_additions(command: AddObservations, state: State) -> Iterator[Refusal]:
    successors: dict[str, str] = {}
    near, superseded = Suggestions(), Superseded(state)
    for index, item in enumerate(command.observations):
        path = f"observations[{index}]"
        entity = state.entity_named(item.entity_name)
        if entity is None:
            where = f"{path}.entityName"
            yield missing_entity(item.entity_name, where, state, near, far=CREATE_IT)
            continue
        texts: set[str] = set()
        for place, content in enumerate(item.contents):
            if isinstance(content, str) or content.supersedes is None:
                continue
            facts = Facts(state, entity.id)
            old = facts.find(content.supersedes)
            where = f"{path}.contents[{place}].supersedes"
            if old is None:
                texts = texts or texts_of(item)
                if superseded.by(content.content, content.supersedes, facts):
                    continue
                if canonical(content.supersedes) in texts:
                    yield _not_there_yet(content.supersedes, where)
                else:
                    yield superseded.refusal(content.supersedes, where, facts)
            elif canonical(content.content) != canonical(old.content):
                first = successors.setdefault(old.id, content.content)
                if canonical(first) != canonical(content.content):
                    yield _superseded_twice(content.supersedes, where, first)


def texts_of(item: EntityObservations) -> set[str]:
    """What facts it adds, as they are compared."""
    return {canonical(each if isinstance(each, str) else each.content) for each in item.contents}


def _superseded_twice(wanted: str, path: str, first: str) -> Refusal:
    problem = f"Observation {shorten(wanted)!r} is superseded by {shorten(first)!r} in this request"
    suggestion = "A fact has one newer version: pass what else is new without `supersedes`."
    return Conflict, Problem(path, problem, suggestion, shorten(wanted))


def _not_there_yet(wanted: str, path: str) -> Refusal:
    problem = f"Observation {shorten(wanted)!r} is not there yet: this request itself adds it"
    suggestion = (
        "Pass only the newer text, without `supersedes`; or add the old one by a call before."
    )
    return ObservationNotFound, Problem(path, problem, suggestion, shorten(wanted))


# -- relations


def create_relations(command: CreateRelations, state: State, context: Context) -> Iterator[Event]:
    if context.strict_relations:
        refuse(_loose_ends(command, state))
    for item in command.relations:
        yield from relate(
            item.source, item.relation_type, item.target, item.importance, state, context
        )


def relate(
    source: str,
    relation_type: str,
    target: str,
    importance: float | UnsetType,
    state: State,
    context: Context,
) -> Iterator[Event]:
    """The relation between what these names are now, unless it is there."""
    if state.relation_between(source, relation_type, target) is None:
        source, target = state.current_name(source), state.current_name(target)
        importance = RELATION_IMPORTANCE if importance is UNSET else importance
        yield RelationAdded(context.new_id("rel"), source, target, relation_type, importance)


def in_short(row: Relation) -> str:
    """Who does what to whom, for a message."""
    return f"{shorten(row.source)} {shorten(row.relation_type)} {shorten(row.target)}"


def importance_kept(row: Relation, given: float | UnsetType) -> str | None:
    """That a relation that is there was given an importance that it does not take."""
    if given in (UNSET, row.importance):
        return None
    return (
        f"'{in_short(row)}' exists with importance {row.importance:g}, which it keeps; {given:g} was given. "
        "To change it, delete the relation and create it again"
    )


def delete_relations(command: DeleteRelations, state: State) -> Iterator[Event]:
    for item in command.relations:
        relation = state.relation_between(item.source, item.relation_type, item.target)
        if relation is not None:
            yield RelationDeleted(relation.id)


def _loose_ends(command: CreateRelations, state: State) -> Iterator[Refusal]:
    near = Suggestions()
    for index, item in enumerate(command.relations):
        for end, name in (("from", item.source), ("to", item.target)):
            if state.entity_id_of(name) is None:
                path = f"relations[{index}].{end}"
                yield missing_entity(name, path, state, near, far=CREATE_IT)


def _once(contents: Iterable[str]) -> list[str]:
    """The texts in their order, exact repetitions dropped."""
    first: dict[str, str] = {}
    for content in contents:
        first.setdefault(canonical(content), content)
    return list(first.values())
