"""The names nearest to one that was not found: what an error offers its reader."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from heapq import nsmallest
from itertools import accumulate, chain, islice

from memlog.canonical import plain
from memlog.controls import CONTROL
from memlog.errors import PROBLEMS_MAX

SCORE_MIN = 60.0
OFFERED_MAX = 3
REORDERED, PART, FAR_PART, FAR_TIMES = 0.95, 0.9, 0.6, 8
"""What WRatio makes of words in another order, and of a part of a text, which may be so many times as long."""
NAMES_COMPARED_MAX = 100_000
COMPARISONS_MAX = 1_000_000
"""Of one refusal, which is made while nobody else can write."""
CHARACTERS_MAX = 200
"""Of a name or a text, that are compared: what comes behind them tells no more, and costs its square."""
CLOSELY_MAX = 1_000
"""As many names are all looked at closely; of more, those that one look over them finds."""
ALIKE_MAX = 200
SHARING_MAX = 5_000
"""Of names that have a word in common: those with rare words, and with several, come first."""
WORDS_MAX = 10
"""Of a text that was not found: the longest say most."""
NOT_LOOKED_FOR = "Near names were looked for the first ones only: put those right, then call again."


class Names:
    """Names that others are compared with, made ready for that once."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(islice(names, NAMES_COMPARED_MAX))
        self._ready = list(map(_ready, self._names))

    def __len__(self) -> int:
        return len(self._names)

    def closest(self, wanted: str) -> list[str]:
        """The first few of them by similarity of their letters, whatever their case, accents and width."""
        ready = _ready(wanted)
        if not ready:  # it would be the same as each that has no letter either
            return []
        places = self._worth_a_look(ready)
        scores = _alike(ready, [self._ready[place] for place in places])
        best = nsmallest(OFFERED_MAX, ((-score, places[at]) for at, score in scores.items()))
        return [self._names[place] for _, place in best]

    def did_you_mean(self, wanted: str) -> str | None:
        """A sentence that offers the closest names, or None where nothing is near."""
        found = self.closest(wanted)
        return f"Did you mean {' or '.join(map(_quoted, found))}?" if found else None

    def _worth_a_look(self, ready: str) -> Sequence[int]:
        """Where those are that may be the closest: alike letter by letter, or with a part or a word in common.

        What looks closely, for words in another order and for parts, takes ten times as long as either.
        """
        from rapidfuzz import fuzz, process

        if len(self) <= CLOSELY_MAX:
            return range(len(self))
        alike = process.extract(ready, self._ready, scorer=fuzz.ratio, limit=ALIKE_MAX)
        words = sorted(dict.fromkeys(ready.split()), key=len)[-WORDS_MAX:]
        sharing = [list(islice(self._holding(f" {word} "), SHARING_MAX)) for word in words]
        sharing.sort(key=len)
        shared = Counter(chain.from_iterable(sharing))
        places = {place for _, _, place in alike}
        places.update(islice(self._holding(ready), ALIKE_MAX))
        places.update(place for place, _ in shared.most_common(ALIKE_MAX))
        return sorted(places)

    def _holding(self, part: str) -> Iterator[int]:
        """Where the names are that hold `part`, the first ones first."""
        text, starts = self._text
        at = text.find(part)
        while at >= 0:
            place = bisect_right(starts, at) - 1
            yield place
            at = text.find(part, starts[place + 1])

    @cached_property
    def _text(self) -> tuple[str, list[int]]:
        """All names, each between two blanks on a line of its own, and where the lines begin."""
        lines = [f" {name} \n" for name in self._ready]
        return "".join(lines), list(accumulate(map(len, lines), initial=0))


def _alike(wanted: str, names: Sequence[str]) -> dict[int, float]:
    """Which of the names are alike, by their places, and how much. As rapidfuzz's WRatio, but that a part counts among
    texts of about one length too, and that words out of a part do not: to these a long text with one word in common is
    as near as one that says nearly the same."""
    from rapidfuzz import fuzz, process

    scores: dict[int, float] = {}
    for scorer, share in (
        (fuzz.ratio, 1.0),
        (fuzz.token_ratio, REORDERED),
        (fuzz.partial_ratio, PART),
    ):
        found = process.extract(
            wanted, names, scorer=scorer, limit=None, score_cutoff=SCORE_MIN / share
        )
        for name, score, at in found:
            short, long = sorted((len(wanted), len(name)))
            far = scorer is fuzz.partial_ratio and long > FAR_TIMES * short
            weighed = score * (FAR_PART if far else share)
            if weighed >= SCORE_MIN:
                scores[at] = max(weighed, scores.get(at, 0.0))
    return scores


def _ready(name: str) -> str:
    from rapidfuzz import utils

    return utils.default_process(plain(name[:CHARACTERS_MAX])[:CHARACTERS_MAX])


def _quoted(name: str) -> str:
    """As it can be copied: Python writes what joins the parts of an emoji, say, as an escape."""
    return repr(name) if CONTROL.search(name) or "'" in name else f"'{name}'"


def did_you_mean(wanted: str, names: Iterable[str]) -> str | None:
    """A sentence that offers the closest of `names`, or None where nothing is near."""
    return Names(names).did_you_mean(wanted)


class Suggestions:
    """What one refusal offers for all that was not found: names are read once however many were missed, and
    compared for no more problems than are told, nor for more than can be compared in a moment."""

    def __init__(self) -> None:
        self._told = self._compared = 0
        self._known: dict[Hashable, Names] = {}
        self._gone: dict[str, int | None] = {}

    def did_you_mean(
        self, wanted: str, of: Hashable, names: Callable[[], Iterable[str]]
    ) -> str | None:
        """`did_you_mean` among the `names`, which `of` stands for in this refusal."""
        if self._told == PROBLEMS_MAX:
            return None
        self._told += 1
        if of not in self._known:
            self._known[of] = Names(names())
        known = self._known[of]
        if self._compared + len(known) > COMPARISONS_MAX:
            return NOT_LOOKED_FOR
        self._compared += len(known)
        return known.did_you_mean(wanted)

    def gone(self, name: str, look: Callable[[str], int | None]) -> int | None:
        """Where an entity lost this name; looked for once however often it was missed."""
        if name not in self._gone:
            self._gone[name] = look(name)
        return self._gone[name]
