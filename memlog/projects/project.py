"""One project: its log, its state tables and its receipts, in one LMDB file that changes as one.

`execute` is the way of every write: one transaction in which the receipt is looked up, the command
decided, each event appended and evolved, the answer computed; on disk when it returns. `read` is the
way of every exact read, of the present or of any past position. Leaves to the projections whatever
is searched, and to the catalogue which projects there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lmdb
import msgspec

from memlog.codec import Entry
from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.decider import decide, require_active
from memlog.errors import (
    DamagedLog,
    InvalidParameter,
    LogReplaced,
    StorageError,
)
from memlog.events import Event
from memlog.evolve import evolve
from memlog.ids import ids_in_log, new_id
from memlog.log import Checked, Damage, Head, Log
from memlog.projects import deletions
from memlog.projects.contents import DATABASES, Contents
from memlog.projects.erasing import write_without
from memlog.projects.rebuilding import digest, digest_rebuilt, evolve_all
from memlog.repair.soundness import Soundness
from memlog.rows import Project as ProjectRow
from memlog.state import State
from memlog.storage.drafts import Draft, draft
from memlog.storage.environment import MAP_BYTES_START, Environment
from memlog.storage.files import FileIdentity
from memlog.storage.tables import Timeline

LOG_FILE = "log.mdb"

Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=Event)


class Origin(msgspec.Struct, frozen=True):
    """Who asks: recorded on every event. A command id that the client chose makes a retry safe."""

    command_id: str | None = None
    thread: str | None = None
    actor: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What a command did, seen from inside its transaction: the state on both sides of it."""

    entries: Sequence[Entry]
    before: State
    after: State

    def events(self, kind: type[Kind]) -> Iterator[Kind]:
        """What was appended of a kind, in order."""
        return (entry.event for entry in self.entries if isinstance(entry.event, kind))


def clock_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1_000


class Project:
    """A project's file, opened. Every method may be called from any thread."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], int] = clock_us,
        map_bytes: int = MAP_BYTES_START,
        damage: DamagedLog | None = None,
    ) -> None:
        self._clock = clock
        self._checked = Checked()
        self._environment = Environment(
            folder / LOG_FILE, DATABASES, map_bytes=map_bytes, proven=True
        )
        self._soundness = Soundness(self._environment, damage)
        self._folder = folder
        try:
            with self._snapshot() as contents:
                self.generation = contents.meta().generation
                """How often something was erased from the log, or lost with its end: what was derived from an
                earlier one is void."""
                contents.meta().require_no_newer()
                evolved = contents.meta().is_evolved
            if not evolved:
                self.rebuild()
        except BaseException:
            self._environment.close()
            raise

    @property
    def folder(self) -> Path:
        """Where the file is; archiving moves it."""
        return self._folder

    @folder.setter
    def folder(self, folder: Path) -> None:
        self._folder = folder
        self._environment.path = folder / LOG_FILE

    # -- writing

    def execute(
        self,
        command: AnyCommand,
        context: Context,
        answer: Callable[[Outcome], Answer],
        origin: Origin = Origin(),
    ) -> Answer:
        """Makes `command` true and returns what `answer` says of it; on disk when it returns.

        Raises the MemlogError with which it was refused; then nothing was written. A command id that
        was used before gives the stored answer again (plain data), or Conflict if the command
        differs, or if something was erased since.
        """

        def body(transaction: lmdb.Transaction) -> Answer:
            contents = self._contents(transaction)
            self._require_present(contents)
            if origin.command_id:
                receipt = contents.receipts().find(origin.command_id, command)
                if receipt is not None:
                    return receipt.answer  # type: ignore[no-any-return]
            self._soundness.require()
            timeline, log = contents.timeline(), contents.log()
            try:
                ahead, entries = self._append(log, timeline, command, context, origin)
            except DamagedLog as met:
                raise self._soundness.noted(transaction, met) from met
            after = State(timeline, ahead + len(entries), log.entry)
            before = State(timeline.at(ahead), ahead, log.entry) if entries else after
            result = answer(Outcome(entries, before, after))
            if origin.command_id:
                contents.receipts().keep(origin.command_id, command, result)
            return result

        with _rows_told():
            return self._environment.write(body)

    def rehearse(
        self, command: AnyCommand, context: Context, answer: Callable[[Outcome], Answer]
    ) -> Answer:
        """What `execute` would answer, with nothing written."""

        def perform(outcome: Outcome) -> None:
            raise _Rehearsed(answer(outcome))

        try:
            self.execute(command, context, perform)
        except _Rehearsed as rehearsed:
            return rehearsed.answer  # type: ignore[no-any-return]
        raise AssertionError("a rehearsal always ends in its own exception")

    def _append(
        self,
        log: Log,
        timeline: Timeline,
        command: AnyCommand,
        context: Context,
        origin: Origin,
    ) -> tuple[int, list[Entry]]:
        """The position that the command met, and the entries behind it."""
        ahead = head = log.head()
        command_id = origin.command_id or new_id("cmd")
        now, ids = max(self._clock(), head.time_us), context.new_id
        if head.position:  # the first id is the project's own, which is that of its folder
            ids = ids_in_log(ids, now, head.position)
        context = msgspec.structs.replace(
            context, new_id=ids, entry_at=log.entry, head=log.position
        )
        entries = []
        for event in decide(command, State(timeline), context):
            entry = log.append(head, now, command_id, origin.thread, origin.actor, event)
            evolve(timeline, entry)
            entries.append(entry)
            head = Head(entry.position, entry.time_us, entry.chain)
        self._checked.head = head
        return ahead.position, entries

    # -- reading

    @contextmanager
    def read(self, at: int | None = None) -> Iterator[State]:
        """The state now, or as it stood after position `at`, in one snapshot.

        Raises ProjectArchived or ProjectNotFound where the project may not be read, and
        InvalidParameter for a position that is not there yet.
        """
        with self._snapshot() as contents:
            self._require_present(contents)
            timeline, log = contents.timeline(), contents.log()
            require_active(State(timeline).project())
            head, entry_at = log.position(), self._noting(log, contents.transaction)
            if at is None or at == head:
                yield State(timeline, head, entry_at)
            elif 0 <= at <= head:
                yield State(timeline.at(at), at, entry_at)
            else:
                raise InvalidParameter(
                    f"Position {at} is not in the log, which ends at {head}",
                    suggestion=f"Pass a position from 0 to {head}, or a time.",
                )

    def position_at(self, time_us: int) -> int:
        """The last position at or before a time (microseconds); 0 before the project began."""
        with self._snapshot() as contents:
            return contents.log().position_at(time_us)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Log, Callable[[int], State]]]:
        """The log and the state as of any position, in one snapshot, whatever the status."""
        with self._snapshot() as contents:
            self._require_present(contents)
            timeline, log = contents.timeline(), contents.log()
            entry_at = self._noting(log, contents.transaction)
            yield log, lambda position: State(timeline.at(position), position, entry_at)

    @contextmanager
    def stored(self) -> Iterator[tuple[Log, Iterator[tuple[bytes, bytes]]]]:
        """The log and the receipts as they are stored, in one snapshot, for those who copy them."""
        with self._snapshot() as contents:
            self._require_current()
            yield contents.log(), contents.rows("receipts").scan(b"")

    def status(self) -> ProjectRow | None:
        """The project's own row, also of an archived one; None where it was removed or never made."""
        with self._snapshot() as contents:
            return None if contents.meta().is_removed else contents.project()

    def deletion(self) -> bytes | None:
        """The receipt of its removal, where it was removed under an id that the client chose."""
        with self._snapshot() as contents:
            return contents.meta().deletion

    def head(self) -> int:
        with self._snapshot() as contents:
            return contents.log().position()

    @property
    def identity(self) -> FileIdentity:
        """Which file this is: a log that takes its place has another one, whatever its length."""
        return self._environment.identity

    @property
    def is_bare(self) -> bool:
        """Whether it holds its own creation and nothing else."""
        with self._snapshot() as contents:
            return self.damage is None and _is_bare(contents.log())

    def verify(self) -> Iterator[int | Damage]:
        with self._snapshot() as contents:
            yield from contents.log().verify()

    @property
    def damage(self) -> DamagedLog | None:
        """That the log is damaged, as somebody found out: it is read as far as it goes, and written to no
        more, for what came after would be lost with it when it is brought back from a backup."""
        return self._soundness.damage

    @property
    def unreadable(self) -> bool:
        """Whether the file was found damaged so that LMDB must not read it any more."""
        return self._environment.damaged

    @contextmanager
    def _snapshot(self) -> Iterator[Contents]:
        with self._environment.read() as transaction, _rows_told():
            try:
                yield self._contents(transaction)
            except DamagedLog as met:
                raise self._soundness.noted(transaction, met) from met

    def _noting(self, log: Log, transaction: lmdb.Transaction) -> Callable[[int], Entry | None]:
        """The entries of the log. A damage that is met is noted, also where the reader goes on without the entry."""

        def entry_at(position: int) -> Entry | None:
            try:
                return log.entry(position)
            except DamagedLog as met:
                raise self._soundness.noted(transaction, met) from met

        return entry_at

    # -- rebuilding

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Evolves the state tables anew from the log, in one transaction."""

        def body(transaction: lmdb.Transaction) -> None:
            contents = self._contents(transaction)
            contents.meta().require_no_newer()
            for name in ("now", "past"):
                transaction.drop(self._environment.databases[name], delete=False)
            try:
                evolve_all(contents.log(), contents.timeline(), progress)
            except DamagedLog as met:
                raise self._soundness.noted(transaction, met) from met
            contents.meta().note_evolved()

        self._environment.write(body)

    def digest(self) -> str:
        """SHA-256 over every row of the present state tables."""
        with self._snapshot() as contents:
            return digest(contents.timeline())

    def is_as_rebuilt(self, progress: Callable[[int, int], None] | None = None) -> bool:
        """Whether the state is what the log alone gives, in one snapshot: others may write meanwhile."""
        with self._snapshot() as contents:
            return digest(contents.timeline()) == digest_rebuilt(contents.log(), progress)

    # -- erasing

    def draft(self) -> AbstractContextManager[Draft]:
        """Where a state can be made of a part of the log. It takes less than the file, which has the log, too."""
        return draft(self._folder, MAP_BYTES_START + 2 * self._environment.bytes)

    def erase(self, chosen: Callable[[Log, State], Collection[int]]) -> None:
        """Writes the file anew without the content of the entries at the positions that are `chosen`.

        `chosen` sees the log and its present state while nobody can write. Positions, times and the
        chain stay; the state is evolved anew; all that is kept of receipts is which command ids were used.
        Raises StorageError, with nothing changed, where the new log is not whole. From now on this object
        reads the old file and refuses to write to it: open the project again.
        """

        def without_chosen(transaction: lmdb.Transaction, path: Path) -> None:
            contents = self._contents(transaction)
            self._require_present(contents)
            log = contents.log()
            positions = chosen(log, State(contents.timeline(), log.position()))
            write_without(positions, contents, path, self._clock())

        self._environment.rewrite(without_chosen)

    @property
    def moved(self) -> bool:
        """Whether another process took the file to another folder, or removed it. Raises StorageError: one that is open
        is not to be opened again, nor taken for damaged, because the system does not tell."""
        return self._environment.is_away()

    @property
    def replaced(self) -> bool:
        """Whether another file took the place of this one, because something was erased."""
        return self._environment.was_replaced()

    @property
    def gone(self) -> bool:
        """Whether the file was removed for good, or another took its place: what was in it is on the disk for as long
        as somebody has it open."""
        if self.replaced or self._environment.is_unlinked():  # and its successor moved, or removed
            return True
        return self.moved and self.status() is None

    def _require_current(self) -> None:
        if self.replaced:
            raise LogReplaced

    # -- the end

    def remove(self, command_id: str | None = None, *, only_bare: bool = False) -> bool:
        """Marks the file as gone, so that no process that still has it open writes into a ghost; of `only_bare`, unless
        it holds more than its creation. Whether it did.

        Raises Conflict where the command id was used for something else in it.
        """

        def body(transaction: lmdb.Transaction) -> bool:
            contents, receipt = self._contents(transaction), None
            if only_bare and not _is_bare(contents.log()):
                return False
            if command_id:
                contents.receipts().require_unused(command_id)
                with _rows_told():
                    row = contents.project()
                if row is not None:
                    receipt = deletions.receipt(command_id, row)
            contents.meta().remove(receipt)
            return True

        return self._environment.write(body)

    def close(self) -> None:
        self._environment.close()

    # -- inside a transaction

    def _contents(self, transaction: lmdb.Transaction) -> Contents:
        return Contents(transaction, self._environment.databases, self._checked)

    def _require_present(self, contents: Contents) -> None:
        contents.meta().require_present()
        self._require_current()


@contextmanager
def _rows_told() -> Iterator[None]:
    """Around what reads rows of the state: one that is no row is a StorageError."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"A row of this project's state cannot be read: {error}",
            suggestion="`memlog replay --only state` builds the state anew from a log that is whole. `memlog verify` "
            "says whether it is; `memlog repair PROJECT` goes on with what is whole of one that is not.",
        ) from error


def _is_bare(log: Log) -> bool:
    return log.position() <= 1


class _Rehearsed(Exception):
    """Carries the answer of a rehearsal out of the transaction, and so takes the transaction back."""

    def __init__(self, answer: Any) -> None:
        super().__init__("rehearsed")
        self.answer = answer
