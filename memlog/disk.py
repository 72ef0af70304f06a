"""Folders on the disk: made for their owner alone, and what was renamed in them kept."""

from __future__ import annotations

import os
from pathlib import Path


def make_private(folder: Path) -> None:
    """Makes `folder`, and those it lies in as the system makes any, where it is not there.

    One that is there is left as it is, for somebody may share it on purpose. Raises OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """A rename is on disk once its folders are."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
