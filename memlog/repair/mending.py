"""A log that replays, made of what is whole of a damaged one, position by position.

What stood in a hole is told by the tables that were evolved from the log, where these are whole: one event for one
position, and the lost entry itself where the chain proves that it said so. What the tables do not tell is lost. An
entity whose creation is lost stands again under its id, so that the facts about it are kept. What a command said first,
so that no fact stays at an entity that goes and no relation becomes another's double, is put where it was lost. Any
other entry that speaks of what is not there, or has no hole for what goes before it, can no longer happen and is set
aside.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec
from sortedcontainers import SortedList

from memlog import codec, events
from memlog.codec import CHAIN_END, ERASED, GENESIS, MENDED, WRITTEN, Entry
from memlog.decisions.fitting import by_present_names, fits, may_precede, missing_before
from memlog.evolve import evolve
from memlog.projects.meta import VERSION, VERSION_KEY
from memlog.repair.damage import head
from memlog.repair.piecing import Piece, Standing, pieces
from memlog.repair.retelling import Told, retold
from memlog.runs import runs
from memlog.state import State
from memlog.storage.pages import Pages, Unreadable
from memlog.storage.tables import MemoryRows, Reader, Timeline

NEVER = 2**64
ACTOR = "memlog repair"
LOST_TYPE = "lost"


class Changed(msgspec.Struct, frozen=True):
    """The positions at which something else stands than was written: what the tables tell (`retold`), what has to have
    happened for the rest to happen (`stood_in`), such as the creation of an entity of which only the id is known,
    nothing (`lost`), and nothing in place of what was whole and spoke of what is lost (`unfit`)."""

    retold: tuple[int, ...] = ()
    stood_in: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    unfit: tuple[int, ...] = ()


class Mended(msgspec.Struct, frozen=True):
    """The entries as they are to be stored, and the time of the last (microseconds)."""

    entries: list[tuple[int, bytes]]
    time_us: int
    changed: Changed

    @property
    def whole(self) -> int:
        """The position up to which everything is as it was written."""
        others = (each for positions in msgspec.structs.astuple(self.changed) for each in positions)
        return min(others, default=len(self.entries) + 1) - 1


def whole_of(pages: Pages, standing: Standing, project: events.ProjectCreated) -> Mended | None:
    """What is whole of the log in a damaged file, of which this is `standing`, there or elsewhere; None where
    nothing is.

    Raises StorageError where an entry is proved and cannot be read: it is of a newer memlog. `project` is what
    was created, should nothing else tell.
    """
    found = pieces(standing)
    if not found:
        return None
    end = head(pages) or 0
    found += [Piece(b"", None)] * (end - len(found))
    holes = any(piece.value is None for piece in found)
    repaired = any(codec.is_mended(each) for values in standing.values() for each in values)
    return mend(found, tables_of(pages) if holes else None, project, repaired=repaired)


def mend(
    found: Sequence[Piece],
    tables: Reader | None,
    project: events.ProjectCreated,
    *,
    repaired: bool = False,
) -> Mended:
    """A log that replays, of these pieces, one of them whole; `tables` are those that were evolved from it all. One
    that was `repaired` before was gone on with, and what is put back of it now may contradict what was written since.
    """
    return _Mending(found, tables).done(project, repaired)


def tables_of(pages: Pages) -> Reader | None:
    """The present and the past as they were evolved; None where they are not whole, or of another version."""
    meta = _rows(pages, b"meta")
    if meta is None or meta.get(VERSION_KEY) != VERSION:
        return None
    now, past = _rows(pages, b"now"), _rows(pages, b"past")
    return None if now is None or past is None else Timeline(MemoryRows(now), MemoryRows(past))


def _rows(pages: Pages, name: bytes) -> dict[bytes, bytes] | None:
    table = pages.table(name)
    if table is None:
        return None
    rows = dict(row for row in pages.rows(table) if not isinstance(row, Unreadable))
    return rows if len(rows) == table.rows else None


class _Mending:
    def __init__(self, found: Sequence[Piece], tables: Reader | None) -> None:
        self._links = [GENESIS, *(piece.link for piece in found)]
        self._entries: list[Entry | None] = [None] * (len(found) + 1)
        self._values: list[bytes] = [b""] * (len(found) + 1)
        """Both by position; nothing is at 0, and nothing in a hole."""
        self._standing: SortedList[int] = SortedList()
        """Where something is: a hole may be of a hundred thousand positions."""
        self._tables = tables
        for position, piece in enumerate(found, 1):
            if piece.value is not None:
                self._put(position, _of_known_kind(piece.value))
        self._holes = [at for at in self._positions() if self._entries[at] is None]
        self._latest = self._latest_times()
        self._mend_times()

    def done(self, project: events.ProjectCreated, repaired: bool) -> Mended:
        retold = tuple(at for gap in runs(self._holes) for at in self._retell(gap))
        while self._entries[-1] is None:  # nobody tells of the end
            del self._entries[-1], self._values[-1], self._holes[-1]
        stood_in = set(self._stand_in(project))
        lost = {at for at in self._holes if self._entries[at] is None}
        unfit: set[int] = set()
        for position in lost:
            self._fill(position)
        other = repaired or any(map(codec.is_mended, self._values))
        while other and (put := self._put_before(unfit)):
            stood_in |= put
        others = (tuple(sorted(each - stood_in)) for each in (lost, unfit))
        changed = Changed(retold, tuple(sorted(stood_in)), *others)
        return Mended(list(enumerate(self._values[1:], 1)), self._floor(len(self._values)), changed)

    def _positions(self) -> range:
        return range(1, len(self._entries))

    def _put(self, position: int, value: bytes) -> None:
        if self._entries[position] is None:
            self._standing.add(position)
        self._values[position] = value
        self._entries[position] = codec.decode(position, value)

    def _fill(self, position: int, told: Told | None = None) -> None:
        floor = self._floor(position)
        time_us = min(max(floor, (told and told.time_us) or floor), self._latest[position])
        said = (told.thread, ACTOR, told.event) if told else ()
        link = self._links[position] or bytes(len(GENESIS))
        self._put(position, codec.mend(position, link, time_us, f"mended_{position}", *said))

    # -- times, which the chain does not prove of what was erased, or put in the place of what was lost

    def _floor(self, position: int) -> int:
        """The time of the entry before."""
        before = self._standing.bisect_left(position)
        entry = self._entries[self._standing[before - 1]] if before else None
        return 0 if entry is None else entry.time_us

    def _latest_times(self) -> list[int]:
        """The latest time that each position can have: that of the next entry that stands as it was written."""
        times, latest = [], NEVER
        for entry, value in zip(reversed(self._entries), reversed(self._values), strict=True):
            latest = entry.time_us if entry is not None and value[0] == WRITTEN else latest
            times.append(latest)
        return times[::-1]

    def _mend_times(self) -> None:
        time_us = 0
        for position, entry in enumerate(self._entries):
            if entry is None:
                continue
            value = self._values[position]
            in_order = time_us <= entry.time_us <= self._latest[position]
            if value[0] == WRITTEN or in_order:
                time_us = entry.time_us
            elif isinstance(entry.event, events.Erased):
                self._put(position, codec.erase(position, value, time_us))
            else:
                by = (entry.command_id, entry.thread, entry.actor)
                self._put(position, codec.mend(position, entry.chain, time_us, *by, entry.event))

    # -- what the tables tell

    def _retell(self, gap: range) -> Iterator[int]:
        """Fills what the tables tell of a gap; yields the positions of which nothing else proves it."""
        if self._tables is None:
            return
        told = {position: retold(position, self._tables) for position in gap}
        if self._fill_as_proved(gap, told):
            return
        for position, each in told.items():
            if each is not None:
                self._fill(position, each)
                yield position

    def _fill_as_proved(self, gap: range, told: dict[int, Told | None]) -> bool:
        """Fills the gap where all of it was of the command before or behind it, for then the chain fits."""
        for author in (self._entries[gap.start - 1], self._entry_at(gap.stop)):
            if author is None or not self._links[gap.start - 1]:
                continue
            link, values = self._links[gap.start - 1], []
            for position in gap:
                each = told[position]
                if each is None:
                    return False
                by = (author.command_id, author.thread, author.actor)
                time_us = each.time_us or author.time_us
                entry, value = codec.encode(link, position, time_us, *by, each.event)
                link = entry.chain
                values.append(value)
            if link == self._links[gap.stop - 1]:
                for position, value in zip(gap, values, strict=True):
                    self._put(position, value)
                    self._links[position] = value[1:CHAIN_END]
                return True
        return False

    def _entry_at(self, position: int) -> Entry | None:
        return self._entries[position] if position < len(self._entries) else None

    # -- what others need

    def _stand_in(self, project: events.ProjectCreated) -> Iterator[int]:
        """Puts what facts are about into holes before them, where nobody told of its creation: each into the last one,
        for what is about an entity mostly follows its creation."""
        if self._entries[1] is None:
            self._fill(1, Told(project))
            yield 1
        created: set[str] = set()
        holes = [at for at in self._holes if self._entries[at] is None]
        for position in self._positions():
            entry = self._entries[position]
            match entry and entry.event:
                case events.EntityCreated(entity_id=entity_id):
                    created.add(entity_id)
                case events.ObservationAdded(entity_id=entity_id) if entity_id not in created:
                    if before := bisect_left(holes, position):
                        hole = holes.pop(before - 1)
                        created.add(entity_id)
                        event = events.EntityCreated(entity_id, f"lost {entity_id}", LOST_TYPE)
                        self._fill(hole, Told(event))
                        yield hole

    def _put_before(self, unfit: set[int]) -> set[int]:
        """Replays; sets aside what can no longer happen (`unfit`). Where a lost entry took facts from an entity that
        goes, or a relation from where two would be alike, puts that into holes before; and a relation to a former
        name in its place as one to the present name. Returns where, for what follows is to be replayed anew; nothing
        when all was replayed."""
        left = Timeline(MemoryRows(), MemoryRows())
        gone: set[int] = set()
        for position in self._positions():
            entry = self._entries[position]
            assert entry is not None, "every hole was filled"
            if isinstance(entry.event, events.Erased):
                gone.add(position)
                continue
            if fits(entry.event, State(left), gone):
                named = by_present_names(entry.event, State(left))
                if named != entry.event:
                    self._fill(position, Told(named, entry.time_us, entry.thread))
                    return {position}
                missing = list(missing_before(entry.event, State(left)))
                if not missing:
                    evolve(left, entry)
                    continue
                if holes := self._holes_for(missing, position, State(left)):
                    for hole, event in holes.items():
                        self._fill(hole, Told(event))
                    return set(holes)
            gone.add(position)
            self._fill(position)
            unfit.add(position)
        return set()

    def _holes_for(
        self, missing: Sequence[events.Event], position: int, left: State
    ) -> dict[int, events.Event]:
        """The last hole for each of what is missing at `position`; none at all where one has none."""
        found: dict[int, events.Event] = {}
        for event in reversed(missing):
            for hole in range(position - 1, 0, -1):
                entry = self._entries[hole]
                lost = entry is not None and entry.event == events.Erased(lost=True)
                if lost and hole not in found and may_precede(event, left.at(hole), left):
                    found[hole] = event
                    break
            else:
                return {}
        return found


def _of_known_kind(value: bytes) -> bytes:
    """With a right first byte, which says what kind of entry it is: of any other kind the chain has proved
    that there is a body."""
    return value if value[0] in (WRITTEN, ERASED, MENDED) else bytes([WRITTEN]) + value[1:]
