"""Damages files in use: what it does to a file is seen by whoever has it mapped, and ends nobody.

Nothing is cut off, not for a moment: who reads a mapped page that its file no longer has is ended by the system
(SIGBUS).
"""

from __future__ import annotations

from pathlib import Path

FOOTER_BYTES = 120  # of a file of tantivy: its sum and its version


def garble(file: Path) -> None:
    """Changes every byte of `file` but its last `FOOTER_BYTES`, in its place."""
    content = file.read_bytes()
    overwrite(file, bytes(byte ^ 0x55 for byte in content[:-FOOTER_BYTES]))


def overwrite(file: Path, content: bytes) -> None:
    """The beginning of `file`, in its place."""
    with file.open("r+b") as held:
        held.write(content)
