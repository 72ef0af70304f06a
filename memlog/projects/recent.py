"""Keeps what was used last, so that what is opened in turn does not stay open for ever.

The last few things are kept, and those no longer that were left unused for a time that is given. Any other is known for
as long as somebody uses it, and is closed when the last user lets it go: nothing is closed under a call that is under
way, and nothing is opened twice, which LMDB forbids.
"""

from __future__ import annotations

import resource
import time
from collections import OrderedDict
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Thing = TypeVar("Thing")

KEPT_MAX, HANDLES = 32, 9
"""Of projects: each takes so many file handles, and the memory of its vectors."""


def kept_max() -> int:
    """So many that half of the handles that this process may have are left for all else."""
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = granted == resource.RLIM_INFINITY
    return KEPT_MAX if unlimited else max(1, min(KEPT_MAX, granted // 2 // HANDLES))


class Recent(Generic[Thing]):
    """Things by key. Whoever shares one among threads takes turns."""

    def __init__(self, most: int | None = None) -> None:
        self._kept_max = kept_max() if most is None else most
        self._kept: OrderedDict[str, tuple[Thing, float]] = OrderedDict()
        """Each with when it was used last, on the monotonic clock; in that order."""
        self._known: WeakValueDictionary[str, Thing] = WeakValueDictionary()

    def get(self, key: str) -> Thing | None:
        thing = self._known.get(key)
        if thing is not None:
            self._keep(key, thing)
        return thing

    def put(self, key: str, thing: Thing) -> Thing:
        self._known[key] = thing
        self._keep(key, thing)
        return thing

    def pop(self, key: str) -> Thing | None:
        """Forgets it: from now on it is unknown, also where somebody still uses it."""
        self._kept.pop(key, None)
        return self._known.pop(key, None)

    def drop(self, thing: Thing) -> None:
        """Forgets this very thing: another that took its place under its key stays."""
        for key in [key for key, known in self._known.items() if known is thing]:
            self.pop(key)

    def let_go_unused(self, seconds: float) -> None:
        """Keeps no longer what was not used for so long."""
        latest = time.monotonic() - seconds
        unused = [key for key, (_, used) in self._kept.items() if used < latest]
        for key in unused:
            del self._kept[key]

    def all(self) -> list[Thing]:
        return list(self._known.values())

    def clear(self) -> None:
        self._kept.clear()
        self._known.clear()

    def _keep(self, key: str, thing: Thing) -> None:
        self._kept[key] = thing, time.monotonic()
        self._kept.move_to_end(key)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)
