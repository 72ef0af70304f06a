"""What a library panics over is no Exception in Python, and is a failure that nobody foresaw all the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tantivy

from server.calls import Calls, HandshakeForm, plain_call
from server.http.app import App
from server.opened import Opened
from server.registry import Arguments, Call, Result, Tool, tools
from tests.asgi import LEGACY, MODERN, BySdk, Client, app_over
from tests.connected import run
from tests.served import Era
from tests.service import client_on
from tests.test_direct import call, line

DEADLINE_SECONDS = 30.0


def panic(*_: Any) -> Any:
    tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(0, 0, False))


def panicking(writes: bool = False) -> dict[str, Tool]:
    """A tool that panics, beside one that does not."""

    def handler(call: Call, arguments: Arguments) -> Result:
        panic()
        raise AssertionError("it panicked")

    known = tools(["graph"])
    panics = msgspec.structs.replace(
        known["read_graph"], name="panics", handler=handler, bare=None, writes=writes
    )
    return {"panics": panics, "open_nodes": known["open_nodes"]}


def test_it_is_a_panic() -> None:
    with pytest.raises(BaseException) as raised:
        panic()
    assert not isinstance(raised.value, Exception)


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("way", [App, BySdk])
@pytest.mark.parametrize("writes", [False, True])
def test_a_call_that_panics_is_answered_and_so_is_the_next(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: type[App], era: Era, writes: bool
) -> None:
    monkeypatch.setattr("server.http.app.tools", lambda *_, **__: panicking(writes))

    async def scenario() -> None:
        async with app_over(tmp_path, way) as app:
            client = Client(app, era)
            await client.open()
            for _ in range(3):  # of which the event loop runs some
                answer = await client.call("panics", {})
                assert answer.json["error"]["code"] == -32603
                assert "reference" in answer.json["error"]["data"]
            answer = await client.call("open_nodes", {"names": []})
            assert answer.json["result"]["isError"] is False

    run(scenario)


def test_a_call_over_stdio_that_panics_is_answered(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        plain = plain_call(line(call(1, "panics")))
        assert plain is not None
        told = Calls(client.session, panicking()).answer(plain, HandshakeForm())
    assert told.error is not None
    assert b"Internal error (reference" in told.message


def test_the_follower_goes_on_after_a_panic(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rounds: list[Opened] = []
    again = threading.Event()

    def caught_up(opened: Opened) -> None:
        rounds.append(opened)
        if len(rounds) == 1:
            again.set()
            panic()
        again.set()

    with client_on(tmp_path) as client:
        monkeypatch.setattr(client.service._follower._indexes, "_catch_up", caught_up)
        for number in (1, 2):
            again.clear()
            entity = {"name": f"Jon {number}", "entityType": "person"}
            client("create_entities", entities=[entity])
            assert again.wait(DEADLINE_SECONDS)
    assert len(rounds) == 2
