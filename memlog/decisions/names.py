"""Entities as they are called: by their names, those they had before among them, and by an id where a name belongs; and
what is said of a name that is missing or taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from memlog.canonical import canonical
from memlog.closest import Suggestions
from memlog.decisions.touching import came_after, gone_at
from memlog.errors import EntityNotFound, Problem, Refusal, refusal, shorten
from memlog.ids import is_id
from memlog.rows import Entity
from memlog.state import State

CREATE_IT = "Create it first with create_entities."
FIND_IT = "Look for it with search_nodes: it may have another name."
"""Advice about an entity that is missing: to who would add to it, and to who reads or changes what is there."""


def missing_entity(
    name: str,
    path: str,
    state: State,
    near: Suggestions | None = None,
    *,
    far: str = FIND_IT,
    at: int | None = None,
) -> Refusal:
    """`near` is that of all problems of a refusal, where there may be many; `far` is advised where no name is near.

    `at` is the position as of which was asked, where that was not for now.
    """
    near = near or Suggestions()
    suggestion = pass_its_name(name, state) or near.did_you_mean(name, State, state.names) or far
    gone = near.gone(name, partial(gone_at, state=state))
    came = None if at is None else came_after(at, name, state)
    if came is not None:
        suggestion = f"It came later, at position {came}: ask as of then."
    elif gone is not None:
        back = f'undo {{"position": {gone}}} brings it back.'
        suggestion = f"{suggestion} It was there until position {gone}: {back}"
    problem = f"Entity with name {shorten(name)} not found"
    return EntityNotFound, Problem(path, problem, suggestion, shorten(name))


def required_entity(name: str, path: str, state: State, *, at: int | None = None) -> Entity:
    """Raises EntityNotFound; `at` as for `missing_entity`."""
    entity = state.entity_named(name)
    if entity is None:
        raise refusal([missing_entity(name, path, state, at=at)])
    return entity


def named_by_id(text: str, state: State) -> str | None:
    """The name of the entity whose id stands where its name belongs."""
    entity = state.entity(text) if is_id(text, "ent") else None
    return None if entity is None else entity.name


def former_names(names: Iterable[str], state: State) -> dict[str, str]:
    """By a name that an entity had once, what it is called by now; without those also named so."""
    found = {name: state.entity_named(name) for name in names}
    named = {canonical(name) for name in found}
    return {
        name: entity.name
        for name, entity in found.items()
        if entity is not None and canonical(entity.name) not in named
    }


def leads_to_itself(source: str, target: str, state: State) -> str | None:
    """What to say of a relation between two names of one entity; None of any other."""
    now = state.current_name(source)
    if canonical(source) == canonical(target) or canonical(now) != canonical(
        state.current_name(target)
    ):
        return None
    return (
        f"'{shorten(source)}' and '{shorten(target)}' are names of one entity by now, '{shorten(now)}': "
        "the relation leads from it to itself"
    )


def pass_its_name(text: str, state: State) -> str | None:
    """What to say of such an id; None of any other text."""
    name = named_by_id(text, state)
    return None if name is None else f"That is the id of '{shorten(name)}': pass the name."


def exists_already(name: str, former: Mapping[str, str]) -> str:
    """What to say of a name that is taken, be it as one of the `former_names`."""
    said = f"Entity with name {shorten(name)} exists already"
    return f"{said}: it is called '{shorten(former[name])}' by now" if name in former else said
