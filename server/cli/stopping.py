"""What a command that is stopped half-way leaves behind, and what it says of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from server.cli.printing import say


@contextmanager
def stopped_in_words(what_is_done: Callable[[], str]) -> Iterator[None]:
    """Whoever stops it by Ctrl-C is told what is done, before click says that it was aborted."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\n{what_is_done()}", err=True)
        raise


@contextmanager
def terminated_in_order() -> Iterator[None]:
    """SIGTERM raises SystemExit in here, so that what was begun is cleared away."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(number: int, _: object) -> NoReturn:
    """As a shell tells of a process that a signal ended."""
    raise SystemExit(128 + number)
