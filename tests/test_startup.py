"""The collector around imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from server.startup import collector_at_rest


@pytest.fixture(autouse=True)
def collector_as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_rests_and_what_was_made_is_kept_from_it() -> None:
    before = gc.get_freeze_count()
    with collector_at_rest():
        assert not gc.isenabled()
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_at_rest():
        pass
    assert not gc.isenabled()


def test_a_failed_import_does_not_leave_it_off() -> None:
    with pytest.raises(ImportError), collector_at_rest():
        raise ImportError
    assert gc.isenabled()
