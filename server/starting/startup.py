"""Getting through the imports quickly, and out of them.

Promises about a tenth off the time to the first answer without touching what is imported. Which
modules are imported late (faiss, onnxruntime, numpy) is left to those who use them.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

SWITCH_SECONDS = 0.0005


def switch_quickly() -> None:
    """Lets a thread wait less for one that computes.

    Every call into LMDB gives the interpreter away and has to get it back; behind the follower, which
    computes, that is a wait of Python's usual 5 ms each time, and a write makes dozens of calls.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """Until it serves, and has a receiver for signals, Ctrl-C ends a server as SIGTERM does: at once, nothing lost.

    As an exception it may come amid any import, out of which it comes as an error of whatever library that is. The
    first process, as in a container, is ended by no signal that it does not handle.
    """
    at_once = _end_at_once if os.getpid() == 1 else signal.SIG_DFL
    before = {each: signal.signal(each, at_once) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end_at_once(number: int, _: object) -> NoReturn:
    """With the code by which a shell tells of the same."""
    os._exit(128 + number)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Run imports with the cyclic garbage collector off, and keep their objects from it for good.

    The SDK's models make some eighty thousand objects that live as long as the process. The
    collector would walk them again and again while they are made, and after that in every full
    collection, in the middle of somebody's request.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
