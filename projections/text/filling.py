"""The documents that one batch leaves in the text index, in the order in which a writer gets them.

A document waits a while before it is added, so that one which dies meanwhile is written once, with the
span in which it lived. One that dies later is deleted and written again. What was added cannot be read
back before the commit: so every living document of the batch is remembered until then, about half a
kilobyte each beside its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import tantivy

from projections.documents import NEVER, Born, Died, Document
from projections.protocol import Batch
from projections.text import analysis
from projections.text.rows import CHECKPOINT, RETIRED, Row, encode_row, size, weight
from projections.text.snapshot import TextSnapshot

WAITING_MAX = 10_000
"""So many wait at most. While more are read, the index works on those before."""


class Writer(Protocol):
    """Who gets the documents."""

    def add(self, row: Row, slot: str, died: int) -> None:
        """A document that lives where `slot` is its ref."""
        ...

    def delete(self, slot: str) -> None:
        """Whatever has this slot so far."""
        ...


def fill(writer: Writer, batch: Batch, before: TextSnapshot) -> None:
    """Brings what stood at `before` to where the batch ends."""
    filling, after = Filling(writer, before.living), before.position
    for change in batch.changes:
        if change.position > after:
            match change:
                case Born(document):
                    filling.born(document)
                case Died(ref, position):
                    filling.died(ref, position)
    filling.add_waiting()


class Entering:
    """Puts documents into an index on disk, which has them at the next commit of its `writer`."""

    def __init__(self, writer: tantivy.IndexWriter) -> None:
        self._writer = writer

    def add(self, row: Row, slot: str, died: int) -> None:
        self._writer.add_document(_entry(row, slot, died))

    def delete(self, slot: str) -> None:
        self._writer.delete_documents_by_term("slot", slot)

    def check(self, position: int) -> None:
        """The index has seen the log up to here."""
        self.delete(CHECKPOINT)
        checkpoint = tantivy.Document(slot=CHECKPOINT, position=position, born=0, died=0)
        self._writer.add_document(checkpoint)


class Filling:
    """Told of births and deaths in the order of the log. `living` tells what was committed before."""

    def __init__(self, writer: Writer, living: Callable[[str], Row | None]) -> None:
        self._writer = writer
        self._living = living
        self._waiting: dict[str, Row] = {}
        self._added: dict[str, Row | None] = {}
        """By ref, what the writer has of a living document: None where it was told to delete it."""

    def born(self, document: Document) -> None:
        self._waiting[document.ref] = Row(
            document.ref,
            document.kind,
            document.entity,
            analysis.normalise(document.text),
            document.labels,
            document.born,
            " ".join(part for parts in analysis.humps(document.text) for part in parts),
        )
        if len(self._waiting) >= WAITING_MAX:
            self.add_waiting()

    def died(self, ref: str, position: int) -> None:
        """A death under a ref where nothing lives changes nothing."""
        row = self._waiting.pop(ref, None) or self._deleted(ref)
        if row is not None:
            self._writer.add(row, RETIRED, position)

    def add_waiting(self) -> None:
        for ref, row in self._waiting.items():
            self._writer.add(row, ref, NEVER)
        self._added.update(self._waiting)
        self._waiting.clear()

    def _deleted(self, ref: str) -> Row | None:
        """What the index has of a living document, which is deleted there."""
        row = self._added[ref] if ref in self._added else self._living(ref)
        if row is not None:
            self._writer.delete(ref)
        self._added[ref] = None
        return row


def _entry(row: Row, slot: str, died: int) -> tantivy.Document:
    """Made field by field, which takes a third of the time of naming all at once."""
    spaced = analysis.spaced(row.text)
    words = analysis.words(spaced)
    entry = tantivy.Document()
    entry.add_text("slot", slot)
    entry.add_text("kind", row.kind)
    for label in row.labels:
        entry.add_text("labels", label)
    entry.add_text("thing", row.entity or row.ref)
    entry.add_text("words", analysis.rooted(f"{spaced} {row.parts}"))
    entry.add_text("exact", spaced)
    entry.add_text("trigrams", row.text + analysis.END)
    entry.add_integer("born", row.born)
    entry.add_integer("died", died)
    entry.add_integer("size", size(row.ref, len(row.text)))
    entry.add_float("weight", weight(row.ref, len(words)))
    entry.add_bytes("row", encode_row(row))
    if repeated := analysis.repeated(words):
        entry.add_text("repeated", analysis.rooted(repeated))
    return entry
