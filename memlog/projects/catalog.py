"""The catalogue: which projects there are, by name, and which of them a change of life is under way for.

A projection of the logs, in one LMDB file of the data directory; one that is lost or damaged is begun anew, one that
another process put in its place is followed. Leaves to the store what stands in it, and when.
"""

from __future__ import annotations

from pathlib import Path

import lmdb

from memlog.events import ProjectCreated
from memlog.rows import Project, decode_project, encode_row, text_key
from memlog.storage.derived import derived
from memlog.storage.files import FileIdentity
from memlog.storage.filling import compact

DATABASES = ("projects", "meta")
_PENDING, _REMOVED = b"pending", b"removed"


class Catalog:
    def __init__(self, path: Path) -> None:
        self._environment = derived(path, DATABASES)

    @property
    def _projects(self) -> lmdb._Database:
        return self._environment.databases["projects"]

    @property
    def _meta(self) -> lmdb._Database:
        return self._environment.databases["meta"]

    @property
    def identity(self) -> FileIdentity:
        """Of the file that was read last."""
        return self._environment.identity

    def rows(self) -> list[Project]:
        with self._environment.read() as transaction:
            rows = [_row(value) for _, value in transaction.cursor(db=self._projects)]
        return [row for row in rows if row is not None]

    def row(self, name: str) -> Project | None:
        with self._environment.read() as transaction:
            value = transaction.get(text_key(name), db=self._projects)
        return None if value is None else _row(value)

    def with_id(self, project_id: str) -> Project | None:
        return next((row for row in self.rows() if row.id == project_id), None)

    def created(self, project_id: str) -> ProjectCreated:
        """What was created as this project, as far as is known: for a log that does not say it any more."""
        known = self.with_id(project_id)
        if known is None:
            return ProjectCreated(project_id, project_id, "")
        return ProjectCreated(project_id, known.name, known.description)

    def write(self, project_id: str, row: Project | None) -> None:
        """Makes `row` all that is said of the project; None: nothing is, but in free pages until `clear`."""

        def body(transaction: lmdb.Transaction) -> None:
            found = [(key, _row(value)) for key, value in transaction.cursor(db=self._projects)]
            said = [key for key, known in found if known is None or known.id == project_id]
            for key in said:
                transaction.delete(key, db=self._projects)
            if row is not None:
                transaction.put(text_key(row.name), encode_row(row), db=self._projects)
            elif said:
                transaction.put(_REMOVED, b"", db=self._meta)

        self._environment.write(body)

    def clear(self) -> None:
        """Writes the file anew where a project was removed from it: then no page holds what that was called.

        Raises StorageError; then the next call does it.
        """
        with self._environment.read() as transaction:
            if transaction.get(_REMOVED, db=self._meta) is None:
                return
        compact(self._environment, but=[_REMOVED])

    # -- changes under way

    def pending(self) -> set[str]:
        """The ids of the projects whose change is not settled."""
        with self._environment.read() as transaction:
            keys = [bytes(key) for key, _ in transaction.cursor(db=self._meta)]
        return {key[len(_PENDING) :].decode() for key in keys if key.startswith(_PENDING)}

    def begin(self, project_id: str, aside: str = "") -> None:
        """`aside` is where its folder is put, until another has taken its place."""
        key = _PENDING + project_id.encode()
        self._environment.write(
            lambda transaction: transaction.put(key, aside.encode(), db=self._meta)
        )

    def aside(self, project_id: str) -> str:
        """What `begin` was told last; empty where that was nothing."""
        with self._environment.read() as transaction:
            stored = transaction.get(_PENDING + project_id.encode(), b"", db=self._meta)
        return bytes(stored).decode()

    def settled(self, project_id: str) -> None:
        key = _PENDING + project_id.encode()
        self._environment.write(lambda transaction: transaction.delete(key, db=self._meta))

    def close(self) -> None:
        self._environment.close()


def _row(stored: bytes | memoryview) -> Project | None:
    """None of what is damaged: it counts as lost, and the project's log brings it back."""
    try:
        return decode_project(stored)
    except ValueError:  # no MessagePack of a project, or no text
        return None
