"""When a file may be given to LMDB, which trusts it and ends the process over one that is damaged.

What makes a file unsound is told by `structure`; here it is looked at, before LMDB opens it and once it has, while
others may write to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb

from memlog.storage.disk import stands
from memlog.storage.errors import displaced
from memlog.storage.gates import Turn
from memlog.storage.pages import META_BYTES, Pages, meta_in
from memlog.storage.structure import is_sealed, problem, problem_of_metas

TRIES = 100
"""Attempts to see the file between two commits of other processes. Whoever commits that often has proved it."""


def unsound_metas(path: Path) -> str | None:
    """What is wrong with the pages that LMDB reads first, seen while nobody writes them."""
    if problem_of_metas(path) is None:
        return None
    with Turn(path):
        return problem_of_metas(path)


def require_metas(path: Path) -> None:
    """Raises CorruptedError where LMDB cannot open the file; one that is not there it makes."""
    _require_none(unsound_metas(path) if stands(path) else None)


def require_sound(path: Path, environment: lmdb.Environment, turn: Turn) -> None:
    """Looks through the newest commit of a file that is open, unless it is sealed. Raises CorruptedError."""
    if not is_sealed(path):
        _look_through(path, environment, turn)


def require_own_lock(
    path: Path, environment: lmdb.Environment, writing: lmdb.Transaction, turn: Turn
) -> None:
    """LMDB's lock file says which commit is the newest, as long as anybody has it open. Beside a file that was put in
    the place of another it says which was the newest of that one, and one that was removed meanwhile which was the
    newest then; LMDB would write over what was committed since. Raises StorageError.

    The commit of who died before it could say so is told by whoever takes over its lock. One of which the disk said
    that it failed, though it is there, is told by nobody: then it is refused, too.
    """
    if newest_commit(environment, turn) != writing.id() - 1:
        raise displaced(path)


def newest_commit(environment: lmdb.Environment, turn: Turn) -> int:
    """Its number, as the file has it; -1 where no meta page can be believed. Raises StorageError."""
    places = (0, environment.stat()["psize"])
    metas = (meta_in(turn.read_at(at, META_BYTES)) for at in places)
    return max((meta.transaction for meta in metas if meta is not None), default=-1)


def require_uncut(path: Path, environment: lmdb.Environment, turn: Turn) -> None:
    """LMDB maps the file as long as it should be, and reading beyond its end ends the process.

    A file that lacks only what was never written is made longer. Raises CorruptedError for any other.
    """
    bytes_wanted = (environment.info()["last_pgno"] + 1) * environment.stat()["psize"]
    lacking = bytes_wanted - path.stat().st_size
    if lacking <= 0:
        return
    _look_through(path, environment, turn)
    with path.open("ab") as file:  # at the end, wherever another process has brought it meanwhile
        file.write(bytes(lacking))


def _look_through(path: Path, environment: lmdb.Environment, turn: Turn) -> None:
    if _problem(path, environment) is None:
        return
    with turn:  # nobody writes, so what was seen half written is not seen again
        unsound = _problem(path, environment)
    _require_none(unsound)


def _require_none(unsound: str | None) -> None:
    if unsound:
        raise lmdb.CorruptedError(unsound)


def _problem(path: Path, environment: lmdb.Environment) -> str | None:
    with newest(path, environment) as pages:
        return None if pages is None else problem(pages)


@contextmanager
def newest(path: Path, environment: lmdb.Environment) -> Iterator[Pages | None]:
    """The newest commit, whose pages nobody uses again meanwhile; None where others write too often to see one."""
    for _ in range(TRIES):
        with environment.begin() as transaction, closing(Pages(path, transaction.id())) as pages:
            # Else two commits came between the snapshot and the look at the meta pages.
            if pages.transaction == transaction.id() or not pages.newest_is_known:
                yield pages
                return
    yield None
