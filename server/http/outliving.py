"""Sessions that outlive their server: what is needed to go on with one, a row for each in `sessions.mdb`.

Few clients open a new session when theirs is gone, as the protocol wants it, so a restart would cost each of them its
connection. What a session was opened with is kept, and what it came to be: its active project, the resources that it
subscribed to. Both are on disk before the client hears of it: what it writes next must not go elsewhere, and it must
not wait for news that never come. All else is written soon, and at the end.

An id is kept as its hash: who reads the file can go on with nobody's session. Rows are those of the address served at,
which only one server can have; several may share the file. Nothing of it is memory: lost, sessions end.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate

import lmdb
import msgspec

from memlog.errors import StorageError
from memlog.patience import require_patience
from memlog.settings import Settings
from memlog.storage.derived import derived
from memlog.storage.environment import Environment
from server.http.connection import Door

OPENING_BYTES_MAX = 4 * 1024
"""A session that was opened with a longer request ends with its server."""
URIS_CHARACTERS_MAX = 64 * 1024
"""Of those that a session subscribed to first so many go on; of any sensible length all."""
USED_PARTS = 24
"""How exactly it is kept when a session was last used: to a part of the time after which an unused one ends. The more
parts, the more is written."""

logger = logging.getLogger("memlog.http.sessions")


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """One session. `door` is the hash of where it was opened, `opening` the request that did; `used_s` is when it was
    last used, in seconds since 1970."""

    door: bytes
    opening: bytes
    used_s: float
    active: str
    uris: tuple[str, ...] = ()


class Outliving:
    """The sessions of the server before that nobody has gone on with yet, and the rows of those of this one, as `found`
    finds them by their ids. Safe among threads, but for `find` and `drop`."""

    def __init__(self, settings: Settings, found: Callable[[], Mapping[str, Kept]]) -> None:
        self._found = found
        self._of_address = f"{settings.http_host} {settings.http_port} ".encode()
        """How the rows of this server begin."""
        self._unused_s = settings.http_session_seconds
        self._most = settings.http_sessions_max
        self._writing = threading.Lock()
        self._environment: Environment | None = None
        self._written: dict[bytes, Kept | None] = {}
        """The rows as they are by now; None for one that cannot be read."""
        # No address is served at again that the system chose.
        if settings.http_port and not settings.http_stateless:
            try:
                self._environment = derived(settings.data_dir / "sessions.mdb", ("sessions",))
                self._written = self._rows(self._environment)
            except StorageError as error:
                logger.warning("sessions end with this server: %s", error.message)
        self._before = {each: kept for each, kept in self._written.items() if kept is not None}

    def find(self, session_id: str, door: Door) -> Kept | None:
        """Of the server before, if it was opened at this door."""
        kept = self._before.get(self._row(session_id))
        return (
            kept if kept is not None and kept.door == of(door) and self._is_timely(kept) else None
        )

    def drop(self, session_id: str) -> None:
        """Somebody goes on with it, or cannot."""
        self._before.pop(self._row(session_id), None)

    def used_s(self, seconds_ago: float) -> float:
        part = self._unused_s / USED_PARTS
        return (time.time() - seconds_ago) // part * part

    def note(self, session_id: str, kept: Kept) -> None:
        """Before its client hears of it. Raises StorageError where the next server would be told something else."""
        require_patience()
        row = self._row(session_id)
        try:
            with self._writing:
                self._put({row: kept})
        except StorageError:
            if self._written.get(row) is not None:
                raise

    def write(self) -> None:
        """Makes the rows say what there is; those of before that there is no room for go."""
        with self._writing:
            now = {self._row(each): kept for each, kept in self._found().items()}
            before = self._before.copy()  # in one step: `drop` may come meanwhile
            timely = [each for each in before.items() if self._is_timely(each[1])]
            timely.sort(key=lambda each: -each[1].used_s)
            now |= timely[: max(0, self._most - len(now))]
            gone = dict.fromkeys(self._written.keys() - now.keys())
            try:
                self._put(gone | dict(now.items() - self._written.items()))
            except StorageError as error:
                logger.warning("sessions cannot be kept now: %s", error.message)

    def close(self) -> None:
        self.write()
        if self._environment is not None:
            self._environment.close()

    def _put(self, rows: Mapping[bytes, Kept | None]) -> None:
        """None takes a row away. Raises StorageError."""
        environment = self._environment
        if environment is None or not rows:
            return

        def body(transaction: lmdb.Transaction) -> None:
            database = environment.databases["sessions"]
            for row, kept in rows.items():
                if kept is None:
                    transaction.delete(row, db=database)
                else:
                    transaction.put(row, msgspec.msgpack.encode(kept), db=database)

        environment.write(body)
        for row, kept in rows.items():
            if kept is None:
                self._written.pop(row, None)
            else:
                self._written[row] = kept

    def _rows(self, environment: Environment) -> dict[bytes, Kept | None]:
        with environment.read() as transaction:
            rows = transaction.cursor(environment.databases["sessions"])
            read = {bytes(row): _read(bytes(kept)) for row, kept in rows}
        return {row: kept for row, kept in read.items() if row.startswith(self._of_address)}

    def _row(self, session_id: str) -> bytes:
        return self._of_address + hashlib.sha256(session_id.encode()).digest()

    def _is_timely(self, kept: Kept) -> bool:
        return kept.used_s > time.time() - self._unused_s


@lru_cache(256)
def of(door: Door) -> bytes:
    """What is kept of a door. Whose rights changed since comes in by another."""
    return hashlib.sha256(msgspec.json.encode(door)).digest()


def fitting(uris: Sequence[str]) -> tuple[str, ...]:
    """As many of them as are kept."""
    lengths = accumulate(map(len, uris))
    return tuple(
        each for each, so_far in zip(uris, lengths, strict=True) if so_far <= URIS_CHARACTERS_MAX
    )


def _read(row: bytes) -> Kept | None:
    try:
        return msgspec.msgpack.decode(row, type=Kept)
    except ValueError:  # no such row, or no text in it
        return None
