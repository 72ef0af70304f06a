"""Decisions about `save_memory`: entities saved whole, with their facts and their relations, or not at all.

A language model skips steps; so what makes a graph useful (one fact per observation, no entity without
a relation) is required here, and every problem of a request is reported at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from memlog.blank import is_blank
from memlog.canonical import canonical, characters
from memlog.closest import Suggestions
from memlog.commands import (
    SAVED_NAME_MAX,
    SAVED_OBSERVATION_MAX,
    SAVED_OBSERVATION_MIN,
    SAVED_RELATION_TYPE_MAX,
    SAVED_TYPE_MAX,
    SavedEntity,
    SavedRelation,
    SaveMemory,
)
from memlog.context import Context
from memlog.decisions.graph import add_texts, relate
from memlog.decisions.names import pass_its_name
from memlog.decisions.superseding import rated
from memlog.errors import InvalidParameter, Problem, refuse, shorten
from memlog.events import EntityCreated, EntityRated, Event
from memlog.state import State

SENTENCES_MAX = 2
SPLIT_SHOWN = 10

EXAMPLES = {"Name": "Ann", "Entity type": "Person", "Relation type": "works at"}

_SOUND = {
    "entityType": "Person",
    "observations": ["Works at Acme"],
    "relations": [{"targetEntity": "Acme", "relationType": "works at"}],
}
"""What nothing is said against, in the place of what has no right form."""

_SENTENCE_END = re.compile(r"[.!?]+(?=\s|$)")
_CLAUSE_END = re.compile(r"(?<=[.!?;])\s+|,\s+(?:and\s+)?|\s+(?:and|which|with)\s+")


def save_memory(command: SaveMemory, state: State, context: Context) -> Iterator[Event]:
    refuse((InvalidParameter, problem) for problem in _problems(command.entities, state))
    for item in command.entities:
        yield from _save_entity(item, state, context)
    for item in command.entities:
        for relation in item.relations:
            target, kind = relation.target_entity, relation.relation_type
            yield from relate(item.name, kind, target, relation.importance, state, context)


def _save_entity(item: SavedEntity, state: State, context: Context) -> Iterator[Event]:
    entity = state.entity_named(item.name)
    if entity is None:
        entity_id = context.new_id("ent")
        yield EntityCreated(entity_id, item.name, stored_type(item.entity_type), *rated(item))
    else:
        entity_id, before = entity.id, (entity.confidence, entity.importance)
        if (now := rated(item, *before)) != before:
            yield EntityRated(entity_id, *now)
    yield from add_texts(entity_id, item.observations, state, context, *rated(item))


def stored_type(entity_type: str) -> str:
    """The type as it is stored: its first letter a capital."""
    return entity_type[:1].upper() + entity_type[1:]


# -- what is refused


def _problems(entities: Sequence[SavedEntity], state: State) -> Iterator[Problem]:
    names = dict.fromkeys(canonical(item.name) for item in entities)
    near = Suggestions()
    for index, item in enumerate(entities):
        path = f"entities[{index}]"
        yield from _by_itself(item, f"{path}.", entities)
        for place, relation in enumerate(item.relations):
            target_path = f"{path}.relations[{place}].targetEntity"
            yield from _target_problems(relation, target_path, item, names, state, near)


def unsound(given: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """What is wrong by itself with an entity of which only the fields `given` have the right form, by their names on
    the wire. What its relations lead to is not looked at."""
    if "name" in given:
        item = msgspec.convert({**_SOUND, **given}, SavedEntity)
        yield from _by_itself(item, f"{path}." if path else "", ())


def _by_itself(
    item: SavedEntity, prefix: str, entities: Sequence[SavedEntity]
) -> Iterator[Problem]:
    """`prefix` is what its places begin with; `entities` are those of the request, to name another as an example."""
    yield from _length(item.name, f"{prefix}name", item, "Name", SAVED_NAME_MAX)
    yield from _length(item.entity_type, f"{prefix}entityType", item, "Entity type", SAVED_TYPE_MAX)
    if not item.observations:
        suggestion = 'Add a fact, as in "observations": ["Works at Acme"].'
        yield _said(item, f"{prefix}observations", "must have at least 1 observation", suggestion)
    for place, text in enumerate(item.observations):
        yield from _observation_problems(text, f"{prefix}observations[{place}]", item)
    if not item.relations:
        other = next((each.name for each in entities if each.name != item.name), "…")
        example = f"{{ targetEntity: '{shorten(other)}', relationType: 'relates to' }}"
        suggestion = f"Add relations to show connections: e.g., {example}"
        yield _said(item, f"{prefix}relations", "must have at least 1 relation", suggestion)
    for place, relation in enumerate(item.relations):
        type_path = f"{prefix}relations[{place}].relationType"
        yield from _length(
            relation.relation_type, type_path, item, "Relation type", SAVED_RELATION_TYPE_MAX
        )


def _observation_problems(text: str, path: str, item: SavedEntity) -> Iterator[Problem]:
    count, sentences = characters(text), sentence_count(text)
    found = []
    if count > SAVED_OBSERVATION_MAX:
        found.append(f"Observation too long ({count} chars). Max {SAVED_OBSERVATION_MAX}.")
    if sentences > SENTENCES_MAX:
        found.append(
            f"Too many sentences ({sentences}). Max {SENTENCES_MAX}. One fact per observation."
        )
    for problem in found:
        yield Problem(path, problem, _split(text), shorten(text), item.name)
    if count < SAVED_OBSERVATION_MIN:
        problem = f"Observation too short ({count} chars). Min {SAVED_OBSERVATION_MIN}."
        suggestion = "Say the fact in full, as in 'Works at Acme'."
        yield Problem(path, problem, suggestion, text, item.name)
    elif is_blank(text):
        suggestion = "Say a fact, as in 'Works at Acme'."
        yield Problem(path, "Observation is empty", suggestion, shorten(ascii(text)), item.name)


def _target_problems(
    relation: SavedRelation,
    path: str,
    item: SavedEntity,
    names: Collection[str],
    state: State,
    near: Suggestions,
) -> Iterator[Problem]:
    target = relation.target_entity
    if canonical(target) not in names and state.entity_id_of(target) is None:
        found = pass_its_name(target, state) or near.did_you_mean(
            target, State, lambda: dict.fromkeys(map(canonical, (*names, *state.names())))
        )
        suggestion = (
            f"{found or 'Add that entity to `entities`.'} targetEntity must name an entity in the "
            "same save_memory call, or one that is in memory"
        )
        problem = f"Target entity '{shorten(target)}' not found in request"
        yield Problem(path, problem, suggestion, shorten(target), item.name)


def _length(text: str, path: str, item: SavedEntity, what: str, most: int) -> Iterator[Problem]:
    count = characters(text)
    if count > most:
        problem = f"{what} too long ({count} chars). Max {most}."
        yield Problem(
            path,
            problem,
            "Shorten it; details belong in observations.",
            shorten(text),
            shorten(item.name),
        )
    elif is_blank(text):
        problem, suggestion = f"{what} is empty", f"For example: {json.dumps(EXAMPLES[what])}."
        yield Problem(path, problem, suggestion, text, shorten(item.name))


def _said(item: SavedEntity, path: str, problem: str, suggestion: str) -> Problem:
    name = shorten(item.name)
    return Problem(path, f"Entity '{name}' {problem}", suggestion, None, name)


def sentence_count(text: str) -> int:
    """A sentence ends at '.', '!' or '?' before white space or the end; so `1.2.0` ends none."""
    return sum(1 for part in _SENTENCE_END.split(text) if part.strip())


def _split(text: str) -> str:
    parts = [part.strip(" .,;") for part in _CLAUSE_END.split(text)]
    shown = [part for part in parts if part]
    fit = all(SAVED_OBSERVATION_MIN <= characters(part) <= SAVED_OBSERVATION_MAX for part in shown)
    if len(shown) < 2 or not fit:
        return "Say each fact in an observation of its own, in fewer words."
    listed = ", ".join(f"{number}) '{part}'" for number, part in enumerate(shown[:SPLIT_SHOWN], 1))
    more = ", …" if len(shown) > SPLIT_SHOWN else ""
    return f"Split into {len(shown)} observations: {listed}{more}"
