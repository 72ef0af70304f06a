"""What the vector projection keeps on disk, and what becomes of it when a process is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from memlog.errors import ProjectNotFound
from projections.documents import Died, Scope
from projections.vectors.projector import SAVE_ROWS_MIN, VectorProjector
from tests.vectors_by_hash import DIMENSIONS, batch, embed, nearest, numbered, opened, query

ROOT = Path(__file__).resolve().parent.parent


def test_what_was_saved_answers_the_same_after_loading(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 300))
    projector.apply(batch(301, *(Died(f"obs_{n:06}", 300) for n in range(1, 150))))
    projector.save()

    loaded = opened(tmp_path / "vectors")

    assert loaded.position == 301
    for text in ("text 3", "text 200", "something else"):
        for at in (None, 40, 250):
            again = nearest(loaded, query(text), Scope(at), limit=30)
            assert again == nearest(projector, query(text), Scope(at), limit=30)


def test_nothing_is_saved_of_nothing(tmp_path: Path) -> None:
    opened(tmp_path / "vectors").save()

    assert not (tmp_path / "vectors").exists()


def test_a_snapshot_of_other_dimensions_is_not_used(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))
    projector.save()

    assert VectorProjector(tmp_path / "vectors", embed, DIMENSIONS + 1).position == 0
    assert list((tmp_path / "vectors").iterdir()) == []


@pytest.mark.parametrize("place", [0, 12, 60, -40, -1])
def test_a_damaged_snapshot_is_removed_and_the_older_one_used(tmp_path: Path, place: int) -> None:
    projector = opened(tmp_path / "vectors")
    for first in (1, 4):
        projector.apply(numbered(first, first + 3))
        projector.save()
    newest = tmp_path / "vectors" / "6.snapshot"
    data = bytearray(newest.read_bytes())
    data[place] ^= 0x10
    newest.write_bytes(data)

    loaded = opened(tmp_path / "vectors")

    assert loaded.position == 3
    assert not newest.exists()


def test_maybe_save_waits_until_enough_rows_are_new(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, SAVE_ROWS_MIN + 1))
    assert not projector.maybe_save()

    projector.apply(numbered(SAVE_ROWS_MIN + 1, SAVE_ROWS_MIN + 2))
    assert projector.maybe_save()
    assert not projector.maybe_save()
    assert opened(tmp_path / "vectors").position == SAVE_ROWS_MIN + 1


def test_a_snapshot_does_not_bring_back_the_folder_of_a_project_that_has_gone(
    tmp_path: Path,
) -> None:
    projector = opened(tmp_path / "project" / "vectors")
    projector.apply(numbered(1, SAVE_ROWS_MIN + 2))

    with pytest.raises(ProjectNotFound, match="put away"):  # and not that the disk failed
        projector.save()
    assert not projector.maybe_save()
    assert not (tmp_path / "project").exists()


def test_refresh_takes_over_a_snapshot_that_is_far_ahead_and_no_other(tmp_path: Path) -> None:
    behind, ahead = opened(tmp_path / "vectors"), opened(tmp_path / "vectors")
    for first in (1, 1_001):
        ahead.apply(numbered(first, first + 1_000))
        ahead.save()
        behind.refresh()
        assert behind.position == (0 if first == 1 else 2_000)

    assert nearest(behind, query("x"), limit=9) == nearest(ahead, query("x"), limit=9)


def test_a_process_killed_while_it_saves_leaves_what_it_saved_before(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from tests.vectors_by_hash import nearest, save_for_ever; "
        "save_for_ever(pathlib.Path(sys.argv[1]))"
    )
    position = 0
    for lines in (1, 4, 9):
        command = [sys.executable, "-c", code, str(tmp_path / "vectors")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            reported = [int(child.stdout.readline()) for _ in range(lines)]
            child.send_signal(signal.SIGKILL)

        survivor = opened(tmp_path / "vectors")

        assert position < reported[-1] <= survivor.position
        position = survivor.position
        rebuilt = opened(tmp_path / "elsewhere")
        rebuilt.apply(numbered(1, position + 1))
        assert nearest(survivor, query("x"), limit=50) == nearest(rebuilt, query("x"), limit=50)
