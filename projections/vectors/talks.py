"""Who was written down beside whom: the things of a project in the order in which each thread told them.

A talk is what one thread wrote down without a pause of more than `PAUSE_US`; what names no thread is one
thread. Each thing has one place in one talk, given when it was first written down, and keeps it when its
entity is renamed or another one takes it over. So who stands beside whom is a function of the log alone.

Left to others: what lives, now or at a past position.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from projections.documents import Written
from projections.vectors.columns import NO_ROW, Column, Ids

PAUSE_US = 3_600_000_000


class StoredTalks(msgspec.Struct, array_like=True):
    """As they stand in a snapshot: columns as raw numbers in the machine's byte order."""

    latest: list[tuple[str | None, int, int]] = []
    first: bytes = b""
    before: bytes = b""
    after: bytes = b""
    named: bytes = b""


class Talks:
    """The neighbours of each thing, by the rows in which things were born first."""

    def __init__(self, stored: StoredTalks) -> None:
        self._latest = {thread: (row, time_us) for thread, row, time_us in stored.latest}
        self._first = Column(np.int64, stored.first)
        self._before = Column(np.int64, stored.before)
        self._after = Column(np.int64, stored.after)
        self._named = Column(np.bool_, stored.named)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self._first, self._before, self._after, self._named

    def add(self, previous: int, written: Written | None) -> None:
        """Takes in the next row: another life of the thing of the row `previous`, or one just written down.

        What nobody wrote down, such as an entity, stands beside nothing.
        """
        row = len(self._first.values)
        before, named = NO_ROW, False
        if previous != NO_ROW:
            self._first.append(int(self._first.values[previous]))
        else:
            self._first.append(row)
            if written is not None:
                before, named = self._last_of(written), written.thread is not None
                self._latest[written.thread] = (row, written.time_us)
        self._before.append(before)
        self._after.append(NO_ROW)
        self._named.append(named)
        if before != NO_ROW:
            self._after.values[before] = row

    def first(self, row: int) -> int:
        """The row in which the thing of `row` was born first."""
        return int(self._first.values[row])

    def around(self, rows: Ids, reach: int) -> Mapping[int, Ids]:
        """What stands 1 to `reach` places before (below 0) and after: by distance, the rows in which it was
        born first, `NO_ROW` where there is nothing."""
        found: dict[int, Ids] = {}
        for sign, column in ((-1, self._before.values), (1, self._after.values)):
            places: Ids = self._first.values[rows]
            for distance in range(1, reach + 1):
                places = np.where(places == NO_ROW, NO_ROW, column[places])
                found[sign * distance] = places
        return found

    def named(self, rows: Ids) -> NDArray[np.bool_]:
        """Whether the thread of each has a name: then it is a conversation."""
        named: NDArray[np.bool_] = self._named.values[self._first.values[rows]]
        return named

    def stored(self) -> StoredTalks:
        return StoredTalks(
            [(thread, row, time_us) for thread, (row, time_us) in self._latest.items()],
            *(column.values.tobytes() for column in self.columns),
        )

    def _last_of(self, written: Written) -> int:
        """What its thread wrote down last, if that is not too long ago."""
        row, time_us = self._latest.get(written.thread, (NO_ROW, 0))
        return row if abs(written.time_us - time_us) <= PAUSE_US else NO_ROW
