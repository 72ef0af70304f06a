"""Which log an index was made of: a file beside it with a position and the chain of hashes there.

Where a memory was gone on with at two places, somebody may put the log of one beside the indexes of the other. Up to
where they part both are the same, and nothing else tells that the rest is not.

    position    8 bytes, big-endian
    chain       of the log, up to and with the entry there (`memlog.codec`)

Promises: the file is of a position at least as far as the index is, for it is written before. It is not synced, and may
be missing or cut: then nothing is known, and the index counts.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from memlog.codec import CHAIN_END
from memlog.projects.project import Project

FILE = "origin"
_POSITION_BYTES = 8
_BYTES = _POSITION_BYTES + CHAIN_END - 1

logger = logging.getLogger("memlog.projections")


class Origin:
    """Of the index in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._noted = 0

    def is_other_than(self, project: Project) -> bool:
        """Whether it is known that the index was made of another log than the project has."""
        try:
            found = self._file.read_bytes()
        except OSError:
            return False
        position = int.from_bytes(found[:_POSITION_BYTES], "big")
        return len(found) == _BYTES and found != _known(project, position)

    def note(self, project: Project, position: int) -> None:
        """Before the index goes that far."""
        if position <= self._noted:
            return
        try:
            # Over what is there: to cut it first has ext4 write it to disk, 0.4 ms.
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.pwrite(file, _known(project, position), 0)
            finally:
                os.close(file)
        except OSError as error:
            logger.debug("%s cannot be written: %s", self._file, error)
            return
        self._noted = position


def _known(project: Project, position: int) -> bytes:
    with project.snapshot() as (log, _):
        return position.to_bytes(_POSITION_BYTES, "big") + log.chain_at(position)
