"""The state tables as the log alone gives them, and the digest by which two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from itertools import islice

import lmdb

from memlog.evolve import evolve
from memlog.log import Log
from memlog.projects.contents import Contents
from memlog.storage.environment import Environment
from memlog.storage.tables import TOUCHED, MemoryRows, Timeline

ENTRIES_PER_COMMIT = 10_000
"""What is not yet committed is held in memory by LMDB."""


def evolve_all(log: Log, timeline: Timeline, progress: Callable[[int, int], None] | None) -> None:
    """Evolves every entry of the log into empty tables."""
    total = log.position()
    for entry in log.read():
        evolve(timeline, entry)
        if progress and (entry.position % 1_000 == 0 or entry.position == total):
            progress(entry.position, total)


def evolve_in_lots(environment: Environment) -> None:
    """Evolves every entry of a log that nobody else has as yet into its tables, which are empty; as it takes a commit
    for each so many entries, it takes little memory."""

    def lot(transaction: lmdb.Transaction, after: int) -> int:
        """Up to which position it went."""
        contents = Contents(transaction, environment.databases)
        timeline = contents.timeline()
        for entry in islice(contents.log().read(after), ENTRIES_PER_COMMIT):
            evolve(timeline, entry)
        return max(after, timeline.position)

    def end(transaction: lmdb.Transaction) -> None:
        Contents(transaction, environment.databases).meta().note_evolved()

    position, before = 0, -1
    while position > before:
        position, before = environment.write(partial(lot, after=position)), position
        environment.give_back()
    environment.write(end)


def digest(timeline: Timeline) -> str:
    """SHA-256 of what the rows hold, not of since when: an undo brings back the one, not the other."""
    hashed = sha256()
    for key, value in timeline.scan(b""):
        if key.startswith(TOUCHED):  # which says what happened, not what is
            continue
        hashed.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
    return hashed.hexdigest()


def digest_rebuilt(log: Log, progress: Callable[[int, int], None] | None) -> str:
    """That of tables evolved in memory."""
    timeline = Timeline(MemoryRows(), MemoryRows())
    evolve_all(log, timeline, progress)
    return digest(timeline)
