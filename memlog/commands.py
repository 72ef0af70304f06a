"""What a client may ask to be done: imperative, bounded in every size, unknown fields forbidden.

Field names are Python's here and the contract's on the wire. The descriptions are what a language
model reads in the schema of the tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

NAME_CHARACTERS_MAX = 500
TYPE_CHARACTERS_MAX = 200
CONTENT_CHARACTERS_MAX = 10_000
DESCRIPTION_CHARACTERS_MAX = 2_000
PROJECT_NAME_CHARACTERS_MAX = 100
ITEMS_MAX = 1_000

IfExists = Literal["replace", "merge", "skip", "error"]

EntityName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
TypeName = Annotated[str, Meta(min_length=1, max_length=TYPE_CHARACTERS_MAX)]
Content = Annotated[str, Meta(min_length=1, max_length=CONTENT_CHARACTERS_MAX)]
CONFIDENCE, IMPORTANCE = 1.0, 0.5
"""Of an entity or a fact, where nobody says."""
RELATION_IMPORTANCE = 0.7

Share = Annotated[float, Meta(ge=0, le=1, examples=[0.9])]
Confidence = Annotated[Share, Meta(extra_json_schema={"default": CONFIDENCE})] | UnsetType
Importance = Annotated[Share, Meta(extra_json_schema={"default": IMPORTANCE})] | UnsetType
RelationImportance = (
    Annotated[Share, Meta(extra_json_schema={"default": RELATION_IMPORTANCE})] | UnsetType
)
ProjectName = Annotated[str, Meta(min_length=1, max_length=PROJECT_NAME_CHARACTERS_MAX)]


class Command(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all commands and of the items in them."""

    aliases: ClassVar[dict[str, str]] = {}
    looked_up: ClassVar[frozenset[str]] = frozenset()
    """Fields whose texts find what is stored already, and are not stored themselves."""


def only_finds(cls: type[msgspec.Struct], field_name: str) -> bool:
    """Whether the texts of this field find what is stored already, and are not stored themselves."""
    return field_name == "project" or field_name in getattr(cls, "looked_up", ())


# -- projects


class CreateProject(Command, frozen=True):
    name: Annotated[ProjectName, Meta(examples=["my-app"])]
    description: Annotated[str, Meta(max_length=DESCRIPTION_CHARACTERS_MAX)] = ""


class ArchiveProject(Command, frozen=True):
    looked_up = frozenset({"name"})

    name: ProjectName


class RestoreProject(Command, frozen=True):
    looked_up = frozenset({"name"})

    name: ProjectName


# -- entities


class NewEntity(Command, frozen=True):
    name: Annotated[EntityName, Meta(description="Unique name", examples=["john-doe"])]
    entity_type: Annotated[
        TypeName, Meta(description="e.g. person, organization", examples=["person"])
    ] = field(name="entityType")
    observations: Annotated[
        Sequence[Content],
        Meta(max_length=ITEMS_MAX, description="One fact each", examples=[["Lives in Paris"]]),
    ] = ()


class CreateEntities(Command, frozen=True):
    entities: Annotated[Sequence[NewEntity], Meta(max_length=ITEMS_MAX)]
    if_exists: Annotated[
        IfExists | None,
        Meta(description="For names that exist; best left out"),
    ] = field(default=None, name="ifExists")


class DeleteEntities(Command, frozen=True):
    aliases: ClassVar[dict[str, str]] = {"names": "entityNames"}
    looked_up = frozenset({"entity_names"})

    entity_names: Annotated[Sequence[EntityName], Meta(max_length=ITEMS_MAX)] = field(
        name="entityNames"
    )


# -- observations


class NewObservation(Command, frozen=True):
    looked_up = frozenset({"supersedes"})

    content: Annotated[Content, Meta(examples=["Lives in Rome"])]
    supersedes: Annotated[
        str | None, Meta(description="Id or exact text of the fact it replaces")
    ] = None
    confidence: Confidence = UNSET
    importance: Importance = UNSET
    """Not given, a fact that is there is not rated anew; the defaults are those of a new one."""


class EntityObservations(Command, frozen=True):
    looked_up = frozenset({"entity_name"})

    entity_name: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="entityName")
    contents: Annotated[
        Sequence[Content | NewObservation],
        Meta(max_length=ITEMS_MAX, examples=[["Lives in Paris"]]),
    ]


class AddObservations(Command, frozen=True):
    observations: Annotated[Sequence[EntityObservations], Meta(max_length=ITEMS_MAX)]


class ObservationDeletion(Command, frozen=True):
    looked_up = frozenset({"entity_name", "observations"})

    entity_name: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="entityName")
    observations: Annotated[
        Sequence[Content],
        Meta(max_length=ITEMS_MAX, description="Exact texts or ids", examples=[["Lives in Paris"]]),
    ]


class DeleteObservations(Command, frozen=True):
    deletions: Annotated[Sequence[ObservationDeletion], Meta(max_length=ITEMS_MAX)]


# -- relations


class Edge(Command, frozen=True):
    source: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="from")
    target: Annotated[EntityName, Meta(examples=["techcorp"])] = field(name="to")
    relation_type: Annotated[
        TypeName, Meta(description="Active voice, e.g. works_for", examples=["works_for"])
    ] = field(name="relationType")


class NewRelation(Edge, frozen=True):
    importance: RelationImportance = UNSET


class CreateRelations(Command, frozen=True):
    relations: Annotated[Sequence[NewRelation], Meta(max_length=ITEMS_MAX)]


class DeleteRelations(Command, frozen=True):
    looked_up = frozenset({"relations"})

    relations: Annotated[Sequence[Edge], Meta(max_length=ITEMS_MAX)]


# -- memories

MEMORY_CONTENT_CHARACTERS_MAX = 10_000
TAGS_MAX = 20
TAG_PATTERN = "^[a-z0-9:_-]{1,100}$"

MemoryId = Annotated[
    str, Meta(min_length=1, max_length=100, examples=["mem_01h455vb4pex5vsknk084sn02q"])
]
Tag = Annotated[str, Meta(pattern=TAG_PATTERN, examples=["project:shop"])]


class StoreMemory(Command, frozen=True):
    """A fact. Always stored, also where the same was stored before."""

    content: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=MEMORY_CONTENT_CHARACTERS_MAX,
            description="One clear, standalone fact",
            examples=["User moved to Austin"],
        ),
    ]
    confidence: Annotated[Share, Meta(description="1 for explicit facts")] = 1.0
    source: Annotated[
        Literal["explicit", "extracted"],
        Meta(description="explicit if the user asked to remember it"),
    ] = "extracted"


class SupersedeMemory(Command, frozen=True):
    looked_up = frozenset({"old_memory_id", "new_memory_id"})

    old_memory_id: MemoryId
    new_memory_id: MemoryId


class CreateMemory(Command, frozen=True):
    """A record. Saving the same type, source and content again makes no second one."""

    memory_type: Annotated[TypeName, Meta(description="e.g. note, decision", examples=["note"])] = (
        field(name="type")
    )
    content: Annotated[
        Annotated[dict[str, Any], Meta(extra_json_schema={"additionalProperties": True})]
        | Annotated[str, Meta(min_length=1)],
        Meta(description="JSON object (or text)", examples=[{"summary": "Adopt blue/green"}]),
    ]
    source: Annotated[
        str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, examples=["chat://session-1"])
    ]
    confidence: Share
    tags: Annotated[Sequence[Tag], Meta(description="e.g. project:shop, topic:etl")] = ()


# -- saving entities with their relations


SAVED_NAME_MAX, SAVED_TYPE_MAX, SAVED_RELATION_TYPE_MAX = 100, 50, 50
SAVED_OBSERVATION_MIN, SAVED_OBSERVATION_MAX = 5, 150
"""Characters of what `save_memory` takes."""


class SavedRelation(Command, frozen=True):
    looked_up = frozenset({"target_entity"})

    target_entity: Annotated[
        EntityName, Meta(description="In this request or in memory", examples=["Acme"])
    ] = field(name="targetEntity")
    relation_type: Annotated[
        str,
        Meta(
            extra_json_schema={"minLength": 1, "maxLength": SAVED_RELATION_TYPE_MAX},
            examples=["works at"],
        ),
    ] = field(name="relationType")
    importance: RelationImportance = UNSET


class SavedEntity(Command, frozen=True):
    """Its texts are judged by `saving`, whose words the client knows, not by the decoder."""

    name: Annotated[
        str,
        Meta(extra_json_schema={"minLength": 1, "maxLength": SAVED_NAME_MAX}, examples=["Ann"]),
    ]
    entity_type: Annotated[
        str,
        Meta(
            extra_json_schema={"minLength": 1, "maxLength": SAVED_TYPE_MAX},
            description="Free, capitalised: Person, Document, Code, …",
            examples=["Person"],
        ),
    ] = field(name="entityType")
    observations: Annotated[
        Sequence[
            Annotated[
                str,
                Meta(
                    extra_json_schema={
                        "minLength": SAVED_OBSERVATION_MIN,
                        "maxLength": SAVED_OBSERVATION_MAX,
                    }
                ),
            ]
        ],
        Meta(
            max_length=ITEMS_MAX,
            extra_json_schema={"minItems": 1},
            description="One fact each",
            examples=[["Works at Acme"]],
        ),
    ]
    relations: Annotated[
        Sequence[SavedRelation], Meta(max_length=ITEMS_MAX, extra_json_schema={"minItems": 1})
    ]
    confidence: Confidence = UNSET
    importance: Importance = UNSET
    """Not given, an entity that is there keeps what it has; the defaults are those of a new one."""


class SaveMemory(Command, frozen=True):
    entities: Annotated[Sequence[SavedEntity], Meta(min_length=1, max_length=ITEMS_MAX)]


# -- history


class RenameEntity(Command, frozen=True):
    looked_up = frozenset({"name"})

    name: Annotated[EntityName, Meta(examples=["jon"])]
    new_name: Annotated[EntityName, Meta(examples=["john-doe"])] | None = field(
        name="newName", default=None
    )
    new_type: Annotated[TypeName, Meta(description="Another entityType")] | None = field(
        name="newType", default=None
    )


class MergeEntities(Command, frozen=True):
    looked_up = frozenset({"names", "into"})

    names: Annotated[
        Sequence[EntityName],
        Meta(
            min_length=1, max_length=ITEMS_MAX, description="Entities to merge", examples=[["jon"]]
        ),
    ]
    into: Annotated[EntityName, Meta(description="The one that stays", examples=["john-doe"])]


class UpdateObservation(Command, frozen=True):
    looked_up = frozenset({"entity_name", "observation"})

    entity_name: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="entityName")
    observation: Annotated[
        Content, Meta(description="Id or exact text", examples=["Lives in Rome"])
    ]
    new_content: Annotated[Content, Meta(examples=["Lives in Oslo"])] = field(name="newContent")


class ForgetMemory(Command, frozen=True):
    looked_up = frozenset({"id"})

    id: MemoryId


class Undo(Command, frozen=True):
    looked_up = frozenset({"thread"})

    position: (
        Annotated[
            int, Meta(ge=1, description="Any position of the command; default: the last command")
        ]
        | None
    ) = None
    last: Annotated[
        int, Meta(ge=1, description="How many commands, where no position is named")
    ] = 1
    since: (
        Annotated[
            int, Meta(ge=0, description="All commands after this position, instead of `last`")
        ]
        | None
    ) = None
    thread: Annotated[str | None, Meta(description="Only commands of this thread")] = None
    actor: Annotated[str | None, Meta(description="Only commands of this actor")] = None
    cascade: Annotated[bool, Meta(description="Undo later commands that depend on it first")] = (
        False
    )


AnyCommand: TypeAlias = (
    CreateProject
    | ArchiveProject
    | RestoreProject
    | CreateEntities
    | DeleteEntities
    | AddObservations
    | DeleteObservations
    | CreateRelations
    | DeleteRelations
    | StoreMemory
    | SupersedeMemory
    | CreateMemory
    | SaveMemory
    | RenameEntity
    | MergeEntities
    | UpdateObservation
    | ForgetMemory
    | Undo
)
