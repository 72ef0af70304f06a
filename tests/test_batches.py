"""What a large command reads grows as its items do and as what they are about does, not as one times the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    EntityObservations,
    MergeEntities,
    NewEntity,
    NewObservation,
    NewRelation,
    ObservationDeletion,
    RenameEntity,
    SavedEntity,
    SavedRelation,
    SaveMemory,
    Undo,
    UpdateObservation,
)
from memlog.context import Context
from memlog.errors import PROBLEMS_MAX, MemlogError
from memlog.projects.project import Project
from memlog.projects.store import Store
from tests.counted import CountedRows, do

SIZE = 40


def facts(count: int) -> list[str]:
    return [f"fact number {number}" for number in range(count)]


def entity(name: str, *observations: str) -> NewEntity:
    return NewEntity(name=name, entity_type="thing", observations=observations)


def big(count: int) -> CreateEntities:
    return CreateEntities(entities=[entity("big", *facts(count))])


def named(count: int, stem: str = "name") -> list[str]:
    return [f"{stem} {number}" for number in range(count)]


def deletion(*texts: str) -> ObservationDeletion:
    return ObservationDeletion(entity_name="big", observations=texts)


def addition(*contents: str | NewObservation, name: str = "big") -> EntityObservations:
    return EntityObservations(entity_name=name, contents=contents)


def saved(fact: str, target: str = "big", name: str = "big") -> SavedEntity:
    relation = SavedRelation(target_entity=target, relation_type="is like")
    return SavedEntity(name=name, entity_type="Thing", observations=[fact], relations=[relation])


def many(count: int) -> CreateEntities:
    return CreateEntities(entities=[entity(name, f"is {name}") for name in named(count)])


def merge(names: Sequence[str], into: str) -> MergeEntities:
    return MergeEntities(names=names, into=into)


def relate(source: str, target: str) -> CreateRelations:
    relation = NewRelation(source=source, target=target, relation_type="is like")
    return CreateRelations(relations=[relation])


Case = Callable[[int], Sequence[AnyCommand]]
"""For a size, what comes before, and last the command whose reads count."""

DONE: dict[str, Case] = {
    "deleting facts": lambda n: (big(n), DeleteObservations(deletions=[deletion(*facts(n))])),
    "deleting facts one by one": lambda n: (
        big(n),
        DeleteObservations(deletions=[deletion(fact) for fact in facts(n)]),
    ),
    "adding facts one by one": lambda n: (
        big(n),
        AddObservations(observations=[addition(f"new {fact}") for fact in facts(n)]),
    ),
    "adding facts with their confidence": lambda n: (
        big(n),
        AddObservations(
            observations=[addition(*(NewObservation(content=f"new {fact}") for fact in facts(n)))]
        ),
    ),
    "superseding facts": lambda n: (
        big(n),
        AddObservations(
            observations=[
                addition(
                    *(NewObservation(content=f"new {fact}", supersedes=fact) for fact in facts(n))
                )
            ]
        ),
    ),
    "creating an entity again and again": lambda n: (
        big(n),
        CreateEntities(
            entities=[entity("big", f"new {fact}") for fact in facts(n)], if_exists="merge"
        ),
    ),
    "saving an entity again and again": lambda n: (
        big(n),
        SaveMemory(entities=[saved(f"new {fact}") for fact in facts(n)]),
    ),
    "merging into an entity of many facts": lambda n: (
        big(n),
        many(n),
        merge(named(n), "big"),
    ),
    "undoing deletions": lambda n: (
        big(10 * n),
        DeleteObservations(deletions=[deletion(*facts(n))]),
        Undo(),
    ),
}
IN_THE_WAY: dict[str, Case] = {
    "an undo of deletions from an entity that changed often since, and went": lambda n: (
        big(2 * n),
        DeleteObservations(deletions=[deletion(*facts(n))]),
        *(DeleteObservations(deletions=[deletion(fact)]) for fact in facts(2 * n)[n:]),
        DeleteEntities(entity_names=["big"]),
        Undo(position=2 * n + 3),
    ),
}
CASCADES: dict[str, Case] = {
    "undoing an entity and the facts that it got since": lambda n: (
        big(1),
        *(AddObservations(observations=[addition(f"new {fact}")]) for fact in facts(n)),
        Undo(position=2, cascade=True),
    ),
    "undoing an entity and the relations that it got since": lambda n: (
        big(1),
        *(relate("big", name) for name in named(n)),
        Undo(position=2, cascade=True),
    ),
    "undoing an entity and what it became since": lambda n: (
        big(1),
        *(
            CreateEntities(entities=[NewEntity(name="big", entity_type=name)])
            for name in named(n, "kind")
        ),
        Undo(position=2, cascade=True),
    ),
    "undoing what was taken back and brought back again and again": lambda n: (
        big(1),
        AddObservations(observations=[addition("a new fact")]),
        *(Undo(position=position) for position in range(4, 4 + n)),
        Undo(position=4),
    ),
    "undoing an entity and the names that it got since": lambda n: (
        big(1),
        *(RenameEntity(name=name, new_name=other) for name, other in pairwise(["big", *named(n)])),
        Undo(position=2, cascade=True),
    ),
    "undoing a new name and the relations that came to it": lambda n: (
        big(1),
        RenameEntity(name="big", new_name="large"),
        *(relate("large", name) for name in named(n)),
        Undo(position=4, cascade=True),
    ),
    "undoing a fact and its versions since": lambda n: (
        big(1),
        *(
            UpdateObservation(entity_name="big", observation=old, new_content=new)
            for old, new in pairwise(facts(n + 1))
        ),
        Undo(position=4, cascade=True),
    ),
}
MISSING: dict[str, Case] = {
    "facts that are not there": lambda n: (
        big(n),
        AddObservations(
            observations=[
                addition(
                    *(NewObservation(content=fact, supersedes=f"{fact}0x") for fact in facts(n))
                )
            ]
        ),
    ),
    "entities to add to": lambda n: (
        many(n),
        AddObservations(observations=[addition("a fact", name=each) for each in named(n, "nome")]),
    ),
    "entities to merge": lambda n: (many(n), merge(named(n, "nome"), "name 1")),
    "ends of relations": lambda n: (
        many(n),
        CreateRelations(
            relations=[
                NewRelation(source="name 1", target=each, relation_type="knows")
                for each in named(n, "nome")
            ]
        ),
    ),
    "entities to save relations to": lambda n: (
        many(n),
        SaveMemory(entities=[saved("is a fact", each, "name 1") for each in named(n, "nome")]),
    ),
}


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """How many rows the last of some commands reads, in a project of their own."""
    monkeypatch.setattr("memlog.projects.contents.LmdbRows", CountedRows)
    store = Store(tmp_path, Context(strict_relations=True))

    def read_by(name: str, commands: Sequence[AnyCommand]) -> int:
        store.create(name)
        project = store.project(name)
        for command in commands[:-1]:
            do(project, command)
        CountedRows.reads = 0
        with suppress(MemlogError):
            project.execute(commands[-1], store.context, lambda _: None)
        return CountedRows.reads

    yield read_by
    store.close()


@pytest.mark.parametrize("case", [*DONE, *IN_THE_WAY, *CASCADES, *MISSING])
def test_twice_the_items_on_twice_the_rows_read_twice_as_much(
    reads: Callable[..., int], case: str
) -> None:
    commands = (DONE | IN_THE_WAY | CASCADES | MISSING)[case]
    assert reads("double", commands(2 * SIZE)) < 3 * reads("single", commands(SIZE))


@pytest.mark.parametrize("case", MISSING)
def test_a_refusal_names_all_that_is_missing_and_what_is_near_to_as_many_as_are_told(
    tmp_path: Path, case: str
) -> None:
    *before, refused = MISSING[case](PROBLEMS_MAX + 10)
    store = Store(tmp_path, Context(strict_relations=True))
    store.create("project")
    project: Project = store.project("project")
    for command in before:
        do(project, command)
    with pytest.raises(MemlogError) as caught:
        project.execute(refused, store.context, lambda _: None)
    problems = caught.value.problems
    assert len(problems) == PROBLEMS_MAX + 10
    near = [("Did you mean" in (each.suggestion or "")) for each in problems]
    assert near == [True] * PROBLEMS_MAX + [False] * 10
    assert all(each.suggestion for each in problems)
    store.close()
