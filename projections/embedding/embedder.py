"""What an embedder is, and how one is chosen.

Promises: every embedder returns unit vectors of one width for any text at all (empty, far too long,
in any script), or raises EmbeddingError with a way out; none falls back to something weaker by
itself. Leaves to `cached` that no text is embedded twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, assert_never, runtime_checkable

import msgspec

from memlog.errors import EmbeddingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlog.settings import Embedder as Backend
    from projections.embedding.pieces import Asked

    Vectors: TypeAlias = NDArray[np.float32]

SLUG_CHARACTERS_MAX = 48
REQUEST_TEXTS_MAX = 32
"""So many has a request to an endpoint."""


def installing(package: str) -> str:
    """Advice to install a package where memlog looks for it, which another Python's pip does not do. Names no path of
    this machine, for clients are told it; the command line puts its own in (`server/cli/hints`)."""
    return f"Run `python -m pip install {package}` with the Python of memlog (in a checkout `.venv/bin/python`)"


class Embedder(Protocol):
    """Turns texts into vectors. Safe to call from several threads at once.

    One that may take longer than a model does in this process says so (`require_patience`) before it begins.
    """

    @property
    def key(self) -> str:
        """Names the origin of the vectors: model, weights and numeric variant. A safe file name.

        Vectors under different keys must never meet in one index.
        """
        ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors as float32, shape (len(texts), dimensions). Raises EmbeddingError."""
        ...


@runtime_checkable
class PieceEmbedder(Embedder, Protocol):
    """One that also gives the vectors of a text's word pieces, out of the same pass (`pieces`)."""

    def embed_with_pieces(
        self, texts: Sequence[str], questions: Sequence[str] = ()
    ) -> tuple[Vectors, list[bytes], list[tuple[Vectors, Asked]]]:
        """What `embed` returns, the pieces of each text as they are stored, and for each question what `asked`
        returns, out of the same pass."""
        ...

    def asked(self, text: str) -> tuple[Vectors, Asked]:
        """The vector of a question, (dimensions,), and its pieces."""
        ...


class EmbedderSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Which embedder to open. Fields that do not concern its backend are ignored."""

    backend: Backend
    cache_dir: Path
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    model_dir: Path | None = None
    max_retries: int = 3

    def __repr__(self) -> str:
        """Leaves out the key and the address, which may carry one: this ends up in logs."""
        return f"EmbedderSpec(backend={self.backend!r}, model={self.model!r})"


def open_embedder(spec: EmbedderSpec) -> Embedder:
    """The embedder that `spec` asks for, which is one, loaded and ready.

    Takes from half a second (local weights) to minutes (a first download): call it off the event
    loop. Raises EmbeddingError where the model, the package or the endpoint cannot be had.
    """
    assert spec.backend != "none", "nobody asks for an embedder that is switched off"
    match spec.backend:
        case "minilm":
            from projections.embedding.minilm import open_minilm

            return open_minilm(spec)
        case "openai":
            from projections.embedding.openai import open_openai

            return open_openai(spec)
        case "fastembed":
            from projections.embedding.fastembed import open_fastembed

            return open_fastembed(spec)
        case _:
            assert_never(spec.backend)


def unit_rows(rows: NDArray[np.floating[Any]], origin: str) -> Vectors:
    """`rows` scaled to length one. Raises EmbeddingError, naming `origin`, where that cannot be."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and lengths.all()):
        raise EmbeddingError(
            f"{origin} returned a vector that has no direction (all zeros, or not a number)",
            suggestion="Check that the model is an embedding model and loaded completely.",
        )
    scaled: Vectors = (rows / lengths).astype(np.float32)
    return scaled


def file_name(*parts: str, told_apart_by: str) -> str:
    """A file name that shows `parts` and differs wherever `told_apart_by` does."""
    shown = re.sub(r"[^a-z0-9.]+", "-", "-".join(parts).lower())[:SLUG_CHARACTERS_MAX].strip("-.")
    return f"{shown}-{hashlib.sha256(told_apart_by.encode()).hexdigest()[:8]}"
