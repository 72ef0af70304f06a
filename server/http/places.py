"""Who has a place among the connections, and whose place is taken where there is none.

Where all places are taken, a newcomer takes that of another who has yet to show who he is, the one that came first: a
tenth of all is for them. Where the others are taken, who is let in takes that of a connection of the client that has
most of them, its own if no other has more: the one that is idle for longest, else the oldest of those that wait for
their client: a stream, a part of a request, an answer that is not all gone. What is worked on never goes; that is
bounded by `limits`. So nobody is kept out by who only connects, nor by who stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol

NEWCOMERS_SHARE = 10
"""One part in so many of all places."""

logger = logging.getLogger("memlog.http")


class Connection(Protocol):
    @property
    def is_idle(self) -> bool: ...
    @property
    def is_worked_on(self) -> bool: ...
    def give_way(self) -> None:
        """Ends, and leaves."""


class Places:
    """Of one server."""

    def __init__(self, places_max: int) -> None:
        self._places_max = places_max
        self._known_max = places_max - max(1, places_max // NEWCOMERS_SHARE) or 1
        self._newcomers: dict[Connection, None] = {}
        """In the order in which they came."""
        self._clients: dict[Connection, str] = {}
        self._held: dict[str, dict[Connection, None]] = {}
        """By client, each in the order in which they were last answered."""

    def take(self, connection: Connection) -> bool:
        """Whether one more finds a place, be it that of another."""
        if len(self._newcomers) + len(self._clients) >= self._places_max:
            known = (each for each in self._clients if each.is_idle)  # where there is one place
            goes = next(iter(self._newcomers), None) or next(known, None)
            if goes is None:
                return False
            self._end(goes)
        self._newcomers[connection] = None
        return True

    def let_in(self, connection: Connection, client: str) -> bool:
        """Whether one that has a place, of this client by now, keeps it."""
        if connection in self._newcomers and len(self._clients) >= self._known_max:
            goes = next(self._spare(client), None)
            if goes is None:
                return False
            self._end(goes)
        if connection in self._newcomers or self._clients.get(connection, client) != client:
            self.leave(connection)
            self._clients[connection] = client
            self._held.setdefault(client, {})[connection] = None
        return True

    def answered(self, connection: Connection) -> None:
        """It goes after the others of its client."""
        client = self._clients.get(connection)
        if client is not None:
            del self._held[client][connection]
            self._held[client][connection] = None

    def leave(self, connection: Connection) -> None:
        self._newcomers.pop(connection, None)
        client = self._clients.pop(connection, None)
        if client is not None:
            del self._held[client][connection]
            if not self._held[client]:
                del self._held[client]

    def _spare(self, client: str) -> Iterator[Connection]:
        """Those that may go for one more of this client, the first of them first."""
        held = {each: len(connections) for each, connections in self._held.items()}
        share = held[client] = held.get(client, 0) + 1
        shares = [each for each in held if held[each] >= share]
        for each in sorted(shares, key=lambda each: (-held[each], each == client)):
            connections = self._held.get(each, {})
            yield from (one for one in connections if one.is_idle)
            yield from (one for one in connections if not one.is_worked_on)

    def _end(self, connection: Connection) -> None:
        client = self._clients.get(connection)
        if client is not None and not connection.is_idle:
            logger.info("a connection of %s ends: there is no room, and nobody has more", client)
        self.leave(connection)
        connection.give_way()
