"""The keys that an authorization server publishes, fetched over HTTP and kept.

They are fetched at the start, when an unknown one is named, when one did not sign what names it, and when they are
older than `KEYS_SECONDS`, so that one which was withdrawn counts no more; but not more often than every
`FETCH_SECONDS`, so that nobody makes this server knock at the other by inventing tokens. Those that are there count
until others can be had. Until the first are there nobody can tell whether a token is good, and none is called bad.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import anyio
import jwt
from starlette.authentication import AuthenticationError

from memlog import __version__
from memlog.errors import shorten
from server.http.hosts import is_loopback
from server.threads import NoThread, in_thread

ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
]
with suppress(ValueError):  # RFC 9864: a name for EdDSA with that curve, which PyJWT has not yet
    jwt.register_algorithm("Ed25519", jwt.algorithms.OKPAlgorithm())

FETCH_SECONDS = 30.0
KEYS_SECONDS = 600.0
FETCH_TIMEOUT_SECONDS = 5.0
FETCH_SECONDS_MAX = 10.0
"""For all that a fetch takes: an issuer that sends a byte now and then would go on without end."""
FETCHED_BYTES_MAX = 1_000_000
_HEADERS = {"Accept": "application/json", "User-Agent": f"memlog/{__version__}"}
"""By its own name: what stands before some authorization servers refuses `Python-urllib` with 403."""

logger = logging.getLogger("memlog.http.oauth")


class NoKeys(AuthenticationError):
    """Whether a token counts cannot be told; perhaps in `retry_s`."""

    def __init__(self, issuer: str, retry_s: int) -> None:
        super().__init__(f"The keys of {issuer} could not be had so far")
        self.retry_s = retry_s


class Keys:
    """Those of one issuer, by the name that tokens give theirs."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s = self._had_s = -math.inf
        self._fetching = anyio.Lock()
        self._on_its_way = threading.Lock()
        """Held by the thread that fetches, also while nobody waits for it any more."""

    async def look_first(self) -> None:
        """Before there is a token: of an issuer that is not spelt as its metadata has it clients bring none, and the
        log would not tell why."""
        async with self._fetching:
            await self._look()
            if not self._keys:
                self._fetched_s = -math.inf  # it may begin together with this server

    async def named(self, name: str | None, but: jwt.PyJWK | None = None) -> jwt.PyJWK | None:
        """The key of this name, looked for anew where it is unknown, or that one, which is not right. Raises NoKeys
        where there never was any."""
        # Who has a key that is known does not wait while another looks whether it still is.
        if self._known(name) in (None, but) or (self._are_old() and not self._fetching.locked()):
            async with self._fetching:
                if (self._known(name) in (None, but) or self._are_old()) and not self._wait_s():
                    await self._look()
        if not self._keys:
            raise NoKeys(self.issuer, self.retry_s())
        return self._known(name)

    async def _look(self) -> None:
        self._fetched_s = time.monotonic()
        try:
            self._keys = await self._fetched_in_time()
            self._had_s = time.monotonic()
        except (ValueError, NoThread) as error:
            logger.warning("the keys of %s cannot be had: %s", self.issuer, error)

    def _known(self, name: str | None) -> jwt.PyJWK | None:
        if name is None and len(self._keys) == 1:  # whoever has but one need not name it
            return next(iter(self._keys.values()))
        return self._keys.get(name or "")

    async def _fetched_in_time(self) -> dict[str, jwt.PyJWK]:
        with anyio.move_on_after(FETCH_SECONDS_MAX):
            return await in_thread(self._fetch_alone, abandon_on_cancel=True)
        raise ValueError(f"they did not come within {FETCH_SECONDS_MAX:g} seconds")

    def _are_old(self) -> bool:
        return time.monotonic() - self._had_s >= KEYS_SECONDS

    def _wait_s(self) -> float:
        """How long until the issuer may be asked again."""
        return max(0.0, self._fetched_s + FETCH_SECONDS - time.monotonic())

    def retry_s(self) -> int:
        """The same in whole seconds, as clients are told."""
        return max(1, math.ceil(self._wait_s()))

    def _fetch_alone(self) -> dict[str, jwt.PyJWK]:
        # One thread may wait without end, not one each time.
        if not self._on_its_way.acquire(blocking=False):
            raise ValueError("what it was asked for before is still on its way")
        try:
            return self._fetch()
        finally:
            self._on_its_way.release()

    def _fetch(self) -> dict[str, jwt.PyJWK]:
        parts = urlsplit(self.issuer)
        base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
        known = (  # the three at which MCP has clients look
            f"{base}/.well-known/oauth-authorization-server{path}",  # RFC 8414
            f"{base}{path}/.well-known/openid-configuration",
            f"{base}/.well-known/openid-configuration{path}",
        )
        failures = []
        for address in dict.fromkeys(known):
            try:
                return self._keys_named_at(address)
            except ValueError as error:
                failures.append(str(error))
        raise ValueError("; ".join(failures))

    def _keys_named_at(self, address: str) -> dict[str, jwt.PyJWK]:
        """Those that the metadata there names. Raises ValueError with the address that is at fault."""
        metadata = _fetched(address)
        spoken_for, keys_at = metadata.get("issuer"), metadata.get("jwks_uri")
        if spoken_for != self.issuer:
            raise ValueError(
                f"{address} speaks for {shorten(spoken_for)!r}, which MEMLOG_OAUTH_ISSUER has to be "
                "letter by letter if it is the one meant"
            )
        if not isinstance(keys_at, str):
            raise ValueError(f"{address} names no jwks_uri")
        published = _fetched(keys_at).get("keys")
        found = map(_understood, published if isinstance(published, list) else ())
        keys = {str(key.key_id or ""): key for key in found if key is not None and _signs(key)}
        if not keys:
            raise ValueError(f"{keys_at} holds none that signs tokens")
        return keys


def _understood(published: Any) -> jwt.PyJWK | None:
    """The key, of which one for Ed25519 is for EdDSA, as PyJWT calls it. None of what is no key that it knows: of one
    that lacks a part, or is nothing of the kind, it raises what it stumbles over."""
    try:
        known = {**published, "alg": "EdDSA"} if published.get("alg") == "Ed25519" else published
        return jwt.PyJWK(known)
    except Exception:
        return None


def _signs(key: jwt.PyJWK) -> bool:
    return key.public_key_use != "enc" and key.algorithm_name in ALGORITHMS


def _fetched(address: str) -> dict[str, Any]:
    """Raises ValueError, which names the address."""
    if not is_secure(address):
        raise ValueError(f"{address} is not https")
    try:
        request = Request(address, headers=_HEADERS)
        with _OPENER.open(request, timeout=FETCH_TIMEOUT_SECONDS) as answer:
            said = answer.read(FETCHED_BYTES_MAX + 1)
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise ValueError(f"{address}: {error}") from error
    if len(said) > FETCHED_BYTES_MAX:
        raise ValueError(f"{address} holds more than {FETCHED_BYTES_MAX} bytes")
    try:
        found = json.loads(said)
    except RecursionError as error:
        raise ValueError(f"{address} holds JSON that is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"{address} holds no JSON") from error
    if not isinstance(found, dict):
        raise ValueError(f"{address} holds no JSON object")
    return found


def is_secure(address: str) -> bool:
    parts = urlsplit(address)
    plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
    return parts.scheme == "https" or plain


class _Secure(HTTPRedirectHandler):
    """Follows to no address that would not be fetched itself: what comes over plain HTTP anybody on the way writes."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not is_secure(newurl):
            raise HTTPError(newurl, code, f"{newurl} is not https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = build_opener(_Secure)
