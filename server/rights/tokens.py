"""Bearer tokens: a file of names, grants and hashes, never of the tokens themselves.

A token is 256 random bits, so a plain SHA-256 of it tells nobody anything. It is shown once, when it is
made. Several processes may change the file; a server looks at it again whenever it has changed, so a
revoked token is refused at once. A file that cannot be read lets nobody in.
"""

from __future__ import annotations

import errno
import hmac
import logging
import secrets
import time
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISREG, S_IWGRP, S_IWOTH
from typing import Annotated

import msgspec
from filelock import FileLock

from memlog.closest import did_you_mean
from memlog.errors import InvalidParameter, StorageError
from memlog.settings import Settings
from memlog.shell import command_line
from memlog.storage.disk import NotSynced, led_to, make_private, write_whole
from memlog.storage.errors import reason, storage_error
from memlog.storage.structure import Stamp, stamp
from memlog.times import iso
from server.rights.grants import ENVIRONMENT, OAUTH, Grant, Right

PREFIX = "memlog_"
FILE_NAME = "tokens.json"
GIVEN_CHARACTERS_MIN = 32
"""Of a token that somebody chose: the environment's is not made here."""

OF_OTHERS = S_IRWXG | S_IRWXO

logger = logging.getLogger("memlog.tokens")


class Token(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is kept of a token. Times are ISO 8601, UTC; `expires_us` microseconds since 1970. A key that is not known
    may be one that was meant to narrow, misspelt."""

    name: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    right: Right
    created: str
    projects: tuple[str, ...] | None = None
    toolsets: tuple[str, ...] | None = None
    expires_us: int | None = None

    @property
    def grant(self) -> Grant:
        return Grant(self.name, self.right, self.projects, self.toolsets, self.sha256)

    @property
    def expired(self) -> bool:
        return self.expires_us is not None and self.expires_us <= time.time_ns() // 1_000


class _Kept(msgspec.Struct, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()


def tokens_path(settings: Settings) -> Path:
    return settings.tokens_file or settings.data_dir / FILE_NAME


def digest(token: str) -> str:
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    """The tokens of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: Stamp | None = None
        self._tokens: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """Those in the file now. Raises StorageError where it cannot be read."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return ()
        except OSError as error:
            raise self._unreadable(error) from error
        if not S_ISREG(status.st_mode):  # a pipe would be waited for
            raise self._unreadable("it is no file")
        if (seen := stamp(status)) != self._seen:
            self._tokens = self._read()
            self._seen = seen
            if (open_to_others := self.open_to_others()) is not None:
                logger.warning("%s", open_to_others)
        return self._tokens

    def open_to_others(self) -> str | None:
        """What to tell who runs this where other users may read or write the file; else None."""
        try:
            mode = S_IMODE(self.path.stat().st_mode)
        except OSError:  # who reads it says so
            return None
        if not mode & OF_OTHERS:
            return None
        may = "write" if mode & (S_IWGRP | S_IWOTH) else "read"
        return (
            f"Other users of this machine may {may} {self.path} (mode {mode:04o}). Unless that is meant: "
            f"{command_line('chmod 600', self.path)}"
        )

    def find(self, token: str) -> Token | None:
        """Whose token this is. The time it takes does not depend on how much of one was guessed."""
        given = digest(token)
        found = None
        for each in self.all():
            if hmac.compare_digest(each.sha256, given):
                found = each
        return None if found is None or found.expired else found

    def new(self, grant: Grant, *, expires_us: int | None = None) -> str:
        """Makes a token for the grant, whose name no other has, and returns it, the only time."""
        assert grant.name is not None
        if grant.name == ENVIRONMENT or grant.name.startswith(OAUTH):
            raise InvalidParameter(
                f"{grant.name!r} is the name under which others write who come without a token of this file",
                suggestion="Choose another name: it stands as the actor on every event.",
            )
        token = PREFIX + secrets.token_urlsafe(32)
        with self._changing():
            tokens = self.all()
            if any(each.name == grant.name for each in tokens):
                raise InvalidParameter(
                    f"There is a token named {grant.name!r} already",
                    suggestion=f"Revoke it first (`memlog token revoke {grant.name}`), or choose "
                    "another name.",
                )
            made = Token(
                grant.name,
                digest(token),
                grant.right,
                iso(time.time_ns() // 1_000),
                grant.projects,
                grant.toolsets,
                expires_us,
            )
            self._write((*tokens, made))
        return token

    def revoke(self, name: str) -> None:
        with self._changing():
            tokens = self.all()
            left = tuple(each for each in tokens if each.name != name)
            if len(left) == len(tokens):
                names = [each.name for each in tokens]
                raise InvalidParameter(
                    f"There is no token named {name!r}",
                    suggestion=did_you_mean(name, names) or "`memlog token list` shows all.",
                )
            self._write(left)

    def _changing(self) -> AbstractContextManager[object]:
        file = led_to(self.path)  # whoever changes it under another name waits, too
        lock = file.with_name(file.name + ".lock")
        try:
            make_private(lock.parent)
            return FileLock(lock).acquire()
        except OSError as error:
            raise StorageError(
                f"{lock}: {reason(lock, error)}", suggestion=storage_error(lock, error).suggestion
            ) from error

    def _read(self) -> tuple[Token, ...]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Kept).tokens
        except (OSError, ValueError, RecursionError) as error:  # no JSON, or no text
            raise self._unreadable(error) from error

    def _unreadable(self, why: Exception | str) -> StorageError:
        suggestion: str | None = "Mend the file, or remove it and make the tokens anew."
        if isinstance(why, OSError) and why.errno != errno.ELOOP:  # else the file is wrong
            suggestion = storage_error(self.path, why).suggestion
        told = reason(self.path, why) if isinstance(why, Exception) else why
        return StorageError(
            f"The tokens in {self.path} cannot be read: {told}", suggestion=suggestion
        )

    def _write(self, tokens: tuple[Token, ...]) -> None:
        text = msgspec.json.format(msgspec.json.encode(_Kept(tokens)), indent=2)
        try:
            write_whole(led_to(self.path), text + b"\n")  # which others may read by its own name
        except NotSynced as error:  # it is done: a new token must be shown, the only time
            logger.warning(
                "%s is written, but a loss of power may bring back what it was before: %s",
                self.path,
                reason(self.path, error),
            )
        except OSError as error:
            raise storage_error(self.path, error) from error
