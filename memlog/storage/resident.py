"""What this process has in memory beyond what it uses, and giving that back to the system."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")
_SHARED_TO_READ = b"r--s"
"""As LMDB maps its files; `pages` maps them for itself alone."""


HEAPS = 2
"""From which all threads take their memory. What one gives back stays in its heap, and GNU's library makes eight for
each processor: of a server that is busy for minutes half of what it held was such remains."""

_ARENA_MAX = -8  # mallopt(3)


def share_heaps() -> None:
    """For the start of a process that lives long, before there are threads. Where the library of C is not GNU's, or
    its user has said how many heaps there are to be, nothing happens."""
    told = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if not told:
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_ARENA_MAX, HEAPS)


def give_back_freed() -> None:
    """What was freed of the heap stays with the process, in holes between what is used.

    For the end of something large: it takes some milliseconds. Where the library of C is not GNU's,
    nothing happens.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_back_mapped(file: os.stat_result) -> None:
    """Lets go of the pages of a file that is mapped to be read and shared: the system has them still, as long as it has
    room, and whoever reads one again gets it from there.

    The caller sees to it that whatever maps this file so stays mapped meanwhile: what is in its place by then would
    be lost. The system counts every page that a process has touched, and the fifteen around it, as the process's own.
    Linux only.
    """
    with suppress(OSError, AttributeError):
        device = b"%02x:%02x" % (os.major(file.st_dev), os.minor(file.st_dev))
        inode = b"%d" % file.st_ino
        advise = ctypes.CDLL(None).madvise
        for line in MAPS.read_bytes().splitlines():
            addresses, rights, _, of_device, number, *_ = line.split(maxsplit=5)
            if (rights, of_device, number) == (_SHARED_TO_READ, device, inode):
                start, stop = (int(each, 16) for each in addresses.split(b"-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), mmap.MADV_DONTNEED)
