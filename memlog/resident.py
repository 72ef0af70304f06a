"""What this process has in memory beyond what it uses, and giving that back to the system."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path

MAPS = Path("/proc/self/maps")
_SHARED_TO_READ = "r--s"


def give_back_freed() -> None:
    """What was freed of the heap stays with the process, in holes between what is used.

    For the end of something large: it takes some milliseconds. Where the library of C is not GNU's,
    nothing happens.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def give_back_mapped(path: Path) -> None:
    """Lets go of the pages of a file that is mapped for reading: the system has them still, as long as it has room,
    and whoever reads one again gets it from there. The caller sees to it that the file stays mapped meanwhile.

    The system counts every page that a process has touched, and the fifteen around it, as the process's own.
    Linux only.
    """
    with suppress(OSError, AttributeError):
        inode = str(os.stat(path).st_ino)
        advise = ctypes.CDLL(None).madvise
        for line in MAPS.read_text().splitlines():
            addresses, rights, _, _, number, *_ = line.split(maxsplit=5)
            if number == inode and rights == _SHARED_TO_READ and line.endswith(path.name):
                start, stop = (int(each, 16) for each in addresses.split("-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), mmap.MADV_DONTNEED)
