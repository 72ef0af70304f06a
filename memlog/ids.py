"""Identifiers: TypeIDs (a prefix that names the kind, then a UUIDv7 in 26 base-32 characters).

Format: https://github.com/jetify-com/typeid. Ids made by one process sort by creation.
"""

from __future__ import annotations

import time
from typing import Literal

import uuid_utils

from memlog.errors import Conflict

Prefix = Literal["prj", "ent", "obs", "rel", "mem", "cmd"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHIFTS = range(120, -1, -10)


def new_id(prefix: Prefix) -> str:
    """Raises Conflict where the clock stands before 1970, of which no id can tell."""
    if time.time() < 0:
        raise Conflict(
            "The clock of this machine stands before 1970; nothing was done",
            suggestion="Set the clock, then call again.",
        )
    number = uuid_utils.uuid7().int
    return f"{prefix}_" + "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the shape of an id of this kind; says nothing of whether it exists."""
    return len(text) == len(prefix) + 27 and text.startswith(prefix + "_")
