"""That a log is damaged: found out from its file, noted beside it, and told to whoever would write to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from memlog import codec
from memlog.codec import CHAIN_END, GENESIS
from memlog.errors import DamagedLog
from memlog.log import Damage, verified
from memlog.pages import Pages, Tree, Unreadable
from memlog.structure import problem

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


def recovered(pages: Pages) -> list[tuple[int, bytes]]:
    """The entries from the first on, wherever in the file they stand, for as long as one follows the other.

    The chain of hashes proves each of them. So the tree is not needed, whose root is the first thing
    that goes with the end of a file. Of two that follow, as a commit that was cut short may have left
    one, it is the one that another follows.
    """
    standing: dict[int, set[bytes]] = {}
    for key, value in pages.leaves():
        if len(key) == POSITION_BYTES and len(value) > CHAIN_END:
            standing.setdefault(int.from_bytes(key, "big"), set()).add(value)

    def followers(chain: bytes, position: int) -> list[bytes]:
        return [each for each in standing.get(position, ()) if codec.follows(chain, position, each)]

    entries: list[tuple[int, bytes]] = []
    chain = GENESIS
    while found := followers(chain, len(entries) + 1):
        position = len(entries) + 1
        value = max(found, key=lambda each: len(followers(each[1:CHAIN_END], position + 1)))
        entries.append((position, value))
        chain = value[1:CHAIN_END]
    return entries


def mark(path: Path, damages: Sequence[Damage]) -> None:
    """Notes beside the log that it is damaged, or no longer: servers that have it open look there."""
    note = path.with_name(f"{path.name}{DAMAGED}")
    try:
        if damages:
            note.write_bytes(msgspec.json.encode(damages))
        else:
            note.unlink(missing_ok=True)
    except OSError as error:
        log.warning("that %s is damaged or not could not be noted: %s", path, error)


def noted(path: str) -> DamagedLog | None:
    """What was noted beside the log at `path`."""
    try:
        with open(f"{path}{DAMAGED}", "rb") as note:
            return damaged(msgspec.json.decode(note.read(), type=list[Damage]))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError):
        return DamagedLog(0, "it was noted as damaged, and the note cannot be read")


def damaged(damages: Sequence[Damage]) -> DamagedLog | None:
    """The error that says so, None where there is no damage."""
    if not damages:
        return None
    first = damages[0]
    return DamagedLog(first.position - 1, f"position {first.position}: {first.problem}")
