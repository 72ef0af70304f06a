"""The addresses that access tokens are for (RFC 8707), and the metadata of each (RFC 9728).

The address that was set is all of the server; with `/p/NAME` behind it, it is the project NAME alone. Clients compare
the one in the metadata letter by letter with theirs (RFC 9728, 3.3), so it is told as it was asked for; and for every
name, for whether there is such a project is for those to know who have a token.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from mcp.server.auth.handlers.metadata import ProtectedResourceMetadataHandler
from mcp.server.auth.routes import build_resource_metadata_url, cors_middleware
from mcp.shared.auth import ProtectedResourceMetadata
from pydantic import AnyHttpUrl, ConfigDict, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

ADDRESS = TypeAdapter(AnyHttpUrl, config=ConfigDict(url_preserve_empty_path=True))
"""An address as it was written: clients compare issuers letter by letter (RFC 8414), slash or no slash."""


class Place(NamedTuple):
    """One project, the address at which it was asked for, and all spellings of that in a token."""

    project: str
    address: str
    audiences: frozenset[str]


def spelt_otherwise(resource: str) -> list[str]:
    """The same address with a slash for no path, or none for a slash: clients ask for either (RFC 3986, 6.2.3)."""
    parts = urlsplit(resource)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        return []
    return [resource.removesuffix("/") if parts.path else f"{resource}/"]


def place_of(scope: Scope, resource: str) -> Place | None:
    """The project that the path of a request is for; None where it is for all."""
    named = scope["path_params"].get("project")
    if named is None:
        return None
    raw = _raw_name(scope, named)
    name = names_meant(named, scope["raw_path"])[-1]
    spelt = {raw.removesuffix("/"), quote(name), quote(name, safe="")}
    # A slash at the end of an address is none of the name: one that has it is written `%2F`.
    both = [f"{each}{end}" for each in spelt if not each.endswith("/") for end in ("", "/")]
    return Place(name, _behind(resource, raw), frozenset(_behind(resource, each) for each in both))


def names_meant(asked: str, raw_path: bytes) -> tuple[str, ...]:
    """Those of the project that a path may mean: a name may have a slash at its end, and a path one too many."""
    shorter = asked.removesuffix("/")
    return (asked, shorter) if shorter and raw_path.endswith(b"/") else (asked,)


class Metadata(NamedTuple):
    """What clients are told of an issuer, at each address."""

    resource: str
    issuer: str
    scopes: list[str]

    def url(self, scope: Scope) -> AnyHttpUrl:
        """Where the metadata of the address is that was asked for."""
        return build_resource_metadata_url(self._resource(scope))

    def routes(self) -> list[Route]:
        path = urlsplit(str(self.url({"path_params": {}}))).path
        told = cors_middleware(self._told, ["GET", "OPTIONS"])
        named = f"{path.removesuffix('/')}/p/{{project:path}}"
        return [Route(each, told, methods=["GET", "OPTIONS"]) for each in (path, named)]

    async def _told(self, request: Request) -> Response:
        metadata = ProtectedResourceMetadata(
            resource=self._resource(request.scope),
            authorization_servers=[ADDRESS.validate_python(self.issuer)],
            scopes_supported=self.scopes,
            resource_name="memlog",
        )
        return await ProtectedResourceMetadataHandler(metadata).handle(request)

    def _resource(self, scope: Scope) -> AnyHttpUrl:
        place = place_of(scope, self.resource)
        return ADDRESS.validate_python(self.resource if place is None else place.address)


def _raw_name(scope: Scope, named: str) -> str:
    """How the request spelt the name, where its path says so."""
    before = scope["path"].removesuffix(named).count("/")
    raw: str = scope["raw_path"].decode("ascii").split("/", before)[-1]
    return raw if unquote(raw) == named else quote(named)


def _behind(resource: str, raw: str) -> str:
    parts = urlsplit(resource)
    return parts._replace(path=f"{parts.path.removesuffix('/')}/p/{raw}").geturl()
