"""Identifiers: TypeIDs (a prefix that names the kind, then a UUIDv7 in 26 base-32 characters).

Format: https://github.com/jetify-com/typeid. Ids made by one process sort by creation.
"""

from __future__ import annotations

from typing import Literal

import uuid_utils

Prefix = Literal["prj", "ent", "obs", "rel", "mem", "cmd"]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]
_SHIFTS = range(120, -1, -10)


def new_id(prefix: Prefix) -> str:
    number = uuid_utils.uuid7().int
    return f"{prefix}_" + "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])


def is_id(text: str, prefix: Prefix) -> bool:
    """Whether `text` has the shape of an id of this kind; says nothing of whether it exists."""
    return len(text) == len(prefix) + 27 and text.startswith(prefix + "_")
