"""The only place that changes what is counted: entries of the log, applied to the tables of analytics.

Each entry is applied at its own position, so that every past can be read. What it changed is told by
`analytics_changes`; here it is added up, and an entity is moved in every ranking it is in.

A thread touched an entity if an entry of it changed the entity or its observations, or made or ended a
relation at it. It stays so when the entity is deleted: the deletion may be taken back.
"""

from __future__ import annotations

from collections.abc import Callable

from memlog.codec import Entry
from memlog.state import State, encode_row, text_key
from memlog.tables import Timeline
from projections import analytics_tables as tables
from projections.analytics_changes import Changes
from projections.analytics_tables import (
    ALL,
    UNRANKED_MAX,
    Analytics,
    Count,
    Counts,
    Order,
    Thread,
    Totals,
    What,
)

_PRESENT = b"\x01"
_NEW = Counts(id="", born=0, updated_us=0, importance=0)


class Counting:
    """Counts entries one after another, inside one transaction."""

    def __init__(
        self,
        timeline: Timeline,
        state_at: Callable[[int], State],
        unranked_max: int = UNRANKED_MAX,
    ) -> None:
        self._timeline = timeline
        self._state_at = state_at
        self._unranked_max = unranked_max
        self._counted = Analytics(timeline, timeline.position)
        self._totals = self._counted.totals()
        self._scopes: dict[int, list[bytes]] = {}
        """By birth: the scopes of the rankings an entity is in, as far as they were looked up."""
        self._threads: dict[str, tuple[bytes, Thread]] = {}
        """By name: the scope of a thread and its newest row."""
        self._joined: set[bytes] = set()
        """Keys of what threads touched: most entries bring no new ones."""

    def count(self, entry: Entry) -> None:
        self._timeline.move_to(entry.position)
        changes = Changes(entry.position, self._state_at)
        before, after = (0, 0, 0, 0), (0, 0, 0, 0)
        for born in sorted({*changes.entities, *changes.counts}):
            old = self._counted.entity(born)
            new = _changed(born, old, changes)
            if new != old:
                self._replace(born, old, new)
                before, after = _plus(before, old), _plus(after, new)
        new_thread = entry.thread is not None and self._join(entry.thread, entry, changes.touched)
        for (what, of_type), change in changes.types.items():
            self._add_to_type(what, of_type, change)
        totals = self._totals
        entities, observations, related, orphaned = (
            became - was for was, became in zip(before, after, strict=True)
        )
        self._totals = Totals(
            time_us=entry.time_us,
            entities=totals.entities + entities,
            observations=totals.observations + observations,
            atomic=totals.atomic + changes.atomic,
            relations=totals.relations + changes.relations,
            related=totals.related + related,
            orphaned=totals.orphaned + orphaned,
            threads=totals.threads + new_thread,
        )
        self._timeline.put(tables.TOTALS_KEY, encode_row(self._totals))

    # -- entities

    def _replace(self, born: int, old: Counts | None, new: Counts | None) -> None:
        if new is None:
            self._timeline.delete(tables.counts_key(born))
        else:
            self._timeline.put(tables.counts_key(born), encode_row(new))
        before: dict[Order, bytes] = {} if old is None else tables.ranks(old)
        after: dict[Order, bytes] = {} if new is None else tables.ranks(new)
        left = [each for each in before.items() if after.get(each[0]) != each[1]]
        taken = [each for each in after.items() if before.get(each[0]) != each[1]]
        for scope in self._scopes_of(born):
            for order, rank in left:
                self._timeline.delete(tables.rank_key(order, scope, rank))
            for order, rank in taken:
                self._timeline.put(tables.rank_key(order, scope, rank), _PRESENT)

    def _scopes_of(self, born: int) -> list[bytes]:
        if born not in self._scopes:
            prefix = tables.ranked_key(born)
            found = [key[len(prefix) :] for key, _ in self._timeline.scan(prefix)]
            self._scopes[born] = [ALL, *found]
        return self._scopes[born]

    # -- threads and types

    def _join(self, name: str, entry: Entry, touched: set[int]) -> bool:
        """Counts the entry and what it touched as the thread's; true where the thread is new."""
        scope, known = self._known(name)
        joining = [born for born in sorted(touched) if self._is_new(scope, born)]
        for born in joining:
            self._timeline.put(tables.touched_key(scope, born), _PRESENT)
        entities = known.entities + len(joining)
        ranked = entities > self._unranked_max
        if ranked:
            for born in joining if known.ranked else list(self._counted.touched(scope)):
                self._rank(scope, born)
        row = Thread(
            name,
            entities,
            ranked,
            events=known.events + 1,
            commands=known.commands + (entry.command_id != known.command),
            first_us=known.first_us if known.events else entry.time_us,
            last_us=entry.time_us,
            last_position=entry.position,
            command=entry.command_id,
        )
        self._threads[name] = scope, row
        self._timeline.put(tables.thread_key(scope), encode_row(row))
        return not known.events

    def _known(self, name: str) -> tuple[bytes, Thread]:
        if name not in self._threads:
            scope = text_key(name)
            self._threads[name] = scope, self._counted.thread(scope) or Thread(name)
        return self._threads[name]

    def _is_new(self, scope: bytes, born: int) -> bool:
        key = tables.touched_key(scope, born)
        if key in self._joined:
            return False
        self._joined.add(key)
        return self._timeline.get(key) is None

    def _rank(self, scope: bytes, born: int) -> None:
        self._scopes_of(born).append(scope)
        self._timeline.put(tables.ranked_key(born, scope), _PRESENT)
        row = self._counted.entity(born)
        if row is not None:
            for order, rank in tables.ranks(row).items():
                self._timeline.put(tables.rank_key(order, scope, rank), _PRESENT)

    def _add_to_type(self, what: What, of_type: str, change: int) -> None:
        row = self._counted.count(what, of_type)
        number = row.number + change
        if change and number:
            row = Count(what, row.type, number)
            self._timeline.put(tables.count_key(what, of_type), encode_row(row))
        elif change:
            self._timeline.delete(tables.count_key(what, of_type))


def _changed(born: int, old: Counts | None, changes: Changes) -> Counts | None:
    """The counts of an entity after the entry; None where it does not live."""
    row = changes.entities.get(born, old)
    if row is None:
        return None
    base, change = old or _NEW, changes.counts[born]
    return Counts(
        id=row.id,
        born=born,
        updated_us=row.updated_us,
        importance=row.importance,
        observations=base.observations + change.observations,
        degree=base.degree + change.degree,
        broken=base.broken + change.broken,
    )


def _plus(sums: tuple[int, int, int, int], row: Counts | None) -> tuple[int, int, int, int]:
    """The sums of entities, observations, related and orphaned, with one entity more."""
    if row is None:
        return sums
    entities, observations, related, orphaned = sums
    return (
        entities + 1,
        observations + row.observations,
        related + (row.degree > 0),
        orphaned + (row.orphaned is not None),
    )
