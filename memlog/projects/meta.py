"""What a project's file says of itself: of which version its state tables are, how often something was erased from its
log, and that it was removed."""

from __future__ import annotations

import lmdb

from memlog.errors import ProjectNotFound, StorageError
from memlog.storage.environment import Environment

STATE_VERSION = 9
"""Of the state tables' layout and of what their keys are made from; a log whose tables are of an earlier version is
evolved anew, and who has it open as that version sees it no more."""

VERSION_KEY, GENERATION_KEY, _REMOVED_KEY = b"state_version", b"generation", b"removed"
VERSION = STATE_VERSION.to_bytes(2, "big")
"""What stands under `VERSION_KEY` in a log whose tables are of this version. One that was removed has none."""
GENERATION_BYTES = 4
_REMOVED = b"1"


class Meta:
    """That of one project, inside one transaction."""

    def __init__(self, transaction: lmdb.Transaction, database: lmdb._Database) -> None:
        self._transaction = transaction
        self._database = database

    def _stored(self, key: bytes) -> bytes:
        return bytes(self._transaction.get(key, b"", db=self._database))

    @property
    def generation(self) -> int:
        """How often something was erased from the log, or lost with its end."""
        return int.from_bytes(self._stored(GENERATION_KEY), "big")

    @property
    def is_evolved(self) -> bool:
        """Whether the state tables are of this version; those of a removed project are of none."""
        return self._stored(VERSION_KEY) == VERSION

    def require_no_newer(self) -> None:
        """Raises StorageError where the state tables are of a newer version."""
        if self._stored(VERSION_KEY) > VERSION:
            raise _other_version()

    def note_evolved(self) -> None:
        if not self.is_removed:
            self._transaction.put(VERSION_KEY, VERSION, db=self._database)

    @property
    def is_removed(self) -> bool:
        return bool(self._stored(_REMOVED_KEY))

    @property
    def deletion(self) -> bytes | None:
        """The receipt of its removal, where it was removed under an id that the client chose."""
        stored = self._stored(_REMOVED_KEY)
        return stored if len(stored) > len(_REMOVED) else None

    def remove(self, deletion: bytes | None) -> None:
        self._transaction.put(_REMOVED_KEY, deletion or _REMOVED, db=self._database)
        self._transaction.delete(VERSION_KEY, db=self._database)

    def require_present(self) -> None:
        """Raises ProjectNotFound where it was removed, and StorageError where its tables are of another version."""
        if not self.is_evolved:
            if self.is_removed:
                raise ProjectNotFound(
                    "This project was deleted",
                    suggestion="Call list_projects to see what there is.",
                )
            raise _other_version()


def note_generation(environment: Environment, generation: int) -> None:
    """Says of a file that has no entries as yet how often something had been erased from its log."""
    meta, stored = environment.databases["meta"], generation.to_bytes(GENERATION_BYTES, "big")
    environment.write(lambda transaction: transaction.put(GENERATION_KEY, stored, db=meta))


def _other_version() -> StorageError:
    return StorageError(
        "This project is in use by a newer memlog, which keeps its state in another form; nothing was done",
        suggestion="Restart this server, and whatever else uses the memory, with the newest memlog.",
    )
