"""What this process has in memory beyond what it uses, and giving that back to the system."""

from __future__ import annotations

import ctypes
from contextlib import suppress


def give_back_freed() -> None:
    """What was freed of the heap stays with the process, in holes between what is used.

    For the end of something large: it takes some milliseconds. Where the library of C is not GNU's,
    nothing happens.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
