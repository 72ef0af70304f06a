"""The end of a process that serves."""

from __future__ import annotations

import faulthandler
import logging
import os
from contextlib import suppress
from typing import NoReturn

DRAIN_S, TEARDOWN_S = 10.0, 5.0
"""How long a server that is to end waits for calls under way, and then for what is to be put away."""

logger = logging.getLogger(__name__)


def give_up_after(seconds: float) -> None:
    """By then the process ends with exit code 1 and the tracebacks of its threads, unless it has ended.

    A thread in C sees to it, which needs neither the GIL nor a lock that a stuck call may hold. Where no thread is
    to be had the process ends when it ends.
    """
    try:
        faulthandler.dump_traceback_later(seconds, exit=True)
    except RuntimeError as error:
        logger.warning("a call that hangs will be waited for: %s", error)


def leave(exit_code: int) -> NoReturn:
    """Ends the process at once: the interpreter's own teardown takes 0.1 s and may wait for some library's thread.

    What was logged is written out first. A thread may be making a handler in this very moment, half of which
    makes `logging.shutdown` fail; the exit code says how the serving ended, and nothing else.
    """
    with suppress(Exception):
        logging.shutdown()
    os._exit(exit_code)
