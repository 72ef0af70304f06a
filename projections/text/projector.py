"""The text index of a project: tantivy on disk, shared by the processes that serve the project.

What is promised: a batch of the log and its checkpoint become durable in one commit, so a crash leaves
the state before it or after it; a batch seen before changes nothing; an index that cannot be opened is
thrown away and found empty, for the log can always fill it again. Dead documents stay, marked with the
span in which they lived.

A search may look ahead of what is committed: `ahead` asks the newest documents in memory.

What is left to others: `follow` drives it, and holds a file lock around refresh and apply; how text is
cut into terms is `analysis`, which documents a batch leaves is `filling`, and how a query is
matched and scored is `snapshot`.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import tantivy

from memlog.errors import StorageError
from memlog.patience import held, require_patience
from projections.documents import Change
from projections.protocol import BATCH_BYTES, Batch
from projections.text import analysis
from projections.text.ahead import Ahead
from projections.text.failing import is_broken, may_have_moved, speaking_of
from projections.text.filling import Entering, fill
from projections.text.left_over import remove_left_over
from projections.text.on_disk import OnDisk
from projections.text.rows import NOBODY
from projections.text.schema import create, schema
from projections.text.snapshot import TextSnapshot

log = logging.getLogger("memlog.text")

TEXT_VERSION = 12
"""Of the schema and of everything that decides what is in the index. The folder's name carries it."""

AHEAD_DOCUMENTS_MAX = 2_000
"""So many at most are searched in memory, some 3 MB where they are short. In more, a word that no text has is
looked for too long."""

WRITER_WAIT_SECONDS = 60.0
WRITER_POLL_SECONDS = 0.01
WRITER_HEAP_BYTES, BULK_HEAP_BYTES = 15_000_000, 120_000_000
"""What a writer fills before it writes a segment: tantivy's least, and for many entries room for some 150,000 short
documents."""
BULK_ENTRIES_MIN = 1_000


class TextProjector:
    """Follows the log into `path`. Any thread may search while one applies.

    Opening raises StorageError only where an empty index could not be made either.
    """

    name = "text"
    batch_entries = 200_000
    batch_bytes = BATCH_BYTES

    def __init__(self, path: Path) -> None:
        self._path = path
        self._schema = schema()
        self._applying = threading.RLock()
        self._merging: threading.Thread | None = None
        self._taking = threading.RLock()  # whom an interrupt strikes as it is taken can still close
        self._ahead: Ahead | None = None
        self._newest: TextSnapshot | None = None
        with speaking_of(path):
            self._index, self._snapshot, self._seen = self._opened_or_emptied()

    @property
    def position(self) -> int:
        return self._snapshot.position

    @property
    def is_ahead(self) -> bool:
        """Whether some of what is searched is in memory alone."""
        return self._searched() is not self._snapshot

    def refresh(self) -> None:
        """A look at one file's metadata (some µs); opening what is new takes about 0.2 ms.

        One that cannot be read is begun anew, by this one process: whoever calls this keeps the others out.
        """
        with self._applying, speaking_of(self._path):
            try:
                self._look_again()
            except BaseException as error:
                # Not where all that stood beside it is gone, too: the project was put away.
                if not is_broken(error) or not self._path.parent.exists():
                    raise
                self._wait_for_merges()
                self._index, self._snapshot, self._seen = self._opened_or_emptied()

    @contextmanager
    def asked(self) -> Iterator[TextSnapshot]:
        """What is searched now, in one state of it. Raises StorageError where the index turns out to be damaged, as any
        failure in here is taken for: nothing but asking belongs in it."""
        with speaking_of(self._path):
            yield self._searched()

    def look_ahead(self, head: int, changes: Callable[[int], Sequence[Change]]) -> bool:
        """What is searched from now on has seen the log up to `head` at least, some of it in memory alone; False, and
        all is as before, where that would be too much.

        `changes` reads those beyond a position, up to `head`; what it raises is passed on. Waits for no batch
        that is being applied.
        """
        with held(self._taking), speaking_of(self._path):
            self._refresh_unless_applying()
            self._forget_committed()
            if self._searched().position >= head:
                return True
            require_patience()
            ahead, committed = self._ahead, self._snapshot
            if ahead is None or ahead.committed.position < committed.position:
                ahead = Ahead(committed)
            found = changes(ahead.snapshot.position)
            if ahead.documents + len(found) > AHEAD_DOCUMENTS_MAX:
                return False
            self._ahead = None
            ahead.take(Batch(head, found))
            self._ahead, self._newest = ahead, ahead.snapshot
            return True

    def apply(self, batch: Batch) -> None:
        """Indexes the batch and its checkpoint in one commit; what the index has already is skipped.

        A death under a ref where nothing lives changes nothing. Raises StorageError, and then nothing
        has changed, where the disk or another process's writer stands in the way; PutAway, where the project's folder
        is not there.
        """
        try:
            self._index_batch(batch)
        except StorageError as error:
            if not may_have_moved(error):
                raise
            self._index_batch(batch)  # it may be back: archived, and restored at once
        if self._taking.acquire(blocking=False):  # else whoever has it does this before long
            try:
                self._forget_committed()
            finally:
                self._taking.release()

    def _index_batch(self, batch: Batch) -> None:
        with self._writing(batch.position - self.position) as writer:
            self._look_again()  # as the only writer: what is seen now stays true until the commit
            if batch.position > self.position:
                entering = Entering(writer)
                fill(entering, batch, self._snapshot)
                entering.check(batch.position)
                writer.commit()
                _share(self._path)

    def reset(self) -> None:
        self.refresh()
        with self._taking, self._writing(0) as writer:
            self._ahead = self._newest = None
            writer.delete_all_documents()
            writer.commit()
            _share(self._path)

    def digest(self) -> str:
        with speaking_of(self._path):
            committed = self._snapshot.texts
            assert isinstance(committed, OnDisk)
            return committed.digest()

    def close(self) -> None:
        """Waits for merges under way. The projector must not be used afterwards."""
        with self._taking, self._applying:
            self._ahead = None
            self._wait_for_merges()

    # -- reading

    def _searched(self) -> TextSnapshot:
        newest = self._newest  # first: it is forgotten when a commit that has seen as much is there
        committed = self._snapshot
        return newest if newest is not None and newest.position > committed.position else committed

    def _refresh_unless_applying(self) -> None:
        if self._applying.acquire(blocking=False):
            try:
                self._look_again()
            finally:
                self._applying.release()

    def _look_again(self) -> None:
        if self._meta() != self._seen:
            self._snapshot, self._seen = self._read(self._index)

    def _forget_committed(self) -> None:
        """What was taken ahead and is on disk by now."""
        if self._newest is not None and self._newest.position <= self.position:
            self._ahead = self._newest = None

    def _opened_or_emptied(self) -> tuple[tantivy.Index, TextSnapshot, tuple[int, ...]]:
        try:
            return self._opened()
        except BaseException as error:
            if not is_broken(error):
                raise
            log.warning("text index in %s cannot be read, starting it anew: %s", self._path, error)
        shutil.rmtree(self._path)
        return self._opened()

    def _opened(self) -> tuple[tantivy.Index, TextSnapshot, tuple[int, ...]]:
        if not (self._path / "meta.json").exists():
            if any(self._path.glob("*.store")):
                raise FileNotFoundError("there are segments but no meta.json")
            create(self._path)
            _share(self._path)
        index = tantivy.Index(self._schema, path=str(self._path))
        analysis.register(index)
        index.config_reader("manual")
        return index, *self._read(index)

    def _read(self, index: tantivy.Index) -> tuple[TextSnapshot, tuple[int, ...]]:
        """Looks at meta.json before reading it: a commit in between is then seen once more, not missed."""
        seen = self._meta()
        index.reload()
        texts = OnDisk(self._schema, index.searcher())
        return TextSnapshot(texts, texts.position), seen

    def _meta(self) -> tuple[int, ...]:
        """What changes with every commit: the file is replaced by one that has another inode."""
        found = os.stat(self._path / "meta.json")
        return found.st_ino, found.st_mtime_ns, found.st_size

    # -- writing

    @contextmanager
    def _writing(self, entries: int) -> Iterator[tantivy.IndexWriter]:
        """The writer, for about so many entries. What it commits is seen at the end; where anything fails, it is let
        go with what it had."""
        with self._applying, speaking_of(self._path):
            writer = self._writer(entries)
            try:
                remove_left_over(self._path)
                # tantivy gives the number of the last commit to the first deletion after it, and a merge of that
                # commit, as a killed process leaves it undone, may take it for one that its segments have: it is of
                # nothing.
                writer.delete_documents_by_term("slot", NOBODY)
                yield writer
            except BaseException:
                _abandon(writer)
                raise
            self._release(writer)
            self._look_again()

    def _writer(self, entries: int) -> tantivy.IndexWriter:
        """The index's only writer. One thread: this one is as busy making documents as that is indexing
        them, and more of them make more segments, which have to be merged.

        tantivy refuses a second writer at once; whoever has it may only be merging, so it is waited for.
        """
        self._wait_for_merges()
        heap_bytes = BULK_HEAP_BYTES if entries >= BULK_ENTRIES_MIN else WRITER_HEAP_BYTES
        deadline = time.monotonic() + WRITER_WAIT_SECONDS
        while True:
            try:
                return self._index.writer(heap_bytes, 1)
            except ValueError as error:
                if "LockBusy" not in str(error) or time.monotonic() > deadline:
                    raise
            time.sleep(WRITER_POLL_SECONDS)

    def _release(self, writer: tantivy.IndexWriter) -> None:
        """Lets the merges that the commit began run to their end, and then lets the lock go.

        Dropping the writer would kill them, and segments would pile up; waiting here would make a
        search wait that only needs the commit. The thread is no daemon: one that wakes up from native
        code while the interpreter ends takes the process down. Where no thread is to be had, it is waited for.
        """
        merging = threading.Thread(
            target=_finish, args=(writer, self._path), name="memlog-text-merge"
        )
        try:
            merging.start()
        except RuntimeError:
            _finish(writer, self._path)
            return
        self._merging = merging

    def _wait_for_merges(self) -> None:
        if self._merging is not None:
            self._merging.join()
            self._merging = None


def _finish(writer: tantivy.IndexWriter, folder: Path) -> None:
    try:
        writer.wait_merging_threads()
        _share(folder)
    except Exception as error:
        log.warning("a merge of the text index failed; a later one will do its work: %s", error)


def _share(folder: Path) -> None:
    """Opens to whom the folder is open what tantivy writes for the owner alone: without it others find no index."""
    for name in ("meta.json", ".managed.json"):
        with suppress(OSError):  # of someone else, or just replaced: who writes next does it
            (folder / name).chmod(folder.stat().st_mode & 0o666)


def _abandon(writer: tantivy.IndexWriter) -> None:
    """Lets the lock go now: a writer that a traceback still refers to would keep it."""
    for step in (writer.rollback, writer.wait_merging_threads):
        with suppress(Exception):
            step()
