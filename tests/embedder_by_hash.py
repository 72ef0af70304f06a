"""An embedder that draws a text's vector by its hash; all around it, cache and locks, is the real one.

It gives the same vectors in every process and loads no model, so a test can afford many histories.
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.embedding import Embedder, EmbedderSpec
from projections.vectors.index import Vectors
from tests.vectors_by_hash import DIMENSIONS, embed


class ByHash:
    """In place of the model; each name stands for one that gives vectors of its own."""

    dimensions = DIMENSIONS

    def __init__(self, model: str = "") -> None:
        self.key = f"by-hash-{model}" if model else "by-hash"
        self._model = model

    def embed(self, texts: Sequence[str]) -> Vectors:
        return embed([self._model + text for text in texts])


def opened_by_hash(spec: EmbedderSpec) -> Embedder:
    """What a test puts in place of `projections.embeddings.open_embedder`."""
    return ByHash(spec.model or "")
