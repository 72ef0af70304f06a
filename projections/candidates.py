"""What a search is considering: a document, and what speaks for it so far."""

from __future__ import annotations

import math

import msgspec

from projections.documents import Kind


class Candidate(msgspec.Struct):
    """`cosine` and `late` are NaN where they are not known."""

    kind: Kind
    ref: str
    entity: str
    bm25: float = 0.0
    cosine: float = math.nan
    part: float = 0.0
    late: float = math.nan
    score: float = 0.0
