"""What a projection is to those who drive it.

A projection reads the log in batches and remembers how far it has read. Its checkpoint is part of the
index it belongs to and becomes durable with it, never before: after a crash an index is behind the
log, never ahead of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from memlog.errors import ProjectNotFound
from projections.documents import Change

if TYPE_CHECKING:
    from memlog.codec import Entry
    from memlog.state import State


def put_away() -> ProjectNotFound:
    """What is said to those who still use a project whose folder has gone."""
    return ProjectNotFound("This project was put away or deleted a moment ago")


def _no_state(position: int) -> State:
    raise LookupError(
        f"this batch was made without the state as of position {position}: pass `state_at`, and keep "
        "open the snapshot it reads"
    )


@dataclass(frozen=True, slots=True)
class Batch:
    """A stretch of the log: `entries`, what they change, and the `position` of the last of them.

    A projector gets one or the other: the documents that are born and die (`changes`), or the state as
    of any position up to this one (`state_at`), which can be read until `apply` returns. The changes may
    be read from the log as they are taken, and so are taken once; the entries may be, too, and as often
    as it takes.
    """

    position: int
    entries: Iterable[Entry]
    changes: Iterable[Change] = ()
    state_at: Callable[[int], State] = _no_state


class Projector(Protocol):
    """One index that follows one log. One thread drives it at a time; any number may search it."""

    name: str

    @property
    def position(self) -> int:
        """The last position that this process sees indexed; 0 where nothing is."""
        ...

    def refresh(self) -> None:
        """Sees what other processes have committed. Cheap when they have not."""
        ...

    def apply(self, batch: Batch) -> None:
        """Indexes the batch and its checkpoint together, or neither."""
        ...

    def reset(self) -> None:
        """Throws everything away: position 0."""
        ...

    def digest(self) -> str:
        """SHA-256 over what is indexed: equal where two indexes hold the same."""
        ...

    def close(self) -> None: ...
