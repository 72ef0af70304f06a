"""The only place that changes what is counted: entries of the log, applied to the tables of analytics.

Each entry is applied at its own position, so that every past can be read. What it changed is told by
`analytics_told` or `analytics_changes`; here it is added up, and an entity is moved in every ranking it is in.

A thread touched an entity if an entry of it changed the entity or its observations, or made or ended a
relation at it. It stays so when the entity is deleted: the deletion may be taken back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

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
    Effect,
    Thread,
    Totals,
    What,
)
from projections.analytics_told import Telling

_PRESENT = b"\x01"


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
        self._entities: dict[int, Counts | None] = {}
        """By birth: what is counted of an entity, as far as it was looked up or changed."""
        self._telling = Telling(state_at, self._entity)
        self._has_ranked = timeline.holds(tables.RANKED)
        """Whether any thread had rankings of its own before."""
        self._scopes: dict[int, list[bytes]] = {}
        """By birth: the scopes of the rankings an entity is in, as far as they were looked up."""
        self._threads: dict[str, tuple[bytes, Thread]] = {}
        """By name: the scope of a thread and its newest row."""
        self._joined: defaultdict[bytes, set[int]] = defaultdict(set)
        """By scope: the births a thread touched, as far as they were met: most entries bring no new ones."""

    def count(self, entry: Entry) -> None:
        self._timeline.move_to(entry.position)
        effect = self._telling.effect(entry) or self._compared(entry.position)
        entities, observations, related, orphaned = 0, 0, 0, 0
        for old, new in effect.rows:
            self._replace(old, new)
            if old is not None:
                entities -= 1
                observations -= old.observations
                related -= old.degree > 0
                orphaned -= old.is_orphan
            if new is not None:
                entities += 1
                observations += new.observations
                related += new.degree > 0
                orphaned += new.is_orphan
        new_thread = entry.thread is not None and self._join(entry.thread, entry, effect.touched)
        for (what, of_type), change in effect.types.items():
            self._add_to_type(what, of_type, change)
        totals = self._totals
        self._totals = Totals(
            entry.time_us,
            totals.entities + entities,
            totals.observations + observations,
            totals.atomic + effect.atomic,
            totals.relations + effect.relations,
            totals.related + related,
            totals.orphaned + orphaned,
            totals.threads + new_thread,
        )
        self._timeline.put(tables.TOTALS_KEY, encode_row(self._totals))

    def _compared(self, position: int) -> Effect:
        changes = Changes(position, self._state_at)
        if changes.names:
            self._telling.forget_names()
        return changes.effect(self._entity)

    # -- entities

    def _entity(self, born: int) -> Counts | None:
        try:
            return self._entities[born]
        except KeyError:
            row = self._entities[born] = self._counted.entity(born)
            return row

    def _replace(self, old: Counts | None, new: Counts | None) -> None:
        born = new.born if new is not None else old.born  # type: ignore[union-attr]  # one is there
        self._entities[born] = new
        if new is None:
            self._timeline.delete(tables.counts_key(born))
        elif old is None:
            self._timeline.add(tables.counts_key(born), encode_row(new))
        else:
            self._timeline.put(tables.counts_key(born), encode_row(new))
        scopes = self._scopes_of(born)
        for order, left, taken in tables.moves(old, new):
            for scope in scopes:
                if left is not None:
                    self._timeline.delete(tables.rank_key(order, scope, left))
                if taken is not None:
                    self._timeline.add(tables.rank_key(order, scope, taken), _PRESENT)

    def _scopes_of(self, born: int) -> list[bytes]:
        scopes = self._scopes.get(born)
        if scopes is None:
            scopes = self._scopes[born] = [ALL]
            if self._has_ranked:
                prefix = tables.ranked_key(born)
                scopes += [key[len(prefix) :] for key, _ in self._timeline.scan(prefix)]
        return scopes

    # -- threads and types

    def _join(self, name: str, entry: Entry, touched: Collection[int]) -> bool:
        """Counts the entry and what it touched as the thread's; true where the thread is new."""
        scope, known = self._known(name)
        joining = [born for born in sorted(touched) if self._is_new(scope, born)]
        for born in joining:
            self._timeline.put(tables.touched_key(scope, born), _PRESENT)
        entities = known.entities + len(joining)
        ranked = entities > self._unranked_max
        if ranked:
            for born in joining if known.ranked else self._members(scope):
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
        joined = self._joined[scope]
        if born in joined:
            return False
        joined.add(born)
        return self._timeline.get(tables.touched_key(scope, born)) is None

    def _members(self, scope: bytes) -> list[int]:
        """Those written down before, and those of this batch, which a ledger keeps back."""
        return sorted({*self._counted.touched(scope), *self._joined[scope]})

    def _rank(self, scope: bytes, born: int) -> None:
        self._scopes_of(born).append(scope)
        self._timeline.put(tables.ranked_key(born, scope), _PRESENT)
        row = self._entity(born)
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
