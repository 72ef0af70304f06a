"""No thread is to be had, as where their number or the process's memory is limited: later, or by who is there."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from memlog.errors import EmbeddingError
from memlog.settings import Settings
from projections import embeddings
from projections.embeddings import Embeddings
from server.direct import Direct
from server.leaving import give_up_after
from server.lines import LineCutter
from server.solo import Solo
from tests.embedder_by_hash import opened_by_hash
from tests.service import client_on

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system grants such a stack")

STACK_BYTES = 2**46
"""More addresses than a process has beside what it uses."""
DEADLINE_SECONDS = 60.0


@contextmanager
def no_threads() -> Iterator[None]:
    """The system refuses each thread that this process would start."""
    before = threading.stack_size(STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def test_a_write_that_no_thread_can_follow_is_acknowledged_and_the_next_is_followed(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        with no_threads():
            client("create_entities", entities=[entity("Jon")])
            assert client("search_nodes", query="Jon", mode="text")["entities"]
        client("create_entities", entities=[entity("Gina")])
        projections = client.service.open("default").projections
        until = time.monotonic() + DEADLINE_SECONDS
        while projections.positions().get("text") != projections.head():
            assert time.monotonic() < until
            time.sleep(0.02)


def test_a_text_index_whose_merges_got_no_thread_is_written_again(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        projections = client.service.open("default").projections
        with no_threads():
            projections.rebuild("text")
        projections.rebuild("text")
        assert projections.positions()["text"] == projections.head()


def test_a_model_that_no_thread_can_load_is_told_and_loaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    opened = Embeddings(Settings(data_dir=tmp_path, embedder="minilm"))
    try:
        with no_threads(), pytest.raises(EmbeddingError, match="can't start new thread"):
            opened.get()
        assert opened.get().key == "by-hash"
    finally:
        opened.close()


def test_a_model_that_no_thread_can_load_ahead_is_loaded_when_it_is_asked(tmp_path: Path) -> None:
    """Else the answer after which it was to be loaded would be an error."""
    with client_on(tmp_path) as client, no_threads():
        client.service.warm_up()


def test_a_server_ends_well_where_no_thread_can_watch_its_end() -> None:
    with no_threads():
        give_up_after(DEADLINE_SECONDS)


def test_reading_that_no_thread_can_take_over_stays_where_it_was(tmp_path: Path) -> None:
    """Else nobody would read any more, and the end would wait for it."""

    async def lend(source: int, direct: Direct) -> None:
        solo = Solo.where_possible(source, LineCutter(), direct, lambda lines, ended: None)
        assert solo is not None
        with no_threads():
            assert not solo.lend()
        with anyio.fail_after(DEADLINE_SECONDS):
            await solo.wait_home()
        assert solo.lend()
        solo.recall()
        with anyio.fail_after(DEADLINE_SECONDS):
            await solo.wait_home()
        solo.close()

    source, end = os.pipe()
    with client_on(tmp_path) as client:
        direct = Direct(client.session, client.tools, on_first_answer=lambda: None)
        anyio.run(lend, source, direct)
    os.close(source)
    os.close(end)
