"""Into what a long text is cut before it is embedded."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlog.commands import CONTENT_CHARACTERS_MAX
from projections.passages import (
    OTHER_WEIGHT,
    PASSAGE_WEIGHT_MAX,
    PASSAGES_MAX,
    WHOLE_WEIGHT_MAX,
    passages,
)

WORD_CHARACTERS = 100
texts = st.lists(
    st.sampled_from(["tea ", "rain. ", "Why?\n", "北京吃烤鸭", "кава ", "x" * 130, "«Нет!» ", "🌧", "e\u0301"]),
    max_size=600,
).map("".join)  # fmt: skip


def bare(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(texts)
def test_nothing_is_lost_between_passages_and_nothing_is_told_twice(text: str) -> None:
    cut = passages(text)
    if len(cut) < PASSAGES_MAX:
        assert bare("".join(cut)) == bare(text)
    else:
        assert bare(text).startswith(bare("".join(cut)))


@given(texts)
def test_no_passage_is_longer_than_an_embedder_reads_but_by_a_word(text: str) -> None:
    for each in passages(text):
        weight = sum(1 if ord(character) < 128 else OTHER_WEIGHT for character in each)
        assert weight <= WHOLE_WEIGHT_MAX + WORD_CHARACTERS * OTHER_WEIGHT


@pytest.mark.parametrize("text", ["", " ", "tea", "tea " * 150, " " * 5_000, "北" * 150])
def test_what_fits_is_one_passage_as_it_stands(text: str) -> None:
    assert passages(text) == [text]


def test_a_passage_ends_with_a_sentence_where_one_ends_thereabouts() -> None:
    said = [f"In week {number} nothing of note was told by anybody here." for number in range(60)]
    cut = passages(" ".join(said))
    assert len(cut) > 3
    assert all(each.startswith("In week") and each.endswith("here.") for each in cut)


def test_a_passage_ends_with_a_line_where_nothing_ends_in_a_full_stop() -> None:
    lines = [f"- entry number {number} of a long list of things" for number in range(60)]
    cut = passages("\n".join(lines))
    assert len(cut) > 3
    assert all(each.startswith("- entry") for each in cut)


def test_a_passage_ends_with_a_word_where_nothing_else_ends() -> None:
    cut = passages("tea " * 1_000)
    assert " ".join(cut) == " ".join(["tea"] * 1_000)
    assert max(map(len, cut)) <= PASSAGE_WEIGHT_MAX + len("tea ")


@pytest.mark.parametrize(
    "sentence", ["Мария переезжает в мае. ", "玛丽亚五月搬到里斯本。", "Maria moves in May. "]
)
def test_all_of_what_may_be_stored_is_in_some_passage(sentence: str) -> None:
    told = (sentence * CONTENT_CHARACTERS_MAX)[:CONTENT_CHARACTERS_MAX]
    assert bare("".join(passages(told))) == bare(told)


@pytest.mark.parametrize("ends", ["\u3002", "\uff01\u300d", "\uff1f"])
def test_a_passage_ends_with_a_sentence_where_words_are_not_spaced(ends: str) -> None:
    cut = passages(f"我们讨论了春天的预算决定玛丽亚五月搬到里斯本的办公室{ends}" * 40)
    assert len(cut) > 10
    assert all(each.startswith("我们") and each.endswith(ends) for each in cut)


def test_every_passage_says_whom_it_is_about() -> None:
    first, *others = passages("Ada: " + "likes tea and rain. " * 100, "Ada")
    assert first.startswith("Ada: likes")
    assert others
    assert all(other.startswith("Ada: likes") for other in others)


def test_a_text_that_does_not_say_whom_it_is_about_is_cut_as_it_stands() -> None:
    told = "likes tea and rain. " * 100
    assert passages(told, "Ada") == passages(told)


def test_a_very_long_text_has_no_more_passages_than_are_kept() -> None:
    told = "likes tea and rain. " * 5_000
    cut = passages(told)
    assert len(cut) == PASSAGES_MAX
    assert bare(told).startswith(bare("".join(cut)))


def test_blanks_behind_the_last_word_cost_no_more_than_a_look_at_each() -> None:
    told = "likes tea and rain. " * 50
    assert passages(told + "\n" * 1_000_000) == passages(told + "\n" * 10)
