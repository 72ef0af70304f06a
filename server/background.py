"""Threads for what nobody waits for, where the system grants one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread

logger = logging.getLogger("memlog.background")


def in_background(
    run: Callable[[], None], name: str, *, without: str, level: int = logging.WARNING
) -> Thread | None:
    """A daemon thread in which `run` is under way; None where none is to be had.

    What happens `without` it is logged then, as a clause to which the system's reason is added.
    """
    thread = Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        logger.log(level, "%s: %s", without, error)
        return None
    return thread
