from __future__ import annotations

import threading

import pytest

from projections.vectors.turns import Turns

DEADLINE_SECONDS = 30


def test_readers_share_a_turn() -> None:
    turns, together = Turns(), threading.Barrier(3, timeout=DEADLINE_SECONDS)

    def read() -> None:
        with turns.reading():
            together.wait()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(timeout=DEADLINE_SECONDS)

    assert not together.broken


def test_a_writer_is_alone() -> None:
    turns = Turns()
    inside: list[str] = []
    wrong: list[list[str]] = []

    def take(kind: str) -> None:
        for _ in range(200):
            with turns.writing() if kind == "writer" else turns.reading():
                inside.append(kind)
                if "writer" in inside and len(inside) > 1:
                    wrong.append(list(inside))
                inside.remove(kind)

    takers = [
        threading.Thread(target=take, args=(kind,), daemon=True)
        for kind in ("writer", "writer", "reader") * 2
    ]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(timeout=DEADLINE_SECONDS)

    assert not any(taker.is_alive() for taker in takers)
    assert wrong == []
    assert inside == []


def test_what_an_interrupt_left_reading_is_not_waited_for() -> None:
    """Ctrl-C that comes when a thread has its turn, and nothing yet sees to its giving it back."""
    turns, ended = Turns(), threading.Event()

    def use() -> None:
        left = turns.reading()
        left.__enter__()
        with turns.writing():
            ended.set()

    threading.Thread(target=use, daemon=True).start()
    assert ended.wait(DEADLINE_SECONDS)


def test_a_reader_that_is_interrupted_while_it_waits_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with turns.writing(), monkeypatch.context() as patch:
        patch.setattr(turns._changed, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt), turns.reading():
            pass
    ended = threading.Event()

    def write() -> None:
        with turns.writing():
            ended.set()

    threading.Thread(target=write, daemon=True).start()
    assert ended.wait(DEADLINE_SECONDS)


def test_a_waiting_reader_comes_between_two_turns_of_a_writer() -> None:
    turns, order = Turns(), list[str]()
    reader = threading.Thread(target=lambda: _read(turns, order))

    with turns.writing():
        reader.start()
        _until_waiting(turns)
        order.append("first write")
    with turns.writing():
        order.append("second write")
    reader.join(timeout=DEADLINE_SECONDS)

    assert order == ["first write", "read", "second write"]


def _read(turns: Turns, order: list[str]) -> None:
    with turns.reading():
        order.append("read")


def _until_waiting(turns: Turns) -> None:
    """Lets the reader come as far as waiting; it gives up the condition's lock only there."""
    arrived = False
    while not arrived:
        with turns._changed:
            arrived = turns._waiting_to_read > 0


def test_a_turn_that_fails_is_given_back() -> None:
    turns = Turns()
    for turn in (turns.reading, turns.writing):
        with pytest.raises(RuntimeError, match="in the middle"), turn():
            raise RuntimeError("in the middle")
    done = threading.Thread(target=lambda: _read(turns, []), daemon=True)
    with turns.writing():
        pass
    done.start()
    done.join(timeout=DEADLINE_SECONDS)

    assert not done.is_alive()


def test_a_stream_of_readers_without_a_gap_keeps_no_writer_out() -> None:
    """Each reader leaves only when the next has come, or waits behind the writer."""
    turns, written = Turns(), threading.Event()
    inside = threading.Semaphore(0)

    def read() -> None:
        while not written.is_set():
            with turns.reading():
                inside.release()
                inside.acquire(timeout=0.001)

    def write() -> None:
        with turns.writing():
            written.set()

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    writer = threading.Thread(target=write)
    writer.start()
    writer.join(timeout=DEADLINE_SECONDS)
    let_in = written.is_set()
    written.set()
    for reader in readers:
        reader.join(timeout=DEADLINE_SECONDS)
    assert let_in
