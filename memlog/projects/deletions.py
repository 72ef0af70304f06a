"""Receipts of deletions: what was answered to one whose id the client chose, so that a retry is answered again and
does not delete what bears the name by then.

Those of all other commands go with their project's file (`receipts`). These stand in a file of the data directory:

    DATA/deletions.json           the newest so many, the oldest of them first

A deletion is marked in the project's own file, and its receipt with it, in one transaction. From there it is noted here
before that file goes; so what a crash left between the two is noted by whoever settles it.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec

from memlog.canonical import canonical
from memlog.errors import StorageError
from memlog.projects.receipts import used_for_another
from memlog.rows import Project
from memlog.storage.disk import write_whole
from memlog.storage.errors import storage_error

KEPT_MAX = 1_000


class Deletion(msgspec.Struct, frozen=True):
    """`command` is the SHA-256 of the id that the client gave it, in hexadecimal; `project`, as it was."""

    command: str
    project: Project


def receipt(command_id: str, project: Project) -> bytes:
    """What is stored of a deletion in the file that is to go."""
    return msgspec.json.encode(Deletion(_digest(command_id), project))


class Deletions:
    """Those of one data directory. It is written under the lock of its catalogue."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, command_id: str | None, name: str) -> Project | None:
        """The project of this name that was deleted under this id, as it was. Raises Conflict where the id was used to
        delete another."""
        if command_id is None:
            return None
        known = self._known(command_id)
        if known is not None and canonical(known.name) != canonical(name):
            raise used_for_another(command_id)
        return known

    def require_unused(self, command_id: str | None) -> None:
        """Raises Conflict where something was deleted under this id."""
        if command_id is not None and self._known(command_id) is not None:
            raise used_for_another(command_id)

    def keep(self, receipt: bytes) -> None:
        """Notes what `receipt` gave; on disk when it returns. Raises StorageError."""
        new = msgspec.json.decode(receipt, type=Deletion)
        others = [each for each in self._all() if each.command != new.command]
        try:
            write_whole(self._path, msgspec.json.encode([*others, new][-KEPT_MAX:]))
        except OSError as error:
            raise storage_error(self._path, error) from error

    def require_readable(self) -> None:
        """Raises StorageError where a deletion with an id would be refused."""
        self._all()

    def _known(self, command_id: str) -> Project | None:
        digest = _digest(command_id)
        return next((each.project for each in self._all() if each.command == digest), None)

    def _all(self) -> list[Deletion]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=list[Deletion])
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(self._path, error) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(
                f"{self._path.name} cannot be read: {error}",
                suggestion="It tells which deletions were done before. Remove it once no client is to send one again.",
            ) from error


def _digest(command_id: str) -> str:
    return sha256(command_id.encode()).hexdigest()
