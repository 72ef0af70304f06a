"""What the commonest entries changed in the counts, told by the event alone.

Nine of ten entries of most logs bring an entity, an observation or a relation into being. What they do
to the counts is plain from the event and from what is counted already, so that nothing of the state is
read but what a name means. Of every other entry, and of an entity at whose name a relation ever waited,
nothing is told here: `changes` compares the state before and after it. Both say the same, which a test
holds them to.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from memlog.canonical import canonical, characters
from memlog.codec import Entry
from memlog.commands import SAVED_OBSERVATION_MAX
from memlog.events import EntityCreated, ObservationAdded, RelationAdded
from memlog.rows import text_key
from memlog.state import State
from projections.analytics.tables import Counts, Effect


class Telling:
    """Told one entry after another, as they stand in the log, inside one snapshot of it."""

    def __init__(
        self,
        state_at: Callable[[int], State],
        counted: Callable[[int], Counts | None],
        waited: Callable[[bytes], bool],
    ) -> None:
        """`counted` tells what is counted of an entity, by its birth; `waited` whether a relation ever
        waited at a name, by its hash."""
        self._state_at = state_at
        self._counted = counted
        self._waited = waited
        self._births: dict[str, int] = {}
        """By id: the birth of an entity, which no event changes."""
        self._named: dict[str, int | None] = {}
        """By name: the birth of the entity it means now; None where it means none."""

    def effect(self, entry: Entry) -> Effect | None:
        """What the entry changed; None where that must be looked up."""
        match entry.event:
            case ObservationAdded() as event:
                return self._observed(event, entry)
            case RelationAdded() as event:
                return self._related(event, entry.position)
            case EntityCreated() as event:
                return self._created(event, entry)
            case _:
                return None

    def forget_names(self) -> None:
        """To be called when an entry of which nothing was told here changed what names mean."""
        self._named.clear()

    def _observed(self, event: ObservationAdded, entry: Entry) -> Effect:
        old = self._living(self._birth(event.entity_id, entry.position))
        new = replace(old, updated_us=entry.time_us, observations=old.observations + 1)
        atomic = int(characters(event.content) <= SAVED_OBSERVATION_MAX)
        return Effect([(old, new)], (old.born,), atomic=atomic)

    def _related(self, event: RelationAdded, position: int) -> Effect:
        ends = {self._meant(event.source, position), self._meant(event.target, position)}
        whole = None not in ends
        births = sorted(born for born in ends if born is not None)
        rows: list[tuple[Counts | None, Counts | None]] = []
        for born in births:
            old = self._living(born)
            new = replace(old, degree=old.degree + whole, broken=old.broken + (not whole))
            rows.append((old, new))
        if whole:
            return Effect(rows, births, relations=1)
        names = {event.source, event.target}
        waiting = {text_key(name) for name in names if self._meant(name, position) is None}
        return Effect(rows, births, relations=1, waiting=waiting)

    def _created(self, event: EntityCreated, entry: Entry) -> Effect | None:
        if self._waited(text_key(event.name)):
            return None
        born = entry.position
        self._births[event.entity_id] = self._named[canonical(event.name)] = born
        new = Counts(event.entity_id, born, entry.time_us, event.importance)
        return Effect([(None, new)], (born,), types=[("entity", event.entity_type, 1)])

    def _living(self, born: int) -> Counts:
        row = self._counted(born)
        assert row is not None, "decide named an entity that lives"
        return row

    def _birth(self, entity_id: str, position: int) -> int:
        born = self._births.get(entity_id)
        if born is None:
            entity = self._state_at(position).entity(entity_id)
            assert entity is not None, "decide named an entity that lives"
            born = self._births[entity_id] = entity.born
        return born

    def _meant(self, name: str, position: int) -> int | None:
        key = canonical(name)
        try:
            return self._named[key]
        except KeyError:
            entity = self._state_at(position).entity_named(name)
            born = self._named[key] = None if entity is None else entity.born
            return born
