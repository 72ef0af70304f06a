"""Twenty rounds of `scripts/torture` in every run of the tests."""

from __future__ import annotations

from tests.torture import PROCESSES, torture

ROUNDS = 20


def test_servers_that_are_killed_under_load_lose_nothing_and_leave_nothing_half_written() -> None:
    report = torture(ROUNDS, seed=20)
    assert (report["lost"], report["half_written"], report["twice"], report["refused"]) == (0,) * 4
    assert report["kills"] >= ROUNDS
    assert report["acknowledged"] > ROUNDS * PROCESSES
    assert report["sent_again"] > 0, "kills that catch no command under way prove nothing"
    assert set(report["indexes"].values()) == {"equal", "switched off"}
