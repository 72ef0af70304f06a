"""Decisions about `save_memory`: entities saved whole, with their facts and their relations, or not at all.

A language model skips steps; so what makes a graph useful (one fact per observation, no entity without
a relation) is required here, and every problem of a request is reported at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
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
from memlog.decisions.graph import add_texts, importance_kept, relate
from memlog.decisions.names import former_names, pass_its_name
from memlog.decisions.superseding import rated
from memlog.errors import InvalidParameter, Problem, refuse, shorten
from memlog.events import EntityCreated, EntityRated, Event
from memlog.state import State

SENTENCES_MAX = 2
RELATIONS_FOR_FULL_MARKS = 2
TYPES_LEARNT_FROM_MAX = 1_000
SPLIT_SHOWN = 10

COMMON_TYPES = (
    *("Person", "Document", "File", "Code", "Task", "Knowledge"),
    *("API", "Database", "Service", "Configuration"),
    *("Patient", "Doctor", "Diagnosis", "Customer", "Product", "Order"),
    *("Project", "Organization", "Event", "Place", "Tool", "Concept"),
)
"""The types the guide names; any other is as good."""

LETTERS_TELLING = 5
"""A type of fewer is a word of its own more often than another that is misspelt."""

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
        example = f"{{ targetEntity: '{other}', relationType: 'relates to' }}"
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


# -- what is warned of, and how good it is


def stored_type(entity_type: str) -> str:
    """The type as it is stored: its first letter a capital."""
    return entity_type[:1].upper() + entity_type[1:]


def warnings(command: SaveMemory, before: State) -> list[str]:
    """What is accepted but could be better. `before` is the state that the request met."""
    some = islice(before.entities(), TYPES_LEARNT_FROM_MAX)  # enough to know the types in use
    known = dict.fromkeys([*COMMON_TYPES, *(stored_type(each.entity_type) for each in some)])
    found: dict[str, None] = {}
    saved: dict[str, str] = {}  # the types of those that the request itself brings
    for item in command.entities:
        entity = before.entity_named(item.name)
        wanted = stored_type(item.entity_type)
        kept = (
            saved.setdefault(canonical(item.name), wanted) if entity is None else entity.entity_type
        )
        if canonical(kept) == canonical(wanted):
            for text in _type_warnings(item.entity_type, known):
                found[text] = None
        elif canonical(kept) != canonical(item.entity_type):
            found[f"Entity '{item.name}' exists with type '{kept}', which it keeps"] = None
    former = former_names((item.name for item in command.entities), before)
    for name, now in former.items():
        found[f"'{name}' is a former name of '{now}': its facts were added to it"] = None
    return list(found)


def unchanged(command: SaveMemory, after: State) -> list[str]:
    """What the request gave to relations and they did not take. `after` is the state that it left."""
    found: dict[str, None] = {}
    for item in command.entities:
        for relation in item.relations:
            kind, target = relation.relation_type, relation.target_entity
            row = after.relation_between(item.name, kind, target)
            kept = None if row is None else importance_kept(row, relation.importance)
            if kept is not None:
                found[kept] = None
    return list(found)


def _type_warnings(entity_type: str, known: Mapping[str, None]) -> Iterator[str]:
    kind = stored_type(entity_type)
    if kind != entity_type:
        yield f"Entity type '{entity_type}' starts with a small letter: stored as '{kind}'"
    if " " in entity_type.strip():
        joined = "".join(
            stored_type(word.lower() if word.isupper() else word) for word in entity_type.split()
        )
        yield f"Entity type '{entity_type}' contains spaces: consider '{joined}'"
    elif kind not in known:
        near = _nearly(kind, known)
        if near is not None:
            yield f"Entity type '{entity_type}' is nearly '{near}': did you mean '{near}'?"


def _nearly(kind: str, known: Mapping[str, None]) -> str | None:
    """A known type that differs from `kind` by case alone, else one within an edit or two of it; of a few letters,
    where one edit leads from many a word to another (`Node`, `Code`), one that has the same."""
    from rapidfuzz.distance import OSA

    folded, most = kind.casefold(), 1 if len(kind) < 8 else 2
    alike = (each for each in known if each.casefold() == folded)
    close = (each for each in known if OSA.distance(kind, each, score_cutoff=most) <= most)
    if len(kind) < LETTERS_TELLING:
        close = (each for each in close if sorted(each.casefold()) == sorted(folded))
    return next(alike, None) or next(close, None)


def quality_score(command: SaveMemory) -> float:
    """0..1, of what was saved: half for relations per entity (2 are full marks), half for short observations.

    An observation of up to half the longest allowed counts fully, one of full length half.
    """
    relations = sum(len(item.relations) for item in command.entities) / len(command.entities)
    lengths = [characters(text) for item in command.entities for text in item.observations]
    half = SAVED_OBSERVATION_MAX / 2
    short = [1 - 0.5 * min(1, max(0, length - half) / half) for length in lengths]
    brevity = sum(short) / len(short)
    return round(0.5 * min(1, relations / RELATIONS_FOR_FULL_MARKS) + 0.5 * brevity, 2)
