"""What is done for each of several projects, and fails for some: the others are done all the same, and it is told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from memlog import shell
from memlog.errors import MemlogError
from memlog.ids import is_id

log = logging.getLogger("memlog.each")


def of_project(name: str, error: MemlogError) -> MemlogError:
    """`error`, which names the project, as does what it advises. A short name may stand in any message by chance."""
    told = name if is_id(name, "prj") else f"'{name}'"
    if told not in error.message:
        error.message = f"{name}: {error.message}"
    if error.suggestion:
        error.suggestion = shell.of_project(error.suggestion, name)
    return error


def raise_first(failures: Sequence[MemlogError], done: Sequence[str]) -> None:
    """Where something failed: the first of it, which tells what was `done` all the same; the others go to the log."""
    for other in failures[1:]:
        log.warning("%s", other.message)
    if failures:
        first = failures[0]
        also = f"Done all the same: {', '.join(done)}." if done else None
        first.suggestion = " ".join(filter(None, (first.suggestion, also))) or None
        raise first
