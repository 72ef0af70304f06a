"""That a log is damaged: found out from its file, noted beside it, and told to whoever would write to it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from memlog import codec
from memlog.codec import CHAIN_END
from memlog.errors import DamagedLog, MemlogError
from memlog.log import Damage, verified
from memlog.repair.piecing import Standing
from memlog.storage.pages import TREE, Pages, Tree, Unreadable, tree_of
from memlog.storage.structure import problem

LOG_TABLE = b"log"
POSITION_BYTES = 8
LOOKS, LOOK_SECONDS = 3, 0.005

DAMAGED = ".damaged"
"""Added to the name of a log: the file, beside it, that says it was found damaged."""

log = logging.getLogger("memlog.damage")


def examine(pages: Pages) -> Iterator[int | Damage]:
    """Each sound position of the log, and a Damage for each unsound or missing one. Comes back from any file."""
    table = pages.table(LOG_TABLE)
    if table is None:
        yield Damage(1, "missing: the file has no log that can be found")
        return
    position, whole = 0, True
    for found in verified(values(pages, table), table.rows):
        if isinstance(found, Damage):
            whole = False
        position = found.position if isinstance(found, Damage) else found
        yield found
    unsound = _seen_again(lambda: problem(pages))
    if unsound and not pages.newest_is_known:
        yield Damage(
            position + 1, "perhaps missing: a page that says where the log ends is damaged"
        )
    elif whole and unsound:
        yield Damage(position + 1, f"no entry is missing, the file is damaged elsewhere: {unsound}")


def damages_in(pages: Pages) -> list[Damage]:
    return [each for each in examine(pages) if isinstance(each, Damage)]


def _seen_again(look: Callable[[], str | None]) -> str | None:
    """A writer may be at the first two pages in the very moment."""
    seen = look()
    for _ in range(LOOKS):
        if seen is not None:
            time.sleep(LOOK_SECONDS)
            seen = look()
    return seen


def values(pages: Pages, table: Tree) -> Iterator[tuple[int, bytes]]:
    """What can be read; that something is missing shows in the positions."""
    for row in pages.rows(table):
        if not isinstance(row, Unreadable):
            key, value = row
            yield (int.from_bytes(key, "big") if len(key) == POSITION_BYTES else 0), value


class Lost(msgspec.Struct, frozen=True):
    """What a damaged log had beyond what is whole of it, as far as its file tells: up to which `position`,
    written until when (microseconds; None where that cannot be read), and whether that is `all`."""

    position: int
    time_us: int | None
    all: bool


def lost(pages: Pages, found: Standing, whole: int) -> Lost:
    """What was there beyond the position `whole`; `found` is what stands in the file."""
    standing = {at: values for at, values in found.items() if at >= whole}
    times = {at: time_us for at in standing if (time_us := _time_at(standing, at)) is not None}
    last = head(pages)
    known = last is not None and whole <= last
    end = last if last is not None and known else max([whole, *_ends(pages), *times])
    latest = max((position for position in times if position <= end), default=None)
    return Lost(end, None if latest is None else times[latest], known)


def head(pages: Pages) -> int | None:
    """The last position that the log had; None where that cannot be told for sure."""
    table = pages.table(LOG_TABLE)
    if table is None or not pages.newest_is_known or table.rows > _rows_max(pages):
        return None
    return table.rows


def _time_at(standing: Standing, position: int) -> int | None:
    """That of an entry which what stands before it proves, be that damaged itself."""
    for before in standing.get(position - 1, ()):
        for value in standing[position]:
            if codec.follows(before[1:CHAIN_END], position, value):
                with suppress(MemlogError):
                    return codec.decode(position, value).time_us
    return None


def _ends(pages: Pages) -> list[int]:
    """How long the log was, by each page that says so, in use or not."""
    told = [
        tree_of(value).rows
        for key, value in pages.leaves()
        if key == LOG_TABLE and len(value) == TREE.size
    ]
    return [rows for rows in told if rows <= _rows_max(pages)]


def _rows_max(pages: Pages) -> int:
    """More than a file of this length can hold."""
    return pages.length // CHAIN_END


def standing_in(pages: Pages) -> Standing:
    """What looks like an entry in any page of the file."""
    standing: Standing = {}
    for key, value in pages.leaves():
        if len(key) == POSITION_BYTES and len(value) > CHAIN_END:
            standing.setdefault(int.from_bytes(key, "big"), set()).add(value)
    return standing


def mark(path: Path, damages: Sequence[Damage]) -> None:
    """Notes beside the log that it is damaged, or no longer: servers that have it open look there."""
    note = path.with_name(f"{path.name}{DAMAGED}")
    try:
        if damages:
            draft = note.with_name(f"{note.name}.new")  # whoever reads the note reads all of it
            draft.write_bytes(msgspec.json.encode(damages))
            draft.replace(note)
        else:
            note.unlink(missing_ok=True)
    except OSError as error:
        log.warning("that %s is damaged or not could not be noted: %s", path, error)


def noted(path: Path) -> DamagedLog | None:
    """What was noted beside the log at `path`."""
    if not os.access(f"{path}{DAMAGED}", os.F_OK):  # a tenth of the time that failing to open takes
        return None
    try:
        with open(f"{path}{DAMAGED}", "rb") as note:
            return damaged(msgspec.json.decode(note.read(), type=list[Damage]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # no JSON, or no text
        return DamagedLog(0, "it was noted as damaged, and the note cannot be read")


def damaged(damages: Sequence[Damage]) -> DamagedLog | None:
    """The error that says so, None where there is no damage."""
    if not damages:
        return None
    first = damages[0]
    return DamagedLog(first.position - 1, f"position {first.position}: {first.problem}")
