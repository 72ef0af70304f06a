"""How often a client may call, how much of it is taken in, and for how long it may be answered."""

from __future__ import annotations

import asyncio

import anyio
import pytest
from starlette.types import Message, Receive, Scope, Send

from memlog.settings import Settings
from server.http.bodies import Bodies, Whole
from server.http.limits import Limits, Rates


def test_of_more_clients_than_are_remembered_the_one_that_was_away_longest_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.http.limits.CLIENTS_MAX", 2)
    rates = Rates(per_second=1e-6)
    for client in ("phone", "editor"):
        assert rates.take(client) == 0
        assert rates.take(client) > 0
    rates.take("desktop")
    assert rates.take("editor") > 0
    assert rates.take("phone") == 0


def test_who_was_away_for_long_has_one_burst_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1e6
    monkeypatch.setattr("server.http.limits.time.monotonic", lambda: now_s)
    rates = Rates(per_second=2)
    for _ in range(2):
        assert [rates.take("phone") for _ in range(5)] == [0, 0, 0, 0, 0.5]
        now_s += 86_400


def test_a_client_is_told_of_no_longer_than_a_day_however_few_calls_are_let_in() -> None:
    rates = Rates(per_second=5e-324)
    assert rates.take("phone") == 0
    assert rates.take("phone") == 86_400


@pytest.mark.parametrize("kind", [b"text/event-stream", b"application/json"])
async def test_an_answer_that_has_begun_in_time_goes_on_for_as_long_as_it_lasts(
    kind: bytes,
) -> None:
    answer: list[Message] = [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]},
        {"type": "http.response.body", "body": b"one", "more_body": True},
        {"type": "http.response.body", "body": b"two", "more_body": False},
    ]

    async def lasting(scope: Scope, receive: Receive, send: Send) -> None:
        for message in answer:
            await send(message)
            await asyncio.sleep(0.01)  # the time of a request is over

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    sent: list[Message] = []
    limits = Limits(Settings(http_request_seconds=0.0))
    scope = {"type": "http", "method": "GET", "raw_path": b"/", "query_string": b"", "headers": []}
    await limits.first(lasting)(scope, nothing, send)
    assert sent == answer


async def test_where_all_places_are_taken_the_client_that_has_most_of_them_gives_one_up() -> None:
    bodies = Bodies(bytes_max=1, bodies_max=3, patience_s=60.0)
    refused: list[tuple[str, int]] = []

    async def nothing() -> Message:
        await anyio.sleep_forever()
        raise AssertionError

    async def come(client: str) -> None:
        answer = await bodies.take(nothing, client)
        assert answer is not None and not isinstance(answer, Whole)
        refused.append((client, answer.status_code))

    async with anyio.create_task_group() as clients:
        for client in ("first", "many", "many", "new"):
            clients.start_soon(come, client)
            await anyio.wait_all_tasks_blocked()
        assert refused == [("many", 503)]
        bodies.end()


def test_what_a_large_body_costs_is_lent_once_and_a_burst_at_most() -> None:
    """Whoever sends several at once has only one of them read."""
    rates = Rates(per_second=1e-6)
    assert not rates.take("a") and not rates.take_more("a", 1_000)
    assert rates.take_more("a", 1_000) > 0 and rates.take("a") > 0
    assert not rates.take("b") and not rates.take_more("b", 0)
