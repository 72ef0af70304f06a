"""What a command that is stopped half-way leaves behind, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from server.cli.common import say


@contextmanager
def stopped_in_words(what_is_done: Callable[[], str]) -> Iterator[None]:
    """Whoever stops it by Ctrl-C is told what is done, before click says that it was aborted."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"\n{what_is_done()}", err=True)
        raise
