"""Numbers in memory that are only ever appended to, or changed in place; and what rows and places are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_ROW = -1

Ids = NDArray[np.int64]
"""Rows, by their numbers."""

Places = NDArray[np.int64]
"""Where each of some things stands among others; -1 where it does not."""


class Column:
    """Numbers of one width that are appended to, in an array that doubles when it is full."""

    def __init__(self, dtype: Any, stored: bytes) -> None:
        self._room: NDArray[Any] = np.frombuffer(stored, dtype=dtype).copy()
        self._count = len(self._room)

    @property
    def values(self) -> NDArray[Any]:
        """A view, good until the next append."""
        return self._room[: self._count]

    def append(self, value: int) -> None:
        if self._count == len(self._room):
            grown = np.empty(max(64, 2 * self._count), dtype=self._room.dtype)
            grown[: self._count] = self._room
            self._room = grown
        self._room[self._count] = value
        self._count += 1
