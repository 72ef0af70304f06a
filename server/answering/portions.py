"""The part of an entity that an answer tells: all of it, or the newest where it alone would not fit an answer.

Who opens one name wants that entity, and pages through it from the newest on; there a page is an answer. Beside
others it has a quarter of one, so that it does not keep them out: what was said last is most often what still
counts, and a search tells what it found before that. Of its former names it tells the last. How much is not told, or
on a later page not yet, stands in the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Reversible, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from memlog.errors import counted
from memlog.rows import Entity, Observation, Relation, updated_us
from memlog.state import Edges, Known, State
from memlog.times import iso
from server.advice import followable
from server.answering.cutting import ANSWER_CHARACTERS, PORTION_CHARACTERS, together
from server.answering.views import EntityView, view_provenance, view_relation
from server.session import Session

OPEN_ALONE = "open_nodes with such a name alone pages through all of it."
FORMER_NAMES = "get_history with its entityName tells all names."

SHELL_CHARACTERS = 500
"""What an entity takes beside its facts and relations, its name and aliases aside."""

ALIASES_SHARE = 4
"""Of the room of an entity, one part in so many is for its aliases, at most."""

CHARACTER_BYTES_MAX = 4
FACT_BYTES, EDGE_BYTES, BLAME_BYTES = 4, 160, 700
"""What each takes at most, beside its texts."""

Row = TypeVar("Row")
View = TypeVar("View", bound=EntityView)
_encode = msgspec.json.Encoder().encode


class Before(NamedTuple):
    """Only what is older: facts born before a position, relations below an id (empty for no bound)."""

    fact: int = 2**63 - 1
    edge: str = ""


NEWEST = Before()


class Portion(msgspec.Struct, frozen=True):
    """The facts, relations and aliases that are told, in order; how many are not; where older facts and relations
    begin, if there are any."""

    entity: Entity
    facts: list[Observation]
    edges: list[Relation]
    aliases: list[str]
    updated_us: int
    facts_left_out: int = 0
    edges_left_out: int = 0
    aliases_left_out: int = 0
    rest: Before | None = None


def portion(
    known: Known,
    blamed: State | None = None,
    *,
    alone: bool = False,
    before: Before = NEWEST,
    first: Callable[[str], Sequence[str]] = lambda entity_id: (),
) -> Portion:
    """What there is room for of what is known, and of who is `blamed` for it; the facts whose ids `first` gives for
    the entity go first."""
    row, facts, edges = known
    room = _room_for_texts(known, blamed) if before == NEWEST else 0
    if room > 0 and _bytes_max(whole := _whole(known)) < room:
        return whole
    older = [fact for fact in facts if fact.born < before.fact]
    beyond = edges.before(before.edge) if before.edge else edges

    def fact_size(fact: Observation) -> int:
        source = 0 if blamed is None else len(_encode(view_provenance(fact, blamed))) + 1
        return len(_encode(fact.content)) + 1 + source

    def edge_size(edge: Relation) -> int:
        return len(_encode(view_relation(edge, blamed))) + 1

    def fitting(characters: int) -> tuple[list[Observation], list[Relation], list[str]]:
        names = newest(row.aliases, _alias_size, characters // ALIASES_SHARE)
        room = characters - SHELL_CHARACTERS - len(row.name) - sum(map(_alias_size, names))
        wanted = newest(beyond, edge_size, room)
        half = min(sum(map(edge_size, wanted)), room // 2)
        told = newest(_ranked(older, first(row.id)), fact_size, room - half)
        return told, newest(beyond, edge_size, room - sum(map(fact_size, told))), names[::-1]

    everything = len(facts), len(edges), len(row.aliases)
    told, joined, names = fitting(ANSWER_CHARACTERS)
    if not alone and (len(told), len(joined), len(names)) != everything:
        told, joined, names = fitting(PORTION_CHARACTERS)
    told.sort(key=lambda fact: fact.born)
    joined.sort(key=lambda edge: edge.id)
    rest = Before(told[0].born if told else before.fact, joined[0].id if joined else before.edge)
    more = len(told) < len(older) or len(joined) < len(beyond)
    return Portion(
        row,
        told,
        joined,
        names,
        updated_us(row, facts),
        len(older) - len(told),
        len(beyond) - len(joined),
        len(row.aliases) - len(names),
        rest if more and (told or joined) else None,
    )


def portion_of_facts(row: Entity, current: State, blamed: State | None = None) -> Portion:
    """The same where its relations are told elsewhere, or not at all."""
    return portion(_without_edges(row, current), blamed)


def _without_edges(row: Entity, current: State) -> Known:
    return Known(row, current.observations(row.id), Edges((), current.relation))


def _whole(known: Known) -> Portion:
    row, facts, edges = known
    return Portion(row, facts, list(edges), list(row.aliases), updated_us(row, facts))


def view_entity(row: Entity, current: State, blamed: State | None = None) -> EntityView:
    """The entity with all of its facts; who brought it and each fact, in that order, as `blamed` says."""
    return view_portion(EntityView, _whole(_without_edges(row, current)), blamed)


def view_portion(kind: type[View], told: Portion, blamed: State | None = None, **more: Any) -> View:
    """As much of the entity as is told, in a form that tells `more`."""
    row = told.entity
    if blamed is not None:
        things: list[Entity | Observation] = [row, *told.facts]
        brought = [view_provenance(each, blamed) for each in things]
        more["provenance"] = [each for each in brought if each is not None] or None
    return kind(
        id=row.id,
        name=row.name,
        entity_type=row.entity_type,
        observations=[fact.content for fact in told.facts],
        created_at=iso(row.created_us),
        updated_at=iso(told.updated_us),
        aliases=told.aliases or None,
        observations_left_out=told.facts_left_out,
        relations_left_out=told.edges_left_out,
        aliases_left_out=told.aliases_left_out,
        **more,
    )


def newest(rows: Reversible[Row], size: Callable[[Row], int], room: int) -> list[Row]:
    """The last rows that fit, the last first; at least one, so that who pages comes to an end."""
    told: list[Row] = []
    for row in reversed(rows):
        room -= size(row)
        if room < 0 and told:
            break
        told.append(row)
    return told


def cut_notice(views: Iterable[View], remedy: str, session: Session) -> str | None:
    """Which entities are not told whole, and what this client can do about it."""
    cut = [view for view in views if _is_cut(view)]
    if not cut:
        return None
    facts = sum(view.observations_left_out for view in cut)
    edges = sum(view.relations_left_out for view in cut)
    names = sum(view.aliases_left_out for view in cut)
    left = {"facts": facts, "relations": edges, "former names": names}
    missing = [counted(count, things) for things, count in left.items() if count]
    others = f" and {len(cut) - 1:,} more" if len(cut) > 1 else ""
    left_out = f"'{cut[0].name}'{others}: {' and '.join(missing)} left out, for the answer is long."
    advice = (remedy if facts or edges else None, FORMER_NAMES if names else None)
    return together(left_out, *(followable(session, each) for each in advice))


def _is_cut(view: EntityView) -> bool:
    return bool(view.observations_left_out or view.relations_left_out or view.aliases_left_out)


def _room_for_texts(known: Known, blamed: State | None) -> int:
    """What is left of an answer for the texts of its facts and relations, if all of them are told; not more than 0 for
    what is too long by their number alone, as a hub is, of which nothing need be read for that."""
    row, facts, edges = known
    aliases = row.aliases
    names = sum(map(len, aliases)) * CHARACTER_BYTES_MAX + len(aliases) * FACT_BYTES
    if names > ANSWER_CHARACTERS // ALIASES_SHARE:
        return 0
    besides = len(facts) * FACT_BYTES + len(edges) * EDGE_BYTES
    if blamed is not None:
        besides += (len(facts) + len(edges)) * BLAME_BYTES
    return ANSWER_CHARACTERS - SHELL_CHARACTERS - names - besides


def _bytes_max(told: Portion) -> int:
    """What the texts of its facts and relations take at most: not looked at closely, for nearly every entity fits."""
    characters = 0  # a sum of a generator takes twice as long, for each entity of each answer
    for fact in told.facts:
        characters += len(fact.content)
    for edge in told.edges:
        characters += len(edge.source) + len(edge.target) + len(edge.relation_type)
    return characters * CHARACTER_BYTES_MAX


def _alias_size(alias: str) -> int:
    return len(_encode(alias)) + 1


def _ranked(facts: Sequence[Observation], first: Collection[str]) -> list[Observation]:
    """The facts in order, those of `first` behind them, the best last."""
    if not first:
        return list(facts)
    found = {fact.id: fact for fact in facts}
    best = [found[each] for each in dict.fromkeys(first) if each in found]
    chosen = {fact.id for fact in best}
    return [fact for fact in facts if fact.id not in chosen] + best[::-1]
