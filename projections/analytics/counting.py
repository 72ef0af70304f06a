"""The only place that changes what is counted: entries of the log, applied to the tables of analytics.

Each entry is applied at its own position, so that every past can be read. What it changed is told by
`told` or `changes`; here it is added up, and an entity is moved in every ranking it is in.

A thread touched an entity if an entry of it changed the entity or its observations, or made or ended a
relation at it. It stays so when the entity is deleted: the deletion may be taken back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial

from memlog.codec import Entry
from memlog.rows import encode_row
from memlog.state import State
from memlog.storage.tables import Timeline
from projections.analytics import tables
from projections.analytics.changes import Changes
from projections.analytics.tables import (
    ALL,
    UNRANKED_MAX,
    Analytics,
    Count,
    Counts,
    Effect,
    Thread,
    What,
)
from projections.analytics.told import Telling

_PRESENT = b"\x01"


class _Entities(dict[int, Counts | None]):
    """By birth: what is counted of an entity, as far as it was looked up or changed."""

    def __init__(self, counted: Analytics) -> None:
        super().__init__()
        self._counted = counted

    def __missing__(self, born: int) -> Counts | None:
        row = self[born] = self._counted.entity(born)
        return row


def _waited(timeline: Timeline, name_hash: bytes) -> bool:
    return timeline.get(tables.waiting_key(name_hash)) is not None


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
        self._entities = _Entities(self._counted)
        # Methods of this very object would keep it, and the snapshot, until Python looks for circles.
        self._waited = partial(_waited, timeline)
        self._telling = Telling(state_at, self._entities.__getitem__, self._waited)
        self._has_ranked = timeline.holds(tables.RANKED)
        """Whether any thread had rankings of its own before."""
        self._scopes: dict[int, list[bytes]] = {}
        """By birth: the scopes of the rankings an entity is in, as far as they were looked up."""
        self._threads: dict[bytes, Thread] = {}
        """By scope: the rows of threads, changed in place."""
        self._types: dict[bytes, Count] = {}
        """By key: how many there are of a type, as far as they were looked up."""
        self._joined: defaultdict[bytes, set[int]] = defaultdict(set)
        """By scope: the births a thread touched, as far as they were met: most entries bring no new ones."""

    def count(self, entry: Entry) -> None:
        self._timeline.move_to(entry.position)
        effect = self._telling.effect(entry) or self._compared(entry)
        for old, new in effect.rows:
            if old is not None and new is not None:
                self._change(old, new)
            elif new is not None:
                self._appear(new)
            elif old is not None:
                self._vanish(old)
        if entry.thread is not None:
            self._join(entry.thread, entry, effect.touched)
        for what, of_type, change in effect.types:
            self._add_to_type(what, of_type, change)
        for name_hash in effect.waiting:
            if not self._waited(name_hash):
                self._timeline.add(tables.waiting_key(name_hash), _PRESENT)
        totals = self._totals
        totals.time_us = entry.time_us
        totals.atomic += effect.atomic
        totals.relations += effect.relations
        self._timeline.put(tables.TOTALS_KEY, encode_row(totals))

    def _compared(self, entry: Entry) -> Effect:
        changes = Changes(entry, self._state_at)
        if changes.names:
            self._telling.forget_names()
        return changes.effect(self._entities.__getitem__)

    # -- entities

    def _appear(self, row: Counts) -> None:
        self._entities[row.born] = row
        self._timeline.add(tables.counts_key(row.born), encode_row(row))
        for scope in self._scopes_of(row.born):
            for order, rank in tables.ranks(row).items():
                self._timeline.add(tables.rank_key(order, scope, rank), _PRESENT)
        self._add_to_totals(row, 1)

    def _vanish(self, row: Counts) -> None:
        self._entities[row.born] = None
        self._timeline.delete(tables.counts_key(row.born))
        for scope in self._scopes_of(row.born):
            for order, rank in tables.ranks(row).items():
                self._timeline.delete(tables.rank_key(order, scope, rank))
        self._add_to_totals(row, -1)

    def _change(self, old: Counts, new: Counts) -> None:
        born, timeline, totals = new.born, self._timeline, self._totals
        self._entities[born] = new
        timeline.put(tables.counts_key(born), encode_row(new))
        totals.observations += new.observations - old.observations
        moves = tables.moves(old, new)
        if not moves:
            return
        for scope in self._scopes_of(born):
            for order, left, taken in moves:
                if left is not None:
                    timeline.delete(tables.rank_key(order, scope, left))
                if taken is not None:
                    timeline.add(tables.rank_key(order, scope, taken), _PRESENT)
        totals.related += (new.degree > 0) - (old.degree > 0)
        totals.orphaned += new.is_orphan - old.is_orphan

    def _add_to_totals(self, row: Counts, change: int) -> None:
        totals = self._totals
        totals.entities += change
        totals.observations += change * row.observations
        totals.related += change * (row.degree > 0)
        totals.orphaned += change * row.is_orphan

    def _scopes_of(self, born: int) -> list[bytes]:
        scopes = self._scopes.get(born)
        if scopes is None:
            scopes = self._scopes[born] = [ALL]
            if self._has_ranked:
                prefix = tables.ranked_key(born)
                scopes += [key[len(prefix) :] for key, _ in self._timeline.scan(prefix)]
        return scopes

    # -- threads and types

    def _join(self, name: str, entry: Entry, touched: Collection[int]) -> None:
        """Counts the entry and what it touched as the thread's."""
        scope, row = self._known(name)
        joining = [born for born in sorted(touched) if self._is_new(scope, born)]
        for born in joining:
            self._timeline.put(tables.touched_key(scope, born), _PRESENT)
        row.entities += len(joining)
        if row.entities > self._unranked_max:
            for born in joining if row.ranked else self._members(scope):
                self._rank(scope, born)
            row.ranked = True
        if not row.events:
            row.first_us = entry.time_us
            self._totals.threads += 1
        row.events += 1
        row.commands += entry.command_id != row.command
        row.last_us, row.last_position = entry.time_us, entry.position
        row.thread, row.command = name, entry.command_id
        self._timeline.put(tables.thread_key(scope), encode_row(row))

    def _known(self, name: str) -> tuple[bytes, Thread]:
        scope = tables.scope_of(name)
        if scope not in self._threads:
            self._threads[scope] = self._counted.thread(scope) or Thread(name)
        return scope, self._threads[scope]

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
        row = self._entities[born]
        if row is not None:
            for order, rank in tables.ranks(row).items():
                self._timeline.put(tables.rank_key(order, scope, rank), _PRESENT)

    def _add_to_type(self, what: What, of_type: str, change: int) -> None:
        if not change:
            return
        key = tables.count_key(what, of_type)
        row = self._types.get(key) or self._counted.count(what, of_type)
        number = row.number + change
        if number:
            row = self._types[key] = Count(what, row.type, number)
            self._timeline.put(key, encode_row(row))
        else:
            self._types.pop(key, None)
            self._timeline.delete(key)
