"""What of another memory server's file (`transfer`) is kept otherwise than it stands there, or looks like a mistake,
though each line can be kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memlog.canonical import canonical
from memlog.copies.transfer import EntityLine, Line, Placed, RelationLine, loose_ends
from memlog.decisions.names import leads_to_itself
from memlog.errors import counted, shorten
from memlog.state import State


def doubts_of(lines: Sequence[Placed], state: State) -> Iterator[str]:
    """Each of them in words; `state` is before the lines."""
    yield from _other_types(lines, state)
    yield from _former_names(lines, state)
    yield from _other_forms(lines, state)
    yield from _facts_twice(lines)
    first: dict[tuple[str, ...], str] = {}
    for place, line in lines:
        if isinstance(line, RelationLine):
            if loop := leads_to_itself(line.source, line.target, state):
                yield f"{place}: {loop}"
            ends = map(state.current_name, (line.source, line.target))
            edge = tuple(map(canonical, (line.relation_type, *ends)))
            if edge in first:
                yield f"{place}: the relation stands at {first[edge]} already, and is kept once"
            first.setdefault(edge, place)
    for place, name in loose_ends(lines, state):
        yield f"{place}: there is no entity {shorten(name)!r}: the relation waits for it"


def _other_types(lines: Sequence[Placed], state: State) -> Iterator[str]:
    """A name means one entity, which keeps the type that it had first."""
    types: dict[str, tuple[str, str]] = {}
    for place, line in lines:
        if not isinstance(line, EntityLine):
            continue
        if canonical(line.name) not in types:
            there = state.entity_named(line.name)
            had = (line.entity_type, place) if there is None else (there.entity_type, "memory")
            types[canonical(line.name)] = had
        kept, where = types[canonical(line.name)]
        if canonical(kept) != canonical(line.entity_type):
            yield (
                f"{place}: {shorten(line.name)!r} is a {shorten(kept)!r} in {where} already, and stays one: "
                f"the type {shorten(line.entity_type)!r} is not taken, the facts are"
            )


def _former_names(lines: Sequence[Placed], state: State) -> Iterator[str]:
    """Where a name first stands that means an entity which is called otherwise by now."""
    seen: set[str] = set()
    for place, line in lines:
        for name in _names(line):
            now = state.current_name(name)
            if canonical(name) not in seen and canonical(now) != canonical(name):
                yield (
                    f"{place}: {shorten(name)!r} is a former name of {shorten(now)!r}: "
                    "its facts and relations are added to it"
                )
            seen.add(canonical(name))


def _other_forms(lines: Sequence[Placed], state: State) -> Iterator[str]:
    """Where a name first stands in another Unicode form than one before: a person cannot tell them apart."""
    first: dict[str, tuple[str, str]] = {}
    seen: set[str] = set()
    for place, line in lines:
        for name in _names(line):
            if name in seen:
                continue
            seen.add(name)
            if canonical(name) not in first:
                now = state.current_name(name)
                there = canonical(now) == canonical(name) and now != name
                first[canonical(name)] = (now, "memory") if there else (name, place)
            kept, where = first[canonical(name)]
            if name != kept:
                yield (
                    f"{place}: {shorten(ascii(name))} is {shorten(ascii(kept))} of {where} in another Unicode form: "
                    "they are one name"
                )


def _facts_twice(lines: Sequence[Placed]) -> Iterator[str]:
    """In one: other servers keep a fact as often as it was told, and who counts them afterwards finds fewer here."""
    entities: dict[str, list[tuple[str, EntityLine]]] = {}
    for place, line in lines:
        if isinstance(line, EntityLine):
            entities.setdefault(canonical(line.name), []).append((place, line))
    twice: list[str] = []
    for of_one in entities.values():
        facts: set[str] = set()
        for place, line in of_one:
            before = len(facts)
            facts.update(map(canonical, line.observations))
            twice += [place] * (before + len(line.observations) - len(facts))
    if twice:
        total = counted(len(twice), "facts")
        yield f"{twice[0]}: a fact stands there again, and is kept once: {total} of the file in all"


def _names(line: Line) -> tuple[str, ...]:
    return (line.name,) if isinstance(line, EntityLine) else (line.source, line.target)
