"""Taking back what a stretch of the log changed, row by row, while keeping what came after it.

For each row that the stretch changed there are three values: before it, after it, and now. Where the row
was not changed since, the value before it stands again. Where it was, a row of named fields is merged
field by field: a field that was not changed since goes back; one that was is a conflict, unless it only
says when the row was last touched. `evolve` applies this and the decision about `undo` asks it first,
so both see the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from memlog.rows import ROW_TYPES, Row, encode_row
from memlog.state import State

SOFT_FIELDS = frozenset({"updated_us"})


class Restored(NamedTuple):
    """Rows as they are to be from now on, by key, None for no row; and the keys of those that were changed again, in a
    way that cannot be kept."""

    rows: dict[bytes, bytes | None]
    blocked: list[bytes]


def restore(first: int, last: int, state: State) -> Restored:
    """What it takes to make the rows that `first` to `last` changed as they were before."""
    restored = Restored({}, [])
    for key, can_be, row in _each(first, last, state):
        if can_be:
            restored.rows[key] = row
        else:
            restored.blocked.append(key)
    return restored


def is_gone(first: int, last: int, state: State) -> bool:
    """Whether nothing of it is left to take back. Reads no further than to the first row that is."""
    return next(_each(first, last, state), None) is None


def _each(first: int, last: int, state: State) -> Iterator[tuple[bytes, bool, bytes | None]]:
    """The key of each row that is to be another, whether it can be, and as what."""
    before, after = state.at(first - 1), state.at(last)
    keys = dict.fromkeys(
        key for position in range(first, last + 1) for key in state.touched(position)
    )
    for key in keys:
        was, became, now = before.row(key), after.row(key), state.row(key)
        if now == became or (was is None and not told_apart(key, became, now)):
            if now != was:
                yield key, True, was
        elif (merged := _merged(key, was, became, now)) is not None:
            yield key, True, merged
        elif told_apart(key, was, now):
            yield key, False, None


def changed_at(key: bytes, position: int, state: State) -> bool:
    """Whether the row was changed there, in more than when it was last touched."""
    return told_apart(key, state.at(position - 1).row(key), state.at(position).row(key))


def told_apart(key: bytes, one: bytes | None, other: bytes | None) -> bool:
    """Whether two rows under a key differ in more than when they were last touched."""
    kind = ROW_TYPES.get(key[:1])
    if kind is None or one is None or other is None:
        return one != other
    rows = [msgspec.msgpack.decode(row, type=kind) for row in (one, other)]
    names = set(kind.__struct_fields__) - SOFT_FIELDS
    return any(_differ(name, rows[0], rows[1]) for name in names)


def _merged(key: bytes, was: bytes | None, became: bytes | None, now: bytes | None) -> bytes | None:
    """The row with only the later changes in it; None where they cannot be told apart."""
    kind = ROW_TYPES.get(key[:1])
    if kind is None or was is None or became is None or now is None:
        return None
    old, new, present = (msgspec.msgpack.decode(row, type=kind) for row in (was, became, now))
    fields = {}
    for name in kind.__struct_fields__:
        if name in SOFT_FIELDS or not _differ(name, old, new):
            fields[name] = getattr(present, name)
        elif not _differ(name, new, present):
            fields[name] = getattr(old, name)
        else:
            return None
    return encode_row(kind(**fields))


def _differ(name: str, one: Row, other: Row) -> bool:
    return bool(getattr(one, name) != getattr(other, name))
