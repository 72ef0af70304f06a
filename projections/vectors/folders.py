"""Where the vectors of a project lie: a folder for each embedder, and when one may go.

A folder's name is made of what its content depends on: the version of the format, the embedder's key,
whether pieces are kept, the log's generation. Processes with different settings over one data directory
each have their own.

The rule by which a folder goes: at the start, if it is of another version or generation. Else when the
vectors of a process are complete: it then removes every other folder that nobody uses. Who uses one holds
a shared lock on the folder itself (`flock`, which ends with the process, however that ends), and a removal
holds an exclusive one. Where the lock cannot be had for any reason, the folder stays. To lose a folder
breaks nothing anyway: it saves building the index again out of the shared cache of vectors, which stays.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from projections.vectors.projector import VECTORS_VERSION
from projections.vectors.snapshot import SnapshotFolder

PREFIX = f"vectors-v{VECTORS_VERSION}-"
PIECES = "-pieces"
TRIES = 8

log = logging.getLogger("memlog.vectors")


class VectorFolders:
    """Those of the project in `folder`, whose log is of this generation."""

    def __init__(self, folder: Path, generation: int) -> None:
        self._folder = folder
        self._suffix = f".{generation}" if generation else ""

    def of(self, key: str, *, pieces: bool) -> Path:
        return self._folder / f"{PREFIX}{key}{PIECES if pieces else ''}{self._suffix}"

    def reach(self, key: str) -> int:
        """The furthest position of a snapshot of the embedder of this key; 0 where there is none."""
        folders = [SnapshotFolder(self.of(key, pieces=each)) for each in (False, True)]
        return max((position for each in folders for position in each.positions()), default=0)

    def remove_unreadable(self) -> None:
        """Of another version or generation, used or not: of the latter, something was erased for good."""
        for other in self._folder.glob("vectors-v*"):
            if not (other.name.startswith(PREFIX) and other.name.endswith(self._suffix)):
                shutil.rmtree(other, ignore_errors=True)

    def earlier(self, own: Path | None) -> list[tuple[Path, str]]:
        """Folders but `own` that can be read, and their embedder's key; first the one that reaches furthest,
        of equals the oldest: it would have gone, had the younger ever been complete."""
        found = []
        for folder in self._folder.glob(f"{PREFIX}*"):
            with suppress(OSError):
                age = folder.stat().st_mtime_ns
                if folder != own and folder.name.endswith(self._suffix):
                    key = folder.name.removeprefix(PREFIX).removesuffix(self._suffix)
                    reach = max(SnapshotFolder(folder).positions(), default=0)
                    found.append((-reach, age, folder, key.removesuffix(PIECES)))
        return [(folder, key) for *_, folder, key in sorted(found)]

    def remove_unused(self, own: Path) -> None:
        for other in self._folder.glob("vectors-v*"):
            if other != own:
                with _unused(other) as alone:
                    if alone:
                        shutil.rmtree(other, ignore_errors=True)


class Use:
    """A folder of vectors, made if need be, that nobody removes until `end`, or until this is let go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._close: weakref.finalize[..., Use] | None = None
        for _ in range(TRIES):  # it may be removed between the making and the lock
            try:
                folder.mkdir(exist_ok=True)
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except OSError as error:
                log.debug("the folder %s is used without a lock: %s", folder, error)
                return
            if _lock(descriptor, fcntl.LOCK_SH) and _is_still(folder, descriptor):
                # A project that was not used for long is let go, and not closed.
                self._close = weakref.finalize(self, os.close, descriptor)
                return
            os.close(descriptor)

    def end(self) -> None:
        if self._close is not None:
            self._close()


@contextmanager
def _unused(folder: Path) -> Iterator[bool]:
    """Whether nobody uses it, nor will meanwhile."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield _lock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_still(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except OSError:
        return False
