"""Tables that are made only to be looked at, and may be larger than memory: in a file without a name.

Nothing of it outlives the process, however that ends. Leaves to its callers what is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import lmdb

from memlog.storage.errors import storage_error
from memlog.storage.files import OF_09
from memlog.storage.resident import give_back_mapped
from memlog.storage.tables import LmdbRows, Timeline

CHANGES_PER_COMMIT = 10_000
"""What is not yet committed is held in memory by LMDB."""

_NAME = "draft"


class Draft:
    """A timeline in a file; one thread's."""

    def __init__(self, path: Path, map_bytes: int) -> None:
        self._env = lmdb.open(
            str(path),
            map_size=map_bytes,
            subdir=False,
            max_dbs=2,
            lock=False,
            sync=False,
            readahead=False,
            **OF_09,
        )
        self._databases = [self._env.open_db(name) for name in (b"now", b"past")]
        self._file = path.stat()
        self._begin()

    def _begin(self) -> None:
        self._changes = 0
        self._transaction = self._env.begin(write=True)
        self.timeline = Timeline(*(LmdbRows(self._transaction, each) for each in self._databases))
        """Of now: another one after each `changed`."""

    def changed(self) -> None:
        """After each change: gives back the memory that the last ones took."""
        self._changes += 1
        if self._changes == CHANGES_PER_COMMIT:
            self._transaction.commit()
            give_back_mapped(self._file)
            self._begin()

    def close(self) -> None:
        self._transaction.abort()
        self._env.close()


@contextmanager
def draft(folder: Path, map_bytes: int) -> Iterator[Draft]:
    """An empty one on the disk of `folder`, of at most so many bytes. Raises StorageError."""
    try:
        with closing(_made(folder, map_bytes)) as made:
            yield made
    except (lmdb.MapFullError, lmdb.DiskError) as error:  # of no file that is only read meanwhile
        raise storage_error(folder / _NAME, error) from error


def _made(folder: Path, map_bytes: int) -> Draft:
    try:
        with TemporaryDirectory(dir=folder) as beside:
            return Draft(Path(beside) / _NAME, map_bytes)
    except (lmdb.Error, OSError) as error:
        raise storage_error(folder / _NAME, error) from error
