"""Folders into which nobody but their owner may look."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes `folder`, and those it lies in as the system makes any, where it is not there.

    One that is there is left as it is, for somebody may share it on purpose. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def is_private(folder: Path) -> bool:
    """Whether no other user may list or enter it. Raises OSError."""
    return not folder.stat().st_mode & 0o077
