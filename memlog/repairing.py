"""What is whole of a damaged log, put in the place of the log, where there is no backup.

The damaged one is put aside and never removed. Kept are the entries that the chain of hashes proves, from the
first on. What was answered to commands is not, but that their ids were used, as far as that can be read:
nothing proves an answer, nobody may be told that a command was done whose entries are lost, and none
may be done twice. The generation goes on by one, so that what was derived from the longer
log is void.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from memlog import codec
from memlog.backup import made
from memlog.codec import ERASED, WRITTEN, Entry
from memlog.damage import Lost, damaged, examine, lost, mark, noted, recovered
from memlog.environment import storage_error
from memlog.errors import Conflict, DamagedLog, StorageError
from memlog.events import Erased
from memlog.gates import Turn
from memlog.log import Damage
from memlog.pages import Pages, Unreadable
from memlog.project import GENERATION_KEY, clock_us
from memlog.receipts import forgotten
from memlog.store import Store

GENERATION_BYTES = 4
RECEIPTS_TABLE, KEY_BYTES = b"receipts", 32
NEVER = 2**64


class Repair(msgspec.Struct, frozen=True):
    """What a repair keeps of a log, up to `position` and `time_us` (microseconds), and what it cannot. `aside`
    is where the damaged one is, once that is done."""

    id: str
    name: str
    problem: str
    position: int
    time_us: int
    lost: Lost
    aside: str | None = None


class _Remains(NamedTuple):
    """Of a damaged log: its entries, as far as they follow each other, and what stands beyond."""

    damage: DamagedLog
    entries: list[tuple[int, bytes]]
    lost: Lost
    generation: int
    used: list[bytes]
    """The keys of the receipts that can be read."""


def repair(store: Store, name: str, *, rehearse: bool = False) -> Repair:
    """Puts what is whole of the log in its place; `rehearse` only tells what that would be.

    Raises ProjectNotFound, Conflict where the log is not damaged, DamagedLog where nothing of it is whole,
    StorageError where an entry is of a newer memlog or there is no room for the new log; and nothing is
    changed then.
    """
    row = store.find(name)
    remains = _remains(store.file(row.id))
    if remains is None:
        raise Conflict(
            f"The log of project '{name}' is not damaged, there is nothing to repair",
            suggestion="Nothing was changed. `memlog replay --check` says whether what is derived from "
            "the log is right, too.",
        )
    if not remains.entries:
        raise DamagedLog(0, remains.damage.problem)
    entries, time_us = _mended(remains.entries)
    seen = Repair(row.id, name, remains.damage.problem, len(entries), time_us, remains.lost)
    if rehearse:
        return seen
    receipts = [(key, forgotten(clock_us())) for key in remains.used]
    with made(store, row.id, remains.generation + 1, entries, receipts) as folder:
        _, aside = store.adopt(folder, replace=True)
    return msgspec.structs.replace(seen, aside=str(aside))


def _remains(file: Path) -> _Remains | None:
    """What the file holds, where it is damaged. That is noted, so that nobody writes to it from then on."""
    try:
        turn = Turn(file)
        try:
            with turn:  # who was writing has finished, and whoever is next finds the note
                pages = Pages(file)
                damages = [each for each in examine(pages) if isinstance(each, Damage)]
                mark(file, damages)
                entries = recovered(pages) if damages else []
                beyond = lost(pages, len(entries))
                generation, used = _generation(pages), _used(pages)
                pages.close()
        finally:
            turn.close()
    except OSError as error:
        raise storage_error(file, error) from error
    damage = damaged(damages)
    if damage is None:
        return None
    if noted(str(file)) is None:
        raise StorageError(
            "That the log is damaged could not be noted beside it, so others may write to it",
            suggestion="Free some space, or give this user the right to write there; then try again.",
        )
    return _Remains(damage, entries, beyond, generation, used)


def _generation(pages: Pages) -> int:
    """It is written when a file is made, and never changed in it."""
    found = [value for key, value in pages.leaves() if key == GENERATION_KEY]
    return max((int.from_bytes(each) for each in found if len(each) == GENERATION_BYTES), default=0)


def _used(pages: Pages) -> list[bytes]:
    table = pages.table(RECEIPTS_TABLE)
    rows = pages.rows(table) if table is not None else ()
    return [row[0] for row in rows if not isinstance(row, Unreadable) and len(row[0]) == KEY_BYTES]


# -- what the chain does not cover


def _mended(stored: Sequence[tuple[int, bytes]]) -> tuple[list[tuple[int, bytes]], int]:
    """The entries, with a right first byte, which says what kind each is of, and the time of the last.

    The time of an erased one is not proved either: where it cannot be, it is that of the entry before.
    """
    values = [_of_known_kind(value) for _, value in stored]
    entries = [codec.decode(position, value) for position, value in enumerate(values, 1)]
    time_us = 0
    for at, (entry, latest) in enumerate(zip(entries, _latest(entries), strict=True)):
        if isinstance(entry.event, Erased) and not time_us <= entry.time_us <= latest:
            values[at] = codec.erase(values[at], time_us)
        else:
            time_us = entry.time_us
    return list(enumerate(values, 1)), time_us


def _of_known_kind(value: bytes) -> bytes:
    """Of any other kind the chain has proved that there is a body."""
    return value if value[0] in (WRITTEN, ERASED) else bytes([WRITTEN]) + value[1:]


def _latest(entries: Sequence[Entry]) -> list[int]:
    """The latest time that each entry can have: that of the next one that was not erased."""
    times, latest = [], NEVER
    for entry in reversed(entries):
        latest = latest if isinstance(entry.event, Erased) else entry.time_us
        times.append(latest)
    return times[::-1]
