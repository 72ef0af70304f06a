"""The vectors of deleted projects, out of the caches that all projects share.

A text may be one of several projects, and only their logs tell: to read all of them takes seconds where there are
many, so no deletion waits for it. It leaves a note, an empty file

    DATA/embeddings/deleted/<id>

which goes when the vectors have gone. A process that ends before leaves it to the next server. Nothing but time is
lost where a vector goes that is needed: its text is embedded anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memlog.errors import ProjectNotFound
from memlog.niceness import be_nice
from memlog.projects.store import Store
from projections.batches import texts
from projections.embedding.store import key_of
from projections.embeddings import Embeddings
from server.background import in_background

logger = logging.getLogger("memlog.sweeping")


class _Stopped(Exception):
    """The process is to end."""


class Sweeper:
    """Takes away the vectors that no project has any more. Its methods may be called from any thread."""

    def __init__(self, store: Store, embeddings: Embeddings) -> None:
        self._store = store
        self._embeddings = embeddings
        self._notes = store.data_dir / "embeddings" / "deleted"
        self._sweeping = threading.Lock()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def note(self, project_id: str) -> None:
        """To be left before the project goes. One that stays, for the deletion was refused, is passed over."""
        try:
            if not any(self._notes.parent.glob("*.mdb")):
                return
            self._notes.mkdir(exist_ok=True)
            (self._notes / project_id).touch()
        except OSError as error:  # a deletion may be what makes room on the disk
            logger.warning("vectors of project %s stay in the cache: %s", project_id, error)

    def begin(self) -> None:
        """`sweep` in the background, where there is a note."""
        if self._may_have_notes():
            without = "vectors of a deleted project stay in the cache until the next start"
            self._thread = in_background(self._run, "sweeper", without=without)

    def _may_have_notes(self) -> bool:
        """True, too, where the system does not tell: who sweeps says so in the log, and the deletion is done."""
        try:
            return self._notes.is_dir() and any(self._notes.iterdir())
        except OSError:
            return True

    def sweep(self) -> None:
        """Removes from every cache the vectors of texts that no project's log has, if a project has gone since the
        last time. Where a log or a cache cannot be read it says so in the log, and the next time tries again."""
        try:
            self._sweep()
        except Exception as error:
            if not self._stopping:  # else all is being closed
                logger.warning("vectors of deleted projects stay in the cache for now: %s", error)

    def _sweep(self) -> None:
        with self._sweeping:
            gone = self._gone()
            if not gone:
                return
            caches = self._embeddings.caches().values()
            for cache in caches:
                cache.settle()
            unused = [(cache, cache.keys()) for cache in caches]
            for key in self._used():  # read after: a text is embedded when a log has it
                for _, keys in unused:
                    keys.discard(key)
            for cache, keys in unused:
                cache.discard_keys(keys)
                cache.compact()  # also where all is discarded: by who ended before this
            for note in gone:
                note.unlink(missing_ok=True)

    def stop(self, seconds: float) -> None:
        """Waits no longer than this for a sweep that is under way."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        be_nice()
        self.sweep()

    def _gone(self) -> list[Path]:
        """The notes of projects that are there no more."""
        if not self._notes.is_dir():
            return []
        there = {row.id for row in self._store.projects("all")}
        return [note for note in self._notes.iterdir() if note.name not in there]

    def _used(self) -> Iterator[bytes]:
        for row in self._store.projects("all"):
            with suppress(ProjectNotFound):  # it was deleted a moment ago
                for found in texts(self._store.by_id(row.id)):
                    if self._stopping:
                        raise _Stopped
                    yield from map(key_of, found)
