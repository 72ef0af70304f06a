"""The whole service in one process, without MCP: the store, the projects that are open, and who follows them.

Tools and the command line both stand on this. A write schedules a catch-up of its project's projections, which is left
to `following`.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from memlog.canonical import canonical
from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.errors import (
    EmbeddingError,
    ProjectNotFound,
    StorageError,
)
from memlog.log import Log
from memlog.patience import held
from memlog.projects.project import Origin, Outcome
from memlog.projects.purging import Plan, Target
from memlog.projects.recent import Recent
from memlog.projects.settling import cause
from memlog.projects.store import Store
from memlog.rows import Project as ProjectRow
from memlog.settings import Settings
from memlog.state import State
from memlog.storage.everywhere import let_go_all
from memlog.storage.mounts import unsafe
from projections.documents import texts_about
from projections.embeddings import Embeddings
from server.background import in_background
from server.following import ENDING_SECONDS, Follower
from server.opened import Opened
from server.quiet import Quiet
from server.rights.detectors import detectors
from server.sweeping import Sweeper
from server.usage import Usage

logger = logging.getLogger("memlog.service")

UNUSED_SECONDS = 3_600.0
"""Whose indexes nobody asked for in so long, they are closed until somebody does: open, they cost memory, and each
text index wakes its process twice a second. To open them again takes milliseconds, of 100,000 facts some hundred."""

Answer = TypeVar("Answer")


class Service:
    """Everything a client can reach. Every method may be called from any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        context = Context(
            if_exists=settings.if_exists,
            strict_relations=settings.strict_relations,
            content_characters_max=settings.content_characters_max,
            tags_max=settings.tags_max,
        )
        self.store = Store(settings.data_dir, context)
        self.embeddings = Embeddings(settings)
        self.usage = Usage(settings.data_dir / "usage.mdb")
        self.usual_met = False
        """Whether the project that is active at the start was ever there: it is made on first use, and only then."""
        self._opened: Recent[Opened] = Recent()
        self._opening = threading.Lock()
        self._follower = Follower(self.embeddings, self.busy)
        self._sweeper = Sweeper(self.store, self.embeddings)
        self._quiet = Quiet(self.usage.flush, self.let_go)
        self._has_warmed_up = False
        self._listeners: tuple[Callable[[], None], ...] = ()

    def open(self, name: str) -> Opened:
        """The active project of this name. Raises ProjectNotFound or ProjectArchived."""
        self.busy()
        key = canonical(name)
        try:
            project = self.store.project(name)
        except ProjectNotFound:
            self._forget_gone(key)
            raise
        with held(self._opening):
            opened = self._opened.get(key)
            if (
                opened is None
                or opened.project is not project
                or opened.projections.folder != project.folder
            ):
                opened = self._opened.put(
                    key, Opened(project, self.embeddings, self._follower.behind)
                )
            return opened

    def _forget_gone(self, key: str) -> None:
        """One whose folder is away: it may come back, and is opened again once nobody has it. One that another thread
        opened a moment ago stays."""
        with held(self._opening):
            opened = self._opened.get(key)
            if opened is not None and opened.project.moved:
                self._opened.pop(key)

    def forget_gone(self) -> None:
        """Lets go of what other processes deleted or erased, and of caches that they wrote anew: it is on the disk for
        as long as it is open here."""
        let_go_all()
        with suppress(StorageError):  # of which the next call tells
            gone = self.store.forget_gone()
            with self._opening:
                for opened in self._opened.all():
                    if opened.project in gone:
                        self._opened.drop(opened)

    def let_go(self) -> None:
        """Lets go of what is gone, and of the indexes that nobody uses."""
        self.forget_gone()
        with self._opening:
            self._opened.let_go_unused(UNUSED_SECONDS)

    def busy(self) -> None:
        """Something is done here, after which nothing may be for long."""
        self._quiet.called()

    def execute(
        self,
        opened: Opened,
        command: AnyCommand,
        answer: Callable[[Outcome], Answer],
        origin: Origin = Origin(),
    ) -> Answer:
        """Makes `command` true in the project; durable when it returns."""
        result = opened.project.execute(command, self.store.context, answer, origin)
        self._follower.behind(opened)
        for listener in self._listeners:
            listener()
        return result

    def behind(self, opened: Opened) -> None:
        """Whoever finds the projections of a project behind says so: they are caught up in the background."""
        self._follower.behind(opened)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` after each write, in the thread that wrote; returns how to end that."""
        with self._opening:
            self._listeners = (*self._listeners, listener)

        def stop() -> None:
            with self._opening:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return stop

    def purge(self, name: str, target: Target, confirmed: Plan | None = None) -> Plan:
        """Erases what `target` names from the log and everything derived from it; there is no undo. Raises Conflict
        where more would go than was `confirmed`, and StorageError, which says so, where it is done but for the caches.

        Vectors go first: after a crash in between, the log still knows of which texts. And they go once more: whoever
        searched meanwhile, here or in another process, had the texts embedded again.
        """
        self.close_project(name)
        texts: set[str] = set()

        def going(planned: Plan, log: Log, state: State) -> None:
            texts.update(texts_about(planned.entities | planned.memories, log.read(), state.at))
            self.embeddings.forget(texts)

        planned = self.store.purge(name, target, going, confirmed)
        try:
            for cache in self.embeddings.caches().values():
                cache.settle()
            self.embeddings.forget(texts)
            self.usage.forget(planned.memories)
        except (StorageError, OSError) as error:
            raise StorageError(
                f"It is erased from the log, but vectors of its texts may be left in the cache: {cause(error)}",
                suggestion="When the cause is gone, and while no server runs, remove the folder `embeddings` of the "
                "data directory: vectors that are needed are computed again. There is nothing to purge again.",
            ) from error
        return planned

    def archive(self, name: str, origin: Origin = Origin()) -> ProjectRow:
        """Puts a project away. Whoever is reading it learns that it is archived, not that it is gone:
        its indexes are closed when the log says so already.
        """
        return self.store.archive(name, origin, lambda: self.close_project(name, ENDING_SECONDS))

    def delete(self, name: str, origin: Origin = Origin(), *, wait: bool = False) -> ProjectRow:
        """Removes a project for good. The vectors of its texts that no other project has go after it, in the
        background, or before this returns where the caller can `wait`."""

        def going(row: ProjectRow) -> None:
            self._sweeper.note(row.id)
            self.close_project(name, ENDING_SECONDS)

        row = self.store.delete(name, origin, going)
        if wait:
            self._sweeper.sweep()
        else:
            self._sweeper.begin()
        return row

    def opened(self) -> list[Opened]:
        """The projects in use in this process."""
        with self._opening:
            return self._opened.all()

    def close_project(self, name: str, vectors_seconds: float = math.inf) -> None:
        """Lets go of a project's indexes, before its folder moves or goes. Texts that are being embedded for longer
        are left to that: their vectors go to the cache of all projects, and nowhere else."""
        with self._opening:
            opened = self._opened.pop(canonical(name))
        if opened is not None:
            opened.projections.close(vectors_seconds=vectors_seconds)

    def warm_up(self) -> None:
        """Loads what finds credentials, and the model, in the background: in a thread of normal priority, which the
        model's own threads inherit. Once; from one thread."""
        if self._has_warmed_up:
            return
        self._has_warmed_up = True
        self._sweeper.begin()
        in_background(self._warm, "warm-up", without="whoever asks first waits for the model")

    def _warm(self) -> None:
        if (why := unsafe(self.settings.data_dir)) is not None:
            logger.warning("%s: the data directory. %s", self.settings.data_dir, why)
        if self.settings.secrets != "off" and not self.settings.read_only:
            detectors()
        try:
            if not self.embeddings.switched_off:
                self.embeddings.get().query_vector("warm")
        except EmbeddingError as error:
            logger.warning("%s", error.message)
        except Exception:
            logger.exception("the embedder could not be warmed up")

    def close(self) -> None:
        """Keeps what was computed and lets go of everything. Nothing acknowledged waits for this."""
        self._quiet.stop()
        self._sweeper.stop(ENDING_SECONDS)
        self._follower.stop()
        with self._opening:
            for opened in self._opened.all():
                opened.projections.close(ENDING_SECONDS)
            self._opened.clear()
        self.embeddings.close()
        self.usage.close()
        self.store.close()
