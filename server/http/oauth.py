"""Access tokens of an OAuth authorization server: JSON Web Tokens, checked against its published keys.

Promises that a token counts only if the issuer signed it, for this very resource (RFC 8707: `aud`, its address or what
the issuer calls it; at the address of a project also that one, for this project alone), and that it has not expired.
Its scopes say what it grants:

    memlog:read  memlog:write  memlog:admin     one right; the highest counts, without one nothing is granted
    memlog:project:NAME  memlog:toolset:NAME    narrows it to those named; otherwise all

Before each may stand the resource and a slash, or what clients are told to put there. A token with another scope that
begins with `memlog:` does not count: it may have been meant to narrow. `oauth:` and the subject (`sub`) is the actor.
Claims of another shape than theirs count for nothing. Left to `keys`: which keys the issuer has.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

import jwt
import msgspec

from memlog.canonical import canonical
from memlog.errors import InvalidParameter, shorten
from memlog.settings import TOOLSETS
from memlog.times import LATEST_US
from server.http.keys import ALGORITHMS, Keys, is_secure
from server.http.resource import ADDRESS, Metadata, Place, spelt_otherwise
from server.rights.grants import OAUTH, RIGHTS, Grant

LEEWAY_SECONDS = 30.0
"""By so much may the issuer's clock and this one differ."""

SUBJECT_CHARACTERS_MAX = 255
_SCOPE = "memlog:"
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
            if not parts.hostname or not is_secure(url) or not _is_address(url):
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
        self.keys = Keys(issuer)
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
                    self.keys.retry_s(),
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
        key = await self.keys.named(name)
        if key is None:
            return None
        try:
            return self._decoded(token, key, audiences)
        except jwt.InvalidSignatureError:
            # An issuer that makes its key anew may give it the name of the one before, or none.
            other = await self.keys.named(name, but=key)
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

    def still_holds(self, grant: Grant) -> bool:
        """Whether a token with this grant was seen that has not expired."""
        now = time.time()
        self._expiring = {each: until for each, until in self._expiring.items() if until > now}
        return grant in self._expiring


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
