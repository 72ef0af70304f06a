"""The state tables as the log alone gives them, and the digest by which two of them are compared."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from memlog.evolve import evolve
from memlog.log import Log
from memlog.storage.tables import TOUCHED, MemoryRows, Timeline


def evolve_all(
    log: Log, timeline: Timeline, progress: Callable[[int, int], None] | None = None
) -> None:
    """Evolves every entry of the log into empty tables."""
    total = log.position()
    for entry in log.read():
        evolve(timeline, entry)
        if progress and (entry.position % 1_000 == 0 or entry.position == total):
            progress(entry.position, total)


def digest(timeline: Timeline) -> str:
    """SHA-256 of what the rows hold, not of since when: an undo brings back the one, not the other."""
    hashed = sha256()
    for key, value in timeline.scan(b""):
        if key.startswith(TOUCHED):  # which says what happened, not what is
            continue
        hashed.update(len(key).to_bytes(4, "big") + key + len(value).to_bytes(4, "big") + value)
    return hashed.hexdigest()


def digest_rebuilt(log: Log, progress: Callable[[int, int], None] | None = None) -> str:
    """That of tables evolved in memory."""
    timeline = Timeline(MemoryRows(), MemoryRows())
    evolve_all(log, timeline, progress)
    return digest(timeline)
