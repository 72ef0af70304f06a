"""`memlog health`: asks the HTTP server that the settings describe whether it is well."""

from __future__ import annotations

import http.client
import ssl
import sys
import time
from ipaddress import ip_address
from typing import Any, Final, Literal

import click
import msgspec

from memlog.configuration import load
from memlog.errors import InvalidParameter, shorten
from memlog.settings import Settings
from server.cli.options import Number, address_options, json_option
from server.cli.printing import print_json, say

BODY_BYTES_MAX = 64 * 1024
AGAIN_SECONDS = 0.2
TIMEOUT_S_MAX = 3_600
UNREACHABLE: Final = "unreachable"
TO_REACH_IT = (
    "hint: Is it started (`memlog serve --transport http`), and are these the --host, the --port and, for HTTPS, the "
    "--tls-cert that it was given?"
)


class Said(msgspec.Struct, frozen=True):
    """What a server answers: `late` are the projections that it still waits for."""

    status: Literal["alive", "ready", "catching up", "starting"]
    late: tuple[str, ...] = ()


class Health(msgspec.Struct, frozen=True):
    """`status` is what the server said; "unreachable", or "unknown" where no memlog answers, with a `problem`."""

    url: str
    healthy: bool
    status: str
    late: tuple[str, ...] = ()
    problem: str | None = None


@click.command("health")
@address_options
@click.option("--alive", is_flag=True, help="Only whether it is alive, not whether it is ready.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Number(0, TIMEOUT_S_MAX, min_open=True),
    default=4.0,
    show_default=True,
    help="Seconds to wait for an answer.",
)
@click.option(
    "--wait",
    "wait_s",
    type=Number(0, TIMEOUT_S_MAX),
    default=0.0,
    help="Seconds in which it may yet become so: it is asked again until then.",
)
@json_option
def health_command(
    alive: bool, timeout_s: float, wait_s: float, as_json: bool, **flags: Any
) -> None:
    """Ask the HTTP server of these settings whether it is ready; exit code 0 if so, else 1.

    For health checks: it is asked from its own machine, under whatever host, port and certificate it was given.

    \b
    Example: memlog health
    Example: memlog health --wait 30
    Example: memlog health --port 9000 --alive
    """
    settings, _ = load(flags)
    path, until = "/healthz" if alive else "/readyz", time.monotonic() + wait_s
    while not (health := ask(settings, path, timeout_s)).healthy and time.monotonic() < until:
        time.sleep(AGAIN_SECONDS)
    if as_json:
        print_json(health)
    else:
        told = [", ".join(health.late), health.problem]
        say(": ".join([health.status, *filter(None, told)]) + f" ({health.url})")
        if health.status == UNREACHABLE:
            say(TO_REACH_IT, err=True)
    if not health.healthy:
        sys.exit(1)


def ask(settings: Settings, path: str, timeout_s: float) -> Health:
    """What the server that `settings` describe says at `path`, of its state."""
    try:
        connection, url = _connection(settings, timeout_s)
    except http.client.InvalidURL as error:
        raise InvalidParameter(
            f"{settings.http_host!r} is not the name of a host",
            suggestion="Name it with --host or MEMLOG_HTTP_HOST, without a space.",
        ) from error
    url += path
    try:
        # The name of the loopback, which every server answers to, whatever it listens on.
        connection.request("GET", path, headers={"Host": "localhost"})
        answer = connection.getresponse()
        body = answer.read(BODY_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Health(url, False, UNREACHABLE, problem=problem)
    finally:
        connection.close()
    try:
        said = msgspec.json.decode(body, type=Said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = shorten(body.decode(errors="replace"))
        return Health(url, False, "unknown", problem=f"{answer.status} {answer.reason} {text}")
    return Health(url, answer.status == 200, said.status, said.late)


def _connection(settings: Settings, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """A connection to the server, not yet open, and the beginning of its address."""
    host, port = _reached(settings.http_host), settings.http_port
    if port == 0:
        raise InvalidParameter(
            "Port 0 is any that is free; the settings do not tell which it became",
            suggestion="Name it with --port; the server's log has it.",
        )
    shown = f"[{host}]" if ":" in host else host
    if settings.tls_cert is None:
        plain = http.client.HTTPConnection(host, port, timeout=timeout_s)
        return plain, f"http://{shown}:{port}"
    # Not verified: it is this machine that is asked, under an address that no certificate need name,
    # and nothing is told it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    secure = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return secure, f"https://{shown}:{port}"


def _reached(host: str) -> str:
    """Under which address this machine reaches what listens on `host`."""
    host = host.strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not address.is_unspecified:
        return host
    return "127.0.0.1" if address.version == 4 else "::1"
