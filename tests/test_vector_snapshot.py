from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.errors import StorageError
from projections.vectors.snapshot import Snapshot, SnapshotFolder


def snapshot(position: int, content: bytes = b"rows") -> Snapshot:
    return Snapshot(position, 8, content, b"numbers", b"")


def names(folder: SnapshotFolder) -> list[str]:
    return sorted(file.name for file in folder.path.iterdir())


def held(folder: SnapshotFolder, position: int) -> tuple[bytes, bytes, bytes] | None:
    read = folder.read(position)
    return None if read is None else (bytes(read.rows), bytes(read.numbers), bytes(read.codes))


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path / "vectors")

    folder.write(Snapshot(7, 384, b"r" * 1_000, b"h" * 77, b"g"))

    assert folder.positions() == [7]
    assert held(folder, 7) == (b"r" * 1_000, b"h" * 77, b"g")
    read = folder.read(7)
    assert read is not None
    assert (read.position, read.dimensions) == (7, 384)


def test_the_newest_and_one_older_are_kept_by_number_and_not_by_name(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)

    for position in (9, 10, 11, 100):
        folder.write(snapshot(position))

    assert names(folder) == ["100.snapshot", "11.snapshot"]
    assert folder.positions() == [100, 11]


def test_a_crash_before_the_rename_leaves_the_old_snapshot_valid(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    folder.write(snapshot(5, b"old"))

    staged = folder.stage(snapshot(9, b"new"))

    assert folder.positions() == [5]
    assert held(folder, 5) == (b"old", b"numbers", b"")
    folder.publish(staged, 9)
    assert held(folder, 9) == (b"new", b"numbers", b"")


def test_a_staged_file_is_swept_when_it_is_too_old_to_be_at_work(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    abandoned, at_work = folder.stage(snapshot(1)), folder.stage(snapshot(2))
    os.utime(abandoned, (0, 0))

    folder.write(snapshot(3))

    assert names(folder) == sorted([at_work.name, "3.snapshot"])


def test_a_snapshot_is_kept_where_nobody_can_look_for_staged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Path, pattern: str) -> list[Path]:
        raise OSError(24, "Too many open files", str(self))

    monkeypatch.setattr(Path, "glob", refused)
    SnapshotFolder(tmp_path).write(snapshot(5))

    assert names(SnapshotFolder(tmp_path)) == ["5.snapshot"]


def test_of_two_for_one_position_the_last_renamed_stays(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    first, second = folder.stage(snapshot(4, b"first")), folder.stage(snapshot(4, b"second"))

    folder.publish(second, 4)
    folder.publish(first, 4)

    assert held(folder, 4) == (b"first", b"numbers", b"")
    assert names(folder) == ["4.snapshot"]


def test_many_that_save_at_once_leave_only_whole_snapshots(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    failures: list[StorageError] = []

    def write(first: int) -> None:
        try:
            for position in range(first, first + 30):
                folder.write(snapshot(position, bytes([position]) * 10_000))
        except StorageError as error:
            failures.append(error)

    writers = [
        threading.Thread(target=write, args=(first,), daemon=True) for first in (1, 2, 3, 10)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)

    assert not any(writer.is_alive() for writer in writers)
    assert failures == []
    newest = folder.positions()[0]
    assert newest == 39
    assert held(folder, newest) == (bytes([39]) * 10_000, b"numbers", b"")


@given(data=st.data())
def test_any_flipped_bit_and_any_cut_is_found_out(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = SnapshotFolder(tmp_path_factory.mktemp("flipped"))
    folder.write(snapshot(5))
    file = folder.path / "5.snapshot"
    whole = bytearray(file.read_bytes())
    if data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    file.write_bytes(whole)

    assert folder.read(5) is None
    assert not file.exists()


def test_a_damaged_snapshot_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = SnapshotFolder(tmp_path)
    (tmp_path / "5.snapshot").write_bytes(b"torn")

    with caplog.at_level(logging.WARNING, logger="memlog.vectors"):
        assert folder.read(5) is None

    assert "5.snapshot is damaged and is removed: it has 4 bytes" in caplog.text


def test_a_snapshot_under_another_ones_name_is_damaged(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    folder.write(snapshot(5))
    (tmp_path / "5.snapshot").rename(tmp_path / "6.snapshot")

    assert folder.read(6) is None
    assert names(folder) == []


def test_what_is_no_snapshot_is_left_alone(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    (tmp_path / "notes.snapshot").write_text("mine")
    (tmp_path / "5.snapshot.bak").write_text("mine")

    folder.write(snapshot(5))
    folder.clear()

    assert folder.positions() == []
    assert names(folder) == ["5.snapshot.bak", "notes.snapshot"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path / "none")

    assert folder.positions() == []
    assert folder.read(5) is None
    folder.clear()


def test_a_snapshot_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path)
    (tmp_path / "5.snapshot").mkdir()

    with pytest.raises(StorageError, match="cannot be written"):
        folder.write(snapshot(5))

    assert names(folder) == ["5.snapshot"]
