"""Snapshots of the vector index on disk: one file each, whole or not at all.

A file `<position>.snapshot` holds everything up to that log position, with the checkpoint in it and in
its name:

    magic   8 bytes     b"memlogV1"
    header  <Q I Q Q Q  position, dimensions, bytes of the three sections
    rows                the table, msgpack (`rows`)
    numbers             int8[rows][dimensions] (`index`)
    codes               FAISS's own format (`codes`), or nothing while there are few rows
    SHA-256 of all of the above, 32 bytes

Promises: a file of that name was complete and synced before it got the name, so a crash leaves the
older ones as they were. Processes that save at the same time do not disturb each other: each writes a
file of its own, and of two for one position the last renamed stays; both are true. A file that does
not match its checksum is reported and removed, never raised: a snapshot is a saving of time, and
what it held is computed again from the log.

Left to others: what the sections mean, when to save, and a snapshot that is ahead of its log.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import struct
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from memlog.errors import PutAway, StorageError
from memlog.storage.disk import sync, sync_folder
from memlog.storage.errors import storage_error

SUFFIX = ".snapshot"
KEPT = 2
ABANDONED_SECONDS = 3600

MAGIC = b"memlogV1"
HEADER = struct.Struct("<8sQIQQQ")
CHECKSUM_BYTES = 32

log = logging.getLogger("memlog.vectors")


class Snapshot(msgspec.Struct, frozen=True):
    """The index as it stood when the log was read up to `position`."""

    position: int
    dimensions: int
    rows: bytes | memoryview
    numbers: bytes | memoryview
    codes: bytes | memoryview


class SnapshotFolder:
    """The snapshots of one index. The folder is made by the first that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def positions(self) -> list[int]:
        """Of the snapshots there are, the newest first; none where the system does not tell."""
        try:
            return self._positions()
        except OSError as error:
            log.warning("snapshots in %s cannot be looked for: %s", self.path, error)
            return []

    def _positions(self) -> list[int]:
        """Raises OSError."""
        try:
            names = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
        return sorted((int(stem) for stem in stems if stem.isdecimal()), reverse=True)

    def read(self, position: int) -> Snapshot | None:
        """The snapshot of this position; None where it is damaged, unreadable or gone."""
        try:
            data = self._file(position).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("snapshot %s cannot be read: %s", self._file(position), error)
            return None
        try:
            return _decoded(position, memoryview(data))
        except ValueError as error:
            self.discard(position, str(error))
            return None

    def write(self, snapshot: Snapshot) -> None:
        """Puts the snapshot on disk and removes all but the newest. Raises StorageError, or
        PutAway where another process has put the project's folder away."""
        self.publish(self.stage(snapshot), snapshot.position)

    def stage(self, snapshot: Snapshot) -> Path:
        """The first half of `write`: a file that is complete and synced and has no name yet."""
        # Without parents: where the project's folder has gone, a snapshot must not bring it back.
        name = f"{snapshot.position}-{os.getpid()}-{secrets.token_hex(4)}.tmp"
        staged = self.path / name
        try:
            self.path.mkdir(exist_ok=True)
            with staged.open("xb") as file:
                checksum = hashlib.sha256()
                for part in (_header(snapshot), snapshot.rows, snapshot.numbers, snapshot.codes):
                    checksum.update(part)
                    file.write(part)
                file.write(checksum.digest())
                file.flush()
                sync(file.fileno())
        except OSError as error:
            with suppress(OSError):
                staged.unlink()
            raise self._cannot_write(error) from error
        return staged

    def publish(self, staged: Path, position: int) -> None:
        """The second half: the name, and with it the place of the older ones."""
        try:
            staged.replace(self._file(position))
            sync_folder(self.path)
        except OSError as error:
            with suppress(OSError):
                staged.unlink()
            raise self._cannot_write(error) from error
        for old in self.positions()[KEPT:]:
            self._unlink(self._file(old))
        self._drop_abandoned()

    def discard(self, position: int, reason: str) -> None:
        """Removes a snapshot that turned out to be none."""
        log.warning("snapshot %s is damaged and is removed: %s", self._file(position), reason)
        self._unlink(self._file(position))

    def clear(self) -> None:
        """What cannot be removed is emptied, and so is none any more. Raises StorageError where one stays, which may be
        of another log."""
        try:
            for position in self._positions():
                _remove_or_empty(self._file(position))
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _file(self, position: int) -> Path:
        return self.path / f"{position}{SUFFIX}"

    def _drop_abandoned(self) -> None:
        """Removes what a killed process left; what is younger may be another's that is writing."""
        with suppress(OSError):  # the next time
            for staged in self.path.glob("*.tmp"):
                if time.time() - staged.stat().st_mtime > ABANDONED_SECONDS:
                    staged.unlink()

    def _unlink(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("snapshot %s cannot be removed: %s", file, error)

    def _cannot_write(self, error: OSError) -> StorageError | PutAway:
        if not self.path.parent.exists():
            return PutAway()
        return StorageError(
            f"A snapshot of the vectors cannot be written to {self.path}: {error}",
            suggestion="Search goes on without it; see that the disk has room and may be written.",
        )


def _remove_or_empty(file: Path) -> None:
    """The latter needs no right on the folder. Raises OSError."""
    try:
        file.unlink(missing_ok=True)
    except OSError:
        os.truncate(file, 0)


def _header(snapshot: Snapshot) -> bytes:
    sections = (len(snapshot.rows), len(snapshot.numbers), len(snapshot.codes))
    return HEADER.pack(MAGIC, snapshot.position, snapshot.dimensions, *sections)


def _decoded(position: int, data: memoryview) -> Snapshot:
    """Raises ValueError where `data` is not the snapshot of `position`."""
    body = len(data) - CHECKSUM_BYTES
    if body < HEADER.size:
        raise ValueError(f"it has {len(data)} bytes, less than a header")
    if hashlib.sha256(data[:body]).digest() != data[body:]:
        raise ValueError("its checksum does not match")
    magic, held, dimensions, *sections = HEADER.unpack_from(data)
    if magic != MAGIC or held != position or HEADER.size + sum(sections) != body:
        raise ValueError(
            f"its header does not fit: {magic!r}, position {held}, sections {sections}"
        )
    rows_end = HEADER.size + sections[0]
    numbers_end = rows_end + sections[1]
    return Snapshot(
        position,
        dimensions,
        data[HEADER.size : rows_end],
        data[rows_end:numbers_end],
        data[numbers_end:body],
    )
