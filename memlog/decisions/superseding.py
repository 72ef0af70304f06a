"""One fact in the place of another: what that comes to, and what is told where the other one is no fact any more.

A fact that was superseded is named as a living one is: by id or by exact text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from msgspec import UNSET

from memlog.canonical import canonical
from memlog.closest import Suggestions
from memlog.codec import Entry
from memlog.commands import CONFIDENCE, IMPORTANCE, NewObservation, SavedEntity
from memlog.context import Context
from memlog.decisions.facts import ID_MAX, Facts
from memlog.errors import Conflict, ObservationNotFound, Problem, Refusal, shorten
from memlog.events import (
    Event,
    ObservationAdded,
    ObservationDeleted,
    ObservationSuperseded,
)
from memlog.ids import is_id
from memlog.rows import Observation, observation_index_key
from memlog.state import State

THAT_IS_A_MEMORY = (
    "That is the id of a memory. Pass what is true now to store_memory, "
    "and then both ids to supersede_memory."
)
ADD_IT = "pass what is true now to add_observations, without `supersedes`."


def supersede(
    old: Observation, new: NewObservation, facts: Facts, context: Context
) -> Iterator[Event]:
    """`new` in the place of `old`; where the entity says the same already, it says so once."""
    if _same(old, new):
        return
    for twin in facts.saying(new.content):
        yield ObservationDeleted(twin.id)
    yield ObservationSuperseded(context.new_id("obs"), old.id, new.content, *rated(new))


def rated(
    new: NewObservation | SavedEntity,
    confidence: float = CONFIDENCE,
    importance: float = IMPORTANCE,
) -> tuple[float, float]:
    """Its confidence and importance; these where it does not say."""
    return (
        confidence if new.confidence is UNSET else new.confidence,
        importance if new.importance is UNSET else new.importance,
    )


def brought_back(entries: Iterable[Entry], after: State) -> list[str]:
    """Which facts that a command added had been superseded by what is a fact still: whoever added them may not know
    that, or it changed back."""
    superseded = Superseded(after)
    changed = cache(after.has_retired)  # one entity may have got thousands
    told: dict[str, None] = {}
    for event in (entry.event for entry in entries):
        if not isinstance(event, ObservationAdded) or not changed(event.entity_id):
            continue
        for newest in superseded.followed(event.content, event.entity_id):
            entity = after.entity(newest.entity_id)
            if entity is not None:
                text, name = shorten(event.content), shorten(entity.name)
                told[
                    f"'{text}' of '{name}' was superseded by '{shorten(newest.content)}' and stands beside it now: "
                    "delete what is outdated"
                ] = None
    return list(told)


class _Retired(NamedTuple):
    """What an entity has no more: the facts that were superseded, by their text, and the texts that were deleted."""

    superseded: dict[str, list[Observation]]
    deleted: set[str]


class Superseded:
    """The facts that were superseded, for one command: those of an entity are read once, however many it names."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._near = Suggestions()
        self._retired: dict[str, _Retired] = {}
        self._ends: dict[str, Observation] = {}

    def by(self, content: str, wanted: str, facts: Facts) -> bool:
        """Whether `content` is what the fact of this id or text says by now: then there is nothing to do."""
        newest = self.newest(wanted, facts)
        return any(canonical(each.content) == canonical(content) for each in newest)

    def newest(self, wanted: str, facts: Facts) -> list[Observation]:
        """The living facts of the entity that are later versions of what has this id or says just this."""
        ends = {end.id: end for end in map(self._end, self._named(wanted, facts))}
        return [end for end in ends.values() if end.living and end.entity_id == facts.entity_id]

    def refusal(self, wanted: str, path: str, facts: Facts) -> Refusal:
        """What is told of a `wanted` that is no living fact of the entity."""
        named = self._state.observation(wanted) if is_id(wanted, "obs") else None
        elsewhere = None if named is None else self._elsewhere(named, facts)
        if elsewhere is None and (versions := self._named(wanted, facts)):
            shown = wanted if named is not None else repr(shorten(wanted))
            last = versions[-1]
            problem = f"Observation {shown} was superseded already by {last.superseded_by}"
            return Conflict, Problem(path, problem, _instead(self._end(last)), shorten(wanted))
        suggestion = elsewhere or self._what_to_pass(wanted, named, facts)
        problem = f"Observation {shorten(wanted)!r} not found on this entity"
        return ObservationNotFound, Problem(path, problem, suggestion, shorten(wanted))

    def followed(self, content: str, entity_id: str) -> Iterator[Observation]:
        """The living facts in whose favour an entity gave up what said just this; it may say it again by now."""
        entity = self._state.entity(entity_id)
        if entity is not None and entity.aliases:  # perhaps those of one that was merged into it
            given_up = self._retired_of(entity_id).superseded.get(canonical(content), [])
        else:
            given_up = self._state.retired_saying(entity_id, content)
        for old in given_up:
            newest = self._end(old)
            if newest.living and not _same(newest, old):
                yield newest

    def _what_to_pass(self, wanted: str, named: Observation | None, facts: Facts) -> str:
        """Instead of what is no living fact of any entity; `named` is the fact that has or had this id."""
        if is_id(wanted, "mem") and self._state.memory(wanted) is not None:
            return THAT_IS_A_MEMORY
        mine = named if named is not None and named.entity_id == facts.entity_id else None
        text = wanted if mine is None else mine.content
        near = self._near.did_you_mean(text, facts, facts.contents)
        if canonical(text) in self._retired_of(facts.entity_id).deleted:
            instead = f"{near} If not, {ADD_IT}" if near else ADD_IT.capitalize()
            return f"It was deleted. {instead}"
        suggestion = near or "Pass the id or the exact text of a living observation of this entity."
        undone = _undone_at(wanted, facts)
        if undone is not None:
            back = f'undo {{"position": {undone}}} brings it back.'
            suggestion = f"{suggestion} It was there until position {undone}: {back}"
        return suggestion

    def _named(self, wanted: str, facts: Facts) -> list[Observation]:
        """The version whose id is `wanted`, else those that said just this, in the order they were added."""
        named = self._state.observation(wanted) if len(wanted) <= ID_MAX else None
        if named is not None and named.superseded_by is not None:
            return [named] if self._end(named).entity_id == facts.entity_id else []
        return self._retired_of(facts.entity_id).superseded.get(canonical(wanted), [])

    def _retired_of(self, entity_id: str) -> _Retired:
        if entity_id not in self._retired:
            retired = self._retired.setdefault(entity_id, _Retired({}, set()))
            for row in self._state.retired_observations(entity_id):
                if row.superseded_by is not None:
                    retired.superseded.setdefault(canonical(row.content), []).append(row)
                else:
                    retired.deleted.add(canonical(row.content))
        return self._retired[entity_id]

    def _elsewhere(self, named: Observation, facts: Facts) -> str | None:
        """Of which other entity it is a fact, if it is one still."""
        newest = self._end(named)
        owner = self._state.entity(newest.entity_id)
        if newest.entity_id == facts.entity_id or owner is None or not newest.living:
            return None
        which = "It" if newest.id == named.id else f"Its newest version, {newest.id},"
        return f"{which} is a fact of '{shorten(owner.name)}': pass that as entityName."

    def _end(self, version: Observation) -> Observation:
        """The last of its versions. Each is followed once, however many of them were named."""
        passed: list[str] = []
        newest = version
        while newest.id not in self._ends and newest.superseded_by is not None:
            passed.append(newest.id)
            following = self._state.observation(newest.superseded_by)
            assert following is not None, "a chain of versions has no gaps"
            newest = following
        newest = self._ends.get(newest.id, newest)
        self._ends.update(dict.fromkeys(passed, newest))
        return newest


def _same(fact: Observation, other: Observation | NewObservation) -> bool:
    return canonical(fact.content) == canonical(other.content)


def _instead(newest: Observation) -> str:
    if newest.living:
        return f"Supersede its newest version instead: {newest.id}."
    return f"Its newest version, {newest.id}, was deleted. {ADD_IT.capitalize()}"


def _undone_at(wanted: str, facts: Facts) -> int | None:
    """Where the fact of this id was undone that the entity had; None where it has none such."""
    if not is_id(wanted, "obs"):
        return None
    of = facts.entity_id.encode()
    versions = facts.state.versions(observation_index_key(wanted))
    ends = [each.until for each in versions if of in each.value]
    return ends[-1] if ends else None
