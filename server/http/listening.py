"""The socket on which clients come, and how many files and connections the process may have open.

Connections are counted here from the moment in which they are accepted: `sockets` counts those that have opened TLS,
and a client that never does so would take a place that nobody counts, up to the last file that this process may open.
Where the system grants few files, connections are fewer: without one for the next, asyncio would log that without end.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from memlog.errors import InvalidParameter
from memlog.settings import Settings

FILES_BESIDE_CONNECTIONS = 1_024
OPENING_MAX = 256
"""So many connections more than are served may be open: those that open TLS, and those that are told that there are too
many."""

CLIENT: ContextVar[str] = ContextVar("CLIENT", default="nobody knows whom")
"""The address of the connection that was accepted last. Asyncio begins a task for each, right after, and whatever is
done in it finds its own here."""

logger = logging.getLogger("memlog.http")


class Listener(socket.socket):
    """Takes over a listening socket. Of the connections that it accepts so many are open at a time; one more is closed
    at once, as one that its client gave up."""

    def __init__(self, listening: socket.socket, connections_max: int) -> None:
        super().__init__(fileno=listening.detach())
        self._connections_max = connections_max
        self.served_max = connections_max - min(OPENING_MAX, connections_max // 4)
        """So many of them are served at most: the others find out whose place they take, or that there is none."""
        self._open: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ConnectionAbortedError where too many are open."""
        connection, address = super().accept()
        if self._is_full():
            connection.close()
            raise ConnectionAbortedError("too many connections are open")
        self._open.add(connection)
        CLIENT.set(str(address[0]))
        return connection, address

    def _is_full(self) -> bool:
        if len(self._open) >= self._connections_max:
            self._open = WeakSet(each for each in self._open if each.fileno() >= 0)
        return len(self._open) >= self._connections_max


@contextmanager
def listening(settings: Settings) -> Iterator[Listener]:
    """The socket, bound before anything is opened, with room for files beside its connections. Raises
    InvalidParameter where it cannot be bound."""
    connections_max = settings.http_connections_max + OPENING_MAX
    granted = _make_room(connections_max + FILES_BESIDE_CONNECTIONS)
    connections_max = min(connections_max, granted - min(FILES_BESIDE_CONNECTIONS, granted // 2))
    host = settings.http_host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, settings.http_port), family=family, backlog=256)
    except OSError as error:
        raise InvalidParameter(
            f"Cannot listen on {settings.http_host} port {settings.http_port}: {error}",
            suggestion="Choose another with --port (0 for any that is free) or --host.",
        ) from error
    with Listener(bound, connections_max) as listener:
        # Accepted sockets inherit both. asyncio sets TCP_NODELAY itself only on sockets that name their
        # protocol, which these do not: without it an answer in two writes waits 40 ms for an ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The second finds clients that vanished.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        yield listener


def _make_room(files: int) -> int:
    """So many files and sockets open at a time: the usual 1,024 are fewer than the connections that are let in and
    the logs that they write to, and a process has as many more as it asks for, up to the system's limit.
    Returns how many there may be."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY or now >= files:
        return files
    wanted = files if most == resource.RLIM_INFINITY else min(files, most)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    except (OSError, ValueError):
        wanted = now
    if wanted < files:
        logger.warning("the system grants %s open files, fewer than the %s wanted", wanted, files)
    return wanted
