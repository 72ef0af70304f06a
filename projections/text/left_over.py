"""Files in the folder of a text index that no commit has: who may remove them, and when.

tantivy removes the files that it lists as its own (`.managed.json`). Each process reads that list once, when it opens
the index, and writes it whole; so the files of one process are struck from it by the next, and stay for good when the
first one ends, as do those of one that was killed.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

META_LOCK = ".tantivy-meta.lock"
"""Whoever opens the segments of a commit holds it, so that none goes between the reading of its name and that."""

_OF_A_SEGMENT = re.compile(r"[0-9a-f]{32}\.")
_HALF_WRITTEN = ".tmp"


class _Deletes(msgspec.Struct):
    opstamp: int


class _Segment(msgspec.Struct):
    segment_id: str
    deletes: _Deletes | None = None


class _Meta(msgspec.Struct):
    """What is read of meta.json: the last commit."""

    opstamp: int
    segments: list[_Segment]


def remove_left_over(folder: Path) -> None:
    """Removes what the last commit has not. To be called by who has the index's only writer, before it writes.

    Lists of deletions of a commit that never came must go, because its process was killed: they are named by segment
    and number of the commit, and tantivy counts on from the last one that came. It would meet the name again, and
    refuse to write. All else may be read by who opens the commit before, and waits for the next time then.
    """
    meta = msgspec.json.decode((folder / "meta.json").read_bytes(), type=_Meta)
    living = {each.segment_id.replace("-", ""): each.deletes for each in meta.segments}
    left = [path for path in folder.iterdir() if _is_left_over(path.name, living)]
    unborn = [path for path in left if path.suffix == ".del" and _commit(path) > meta.opstamp]
    with _nobody_opening(folder) as alone:
        for path in left if alone else unborn:
            path.unlink(missing_ok=True)


def _is_left_over(file: str, living: Mapping[str, _Deletes | None]) -> bool:
    """Given the segments of the last commit, each with its list of deletions, if it has one."""
    if not _OF_A_SEGMENT.match(file):
        return file.startswith(_HALF_WRITTEN)
    segment, *rest = file.split(".")
    if segment not in living:
        return True
    deletes = living[segment]
    return rest[-1] == "del" and (deletes is None or int(rest[0]) != deletes.opstamp)


def _commit(path: Path) -> int:
    return int(path.name.split(".")[1])


@contextmanager
def _nobody_opening(folder: Path) -> Iterator[bool]:
    """Whether nobody opens a commit meanwhile; False, at once, where somebody does."""
    with open(folder / META_LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True  # closing lets go
