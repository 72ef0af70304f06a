"""What changed in a project between two looks at its log, told by the resources that it concerns.

Read off the log: the entries since the last look say which rows they touched. Who looks, when, and who is told is left
to `subscriptions`.
"""

from __future__ import annotations

import msgspec

from memlog.errors import MemlogError
from memlog.state import State
from memlog.storage.files import FileIdentity
from server.addresses import Address, GraphAddress, ItemAddress
from server.session import Session

ENTRIES_READ_MAX = 10_000
"""Where more was written since the last look, everything counts as changed."""

_GRAPH_ROWS = (b"E", b"O", b"R")
_MEMORY_ROW = b"M"

Asked = str | None
"""A project as a URI names it; None is the active one."""


class Head(msgspec.Struct, frozen=True):
    """Which log a name means and where it ends; neither where it cannot be read."""

    project_id: str = ""
    file: FileIdentity | None = None
    """A restore, a repair or a purge puts another one in its place, which may end at the same position."""
    position: int = 0

    def goes_on_from(self, before: Head) -> bool:
        return (self.project_id, self.file) == (before.project_id, before.file)


class Changes(msgspec.Struct):
    """What happened to one project between two looks."""

    everything: bool = False
    graph: bool = False
    memories: set[str] = msgspec.field(default_factory=set)
    """The ids of those that were touched."""
    labelled: dict[str, set[frozenset[str]]] = msgspec.field(default_factory=dict)
    """By each label of such a memory, all labels that it has or had. Somebody may listen to a thousand lists while
    thousands of memories are written: they are not compared each with each."""

    def touch(self, memory_id: str, labels: frozenset[str]) -> None:
        self.memories.add(memory_id)
        for label in labels:
            self.labelled.setdefault(label, set()).add(labels)

    def concern(self, address: Address) -> bool:
        if self.everything:
            return True
        match address:
            case GraphAddress():
                return self.graph
            case ItemAddress():
                return address.id in self.memories
            case _:
                return self._lists(address.labels)

    def _lists(self, labels: frozenset[str]) -> bool:
        """Whether a memory that was touched is or was on the list of those with these labels."""
        if not labels:
            return bool(self.memories)
        rarest = min((self.labelled.get(label, set()) for label in labels), key=len)
        return any(labels <= each for each in rarest)


def head_of(asked: Asked, session: Session) -> Head:
    try:
        project = session.existing(asked)
        return Head(project.folder.name, project.identity, project.head())
    except MemlogError:
        return Head()


def changes_between(before: Head, head: Head, asked: Asked, session: Session) -> Changes:
    """What happened between two heads of a project, which are not the same."""
    entries = head.position - before.position
    if not head.goes_on_from(before) or not 0 < entries <= ENTRIES_READ_MAX:
        return Changes(everything=True)
    try:
        with session.existing(asked).read() as state:
            return _touched(state, before.position, head.position)
    except MemlogError:  # it was archived or deleted a moment ago
        return Changes(everything=True)


def _touched(state: State, after: int, last: int) -> Changes:
    changes, before = Changes(), state.at(after)
    for position in range(after + 1, last + 1):
        for key in state.touched(position):
            table = key[:1]
            changes.graph = changes.graph or table in _GRAPH_ROWS
            if table == _MEMORY_ROW:
                memory_id = key[1:].decode()
                rows = before.memory(memory_id), state.memory(memory_id)
                labels = (label for row in rows if row is not None for label in row.labels)
                changes.touch(memory_id, frozenset(labels))
    return changes
