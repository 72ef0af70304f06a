"""Who brings projections up to date in the background: after writes, and where a search finds them behind.

In threads of low priority, so that the next search finds the work done. No answer depends on it: a search sees the
head of the log without.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

from memlog.errors import Closed, MemlogError, ProjectArchived, ProjectNotFound
from memlog.niceness import be_nice
from projections.embedding.rest import LeftAlone
from projections.embeddings import Embeddings
from projections.follow import ON_DISK
from server.background import in_background
from server.opened import Opened

logger = logging.getLogger("memlog.service")

QUIET_SECONDS = 0.2
BEHIND_SECONDS_MAX = 2.0
"""The follower begins when no write came for so long, or after so long in any case: writes that come in a
run are one batch, and the indexes' own syncs do not stand in the way of theirs on the disk."""

SLICE_SECONDS = 1.0
"""A server that is to end waits no longer than this, and the batch under way, for texts being embedded."""

AGAIN_SECONDS_FIRST, AGAIN_SECONDS_MAX = 61.0, 3_600.0
"""What failed is tried again after so long, then after twice as long, and so on: an endpoint or a model is left alone
for a minute, and who has no network may have none for days. A write or a search tries at once."""

ENDING_SECONDS = 1.0
"""Nor for an index that somebody is at by then, perhaps behind an endpoint that hangs: what is lost of it is computed
again. Who puts a project away waits no longer for its vectors, for other projects wait for that."""


class Follower:
    """Background threads that bring projections up to date after writes, and whatever a search finds behind.

    Vectors have a thread of their own: an endpoint may keep texts for minutes, in which no other index is to fall
    behind.
    """

    def __init__(self, embeddings: Embeddings, busy: Callable[[], None]) -> None:
        """`busy` is called after each project that was caught up."""
        self._embeddings = embeddings
        self._indexes = _Rounds(
            self._catch_up_indexes,
            busy,
            name="follower",
            without="indexes fall behind until they are searched",
        )
        self._vectors = _Rounds(
            self._catch_up_vectors,
            busy,
            name="vectors",
            without="texts are embedded when they are searched",
        )

    def behind(self, opened: Opened) -> None:
        """Its projections are to be caught up."""
        self._indexes.behind(opened)

    def stop(self) -> None:
        until = time.monotonic() + SLICE_SECONDS + ENDING_SECONDS
        for rounds in (self._indexes, self._vectors):
            rounds.stop()
        for rounds in (self._indexes, self._vectors):
            rounds.join(until)

    def _catch_up_indexes(self, opened: Opened) -> None:
        for name in ON_DISK:
            opened.projections.caught_up(name)
        if not self._embeddings.switched_off:
            self._vectors.behind(opened)

    def _catch_up_vectors(self, opened: Opened) -> None:
        if not self._embeddings.is_loaded(SLICE_SECONDS):
            self._vectors.behind(opened)  # it may take minutes, in which the server may end
            return
        head = opened.projections.head()
        while opened.projections.vectors(SLICE_SECONDS).position < head:
            if self._vectors.stopping or opened.project.damage is not None:
                return
        opened.projections.save()


class _Failing(NamedTuple):
    """How a project failed last, after which pause it is tried again, and when that is (monotonic)."""

    words: str
    pause_s: float
    due_s: float


class _Rounds:
    """A thread of low priority that catches up all that are behind, whenever no write came for a moment."""

    def __init__(
        self,
        catch_up: Callable[[Opened], None],
        busy: Callable[[], None],
        *,
        name: str,
        without: str,
    ) -> None:
        """`without` tells what happens where no thread of this `name` is to be had."""
        self._catch_up = catch_up
        self._busy = busy
        self._name = name
        self._without = without
        self._lock = threading.RLock()
        """Taken by itself: a condition takes it in two steps, between which an interrupt may come."""
        self._changed = threading.Condition(self._lock)
        self._behind: WeakValueDictionary[int, Opened] = WeakValueDictionary()
        """Weak: a project that nobody uses any more may be let go; its next search catches it up. So there are no more
        than are open."""
        self._failing: WeakKeyDictionary[Opened, _Failing] = WeakKeyDictionary()
        self.stopping = False
        self._thread: threading.Thread | None = None

    def behind(self, opened: Opened) -> None:
        with self._lock:
            self._behind[id(opened)] = opened
            if self._thread is None:
                # Where no thread is to be had the next write tries again; this one is on disk.
                self._thread = in_background(self._run, self._name, without=self._without)
            self._changed.notify_all()

    def stop(self) -> None:
        with self._lock:
            self.stopping = True
            self._changed.notify_all()

    def join(self, until: float) -> None:
        """Waits for its end until then, on the monotonic clock."""
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))

    def _run(self) -> None:
        be_nice()
        while True:
            with self._lock:
                while not (self._behind or self.stopping):
                    self._changed.wait(self._again_seconds())
                    self._take_up_again()
                latest = time.monotonic() + BEHIND_SECONDS_MAX
                while not self.stopping and time.monotonic() < latest:
                    if not self._changed.wait(QUIET_SECONDS):
                        break
                if self.stopping:
                    return
                behind, self._behind = self._behind.valuerefs(), WeakValueDictionary()
            for known in behind:
                if (opened := known()) is not None:
                    self._catch_up_one(opened)
                del opened

    def _again_seconds(self) -> float | None:
        """Until the first is due of those that failed; None where there is none."""
        due = min((each.due_s for each in self._failing.values()), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _take_up_again(self) -> None:
        now = time.monotonic()
        for opened, failing in self._failing.items():
            if failing.due_s <= now:
                self._behind[id(opened)] = opened

    def _catch_up_one(self, opened: Opened) -> None:
        try:
            self._catch_up(opened)
        except (Closed, ProjectArchived, ProjectNotFound) as error:
            self._failing.pop(opened, None)
            logger.debug("a project went away before it was caught up: %s", error.message)
        except MemlogError as error:
            if not self.stopping:  # else its projections are being closed
                self._failed(opened, error)
        except BaseException:  # where a library panics it is no Exception; this thread goes on
            self._failing.pop(opened, None)
            logger.exception("a projection is behind, the next search tries again")
        else:
            self._failing.pop(opened, None)
        self._busy()

    def _failed(self, opened: Opened, error: MemlogError) -> None:
        """Tells it once in a run of the same failure: an endpoint may be down for hours."""
        words = error.failure if isinstance(error, LeftAlone) else error.message
        before = self._failing.get(opened) or _Failing("", AGAIN_SECONDS_FIRST / 2, 0.0)
        pause_s = min(2 * before.pause_s, AGAIN_SECONDS_MAX)
        self._failing[opened] = _Failing(words, pause_s, time.monotonic() + pause_s)
        logger.log(
            logging.DEBUG if before.words == words else logging.WARNING,
            "a projection is behind, the next search tries again: %s. %s",
            error.message.rstrip("."),
            error.suggestion or "",
        )
