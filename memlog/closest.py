"""The names nearest to one that was not found: what an error offers its reader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice

from memlog.controls import CONTROL
from memlog.errors import PROBLEMS_MAX

SCORE_MIN = 60.0
NAMES_COMPARED_MAX = 100_000


class Names:
    """Names that others are compared with, made ready for that once."""

    def __init__(self, names: Iterable[str]) -> None:
        from rapidfuzz import utils

        self._names = list(islice(names, NAMES_COMPARED_MAX))
        self._ready = [utils.default_process(name) for name in self._names]

    def closest(self, wanted: str, limit: int = 3) -> list[str]:
        """Up to `limit` of them by similarity of their letters (rapidfuzz's WRatio, case-blind)."""
        from rapidfuzz import fuzz, process, utils

        ready = utils.default_process(wanted)
        found = process.extract(
            ready, self._ready, scorer=fuzz.WRatio, limit=limit, score_cutoff=SCORE_MIN
        )
        return [self._names[index] for _, _, index in found]

    def did_you_mean(self, wanted: str) -> str | None:
        """A sentence that offers the closest names, or None where nothing is near."""
        found = self.closest(wanted)
        return f"Did you mean {' or '.join(map(_quoted, found))}?" if found else None


def _quoted(name: str) -> str:
    """As it can be copied: Python writes what joins the parts of an emoji, say, as an escape."""
    return repr(name) if CONTROL.search(name) or "'" in name else f"'{name}'"


def did_you_mean(wanted: str, names: Iterable[str]) -> str | None:
    """A sentence that offers the closest of `names`, or None where nothing is near."""
    return Names(names).did_you_mean(wanted)


class Suggestions:
    """What one refusal offers for all that was not found: names are read once however many were missed, and
    compared for no more problems than are told."""

    def __init__(self) -> None:
        self._left = PROBLEMS_MAX
        self._known: dict[Hashable, Names] = {}

    def did_you_mean(
        self, wanted: str, of: Hashable, names: Callable[[], Iterable[str]]
    ) -> str | None:
        """`did_you_mean` among the `names`, which `of` stands for in this refusal."""
        if not self._left:
            return None
        self._left -= 1
        if of not in self._known:
            self._known[of] = Names(names())
        return self._known[of].did_you_mean(wanted)
