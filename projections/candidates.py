"""What a search is considering: a document, and what speaks for it so far."""

from __future__ import annotations

import math

import msgspec

from projections.documents import Kind


class Candidate(msgspec.Struct, gc=False):
    """`cosine` and `late` are NaN where they are not known, `row` is that of its vector, -1 where it has none."""

    kind: Kind
    ref: str
    entity: str
    bm25: float = 0.0
    cosine: float = math.nan
    part: float = 0.0
    late: float = math.nan
    score: float = 0.0
    row: int = -1
