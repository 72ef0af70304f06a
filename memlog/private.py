"""Folders into which nobody but their owner may look."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes `folder`, and those it lies in as the system makes any, where it is not there.

    One that is there is left as it is, for somebody may share it on purpose. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
