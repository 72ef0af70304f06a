"""What a search is considering: documents, and what speaks for each so far, in columns of one length.

Some 150 of them are gone over a dozen times, which takes an object each ten times as long as a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from projections.documents import Kind
from projections.things import TextHit
from projections.vectors.columns import NO_ROW, Places
from projections.vectors.rows import Described

Numbers = NDArray[np.float64]
Given = float | Sequence[float] | NDArray[Any]


class Candidates:
    """`cosine` is NaN where it is not known, `row` is that of the document's vector, `NO_ROW` where it has none."""

    def __init__(self) -> None:
        self.refs: list[str] = []
        self.kinds: list[Kind] = []
        self.entities: list[str] = []
        self.bm25: Numbers = np.empty(0)
        self.part: Numbers = np.empty(0)
        self.cosine: Numbers = np.empty(0)
        self.row: Places = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.refs)

    def add(
        self,
        found: Described,
        *,
        bm25: Given = 0.0,
        part: Given = 0.0,
        cosine: Given = np.nan,
        row: Given = NO_ROW,
    ) -> None:
        """More of them, none of which is there already; a number stands for all."""
        self.refs += found.refs
        self.kinds += found.kinds
        self.entities += found.entities
        count = len(found.refs)
        self.bm25 = np.concatenate([self.bm25, _column(bm25, count)])
        self.part = np.concatenate([self.part, _column(part, count)])
        self.cosine = np.concatenate([self.cosine, _column(cosine, count)])
        self.row = np.concatenate([self.row, _column(row, count)], dtype=np.int64)

    def add_worded(self, hits: Sequence[TextHit]) -> None:
        """Those found by words, before all others."""
        self.add(_described(hits), bm25=[hit.score for hit in hits])

    def add_parts(self, hits: Sequence[TextHit]) -> None:
        """Those that hold the question as a part; some may have been found already."""
        if not hits:
            return
        places = {ref: place for place, ref in enumerate(self.refs)}
        new = [hit for hit in hits if hit.ref not in places]
        self.add(_described(new), part=[hit.score for hit in new])
        for hit in hits:
            if (place := places.get(hit.ref)) is not None:
                self.part[place] = hit.score


def _described(hits: Sequence[TextHit]) -> Described:
    return Described(
        [hit.ref for hit in hits], [hit.kind for hit in hits], [hit.entity for hit in hits]
    )


def _column(given: Given, count: int) -> NDArray[Any]:
    return np.full(count, given) if isinstance(given, float | int) else np.asarray(given)
