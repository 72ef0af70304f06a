"""Search by part: documents whose text holds a needle, found by trigrams and checked against the text."""

from __future__ import annotations

from collections.abc import Iterator

from memlog.patience import require_time
from projections.text import analysis
from projections.text.clauses import Clause
from projections.text.layers import Searching
from projections.things import TextHit

CHECKED_MAX = 500
"""Documents that one search by part reads, beside as many as are wanted, to see whether they hold the needle, the
shortest first."""

PAGE_MIN = 100

SENTENCE_ENDS = "?!.…\uff1f\uff01\u3002"
"""The last three are those of East Asian scripts."""

BARE_MIN = 4
"""So many characters are asked for without the mark behind them. In what is shorter it may mean something, and without
it nearly every text has them."""


BEGINS, ENDS = 0.3, 0.15
APART_MIN = BEGINS + ENDS
"""The least score of a needle that stands apart from the letters around it, as `bay` does not in `ebay`."""


def needle_of(query: str) -> str:
    """The part that is asked for: what was typed, but for what ends a sentence, which a text that holds the rest need
    not have there."""
    bare = query.rstrip().rstrip(SENTENCE_ENDS)
    return bare if len(bare) >= BARE_MIN else query


def forms(query: str) -> Iterator[str]:
    """An identifier as others join its words: `othername`, `other_name`, `other-name` and `other name` for `otherName`.
    None of what is no identifier of several words, or has others than of letters: `10.50` is not `1050`."""
    words = analysis.words(analysis.normalise(query))
    if len(query.split()) == 1 and all(map(str.isalpha, words)):
        words = next((parts for parts in analysis.humps(query) if len(words) == 1), words)
        yield from (sign.join(words) for sign in ("", "_", "-", " ") if len(words) > 1)


def holding(searcher: Searching, needle: str, among: Clause, limit: int) -> list[TextHit]:
    """The best `limit` of those whose text holds a normalised needle; `CHECKED_MAX` more at most are looked at."""
    hits: list[TextHit] = []
    checked, checked_max = 0, limit + CHECKED_MAX
    while checked < checked_max and len(hits) < limit:
        require_time()
        page = min(max(limit, PAGE_MIN), checked_max - checked)
        found = searcher.smallest(among, checked + page)[checked:]
        for _, address in found:
            row = searcher.row(address)
            score = part_score(needle, row.text)
            if score > 0:
                hits.append(TextHit(row.ref, row.kind, row.entity, score))
        checked += len(found)
        if len(found) < page:
            break
    hits.sort(key=lambda hit: (-hit.score, hit.ref))
    return hits[:limit]


def part_score(needle: str, text: str) -> float:
    """How well a normalised needle names a normalised text, 0..1; 0 where it is no part of it.

    1 where it is the whole; otherwise 0.5 · (length of needle / length of text), plus `BEGINS` where it
    begins with a word and `ENDS` where it ends with one, for the occurrence that does best of the first
    eight.
    """
    if needle == text:
        return 1.0
    edges = -1.0
    at = text.find(needle)
    for _ in range(8):
        if at < 0:
            break
        end = at + len(needle)
        begins = at == 0 or not text[at - 1].isalnum()
        ends = end == len(text) or not text[end].isalnum()
        edges = max(edges, BEGINS * begins + ENDS * ends)
        at = text.find(needle, at + 1)
    return 0.0 if edges < 0 else 0.5 * len(needle) / len(text) + edges
