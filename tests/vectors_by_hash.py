"""A world of texts whose vectors are drawn by their hash: the same in every test and every process."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np

from projections.documents import NOW, Born, Change, Document, Scope
from projections.protocol import Batch
from projections.vectors.index import Vectors
from projections.vectors.projector import VectorHit, VectorProjector

DIMENSIONS = 64

ROUNDING = 6 * 0.0015
"""Six standard deviations of what a byte a number makes of a cosine with so many dimensions."""


def embed(texts: Sequence[str]) -> Vectors:
    """A direction for each text, drawn by its hash."""
    rows = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
    for row, text in enumerate(texts):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).normal(size=DIMENSIONS)
        rows[row] = vector / np.linalg.norm(vector)
    return rows


def opened(path: Path) -> VectorProjector:
    return VectorProjector(path, embed, DIMENSIONS)


def query(text: str) -> Vectors:
    vector: Vectors = embed([text])[0]
    return vector


def document(ref: str, text: str, born: int, **fields: object) -> Document:
    values: dict[str, object] = {"kind": "observation", "entity": "ent_1", "labels": ()}
    return Document(ref=ref, text=text, born=born, **(values | fields))  # type: ignore[arg-type]


def batch(position: int, *changes: Change) -> Batch:
    return Batch(position=position, changes=changes)


def numbered(first: int, stop: int) -> Batch:
    """One document born at each position from `first` up to, not including, `stop`."""
    born = (Born(document(f"obs_{n:06}", f"text {n}", n)) for n in range(first, stop))
    return Batch(position=stop - 1, changes=tuple(born))


def nearest(
    projector: VectorProjector, vector: Vectors, scope: Scope = NOW, *, limit: int
) -> list[VectorHit]:
    """The documents nearest to a vector of unit length, best first, as a search finds them."""
    look = projector.look(vector, scope)
    rows, cosines = look.nearest(limit)
    told = look.described(rows)
    return list(map(VectorHit, told.refs, told.kinds, told.entities, cosines.tolist()))


def found(projector: VectorProjector, text: str, at: int | None = None) -> list[str]:
    return [hit.ref for hit in nearest(projector, query(text), Scope(at), limit=10)]


def cosines(
    projector: VectorProjector, vector: Vectors, refs: Sequence[str], at: int | None = None
) -> dict[str, float]:
    """Of those of `refs` that are living now, or `at` a position."""
    look = projector.look(vector, Scope(at))
    known = zip(refs, look.cosines(look.rows_of(refs)).tolist(), strict=True)
    return {ref: cosine for ref, cosine in known if not math.isnan(cosine)}


def save_for_ever(path: Path) -> None:
    """What a process does that is to be killed."""
    projector = opened(path)
    for first in count(projector.position + 1, 50):
        projector.apply(numbered(first, first + 50))
        projector.save()
        print(projector.position, flush=True)
