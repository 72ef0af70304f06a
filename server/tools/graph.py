"""Toolset `graph`, four of the six tools that write: entities and relations; `observing` has the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import field

from memlog.commands import (
    CreateEntities,
    CreateRelations,
    DeleteEntities,
    DeleteRelations,
    Edge,
    NewEntity,
)
from memlog.decisions.graph import importance_kept, in_short
from memlog.decisions.names import former_names, leads_to_itself
from memlog.decisions.superseding import brought_back
from memlog.errors import counted, shorten
from memlog.events import (
    EntityCreated,
    EntityDeleted,
    ObservationDeleted,
    RelationAdded,
    RelationDeleted,
)
from memlog.projects.project import Outcome
from memlog.rows import Relation
from memlog.state import State
from server.advice import followable
from server.answering.cutting import Room, said
from server.answering.nearest import closest_names, closest_relations, deletion
from server.answering.portions import OPEN_ALONE, cut_notice, portion_of_facts, view_portion
from server.answering.views import EntityView, RelationView, view_relation
from server.registry import Call, Result, tool

_FORMER = "former names"

# -- entities


class CreatedEntity(EntityView, frozen=True):
    """`replaced` counts the observations that an overwrite retired; they stay in the history."""

    replaced: int = 0


class CreateEntitiesResult(Result, frozen=True):
    project: str
    entities: list[CreatedEntity]
    notice: str | None = None


@tool(
    "graph",
    "Create entities",
    writes=True,
    destructive=True,
    bare=lambda result: result.entities,
)
def create_entities(call: Call, arguments: CreateEntities) -> CreateEntitiesResult:
    """Create entities with their facts. save_memory is preferred: it takes relations along.

    An entity of the same name is replaced by default; ifExists=merge adds to it. Later facts: add_observations.
    Example: {"entities": [{"name": "john-doe", "entityType": "person", "observations": ["Lives in Rome"]}]}
    """

    def answer(outcome: Outcome) -> CreateEntitiesResult:
        if_exists = arguments.if_exists or call.service.settings.if_exists
        created = {event.entity_id for event in outcome.events(EntityCreated)}
        retired = _retired(outcome)
        views: dict[str, CreatedEntity] = {}  # each entity once, by whichever of its names
        for item in arguments.entities:
            entity = outcome.after.entity_named(item.name)
            if entity is None or (if_exists == "skip" and entity.id not in created):
                continue
            if entity.id not in views:
                told = portion_of_facts(entity, outcome.after)
                views[entity.id] = view_portion(CreatedEntity, told, replaced=retired[entity.id])
        sent = [item for item in arguments.entities if if_exists != "skip"]
        former = former_names((item.name for item in sent), outcome.before)
        room = Room()
        shown = room.take(list(views.values()), "entities")
        return CreateEntitiesResult(
            project=call.project,
            entities=shown,
            notice=room.notice(
                "All were stored; open_nodes shows them.",
                cut_notice(shown, OPEN_ALONE, call.session),
                *said(
                    _told(former, ": its facts were added to it, nothing was replaced."), _FORMER
                ),
                *said(
                    _types_kept(sent, outcome.after),
                    "entities of another type",
                    followable(call.session, "rename_entity with newType changes a type."),
                ),
                *said(brought_back(outcome.entries, outcome.after), "facts that were superseded"),
            ),
        )

    return call.execute(arguments, answer, CreateEntitiesResult)


def _types_kept(sent: Iterable[NewEntity], after: State) -> list[str]:
    """Which entities have another type than they were sent with."""
    found: dict[str, None] = {}
    first: dict[str, str] = {}  # the type that the request names first, by entity
    for item in sent:
        row = after.entity_named(item.name)
        if row is None:
            continue
        has, asked = shorten(row.entity_type), shorten(item.entity_type)
        if first.setdefault(row.id, item.entity_type) == item.entity_type:
            why = f"is of type '{has}' still, not '{asked}'"
        else:
            why = f"stands more than once in this request: its first type, '{has}', counts, not '{asked}'"
        if row.entity_type != item.entity_type:
            found[f"'{shorten(row.name)}' {why}."] = None
    return list(found)


def _retired(outcome: Outcome) -> Counter[str]:
    """How many facts of each entity the command retired, by its id."""
    deleted = (event.observation_id for event in outcome.events(ObservationDeleted))
    rows = map(outcome.after.observation, deleted)
    return Counter(row.entity_id for row in rows if row is not None)


class DeleteEntitiesResult(Result, frozen=True, omit_defaults=False):
    """`suggestions` gives, for a name that was not found, the closest that exist."""

    project: str
    success: bool
    message: str
    deleted: int
    entities: list[EntityView]
    not_found: list[str] = field(name="notFound", default_factory=list)
    suggestions: dict[str, list[str]] = field(default_factory=dict)
    notice: str | None = None


@tool("graph", "Delete entities", writes=True, destructive=True)
def delete_entities(call: Call, arguments: DeleteEntities) -> DeleteEntitiesResult:
    """Delete entities with their facts and all relations from and to them; the history keeps them.

    Unknown names are listed, not an error. Example: {"entityNames": ["john-doe"]}
    """

    def answer(outcome: Outcome) -> DeleteEntitiesResult:
        gone = [outcome.before.entity(event.entity_id) for event in outcome.events(EntityDeleted)]
        found = [entity for entity in gone if entity is not None]
        gone_ids = {entity.id for entity in found}
        missing = [
            name
            for name in arguments.entity_names
            if outcome.before.entity_id_of(name) not in gone_ids
        ]
        room = Room()
        not_found = room.take(missing, "names not found", share=2)
        told = room.take(
            [view_portion(EntityView, portion_of_facts(each, outcome.before)) for each in found],
            "entities",
        )
        remedy = f"open_nodes with asOf={outcome.before.position} shows what was deleted."
        former = _told(former_names(arguments.entity_names, outcome.before), ", which was deleted.")
        back = f'To take it back: undo {{"position": {outcome.before.position + 1}}}.'
        return DeleteEntitiesResult(
            project=call.project,
            success=True,
            message=deletion("entities", len(found), len(missing)),
            deleted=len(found),
            entities=told,
            not_found=not_found,
            suggestions=closest_names(missing, outcome.after),
            notice=room.notice(
                remedy,
                cut_notice(told, remedy, call.session),
                *said(former, _FORMER, followable(call.session, back)),
                *_remaining(missing, outcome.after),
            ),
        )

    return call.execute(arguments, answer, DeleteEntitiesResult)


def _remaining(missing: Iterable[str], after: State) -> list[str]:
    """Which relations have an end at a name that was not found: they are of no entity that was deleted."""
    rows = {row.id: row for name in missing for row in after.relations_touching(name)}
    told = [f"The relation '{in_short(row)}' remains." for row in rows.values()]
    return said(told, "relations remain", "To delete such a relation: delete_relations.")


def _told(former: Mapping[str, str], end: str) -> list[str]:
    """What was done to entities by names that they had once, as `end` says."""
    return [
        f"'{shorten(name)}' is a former name of '{shorten(now)}'{end}"
        for name, now in former.items()
    ]


# -- relations


class CreateRelationsResult(Result, frozen=True):
    """`existing` lists relations that were there already, `warnings` what looks like a mistake; `suggestions` gives,
    for a name that was not found, the closest that exist."""

    project: str
    relations: list[RelationView]
    existing: list[RelationView]
    warnings: list[str]
    suggestions: dict[str, list[str]] = field(default_factory=dict)
    notice: str | None = None


@tool("graph", "Create relations", writes=True, bare=lambda result: result.relations)
def create_relations(call: Call, arguments: CreateRelations) -> CreateRelationsResult:
    """Connect entities by directed relations. For new entities save_memory is preferred.

    A relation that exists is listed, not doubled; an end that does not exist is a warning.
    Example: {"relations": [{"from": "john-doe", "to": "techcorp", "relationType": "works_for"}]}
    """

    def answer(outcome: Outcome) -> CreateRelationsResult:
        new = {event.relation_id for event in outcome.events(RelationAdded)}
        relations: dict[str, RelationView] = {}
        existing: dict[str, RelationView] = {}
        warned: dict[str, str] = {}
        for item in arguments.relations:
            row = outcome.after.relation_between(item.source, item.relation_type, item.target)
            if row is not None:
                kept = importance_kept(row, item.importance)
                if kept is not None:
                    warned[row.id] = _weighed_twice(row) if row.id in new else kept
                (relations if row.id in new else existing)[row.id] = view_relation(row)
        names = dict.fromkeys(n for item in arguments.relations for n in (item.source, item.target))
        missing = [name for name in names if outcome.after.entity_id_of(name) is None]
        suggestions = closest_names(missing, outcome.after)
        there = f"There already: {counted(len(existing), 'relations')}" if existing else None
        room = Room()
        return CreateRelationsResult(
            project=call.project,
            warnings=room.say(
                [_waiting(name, suggestions.get(name, ())) for name in missing]
                + _loops(arguments.relations, outcome.after)
                + list(warned.values())
            ),
            suggestions=suggestions,
            existing=room.take(list(existing.values()), "that were there already", share=2),
            relations=room.take(list(relations.values()), "new relations"),
            notice=room.notice("All are stored; open_nodes shows those of an entity.", there),
        )

    return call.execute(arguments, answer, CreateRelationsResult)


def _waiting(name: str, nearest: Sequence[str]) -> str:
    told = f"Entity with name {name} not found: the relation waits for it"
    return f"{told}; the nearest name is '{shorten(nearest[0])}'" if nearest else told


def _weighed_twice(row: Relation) -> str:
    return f"'{in_short(row)}' stands more than once in this request: its first importance, {row.importance:g}, counts"


def _loops(relations: Iterable[Edge], after: State) -> list[str]:
    """Which relations lead from an entity to itself, though they were asked for between two names."""
    told = (leads_to_itself(item.source, item.target, after) for item in relations)
    return [each for each in told if each is not None]


class EdgeView(Result, frozen=True):
    source: str = field(name="from")
    target: str = field(name="to")
    relation_type: str = field(name="relationType")


class DeleteRelationsResult(Result, frozen=True, omit_defaults=False):
    """`suggestions` gives those that exist and are closest to what was not found."""

    project: str
    success: bool
    message: str
    deleted: int
    relations: list[RelationView]
    not_found: list[EdgeView] = field(name="notFound", default_factory=list)
    suggestions: list[EdgeView] = field(default_factory=list)
    notice: str | None = None


@tool("graph", "Delete relations", writes=True, destructive=True)
def delete_relations(call: Call, arguments: DeleteRelations) -> DeleteRelationsResult:
    """Delete relations; from, to and relationType must match.

    Example: {"relations": [{"from": "john-doe", "to": "techcorp", "relationType": "works_for"}]}
    """

    def answer(outcome: Outcome) -> DeleteRelationsResult:
        ids = [event.relation_id for event in outcome.events(RelationDeleted)]
        rows = [row for row in map(outcome.before.relation, ids) if row is not None]
        gone = set(ids)
        missing = [
            item for item in arguments.relations if _between(item, outcome.before) not in gone
        ]
        room = Room()
        return DeleteRelationsResult(
            project=call.project,
            success=True,
            message=deletion("relations", len(rows), len(missing)),
            deleted=len(rows),
            not_found=room.take([_edge(item) for item in missing], "relations not found", share=2),
            suggestions=[_edge(row) for row in closest_relations(missing, outcome.after)],
            relations=room.take([view_relation(row) for row in rows], "deleted relations"),
            notice=room.notice(
                f"open_nodes with asOf={outcome.before.position} shows what was deleted."
            ),
        )

    return call.execute(arguments, answer, DeleteRelationsResult)


def _edge(edge: Edge | Relation) -> EdgeView:
    return EdgeView(source=edge.source, target=edge.target, relation_type=edge.relation_type)


def _between(edge: Edge, state: State) -> str | None:
    row = state.relation_between(edge.source, edge.relation_type, edge.target)
    return None if row is None else row.id
