"""What is said of a `save_memory` that was taken: what could be better, what it did not change, and how good it is.

Nothing here refuses; what is refused is told by `saving`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from memlog.canonical import canonical, characters, plain
from memlog.commands import SAVED_OBSERVATION_MAX, SaveMemory
from memlog.decisions.graph import importance_kept
from memlog.decisions.names import former_names
from memlog.decisions.saving import stored_type
from memlog.rows import Entity
from memlog.state import State

RELATIONS_FOR_FULL_MARKS = 2
LEARNT_FROM_MAX = 1_000
"""Entities: enough to know the types in use, and the names of a memory of some size."""

COMMON_TYPES = (
    *("Person", "Document", "File", "Code", "Task", "Knowledge"),
    *("API", "Database", "Service", "Configuration"),
    *("Patient", "Doctor", "Diagnosis", "Customer", "Product", "Order"),
    *("Project", "Organization", "Event", "Place", "Tool", "Concept"),
)
"""The types the guide names; any other is as good."""

_BETWEEN_WORDS = str.maketrans("", "", " _-")
_NUMBER = re.compile(r"\d+")

LETTERS_TELLING = 5
"""A type of fewer is a word of its own more often than another that is misspelt."""


def warnings(command: SaveMemory, before: State) -> list[str]:
    """What is accepted but could be better. `before` is the state that the request met."""
    some = list(islice(before.entities(), LEARNT_FROM_MAX))
    known = dict.fromkeys([*COMMON_TYPES, *(stored_type(each.entity_type) for each in some)])
    found = dict.fromkeys(_nearly_called(command, before, some))
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


def _nearly_called(command: SaveMemory, before: State, some: Sequence[Entity]) -> Iterator[str]:
    """That a new entity is perhaps one of `some`, or of the request, whose name is but written otherwise."""
    first = {plain(item.name[:1]) for item in command.entities}
    called = {_bare(each.name): each.name for each in some if plain(each.name[:1]) in first}
    for name in (item.name for item in command.entities):
        other = called.setdefault(_bare(name), name)
        if _differ_as_written(name, other) and before.entity_named(name) is None:
            yield f"Entity '{name}' is nearly called '{other}': did you mean '{other}'?"


def _differ_as_written(name: str, other: str) -> bool:
    """Of two that are the same bare: whether they are two, and not for their numbers, as `1-11` and `11-1`."""
    return canonical(name) != canonical(other) and _NUMBER.findall(name) == _NUMBER.findall(other)


def _bare(name: str) -> str:
    """Without what one hand writes otherwise than another: case, accents, and what stands between the words."""
    return plain(name).translate(_BETWEEN_WORDS)


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
