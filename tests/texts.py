"""The texts of a projector as they are now, for tests that ask them."""

from __future__ import annotations

from projections.text.projector import TextProjector
from projections.text.snapshot import TextSnapshot


def texts_of(projector: TextProjector) -> TextSnapshot:
    with projector.asked() as texts:
        return texts
