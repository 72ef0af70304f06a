"""From the log to a projector, a batch at a time: how much is read at once, and in what kind of snapshot.

Left to others: which projector goes how far, and under which lock (`follow`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, islice, takewhile

from memlog.codec import Entry
from memlog.errors import DamagedLog
from memlog.log import Log
from memlog.projects.project import Project
from memlog.state import State
from projections.analytics.projector import AnalyticsProjector
from projections.documents import WORDED_ONLY, Born, Change, changes
from projections.protocol import Batch, DocumentProjector

TAKEN_ENTRIES = 10_000
"""Changes are read of so many entries at a time, each lot in a snapshot of its own that ends before the next."""

TAKEN_CHARACTERS = 16 * 1024**2
"""No entry more is read of a lot whose documents have so many: a short one may give another name to all facts of an
entity."""

CHANGE_CHARACTERS = 500
"""As so many a change counts, beside its text."""

TEXTS_MAX = 10_000
"""As many vectors are 15 MB or more; the passages of as many entries may be a hundred times that."""

AnyProjector = DocumentProjector | AnalyticsProjector


def advance(
    project: Project,
    projector: AnyProjector,
    until: int,
    taken: Callable[[int], object] = lambda position: None,
) -> None:
    """One batch further, no further than `until`, nor than the log is whole. Raises DamagedLog where it is
    not even that far. `taken` is told how far the log was read.

    A function, for whoever keeps it must not keep the projections: they would be let go of, with all
    their files, only when Python looks for circles.
    """
    after = projector.position
    if after >= until:
        return
    try:
        _advance_to(project, projector, until, taken)
    except DamagedLog as damage:
        if not after < damage.whole < until:
            raise
        _advance_to(project, projector, damage.whole, taken)


def _advance_to(
    project: Project, projector: AnyProjector, until: int, taken: Callable[[int], object]
) -> None:
    after = projector.position
    with project.snapshot() as (log, state_at):
        position = _batch_end(log, after, until, projector)
        if isinstance(projector, AnalyticsProjector):
            projector.apply(log, state_at, position)
            return
    # In snapshots that are over: a log whose file must grow waits for those that are read, and an embedder
    # may take its time.
    between = partial(changes_between, project, after, position, taken)
    projector.apply(Batch(position, _Read(between)))


class _Read:
    """Changes that are read each time somebody goes through them."""

    def __init__(self, read: Callable[[], Iterator[Change]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Change]:
        return self._read()


def changes_between(
    project: Project, after: int, last: int, taken: Callable[[int], object] = lambda position: None
) -> Iterator[Change]:
    """What the entries beyond `after` up to `last` change."""
    for position, found in lots(project, after, last):
        yield from found
        taken(position)


def lots(project: Project, after: int, last: int) -> Iterator[tuple[int, list[Change]]]:
    """The same, lot by lot, each with the position of its last entry."""
    while after < last:
        with project.snapshot() as (log, state_at):
            entries = islice(log.read(after), min(TAKEN_ENTRIES, last - after))
            after, found = _lot(entries, state_at)
        yield after, found


def _lot(entries: Iterable[Entry], state_at: Callable[[int], State]) -> tuple[int, list[Change]]:
    """What the first entries change, and the position of the last of these."""
    found: list[Change] = []
    room, position = TAKEN_CHARACTERS, 0

    def while_there_is_room() -> Iterator[Entry]:
        nonlocal position
        for entry in entries:
            position = entry.position
            yield entry
            if room < 0:
                return

    for change in changes(while_there_is_room(), state_at):
        found.append(change)
        room -= CHANGE_CHARACTERS
        if isinstance(change, Born):
            room -= len(change.document.text)
    return position, found


def texts(project: Project) -> Iterator[list[str]]:
    """Every text that ever was to be embedded, in the order of the log, `TEXTS_MAX` at a time at most."""
    for _, found in lots(project, 0, project.head()):
        born = (each.document for each in found if isinstance(each, Born))
        embedded = (each for each in born if each.kind not in WORDED_ONLY)
        every = (passage for document in embedded for passage in document.passages)
        while some := list(islice(every, TEXTS_MAX)):
            yield some


def _batch_end(log: Log, after: int, until: int, projector: AnyProjector) -> int:
    """Where a batch that begins beyond `after` ends: before `until`, where the entries are many or large."""
    last = min(after + projector.batch_entries, until)
    taken = accumulate(islice(log.lengths(after), last - after))
    fitting = len(list(takewhile(projector.batch_bytes.__gt__, taken)))
    return min(after + fitting + 1, last)
