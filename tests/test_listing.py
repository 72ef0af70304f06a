"""What `tools/list` leaves in memory over HTTP, and that each session is told what is offered to it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

from server.listing import LISTINGS_MAX, SharedListings
from server.rights.grants import Grant
from server.rights.tokens import Tokens, tokens_path
from tests.asgi import LEGACY, Client, app_over, request
from tests.connected import run


def tools_kept() -> int:
    """How many descriptions of tools, as the SDK sends them, are in memory."""
    gc.collect()
    return sum(type(each) is dict and "inputSchema" in each for each in gc.get_objects())


async def listed(client: Client) -> list[str]:
    answer = await client.post(request("tools/list", 1))
    return [each["name"] for each in answer.json["result"]["tools"]]


def test_sessions_that_listed_the_tools_keep_one_listing_among_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            first = Client(app, LEGACY)
            await first.open()
            names = await listed(first)
            kept = tools_kept()
            assert kept >= len(names)
            more = [Client(app, LEGACY) for _ in range(5)]
            for client in more:
                await client.open()
                assert await listed(client) == names
            assert tools_kept() == kept

    run(scenario)


def test_each_session_is_told_what_its_token_allows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with app_over(tmp_path) as app:
            kept = Tokens(tokens_path(app._service.settings))
            reader, writer = kept.new(Grant("reads", "read")), kept.new(Grant("writes", "write"))
            for _ in range(2):
                narrow = Client(app, LEGACY, token=reader)
                await narrow.open()
                assert "create_entities" not in await listed(narrow)
                wide = Client(app, LEGACY, token=writer)
                await wide.open()
                assert "create_entities" in await listed(wide)

    run(scenario)


def test_no_more_listings_are_kept_than_there_are_kinds_of_sessions() -> None:
    listings = SharedListings()

    class Asked:
        method = "tools/list"

    async def told(number: int) -> Any:
        async def answer(ctx: Any) -> Any:
            return {"tools": [number]}

        return await listings(Asked(), answer)  # type: ignore[arg-type]

    async def scenario() -> None:
        first = await told(0)
        for number in range(1, LISTINGS_MAX):
            await told(number)
            assert await told(0) is first
        await told(LISTINGS_MAX)
        assert await told(0) is first
        oldest = await told(1)
        for number in range(2, LISTINGS_MAX + 3):
            await told(number)
        assert await told(1) is not oldest
        assert await told(1) == oldest

    run(scenario)
