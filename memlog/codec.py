"""How an entry of the log is stored, and how the chain of hashes runs.

A value in the log is  kind (1 byte) | chain (32 bytes) | body.  The body is the MessagePack array
[time_us, command_id, thread, actor, event]. The chain of an entry is

    SHA-256( chain of the entry before | position, 8 bytes big-endian | SHA-256(body) )

so a changed byte, a missing entry or a swapped pair breaks it at a position that can be named. It runs
over the *digest* of the body, so that a body can be erased for good without breaking the chain: an
entry of kind `ERASED` holds  digest (32 bytes) | time_us (8 bytes, big-endian)  in place of the body.
The time stays, for positions are looked up by it; who wrote and in which command goes with the body.

Where an entry was lost with a damage of the file, a repaired log has one of kind `MENDED` in its place: the chain that
the lost entry had, as what follows it proves, and  seal (32 bytes) | body.  The seal is

    SHA-256( position, 8 bytes big-endian | chain | body )

The event in the body is what has to stand there for later entries to have something to be about, or nil. So the chain
goes on as it was, and the lost entry, should a backup have it, still proves that it belongs there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from memlog.errors import DamagedLog, StorageError
from memlog.events import Erased, Event, Happened
from memlog.storage.tables import place
from memlog.times import LATEST_US

GENESIS = bytes(32)
"""The chain before the first entry."""

WRITTEN, ERASED, MENDED = 0, 1, 2
CHAIN_END = 33
DIGEST_END = CHAIN_END + 32
"""Where the digest of what was erased ends, and the seal of what stands in for what was lost."""
ERASED_BYTES = DIGEST_END + 8
_WRITTEN, _ERASED, _MENDED = (bytes([kind]) for kind in (WRITTEN, ERASED, MENDED))


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One event with its place in the log. `time_us` is microseconds since 1970, UTC."""

    position: int
    time_us: int
    command_id: str
    thread: str | None
    actor: str | None
    event: Happened
    chain: bytes


Stored: TypeAlias = Event
"""What a body may hold: a format that is superseded is no `Event` any more, but stays here, for old logs do."""

UPCASTS: dict[type, Callable[[Any], Event]] = {}
"""From the struct of a superseded format to the event that says the same today; applied on reading."""


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    time_us: int
    command_id: str
    thread: str | None
    actor: str | None
    event: Stored


class _Mended(_Body, frozen=True, array_like=True):
    event: Stored | None  # type: ignore[assignment]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Body).decode
_decode_mended = msgspec.msgpack.Decoder(_Mended).decode


def chain(before: bytes, position: int, digest: bytes) -> bytes:
    return sha256(before + place(position) + digest).digest()


def encode(
    before: bytes,
    position: int,
    time_us: int,
    command_id: str,
    thread: str | None,
    actor: str | None,
    event: Event,
) -> tuple[Entry, bytes]:
    """The entry that follows the chain `before`, and the value to store for it."""
    body = _encode(_Body(time_us, command_id, thread, actor, event))
    link = chain(before, position, sha256(body).digest())
    entry = Entry(position, time_us, command_id, thread, actor, event, link)
    return entry, bytes([WRITTEN]) + link + body


def decode(position: int, value: bytes) -> Entry:
    """The entry stored as `value`. Raises StorageError where it cannot be read."""
    try:
        if value[:1] == _WRITTEN:
            body = _decode(value[CHAIN_END:])
        elif is_mended(value):
            body = _decode_mended(value[DIGEST_END:])
        else:
            return _decode_erased(position, value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(position, error) from error
    event = Erased(lost=True) if body.event is None else today(body.event)
    return Entry(
        position, body.time_us, body.command_id, body.thread, body.actor, event, value[1:CHAIN_END]
    )


def today(stored: Any) -> Event:
    """The event that says what was stored."""
    upcast = UPCASTS.get(type(stored))
    event: Event = upcast(stored) if upcast else stored
    return event


def erase(position: int, value: bytes, time_us: int) -> bytes:
    """What is stored in place of `value`, of an entry of that time, once it is erased."""
    if is_mended(value):
        return mend(position, value[1:CHAIN_END], time_us)
    return bytes([ERASED]) + value[1:CHAIN_END] + digest(value) + time_us.to_bytes(8, "big")


def mend(
    position: int,
    link: bytes,
    time_us: int,
    command_id: str = "",
    thread: str | None = None,
    actor: str | None = None,
    event: Event | None = None,
) -> bytes:
    """What is stored in place of an entry that was lost and whose chain was `link`."""
    body = _encode(_Mended(time_us, command_id, thread, actor, event))
    return bytes([MENDED]) + link + _seal(position, link, body) + body


def _seal(position: int, link: bytes, body: bytes) -> bytes:
    return sha256(place(position) + link + body).digest()


def is_mended(value: bytes) -> bool:
    return value[:1] == _MENDED


def _decode_erased(position: int, value: bytes) -> Entry:
    if len(value) != ERASED_BYTES or value[0] != ERASED:
        kind = value[:1].hex() or "none"
        raise unreadable(position, ValueError(f"kind {kind} of {len(value)} bytes is unknown"))
    return Entry(position, _time_of(value), "", None, None, Erased(), value[1:CHAIN_END])


def digest(value: bytes) -> bytes:
    """SHA-256 of the body of a stored value, also where the body has been erased."""
    if value[:1] == _ERASED:
        return value[CHAIN_END:DIGEST_END]
    return sha256(value[CHAIN_END:]).digest()


def tells_time(value: bytes) -> bool:
    """Whether an entry that was erased ends with a time that there is: the chain proves none of it."""
    return len(value) == ERASED_BYTES and _time_of(value) <= LATEST_US


def _time_of(erased: bytes) -> int:
    return int.from_bytes(erased[DIGEST_END:], "big")


def follows(before: bytes, position: int, value: bytes) -> bool:
    """Whether the entry stored as `value` is the one that was written after the chain `before`, or was put
    in the place of one that was lost."""
    if is_mended(value):
        body = value[DIGEST_END:]
        return value[CHAIN_END:DIGEST_END] == _seal(position, value[1:CHAIN_END], body)
    if value[:1] == _ERASED and not tells_time(value):
        return False
    return chain(before, position, digest(value)) == value[1:CHAIN_END]


def require_follows(before: bytes, position: int, value: bytes) -> None:
    if not follows(before, position, value):
        raise DamagedLog(
            position - 1, f"the entry at position {position} does not match the chain of hashes"
        )


def unreadable(position: int, error: Exception) -> StorageError:
    return StorageError(
        f"the entry at position {position} cannot be read: {error}",
        suggestion="It is damaged or was written by a newer memlog. Run `memlog verify`; "
        "upgrade memlog, or restore the project from a backup.",
    )
