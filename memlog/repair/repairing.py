"""What is whole of a damaged log, put in the place of the log.

The damaged one is put aside and never removed. Kept is what `mending` makes of it, together with the entries of a
backup where there is one: each proves by the chain of hashes that it belongs there. So a log that was repaired once
takes what a backup still has of it later, too. What was answered to commands is not kept, but that their ids were
used, as far as that can be read: nothing proves an answer, nobody may be told that a command was done whose entries
are lost, and none may be done twice. The generation goes on by one, so that what was derived from the log as it was
is void.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from memlog.codec import ERASED, ERASED_BYTES, WRITTEN, is_mended
from memlog.copies.taking_in import made
from memlog.errors import Conflict, DamagedLog, InvalidParameter, StorageError, changed_meanwhile
from memlog.events import ProjectCreated
from memlog.log import Damage
from memlog.projects.meta import GENERATION_BYTES, GENERATION_KEY
from memlog.projects.project import LOG_FILE, clock_us
from memlog.projects.receipts import forgotten, is_receipt
from memlog.projects.store import Store
from memlog.repair.damage import Lost, damaged, damages_in, lost, mark, noted, standing_in
from memlog.repair.mending import Changed, Mended, whole_of
from memlog.repair.piecing import Standing, pieces
from memlog.rows import Project as ProjectRow
from memlog.shell import command_line
from memlog.storage.disk import stands
from memlog.storage.errors import storage_error
from memlog.storage.gates import Turn
from memlog.storage.pages import Pages, Unreadable

RECEIPTS_TABLE, KEY_BYTES = b"receipts", 32


class Repair(msgspec.Struct, frozen=True):
    """What a repair keeps of a log: up to `position` and `time_us` (microseconds), with what `changed` in it;
    and what is `lost` beyond. `aside` is where the damaged one is, once that is done."""

    id: str
    name: str
    problem: str
    position: int
    time_us: int
    changed: Changed
    lost: Lost
    aside: str | None = None

    @property
    def gone(self) -> frozenset[int]:
        """The positions of which nothing is kept as it was written."""
        beyond = range(self.position + 1, self.lost.position + 1)
        return frozenset((*self.changed.lost, *self.changed.unfit, *beyond))


class _Remains(NamedTuple):
    """Of a log: why it has to be repaired, whether that is a damage, what can be made of it, what stood beyond."""

    problem: str
    damaged: bool
    log: Mended | None
    lost: Lost
    generation: int
    used: list[bytes]
    """The keys of the receipts that can be read."""


def repair(
    store: Store,
    name: str,
    *,
    backup: Path | None = None,
    rehearse: bool = False,
    confirmed: Repair | None = None,
) -> Repair:
    """Puts what is whole of the log in its place; `rehearse` only tells what that would be. What is not there any
    more is taken from the `backup`, as far as that has it.

    Raises ProjectNotFound, Conflict where there is nothing to repair, the backup has what was purged, or more would be
    gone than in the rehearsal that somebody `confirmed`, InvalidParameter where it has no such project, DamagedLog
    where nothing of the log is whole, StorageError where an entry is of a newer memlog or there is no room for the new
    log; and nothing is changed then.
    """
    row = store.find(name)
    file, created = store.file(row.id), ProjectCreated(row.id, row.name, row.description)
    remains = _remains(file, created, _backed_up(backup, row), rehearse)
    if remains.log is None:
        raise DamagedLog(0, remains.problem, nothing_left=True)
    kept = remains.log
    end = len(kept.entries)
    seen = Repair(row.id, name, remains.problem, end, kept.time_us, kept.changed, remains.lost)
    if rehearse:
        return seen
    receipts = [(key, forgotten(clock_us())) for key in remains.used]
    try:
        if confirmed is not None:
            _require_seen(seen, confirmed)
        with made(store, row.id, remains.generation + 1, kept.entries, receipts) as folder:
            _, aside = store.adopt(folder, replace=True)
    except BaseException:
        if not remains.damaged:
            mark(file, [])
        raise
    return msgspec.structs.replace(seen, aside=str(aside))


def _require_seen(present: Repair, confirmed: Repair) -> None:
    """Raises Conflict where something would be gone that was not told: others may write until the repair begins."""
    if unseen := present.gone - confirmed.gone:
        raise changed_meanwhile(present.name, len(unseen), "be lost or set aside", "changed")


class _BackedUp(NamedTuple):
    """What looks like an entry in a backup, be that damaged itself: each is proved before it is taken."""

    standing: Standing
    generation: int


NO_BACKUP = _BackedUp({}, 0)


def _backed_up(backup: Path | None, row: ProjectRow) -> _BackedUp:
    if backup is None:
        return NO_BACKUP
    file = backup / row.id / LOG_FILE
    if not stands(file):
        raise InvalidParameter(
            f"{backup} has no copy of project '{row.name}'",
            suggestion="Name a folder that `memlog backup` wrote. Nothing was changed.",
        )
    with closing(Pages(file)) as pages:
        return _BackedUp(standing_in(pages), _generation(pages))


def _require_forgetful(here: Standing, elsewhere: Standing, older: bool) -> None:
    """Raises Conflict where a backup is older than a purge, or may be, for it is `older` than the log and no repair
    made it so: it has what must not come back."""
    erased = {at for at, values in here.items() if any(map(_is_erased, values))}
    kept = any(each[0] == WRITTEN for at in erased for each in elsewhere.get(at, ()))
    repaired = any(is_mended(each) for values in here.values() for each in values)
    if kept or (elsewhere and older and not repaired):
        raise Conflict(
            "This backup is older than the last purge of the project, and has what was erased for good",
            suggestion="Nothing was changed. Use a backup that was made after `memlog purge`, or repair "
            "without one.",
        )


def _is_erased(value: bytes) -> bool:
    return value[0] == ERASED and len(value) == ERASED_BYTES


def _remains(file: Path, created: ProjectCreated, backup: _BackedUp, rehearse: bool) -> _Remains:
    """What the file holds. That it has to be repaired is noted, so that nobody writes to it from then on.

    Raises Conflict where there is nothing to repair.
    """
    try:
        # In its turn: who was writing has finished, and whoever is next finds the note.
        with Turn(file), closing(Pages(file)) as pages:
            here, generation = standing_in(pages), _generation(pages)
            damages = damages_in(pages)
            older = bool(damages) and backup.generation < generation
            _require_forgetful(here, backup.standing, older)
            missed = [] if damages else list(_missed(here, backup.standing))
            mark(file, damages or ([] if rehearse else missed))
            problem = _problem(damages or missed, _way_on(here, backup.standing, created.name))
            log = whole_of(pages, _together(here, backup.standing), created)
            beyond = lost(pages, here, len(log.entries) if log else 0)
            used = _used(pages)
    except OSError as error:
        raise storage_error(file, error) from error
    if not rehearse and noted(file) is None:
        raise StorageError(
            "That the log is to be repaired could not be noted beside it, so others may write to it",
            suggestion="Free some space, or give this user the right to write there; then try again.",
        )
    known = max(generation, backup.generation)
    return _Remains(problem, bool(damages), log, beyond, known, used)


def _together(here: Standing, elsewhere: Standing) -> Standing:
    return {
        at: here.get(at, set()) | elsewhere.get(at, set()) for at in here.keys() | elsewhere.keys()
    }


def _missed(here: Standing, elsewhere: Standing) -> Iterator[Damage]:
    """Where something stands in for what was lost once, and another has that. The chain of what was lost in a row is
    known only for the last of it: what goes before proves the others."""
    if not elsewhere:
        return
    for position, piece in enumerate(pieces(_together(here, elsewhere)), 1):
        put_back = piece.value in elsewhere.get(position, ()) and piece.value not in here.get(
            position, ()
        )
        if put_back and any(map(is_mended, here.get(position, ()))):
            yield Damage(position, "what was written there was lost once, and the backup has it")


def _way_on(here: Standing, elsewhere: Standing, name: str) -> str:
    """What to do where there is nothing to repair. What was lost at the end of a log has no place in it, and so none
    that a backup could fill."""
    written = (
        (at, each) for at, values in elsewhere.items() for each in values if each[0] == WRITTEN
    )
    if any(each not in here.get(at, ()) for at, each in written):
        restore = command_line("memlog restore --replace FOLDER", name)
        return f"The backup has what the log has not: `{restore}` goes back to it, and puts the log aside."
    return "`memlog replay --check` says whether what is derived from the log is right, too."


def _problem(damages: Sequence[Damage], otherwise: str) -> str:
    damage = damaged(damages)
    if damage is None:
        raise Conflict(
            "The log of this project is not damaged, there is nothing to repair",
            suggestion=f"Nothing was changed. {otherwise}",
        )
    return damage.problem


def _generation(pages: Pages) -> int:
    """It is written when a file is made, and never changed in it."""
    found = [value for key, value in pages.leaves() if key == GENERATION_KEY]
    return max((int.from_bytes(each) for each in found if len(each) == GENERATION_BYTES), default=0)


def _used(pages: Pages) -> list[bytes]:
    """In order. A receipt is looked for in every page, too, for the way to its table may be lost."""
    table = pages.table(RECEIPTS_TABLE)
    rows = pages.rows(table) if table is not None else ()
    found = {row[0] for row in rows if not isinstance(row, Unreadable)}
    found |= {key for key, value in pages.leaves() if is_receipt(value)}
    return sorted(key for key in found if len(key) == KEY_BYTES)
