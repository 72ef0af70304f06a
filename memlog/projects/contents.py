"""What a project's file holds, as one transaction sees it: the log, the state with its past, the receipts, and what the
file says of itself."""

from __future__ import annotations

from collections.abc import Mapping

import lmdb

from memlog.log import Checked, Log
from memlog.projects.meta import Meta
from memlog.projects.receipts import Receipts
from memlog.rows import Project
from memlog.state import State
from memlog.storage.tables import LmdbRows, Timeline

DATABASES = ("log", "now", "past", "receipts", "meta")


class Contents:
    """Lives no longer than its transaction. `databases` are those that the file was opened with."""

    def __init__(
        self,
        transaction: lmdb.Transaction,
        databases: Mapping[str, lmdb._Database],
        checked: Checked | None = None,
    ) -> None:
        self.transaction = transaction
        self._databases = databases
        self._checked = checked

    def log(self) -> Log:
        return Log(self.transaction, self._databases["log"], self._checked)

    def timeline(self) -> Timeline:
        """Another one each time: who writes keeps it."""
        return Timeline(self.rows("now"), self.rows("past"))

    def receipts(self) -> Receipts:
        return Receipts(self.transaction, self._databases["receipts"])

    def meta(self) -> Meta:
        return Meta(self.transaction, self._databases["meta"])

    def rows(self, name: str) -> LmdbRows:
        """Those of a database, as they are stored."""
        return LmdbRows(self.transaction, self._databases[name])

    def project(self) -> Project | None:
        """The project's own row; None where it was never made."""
        return State(self.timeline()).project()
