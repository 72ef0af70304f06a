"""Where a simulated process can be hurt: every boundary at which it hands something to the outside.

`installed` puts a watcher around the real boundaries: LMDB's transactions, tantivy's commits, renames and
syncs of files, locks, removals of folders, the embedder. Each time one is crossed, once before and once
after, the planned fault may strike: the process dies there as under `kill -9`, or the boundary fails as
the system would make it fail. Nothing in the product knows of this.
"""

from __future__ import annotations

import errno
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import filelock
import lmdb

from memlog.errors import EmbeddingError
from projections import embeddings
from projections.embedding import EmbedderSpec
from projections.text.projector import TextProjector
from projections.vectors.index import Vectors
from tests.embedder_by_hash import ByHash

KILLED = 9

Kind = Literal["crash", "failure", "failures"]


class Fault(NamedTuple):
    """What strikes at the crossing number `at` (from 0); `failures` go on until another is planned.

    Only crossings of boundaries with `only` in their name count.
    """

    kind: Kind
    at: int
    only: str = ""


class Faults:
    """Counts the crossings of a step and strikes where it is told to."""

    def __init__(self) -> None:
        self.crossings = 0
        self.struck: list[str] = []
        """`kind boundary`, for each time."""
        self._fault: Fault | None = None
        self.dying: Callable[[str], None] = lambda boundary: None
        """Told where the process dies, just before it does."""

    def plan(self, fault: Fault | None) -> None:
        self._fault, self.crossings, self.struck = fault, 0, []

    @contextmanager
    def around(self, boundary: str, *failures: Exception) -> Iterator[None]:
        """Crosses `boundary`, which can fail in these ways before anything of it has happened."""
        self.cross(f"before {boundary}", *failures)
        yield
        self.cross(f"after {boundary}")

    def cross(self, boundary: str, *failures: Exception) -> None:
        if self._fault is not None and self._fault.only not in boundary:
            return
        number, self.crossings = self.crossings, self.crossings + 1
        match self._fault:
            case Fault("crash", at) if at == number:
                self.dying(f"crash {boundary}")
                os._exit(KILLED)
            case Fault("failure", at) if failures and number >= at:
                self._fault = None
                self._strike(boundary, failures[at % len(failures)])
            case Fault("failures", at) if failures and number >= at:
                self._strike(boundary, failures[0])

    def _strike(self, boundary: str, failure: Exception) -> None:
        self.struck.append(f"{type(failure).__name__} {boundary}")
        raise failure


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disk_error() -> lmdb.DiskError:
    """As LMDB reports ENOSPC."""
    return lmdb.DiskError("mdb_txn_commit: No space left on device")


def no_locks() -> OSError:
    return OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


# -- LMDB


class WatchedEnvironment:
    """An LMDB environment whose transactions are watched; everything else is its own."""

    def __init__(self, environment: lmdb.Environment, name: str, faults: Faults) -> None:
        self._environment = environment
        self._name = name
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def begin(self, write: bool = False) -> Any:
        if not write:
            self._faults.cross(f"snapshot {self._name}", lmdb.ReadersFullError("mdb_txn_begin"))
            return self._environment.begin()
        self._faults.cross(f"before a write to {self._name}", lmdb.LockError("mdb_txn_begin"))
        begun = self._environment.begin(write=True)
        return WatchedTransaction(begun, self._name, self._faults)


class WatchedTransaction:
    """A write transaction; fails at its first rows or at its commit, and then nothing of it happened."""

    def __init__(self, transaction: lmdb.Transaction, name: str, faults: Faults) -> None:
        self._transaction = transaction
        self._name = name
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def put(self, *arguments: Any, **options: Any) -> bool:
        self._faults.cross(f"row of {self._name}", lmdb.MapFullError("mdb_put"), disk_error())
        return self._transaction.put(*arguments, **options)

    def __enter__(self) -> WatchedTransaction:
        return self

    def __exit__(self, kind: Any, *more: Any) -> None:
        if kind is None:
            self.commit()
        else:
            self._transaction.abort()

    def commit(self) -> None:
        failures = disk_error(), lmdb.MapFullError("mdb_txn_commit")
        try:
            with self._faults.around(f"commit of {self._name}", *failures):
                self._transaction.commit()
        except Exception:
            self._transaction.abort()
            raise


def _watched_lmdb(faults: Faults) -> Any:
    open_file = lmdb.open

    def opened(path: str, **options: Any) -> WatchedEnvironment:
        name = Path(path).name
        faults.cross(f"opening {name}", lmdb.DiskError(f"{path}: Input/output error"))
        return WatchedEnvironment(open_file(path, **options), name, faults)

    return patch.object(lmdb, "open", opened)


# -- tantivy, the embedder


class WatchedWriter:
    def __init__(self, writer: Any, faults: Faults) -> None:
        self._writer = writer
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def commit(self) -> Any:
        with self._faults.around("commit of text", ValueError("No space left on device")):
            return self._writer.commit()


def _watched_tantivy(faults: Faults) -> Any:
    open_writer = TextProjector._writer

    def opened(self: TextProjector, changes: int) -> Any:
        faults.cross("writer of text", ValueError("Failed to acquire index lock"))
        return WatchedWriter(open_writer(self, changes), faults)

    return patch.object(TextProjector, "_writer", opened)


def _watched_embedder(faults: Faults) -> Any:
    class Watched(ByHash):
        def embed(self, texts: Any) -> Vectors:
            with faults.around("embedder", EmbeddingError("The model does not answer")):
                return super().embed(texts)

    def opened(spec: EmbedderSpec) -> Watched:
        faults.cross("model", EmbeddingError("The model cannot be loaded"))
        return Watched()

    return patch.object(embeddings, "open_embedder", opened)


# -- files


def _watched(
    owner: Any, name: str, boundary: str, faults: Faults, *fails: Callable[[], Exception]
) -> Any:
    step = getattr(owner, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        with faults.around(boundary, *(fail() for fail in fails)):
            return step(*arguments, **options)

    return patch.object(owner, name, watched)


@contextmanager
def installed(faults: Faults) -> Iterator[None]:
    """Watches the boundaries of this process."""
    with ExitStack() as stack:
        for watching in (
            _watched_lmdb(faults),
            _watched_tantivy(faults),
            _watched_embedder(faults),
            _watched(os, "replace", "a file's name", faults, disk_full),
            _watched(os, "rename", "a folder's name", faults, disk_full),
            _watched(os, "fsync", "a sync", faults, disk_full),
            _watched(shutil, "rmtree", "a folder's end", faults),
            _watched(filelock.FileLock, "acquire", "a lock", faults, no_locks),
        ):
            stack.enter_context(watching)
        yield


def dies(step: Callable[[], object], fault: Fault) -> bool:
    """Whether `step`, in a process of its own, dies of the fault. Raises AssertionError where it ends otherwise
    than well."""
    child = os.fork()
    if not child:
        try:
            faults = Faults()
            with installed(faults):
                faults.plan(fault)
                step()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    ended = os.waitstatus_to_exitcode(status)
    assert ended in (0, KILLED), ended
    return ended == KILLED
