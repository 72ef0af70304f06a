"""What is asked of texts, said once for whoever has some: an index on disk (`on_disk`), or the newest documents in
memory (`newest`).

Fields are those of the `schema`. Only `Scored` gives a score that counts.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class _Clause(msgspec.Struct, frozen=True, gc=False):
    """One that is true of a document or not."""


class Term(_Clause, frozen=True, gc=False):
    """Has the term in a field."""

    field: str
    value: str


class AnyTerm(_Clause, frozen=True, gc=False):
    """Has one of the terms."""

    field: str
    values: tuple[str, ...]


class InOrder(_Clause, frozen=True, gc=False):
    """Has the words, one at least, one after another as they stand; with `begins`, of the last one its beginning; with
    `ends`, the first of several alone, or behind a character of a script without spaces."""

    words: tuple[str, ...]
    begins: bool = False
    ends: bool = False


class Part(_Clause, frozen=True, gc=False):
    """Has the normalised needle, which is not empty, as a part of its text, or may have it."""

    needle: str


class Near(_Clause, frozen=True, gc=False):
    """Has a term in a field that `distance` edits lead to (one letter more, less, another, or two neighbours
    exchanged)."""

    field: str
    value: str
    distance: int


class Span(_Clause, frozen=True, gc=False):
    """A position in the log from `low` to `high`."""

    field: Literal["born", "died"]
    low: int | None = None
    high: int | None = None


class Scored(_Clause, frozen=True, gc=False):
    """What is so has this score."""

    clause: Clause
    score: float


class Joined(_Clause, frozen=True, gc=False):
    """Everything in `must`, and where that is empty, something in `should`; nothing in `without`. Scores add up."""

    must: tuple[Clause, ...] = ()
    should: tuple[Clause, ...] = ()
    without: tuple[Clause, ...] = ()


EVERYTHING = Span("born", low=1)
"""All documents, and not the checkpoint of an index on disk, which was never born."""

Clause = Term | AnyTerm | InOrder | Part | Near | Span | Scored | Joined
