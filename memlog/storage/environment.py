"""One LMDB file: transactions that stay in one thread, and a map that grows when it must.

Promises: a write is on disk when `write` returns; a write that meets a full map is run again in a
larger one; a map grown by another process is adopted; readers never wait for writers. Leaves to its
callers what is stored. Changing the size of the map while a transaction of this process is open is
forbidden by LMDB, hence the gate.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar
from weakref import finalize

import lmdb

from memlog.errors import Closed, StorageError
from memlog.patience import require_patience, require_time
from memlog.storage import everywhere, semaphores
from memlog.storage.disk import stands, sync_folder
from memlog.storage.errors import DAMAGES, storage_error
from memlog.storage.files import (
    identity_of,
    lock_file,
    make_room_for_lock,
    opened_alone,
    remove,
)
from memlog.storage.gates import Gate, Turn
from memlog.storage.proving import (
    newest_commit,
    require_metas,
    require_own_lock,
    require_sound,
    require_uncut,
)
from memlog.storage.resident import give_back_mapped
from memlog.storage.structure import Sealing, Stamp, stamp

log = logging.getLogger("memlog.environment")

Result = TypeVar("Result")

Alone = Callable[[], AbstractContextManager[object]]
"""Within what it gives nobody else opens or replaces the file."""

MAP_BYTES_START = 1024**3
"""Of addresses, not of disk or memory. So few files grow out of their map: to grow it waits for who reads in this
process, in the background of a busy machine for long, others wait behind it, and what was written is written again."""
SWEEP_BYTES = 16 * 1024 * 1024
"""Each time the file has grown by so much, the places of readers that died are looked for."""
GROWTH_STEP_BYTES_MAX = 4 * 1024**3

REWRITING = ".rewriting"
"""Added to the name of a file: the folder, beside it, in which another is made to take its place."""


class _Replaced(Exception):
    """The file that is open stands nowhere any more, or was let go of."""


class Environment:
    """An LMDB file with named databases. One per path and process: LMDB's locks demand it.

    With `proven` a file that somebody else may have written to is looked through before LMDB may read it. With
    `following`, as `derived` files, the next call opens what stands at the path by then, and begins it anew where that
    is nothing or damaged: within what `following` gives, as the file is replaced.
    """

    def __init__(
        self,
        path: Path,
        databases: tuple[str, ...],
        *,
        map_bytes: int = MAP_BYTES_START,
        proven: bool = False,
        following: Alone | None = None,
        within: Path | None = None,
    ) -> None:
        self._known = Sealing(path)
        self.damaged = False
        """Whether it was found so since it was opened: nothing is read through it any more."""
        self._closed = False
        self._following: Alone | None = None  # until it is open
        self._within = within
        self._stuck = False
        """Whether the file has to be opened again: it was replaced, its map could not be made larger, or LMDB refuses
        all transactions, because it could not write where the newest commit ends."""
        self._writer = threading.Lock()
        self._writers: semaphores.Writers | None = None
        """LMDB's own lock, where it is one that stays taken when its holder dies."""
        self._gate = Gate()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if proven:
                require_metas(path)
            make_room_for_lock(path)
            self._env = opened_alone(path, map_bytes, len(databases))
        except (lmdb.Error, OSError) as error:
            raise storage_error(path, error, within=within) from error
        try:
            self._turn = Turn(path)
            self.identity = identity_of(path)
            """Of the file that is open here, whatever stands at its path by now."""
            if proven:
                self._known.ours = stamp(self._turn.stat())
                require_sound(path, self._env, self._turn)
                self._retrying(self._require_own_lock)
            require_uncut(path, self._env, self._turn)
            self._bytes = self._swept_at_bytes = self._turn.stat().st_size
            self._env.reader_check()
            self.databases = {name: self._open(name) for name in databases}
            self._following = following
        except BaseException as error:  # an interrupt, too
            self._close_file()  # a process opens a file once: the next try needs it closed
            with suppress(AttributeError):  # where there is none yet
                self._turn.close()  # NFS removes no file that is open, but hides it, and the folder stays
            if isinstance(error, (lmdb.Error, OSError)):
                raise storage_error(path, error, within=within) from error
            raise
        finalize(self, self._known.leave).atexit = False  # whoever is let go is not always closed
        everywhere.note(self)

    @property
    def path(self) -> Path:
        """Where the file is, as far as is known; whoever moves it says so."""
        return self._known.path

    @path.setter
    def path(self, path: Path) -> None:
        self._known.path = path

    @property
    def bytes(self) -> int:
        """How large the file was when it was last read or written."""
        return self._bytes

    def _require_open(self) -> None:
        """Inside the gate, before anything is asked of the file: by then its number may be that of another one."""
        if self._closed:
            raise Closed(self.path.name)
        if self._stuck:
            raise _Replaced

    def _require_length(self) -> os.stat_result:
        """A file never gets shorter; LMDB would go on as if it were there, and end the process."""
        known = self._bytes  # first: another thread may see it grow meanwhile
        found = self._turn.stat()
        if self._following is not None and not self._stands(found):
            raise _Replaced
        if self.damaged or found.st_size < known:
            self._is_damaged()
            raise lmdb.CorruptedError("it was cut or damaged while it was in use")
        self._bytes = found.st_size
        return found

    def _stands(self, found: os.stat_result) -> bool:
        """Whether this is the file at the path: the one that is open may have been removed, or moved away."""
        try:
            return os.path.samestat(found, os.stat(self.path))
        except OSError:  # what it is says whoever opens it again
            return False

    def _open(self, name: str) -> lmdb._Database:
        def attempt() -> lmdb._Database:
            with self._turn:  # in a new file this writes
                self._release_of_dead()
                ours = self._known.ours == stamp(self._turn.stat())
                opened = self._env.open_db(name.encode())
                self._known.ours = stamp(self._turn.stat()) if ours else None
                return opened

        return self._retrying(attempt)

    def read(self) -> Snapshot:
        """A snapshot; leave it in the thread that entered it, and soon. Raises StorageError."""
        return Snapshot(self)

    def begin_reading(self) -> lmdb.Transaction:
        """What `end_reading` must be told of."""
        require_time()
        try:
            return self._retrying(self._begun)
        except lmdb.Error as error:
            raise self.told(error) from error

    def end_reading(self, transaction: lmdb.Transaction) -> None:
        transaction.abort()
        self._gate.leave()

    def _begun(self) -> lmdb.Transaction:
        self._gate.enter()
        try:
            self._require_open()
            self._require_length()
            try:
                return self._env.begin()
            except lmdb.ReadersFullError:
                gc.collect()  # a transaction that nobody knows any more has a place, too
                self._env.reader_check()
                return self._env.begin()
        except BaseException:
            self._gate.leave()
            raise

    def write(self, body: Callable[[lmdb.Transaction], Result]) -> Result:
        """Runs `body` in the one write transaction and commits it to disk.

        `body` may run more than once (the map was full); it must have no effect but through the
        transaction. Whatever it raises aborts the transaction.
        """
        with self._writer:
            return self._written(body)

    def _written(self, body: Callable[[lmdb.Transaction], Result]) -> Result:
        try:
            return self._retrying(lambda: self._write_once(body))
        except lmdb.Error as error:
            raise self.told(error) from error

    def told(self, error: lmdb.Error) -> StorageError:
        if isinstance(error, DAMAGES):
            self._is_damaged()
        derived = self._following is not None
        return storage_error(self.path, error, derived=derived, within=self._within)

    def _is_damaged(self) -> None:
        self.damaged, self._known.ours = True, None

    def _write_once(self, body: Callable[[lmdb.Transaction], Result]) -> Result:
        self._gate.enter()
        try:
            self._require_open()
            with self._turn:
                found = self._require_length()
                ours = self._known.ours == stamp(found)
                self._release_of_dead()
                self._sweep(found.st_size)
                with self._env.begin(write=True) as transaction:
                    if not ours:  # else nobody else has written to it since that was looked at
                        require_own_lock(self.path, self._env, transaction, self._turn)
                    result = body(transaction)
                self._known.ours = self._stamped() if ours else None
                return result
        finally:
            self._gate.leave()

    def _require_own_lock(self) -> None:
        with self._turn:
            self._release_of_dead()
            with self._env.begin(write=True) as transaction:
                require_own_lock(self.path, self._env, transaction, self._turn)

    def _release_of_dead(self) -> None:
        """Inside a turn, before LMDB is asked for its own lock."""
        if not semaphores.USED:
            return
        try:
            self._writers = self._writers or semaphores.Writers(self.path)
            self._writers.release_of_dead(lambda: newest_commit(self._env, self._turn))
        except OSError as error:
            raise storage_error(self.path, error, within=self._within) from error

    def _close_file(self) -> None:
        self._env.close()
        if self._writers is not None:  # not before, see there
            self._writers.close()
            self._writers = None

    def _stamped(self) -> Stamp | None:
        """None where the system does not say: what was committed is not refused for that, only looked through again."""
        try:
            return stamp(self._turn.stat())
        except StorageError:
            return None

    def _sweep(self, bytes_now: int) -> None:
        """Who died while reading keeps old pages from reuse."""
        if bytes_now > self._swept_at_bytes + SWEEP_BYTES:
            self._env.reader_check()
            self._swept_at_bytes = bytes_now

    def _retrying(self, attempt: Callable[[], Result]) -> Result:
        begun_anew = False
        while True:
            if self._stuck:
                self._open_again()
            identity = self.identity
            try:
                return attempt()
            except _Replaced:
                self._stuck = True
            except DAMAGES:
                if self._following is None or begun_anew:
                    raise
                begun_anew = True
                if identity == self.identity:  # else another thread was here first
                    self._is_damaged()
                    self._stuck = True
            except lmdb.PanicError:
                if not stands(self.path) or self.was_replaced():
                    raise
                self._stuck = True
            except lmdb.MapResizedError:
                # A file that is none says any size: opened again, it is told what it is.
                with suppress(lmdb.Error):
                    self._resize(0)
            except lmdb.MapFullError:
                if self._env.reader_check():  # who died while reading kept old pages from reuse
                    continue
                size = self._env.info()["map_size"]
                self._resize(size + min(size, GROWTH_STEP_BYTES_MAX))

    def _resize(self, map_bytes: int) -> None:
        with self._gate.closed():
            try:
                self._env.set_mapsize(map_bytes)
            except lmdb.Error:
                self._stuck = True  # LMDB has closed it
                raise

    def _alone(self) -> AbstractContextManager[object]:
        """Held while the file is replaced, or opened because it was."""
        return (self._following or nullcontext)()

    def _open_again(self) -> None:
        """The file that stands there now. Of the same, LMDB goes on from the commit before once it is opened anew."""
        require_patience()
        try:
            with self._alone(), self._gate.closed():
                if self._stuck and not self._closed:  # else another thread was here first
                    self._open_or_begin_anew()
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _open_or_begin_anew(self) -> None:
        if self._following is None:
            self._open_what_stands_there()
            return
        try:
            if not self.damaged or self.was_replaced():
                self._open_what_stands_there()
                return
        except DAMAGES:
            pass
        log.warning("%s is damaged and begun anew", self.path)
        remove(self.path)
        self._open_what_stands_there()

    def _open_what_stands_there(self) -> None:
        self._close_file()
        make_room_for_lock(self.path)
        self._env = opened_alone(self.path, MAP_BYTES_START, len(self.databases))
        turn, identity = Turn(self.path), identity_of(self.path)
        require_uncut(self.path, self._env, turn)
        self._turn.close()
        self._turn = turn
        with self._turn:
            self._release_of_dead()
            self.databases = {name: self._env.open_db(name.encode()) for name in self.databases}
        self._bytes = self._swept_at_bytes = self._turn.stat().st_size
        self.damaged &= identity == self.identity
        self._known.ours, self.identity = None, identity
        self._stuck = False

    def let_go(self) -> None:
        """Closes the file where another took its place: it is on the disk for as long as it is open. Whoever needs it
        next opens the other. One that is not followed is left to whoever has it open."""
        if self._following is None or not self.was_replaced():
            return
        with self._gate.closed():
            if not self._closed:
                self._stuck = True
                self._close_file()
                self._turn.close()

    def rewrite(self, fill: Callable[[lmdb.Transaction, Path], None]) -> None:
        """Puts a new file in the place of this one, so that nothing of what was removed is left in a page.

        `fill` makes the new file at the path it is given, from what it reads in the transaction. Nobody
        writes meanwhile; a crash leaves one file or the other. LMDB's own compacting copy would
        not do: it copies pages whole, with what was deleted in them.

        Whoever has the file open, as this object has, keeps the old one: each writer must look in its
        transaction whether the file `was_replaced`, and whoever opens it must not do so meanwhile, for
        the lock file that says which pages are current is replaced just before.
        """
        folder = self.path.with_name(f"{self.path.name}{REWRITING}")
        fresh = folder / self.path.name

        def body(transaction: lmdb.Transaction) -> None:
            shutil.rmtree(folder, ignore_errors=True)
            try:
                fill(transaction, fresh)
                lock_file(self.path).unlink(missing_ok=True)
                fresh.replace(self.path)
                sync_folder(self.path.parent)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        # In this order: who writes may have to follow another file.
        with self._writer, self._alone():
            self._written(body)

    def is_away(self) -> bool:
        """Whether no file stands where this one was. Raises StorageError where the system does not tell."""
        try:
            return not stands(self.path)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def was_replaced(self) -> bool:
        """Whether another file stands where this one was. Raises StorageError."""
        try:
            return identity_of(self.path) != self.identity
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error(self.path, error) from error

    def is_unlinked(self) -> bool:
        """Whether the file that is open stands nowhere any more, by whatever name."""
        if not self._gate.try_enter():  # so that it stays open meanwhile
            return False
        try:
            return not (self._closed or self._stuck) and not self._turn.stat().st_nlink
        finally:
            self._gate.leave()

    def give_back(self) -> None:
        """Lets go of the pages that were read; who reads them again gets them from the system's cache."""
        if not self._gate.try_enter():  # so that the file stays mapped where it is
            return
        try:
            if not (self._closed or self._stuck):
                give_back_mapped(self._turn.stat())
        finally:
            self._gate.leave()

    def close(self) -> None:
        with self._gate.closed(for_good=True):
            self._closed = True
            self._close_file()
            self._known.leave()
            self._turn.close()


class Snapshot:
    """`Environment.read`, as an object: a generator takes longer than to begin and to end."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __enter__(self) -> lmdb.Transaction:
        self._transaction = self._environment.begin_reading()
        return self._transaction

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._environment.end_reading(self._transaction)
        if isinstance(error, lmdb.Error):
            raise self._environment.told(error) from error
