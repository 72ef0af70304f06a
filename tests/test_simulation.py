"""Some seeds of the simulation in every run of the tests; thousands with `scripts/simulate --seeds N`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.served import DEADLINE_S, REPOSITORY, environment

SEEDS = 8


def simulated(seed: int, *options: str, seeds: int = 1, steps: int = 60) -> dict[str, Any]:
    """Runs seeds in a process of their own, which forks the processes of the simulation."""
    asked = [f"--seed={seed}", f"--seeds={seeds}", f"--steps={steps}", "--json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *asked],
        env=environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=False,
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["broken"] == [], "\n".join(report["broken"])
    return report


def test_no_promise_is_broken_by_crashes_and_failures_between_any_two_steps() -> None:
    report = simulated(0, seeds=SEEDS)
    assert len(report["digests"]) == SEEDS
    struck = " ".join(report["struck"])
    for kind in ("crash", "DiskError", "MapFullError", "LockError", "OSError", "ReadersFullError"):
        assert kind in struck, "a run in which nothing strikes proves nothing"
    assert report["done"]["execute done"] > 10 * SEEDS


def test_nothing_is_done_twice_where_things_are_erased_between_a_command_and_its_retry() -> None:
    report = simulated(0, "--purges", seeds=3)
    assert report["done"].get("purge done"), "a run in which nothing is erased proves nothing"


def test_a_seed_reproduces_its_run_to_the_byte() -> None:
    first, again = (simulated(77, steps=20)["digests"] for _ in range(2))
    assert first == again
    assert first != simulated(78, steps=20)["digests"]


def test_seed_100232_a_project_is_put_away_while_another_process_saves_its_vectors() -> None:
    simulated(100232)
