"""Many rows into an LMDB file, a commit for as many as fit into memory; and all that it has into a new one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb

from memlog.storage.environment import Environment
from memlog.storage.errors import storage_error
from memlog.storage.tables import LmdbRows

ROWS_PER_COMMIT, BYTES_PER_COMMIT = 10_000, 16 * 1024 * 1024
"""What is not yet committed is held in memory, by whoever fills a file and by LMDB."""


def fill(
    environment: Environment,
    name: str,
    rows: Iterable[tuple[bytes, bytes]],
    *,
    in_order: bool = True,
) -> None:
    """Adds rows to a database, `in_order` of key behind all that are there, or anywhere; what is there stays."""
    for batch in _batches(rows):

        def body(transaction: lmdb.Transaction, batch: Any = batch) -> None:
            database = environment.databases[name]
            for key, value in batch:
                transaction.put(key, value, db=database, append=in_order, overwrite=False)

        environment.write(body)


def compact(environment: Environment, but: Collection[bytes] = ()) -> None:
    """Writes the file anew, without the rows under these keys: no page holds then what was removed before. Raises
    StorageError."""

    def copy(transaction: lmdb.Transaction, path: Path) -> None:
        databases = environment.databases
        with closing(Environment(path, tuple(databases))) as fresh:
            for name, database in databases.items():
                rows = LmdbRows(transaction, database).scan(b"")
                fill(fresh, name, (row for row in rows if row[0] not in but))

    try:
        environment.rewrite(copy)
    except OSError as error:
        raise storage_error(environment.path, error) from error


def _batches(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    """The rows, as many at a time as are committed together."""
    batch: list[tuple[bytes, bytes]] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row[0]) + len(row[1])
        if len(batch) == ROWS_PER_COMMIT or size >= BYTES_PER_COMMIT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
