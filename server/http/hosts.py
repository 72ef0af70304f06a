"""Which addresses the server answers to, and where it may listen.

A web page that a user of this machine opens may not reach the server under a name of its own (DNS
rebinding), so the Host header is one of those known, and so is the Origin, where there is one, on
every path and whatever address is bound. Who else may come in is left to `access`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import unquote

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from memlog.errors import InvalidParameter, shorten
from memlog.settings import Settings
from server.http.errors import refused

METHODS = ("POST", "GET", "DELETE")
"""Of requests to MCP."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_ANY_PORT = ":*"


def _security(settings: Settings) -> TransportSecuritySettings:
    own = [settings.http_host] if is_loopback(settings.http_host) else []
    names = dict.fromkeys((*_LOOPBACK, *own))
    hosts = [f"{name}{_ANY_PORT}" for name in names]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=_known(map(canonical_host, (*hosts, *settings.allowed_hosts))),
        allowed_origins=_known(map(canonical_origin, (*origins, *settings.allowed_origins))),
    )


def _known(patterns: Iterable[str]) -> list[str]:
    """As the SDK has them: `name:*` is a name with any port there, and none without, as clients write 80 and 443."""
    return [
        known for each in patterns for known in dict.fromkeys((each.removesuffix(_ANY_PORT), each))
    ]


def canonical_host(host: str) -> str:
    """The one spelling of a host with or without its port: small letters, no dot at the end of the name, an
    IPv6 address at its shortest."""
    host = host.lower()
    if not host.startswith("["):
        name, colon, port = host.partition(":")
        return f"{name.removesuffix('.')}{colon}{port}"
    address, bracket, port = host[1:].partition("]")
    with suppress(ValueError):  # else it is a host that nobody has
        address = str(ip_address(address))
    return f"[{address}{bracket}{port}"


def canonical_origin(origin: str) -> str:
    scheme, separator, host = origin.partition("://")
    return f"{scheme.lower()}{separator}{canonical_host(host)}"


def is_loopback(host: str) -> bool:
    if canonical_host(host) == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def require_safe(settings: Settings, *, has_tokens: bool) -> None:
    """Raises InvalidParameter for an address that others can reach without having been let in."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise InvalidParameter(
            "--tls-cert and --tls-key belong together: one of them is missing",
            suggestion="Name the files of both the certificate and its key.",
        )
    if is_loopback(settings.http_host):
        return
    missing = []
    if not has_tokens:
        missing.append("a token (memlog token new NAME, or MEMLOG_TOKEN)")
    if not settings.allowed_hosts:
        missing.append("allowed hosts (MEMLOG_ALLOWED_HOSTS, the names clients use for it)")
    if missing:
        raise InvalidParameter(
            f"Serving on {settings.http_host} would let in whoever reaches this machine",
            suggestion=f"First set up {' and '.join(missing)}; or serve on 127.0.0.1. "
            "docs/security.md has the steps.",
        )


def answering_pages(app: ASGIApp, settings: Settings) -> ASGIApp:
    """Lets browsers hand answers to the pages of the origins that were named (CORS), and to no others:
    those of the loopback may be anybody's."""
    if not settings.allowed_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origin_regex="|".join(map(_as_regex, settings.allowed_origins)),
        allow_methods=METHODS,
        allow_headers=["*"],
        allow_private_network=True,  # older Chromium asks for it, for pages that are not of this machine
        expose_headers=[MCP_SESSION_ID_HEADER, "WWW-Authenticate", "Retry-After"],
    )


def _as_regex(allowed: str) -> str:
    origin = canonical_origin(allowed)
    name = re.escape(origin.removesuffix(_ANY_PORT))
    return f"{name}(:[0-9]+)?" if origin.endswith(_ANY_PORT) else name


class KnownHosts:
    """Middleware: refuses a foreign Host (421) or Origin (403)."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._check = TransportSecurityMiddleware(_security(settings))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _put_in_origin_form(scope)
        scope["headers"] = _canonical(scope)
        status = _malformed(scope)
        if status is None:
            found = await self._check.validate_request(Request(scope))
            if found is None:
                await self._app(scope, receive, send)
                return
            status = HTTPStatus(found.status_code)
        header, setting = (
            ("Origin", "MEMLOG_ALLOWED_ORIGINS")
            if status is HTTPStatus.FORBIDDEN
            else ("Host", "MEMLOG_ALLOWED_HOSTS")
        )
        # As it came: a tunnel or proxy may have put another in the place of its client's.
        came = ", ".join(Headers(scope=scope).getlist(header))
        answer = refused(
            status,
            f"This {header} is not one that the server answers to: {shorten(came)!r}",
            f"If it is right, add it to {setting}.",
        )
        await answer(scope, receive, send)


_ABSOLUTE = re.compile(rb"https?://([^/]*)(/.*)?", re.IGNORECASE)


def _put_in_origin_form(scope: Scope) -> None:
    """Takes scheme and host out of a target that has them, as proxies send it; that host stands for the Host header
    then, whatever the header says (RFC 9112, 3.2.2). With a user before it, it is a host that nobody has."""
    if scope["path"].startswith("/"):
        return
    found = _ABSOLUTE.fullmatch(scope["raw_path"])
    if found is None:
        return
    host, path = found[1], found[2] or b"/"
    others = [each for each in scope["headers"] if each[0] != b"host"]
    scope["headers"] = [(b"host", b"" if b"@" in host else host), *others]
    scope["path"], scope["raw_path"] = unquote(path.decode("ascii")), path


_CANONICAL = {b"host": canonical_host, b"origin": canonical_origin}


def _canonical(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers, with the spelling of Host and Origin that all behind this compare."""
    return [
        (name, _CANONICAL[name](value.decode("latin-1")).encode("latin-1"))
        if name in _CANONICAL
        else (name, value)
        for name, value in scope["headers"]
    ]


_HOST = rb"(\[[^\]]*\]|[^:]*)(:[0-9]*)?"
_WELL_FORMED = (
    (b"host", re.compile(_HOST), HTTPStatus.MISDIRECTED_REQUEST),
    (b"origin", re.compile(rb"([^:]*://)?" + _HOST), HTTPStatus.FORBIDDEN),
)


def _malformed(scope: Scope) -> HTTPStatus | None:
    """What to refuse a request with that has several hosts or origins, or one whose port is no number: the SDK
    compares the first, and takes any that begins with `localhost:` for `localhost:*`."""
    for header, form, status in _WELL_FORMED:
        said = [value for name, value in scope["headers"] if name == header]
        if said[1:] or not all(map(form.fullmatch, said)):
            return status
    return None
