"""The newest documents in memory are asked as an index on disk would be: the same documents, with the same scores."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.documents import NEVER, Kind
from projections.text import analysis
from projections.text import projector as text
from projections.text.clauses import (
    AnyTerm,
    Clause,
    InOrder,
    Joined,
    Near,
    Part,
    Scored,
    Span,
    Term,
)
from projections.text.filling import Entering
from projections.text.layers import Found, Searching
from projections.text.newest import TERM_BYTES_MAX, Newest, NewestSnapshot
from projections.text.on_disk import TERMS_FEW, OnDisk
from projections.text.rows import LENGTH_MAX, RETIRED, Row
from projections.text.schema import schema

_LATIN = "tea Tea teas coffee the of running runs café cafe CAFÉ X-4471-b 4471 src/auth/login.py naïve Straße"
_OTHERS = "我在北京 東京タワー にほん привіт مرحبا 🙂 a ab abc abcd abcde caffee"
WORDS = f"{_LATIN} {_OTHERS}".split()
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join) | st.text(max_size=12)


class Both:
    """The same documents on disk and in memory. What finds one is its ref."""

    def __init__(self, rows: Sequence[tuple[Row, str, int]]) -> None:
        fields = schema()
        index = tantivy.Index(fields)
        analysis.register(index)
        writer = index.writer(text.WRITER_HEAP_BYTES, 1)
        entering, newest = Entering(writer), Newest()
        for each in rows:
            entering.add(*each)
            newest.add(*each)
        writer.commit()
        index.reload()
        self.on_disk = OnDisk(fields, index.searcher())
        self.newest = newest.snapshot()

    def require_same(self, clause: Clause) -> None:
        """But for the order of those that tie."""
        answers = [_answers(texts, clause) for texts in (self.on_disk, self.newest)]
        assert answers[0] == answers[1], clause


def _answers(texts: Searching, clause: Clause) -> tuple[object, ...]:
    best = sorted(_named(texts, texts.best(clause, 50)))
    smallest = _named(texts, texts.smallest(clause, 50))
    every = texts.having(clause)
    refs = [texts.row(address).ref for address in every]
    assert [head.ref for head in texts.heads(every)] == refs
    return best, smallest, sorted(refs), texts.count(clause), texts.documents


def _named(texts: Searching, found: Found) -> list[tuple[float, str]]:
    return [(value, texts.row(address).ref) for value, address in found]


def row(ref: str, words: str, born: int = 1, *labels: str) -> Row:
    kind: Kind = "memory" if born % 3 == 0 else "observation"
    return Row(ref, kind, f"ent_{born % 2}", analysis.normalise(words), labels, born)


@st.composite
def documents(draw: st.DrawFn) -> list[tuple[Row, str, int]]:
    made = []
    for number, words in enumerate(draw(st.lists(TEXTS, max_size=8))):
        retired = draw(st.booleans())
        labels = draw(st.sampled_from([(), ("a",), ("a", "b")]))
        made.append(
            (
                row(f"d{number}", words, number + 1, *labels),
                RETIRED if retired else f"d{number}",
                number + draw(st.integers(2, 5)) if retired else NEVER,
            )
        )
    return made


def _stems() -> list[str]:
    return [stem for word in WORDS for stem in analysis.stems(analysis.spaced(word))]


def _whole() -> list[str]:
    folded = [analysis.spaced(analysis.normalise(word)) for word in WORDS]
    return [token for each in folded for token in analysis.exact.analyze(each)]


LEAVES: st.SearchStrategy[Clause] = st.one_of(
    st.builds(Term, st.sampled_from(["words", "repeated"]), st.sampled_from(_stems())),
    st.builds(Term, st.just("kind"), st.sampled_from(["observation", "memory", "entity"])),
    st.builds(Term, st.just("labels"), st.sampled_from(["a", "b", "c"])),
    st.builds(
        AnyTerm, st.just("slot"), st.lists(st.sampled_from(["d0", "d3", RETIRED])).map(tuple)
    ),
    st.builds(
        AnyTerm, st.just("thing"), st.just(tuple(f"ent_{at}" for at in range(TERMS_FEW + 1)))
    ),
    st.builds(
        InOrder,
        st.lists(st.sampled_from([*_whole(), "京"]), min_size=1, max_size=3).map(tuple),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        Near,
        st.sampled_from(["words", "exact"]),
        st.sampled_from([stem for stem in _stems() if len(stem) > 3]),
        st.sampled_from([1, 2]),
    ),
    st.builds(
        Span, st.sampled_from(["born", "died"]), st.integers(0, 9), st.none() | st.integers(0, 9)
    ),
    st.builds(Span, st.sampled_from(["born", "died"]), st.none(), st.integers(0, 9)),
)
SCORED = st.builds(Scored, LEAVES, st.integers(1, 9_000).map(lambda parts: parts / 1024))
LISTS = st.lists(SCORED, max_size=3).map(tuple)
CLAUSES = SCORED | st.builds(Joined, LISTS, LISTS, LISTS)


def test_a_beginning_is_looked_for_among_the_terms_and_not_text_by_text() -> None:
    newest = Newest()
    newest.add(row("d1", "tea coffee"), "d1", NEVER)
    newest.add(row("d2", "coffees"), "d2", NEVER)
    newest.add(row("d3", "the tea"), "d3", NEVER)
    newest.entries[:] = [msgspec.structs.replace(each, tokens=[]) for each in newest.entries]
    assert newest.snapshot().having(InOrder(("cof",), begins=True)) == [0, 1]


def test_words_are_put_in_order_once_for_their_beginnings_and_again_where_there_are_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newest, beginning = Newest(), InOrder(("cof",), begins=True)
    newest.add(row("d1", "tea coffee"), "d1", NEVER)
    assert newest.snapshot().having(beginning) == [0]
    newest.add(row("d2", "coffees cod"), "d2", NEVER)
    assert newest.snapshot().having(beginning) == [0, 1]
    monkeypatch.delattr(Newest, "terms")
    assert newest.snapshot().having(beginning) == [0, 1]


def test_a_beginning_behind_other_words_is_that_of_the_word_that_follows_them() -> None:
    texts = ["the tea house", "tea the house", "the tea", "a the team", "the the tea houses"]
    both = Both([(row(f"d{at}", words), f"d{at}", NEVER) for at, words in enumerate(texts)])
    for words, found in {("the", "te"): [0, 2, 3, 4], ("the", "tea", "hou"): [0, 4]}.items():
        clause = InOrder(words, begins=True)
        both.require_same(Scored(clause, 1.0))
        assert both.newest.having(clause) == found


@given(documents(), st.lists(CLAUSES | st.builds(Joined, LISTS, LISTS, LISTS), max_size=12))
@settings(max_examples=150)
def test_every_clause_is_true_of_the_same_documents_with_the_same_scores(
    made: list[tuple[Row, str, int]], asked: list[Clause]
) -> None:
    both = Both(made)
    for clause in asked:
        both.require_same(clause)


def test_what_just_may_have_a_part_is_told_as_on_disk() -> None:
    texts = ["school book", "a webhook", "a cook", "hoof"]
    both = Both([(row(f"d{at}", words), f"d{at}", NEVER) for at, words in enumerate(texts)])
    both.require_same(Scored(Part("hook"), 1.0))
    assert both.newest.having(Part("hook")) == [0, 1]


@given(documents(), TEXTS)
@settings(max_examples=100)
def test_what_has_a_part_is_found_wherever_it_is(
    made: list[tuple[Row, str, int]], words: str
) -> None:
    needle = analysis.normalise(words)[:6]
    if not needle:
        return
    both = Both(made)
    for texts in (both.on_disk, both.newest):
        found = {texts.row(at).ref for at in texts.having(Part(needle))}
        assert found >= {each.ref for each, *_ in made if needle in each.text}
    both.require_same(Scored(Part(needle), 1.0))


@given(st.data())
@settings(max_examples=100)
def test_words_are_as_far_apart_as_for_the_index(data: st.DataObject) -> None:
    words = st.text("abc", min_size=1, max_size=6)
    one, others = data.draw(words), data.draw(st.lists(words, max_size=8))
    both = Both(
        [(row(f"d{at}", other, at + 1), f"d{at}", NEVER) for at, other in enumerate(others)]
    )
    for distance in (1, 2):
        for field in ("words", "exact"):
            both.require_same(Scored(Near(field, one, distance), 1.0))


def test_a_document_of_any_length_weighs_the_same() -> None:
    lengths = [*range(40), *range(40, LENGTH_MAX + 200, 97)]
    made = [
        (row(f"d{at}", "tea " * length, at + 1), f"d{at}", NEVER)
        for at, length in enumerate(lengths)
    ]
    both = Both(made)
    asked = Scored(Term("words", "tea"), 1234 / 1024)
    weighed = [
        {ref: value for value, ref in _named(texts, texts.best(asked, len(made)))}
        for texts in (both.on_disk, both.newest)
    ]
    assert weighed[0] == weighed[1]
    assert len(set(weighed[0].values())) > len(made) / 2


@pytest.mark.parametrize("letter", ["x", "ж"])
@pytest.mark.parametrize("bytes_more", [0, 1, 2])
def test_a_word_too_long_for_the_index_keeps_its_place_and_is_not_found(
    letter: str, bytes_more: int
) -> None:
    long = letter * (TERM_BYTES_MAX // len(letter.encode())) + "x" * bytes_more
    texts = {"d1": f"before {long} after", "d2": "before after", "d3": "tea"}
    both = Both([(row(ref, words), ref, NEVER) for ref, words in texts.items()])
    for clause in (
        Term("exact", long),
        InOrder(("before", "after")),
        InOrder(("before", long)),
        InOrder(("before",), begins=True),
    ):
        both.require_same(Scored(clause, 1.0))
    assert both.newest.count(Term("exact", long)) == (0 if bytes_more else 1)


def test_a_snapshot_does_not_see_what_comes_or_goes_later() -> None:
    newest = Newest()
    newest.add(row("d1", "tea"), "d1", NEVER)
    before = newest.snapshot()
    newest.delete("d1")
    newest.add(row("d1", "tea"), RETIRED, 2)
    newest.add(row("d2", "tea", 2), "d2", NEVER)
    tea = Term("words", "tea")
    assert [before.row(at).ref for at in before.having(tea)] == ["d1"]
    dead, living = Span("died", high=2), Span("died", low=NEVER)
    assert (before.count(dead), before.count(living)) == (0, 1)
    after = newest.snapshot()
    assert after.count(tea) == 2
    assert (after.count(dead), after.count(living)) == (1, 1)
    assert (before.documents, after.documents) == (1, 2)


def test_a_snapshot_may_be_asked_while_documents_come() -> None:
    newest = Newest()
    newest.add(row("d0", "tea 0"), "d0", NEVER)
    seen, asked, stop = newest.snapshot(), threading.Event(), threading.Event()
    counts: set[int] = set()

    def ask(snapshot: NewestSnapshot) -> None:
        while not stop.is_set():
            for clause in (
                Near("words", "tea", 1),
                InOrder(("te",), begins=True),
                Term("words", "tea"),
            ):
                counts.add(snapshot.count(clause))
            asked.set()

    asking = threading.Thread(target=ask, args=(seen,))
    asking.start()
    assert asked.wait(60)
    for number in range(1, 1_000):
        newest.add(row(f"d{number}", f"tea{number} tea {number}"), f"d{number}", NEVER)
    stop.set()
    asking.join()
    assert counts == {1}
    assert newest.snapshot().count(Term("words", "tea")) == 1_000
