"""Twenty rounds of `scripts/torture` in every run of the tests."""

from __future__ import annotations

import pytest

from tests.torture import AS_THE_LOG_SAYS, PROCESSES, Counts, main, torture

ROUNDS = 20


def test_servers_that_are_killed_under_load_lose_nothing_and_leave_nothing_half_written() -> None:
    report = torture(ROUNDS, seed=20)
    assert (report["lost"], report["half_written"], report["twice"], report["refused"]) == (0,) * 4
    assert report["kills"] >= ROUNDS
    assert report["acknowledged"] > ROUNDS * PROCESSES
    assert report["sent_again"] > 0, "kills that catch no command under way prove nothing"
    assert set(report["indexes"].values()) == AS_THE_LOG_SAYS


@pytest.mark.parametrize(("text", "code"), [("equal", 0), ("equal, DIFFERENT: run `…`", 1)])
def test_an_index_that_is_not_what_the_log_says_is_a_failure_of_the_whole_run(
    text: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexes = {"indexes": {"text": text, "vectors": "switched off"}}
    monkeypatch.setattr("tests.torture.torture", lambda *_: Counts().report() | indexes)
    assert main([]) == code
