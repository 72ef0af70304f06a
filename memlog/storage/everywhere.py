"""What is done to every LMDB file that this process has open: giving back what was read, letting go of what others
replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet, ref

from memlog.storage.resident import give_back_freed

if TYPE_CHECKING:
    from memlog.storage.environment import Environment

_open: WeakSet[Environment] = WeakSet()
_changing = threading.Lock()


def note(environment: Environment) -> None:
    """It is open, until nobody has it any more."""
    with _changing:
        _open.add(environment)


def give_back_all() -> None:
    """What this process holds of its files, and of what it has freed, goes back to the system."""
    _of_each(lambda environment: environment.give_back())
    give_back_freed()


def let_go_all() -> None:
    """Closes what others wrote anew. Waits for no other process."""
    _of_each(lambda environment: environment.let_go())


def _of_each(work: Callable[[Environment], None]) -> None:
    with _changing:
        known = [ref(environment) for environment in _open]
    for each in known:
        if (environment := each()) is not None:
            work(environment)
        del environment  # else nobody could open its file again
