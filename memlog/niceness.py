"""Work in the background, which lets calls in the foreground go first."""

from __future__ import annotations

import logging
import os
import threading

NICENESS = 10

log = logging.getLogger("memlog.niceness")


def be_nice() -> None:
    """Lowers the priority of this thread; where the system has no such thing, nothing is lost."""
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
    except (AttributeError, OSError):
        log.debug("%s runs at normal priority", threading.current_thread().name)
