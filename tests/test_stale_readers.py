"""Who read and is gone leaves nothing behind: old pages are used again, and so is a place among the readers."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest

from memlog.errors import StorageError
from memlog.storage.environment import MAP_BYTES_START, SWEEP_BYTES, Environment
from memlog.storage.files import READERS_MAX
from tests.served import REPOSITORY, environment
from tests.service import client_on

MAP_BYTES = 1 << 20
READER = """
import sys
from pathlib import Path
from memlog.storage.environment import Environment

environment = Environment(Path(sys.argv[1]), ("rows",))
reading = [environment.begin_reading() for _ in range(int(sys.argv[2]))]
print("reading", flush=True)
sys.stdin.read()
"""


@contextmanager
def reading(file: Path, places: int = 1) -> Iterator[None]:
    """Another process reads meanwhile, in so many places, and is killed."""
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(file), str(places)],
        cwd=REPOSITORY,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reading\n"
        yield
    finally:
        reader.kill()
        reader.communicate()


@pytest.mark.parametrize(
    ("map_bytes", "row_bytes", "writes", "bytes_max"),
    [(MAP_BYTES, 2_000, 500, MAP_BYTES), (MAP_BYTES_START, 200_000, 60, 3 * SWEEP_BYTES)],
    ids=["in a small map", "in a large map"],
)
def test_the_pages_that_a_killed_reader_held_are_used_again(
    tmp_path: Path, map_bytes: int, row_bytes: int, writes: int, bytes_max: int
) -> None:
    file = tmp_path / "rows.mdb"
    rows = Environment(file, ("rows",), map_bytes=map_bytes)

    def change(number: int) -> None:
        def body(transaction: lmdb.Transaction) -> None:
            for key in range(10):
                value = bytes([number % 256]) * row_bytes
                transaction.put(b"%d" % key, value, db=rows.databases["rows"])

        rows.write(body)

    change(0)
    with reading(file):
        for number in range(10):
            change(number)
    for number in range(writes):
        change(number)
    rows.close()
    assert file.stat().st_size <= bytes_max


def test_the_places_that_a_killed_process_held_are_given_to_others(tmp_path: Path) -> None:
    file = tmp_path / "rows.mdb"
    rows = Environment(file, ("rows",))
    with reading(file, READERS_MAX), pytest.raises(StorageError), rows.read():
        pass
    with rows.read() as transaction:
        assert transaction.stat(rows.databases["rows"])["entries"] == 0
    rows.close()


def test_a_call_leaves_no_reader_behind_until_python_looks_for_circles(tmp_path: Path) -> None:
    """A transaction in a circle keeps its place among the readers, of which there are so many and no more."""
    calls: list[tuple[str, dict[str, Any]]] = [
        (
            "create_entities",
            {"entities": [{"name": "x", "entityType": "t", "observations": ["a"]}]},
        ),
        ("open_nodes", {"names": ["x", "nobody"]}),
        ("open_nodes", {"names": ["x"], "asOf": 3}),
        ("read_graph", {}),
        ("search_nodes", {"query": "a"}),  # no embedder: an exception comes out of another thread
        ("search_memories", {"query": "a"}),
        ("recall", {"query": "a"}),
        ("store_memory", {"content": "b"}),
        ("get_analytics", {}),
        ("get_history", {}),
        ("list_threads", {}),
    ]
    with client_on(tmp_path) as client:
        for tool, arguments in calls:
            client(tool, **arguments)
        opened = client.service.open("default").project._environment._env

        def places() -> int:
            return len(opened.readers().splitlines()) - 1

        gc.collect()
        gc.disable()
        try:
            before = places()
            for tool, arguments in calls * 5:
                client(tool, **arguments)
            assert (
                places() <= before + 3
            )  # one that is kept for the next reader, and the follower's
        finally:
            gc.enable()
