"""Toolset `graph`, the six tools that write: entities, observations, relations."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from memlog.canonical import canonical
from memlog.commands import (
    AddObservations,
    CreateEntities,
    CreateRelations,
    DeleteEntities,
    DeleteObservations,
    DeleteRelations,
    Edge,
    NewObservation,
)
from memlog.events import (
    EntityCreated,
    EntityDeleted,
    ObservationAdded,
    ObservationDeleted,
    ObservationSuperseded,
    RelationAdded,
    RelationDeleted,
)
from memlog.project import Outcome
from memlog.state import Entity, Observation, State
from server.registry import Call, Result, tool
from server.views import EntityView, RelationView, view_entity, view_entity_as, view_relation

# -- entities


class CreatedEntity(EntityView, frozen=True):
    """`replaced` counts the observations that an overwrite retired; they stay in the history."""

    replaced: int = 0


class CreateEntitiesResult(Result, frozen=True):
    project: str
    entities: list[CreatedEntity]


@tool(
    "graph",
    "Create entities",
    writes=True,
    destructive=True,
    idempotent=True,
    bare=lambda result: result.entities,
)
def create_entities(call: Call, arguments: CreateEntities) -> CreateEntitiesResult:
    """Create entities with their facts. save_memory is preferred: it takes the relations along.

    An entity of the same name is replaced; ifExists=merge adds to it. Later facts: add_observations.
    Example: {"entities": [{"name": "john-doe", "entityType": "person", "observations": ["Lives in Rome"]}]}
    """

    def answer(outcome: Outcome) -> CreateEntitiesResult:
        if_exists = arguments.if_exists or call.service.settings.if_exists
        created = {e.event.entity_id for e in outcome.entries if isinstance(e.event, EntityCreated)}
        views: dict[str, CreatedEntity] = {}  # each entity once, by whichever of its names
        for item in arguments.entities:
            entity = outcome.after.entity_named(item.name)
            if entity is None or (if_exists == "skip" and entity.id not in created):
                continue
            if entity.id not in views:
                views[entity.id] = _created(entity, outcome)
        return CreateEntitiesResult(project=project, entities=list(views.values()))

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, CreateEntitiesResult)


def _created(entity: Entity, outcome: Outcome) -> CreatedEntity:
    living = {row.id for row in outcome.after.observations(entity.id)}
    retired = [row for row in outcome.before.observations(entity.id) if row.id not in living]
    return view_entity_as(CreatedEntity, entity, outcome.after, replaced=len(retired))


class DeleteEntitiesResult(Result, frozen=True, omit_defaults=False):
    project: str
    success: bool
    message: str
    deleted: int
    entities: list[EntityView]
    not_found: list[str] = field(name="notFound", default_factory=list)


@tool("graph", "Delete entities", writes=True, destructive=True)
def delete_entities(call: Call, arguments: DeleteEntities) -> DeleteEntitiesResult:
    """Delete entities with their facts and all relations from and to them; the history keeps them.

    Unknown names are listed, not an error. Example: {"entityNames": ["john-doe"]}
    """

    def answer(outcome: Outcome) -> DeleteEntitiesResult:
        gone = [
            outcome.before.entity(entry.event.entity_id)
            for entry in outcome.entries
            if isinstance(entry.event, EntityDeleted)
        ]
        found = [entity for entity in gone if entity is not None]
        gone_ids = {entity.id for entity in found}
        return DeleteEntitiesResult(
            project=project,
            success=True,
            message="Entities deleted successfully",
            deleted=len(found),
            entities=[view_entity(entity, outcome.before) for entity in found],
            not_found=[
                name
                for name in arguments.entity_names
                if outcome.before.entity_id_of(name) not in gone_ids
            ],
        )

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, DeleteEntitiesResult)


# -- observations


class ObservationView(Result, frozen=True):
    id: str
    content: str
    version: int
    supersedes: str | None = None


class AddedObservations(Result, frozen=True):
    entity_name: str = field(name="entityName")
    added: list[str] = field(name="addedObservations")
    observations: list[ObservationView]


class AddObservationsResult(Result, frozen=True):
    project: str
    results: list[AddedObservations]


@tool(
    "graph",
    "Add observations",
    writes=True,
    bare=lambda result: result.results,
)
def add_observations(call: Call, arguments: AddObservations) -> AddObservationsResult:
    """Add facts to entities that exist. A fact that is there is not added twice.

    When a fact has changed, name the old one in `supersedes`; the history keeps it.
    Example: {"observations": [{"entityName": "john-doe", "contents": ["Likes tea",
    {"content": "Lives in Rome", "supersedes": "Lives in Paris"}]}]}
    """

    def answer(outcome: Outcome) -> AddObservationsResult:
        added: dict[str, list[Observation]] = {}
        for entry in outcome.entries:
            if isinstance(entry.event, (ObservationAdded, ObservationSuperseded)):
                row = outcome.after.observation(entry.event.observation_id)
                if row is not None:
                    added.setdefault(row.entity_id, []).append(row)
        results = []
        for item in arguments.observations:  # one result each, also where an entity comes twice
            entity = outcome.after.entity_named(item.entity_name)
            if entity is not None:
                rows = added.get(entity.id, [])
                given = {canonical(_text(content)) for content in item.contents}
                mine = [row for row in rows if canonical(row.content) in given]
                added[entity.id] = [row for row in rows if row not in mine]
                results.append(_additions(entity.name, mine))
        return AddObservationsResult(project=project, results=results)

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, AddObservationsResult)


def _text(content: str | NewObservation) -> str:
    return content if isinstance(content, str) else content.content


def _additions(name: str, rows: Sequence[Observation]) -> AddedObservations:
    return AddedObservations(
        entity_name=name,
        added=[row.content for row in rows],
        observations=[
            ObservationView(
                id=row.id, content=row.content, version=row.version, supersedes=row.supersedes
            )
            for row in rows
        ],
    )


class Deletion(Result, frozen=True):
    entity_name: str = field(name="entityName")
    observations: list[str]


class DeleteObservationsResult(Result, frozen=True, omit_defaults=False):
    project: str
    success: bool
    message: str
    deleted: int
    deletions: list[Deletion]
    not_found: list[Deletion] = field(name="notFound", default_factory=list)


@tool("graph", "Delete observations", writes=True, destructive=True)
def delete_observations(call: Call, arguments: DeleteObservations) -> DeleteObservationsResult:
    """Delete facts by exact text or id. To correct one, use add_observations with `supersedes` instead.

    Example: {"deletions": [{"entityName": "john-doe", "observations": ["Lives in Paris"]}]}
    """

    def answer(outcome: Outcome) -> DeleteObservationsResult:
        ids = {
            entry.event.observation_id
            for entry in outcome.entries
            if isinstance(entry.event, ObservationDeleted)
        }
        deletions, missing = [], []
        for item in arguments.deletions:
            entity = outcome.before.entity_named(item.entity_name)
            rows = outcome.before.observations(entity.id) if entity else []
            gone = {row.id for row in rows if row.id in ids}
            gone |= {canonical(row.content) for row in rows if row.id in ids}
            hit = [text for text in item.observations if canonical(text) in gone]
            missed = [text for text in item.observations if canonical(text) not in gone]
            if hit:
                deletions.append(Deletion(entity_name=item.entity_name, observations=hit))
            if missed:
                missing.append(Deletion(entity_name=item.entity_name, observations=missed))
        return DeleteObservationsResult(
            project=project,
            success=True,
            message="Observations deleted successfully",
            deleted=len(ids),
            deletions=deletions,
            not_found=missing,
        )

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, DeleteObservationsResult)


# -- relations


class CreateRelationsResult(Result, frozen=True):
    """`existing` lists relations that were there already, `warnings` what looks like a mistake."""

    project: str
    relations: list[RelationView]
    existing: list[RelationView]
    warnings: list[str]


@tool("graph", "Create relations", writes=True, bare=lambda result: result.relations)
def create_relations(call: Call, arguments: CreateRelations) -> CreateRelationsResult:
    """Connect entities by directed relations. For new entities save_memory is preferred.

    A relation that exists is listed, not doubled; an end that does not exist is a warning.
    Example: {"relations": [{"from": "john-doe", "to": "techcorp", "relationType": "works_for"}]}
    """

    def answer(outcome: Outcome) -> CreateRelationsResult:
        new = {e.event.relation_id for e in outcome.entries if isinstance(e.event, RelationAdded)}
        relations: dict[str, RelationView] = {}
        existing: dict[str, RelationView] = {}
        for item in arguments.relations:
            row = outcome.after.relation_between(item.source, item.relation_type, item.target)
            if row is not None:
                (relations if row.id in new else existing)[row.id] = view_relation(row)
        names = dict.fromkeys(n for item in arguments.relations for n in (item.source, item.target))
        return CreateRelationsResult(
            project=project,
            relations=list(relations.values()),
            existing=list(existing.values()),
            warnings=[
                f"Entity with name {name} not found: the relation waits for it"
                for name in names
                if outcome.after.entity_id_of(name) is None
            ],
        )

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, CreateRelationsResult)


class EdgeView(Result, frozen=True):
    source: str = field(name="from")
    target: str = field(name="to")
    relation_type: str = field(name="relationType")


class DeleteRelationsResult(Result, frozen=True, omit_defaults=False):
    project: str
    success: bool
    message: str
    deleted: int
    relations: list[RelationView]
    not_found: list[EdgeView] = field(name="notFound", default_factory=list)


@tool("graph", "Delete relations", writes=True, destructive=True)
def delete_relations(call: Call, arguments: DeleteRelations) -> DeleteRelationsResult:
    """Delete relations; from, to and relationType must match.

    Example: {"relations": [{"from": "john-doe", "to": "techcorp", "relationType": "works_for"}]}
    """

    def answer(outcome: Outcome) -> DeleteRelationsResult:
        ids = [e.event.relation_id for e in outcome.entries if isinstance(e.event, RelationDeleted)]
        rows = [row for row in map(outcome.before.relation, ids) if row is not None]
        gone = set(ids)
        return DeleteRelationsResult(
            project=project,
            success=True,
            message="Relations deleted successfully",
            deleted=len(rows),
            relations=[view_relation(row) for row in rows],
            not_found=[
                EdgeView(source=item.source, target=item.target, relation_type=item.relation_type)
                for item in arguments.relations
                if _between(item, outcome.before) not in gone
            ],
        )

    project, opened = call.open(arguments)
    return call.execute(opened, arguments, answer, DeleteRelationsResult)


def _between(edge: Edge, state: State) -> str | None:
    row = state.relation_between(edge.source, edge.relation_type, edge.target)
    return None if row is None else row.id
