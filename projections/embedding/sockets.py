"""Connections to an endpoint that answers in time, or not at all, and sends nobody elsewhere.

A socket's own time-out is for each piece of an answer, and there may be any number of them: here all of it is there
within twice that time, or the reading fails. A redirect is told as an HTTPError. Proxies are those of the environment
(HTTP_PROXY, HTTPS_PROXY, NO_PROXY); what is on this machine is asked without.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from functools import partial
from ipaddress import ip_address
from typing import IO, Any
from urllib.parse import SplitResult, urlsplit

TIMEOUT_SECONDS = 30.0
"""For whatever comes next of an answer; twice as long for all of it."""


def opener() -> urllib.request.OpenerDirector:
    """One that opens connections so, each with the time-out that it is given."""
    return urllib.request.build_opener(_Proxies, _NoRedirects, _Http, _Https)


def is_by_proxy(url: SplitResult) -> bool:
    """Whether this address is asked through a proxy."""
    return url.scheme in urllib.request.getproxies() and not (
        _is_here(url.netloc) or urllib.request.proxy_bypass(url.netloc)
    )


def _is_here(host_and_port: str) -> bool:
    host = urlsplit(f"//{host_and_port}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class _Proxies(urllib.request.ProxyHandler):
    """A proxy elsewhere does not reach what is on this machine, and is none to tell texts and the key."""

    def proxy_open(self, req: urllib.request.Request, proxy: str, type: str) -> Any:
        return None if _is_here(req.host) else super().proxy_open(req, proxy, type)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib would turn the POST into a GET and hand the key to whatever host is named; and fail over an address that
    is none."""

    def http_error_302(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
    ) -> None:
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _UntilThen(io.RawIOBase):
    """What a socket brings until a time. Its own time-out is for each piece, and there may be any number of them."""

    def __init__(
        self, pieces: io.RawIOBase, connection: socket.socket, until_seconds: float
    ) -> None:
        self._pieces = pieces
        self._connection = connection
        self._timeout_seconds = connection.gettimeout() or TIMEOUT_SECONDS
        self._until_seconds = until_seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_seconds = self._until_seconds - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError("the answer is not all there in time")
        self._connection.settimeout(min(left_seconds, self._timeout_seconds))
        return self._pieces.readinto(buffer)

    def close(self) -> None:
        self._pieces.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(
        self, sock: socket.socket, *args: Any, until_seconds: float, **options: Any
    ) -> None:
        super().__init__(sock, *args, **options)
        pieces = _UntilThen(self.fp.detach(), sock, until_seconds)
        self.fp = io.BufferedReader(pieces)


def _connection(
    kind: type[http.client.HTTPConnection], host: str, *, timeout: float
) -> http.client.HTTPConnection:
    connection = kind(host, timeout=timeout)
    response: Any = partial(_Response, until_seconds=time.monotonic() + 2 * timeout)
    connection.response_class = response
    return connection


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPConnection), req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, http.client.HTTPSConnection), req)
