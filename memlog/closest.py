"""The names nearest to one that was not found: what an error offers its reader."""

from __future__ import annotations

from collections.abc import Iterable

from memlog.controls import CONTROL

SCORE_MIN = 60.0
NAMES_COMPARED_MAX = 100_000


def closest(wanted: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Up to `limit` of `names` by similarity of their letters (rapidfuzz's WRatio, case-blind)."""
    from itertools import islice

    from rapidfuzz import fuzz, process, utils

    found = process.extract(
        wanted,
        islice(names, NAMES_COMPARED_MAX),
        scorer=fuzz.WRatio,
        processor=utils.default_process,
        limit=limit,
        score_cutoff=SCORE_MIN,
    )
    return [name for name, _, _ in found]


def _quoted(name: str) -> str:
    """As it can be copied: Python writes what joins the parts of an emoji, say, as an escape."""
    return repr(name) if CONTROL.search(name) or "'" in name else f"'{name}'"


def did_you_mean(wanted: str, names: Iterable[str]) -> str | None:
    """A sentence that offers the closest names, or None where nothing is near."""
    found = closest(wanted, names)
    return f"Did you mean {' or '.join(map(_quoted, found))}?" if found else None
