"""Random commands of every kind about a small world, in which the same things are met again and again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, get_args

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
    Edge,
    EntityObservations,
    ForgetMemory,
    MergeEntities,
    NewEntity,
    NewObservation,
    NewRelation,
    ObservationDeletion,
    RenameEntity,
    RestoreProject,
    SavedEntity,
    SavedRelation,
    SaveMemory,
    StoreMemory,
    SupersedeMemory,
    Undo,
    UpdateObservation,
)

NAMES = ("Jon", "Gina", "jon", "élan", "X-4471-b", "東京")
TYPES = ("person", "place")
TEXTS = ("likes dancing", "likes dark mode", "was a banker", "runs a store", "lives in 東京")
QUERIES = ("dancing", "banker OR store", '"dark mode"', "ank", "東京", "person")

LIVES = (CreateProject, ArchiveProject, RestoreProject)
"""Commands that only the store gives."""

KINDS = tuple(kind for kind in get_args(AnyCommand) if kind not in LIVES)


class Draw:
    """Draws commands. `memories` are ids that were handed out; `head` is as far as the log is known."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def command(self, memories: Sequence[str], head: int) -> AnyCommand:
        kind = self._dice.choice(KINDS)
        if self._dice.random() < 0.4:  # most others need something to work on
            kind = self._dice.choice((CreateEntities, AddObservations, StoreMemory))
        made: AnyCommand = getattr(self, f"_{kind.__name__}")(memories, head)
        return made

    def _few(self, item: Any) -> list[Any]:
        return [item() for _ in range(self._dice.randint(1, 3))]

    def _name(self) -> str:
        return self._dice.choice(NAMES)

    def _type(self) -> str:
        return self._dice.choice(TYPES)

    def _text(self) -> str:
        return self._dice.choice(TEXTS)

    def _memory(self, memories: Sequence[str]) -> str:
        return self._dice.choice(memories) if memories else "mem_missing"

    # -- one method a kind

    def _CreateEntities(self, memories: Sequence[str], head: int) -> AnyCommand:
        def entity() -> NewEntity:
            return NewEntity(
                name=self._name(), entity_type=self._type(), observations=self._few(self._text)
            )

        if_exists = self._dice.choice(("replace", "merge", "skip", "error"))
        return CreateEntities(entities=self._few(entity), if_exists=if_exists)  # type: ignore[arg-type]

    def _AddObservations(self, memories: Sequence[str], head: int) -> AnyCommand:
        def content() -> str | NewObservation:
            if self._dice.random() < 0.5:
                return self._text()
            old = self._dice.choice([None, self._text()])
            return NewObservation(content=self._text(), supersedes=old)

        def about() -> EntityObservations:
            return EntityObservations(entity_name=self._name(), contents=self._few(content))

        return AddObservations(observations=self._few(about))

    def _DeleteEntities(self, memories: Sequence[str], head: int) -> AnyCommand:
        return DeleteEntities(entity_names=self._few(self._name))

    def _DeleteObservations(self, memories: Sequence[str], head: int) -> AnyCommand:
        def deletion() -> ObservationDeletion:
            return ObservationDeletion(entity_name=self._name(), observations=self._few(self._text))

        return DeleteObservations(deletions=self._few(deletion))

    def _CreateRelations(self, memories: Sequence[str], head: int) -> AnyCommand:
        def relation() -> NewRelation:
            return NewRelation(source=self._name(), target=self._name(), relation_type="knows")

        return CreateRelations(relations=self._few(relation))

    def _DeleteRelations(self, memories: Sequence[str], head: int) -> AnyCommand:
        def relation() -> Edge:
            return Edge(source=self._name(), target=self._name(), relation_type="knows")

        return DeleteRelations(relations=self._few(relation))

    def _StoreMemory(self, memories: Sequence[str], head: int) -> AnyCommand:
        return StoreMemory(content=self._text(), confidence=self._dice.choice((0.5, 1.0)))

    def _SupersedeMemory(self, memories: Sequence[str], head: int) -> AnyCommand:
        return SupersedeMemory(
            old_memory_id=self._memory(memories), new_memory_id=self._memory(memories)
        )

    def _CreateMemory(self, memories: Sequence[str], head: int) -> AnyCommand:
        return CreateMemory(
            memory_type=self._dice.choice(("note", "decision")),
            content=self._text() if self._dice.random() < 0.5 else {"summary": self._text()},
            source="here",
            confidence=self._dice.choice((0.5, 1.0)),
            tags=self._dice.sample(("a", "b", "c"), 2),
        )

    def _SaveMemory(self, memories: Sequence[str], head: int) -> AnyCommand:
        first, second = self._dice.sample(NAMES, 2)

        def saved(name: str, other: str) -> SavedEntity:
            relation = SavedRelation(target_entity=other, relation_type="knows")
            texts = self._few(self._text)
            return SavedEntity(
                name=name, entity_type="Person", observations=texts, relations=[relation]
            )

        return SaveMemory(entities=[saved(first, second), saved(second, first)])

    def _RenameEntity(self, memories: Sequence[str], head: int) -> AnyCommand:
        new_type = self._dice.choice((None, self._name()))
        return RenameEntity(name=self._name(), new_name=self._name(), new_type=new_type)

    def _MergeEntities(self, memories: Sequence[str], head: int) -> AnyCommand:
        return MergeEntities(names=self._few(self._name), into=self._name())

    def _UpdateObservation(self, memories: Sequence[str], head: int) -> AnyCommand:
        return UpdateObservation(
            entity_name=self._name(), observation=self._text(), new_content=self._text()
        )

    def _ForgetMemory(self, memories: Sequence[str], head: int) -> AnyCommand:
        return ForgetMemory(id=self._memory(memories))

    def _Undo(self, memories: Sequence[str], head: int) -> AnyCommand:
        return Undo(
            position=self._dice.choice([None, self._dice.randint(1, max(head, 1))]),
            last=self._dice.randint(1, 2),
            cascade=self._dice.random() < 0.5,
        )
