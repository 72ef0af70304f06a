"""The package `fastembed`, where it is installed: its catalogue of models, run by itself.

Promises what every embedder does. Leaves download, checks and cache of the weights to fastembed,
and so names their origin by model and by fastembed's version: between versions it has changed how
it pools, and so the vectors.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memlog.errors import EmbeddingError
from memlog.patience import require_patience
from projections.embedding.embedder import file_name, installing, unit_rows

if TYPE_CHECKING:
    from projections.embedding.embedder import EmbedderSpec, Vectors

MODEL_DEFAULT = "BAAI/bge-small-en-v1.5"
BATCH_TEXTS_MAX = 32


def open_fastembed(spec: EmbedderSpec) -> FastEmbed:
    """Raises EmbeddingError where the package is missing or cannot load the model."""
    try:
        import fastembed
    except ImportError as error:
        raise EmbeddingError(
            "The embedder fastembed needs the package fastembed, which is not installed",
            suggestion=f"{installing('fastembed')}, or set MEMLOG_EMBEDDER=minilm.",
        ) from error
    model = spec.model or MODEL_DEFAULT
    try:
        loaded = fastembed.TextEmbedding(model, cache_dir=str(spec.cache_dir / "fastembed"))
    except Exception as error:  # its own, the hub's, onnxruntime's
        raise EmbeddingError(
            f"fastembed cannot load the model {model!r}: {error}",
            suggestion="Set MEMLOG_EMBEDDER_MODEL to one of "
            "fastembed.TextEmbedding.list_supported_models(); the first use downloads it.",
        ) from error
    return FastEmbed(model, importlib.metadata.version("fastembed"), loaded)


class FastEmbed:
    """A `fastembed.TextEmbedding` as an embedder."""

    def __init__(self, model: str, version: str, loaded: Any) -> None:
        self._model = model
        self._loaded = loaded
        self.dimensions = self._rows(["dimensions"]).shape[1]
        self.key = file_name("fastembed", version, model, told_apart_by=f"{version}\n{model}")

    def embed(self, texts: Sequence[str]) -> Vectors:
        require_patience()  # for a model of whatever size
        import numpy as np

        return self._rows(texts) if texts else np.empty((0, self.dimensions), np.float32)

    def _rows(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        try:
            rows = list(self._loaded.embed(list(texts), batch_size=BATCH_TEXTS_MAX))
        except Exception as error:  # whatever the model's runtime raises
            raise EmbeddingError(
                f"fastembed's model {self._model!r} failed on {len(texts)} texts: {error}",
                suggestion="Call again; if it keeps failing, set MEMLOG_EMBEDDER=minilm.",
            ) from error
        return unit_rows(np.array(rows), f"fastembed's model {self._model!r}")
