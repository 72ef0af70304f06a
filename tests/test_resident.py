"""Memory goes back to the system: what was freed, and the pages of files that nobody reads just now."""

from __future__ import annotations

import errno
import os
import platform
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from memlog.settings import Settings
from memlog.storage import everywhere
from memlog.storage.environment import Environment
from memlog.storage.filling import fill
from memlog.storage.gates import Gate
from memlog.storage.pages import Pages
from memlog.storage.resident import HEAPS
from projections.embedding.store import VectorCache
from server import quiet
from server.service import Service
from tests.http_served import HttpClient, served_http
from tests.served import DEADLINE_S, served

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="pages are given back on Linux only"
)

ROWS = 4_000
PAGE = 4_096


def filled(path: Path) -> Environment:
    """A file of 16 MB."""
    environment = Environment(path, ("rows",), map_bytes=1 << 26)
    fill(environment, "rows", ((number.to_bytes(8, "big"), bytes(3_000)) for number in range(ROWS)))
    return environment


def read_all(environment: Environment) -> int:
    with environment.read() as transaction:
        cursor = transaction.cursor(db=environment.databases["rows"])
        return sum(len(value) for _, value in cursor)


def resident_bytes(path: Path) -> int:
    """How much of a file this process has touched and holds."""
    of_file, kilobytes = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            of_file = line.endswith(str(path))
        elif of_file and line.startswith("Rss:"):
            kilobytes += int(line.split()[1])
    return kilobytes * 1024


def test_a_file_that_was_read_is_let_go_of_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.mdb"
    environment = filled(path)
    assert read_all(environment) == ROWS * 3_000
    assert resident_bytes(path) > ROWS * 3_000

    environment.give_back()

    assert resident_bytes(path) < 10 * PAGE
    assert read_all(environment) == ROWS * 3_000
    environment.close()
    environment.give_back()


def test_who_reads_meanwhile_reads_what_is_there(tmp_path: Path) -> None:
    environment = filled(tmp_path / "rows.mdb")
    begun, ended = threading.Event(), threading.Event()
    found: list[int] = []

    def reading() -> None:
        while not ended.is_set():
            found.append(read_all(environment))
            begun.set()

    threads = [threading.Thread(target=reading) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(DEADLINE_S)
    for _ in range(200):
        everywhere.give_back_all()
    ended.set()
    for thread in threads:
        thread.join()
    environment.close()

    assert set(found) == {ROWS * 3_000}


def test_only_the_file_that_is_open_is_let_go_of(tmp_path: Path) -> None:
    """Not that which took its place, whose map nobody holds still, nor what looks through it for itself."""
    path = tmp_path / "rows.mdb"
    old = filled(path)
    old.rewrite(lambda _, fresh: filled(fresh).close())
    new = Environment(path, ("rows",))
    read_all(new)
    pages = Pages(path)
    assert pages.data.find(b"nowhere") < 0
    held = resident_bytes(path)

    old.give_back()
    assert resident_bytes(path) >= held
    new.give_back()
    assert ROWS * 3_000 < resident_bytes(path) < held - ROWS * 2_000
    pages.close()
    new.close()
    old.close()


def test_who_does_not_wait_is_not_let_through_a_closed_gate() -> None:
    """The file would be mapped elsewhere while its pages are given back."""
    gate = Gate()
    with gate.closed():
        assert not gate.try_enter()
    assert gate.try_enter()
    gate.leave()
    with gate.closed():
        pass


def test_who_gives_nothing_back_for_a_closed_gate_leaves_nobody_unseen(tmp_path: Path) -> None:
    """Whoever makes the map larger waits for those inside, or LMDB would end the process."""
    environment = Environment(tmp_path / "log.mdb", ("rows",))
    with environment._gate.closed():
        environment.give_back()
        assert not environment.is_unlinked()
    with environment.read():
        assert environment._gate._inside
    environment.close()


def test_a_gate_is_open_again_when_an_interrupt_ends_the_waiting_for_those_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    gate = Gate()
    gate.enter()
    with monkeypatch.context() as patch:
        patch.setattr(gate._changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), gate.closed():
            pass
    gate.leave()
    assert gate.try_enter()
    gate.leave()


def test_what_an_interrupt_left_inside_is_not_waited_for_at_the_end(tmp_path: Path) -> None:
    """Ctrl-C that comes when a thread has passed the gate, and nothing yet sees to its leaving."""
    environment = filled(tmp_path / "a.mdb")
    enter, ends = environment._gate.enter, threading.Event()

    def interrupted() -> None:
        enter()
        raise KeyboardInterrupt

    def use() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(environment._gate, "enter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                environment.write(lambda transaction: None)
        environment.close()
        ends.set()

    threading.Thread(target=use, daemon=True).start()
    assert ends.wait(DEADLINE_S)


def test_at_the_end_others_are_waited_for(tmp_path: Path) -> None:
    environment = filled(tmp_path / "a.mdb")
    closing = threading.Thread(target=environment.close, daemon=True)
    with environment.read() as transaction:
        closing.start()
        while not environment._gate._closed:
            time.sleep(0.001)
        assert transaction.stat(environment.databases["rows"])["entries"] == ROWS
    closing.join(DEADLINE_S)
    assert not closing.is_alive()


def test_nothing_is_kept_open_by_who_gives_back(tmp_path: Path) -> None:
    """Not even while the map of another file waits to be resized, which nobody may look at then."""
    waiting, dropped = filled(tmp_path / "a.mdb"), filled(tmp_path / "b.mdb")
    dropped_path = dropped.path
    with waiting.read():
        resizing = threading.Thread(target=waiting._resize, args=(1 << 27,))
        resizing.start()
        while not waiting._gate._closed:
            time.sleep(0.001)
        giving = threading.Thread(target=everywhere.give_back_all)
        giving.start()
        giving.join(DEADLINE_S)
        assert not giving.is_alive()
        del dropped
        reopened = Environment(dropped_path, ("rows",))
    resizing.join()
    reopened.close()
    waiting.close()


def test_a_service_can_be_closed_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(quiet, "give_back_all", lambda: None)

    def living() -> None:
        for _ in range(2_000):
            each = quiet.Quiet(lambda: None, lambda: None)
            each.called()
            each.stop()

    thread = threading.Thread(target=living, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_what_fails_once_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.01)
    tries = threading.Semaphore(0)

    def failing() -> None:
        tries.release()
        raise ValueError("a name that is no text")

    monkeypatch.setattr(quiet, "give_back_all", failing)
    each = quiet.Quiet(lambda: None, lambda: None)
    for _ in range(2):
        each.called()
        assert tries.acquire(timeout=DEADLINE_S)
    each.stop()


def test_a_disk_that_is_away_costs_a_line_of_the_log_for_each_round(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(quiet, "give_back_all", lambda: None)
    looks = threading.Semaphore(0)

    def away() -> None:
        looks.release()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    each = quiet.Quiet(lambda: None, away)
    each.called()
    assert looks.acquire(timeout=DEADLINE_S)
    each.stop()
    told = [record for record in caplog.records if record.name == "memlog.quiet"]
    assert told and not any(record.exc_info for record in told)
    assert "Input/output error" in told[0].message


def test_what_others_removed_is_let_go_of_though_nobody_calls_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(quiet, "LOOK_SECONDS", 0.01)
    looks = threading.Semaphore(0)
    each = quiet.Quiet(lambda: None, looks.release)
    each.called()
    for _ in range(3):
        assert looks.acquire(timeout=DEADLINE_S)
    each.stop()


def test_a_service_that_nobody_calls_any_more_lets_go_of_what_it_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "QUIET_SECONDS", 0.05)
    path = tmp_path / "rows.mdb"
    environment = filled(path)
    service = Service(Settings(data_dir=tmp_path / "data", embedder="none"))
    service.store.create("notes")

    for _ in range(2):  # it falls asleep, and wakes up again
        read_all(environment)
        assert resident_bytes(path) > ROWS * 3_000
        service.open("notes")
        until = time.monotonic() + DEADLINE_S
        while resident_bytes(path) > 10 * PAGE and time.monotonic() < until:
            time.sleep(0.02)
        assert resident_bytes(path) < 10 * PAGE
    service.close()
    environment.close()


def test_the_cache_of_vectors_is_among_what_is_let_go_of(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "vectors.mdb"
    cache = VectorCache(path)
    texts = [f"text {number}" for number in range(2_000)]
    vectors = np.random.default_rng(1).normal(size=(2_000, 384)).astype(np.float32)
    cache.put_many(texts, vectors)
    cache.get_many(texts)
    assert resident_bytes(path) > 1_000_000

    everywhere.give_back_all()

    assert resident_bytes(path) < 10 * PAGE
    assert cache.get_many(texts[:1])[0] == pytest.approx(vectors[0], abs=1e-3)
    cache.close()


HEAP_BYTES = 1 << 26


def further_heaps(pid: int) -> int:
    """Of GNU's library: each but the first has so many addresses, from a multiple of that, some not used yet."""
    heaps = 0
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    for used, rest in pairwise(line.split() for line in lines):
        start, _ = (int(each, 16) for each in used[0].split("-"))
        _, stop = (int(each, 16) for each in rest[0].split("-"))
        of_heap = (used[1], rest[1], len(used), len(rest)) == ("rw-p", "---p", 5, 5)
        heaps += of_heap and start % HEAP_BYTES == 0 and stop == start + HEAP_BYTES
    return heaps


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="these heaps are GNU's library's")
def test_the_threads_of_a_server_share_few_heaps(tmp_path: Path) -> None:
    """There would be one for nearly each of them, and in each what was freed."""
    with served(tmp_path / "stdio") as pipe, served_http(tmp_path / "http") as server:
        for client in (pipe, HttpClient(server)):
            client("store_memory", content="Jon dances")
            client("search_memories", query="who dances?")
        for each in (pipe, server):
            assert len([*Path(f"/proc/{each.popen.pid}/task").iterdir()]) > 2 * HEAPS
            assert further_heaps(each.popen.pid) < HEAPS
