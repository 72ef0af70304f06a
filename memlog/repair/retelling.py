"""What an entry must have said, told from what it changed: `evolve`, the other way round.

For a log some of whose entries were lost, while the tables that were evolved from it are whole. The rows that an
entry changed, as they were before and after it, suggest what happened; a suggestion counts where evolving it
gives the very rows. Not told are an undo, and what changed nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import itemgetter

import msgspec

from memlog import events
from memlog.codec import Entry
from memlog.evolve import evolve
from memlog.rows import (
    Entity,
    Memory,
    Observation,
    decode_entity,
    decode_memory,
    decode_observation,
    decode_relation,
)
from memlog.state import State
from memlog.storage.tables import MemoryRows, Reader, Timeline, place


class Told(msgspec.Struct, frozen=True):
    """What happened, when (microseconds; None where no row says it), and in which thread, as far as rows say."""

    event: events.Event
    time_us: int | None = None
    thread: str | None = None


def retold(position: int, tables: Reader) -> Told | None:
    """What happened at `position`; None where that cannot be told, also by rows that are none."""
    before, after = tables.at(position - 1), tables.at(position)
    try:
        keys = tables.touched(position)
        for told in _suggested(position, keys, before, after):
            if _made(told, position, keys, before, after):
                return told
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return None


def _made(told: Told, position: int, keys: list[bytes], before: Reader, after: Reader) -> bool:
    """Whether this, and nothing else, makes the rows after of those before."""
    draft = Timeline(_Draft(before), MemoryRows())
    entry = Entry(position, told.time_us or 0, "", told.thread, None, told.event, b"")
    try:
        evolve(draft, entry)
    except AssertionError:  # it speaks of what is not there
        return False
    return all(draft.get(key) == after.get(key) for key in {*keys, *draft.touched(position)})


def _suggested(position: int, keys: list[bytes], before: Reader, after: Reader) -> Iterator[Told]:
    for key in keys:
        was, now = before.get(key), after.get(key)
        match key[:1]:
            case b"P":
                yield from _of_project(before, after)
            case b"E":
                old, new = (None if row is None else decode_entity(row) for row in (was, now))
                yield from _of_entity(old, new, after)
            case b"O" | b"H" if now is not None:
                yield from _of_observation(decode_observation(now), position, after)
            case b"R" if now is not None:
                row = decode_relation(now)
                event = events.RelationAdded(
                    row.id, row.source, row.target, row.relation_type, row.importance
                )
                yield Told(event, row.created_us, row.thread)
            case b"R":
                yield Told(events.RelationDeleted(key[1:].decode()))
            case b"M" if now is not None:
                yield from _of_memory(
                    None if was is None else decode_memory(was), decode_memory(now)
                )


def _of_project(before: Reader, after: Reader) -> Iterator[Told]:
    was, now = State(before).project(), State(after).project()
    if now is None:
        return
    if was is None:
        yield Told(events.ProjectCreated(now.id, now.name, now.description), now.created_us)
    elif now.status == "archived":
        yield Told(events.ProjectArchived(), now.updated_us)
    else:
        yield Told(events.ProjectRestored(), now.updated_us)


def _of_entity(was: Entity | None, now: Entity | None, after: Reader) -> Iterator[Told]:
    if was is None and now is not None:
        event = events.EntityCreated(
            now.id, now.name, now.entity_type, now.confidence, now.importance
        )
        yield Told(event, now.created_us, now.thread)
    elif was is not None and now is None:
        yield Told(events.EntityDeleted(was.id))
        into = State(after).entity_named(was.name)
        if into is not None:
            yield Told(events.EntityMerged(was.id, into.id), into.updated_us)
    elif was is not None and now is not None:
        yield Told(events.EntityTypeChanged(now.id, now.entity_type), now.updated_us)
        yield Told(events.EntityRated(now.id, now.confidence, now.importance), now.updated_us)
        yield Told(events.EntityRenamed(now.id, now.name), now.updated_us)


def _of_observation(now: Observation, position: int, after: Reader) -> Iterator[Told]:
    said = (now.content, now.confidence, now.importance)
    if now.deleted_us is not None:
        yield Told(events.ObservationDeleted(now.id), now.deleted_us)
    elif now.born < position:
        owner = State(after).entity(now.entity_id)
        moved = events.ObservationMoved(now.id, now.entity_id)
        yield Told(moved, None if owner is None else owner.updated_us)
    elif now.supersedes is None:
        event = events.ObservationAdded(now.id, now.entity_id, *said)
        yield Told(event, now.created_us, now.thread)
    else:
        next_version = events.ObservationSuperseded(now.id, now.supersedes, *said)
        yield Told(next_version, now.created_us, now.thread)


def _of_memory(was: Memory | None, now: Memory) -> Iterator[Told]:
    if was is None:
        event = events.MemoryStored(
            now.id, now.memory_type, now.content, now.source, now.confidence, now.tags
        )
        yield Told(event, now.created_us, now.thread)
    elif now.deleted_us is not None:
        yield Told(events.MemoryDeleted(now.id), now.deleted_us)
    elif now.superseded_by is not None:
        yield Told(events.MemorySuperseded(now.id, now.superseded_by), now.updated_us)
    else:
        yield Told(events.MemoryMerged(now.id, now.tags, now.confidence), now.updated_us)


class _Draft:
    """Rows that are what a reader tells, but for what is written here."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._written: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        if key in self._written:
            return self._written[key]
        value = self._reader.get(key)
        return None if value is None else _dated(value)

    def replace(self, key: bytes, value: bytes) -> bytes | None:
        old = self.get(key)
        self._written[key] = value
        return old

    def pop(self, key: bytes) -> bytes | None:
        old = self.get(key)
        self._written[key] = None
        return old

    def add(self, key: bytes, value: bytes) -> None:
        if self.get(key) is None:
            self._written[key] = value

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        there = (
            (key, _dated(value))
            for key, value in self._reader.scan(prefix, start)
            if key not in self._written
        )
        here = [
            (key, value)
            for key, value in sorted(self._written.items())
            if value is not None and key.startswith(prefix) and key >= start
        ]
        return merge(there, here, key=itemgetter(0))

    def under(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(prefix))

    def back(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return reversed(self.under(prefix))

    def ceiling(self, key: bytes) -> tuple[bytes, bytes] | None:
        return next(self.scan(b"", key), None)


def _dated(value: bytes) -> bytes:
    """As a timeline stores it; since when it holds is asked by nobody here."""
    return place(0) + value
