"""What is counted and is no event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path

import lmdb
import pytest

from memlog.projects.purging import Target
from server.usage import Usage
from tests.service import client_on
from tests.simulated_faults import Fault, Faults, installed
from tests.test_failures import no_room_for_what_ends_a_commit

DEADLINE_SECONDS = 30.0


def test_what_one_process_counted_the_next_adds_to(tmp_path: Path) -> None:
    for _ in range(2):
        with closing(Usage(tmp_path / "usage.mdb")) as usage:
            usage.count("saved")
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.count("saved")
        assert usage.counted("saved") == 3


def test_a_memory_was_last_read_when_the_last_of_all_read_it_whoever_wrote_it_down_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for now in (2_000, 1_000):
        monkeypatch.setattr("server.usage.clock_us", lambda now=now: now)
        with closing(Usage(tmp_path / "usage.mdb")) as usage:
            usage.read(["mem_1"])
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        assert usage.accessed_us("mem_1") == 2_000


@pytest.mark.parametrize("written_down", [False, True])
def test_when_a_memory_was_last_read_does_not_go_back_with_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written_down: bool
) -> None:
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        for now in (2_000, 1_000):
            monkeypatch.setattr("server.usage.clock_us", lambda now=now: now)
            usage.read(["mem_1"])
            if written_down:
                usage.flush()
            assert usage.accessed_us("mem_1") == 2_000


def test_what_the_disk_refused_to_count_is_counted_the_next_time(tmp_path: Path) -> None:
    faults = Faults()
    with installed(faults), closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.count("saved")
        usage.read(["mem_1"])
        faults.plan(Fault("failures", 0, "before a write"))
        usage.flush()
        faults.plan(None)
        usage.count("saved")
        assert usage.counted("saved") == 2
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        assert usage.counted("saved") == 2
        assert usage.accessed_us("mem_1")


@contextmanager
def amid_a_write(usage: Usage) -> Iterator[None]:
    """In here what was read and counted is on its way to the disk: handed over, and not there yet."""
    under_way, over = threading.Event(), threading.Event()
    write = usage._environment.write

    def waiting(body: Callable[[lmdb.Transaction], None]) -> None:
        under_way.set()
        assert over.wait(DEADLINE_SECONDS)
        write(body)

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(1) as threads:
        patched.setattr(usage._environment, "write", waiting)
        flushing = threads.submit(usage.flush)
        assert under_way.wait(DEADLINE_SECONDS)
        patched.undo()
        try:
            yield
        finally:
            over.set()
        flushing.result(DEADLINE_SECONDS)


def test_what_is_on_its_way_to_the_disk_is_told_meanwhile(tmp_path: Path) -> None:
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.count("saved")
        usage.read(["mem_1"])
        with amid_a_write(usage):
            usage.count("saved")
            assert usage.accessed_us("mem_1")
            assert usage.counted("saved") == 2
        assert usage.counted("saved") == 2
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        assert usage.accessed_us("mem_1")
        assert usage.counted("saved") == 2


def test_a_memory_that_is_forgotten_while_its_time_is_written_is_not_known_again(
    tmp_path: Path,
) -> None:
    with closing(Usage(tmp_path / "usage.mdb")) as usage, ThreadPoolExecutor(1) as threads:
        usage.read(["mem_1"])
        with amid_a_write(usage):
            forgetting = threads.submit(usage.forget, ["mem_1"])
            wait([forgetting], timeout=0.2)
        forgetting.result(DEADLINE_SECONDS)
        assert not usage.accessed_us("mem_1")


def test_a_fact_is_stored_and_listed_where_nobody_can_tell_when_it_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults()
    with installed(faults), client_on(tmp_path) as client:
        for _ in range(3):
            faults.plan(Fault("failures", 0, "snapshot usage.mdb"))
            stored = client("store_memory", content="tea")["created"]
            listed = client("list_recent_memories")["memories"][0]
            assert listed["accessed_at"] == stored["created_at"]
            faults.plan(None)
    assert caplog.text.count("cannot be told now") == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="handles by number: Linux only")
def test_what_was_counted_since_a_commit_failed_at_its_end_is_kept(tmp_path: Path) -> None:
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        usage.read(["mem_1", "mem_2"])
        with no_room_for_what_ends_a_commit(tmp_path / "usage.mdb"):
            usage.flush()
        usage.flush()
        usage.read(["mem_1", "mem_2"])
        with no_room_for_what_ends_a_commit(tmp_path / "usage.mdb"):
            usage.flush()
        usage.forget(["mem_2"])
    with closing(Usage(tmp_path / "usage.mdb")) as usage:
        assert usage.accessed_us("mem_1")
        assert not usage.accessed_us("mem_2")


def test_when_a_purged_memory_was_read_is_forgotten_with_it(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        known = [
            client("store_memory", content=each)["created"]["id"] for each in ("tea", "coffee")
        ]
        client("search_memories", query="tea coffee")
        usage = client.service.usage
        assert all(map(usage.accessed_us, known))
        client.service.purge("default", Target(memories=(known[0],)))
        assert [bool(usage.accessed_us(each)) for each in known] == [False, True]


def test_what_is_read_by_a_server_to_which_nobody_writes_is_noted_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.quiet.QUIET_SECONDS", 0.01)
    with client_on(tmp_path) as client:
        stored = client("store_memory", content="The user sails")["created"]["id"]
    with client_on(tmp_path, read_only=True) as client:
        noted = threading.Event()
        flush = client.service.usage.flush

        def flushed() -> None:
            flush()
            if client.service.usage._stored("accessed", stored):
                noted.set()

        monkeypatch.setattr(client.service._quiet, "_write_down", flushed)
        client("search_memories", query="sails")
        assert noted.wait(30)
