"""Tables: both backings alike, and every past of a timeline as it was."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.storage.tables import TOUCHED, LmdbRows, MemoryRows, Rows, Timeline

KEYS = st.sampled_from([table + name for table in (b"A", b"B") for name in (b"01", b"02", b"11")])
WRITES = st.lists(st.tuples(KEYS, st.none() | st.binary(min_size=1, max_size=3)), max_size=30)


@contextmanager
def lmdb_rows(*names: bytes) -> Iterator[list[LmdbRows]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        lmdb.open(str(Path(folder) / "t.mdb"), subdir=False, max_dbs=len(names)) as environment,
    ):
        databases = [environment.open_db(name) for name in names]
        with environment.begin(write=True) as transaction:
            yield [LmdbRows(transaction, database) for database in databases]


@pytest.fixture(params=["memory", "lmdb"])
def rows(request: pytest.FixtureRequest) -> Iterator[Rows]:
    if request.param == "memory":
        yield MemoryRows()
    else:
        with lmdb_rows(b"rows") as (backing,):
            yield backing


def test_rows_replace_pop_and_add(rows: Rows) -> None:
    assert rows.replace(b"a", b"1") is None
    assert rows.replace(b"a", b"2") == b"1"
    rows.add(b"a", b"3")
    assert rows.get(b"a") == b"2"
    assert rows.pop(b"a") == b"2"
    assert rows.pop(b"a") is None
    assert rows.get(b"a") is None


def test_rows_are_scanned_in_order_within_a_prefix_and_from_a_start(rows: Rows) -> None:
    for key in (b"b2", b"a1", b"b1", b"c1", b"b3"):
        rows.replace(key, b"x" + key)
    assert [key for key, _ in rows.scan(b"b")] == [b"b1", b"b2", b"b3"]
    assert [key for key, _ in rows.scan(b"b", b"b2")] == [b"b2", b"b3"]
    assert list(rows.scan(b"z")) == []
    assert [key for key, _ in rows.back(b"b")] == [b"b3", b"b2", b"b1"]
    assert [key for key, _ in rows.back(b"c")] == [b"c1"]
    assert list(rows.back(b"a2")) == list(rows.back(b"z")) == []
    assert rows.ceiling(b"b11") == (b"b2", b"xb2")
    assert rows.ceiling(b"d") is None


@pytest.mark.parametrize(
    "read",
    [
        lambda rows, prefix: [*rows.scan(prefix)],
        lambda rows, prefix: [*rows.back(prefix)],
        LmdbRows.under,
    ],
)
@pytest.mark.parametrize(("prefix", "found"), [(b"A", [(b"A1", b"small")]), (b"A2", [])])
def test_the_value_of_a_row_beyond_those_asked_for_is_not_read(
    read: Callable[[LmdbRows, bytes], list[Any]], prefix: bytes, found: list[Any]
) -> None:
    with lmdb_rows(b"rows") as (rows,):
        rows.add(b"A1", b"small")
        rows.add(b"B", b"large" * 100_000)
        tracemalloc.start()
        try:
            assert read(rows, prefix) == found
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 100_000


@given(WRITES)
def test_every_past_of_a_timeline_reads_as_it_was(writes: list[tuple[bytes, bytes | None]]) -> None:
    def lived(now: Rows, past: Rows) -> None:
        timeline = Timeline(now, past)
        pasts: list[dict[bytes, bytes]] = [{}]
        for position, (key, value) in enumerate(writes, start=1):
            present = dict(pasts[-1])
            timeline.move_to(position)
            if value is None:
                timeline.delete(key)
                present.pop(key, None)
            else:
                timeline.put(key, value)
                present[key] = value
            timeline.list_touched()
            pasts.append(present)
        for position, expected in enumerate(pasts):
            at = timeline.at(position)
            for prefix in (b"A", b"B", b"A0"):
                wanted = {key: value for key, value in expected.items() if key.startswith(prefix)}
                assert list(at.scan(prefix)) == sorted(wanted.items())
                assert list(at.back(prefix)) == sorted(wanted.items(), reverse=True)
            for start in (b"A02", b"A02\0"):
                assert list(at.scan(b"A", start)) == [
                    row for row in sorted(expected.items()) if start <= row[0] < b"B"
                ]
            for key in {key for key, _ in writes}:
                assert at.get(key) == expected.get(key)
        living = [row for row in timeline.scan(b"") if not row[0].startswith(TOUCHED)]
        assert living == sorted(pasts[-1].items())
        assert list(timeline.back(b"A")) == list(timeline.scan(b"A"))[::-1]
        for prefix in (b"A", b"B", b"A0"):
            assert timeline.holds(prefix) == any(key.startswith(prefix) for key in pasts[-1])

    lived(MemoryRows(), MemoryRows())
    with lmdb_rows(b"now", b"past") as (now, past):
        lived(now, past)


def test_several_changes_of_a_key_at_one_position_are_one_change() -> None:
    timeline = Timeline(MemoryRows(), MemoryRows())
    timeline.move_to(1)
    timeline.put(b"Ak", b"1")
    timeline.move_to(2)
    timeline.put(b"Ak", b"2")
    timeline.delete(b"Ak")
    timeline.put(b"Ak", b"3")
    assert timeline.at(0).get(b"Ak") is None
    assert timeline.at(1).get(b"Ak") == b"1"
    assert timeline.at(2).get(b"Ak") == b"3"


def test_the_versions_of_a_key_tell_since_and_until_when_each_held() -> None:
    timeline = Timeline(MemoryRows(), MemoryRows())
    for position, value in ((2, b"1"), (5, b"2"), (7, None), (9, b"3")):
        timeline.move_to(position)
        timeline.delete(b"Ak") if value is None else timeline.put(b"Ak", value)
    timeline.move_to(11)
    timeline.put(b"Al", b"passing")
    timeline.delete(b"Al")
    timeline.list_touched()
    assert list(timeline.versions(b"A")) == [
        (b"Ak", 2, 5, b"1"),
        (b"Ak", 5, 7, b"2"),
        (b"Ak", 9, None, b"3"),
    ]
    assert timeline.touched(11) == [b"Al"]


def test_the_first_rows_of_a_past_are_read_without_all_that_lies_behind_them() -> None:
    read = []

    class Watched(MemoryRows):
        def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
            for row in super().scan(prefix, start):
                read.append(row)
                yield row

    timeline = Timeline(Watched(), Watched())
    for position in range(1, 101):
        timeline.move_to(position)
        timeline.put(b"A%03d" % position, b"x")
    assert next(timeline.at(50).scan(b"A")) == (b"A001", b"x")
    assert len(read) <= 4
