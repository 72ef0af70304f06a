"""Numbers that come with this package, beside its modules."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from projections.embedding.embedder import Vectors


def shipped(numbers: Path) -> Vectors:
    """float32 (n,), of a file of float16, which need not be one of the system's: the modules may be in an archive."""
    import numpy as np

    stored = files(__package__).joinpath(numbers.name).read_bytes()
    return np.frombuffer(stored, "<f2").astype(np.float32)
