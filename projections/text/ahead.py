"""What was written since the last commit of the text index, found without another one.

A commit on disk syncs fourteen files for a single document, and one in eight rewrites a small index as a whole; even in
memory, tantivy takes some milliseconds for one. A search needs none of that: the newest documents are few, and are
asked where they are (`newest`), as if they were a part of the index on disk. The commit comes later, for many of
them at once.

Promises the very answers that the index on disk would give if it had them: ranks do not depend on how documents
are spread (`snapshot`). Durable is nothing here; a new commit makes it begin anew, and so does a batch that could
not be taken as a whole.
"""

from __future__ import annotations

from projections.protocol import Batch
from projections.text.clauses import AnyTerm
from projections.text.filling import fill
from projections.text.layers import Layers
from projections.text.newest import Newest
from projections.text.rows import Row
from projections.text.snapshot import TextSnapshot


class Ahead:
    """Documents beyond a commit. One thread at a time may `take`, any number search the `snapshot`."""

    def __init__(self, committed: TextSnapshot) -> None:
        self.committed = committed
        self.snapshot = committed
        self._newest = Newest()
        self._hidden: dict[str, None] = {}
        """What was deleted, in the index below, too."""

    @property
    def documents(self) -> int:
        """In memory, those that died among them."""
        return len(self._newest.entries)

    def take(self, batch: Batch) -> None:
        """Where this fails, this object is of no further use; the snapshot is what it was."""
        fill(self, batch, self.snapshot)
        hidden = AnyTerm("slot", tuple(self._hidden)) if self._hidden else None
        layers = Layers(self.committed.texts, self._newest.snapshot(), hidden)
        self.snapshot = TextSnapshot(layers, batch.position)

    def add(self, row: Row, slot: str, died: int) -> None:
        self._newest.add(row, slot, died)

    def delete(self, slot: str) -> None:
        self._hidden[slot] = None
        self._newest.delete(slot)
