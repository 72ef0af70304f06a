"""Doing something at once, or not at all.

A thread that has others to serve may try something `without_patience`. Whatever may take longer than looking things
up (opening a project, waiting for another process, catching up, asking an endpoint) calls `require_patience`
before it begins. There that raises `Impatient`, and nothing has happened: what only reads can be begun anew by a
thread that may take its time. Everywhere else it does nothing.

Left to who tries: what takes long by itself, and locks that others hold for a moment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Impatient(BaseException):
    """It would take its time. No Exception, for nobody on the way is to make an answer of it."""


class _Haste(threading.local):
    now = False


_haste = _Haste()


def in_haste() -> bool:
    """Whether this thread has no patience now."""
    return _haste.now


def require_patience() -> None:
    """Raises Impatient where there is none."""
    if _haste.now:
        raise Impatient


@contextmanager
def without_patience() -> Iterator[None]:
    """What this thread does in here it does at once, or leaves with Impatient."""
    _haste.now = True
    try:
        yield
    finally:
        _haste.now = False
