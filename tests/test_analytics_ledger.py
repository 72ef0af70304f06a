"""The ledger of analytics: what it writes at the end is what a timeline writes at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lmdb
from hypothesis import given
from hypothesis import strategies as st

from memlog.storage.tables import LmdbRows, MemoryRows, Timeline
from projections.analytics.ledger import Ledger
from tests.test_tables import WRITES


@given(WRITES, st.sets(st.integers(0, 30)))
def test_a_ledger_flushed_at_any_moments_leaves_the_rows_of_a_timeline(
    writes: list[tuple[bytes, bytes | None]], flushed_after: set[int]
) -> None:
    present, past = MemoryRows(), MemoryRows()
    timeline = Timeline(present, past)
    with (
        tempfile.TemporaryDirectory() as folder,
        lmdb.open(str(Path(folder) / "t.mdb"), subdir=False, max_dbs=2) as environment,
    ):
        databases = [environment.open_db(name) for name in (b"now", b"past")]
        with environment.begin(write=True) as transaction:
            ledger = Ledger(transaction, databases[0], databases[1])
            for number, (key, value) in enumerate(writes):
                for each in (timeline, ledger):
                    each.move_to(1 + number // 2)  # two changes at each position
                    if value is None:
                        each.delete(key)
                    elif each.get(key) is None:
                        each.add(key, value)
                    else:
                        each.put(key, value)
                assert ledger.get(key) == timeline.get(key)
                if number in flushed_after:
                    ledger.flush()
            ledger.flush()
            written = [list(LmdbRows(transaction, each).scan(b"")) for each in databases]
    assert written == [list(present.scan(b"")), list(past.scan(b""))]
