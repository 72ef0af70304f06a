"""Serving HTTP from a process of its own, and the end of it.

Promises that SIGTERM and SIGINT end it whole: nobody new is let in, requests in flight are answered,
streams that last are ended, the projections keep what they computed. A second signal, or `DRAIN_S`,
ends the wait for clients; a call that writes is finished in any case, or was never begun. SIGHUP ends nothing: the
certificate is read anew.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

import anyio
import uvicorn
from anyio.abc import TaskStatus
from uvicorn.protocols.http.h11_impl import H11Protocol

from memlog.errors import InvalidParameter
from memlog.projects.folders import require_no_file
from memlog.settings import Settings
from server.http.access import Access
from server.http.app import App
from server.http.certificate import Certificate, certificate
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
    access, tls = access_and_certificate(settings)
    for told in filter(None, (access.shut, access.open)):
        logger.warning("%s", told)
    with listening(settings) as listener:
        config = _config(tls)
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
            anyio.run(_serve, server, app, listener, tls, service.close)
            exit_code = 0
        except BaseException:
            logger.critical("the HTTP server failed", exc_info=True)
        finally:
            leave(exit_code)


def access_and_certificate(settings: Settings) -> tuple[Access, Certificate | None]:
    """By what people are let in with these settings, and what they are shown. Raises a MemlogError where a server may
    not begin with them, whatever else runs on this machine."""
    require_no_file(settings.data_dir)  # else it is the tokens that cannot be read
    access = Access(settings)
    require_safe(settings, has_tokens=access.usable)
    return access, certificate(settings)


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
    server: _Server,
    app: App,
    listener: socket.socket,
    tls: Certificate | None,
    on_close: Callable[[], None],
) -> None:
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(_follow_signals, server, app, tls)
            try:
                async with app.running():
                    _announce(server.config, listener)
                    await server.serve([listener])
            finally:
                on_close()
            tasks.cancel_scope.cancel()
    finally:
        faulthandler.cancel_dump_traceback_later()


async def _follow_signals(
    server: _Server, app: App, tls: Certificate | None, *, task_status: TaskStatus[None]
) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        task_status.started()
        async for number in signals:
            if number == signal.SIGHUP:
                _renew(tls)
            elif not server.should_exit:
                logger.info("stopping on %s", number.name)
                give_up_after(DRAIN_S + TEARDOWN_S)
                server.should_exit = True
                app.limits.end_lasting()
            else:
                logger.info("hurrying on %s", number.name)
                server.force_exit = True


def _renew(tls: Certificate | None) -> None:
    if tls is None:
        logger.info("nothing is read anew on SIGHUP: there is no certificate")
        return
    try:
        tls.renew()
        logger.info("certificate and key were read anew")
    except InvalidParameter as error:
        logger.error("those read before are still shown. %s", error.message)


def _config(tls: Certificate | None) -> uvicorn.Config:
    return uvicorn.Config(
        "",
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(DRAIN_S),
        ssl_context_factory=None if tls is None else lambda *_: tls.context,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # what they say of the client anybody could say
    )


def _announce(config: uvicorn.Config, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if config.is_ssl else 'http'}://{shown}:{port}"
    logger.info("serving on %s", url, extra={"fields": {"url": url}})
