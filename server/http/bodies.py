"""Bodies on their way in: so many at a time, each within the time that a client has, of the size that is taken.

A body is given to the application whole. Until it is, its request takes a place here and none among those worked on.
Where all places are taken, one more body takes that of another: of the client that has most of them, its own if no
other has more, the one that is on its way for longest. So nobody keeps others out by sending slowly.
"""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus

import anyio
from starlette.responses import Response
from starlette.types import Message, Receive

from server.http.errors import refused

RETRY_SECONDS = 1


class Whole:
    """ASGI's `receive` for a body that is there whole."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self.body = body
        self._receive = receive
        self._given = False
        self.is_late = False
        """Whether its client was told that it takes too long, and hears nothing else."""

    async def __call__(self) -> Message:
        if not self._given:
            self._given = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        return await self._receive()

    async def gone(self) -> None:
        """Waits until the client is, or was answered."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class _OnItsWay:
    """One body. `refusal` is why it is waited for no longer, if not for its time."""

    def __init__(self, client: str, scope: anyio.CancelScope) -> None:
        self.client = client
        self._scope = scope
        self.refusal: Response | None = None

    def end(self, refusal: Response) -> None:
        self.refusal = refusal
        self._scope.cancel()


class Bodies:
    """Those that are on their way."""

    def __init__(self, *, bytes_max: int, bodies_max: int, patience_s: float) -> None:
        self._bytes_max = bytes_max
        self._bodies_max = bodies_max
        self._patience_s = patience_s
        self._on_their_way: dict[_OnItsWay, None] = {}
        """In the order in which they began."""
        self._ending = False

    def end(self) -> None:
        """The server stops: none is waited for any more."""
        self._ending = True
        for each in self._on_their_way:
            each.end(_stopping())

    async def take(self, receive: Receive, client: str) -> Whole | Response | None:
        """The whole of it, else the answer that refuses it; None where the client went away before it had asked."""
        if len(self._on_their_way) >= self._bodies_max:
            self._make_room(client)
        with anyio.move_on_after(self._patience_s) as waiting:
            coming = _OnItsWay(client, waiting)
            self._on_their_way[coming] = None
            try:
                if self._ending:
                    coming.end(_stopping())
                return await self._taken(receive)
            finally:
                self._on_their_way.pop(coming, None)
        return coming.refusal or self._too_slow()

    async def _taken(self, receive: Receive) -> Whole | Response | None:
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._bytes_max:
                return self.too_large()
        return Whole(bytes(body), receive)

    def _make_room(self, client: str) -> None:
        """For one more body of this client."""
        held = Counter((client, *(each.client for each in self._on_their_way)))
        most = max(held[each.client] for each in self._on_their_way)
        longest = next(each for each in self._on_their_way if held[each.client] == most)
        del self._on_their_way[longest]
        longest.end(self._crowded())

    # -- what is said to those whose body is not taken

    def too_large(self) -> Response:
        return refused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is larger than {self._bytes_max} bytes",
            "Send it in parts.",
            connection="close",
        )

    def _too_slow(self) -> Response:
        return refused(
            HTTPStatus.REQUEST_TIMEOUT,
            f"The body did not arrive within {self._patience_s:g} seconds",
            connection="close",
        )

    def _crowded(self) -> Response:
        return refused(
            HTTPStatus.SERVICE_UNAVAILABLE,
            f"{self._bodies_max} bodies are on their way, and this one was for longest",
            "Send it again in a moment.",
            retry_after=str(RETRY_SECONDS),
            connection="close",
        )


def _stopping() -> Response:
    return refused(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "The server stops; this request is not begun",
        "Send it again when it is back.",
        retry_after=str(RETRY_SECONDS),
        connection="close",
    )
