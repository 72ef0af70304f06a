"""What tantivy says where something fails, and whether that is the index, the process, or a folder that moved away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memlog.errors import MemlogError, PutAway, StorageError
from memlog.storage.errors import advice, for_shortage, reason

_LIKE_MOVED = ("No such file", "FileDoesNotExist", "was killed")
"""What tantivy says where its folder moves while it writes. A writer that was killed does not say by what."""


def _is_of_the_index(error: BaseException) -> bool:
    """Whether tantivy says so. A panic in it arrives as an exception that has no importable class."""
    told = isinstance(error, (OSError, ValueError, RuntimeError, LookupError))
    return told or type(error).__name__ == "PanicException"


def is_broken(error: BaseException) -> bool:
    """Whether it is the index that is wrong, and not that the process has too little of something."""
    return _is_of_the_index(error) and for_shortage(error) is None


def may_have_moved(error: MemlogError) -> bool:
    return any(said in str(error.__cause__) for said in _LIKE_MOVED)


@contextmanager
def speaking_of(path: Path) -> Iterator[None]:
    """What fails in here of the index at `path` is a StorageError; PutAway where all that stood beside it is gone."""
    try:
        yield
    except BaseException as error:
        if not _is_of_the_index(error):
            raise
        if not path.parent.exists():
            raise PutAway() from error
        raise StorageError(
            f"the text index {path.name} cannot be used: {reason(path, error)}",
            suggestion=advice(path, error)
            or "Nothing is lost: `memlog replay --only text` builds it anew from the log. "
            "Look first whether the disk is full.",
        ) from error
