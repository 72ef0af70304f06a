"""Work in the background, which lets calls in the foreground go first."""

from __future__ import annotations

import logging
import os
import sys
import threading

NICENESS = 10

log = logging.getLogger("memlog.niceness")

_own = threading.local()


def is_nice() -> bool:
    """Whether this thread works in the background."""
    return getattr(_own, "nice", False)


def be_nice() -> None:
    """Lowers the priority of this thread; where the system has no such thing, nothing is lost.

    Only Linux knows threads by the numbers of processes: on macOS another program of this user may have that number.
    """
    _own.nice = True
    if sys.platform != "linux":
        return
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    except OSError:
        log.debug("%s runs at normal priority", threading.current_thread().name)
