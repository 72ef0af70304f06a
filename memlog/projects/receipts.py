"""Receipts: what was answered to a command whose id the client chose, so that a retry is answered again.

They stand in the project's file and are written in the transaction of their command. A receipt is kept under
the SHA-256 of the command id, and knows the SHA-256 of its command.

Where something is erased from the log, or lost with its end, all that is left of each receipt is that its id
was used, so that nothing is done twice. An answer may quote what goes. So may a command, and as there is
nothing random in it, its digest would prove a guess of it. Which of them speak of what goes cannot be told,
for a command need not have left an entry. The digest of an id proves a guess of the id; without it no retry
could be recognised, and whoever may send a command can try an id in any case. So an id should be random.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import lmdb
import msgspec

from memlog.commands import AnyCommand
from memlog.errors import Conflict
from memlog.storage.tables import LmdbRows
from memlog.times import iso


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    """`erased_us` is when something was erased or lost (microseconds since 1970): the rest is empty then."""

    command: bytes
    answer: Any
    erased_us: int | None = None


class Receipts:
    """Those of one project, inside one transaction."""

    def __init__(self, transaction: lmdb.Transaction, database: lmdb._Database) -> None:
        self._transaction = transaction
        self._database = database

    def find(self, command_id: str, command: AnyCommand) -> Receipt | None:
        """Raises Conflict where the id was used for another command, or nobody knows any more for which."""
        stored = self._transaction.get(_key(command_id), db=self._database)
        if stored is None:
            return None
        receipt = _decode(stored)
        if receipt.erased_us is not None:
            raise Conflict(
                f"Command id {command_id!r} was used before {iso(receipt.erased_us)}, when something was "
                "erased from this project for good, or lost; what was answered then is not kept",
                suggestion="Nothing was done now. Look at what is there, and send what is still to be "
                "done under a fresh command id.",
            )
        if receipt.command != _fingerprint(command):
            raise used_for_another(command_id)
        return receipt

    def require_unused(self, command_id: str) -> None:
        """Raises Conflict where the id was used for a command in this project."""
        if self._transaction.get(_key(command_id), db=self._database) is not None:
            raise used_for_another(command_id)

    def keep(self, command_id: str, command: AnyCommand, answer: object) -> None:
        receipt = msgspec.msgpack.encode(Receipt(_fingerprint(command), answer))
        self._transaction.put(_key(command_id), receipt, db=self._database)

    def forgotten(self, now_us: int) -> Iterator[tuple[bytes, bytes]]:
        """The rows to keep of them, in order of key, where something is erased now."""
        for key, stored in LmdbRows(self._transaction, self._database).scan(b""):
            since_us = _decode(stored).erased_us
            yield key, forgotten(now_us if since_us is None else since_us)


def used_for_another(command_id: str) -> Conflict:
    return Conflict(
        f"Command id {command_id!r} was used before, for another command",
        suggestion="Use a fresh command id; repeat one only to retry the very same call.",
    )


def forgotten(erased_us: int) -> bytes:
    """What is stored of a receipt of which nothing else is left."""
    return msgspec.msgpack.encode(Receipt(b"", None, erased_us))


def is_receipt(stored: bytes) -> bool:
    """Whether that is what it looks like: for rows of a damaged file, which may be of any table."""
    try:
        _decode(stored)
    except (msgspec.MsgspecError, ValueError):
        return False
    return True


_decode = msgspec.msgpack.Decoder(Receipt).decode


def _fingerprint(command: AnyCommand) -> bytes:
    """That of the command as a retry may spell it: with the name of its project or without, for the receipt stands in
    it, and the keys of objects in any order."""
    if "project" in command.__struct_fields__:
        command = msgspec.structs.replace(command, project=None)
    encoded = msgspec.msgpack.encode(command, order="deterministic")
    return sha256(type(command).__name__.encode() + encoded).digest()


def _key(command_id: str) -> bytes:
    return sha256(command_id.encode()).digest()
