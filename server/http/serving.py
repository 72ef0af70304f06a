"""Serving HTTP from a process of its own, and the end of it.

Promises that SIGTERM and SIGINT end it whole: nobody new is let in, requests in flight are answered,
streams that last are ended, the projections keep what they computed. A second signal, or `DRAIN_S`,
ends the wait for clients; a call that writes is finished in any case, or was never begun.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

import anyio
import uvicorn
from anyio.abc import TaskStatus
from uvicorn.protocols.http.h11_impl import H11Protocol

from memlog.errors import InvalidParameter
from memlog.settings import Settings
from server.http.access import Access
from server.http.app import App
from server.http.hosts import require_safe
from server.http.listening import listening
from server.http.sockets import HEAD_BYTES_MAX, KEEP_ALIVE_SECONDS, protocol
from server.service import Service
from server.stdio.leaving import DRAIN_S, TEARDOWN_S, give_up_after, leave

logger = logging.getLogger("memlog.http")


def run_http(settings: Settings) -> NoReturn:
    """Serves until a signal comes; exit code 0 then, 1 after a failure (logged).

    Raises a MemlogError where it may not or cannot begin.
    """
    access = Access(settings)
    require_safe(settings, has_tokens=access.usable)
    with listening(settings) as listener:
        config = _config(settings)
        service = Service(settings)
        exit_code = 1
        try:
            app = App(service, access)
            config.app = app.asgi
            config.http = protocol(
                patience_s=settings.http_patience_seconds,
                connections_max=min(settings.http_connections_max, listener.served_max),
                refused=app.refused_below,
            )
            server = _Server(config, settings.http_patience_seconds)
            anyio.run(_serve, server, app, listener, service.close)
            exit_code = 0
        except BaseException:
            logger.critical("the HTTP server failed", exc_info=True)
        finally:
            leave(exit_code)


class _Server(uvicorn.Server):
    """uvicorn's, but for two things: it would raise signals, which are this module's, once more at the end; and it
    has no word for the time in which a client opens TLS, and closes it."""

    def __init__(self, config: uvicorn.Config, patience_s: float) -> None:
        super().__init__(config)
        self._patience_s = patience_s

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        http = self.config.http_protocol_class
        assert issubclass(http, H11Protocol)
        connected = partial(
            http,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        patience_s = self._patience_s if self.config.is_ssl else None
        for listener in sockets or ():
            server = await asyncio.get_running_loop().create_server(
                connected,
                sock=listener,
                ssl=self.config.ssl,
                backlog=self.config.backlog,
                ssl_handshake_timeout=patience_s,
                ssl_shutdown_timeout=patience_s,
            )
            self.servers.append(server)


async def _serve(
    server: _Server, app: App, listener: socket.socket, on_close: Callable[[], None]
) -> None:
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_stop_on_signal, server, app)
            try:
                async with app.running():
                    _announce(server.config, listener)
                    await server.serve([listener])
            finally:
                on_close()
            tasks.cancel_scope.cancel()
    finally:
        faulthandler.cancel_dump_traceback_later()


async def _stop_on_signal(server: _Server, app: App, *, task_status: TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for number in signals:
            logger.info("stopping on %s", number.name)
            give_up_after(DRAIN_S + TEARDOWN_S)
            server.should_exit = True
            app.limits.end_lasting()
            break
        async for number in signals:
            logger.info("hurrying on %s", number.name)
            server.force_exit = True


def _config(settings: Settings) -> uvicorn.Config:
    if settings.tls_cert and settings.tls_key:
        try:
            for file in (settings.tls_cert, settings.tls_key):
                file.open("rb").close()  # names the one that cannot be read, as ssl does not
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.tls_cert, settings.tls_key, password=_no_password
            )
        except OSError as error:  # SSLError is one
            raise InvalidParameter(
                f"The certificate in {settings.tls_cert} with the key in {settings.tls_key} cannot be used: "
                f"{error}",
                suggestion="--tls-cert is a PEM file with the chain, --tls-key one with its key, "
                "without a password.",
            ) from error
    return uvicorn.Config(
        "",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(DRAIN_S),
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # what they say of the client anybody could say
    )


def _no_password() -> NoReturn:
    """In place of asking for it at the terminal, here and once more when it serves."""
    raise ssl.SSLError("the key has a password")


def _announce(config: uvicorn.Config, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if config.is_ssl else 'http'}://{shown}:{port}"
    logger.info("serving on %s", url, extra={"fields": {"url": url}})
