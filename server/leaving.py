"""The end of a process that serves."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import NoReturn


def leave(exit_code: int) -> NoReturn:
    """Ends the process at once: the interpreter's own teardown takes 0.1 s and may wait for some library's thread.

    What was logged is written out first. A thread may be making a handler in this very moment, half of which
    makes `logging.shutdown` fail; the exit code says how the serving ended, and nothing else.
    """
    with suppress(Exception):
        logging.shutdown()
    os._exit(exit_code)
