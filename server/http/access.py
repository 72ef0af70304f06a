"""Who is let in: from a bearer token to a grant.

Tokens come from the environment, from the file of `memlog token`, or from the authorization server
that was named. Where none of them is set up everybody who reaches the address is let in, and the
address is the loopback's. Reading the header and refusing with 401 and WWW-Authenticate is the SDK's.
"""

from __future__ import annotations

import hmac
import logging
import re
from typing import NamedTuple

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend
from mcp.server.auth.provider import AccessToken
from pydantic import InstanceOf
from starlette.authentication import AuthCredentials, AuthenticationBackend
from starlette.requests import HTTPConnection
from starlette.types import Scope

from memlog.errors import InvalidParameter, MemlogError
from memlog.settings import Settings
from memlog.storage.disk import stands
from server.http.oauth import InsufficientScope, Issuer
from server.http.resource import place_of
from server.rights.grants import ENVIRONMENT, EVERYTHING, Grant
from server.rights.tokens import GIVEN_CHARACTERS_MIN, Tokens, digest, tokens_path

_SENDABLE = re.compile("[ -~]*")
"""Beyond ASCII, clients do not agree on how a header says it."""

logger = logging.getLogger("memlog.http.access")


class Admitted(AccessToken):
    """A token as the SDK wants it, with what it grants."""

    grant: InstanceOf[Grant]


class Access(AuthenticationBackend):
    """Who sent a request, for tokens of every kind."""

    def __init__(self, settings: Settings) -> None:
        _require_sendable(settings.token)
        named = {
            "RESOURCE": settings.oauth_resource,
            "AUDIENCE": settings.oauth_audience,
            "SCOPE_PREFIX": settings.oauth_scope_prefix,
        }
        alone = [name for name, value in named.items() if value and not settings.oauth_issuer]
        if alone:  # whoever names it wants tokens
            raise InvalidParameter(
                f"MEMLOG_OAUTH_{alone[0]} is set and MEMLOG_OAUTH_ISSUER is not",
                suggestion="Name the authorization server whose tokens are taken, or take both away.",
            )
        self._given = digest(settings.token) if settings.token else None
        self._tokens = Tokens(tokens_path(settings))
        self.issuer = (
            Issuer(
                settings.oauth_issuer,
                settings.oauth_resource,
                settings.oauth_audience,
                settings.oauth_scope_prefix,
            )
            if settings.oauth_issuer
            else None
        )
        filed = settings.tokens_file is not None  # which is to hold tokens, be it there or not yet
        self._required = bool(self._given or self.issuer or filed)
        self._required = self.required  # one that goes away before the first request counts
        self._hosts = settings.allowed_hosts
        self.usable = bool(self._given or self.issuer or self._tokens.all())
        """Whether anybody at all could be let in with a token."""

    @property
    def shut(self) -> str | None:
        """What to tell who runs this where a token is asked for, and there is none; else None."""
        if self.usable or not self.required:
            return None
        return (
            f"Nobody is let in over HTTP, for there is no token in {self._tokens.path}: make one with "
            "`memlog token new NAME`, or name another file by MEMLOG_TOKENS_FILE"
        )

    @property
    def open(self) -> str | None:
        """What to tell who runs this where others are to come, and no token is asked for; else None."""
        if not self._hosts or self.required:
            return None
        return (
            f"Whoever reaches {', '.join(self._hosts)} may do everything, for no token is asked for: make one with "
            "`memlog token new NAME`, unless what stands in front asks who comes"
        )

    @property
    def required(self) -> bool:
        """From the first token on, while it serves too. A file whose last token was revoked still asks
        for one: nobody is let in then."""
        # Once and for all: a file that goes away while it serves opens no door.
        try:
            self._required = self._required or stands(self._tokens.path)
        except OSError:  # nobody knows, until it can be looked at again
            return True
        return self._required

    async def authenticate(
        self, conn: HTTPConnection
    ) -> tuple[AuthCredentials, AuthenticatedUser] | None:
        found: tuple[AuthCredentials, AuthenticatedUser] | None
        if self.issuer and conn.headers.get("authorization", "")[:5].lower() == "dpop ":
            logger.info(
                "an access token was refused: it came as DPoP (RFC 9449), and only Bearer is taken: "
                "have the authorization server bind no tokens for this server to keys"
            )
        found = await BearerAuthBackend(_Shown(self, conn.scope)).authenticate(conn)
        return found

    async def verified(self, token: str, scope: Scope) -> Admitted | None:
        """What the token grants where it was shown."""
        if self._given is not None and hmac.compare_digest(digest(token), self._given):
            return _admitted(token, Grant(ENVIRONMENT))
        try:
            found = self._tokens.find(token)
            if found is not None:
                return _admitted(token, found.grant)
            if self.issuer is not None:
                place = place_of(scope, self.issuer.resource)
                granted = await self.issuer.granted(token, place)
                return None if granted is None else _admitted(token, granted)
        except InsufficientScope as error:
            logger.info("an access token of %s was refused: %s", error.actor, error)
            nothing = Grant(error.actor, "read", (), ())
            return Admitted(token=token, client_id=error.actor, scopes=[], grant=nothing)
        except MemlogError as error:
            logger.error("nobody is let in: %s", error.message)
        return None

    def is_insufficient(self, scope: Scope) -> bool:
        """Whether the token of a request counts and grants nothing."""
        user = scope.get("user")
        return isinstance(user, AuthenticatedUser) and not user.scopes

    def granted(self, scope: Scope) -> Grant:
        """What a request that came through may do."""
        user = scope.get("user")
        if isinstance(user, AuthenticatedUser) and isinstance(user.access_token, Admitted):
            return user.access_token.grant
        return EVERYTHING  # nobody needs a token: where one is required, the SDK lets in nobody without

    def still_holds(self, grant: Grant) -> bool:
        """Whether a token of the file, or whatever else it was, still grants this."""
        if not self.required or (self._given and grant == Grant(ENVIRONMENT)):
            return True
        try:
            kept = any(each.grant == grant and not each.expired for each in self._tokens.all())
        except MemlogError:
            return False
        return kept or (self.issuer is not None and self.issuer.still_holds(grant))


class _Shown(NamedTuple):
    """The SDK's `TokenVerifier`, for one request."""

    access: Access
    scope: Scope

    async def verify_token(self, token: str) -> Admitted | None:
        return await self.access.verified(token, self.scope)


def client_of(grant: Grant, scope: Scope) -> str:
    """Whose a request is, where everybody gets a share: its token's, without one its address's."""
    return grant.name or (scope.get("client") or ("",))[0]


def _require_sendable(token: str) -> None:
    """Raises InvalidParameter for a token of the environment that is short, or that no client could send."""
    if token and len(token) < GIVEN_CHARACTERS_MIN:
        wrong = f"is shorter than {GIVEN_CHARACTERS_MIN} characters"
    elif token != token.strip() or not _SENDABLE.fullmatch(token):
        wrong = "has white space at an end, or a character that no header carries"
    else:
        return
    raise InvalidParameter(
        f"MEMLOG_TOKEN {wrong}",
        suggestion="Make one that nobody guesses: openssl rand -base64 32",
    )


def _admitted(token: str, grant: Grant) -> Admitted:
    assert grant.name is not None
    return Admitted(token=token, client_id=grant.name, scopes=[grant.right], grant=grant)
