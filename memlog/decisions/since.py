"""Which commands an undo of all since a position means: of all that was done, or of one thread or actor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from memlog.codec import Entry
from memlog.commands import Undo
from memlog.decisions.depending import Stretch
from memlog.decisions.restoring import told_apart
from memlog.decisions.undos import Undos, is_meant
from memlog.events import Erased
from memlog.rows import PROJECT_KEY
from memlog.state import State


class _Meant(NamedTuple):
    """What is undone at once, and of an undo what it took back."""

    position: int
    at_once: tuple[int, int]
    took_back: tuple[int, int] | None


class Since:
    """What `command` means of what was done after a position."""

    def __init__(self, since: int, command: Undo, undos: Undos) -> None:
        self._since = since = _end_of_begun(since, undos)
        self._of_all = command.thread is None and command.actor is None
        self._meant = list(_meant(since, command, undos))
        self._at_once = {each.at_once for each in self._meant}
        self._undos = {each.position for each in self._meant if each.took_back}

    def left(self, state: State) -> list[int]:
        """The positions of what is to be undone, if it is not undone already; the oldest first."""
        return self._behind_the_last_return(state) if self._of_all else self._without_own_undos()

    def _behind_the_last_return(self, state: State) -> list[int]:
        """Behind the last position at which all was as it was at `since`: so an undo that is made again has nothing to
        do. Little but an undo leads back. That the project is there since counts for nothing: no undo ends it."""
        if not self._undos:
            return [each.position for each in self._meant]
        before, changed, position = state.at(self._since), set[bytes](), self._since
        left: list[int] = []
        for each in self._meant:
            left.append(each.position)
            while position < each.at_once[1]:
                position += 1
                after = state.at(position)
                for key in state.touched(position):
                    if key == PROJECT_KEY:
                        continue
                    differs = told_apart(key, before.row(key), after.row(key))
                    (changed.add if differs else changed.discard)(key)
            if not changed:
                left.clear()
        return left

    def _without_own_undos(self) -> list[int]:
        """All but undos of what is meant itself, where only some of what happened is: what they took back is to be
        gone, and need not come back beside what others wrote since."""
        return [each.position for each in self._meant if each.took_back not in self._at_once]

    def stays_undone(self, undo: Entry, undos: Undos) -> bool:
        """Whether an undo took back what somebody built on what is meant, which is gone: it could not stand alone."""
        took_back = undos.span(undo.position)
        if self._of_all or took_back is None or took_back[0] <= self._since:
            return False
        stretch = Stretch(undo.position, undo.position, undos.later)
        standing = stretch.blockers() or stretch.at_odds() or stretch.loose_ends()
        return bool(standing) and all(
            each in self._undos or undos.span(each) in self._at_once for each in standing
        )


def _end_of_begun(since: int, undos: Undos) -> int:
    """Where the command ends that was begun before and is under way at `since`, which is not undone: else `since`."""
    entry = undos.context.entry_at(since + 1)
    first, last = (since + 1, since) if entry is None else undos.at_once(entry)
    return last if first <= since else since


def _meant(since: int, command: Undo, undos: Undos) -> Iterator[_Meant]:
    """The oldest first; not what was begun before."""
    context = undos.context
    for position in range(since + 1, context.head() + 1):
        entry = context.entry_at(position)
        if entry is None or isinstance(entry.event, Erased) or not is_meant(entry, command):
            continue
        at_once = undos.at_once(entry)
        if at_once[0] == position:  # else it is told already, or begun before `since`
            yield _Meant(position, at_once, undos.span(position))
