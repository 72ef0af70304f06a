"""The part of an entity that an answer tells: all of it, or the newest where it alone would not fit an answer.

Who opens one name wants that entity, and pages through it from the newest on; there a page is an answer. Beside
others it has a quarter of one, so that it does not keep them out: what was said last is most often what still
counts, and a search tells what it found before that. Of its former names it tells the last. How much is not told
stands in the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from memlog.state import Entity, Known, Observation, Relation, State, updated_us
from server.cutting import ANSWER_CHARACTERS, PORTION_CHARACTERS
from server.views import EntityView, View, view_entity_as, view_provenance, view_relation

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
_encode = msgspec.json.Encoder().encode


class Before(NamedTuple):
    """Only what is older: facts born before a position, relations below an id (empty for no bound)."""

    fact: int = 2**63 - 1
    edge: str = ""


NEWEST = Before()


class Portion(msgspec.Struct, frozen=True):
    """The facts, relations and aliases that are told, in order; how many are not; where older facts and relations
    begin, if there are any."""

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
    current: State,
    *,
    blame: bool = False,
    alone: bool = False,
    before: Before = NEWEST,
    first: Callable[[str], Sequence[str]] = lambda entity_id: (),
) -> Portion:
    """What there is room for of what is known; the facts whose ids `first` gives for the entity go first."""
    row, facts, edges = known
    changed = updated_us(row, facts)
    if before == NEWEST and _surely_fits(row.aliases, facts, edges, blame):
        return Portion(facts, edges, list(row.aliases), changed)
    older = [fact for fact in facts if fact.born < before.fact]
    beyond = [edge for edge in edges if not before.edge or edge.id < before.edge]

    def fact_size(fact: Observation) -> int:
        return len(_encode(fact.content)) + 1 + (_blamed(fact, current) if blame else 0)

    def edge_size(edge: Relation) -> int:
        return len(_encode(view_relation(edge, current, blame=blame))) + 1

    def fitting(characters: int) -> tuple[list[Observation], list[Relation], list[str]]:
        names = newest(row.aliases, _alias_size, characters // ALIASES_SHARE)
        room = characters - SHELL_CHARACTERS - len(row.name) - sum(map(_alias_size, names))
        wanted = newest(beyond, edge_size, room)
        half = min(sum(map(edge_size, wanted)), room // 2)
        told = newest(_ranked(older, first(row.id)), fact_size, room - half)
        return told, newest(beyond, edge_size, room - sum(map(fact_size, told))), names[::-1]

    whole = len(facts), len(edges), len(row.aliases)
    told, joined, names = fitting(ANSWER_CHARACTERS)
    if not alone and (len(told), len(joined), len(names)) != whole:
        told, joined, names = fitting(PORTION_CHARACTERS)
    told.sort(key=lambda fact: fact.born)
    joined.sort(key=lambda edge: edge.id)
    rest = Before(told[0].born if told else before.fact, joined[0].id if joined else before.edge)
    return Portion(
        told,
        joined,
        names,
        changed,
        len(facts) - len(told),
        len(edges) - len(joined),
        len(row.aliases) - len(names),
        rest if len(told) < len(older) or len(joined) < len(beyond) else None,
    )


def view_portion(
    kind: type[View],
    row: Entity,
    current: State,
    *,
    blame: bool = False,
    told: Portion | None = None,
    **more: Any,
) -> View:
    """The entity as one of several in an answer, or as much of it as `told` says."""
    if told is None:
        told = portion(Known(row, current.observations(row.id), []), current, blame=blame)
    if told.facts_left_out or told.edges_left_out:
        more["observations_left_out"] = told.facts_left_out
        more["relations_left_out"] = told.edges_left_out
    if told.aliases_left_out:
        more["aliases"] = told.aliases
        more["aliases_left_out"] = told.aliases_left_out
    return view_entity_as(
        kind, row, told.facts, current if blame else None, told.updated_us, **more
    )


def newest(rows: Sequence[Row], size: Callable[[Row], int], room: int) -> list[Row]:
    """The last rows that fit, the last first; at least one, so that who pages comes to an end."""
    told: list[Row] = []
    for row in reversed(rows):
        room -= size(row)
        if room < 0 and told:
            break
        told.append(row)
    return told


def cut_notice(views: Iterable[View], remedy: str) -> str | None:
    """Which entities are not told whole, and what to do about it."""
    cut = [view for view in views if _is_cut(view)]
    if not cut:
        return None
    facts = sum(view.observations_left_out for view in cut)
    edges = sum(view.relations_left_out for view in cut)
    names = sum(view.aliases_left_out for view in cut)
    missing = [f"{facts:,} facts"] * bool(facts) + [f"{edges:,} relations"] * bool(edges)
    missing += [f"{names:,} former names"] * bool(names)
    others = f" and {len(cut) - 1:,} more" if len(cut) > 1 else ""
    left_out = f"'{cut[0].name}'{others}: {' and '.join(missing)} left out, for the answer is long."
    return " ".join([left_out, *[remedy] * bool(facts or edges), *[FORMER_NAMES] * bool(names)])


def _is_cut(view: EntityView) -> bool:
    return bool(view.observations_left_out or view.relations_left_out or view.aliases_left_out)


def _surely_fits(
    aliases: Sequence[str], facts: Sequence[Observation], edges: Sequence[Relation], blame: bool
) -> bool:
    """Told without looking closely, as of nearly every entity."""
    names = sum(map(len, aliases)) * CHARACTER_BYTES_MAX + len(aliases) * FACT_BYTES
    if names > ANSWER_CHARACTERS // ALIASES_SHARE:
        return False
    characters = 0
    for fact in facts:  # a sum of a generator takes twice as long, for each entity of each answer
        characters += len(fact.content)
    for edge in edges:
        characters += len(edge.source) + len(edge.target) + len(edge.relation_type)
    besides = len(facts) * FACT_BYTES + len(edges) * EDGE_BYTES
    blamed = (len(facts) + len(edges)) * BLAME_BYTES if blame else 0
    room = ANSWER_CHARACTERS - SHELL_CHARACTERS - names
    return characters * CHARACTER_BYTES_MAX + besides + blamed < room


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


def _blamed(fact: Observation, current: State) -> int:
    return len(_encode(view_provenance(fact.id, fact.born, current))) + 1
