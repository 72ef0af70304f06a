"""Where benchmarks print their tables."""

from __future__ import annotations

from rich.console import Console

COLUMNS_MIN = 150


def open_console() -> Console:
    """As wide as the terminal; in a file or a pipe, wide enough that no cell of a table is cut."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, COLUMNS_MIN)
    return console
