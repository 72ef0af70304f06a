"""Access tokens of an OAuth authorization server: JSON Web Tokens, checked against its published keys.

Promises that a token counts only if the issuer signed it, for this very resource (RFC 8707: `aud`, its address or what
the issuer calls it; at the address of a project also that one, for this project alone), and that it has not expired.
Its scopes say what it grants:

    memlog:read  memlog:write  memlog:admin     one right; the highest counts, without one nothing is granted
    memlog:project:NAME  memlog:toolset:NAME    narrows it to those named; otherwise all

Before each may stand the resource and a slash, or what clients are told to put there. A token with another scope that
begins with `memlog:` does not count: it may have been meant to narrow. `oauth:` and the subject (`sub`) is the actor.
Claims of another shape than theirs count for nothing. Keys are fetched when an unknown one is named, when one did not
sign what names it, at the start, and when they are older than `KEYS_SECONDS`, so that one which was withdrawn counts no
more; but not more often than every `FETCH_SECONDS`, so that nobody makes this server knock at the other by inventing
tokens. Those that are there count until others can be had. Until the first are there nobody can tell whether a token is
good, and none is called bad.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
from contextlib import suppress
from http.client import HTTPException
from typing import Annotated, Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import anyio
import jwt
import msgspec
from starlette.authentication import AuthenticationError

from memlog import __version__
from memlog.canonical import canonical
from memlog.errors import InvalidParameter, shorten
from memlog.settings import TOOLSETS
from memlog.times import LATEST_US
from server.http.hosts import is_loopback
from server.http.resource import ADDRESS, Metadata, Place, spelt_otherwise
from server.rights.grants import OAUTH, RIGHTS, Grant
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
LEEWAY_SECONDS = 30.0
"""By so much may the issuer's clock and this one differ."""

FETCH_TIMEOUT_SECONDS = 5.0
FETCH_SECONDS_MAX = 10.0
"""For all that a fetch takes: an issuer that sends a byte now and then would go on without end."""
FETCHED_BYTES_MAX = 1_000_000
SUBJECT_CHARACTERS_MAX = 255
_SCOPE = "memlog:"
_HEADERS = {"Accept": "application/json", "User-Agent": f"memlog/{__version__}"}
"""By its own name: what stands before some authorization servers refuses `Python-urllib` with 403."""
_NARROWING = re.compile("(project|toolset):.+", re.DOTALL)
SCOPES = [f"{_SCOPE}{right}" for right in RIGHTS]

logger = logging.getLogger("memlog.http.oauth")


class Claims(msgspec.Struct):
    """What counts of a token's claims. Scopes are one text (RFC 9068) or a list; `exp` and `iat` are seconds since
    1970, and nothing follows from the latter."""

    sub: Annotated[str, msgspec.Meta(min_length=1, max_length=SUBJECT_CHARACTERS_MAX)]
    exp: Annotated[float, msgspec.Meta(le=LATEST_US // 1_000_000)]
    iat: float | None = None
    scope: str | list[str] | None = None
    scp: str | list[str] | None = None

    def __post_init__(self) -> None:
        for text in (self.sub, *self.scopes):
            text.encode()  # a lone surrogate, which no answer and no log could carry, is a ValueError

    @property
    def scopes(self) -> list[str]:
        given = self.scp if self.scope is None else self.scope
        return given.split() if isinstance(given, str) else given or []


class InsufficientScope(Exception):
    """A token that counts and grants nothing; `actor` is whose it is."""

    def __init__(self, actor: str, scopes: list[str]) -> None:
        given = (
            f"none of its scopes ({shorten(' '.join(scopes))})"
            if scopes
            else "it has no scope that"
        )
        super().__init__(f"{given} is one of {', '.join(SCOPES)}")
        self.actor = actor


class NoKeys(AuthenticationError):
    """Whether a token counts cannot be told; perhaps in `retry_s`."""

    def __init__(self, issuer: str, retry_s: int) -> None:
        super().__init__(f"The keys of {issuer} could not be had so far")
        self.retry_s = retry_s


class Issuer:
    """One authorization server, and the address that its tokens must be for, or what it calls that in `aud`."""

    def __init__(
        self, issuer: str, resource: str, audience: str = "", scope_prefix: str = ""
    ) -> None:
        for name, url in (("MEMLOG_OAUTH_ISSUER", issuer), ("MEMLOG_OAUTH_RESOURCE", resource)):
            parts = _parts(url)
            if "@" in parts.netloc:  # strangers are told both addresses
                raise InvalidParameter(
                    f"{name} names a user before its host",
                    suggestion="Say it without, as the tokens of the authorization server do.",
                )
            if not parts.hostname or not _is_secure(url) or not _is_address(url):
                raise InvalidParameter(
                    f"{name} is {url!r}: it must be an https:// address",
                    suggestion="Set both the issuer and the address under which clients reach this "
                    "server, such as https://memory.example.com/mcp.",
                )
        self.issuer, self.resource = issuer, resource
        self.audience = audience or resource
        self._is_named = bool(audience)
        self._audiences = [self.audience, *([] if audience else spelt_otherwise(resource))]
        self.scopes = [f"{scope_prefix}{each}" for each in SCOPES]
        """As clients ask for them; in a token they may stand without the prefix."""
        # Clients ask for all that it lists, and few need the last, by which projects are deleted.
        self.metadata = Metadata(resource, issuer, self.scopes[:-1])
        self._prefixes = (scope_prefix, f"{resource}/")
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_s = self._had_s = -math.inf
        self._fetching = anyio.Lock()
        self._on_its_way = threading.Lock()
        """Held by the thread that fetches, also while nobody waits for it any more."""
        self._expiring: dict[Grant, float] = {}

    async def granted(self, token: str, place: Place | None = None) -> Grant | None:
        """What the token grants at this address; None for one that does not count. Raises InsufficientScope and
        NoKeys."""
        # An issuer that has a name of its own for this server knows no addresses.
        here = frozenset[str]() if place is None or self._is_named else place.audiences
        try:
            name = jwt.get_unverified_header(token).get("kid")
            found = await self._signed(token, name, [*self._audiences, *here])
            if found is None:
                logger.info(
                    "an access token was refused: its key %r is not among those of %s, which is asked again in %s s",
                    "(without a name)" if name is None else shorten(name),
                    self.issuer,
                    self._retry_s(),
                )
                return None
            claims = msgspec.convert(found, Claims)
        except (jwt.PyJWTError, TypeError, ValueError) as error:  # an algorithm for other keys, too
            logger.info("an access token was refused: %s", self._fault(error, token))
            return None
        meant = {found["aud"]} if isinstance(found["aud"], str) else set(found["aud"])
        alone = place is not None and meant.isdisjoint(self._audiences)
        prefixes = tuple(f"{each}/" for each in sorted(meant & here)) if alone else ()
        grant = grant_of(claims, (*self._prefixes, *prefixes))
        if grant is not None and place is not None and alone:
            grant = grant.within(canonical(place.project))
        if grant is not None:
            until = claims.exp + LEEWAY_SECONDS
            self._expiring[grant] = max(until, self._expiring.get(grant, until))
        return grant

    async def _signed(
        self, token: str, name: str | None, audiences: list[str]
    ) -> dict[str, Any] | None:
        """The token's claims; None where its key is not known. Raises PyJWTError and NoKeys."""
        key = await self._key(name)
        if key is None:
            return None
        try:
            return self._decoded(token, key, audiences)
        except jwt.InvalidSignatureError:
            # An issuer that makes its key anew may give it the name of the one before, or none.
            other = await self._key(name, but=key)
            if other is None or other is key:
                raise
            return self._decoded(token, other, audiences)

    def _decoded(self, token: str, key: jwt.PyJWK, audiences: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = jwt.decode(
            token,
            key.key,
            algorithms=ALGORITHMS,
            audience=audiences,
            issuer=self.issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"], "verify_iat": False},
        )
        return found

    def _fault(self, error: Exception, token: str) -> str:
        """What is wrong with a token and what mends it, for who runs this: whoever sent it is not told."""
        if token.count(".") != 2:
            return (
                "it is none of `memlog token`, and no signed JSON Web Token: the authorization server may issue "
                f"opaque or encrypted ones until it knows {self.resource} as a resource"
            )
        no_audience = isinstance(error, jwt.MissingRequiredClaimError) and error.claim == "aud"
        if not no_audience and not isinstance(
            error, (jwt.InvalidAudienceError, jwt.InvalidIssuerError)
        ):
            return str(error)
        claims = jwt.decode(token, options={"verify_signature": False})  # it was, before these two
        if isinstance(error, jwt.InvalidIssuerError):
            return f"its issuer is {_shown(claims['iss'])}, and MEMLOG_OAUTH_ISSUER {self.issuer}"
        audience = f"for {_shown(claims['aud'])}" if claims.get("aud") else "for nobody it names"
        return (
            f"it is {audience}, not for {self.audience}: the authorization server has to put that into `aud`, "
            "or MEMLOG_OAUTH_AUDIENCE to name what it puts there for this server and no other"
        )

    async def look_first(self) -> None:
        """Before there is a token: of an issuer that is not spelt as its metadata has it clients bring none, and the
        log would not tell why."""
        async with self._fetching:
            await self._look()
            if not self._keys:
                self._fetched_s = -math.inf  # it may begin together with this server

    def still_holds(self, grant: Grant) -> bool:
        """Whether a token with this grant was seen that has not expired."""
        now = time.time()
        self._expiring = {each: until for each, until in self._expiring.items() if until > now}
        return grant in self._expiring

    async def _key(self, name: str | None, but: jwt.PyJWK | None = None) -> jwt.PyJWK | None:
        """The key of this name, looked for anew where it is unknown, or that one, which is not right. Raises NoKeys
        where there never was any."""
        # Who has a key that is known does not wait while another looks whether it still is.
        if self._known(name) in (None, but) or (self._are_old() and not self._fetching.locked()):
            async with self._fetching:
                if (self._known(name) in (None, but) or self._are_old()) and not self._wait_s():
                    await self._look()
        if not self._keys:
            raise NoKeys(self.issuer, self._retry_s())
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

    def _retry_s(self) -> int:
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
        try:
            found = jwt.PyJWKSet.from_dict(_known_to_jwt(_fetched(keys_at)))
        except jwt.PyJWTError as error:
            raise ValueError(f"{keys_at}: {error}") from error
        keys = {str(key.key_id or ""): key for key in found.keys if _signs(key)}
        if not keys:
            raise ValueError(f"{keys_at} holds none that signs tokens")
        return keys


def grant_of(claims: Claims, prefixes: tuple[str, ...] = ()) -> Grant | None:
    """What these claims grant; None where they do not count. Raises InsufficientScope."""
    # Amazon Cognito puts a prefix before each scope, which narrows there as well as without.
    scopes = [_without(prefixes, each) for each in claims.scopes]
    named = [each.removeprefix(_SCOPE) for each in scopes if each.startswith(_SCOPE)]
    unknown = [each for each in named if each not in RIGHTS and not _NARROWING.fullmatch(each)]
    if unknown:
        logger.info("an access token was refused: no such scope as %s%s", _SCOPE, unknown[0])
        return None
    rights = [right for right in RIGHTS if right in named]
    if not rights:
        raise InsufficientScope(f"{OAUTH}{claims.sub}", claims.scopes)
    # Scopes in any order, or said twice, are the same grant (RFC 6749, 3.3): a session goes on with it.
    projects = tuple(sorted({each[8:] for each in named if each.startswith("project:")}))
    toolsets = {each[8:] for each in named if each.startswith("toolset:")}
    known = tuple(each for each in TOOLSETS if each in toolsets)
    return Grant(
        f"{OAUTH}{claims.sub}",
        rights[-1],
        projects or None,
        known if toolsets else None,
    )


def _without(prefixes: tuple[str, ...], scope: str) -> str:
    """The scope without that of these which stands before `memlog:`."""
    found = (each for each in prefixes if scope.startswith(f"{each}{_SCOPE}"))
    return scope.removeprefix(next(found, ""))


def _shown(claim: object) -> str:
    return str(shorten(str(claim)))


def _known_to_jwt(published: dict[str, Any]) -> dict[str, Any]:
    """The same keys, of which those for Ed25519 are for EdDSA, as PyJWT calls it."""
    keys = published.get("keys")
    if isinstance(keys, list):
        keys = [
            {**each, "alg": "EdDSA"}
            if isinstance(each, dict) and each.get("alg") == "Ed25519"
            else each
            for each in keys
        ]
    return {**published, "keys": keys}


def _signs(key: jwt.PyJWK) -> bool:
    return key.public_key_use != "enc" and key.algorithm_name in ALGORITHMS


def _fetched(address: str) -> dict[str, Any]:
    """Raises ValueError, which names the address."""
    if not _is_secure(address):
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


def _parts(address: str) -> SplitResult:
    """Those of no address where it is none, as with a bracket that is not closed."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_address(address: str) -> bool:
    """Whether it can be told to clients; not where its port is none, or a host can have no such name."""
    try:
        ADDRESS.validate_python(address)
    except ValueError:
        return False
    return True


def _is_secure(address: str) -> bool:
    parts = urlsplit(address)
    plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
    return parts.scheme == "https" or plain


class _Secure(HTTPRedirectHandler):
    """Follows to no address that would not be fetched itself: what comes over plain HTTP anybody on the way writes."""

    def redirect_request(
        self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not _is_secure(newurl):
            raise HTTPError(newurl, code, f"{newurl} is not https", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = build_opener(_Secure)
