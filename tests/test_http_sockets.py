"""What the system is told of each connection over HTTP."""

from __future__ import annotations

import asyncio
import math
import socket
from http import HTTPStatus

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from server.http.sockets import TAKEN_BYTES_MAX, expect_acknowledgement, protocol
from tests.served import DEADLINE_S

PATIENCE_S = 7.5


def refused(status: HTTPStatus, why: str, client: str) -> str:
    raise AssertionError(f"{client} was refused: {status} {why}")


async def accepted() -> socket.socket:
    """The server's side of a connection that is open."""
    state = ServerState()
    own = protocol(patience_s=PATIENCE_S, connections_max=1, refused=refused)
    config = Config(None)  # type: ignore[arg-type]
    server = await asyncio.get_running_loop().create_server(
        lambda: own(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with server, asyncio.timeout(DEADLINE_S):
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while not state.connections:
            await asyncio.sleep(0.01)
        (connection,) = state.connections
        found: socket.socket = connection.transport.get_extra_info("socket")
        there = socket.fromfd(found.fileno(), found.family, found.type)
        writer.close()
    return there


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
def test_what_is_not_acknowledged_in_time_ends_the_connection() -> None:
    with asyncio.run(accepted()) as connection:
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert told == 2 * 1000 * PATIENCE_S


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="an option of Linux")
@pytest.mark.parametrize("seconds", [1e300, 1e308, math.inf])
def test_a_patience_longer_than_the_system_knows_is_as_long_as_it_can_be(seconds: float) -> None:
    with socket.socket() as connection:
        expect_acknowledgement(connection, seconds)
        told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    assert told == 2**31 - 1


def test_what_a_client_sends_is_taken_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty that sent three megabytes each at once kept every other waiting for a second."""
    own = protocol(patience_s=PATIENCE_S, connections_max=1, refused=refused)
    taken: list[int] = []
    monkeypatch.setattr(own, "data_received", lambda self, data: taken.append(len(data)))

    async def send(total: int) -> None:
        config = Config(None)  # type: ignore[arg-type]
        server = await asyncio.get_running_loop().create_server(
            lambda: own(config=config, server_state=ServerState(), app_state={}), "127.0.0.1", 0
        )
        async with server, asyncio.timeout(DEADLINE_S):
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b" " * total)
            while sum(taken) < total:
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(send(4_000_000))
    assert max(taken) <= TAKEN_BYTES_MAX
