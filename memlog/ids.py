"""Identifiers: TypeIDs (a prefix that names the kind, then a UUIDv7 in 26 base-32 characters).

Format: https://github.com/jetify-com/typeid. Those of one process sort by creation while the clock goes on;
those that were given a place in the log of their project always do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Literal

import uuid_utils

from memlog.errors import Conflict

Prefix = Literal["prj", "ent", "obs", "rel", "mem", "cmd"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHIFTS = range(120, -1, -10)

_HALF_SHIFTS = range(40, -1, -10)
_OWN_CHARACTERS = 6
"""The last ones. Of those before them ten tell the time, and ten, or 50 bits, the place: between its bits stand the
version and the variant of a UUID."""


def new_id(prefix: Prefix) -> str:
    """Raises Conflict where the clock stands before 1970, of which no id can tell."""
    if time.time() < 0:
        raise Conflict(
            "The clock of this machine stands before 1970; nothing was done",
            suggestion="Set the clock, then call again.",
        )
    return f"{prefix}_" + _characters(uuid_utils.uuid7().int, _SHIFTS)


def ids_in_log(
    make: Callable[[Prefix], str], time_us: int, position: int
) -> Callable[[Prefix], str]:
    """What makes ids as `make` does, for entries behind `position` (below 2**43) that are dated `time_us`.

    They sort as the entries do, whichever process writes them and however the clock was set: by the millisecond of the
    entry, then by their place in the log. Of the id that was made they have the last characters.
    """
    dated, places = _characters(time_us // 1_000, _HALF_SHIFTS), count(position + 1)

    def make_in_log(prefix: Prefix) -> str:
        own, place = make(prefix)[-_OWN_CHARACTERS:], next(places)
        placed = 7 << 46 | place >> 32 << 34 | 2 << 32 | place & 0xFFFF_FFFF
        return f"{prefix}_{dated}{_characters(placed, _HALF_SHIFTS)}{own}"

    return make_in_log


def _characters(number: int, shifts: range) -> str:
    return "".join([_PAIRS[number >> shift & 1023] for shift in shifts])


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the shape of an id of this kind; says nothing of whether it exists."""
    return len(text) == len(prefix) + 27 and text.startswith(prefix + "_")
