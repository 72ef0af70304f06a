"""What a projection is to those who drive it.

A projection reads the log in batches and remembers how far it has read. Its checkpoint is part of the
index it belongs to and becomes durable with it, never before: after a crash an index is behind the
log, never ahead of itself. What it reads is one of two: the documents that are born and die, or the log
and the state themselves (`analytics`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from projections.documents import Change

BATCH_BYTES = 64 * 1024**2
"""What a batch takes of the log at most, but for its last entry, where that takes no time of anybody: what it needs in
memory is a few times that."""


class Batch(NamedTuple):
    """What a stretch of the log changes, and the `position` it ends at. The changes may be read from the log as they
    are taken, anew each time: who fails amid them may begin again."""

    position: int
    changes: Iterable[Change]


class Projector(Protocol):
    """One index that follows one log. One thread drives it at a time; any number may search it."""

    name: str
    batch_entries: int
    batch_bytes: int
    """It is given so many entries at a time, at most, and none after so many bytes of them."""

    @property
    def position(self) -> int:
        """The last position that this process sees indexed; 0 where nothing is."""
        ...

    def refresh(self) -> None:
        """Sees what other processes have committed. Cheap when they have not."""
        ...

    def reset(self) -> None:
        """Throws everything away: position 0."""
        ...

    def digest(self) -> str:
        """SHA-256 over what is indexed: equal where two indexes hold the same."""
        ...

    def close(self) -> None: ...


class DocumentProjector(Projector, Protocol):
    """One of documents."""

    def apply(self, batch: Batch) -> None:
        """Indexes the batch and its checkpoint together, or neither."""
        ...
