"""Toolset `graph`, the two tools that write observations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import UNSET, field

from memlog.canonical import canonical
from memlog.commands import AddObservations, DeleteObservations
from memlog.decisions.graph import texts_of
from memlog.decisions.superseding import brought_back
from memlog.errors import shorten
from memlog.events import ObservationAdded, ObservationDeleted, ObservationSuperseded
from memlog.projects.project import Outcome
from memlog.rows import Observation
from memlog.state import State
from server.answering.cutting import ANSWER_CHARACTERS, Room, each_fitting, within_budget
from server.answering.nearest import closest_facts, deletion
from server.registry import Call, Result, tool


class ObservationView(Result, frozen=True):
    id: str
    content: str
    version: int
    supersedes: str | None = None


class AddedObservations(Result, frozen=True):
    """Of a long list, `leftOut` facts are stored and not told."""

    entity_name: str = field(name="entityName")
    added: list[str] = field(name="addedObservations")
    observations: list[ObservationView]
    left_out: int = field(name="leftOut", default=0)


class AddObservationsResult(Result, frozen=True):
    project: str
    results: list[AddedObservations]
    notice: str | None = None


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
        room = Room()
        results = list(_added(arguments, outcome))
        back = room.say(brought_back(outcome.entries, outcome.after), "facts that were superseded")
        kept = room.say(
            list(dict.fromkeys(_ratings_kept(arguments, outcome.after))),
            "facts keep their ratings",
            "To rate a fact anew, delete it and add it again.",
        )
        told = room.take(each_fitting(results, _shortened_additions, room.left), "entities")
        room.leave(sum(each.left_out for each in told), "facts")
        return AddObservationsResult(
            project=call.project,
            results=told,
            notice=room.notice(
                "All were stored; open_nodes shows the newest.",
                *back,
                *kept,
            ),
        )

    return call.execute(arguments, answer, AddObservationsResult)


def _added(arguments: AddObservations, outcome: Outcome) -> Iterator[AddedObservations]:
    """What each item added: one result each, also where an entity comes twice."""
    added: dict[str, dict[str, list[Observation]]] = {}  # by entity and text
    for entry in outcome.entries:
        if isinstance(entry.event, (ObservationAdded, ObservationSuperseded)):
            row = outcome.after.observation(entry.event.observation_id)
            if row is not None and row.living:  # else a later item put another in its place
                by_text = added.setdefault(row.entity_id, {})
                by_text.setdefault(canonical(row.content), []).append(row)
    for item in arguments.observations:
        entity = outcome.after.entity_named(item.entity_name)
        if entity is not None:
            by_text = added.get(entity.id, {})
            mine = [row for text in texts_of(item) for row in by_text.pop(text, ())]
            mine.sort(key=lambda row: row.born)
            yield _additions(entity.name, mine)


def _ratings_kept(arguments: AddObservations, after: State) -> Iterator[str]:
    """Which facts were there already, with other ratings than were given for them."""
    for item in arguments.observations:
        entity_id = after.entity_id_of(item.entity_name) or ""
        for new in item.contents:
            if isinstance(new, str):
                continue
            for row in after.saying(entity_id, new.content)[:1]:
                ratings = (
                    ("confidence", row.confidence, new.confidence),
                    ("importance", row.importance, new.importance),
                )
                kept = [
                    f"{what} {has:g}, {given:g} was given"
                    for what, has, given in ratings
                    if given is not UNSET and given != has
                ]
                if kept:
                    fact = f"'{shorten(new.content)}' of '{shorten(item.entity_name)}'"
                    yield f"{fact} keeps {', and '.join(kept)}."


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


def _shortened_additions(added: AddedObservations, characters: int) -> AddedObservations:
    facts = within_budget(((each, each.content) for each in added.observations), most=characters)
    count = sum(1 for _ in facts)
    return AddedObservations(
        entity_name=added.entity_name,
        added=added.added[:count],
        observations=added.observations[:count],
        left_out=len(added.observations) - count,
    )


class Deletion(Result, frozen=True):
    """Of a long list, `leftOut` texts are not told."""

    entity_name: str = field(name="entityName")
    observations: list[str]
    left_out: int = field(name="leftOut", default=0)


class DeleteObservationsResult(Result, frozen=True, omit_defaults=False):
    """`suggestions` gives, for a text that was not found, the closest of the entity, long ones by id; for the name
    of an entity that was not found, the closest names."""

    project: str
    success: bool
    message: str
    deleted: int
    deletions: list[Deletion]
    not_found: list[Deletion] = field(name="notFound", default_factory=list)
    suggestions: dict[str, list[str]] = field(default_factory=dict)
    notice: str | None = None


@tool("graph", "Delete observations", writes=True, destructive=True)
def delete_observations(call: Call, arguments: DeleteObservations) -> DeleteObservationsResult:
    """Delete facts by exact text or id. To correct one, use add_observations with `supersedes` instead.

    Example: {"deletions": [{"entityName": "john-doe", "observations": ["Lives in Paris"]}]}
    """

    def answer(outcome: Outcome) -> DeleteObservationsResult:
        ids = {event.observation_id for event in outcome.events(ObservationDeleted)}
        deletions, missing = _deleted(arguments, ids, outcome.before)
        room = Room()
        half = ANSWER_CHARACTERS // 2
        not_found = room.take(
            each_fitting(missing, _shortened_deletion, half), "entities with facts not found", 2
        )
        told = room.take(each_fitting(deletions, _shortened_deletion, half), "entities")
        room.leave(sum(each.left_out for each in (*not_found, *told)), "facts")
        return DeleteObservationsResult(
            project=call.project,
            success=True,
            message=deletion("observations", len(ids), len(missing)),
            deleted=len(ids),
            deletions=told,
            not_found=not_found,
            suggestions=closest_facts(
                ((each.entity_name, each.observations) for each in missing), outcome.after
            ),
            notice=room.notice(
                f"open_nodes with asOf={outcome.before.position} shows what was deleted."
            ),
        )

    return call.execute(arguments, answer, DeleteObservationsResult)


def _deleted(
    arguments: DeleteObservations, ids: Iterable[str], before: State
) -> tuple[list[Deletion], list[Deletion]]:
    """What each item deleted, of the facts with these ids, and what it found nothing for; no fact is told of twice."""
    deleted: dict[str, dict[str, set[str]]] = {}  # by entity, and by id and by text: ids
    for row in map(before.observation, ids):
        if row is not None:
            by_name = deleted.setdefault(row.entity_id, {})
            for name in (row.id, canonical(row.content)):
                by_name.setdefault(name, set()).add(row.id)
    deletions, missing = [], []
    told_of: set[str] = set()
    for item in arguments.deletions:
        gone = deleted.get(before.entity_id_of(item.entity_name) or "", {})
        missed = [text for text in item.observations if canonical(text) not in gone]
        hit = []
        for text in item.observations:
            if fresh := gone.get(canonical(text), set()) - told_of:
                told_of |= fresh
                hit.append(text)
        if hit:
            deletions.append(Deletion(entity_name=item.entity_name, observations=hit))
        if missed:
            missing.append(Deletion(entity_name=item.entity_name, observations=missed))
    return deletions, missing


def _shortened_deletion(whole: Deletion, characters: int) -> Deletion:
    told = list(within_budget(whole.observations, most=characters))
    left_out = len(whole.observations) - len(told)
    return Deletion(entity_name=whole.entity_name, observations=told, left_out=left_out)
