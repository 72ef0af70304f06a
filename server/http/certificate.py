"""The certificate of a server that has TLS of its own: read at the start, and anew whenever somebody asks for that.

Promises that whoever opens TLS is shown one certificate with its key and chain, the newest that could be read: they
change as one, also from one kind of key to another, of which OpenSSL would keep both. And that the log tells who could
not open TLS and why, as far as that is known here; asyncio is silent about it.
"""

from __future__ import annotations

import logging
import math
import ssl
import time
from pathlib import Path
from typing import NoReturn

from memlog.errors import InvalidParameter
from memlog.settings import Settings
from server.http.listening import CLIENT

TOLD_AGAIN_SECONDS = 1.0
"""Of those who cannot open TLS one in so long is told of: anybody may fail at it as often as he likes."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: OpenSSL's own choice has some beside that chain blocks, which are weaker (LUCKY13) and nobody needs."""

logger = logging.getLogger("memlog.http")


class Certificate:
    """`context` is for those who open TLS."""

    def __init__(self, cert: Path, key: Path) -> None:
        """Raises InvalidParameter where they cannot be used."""
        self._cert, self._key = cert, key
        self.context = self._newest = self._read()
        self.context.sslobject_class = _Opening
        self.context.sni_callback = self._show  # is called for clients that name no server, too

    def renew(self) -> None:
        """Reads both files again. Raises InvalidParameter where they cannot be used; those of before stay."""
        self._newest = self._read()

    def _show(self, opening: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        opening.context = self._newest

    def _read(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.set_ciphers(CIPHERS)
        try:
            for file in (self._cert, self._key):
                file.open("rb").close()  # names the one that cannot be read, as ssl does not
            context.load_cert_chain(self._cert, self._key, password=_no_password)
        except OSError as error:  # SSLError is one
            raise InvalidParameter(
                f"The certificate in {self._cert} with the key in {self._key} cannot be used: {error}",
                suggestion="--tls-cert is a PEM file with the chain, --tls-key one with its key, "
                "without a password.",
            ) from error
        return context


def certificate(settings: Settings) -> Certificate | None:
    """That of the settings; None where TLS is somebody else's. Raises InvalidParameter."""
    if settings.tls_cert and settings.tls_key:
        return Certificate(settings.tls_cert, settings.tls_key)
    return None


def _no_password() -> NoReturn:
    """In place of asking for it at the terminal."""
    raise OSError("the key has a password")


class _Opening(ssl.SSLObject):
    """One connection on which TLS is opened."""

    _told_s = -math.inf

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._tell(error)
            raise

    def _tell(self, error: ssl.SSLError) -> None:
        now_s = time.monotonic()
        if now_s - _Opening._told_s >= TOLD_AGAIN_SECONDS:
            _Opening._told_s = now_s
            logger.info("TLS was not opened from %s: %s", CLIENT.get(), error)
