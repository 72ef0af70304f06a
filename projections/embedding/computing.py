"""Being told when a thread that wants vectors has come to where the model computes, or an endpoint is waited for.

Until then it runs Python, and takes the interpreter in turns with whoever does something else meanwhile, at every step;
from then on the others have it for themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def nothing() -> None:
    """The default callback: does nothing."""


class _Announcing(threading.local):
    tell: Callable[[], object] = staticmethod(nothing)


_announcing = _Announcing()


@contextmanager
def announcing(tell: Callable[[], object]) -> Iterator[None]:
    """`tell` is called, perhaps more than once, where what this thread does in here computes. Not nested."""
    _announcing.tell = tell
    try:
        yield
    finally:
        _announcing.tell = nothing


def computes() -> None:
    """To be called right before the model computes or an endpoint is asked; calls what `announcing` was given."""
    _announcing.tell()
