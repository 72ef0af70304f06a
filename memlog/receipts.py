"""Receipts: what was answered to a command whose id the client chose, so that a retry is answered again.

They stand in the project's file and are written in the transaction of their command. A receipt is kept under
the SHA-256 of the command id, and knows the SHA-256 of its command.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import lmdb
import msgspec

from memlog.commands import AnyCommand
from memlog.errors import Conflict


class Receipt(msgspec.Struct, frozen=True, array_like=True):
    command: bytes
    answer: Any


class Receipts:
    """Those of one project, inside one transaction."""

    def __init__(self, transaction: lmdb.Transaction, database: lmdb._Database) -> None:
        self._transaction = transaction
        self._database = database

    def find(self, command_id: str, command: AnyCommand) -> Receipt | None:
        """Raises Conflict where the id was used for another command."""
        stored = self._transaction.get(_key(command_id), db=self._database)
        if stored is None:
            return None
        receipt = msgspec.msgpack.decode(stored, type=Receipt)
        if receipt.command != _fingerprint(command):
            raise Conflict(
                f"Command id {command_id!r} was used before, for another command",
                suggestion="Use a fresh command id; repeat one only to retry the very same call.",
            )
        return receipt

    def keep(self, command_id: str, command: AnyCommand, answer: object) -> None:
        receipt = msgspec.msgpack.encode(Receipt(_fingerprint(command), answer))
        self._transaction.put(_key(command_id), receipt, db=self._database)


def _fingerprint(command: AnyCommand) -> bytes:
    return sha256(type(command).__name__.encode() + msgspec.msgpack.encode(command)).digest()


def _key(command_id: str) -> bytes:
    return sha256(command_id.encode()).digest()
