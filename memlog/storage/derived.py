"""An LMDB file of what can be computed again, or missed: lost, cut or overwritten, it is begun anew.

Also while it is open, and what another process put in its place is followed. Whoever opens such a file, and whoever
puts another in its place, does so alone: LMDB's lock file says which pages are current, and beside another data file,
as between the removals of the two, would say it wrongly.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from memlog.errors import StorageError
from memlog.storage.environment import MAP_BYTES_START, Environment
from memlog.storage.errors import is_damage, storage_error
from memlog.storage.files import remove
from memlog.storage.gates import excluding_processes

log = logging.getLogger("memlog.derived")


def derived(
    path: Path,
    databases: tuple[str, ...],
    *,
    map_bytes: int = MAP_BYTES_START,
    own_folder: bool = False,
) -> Environment:
    """The file, empty where none can be read. One with a folder of its own is begun anew also where that is lost.

    Raises StorageError where there can be none.
    """
    following = partial(_alone, path, own_folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with following():
            try:
                return Environment(path, databases, map_bytes=map_bytes, following=following)
            except StorageError as error:
                if not is_damage(error):
                    raise
                log.warning("%s cannot be read, starting it anew: %s", path, error.message)
            remove(path)
            return Environment(path, databases, map_bytes=map_bytes, following=following)
    except OSError as error:
        raise storage_error(path, error) from error


@contextmanager
def _alone(path: Path, own_folder: bool) -> Iterator[None]:
    if own_folder:  # but not the one above: all may have been moved away
        path.parent.mkdir(exist_ok=True)
    with excluding_processes(path.with_name(f"{path.name}.opening")):
        yield
