"""What was written since the last commit of the text index, found without another one.

A commit on disk syncs fourteen files for a single document, and one in eight rewrites a small index as a whole. A
search needs none of that: it finds the newest documents in an index in memory that is read as if it were a part of
the one on disk. The commit comes later, for many of them at once.

Promises the very answers that the index on disk would give if it had them: ranks do not depend on how documents
are spread over indexes (`text_snapshot`). Durable is nothing here; a new commit makes it begin anew, and so does a
batch that could not be taken as a whole.
"""

from __future__ import annotations

import tantivy

from projections import analysis
from projections.layers import Layers
from projections.protocol import Batch
from projections.text_filling import WRITER_HEAP_BYTES, fill
from projections.text_snapshot import TextSnapshot


class Ahead:
    """Documents beyond a commit. One thread at a time may `take`, any number search the `snapshot`."""

    def __init__(self, schema: tantivy.Schema, committed: TextSnapshot) -> None:
        self.committed = committed
        self.snapshot = committed
        self._schema = schema
        self._index = tantivy.Index(schema)
        analysis.register(self._index)
        self._index.config_reader("manual")
        self._writer = _Writer(self._index.writer(WRITER_HEAP_BYTES, 1))

    def take(self, batch: Batch) -> None:
        """Where this fails, this object is of no further use; the snapshot is what it was."""
        fill(self._writer, batch, self.snapshot)
        self._writer.commit()
        self._index.reload()
        hidden = tantivy.Query.term_set_query(self._schema, "slot", list(self._writer.deleted))
        searcher = Layers(self.committed.searcher, self._index.searcher(), hidden)
        self.snapshot = TextSnapshot(self._schema, searcher, batch.position)


class _Writer:
    """Remembers what is deleted, for the index below."""

    def __init__(self, writer: tantivy.IndexWriter) -> None:
        self._writer = writer
        self.deleted: dict[str, None] = {}
        self.add_document = writer.add_document
        self.commit = writer.commit

    def delete_documents_by_term(self, field: str, slot: str, /) -> None:
        self.deleted[slot] = None
        self._writer.delete_documents_by_term(field, slot)
