"""Is a log whole? Read from its file, without trusting LMDB's tree, so that any damage can be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lmdb
import msgspec

from memlog.errors import StorageError
from memlog.log import Damage, verified
from memlog.pages import Pages, Tree, Unreadable
from memlog.project import DAMAGED

LOG_TABLE = b"log"
POSITION_BYTES = 8
TRIES = 100


def verify_file(path: Path) -> Iterator[int | Damage]:
    """Each sound position of the log in the file, and a Damage for each unsound or missing one.

    Reads every page and hash; others may write meanwhile. Promises to come back from any file, also
    from one that LMDB cannot open or would die of.
    """
    with _opened(path) as pages:
        table = pages.table(LOG_TABLE)
        if table is None:
            yield Damage(1, "missing: the file has no log that can be found")
            return
        position = 0
        for found in verified(_values(pages, table), table.rows):
            position = found if isinstance(found, int) else found.position
            yield found
        if not pages.newest_is_known:
            yield Damage(
                position + 1, "perhaps missing: a page that says where the log ends is damaged"
            )


def mark(path: Path, damages: Sequence[Damage]) -> None:
    """Notes beside the log that it is damaged, or no longer: servers that have it open look there."""
    note = path.with_name(f"{path.name}{DAMAGED}")
    if damages:
        note.write_bytes(msgspec.json.encode(damages))
    else:
        note.unlink(missing_ok=True)


def _values(pages: Pages, table: Tree) -> Iterator[tuple[int, bytes]]:
    """What can be read; that something is missing shows in the positions."""
    for row in pages.rows(table):
        if not isinstance(row, Unreadable):
            key, value = row
            yield (int.from_bytes(key, "big") if len(key) == POSITION_BYTES else 0), value


@contextmanager
def _opened(path: Path) -> Iterator[Pages]:
    """The newest commit, whose pages nobody uses again meanwhile.

    Nothing but the meta pages is read through LMDB. Where LMDB takes the file for none, nobody writes to
    it either.
    """
    try:
        environment = lmdb.open(str(path), subdir=False, readonly=True, max_dbs=1)
    except lmdb.Error:
        pages = Pages(path)
        yield pages
        pages.close()
        return
    try:
        for _ in range(TRIES):
            with environment.begin() as transaction:
                pages = Pages(path, transaction.id())
                if pages.transaction == transaction.id() or not pages.newest_is_known:
                    yield pages
                    pages.close()
                    return
            pages.close()  # two commits came between the snapshot and the look at the meta pages
        raise StorageError(
            f"{path.name} is written to so often that it cannot be read", suggestion="Try again."
        )
    finally:
        environment.close()
