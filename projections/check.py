"""Proof that an index equals what the log alone gives: both are built, and their digests compared."""

from __future__ import annotations

import tempfile
from pathlib import Path

from projections.follow import Progress, Projections


def compare(projections: Projections, name: str, progress: Progress | None = None) -> bool:
    """Whether the projection equals one built from the log in an empty folder, document for document."""
    projections.caught_up(name, progress)
    position, digest = projections.digest(name)
    with tempfile.TemporaryDirectory(prefix="memlog-check-") as folder:
        rebuilt = projections.fresh(name, Path(folder))
        try:
            projections.drive(rebuilt, until=position, progress=progress)
            return digest == rebuilt.digest()
        finally:
            rebuilt.close()
