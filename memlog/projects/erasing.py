"""A log without what some of its entries say, in a file of its own.

Positions, times and the chain stay; the state is evolved anew; all that is kept of receipts is which command ids were
used. Left to others: which entries go (`purging`), and putting the file in the place of the other (`Project.erase`).
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from memlog import codec
from memlog.errors import StorageError
from memlog.log import Damage
from memlog.projects.contents import DATABASES, Contents
from memlog.projects.meta import note_generation
from memlog.projects.rebuilding import evolve_in_lots
from memlog.storage.environment import Environment
from memlog.storage.filling import fill
from memlog.storage.tables import place


def write_without(positions: Collection[int], contents: Contents, path: Path, now_us: int) -> None:
    """Makes the file at `path`, and reads back every entry of it. Raises StorageError where it is not whole."""
    rows = (
        (place(position), _erased(position, value) if position in positions else value)
        for position, value in contents.log().stored()
    )
    with closing(Environment(path, DATABASES)) as fresh:
        fill(fresh, "log", rows)
        fill(fresh, "receipts", contents.receipts().forgotten(now_us))
        note_generation(fresh, contents.meta().generation + 1)
        evolve_in_lots(fresh)
    _prove(path)


def _erased(position: int, value: bytes) -> bytes:
    return codec.erase(position, value, codec.decode(position, value).time_us)


def _prove(path: Path) -> None:
    with (
        closing(Environment(path, DATABASES, proven=True)) as environment,
        environment.read() as transaction,
    ):
        for found in Contents(transaction, environment.databases).log().verify():
            if isinstance(found, Damage):
                raise StorageError(
                    f"The log is damaged at position {found.position}: {found.problem}",
                    suggestion="Nothing was erased. Restore the project from a backup first.",
                )
