"""Damages files of an index in use: what it does to a file is seen by whoever has it mapped, and ends nobody."""

from __future__ import annotations

from pathlib import Path

FOOTER_BYTES = 120  # of a file of tantivy: its sum and its version


def garble(file: Path) -> None:
    """Changes every byte of `file` but its last `FOOTER_BYTES`, in its place.

    Nothing of it is cut off: who reads a mapped page that its file no longer has is ended by the system (SIGBUS).
    """
    with file.open("r+b") as held:
        content = held.read()[:-FOOTER_BYTES]
        held.seek(0)
        held.write(bytes(byte ^ 0x55 for byte in content))
