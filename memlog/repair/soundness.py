"""Whether a log that is open is sound: what was found out when it was read, by this process or another."""

from __future__ import annotations

import logging
from contextlib import closing

import lmdb

from memlog.errors import DamagedLog
from memlog.patience import require_patience
from memlog.repair.damage import damaged, damages_in, mark, noted
from memlog.storage.environment import Environment
from memlog.storage.pages import Pages

log = logging.getLogger("memlog.soundness")


class Soundness:
    """Of one log, as far as anybody found out: this object, or whoever noted it beside the log."""

    def __init__(self, environment: Environment, known: DamagedLog | None) -> None:
        self._environment = environment
        self._found = known
        """What is not noted beside the log, or could not be."""

    @property
    def damage(self) -> DamagedLog | None:
        return self._found or noted(self._environment.path)

    def require(self) -> None:
        damage = self.damage
        if damage is not None:
            raise damage

    def noted(self, transaction: lmdb.Transaction, met: DamagedLog) -> DamagedLog:
        """The damage that there is, of which one was met: what is read is checked, so whoever reads may find it."""
        if self.damage is None:
            self._note(transaction, met)
        return self.damage or met

    def _note(self, transaction: lmdb.Transaction, met: DamagedLog) -> None:
        require_patience()
        path = self._environment.path
        with closing(Pages(path, transaction.id())) as pages:
            damages = damages_in(pages)
        if self._environment.was_replaced():  # what was looked at is another file
            self._found = met
            return
        if damages:
            log.error("%s", met.message)
            mark(path, damages)
        self._found = None if noted(path) else damaged(damages) or met
