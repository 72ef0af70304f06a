"""Which folders of vectors stay, and which go."""

from __future__ import annotations

from pathlib import Path

from projections.vectors.folders import PREFIX, VectorFolders


def test_what_is_of_another_version_or_of_a_log_before_something_was_erased_goes_at_the_start(
    tmp_path: Path,
) -> None:
    names = [f"{PREFIX}minilm.2", f"{PREFIX}other-pieces.2"]
    for name in (*names, "vectors-v1-minilm.2", f"{PREFIX}minilm", f"{PREFIX}minilm.1", "log.mdb"):
        (tmp_path / name).mkdir()

    VectorFolders(tmp_path, 2).remove_unreadable()

    assert {path.name for path in tmp_path.iterdir()} == {*names, "log.mdb"}
