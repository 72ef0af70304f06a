"""Toolset `knowledge`: validated saving, histories of facts, how two entities are connected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from memlog.canonical import canonical
from memlog.commands import EntityName, SaveMemory
from memlog.decisions.names import missing_entity
from memlog.decisions.remarks import quality_score, unchanged, warnings
from memlog.decisions.superseding import brought_back
from memlog.decisions.touching import gone_at
from memlog.errors import (
    MemlogError,
    ObservationNotFound,
    Problem,
    Refusal,
    counted,
    refusal,
    refuse,
    shorten,
)
from memlog.events import EntityCreated, RelationAdded
from memlog.projects.project import Outcome
from memlog.rows import Observation
from memlog.state import State
from memlog.times import iso
from server.answering.cursors import Count, CursorText, Limit, Position, write_cursor
from server.answering.cutting import page_of, said
from server.answering.moments import AsOf, position_of, start_of
from server.answering.nearest import silent_thread
from server.answering.paths import PathSearch, Step, Untried
from server.registry import Arguments, Call, Result, ThreadId, tool

DEPTH_MAX = 20


# -- save_memory


class Created(Result, frozen=True, omit_defaults=False):
    entities: int
    relations: int


class SaveMemoryResult(Result, frozen=True, omit_defaults=False):
    project: str
    success: bool
    created: Created
    warnings: list[str]
    quality_score: float
    validation_errors: list[str] | UnsetType = UNSET
    """Only where it was refused."""


def _unsaved(call: Call, arguments: Mapping[str, Any] | None, error: MemlogError) -> dict[str, Any]:
    """The fields that clients of save_memory look for, where it was refused; which is counted, where it is known for
    which project it was meant."""
    named = arguments.get("project") if isinstance(arguments, Mapping) else None
    with suppress(MemlogError, UnicodeEncodeError):  # half of a character is in no name
        name = call.session.project_name(named if isinstance(named, str) else None)
        call.service.usage.count(saves_key(call.service.store.find(name).id, refused=True))
    return {
        "success": False,
        "created": {"entities": 0, "relations": 0},
        "warnings": [],
        "quality_score": 0.0,
        "validation_errors": said([_as_text(problem) for problem in error.problems], "problems"),
    }


def _as_text(problem: Problem) -> str:
    """Of an entity in the very words that clients know; of the form of the request with the place, without which
    they say nothing."""
    return problem.problem if problem.entity is not None else f"{problem.path}: {problem.problem}"


@tool(
    "knowledge",
    "Save entities with their relations",
    writes=True,
    thread_required=True,
    unfit=_unsaved,
)
def save_memory(call: Call, arguments: SaveMemory) -> SaveMemoryResult:
    """Save entities with facts AND relations in one step, all or nothing. The preferred way to store knowledge.

    An entity that exists keeps what it has and gets what is new.
    RULES: 1) Each observation is ONE fact, at most 150 characters. 2) Each entity has at least 1 relation.
    Example: {"threadId": "t1", "entities": [{"name": "Ann", "entityType": "Person", "observations":
    ["Works at Acme"], "relations": [{"targetEntity": "Acme", "relationType": "works at"}]}, {"name": "Acme",
    "entityType": "Company", "observations": ["Makes anvils"], "relations": [{"targetEntity": "Ann", "relationType":
    "employs"}]}]}
    """

    def answer(outcome: Outcome) -> SaveMemoryResult:
        return SaveMemoryResult(
            project=call.project,
            success=True,
            created=Created(
                entities=sum(1 for _ in outcome.events(EntityCreated)),
                relations=sum(1 for _ in outcome.events(RelationAdded)),
            ),
            warnings=said(
                warnings(arguments, outcome.before)
                + unchanged(arguments, outcome.after)
                + brought_back(outcome.entries, outcome.after)
            ),
            quality_score=quality_score(arguments),
        )

    _, opened = call.open(arguments)
    result = call.execute(arguments, answer, SaveMemoryResult)
    call.service.usage.count(saves_key(opened.project_id, refused=False))
    return result


def saves_key(project_id: str, *, refused: bool) -> str:
    """Under which the calls of save_memory are counted, for the error rate."""
    return f"{project_id} save_memory {'refused' if refused else 'accepted'}"


# -- get_observation_history


class GetObservationHistory(Arguments, frozen=True):
    entity_name: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="entityName")
    observation_id: Annotated[str, Meta(description="Any version of the chain")] | None = field(
        name="observationId", default=None
    )
    thread_id: ThreadId | None = field(name="threadId", default=None)
    limit: Limit | None = None
    cursor: CursorText | None = None
    as_of: AsOf | None = field(name="asOf", default=None)


class Version(Result, frozen=True):
    id: str
    content: str
    timestamp: str
    version: int
    confidence: float
    importance: float
    agent_thread_id: str | None = field(name="agentThreadId")
    supersedes: str | None = None
    superseded_by: str | None = None
    deleted_at: str | None = None


class VersionsResult(Result, frozen=True):
    project: str
    history: list[Version]
    next_cursor: str | None = field(name="nextCursor", default=None)
    notice: str | None = None


class _VersionsCursor(msgspec.Struct, array_like=True):
    """The versions as of `position`, born after `born`."""

    position: Position | None
    born: Count = 0


@tool("knowledge", "Show the versions of facts")
def get_observation_history(call: Call, arguments: GetObservationHistory) -> VersionsResult:
    """Show all versions of an entity's facts, or of one fact, oldest first, with what replaced them.

    Example: {"entityName": "john-doe"}
    """
    project, opened = call.open(arguments)
    start = start_of(_VersionsCursor, arguments, opened)
    with opened.project.read(start.position) as state:
        position = state.position
        entity_id = state.entity_id_of(arguments.entity_name)
        if entity_id is None:
            raise refusal([_missing(arguments.entity_name, state, start.position)])
        if arguments.observation_id is None:
            rows = state.every_observation(entity_id, after=start.born)
        else:
            rows = _chain_of(arguments.observation_id, entity_id, state, after=start.born)
        wanted = (row for row in rows if arguments.thread_id in (None, row.thread))
        page, more = page_of(map(_version, wanted), arguments.limit)
        last = state.observation(page[-1].id) if more else None
    following = None if last is None else _VersionsCursor(position, last.born)
    cursor = write_cursor(following, opened.project_id, arguments)
    notice = None if page else silent_thread(arguments.thread_id, opened)
    return VersionsResult(project=project, history=page, next_cursor=cursor, notice=notice)


def _missing(name: str, state: State, at: int | None) -> Refusal:
    """That it is not there, and as of when it was last: its facts can be read then without bringing it back."""
    kind, problem = missing_entity(name, "entityName", state, at=at)
    gone = gone_at(name, state)
    if gone is None:
        return kind, problem
    then = f'{problem.suggestion} Its facts until position {gone} are told with "asOf": {gone - 1}.'
    return kind, msgspec.structs.replace(problem, suggestion=then)


def _chain_of(
    observation_id: str, entity_id: str, state: State, after: int
) -> Iterator[Observation]:
    """All versions of the fact born beyond a position, the oldest first. In the midst of a merge some are still the
    other entity's."""
    rows = [*state.retired_observations(entity_id), *state.observations(entity_id)]
    text = canonical(observation_id)
    found = (row for row in rows if row.id == observation_id or canonical(row.content) == text)
    start = next(found, None)
    if start is None:
        problem = Problem(
            "observationId",
            f"Observation {shorten(observation_id)!r} not found on this entity",
            "Leave observationId out to see all facts of the entity with their ids.",
            shorten(observation_id),
        )
        raise refusal([(ObservationNotFound, problem)])
    while (older := state.observation(start.supersedes or "")) is not None:
        start = older
    chain = [start]
    while (newer := state.observation(chain[-1].superseded_by or "")) is not None:
        chain.append(newer)
    chain.sort(key=lambda row: row.born)
    return (row for row in chain if row.born > after)


def _version(row: Observation) -> Version:
    return Version(
        id=row.id,
        content=row.content,
        timestamp=iso(row.created_us),
        version=row.version,
        supersedes=row.supersedes,
        superseded_by=row.superseded_by,
        agent_thread_id=row.thread,
        confidence=row.confidence,
        importance=row.importance,
        deleted_at=None if row.deleted_us is None else iso(row.deleted_us),
    )


# -- find_relation_path


class FindRelationPath(Arguments, frozen=True):
    source: Annotated[EntityName, Meta(examples=["john-doe"])] = field(name="from")
    target: Annotated[EntityName, Meta(examples=["techcorp"])] = field(name="to")
    max_depth: Annotated[int, Meta(ge=1, le=DEPTH_MAX)] = field(name="maxDepth", default=6)
    as_of: AsOf | None = field(name="asOf", default=None)


class PathResult(Result, frozen=True):
    project: str
    found: bool
    length: int
    path: list[Step]
    notice: str | None = None


@tool("knowledge", "Find how two entities are connected")
def find_relation_path(call: Call, arguments: FindRelationPath) -> PathResult:
    """Find a shortest chain of relations between two entities, walking them in either direction.

    Example: {"from": "john-doe", "to": "techcorp"}
    """
    project, opened = call.open(arguments)
    at = position_of(arguments.as_of, opened.project)
    with opened.project.read(at) as state:
        ends = []
        missing = []
        for name, path in ((arguments.source, "from"), (arguments.target, "to")):
            entity = state.entity_named(name)
            if entity is None:
                missing.append(missing_entity(name, path, state, at=at))
            else:
                ends.append(entity.name)
        refuse(missing)
        search = PathSearch(ends[0], ends[1], arguments.max_depth, state)
    return PathResult(
        project=project,
        found=search.path is not None,
        length=len(search.path or ()),
        path=search.path or [],
        notice=_untried(search.untried, search.entered, arguments.max_depth),
    )


def _untried(untried: Untried, entered: int, depth_max: int) -> str | None:
    between = "Ask for a path to an entity between the two, and for one on from there."
    if untried == "too many":
        found = f"The search ended after {entered:,} entities, so there may be a path all the same."
        return f"{found} {between}"
    if untried is None:
        return None
    found = f"No path has {counted(depth_max, 'relations')} or fewer; there may be a longer one."
    if depth_max == DEPTH_MAX:
        return f"{found} {between}"
    return f"{found} maxDepth, up to {DEPTH_MAX}, looks further."
