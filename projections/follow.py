"""The projections of one project: they follow its log, and catch up to its head before they answer.

Whoever needs a projection drives it: a background task after a write, a search before it reads (but what few
entries are new to the text index a search finds in memory: `text.ahead`). One does at a time (`driving`), and for one
batch only, so that a search never waits behind a long catch-up that it could have joined.
"""

from __future__ import annotations

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from memlog.errors import DamagedLog, ProjectNotFound, PutAway, StorageError
from memlog.patience import held, require_patience
from memlog.projects.project import Project
from projections.analytics.projector import ANALYTICS_VERSION, AnalyticsProjector
from projections.batches import AnyProjector, advance, changes_between, texts
from projections.driving import LOOK_SECONDS, Followed, held_among_processes, lock_among_processes
from projections.embeddings import Embeddings
from projections.origin import Origin
from projections.text.projector import TEXT_VERSION, TextProjector
from projections.vectors.folders import Use, VectorFolders
from projections.vectors.previous import Meaning, Previous
from projections.vectors.projector import VectorProjector

ON_DISK: dict[str, tuple[int, Callable[[Path], AnyProjector]]] = {
    "text": (TEXT_VERSION, TextProjector),
    "analytics": (ANALYTICS_VERSION, AnalyticsProjector),
}
"""The version and the maker of each index that processes share; no embedder is needed for these."""

PROJECTIONS = (*ON_DISK, "vectors")

Progress = Callable[[str, int, int], None]
"""Told the projection's name, its position, and the position it is going to."""

AHEAD_ENTRIES_MAX = 1_000
"""So many entries at most are searched before their documents are on disk: of more, a commit is the lesser part."""

log = logging.getLogger("memlog.projections")


class Projections:
    """What is derived from one project's log and searched."""

    def __init__(self, project: Project, embeddings: Embeddings) -> None:
        self._project = project
        self.folder = project.folder
        """Where its indexes stand, also once the project is elsewhere."""
        self._embeddings = embeddings
        self._opening = threading.Lock()
        self._followed: dict[str, Followed] = {}
        self._closed = False
        self._folders = VectorFolders(self.folder, project.generation)
        self._own: Use | None = None
        self._vectors_complete = False
        self._previous = Previous(self._folders, embeddings, partial(advance, project))

    # -- for a search

    def text(self) -> TextProjector:
        """The text index, caught up with the head of the log."""
        projector = self.caught_up("text")
        assert isinstance(projector, TextProjector)
        return projector

    def text_ahead(self) -> TextProjector:
        """The text index, which finds the newest documents, too: in memory alone where they are few."""
        # Where that cannot be, the index catches up on disk as far as it can, or says why it cannot.
        return self.text_at_hand() or self.text()

    def text_at_hand(self) -> TextProjector | None:
        """The same without waiting: None where it has to catch up on disk first."""
        with suppress(DamagedLog, StorageError, ProjectNotFound, Timeout):
            projector = self._open("text", LOOK_SECONDS).projector
            assert isinstance(projector, TextProjector)
            head = self._project.head()
            if 0 <= head - projector.position <= AHEAD_ENTRIES_MAX and projector.look_ahead(
                head, lambda after: [*changes_between(self._project, after, head)]
            ):
                return projector
        return None

    def analytics(self) -> AnalyticsProjector:
        """The analytics, caught up."""
        projector = self.caught_up("analytics")
        assert isinstance(projector, AnalyticsProjector)
        return projector

    def vectors(self, patience_seconds: float = math.inf) -> VectorProjector:
        """The vector index, caught up as far as patience allows: embedding a long backlog takes its time.

        Raises EmbeddingError where texts cannot be embedded now.
        """
        projector = self.caught_up("vectors", patience_seconds=patience_seconds)
        assert isinstance(projector, VectorProjector)
        return projector

    def vectors_so_far(self) -> tuple[VectorProjector, int]:
        """The vector index as it is, and the head of the log. Raises EmbeddingError as `vectors`."""
        try:
            projector = self._open("vectors").projector
            head = self._project.head()
        except (StorageError, ProjectNotFound):
            self._require_active()
            raise
        assert isinstance(projector, VectorProjector)
        if projector.position == head:
            self._vectors_complete = True
        return projector, head

    def previous(self, patience_seconds: float) -> Meaning | None:
        """What an embedder before made, where the vectors of the present one were not complete so far."""
        if self._vectors_complete:
            return None
        require_patience()
        own = self._own.folder if self._own is not None else None
        return self._previous.serving(own, self._project.head(), patience_seconds)

    def caught_up(
        self, name: str, progress: Progress | None = None, *, patience_seconds: float = math.inf
    ) -> AnyProjector:
        """The projection, having seen everything that was committed before the call.

        With a limit to its patience it may come back behind, and so it does where the log is damaged; its
        position tells.
        """
        try:
            return self._caught_up(name, progress, time.monotonic() + patience_seconds)
        except DamagedLog as damage:
            log.warning("%s ends before the damage: %s", name, damage.message)
            return self._open(name).projector
        except (StorageError, ProjectNotFound):
            self._require_active()
            raise

    def _caught_up(self, name: str, progress: Progress | None, deadline: float) -> AnyProjector:
        followed = self._open(name)
        head = self._project.head()
        if followed.projector.position > head:
            self._require_within_log(name, followed)
        while followed.projector.position < head and (left := deadline - time.monotonic()) > 0:
            require_patience()
            with followed.driven(left) as alone:
                if not alone:
                    break
                self._require_open()
                if followed.projector.position < head:
                    with followed.excluding_processes():
                        followed.projector.refresh()
                        followed.origin.note(self._project, head)
                        self._advance(followed.projector, head, progress)
            if progress is not None:
                progress(name, followed.projector.position, head)
            if followed.projector.position < head:
                followed.leave_others_a_turn()
        if name == "vectors" and followed.projector.position >= head:
            self._vectors_complete = True
        return followed.projector

    def _require_within_log(self, name: str, followed: Followed) -> None:
        """Empties an index that knows more than its log: somebody put an older log in its place."""
        require_patience()
        with followed.driving, followed.excluding_processes():
            followed.projector.refresh()
            position = followed.projector.position
            if position > self._project.head():  # asked after the position, which may have moved on
                log.warning("%s is beyond the end of its log and is built anew", name)
                followed.projector.reset()

    # -- upkeep

    def head(self) -> int:
        """The position of the newest entry of the log."""
        return self._project.head()

    def texts(self) -> Iterator[list[str]]:
        """Every text that ever was to be embedded, in the order of the log, some thousands at a time."""
        return texts(self._project)

    def positions(self) -> dict[str, int]:
        """How far each projection that is open has come, as this process saw it last."""
        with self._opening:
            return {name: each.projector.position for name, each in self._followed.items()}

    def positions_anew(self) -> dict[str, int]:
        """The same with what other processes did meanwhile, and vectors that are not open as far as they are on disk.
        Quick: an index that somebody is at is not waited for, and nothing is opened."""
        with self._opening:
            followed = [*self._followed.values()]
        for each in followed:
            each.look()
        found = self.positions()
        if "vectors" not in found and not self._embeddings.switched_off:
            found["vectors"] = max(map(self._folders.reach, self._embeddings.keys()), default=0)
        return found

    def rebuild(self, name: str, progress: Progress | None = None) -> None:
        """Throws the projection away and builds it from the log."""
        require_patience()
        followed = self._open(name)
        with followed.driving, followed.excluding_processes():
            followed.projector.reset()
        self.caught_up(name, progress)
        self.save()

    def mend(self, name: str, error: StorageError) -> None:
        """Builds the projection anew, whose damage showed when it was asked."""
        log.warning("%s is built anew: %s", name, error.message)
        self.rebuild(name)

    def digest(self, name: str) -> tuple[int, str]:
        """How far the projection has come, and its digest there: nobody brings it further meanwhile."""
        require_patience()
        followed = self._open(name)
        with followed.driving, followed.excluding_processes():
            followed.projector.refresh()
            return followed.projector.position, followed.projector.digest()

    def fresh(self, name: str, folder: Path) -> AnyProjector:
        """An empty projector of this kind, elsewhere."""
        if name in ON_DISK:
            _, make = ON_DISK[name]
            return make(folder)
        embedder = self._embeddings.get()
        return VectorProjector(folder, embedder.vectors, embedder.dimensions)

    def drive(self, projector: AnyProjector, until: int, progress: Progress | None = None) -> None:
        """Brings a projector that nobody else holds up to the position `until`."""
        while projector.position < until:
            self._advance(projector, until, progress)
            if progress is not None:
                progress(projector.name, projector.position, until)

    def save(self, patience_seconds: float = math.inf) -> None:
        """Keeps on disk what was computed in memory, where there is enough of it and nobody is at it for longer.

        Vectors that are complete take the place of those of other embedders that nobody uses.
        """
        followed = self._followed.get("vectors")
        if self._project.replaced:  # what is in memory knows what was erased
            return
        if followed is not None and isinstance(followed.projector, VectorProjector):
            with followed.driven(patience_seconds) as alone:
                if not alone or self._closed:
                    return
                followed.projector.maybe_save()
            if self._vectors_complete and self._own is not None:
                self._previous.end()
                self._folders.remove_unused(self._own.folder)

    def close(self, patience_seconds: float = math.inf, vectors_seconds: float = math.inf) -> None:
        """Lets go of every index; a catch-up that is under way ends first, a later one is refused.

        An index whose catch-up does not end in time is left to it, which only the end of the process may do. Vectors
        may be left to it at any time, and their folder may go: they are in memory, and written down no more.
        """
        vectors_until = time.monotonic() + min(patience_seconds, vectors_seconds)
        self.save(min(patience_seconds, vectors_seconds))
        with self._opening:
            self._closed = True
            for name, followed in self._followed.items():
                left = max(0.0, vectors_until - time.monotonic())
                with followed.driven(left if name == "vectors" else patience_seconds) as alone:
                    if alone:
                        followed.projector.close()
                    else:
                        log.warning(
                            "%s is still being brought up to date, and left as it is on disk", name
                        )
            self._followed.clear()
            self._previous.end()
            if self._own is not None:
                self._own.end()
                self._own = None

    # -- inside

    def _advance(
        self, projector: AnyProjector, until: int, progress: Progress | None = None
    ) -> None:
        """One batch further, no further than `until`."""

        def taken(position: int) -> None:
            self._require_open()
            if progress is not None:
                progress(projector.name, position, until)

        advance(self._project, projector, until, taken)

    def _require_active(self) -> None:
        """Says why, where the project was put away meanwhile."""
        with self._project.read():
            pass

    def _require_open(self) -> None:
        if self._closed:
            raise PutAway()

    def _open(self, name: str, patience_seconds: float | None = None) -> Followed:
        key = self._embeddings.get().key if name == "vectors" else ""
        with held(self._opening):
            self._require_open()
            if name not in self._followed:
                require_patience()
                self._followed[name] = self._start(name, key, patience_seconds)
            return self._followed[name]

    def _start(self, name: str, embedder_key: str, patience_seconds: float | None) -> Followed:
        if name == "vectors":
            folder = self._folders.of(embedder_key, pieces=self._embeddings.get().has_pieces)
            self._folders.remove_unreadable()
            self._own = Use(folder)
            return self._of_this_log(name, folder, None)
        of = f".{self._project.generation}" if self._project.generation else ""
        lock = lock_among_processes(self.folder / f"{name}.lock")
        version, _ = ON_DISK[name]
        folder = self.folder / f"{name}-v{version}{of}"
        with held_among_processes(lock, patience_seconds):
            for other in self.folder.glob(f"{name}-v*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            return self._of_this_log(name, folder, lock)

    def _of_this_log(self, name: str, folder: Path, lock: FileLock | None) -> Followed:
        """The index in this folder, emptied where it is of another log: somebody put this one in its place."""
        projector, origin = self.fresh(name, folder), Origin(folder)
        if origin.is_other_than(self._project):
            log.warning("%s was made of another log and is built anew", name)
            projector.reset()
        return Followed(projector, origin, lock)
