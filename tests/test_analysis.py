"""How text is cut into terms."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.text import analysis


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("  Jon\tLOST\n his job ", "jon lost his job"),
        ("Straße", "strasse"),
        ("ＡＢＣ１２３", "abc123"),  # noqa: RUF001
        ("Σίσυφος", "σίσυφοσ"),
        ("cafe\u0301", "café"),
        ("\ufb01ne", "fine"),
        ("broken \ud800 text", "broken ? text"),
        ("co\u00adoperate\u2060, \ufeffhe said", "cooperate, he said"),
        ("дев\u02bcять м\u2019яких", "дев'ять м'яких"),  # noqa: RUF001
        ("apart\u200bthough unseen", "apart though unseen"),
        ("\u2764\ufe0f\u200d\U0001f525", "\u2764\U0001f525"),
        ("İSTANBUL IŞIK", "istanbul işik"),
        ("i\u0307stanbul ışık", "istanbul işik"),  # noqa: RUF001
        ("i\u0307\u0307\u0301", "í"),
    ],
)
def test_differences_that_do_not_count_are_taken_away(text: str, normalised: str) -> None:
    assert analysis.normalise(text) == normalised


@given(st.text())
def test_a_normalised_text_stays_as_it_is_and_holds_no_newline(text: str) -> None:
    normalised = analysis.normalise(text)
    assert analysis.normalise(normalised) == normalised
    assert "\n" not in normalised


@given(st.text(st.characters(max_codepoint=0x7F)), st.data())
def test_a_part_of_an_ascii_text_is_a_part_of_it_normalised(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    part = text[start : data.draw(st.integers(start, len(text)))]
    assert analysis.normalise(part) in analysis.normalise(text)


def test_a_run_of_cjk_is_read_as_overlapping_pairs() -> None:
    assert analysis.spaced("我在北京 吃x茶").split() == ["我在", "在北", "北京", "吃", "x", "茶"]
    assert analysis.spaced("no such run") == "no such run"


def test_digits_are_those_of_ascii_in_words_and_a_stretched_word_is_none_of_its_own() -> None:
    assert analysis.spaced("في ٢٠١٩ و ۲۰۱۹ १२३४ ปี๒๕๖๓").split() == [
        *["في", "2019", "و", "2019", "1234"],
        *["ปี", "2563"],
    ]
    assert analysis.spaced("الســـلام") == "السلام"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("X-4471-b", ["x", "4471", "b"]),
        ("src/auth/login.py", ["src", "auth", "login", "py"]),
        ("foo_bar", ["foo", "bar"]),
        ("C++", ["c"]),
        ("Café's", ["cafe", "s"]),
    ],
)
def test_words_are_runs_of_letters_and_digits_without_accents(text: str, found: list[str]) -> None:
    assert analysis.exact.analyze(analysis.normalise(text)) == found


_LETTERS = st.characters(min_codepoint=0x370, max_codepoint=0x6FF) | st.sampled_from(
    " ىةالونςσийыямиα"
)


@given(st.text() | st.text(_LETTERS))
def test_each_word_has_one_stem_and_means_itself_in_a_regular_expression(text: str) -> None:
    spaced = analysis.spaced(analysis.normalise(text))
    words = analysis.exact.analyze(spaced)
    assert len(words) == len(analysis.stems(spaced))
    assert not set("".join(words)) & set(r"\.+*?()|[]{}^$#&-~/\"")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("книгами", "книга"),
        ("сайтом", "Сайти"),
        ("χρήστες", "χρήστης"),
        ("الكتاب", "كتاب"),
        ("X-книги", "x-книгу"),
        ("libraries", "library"),
    ],
)
def test_forms_of_a_word_have_one_stem_in_the_languages_that_letters_tell_and_in_english(
    one: str, other: str
) -> None:
    stems = [analysis.stems(analysis.spaced(analysis.normalise(word))) for word in (one, other)]
    assert stems[0] == stems[1]


@pytest.mark.parametrize(
    "words", ["schlüssel libro été naïve", "北京 こんにちは", "ქართული", "हिन्दी में"]
)
def test_words_of_other_letters_are_left_as_they_stand(words: str) -> None:
    spaced = analysis.spaced(analysis.normalise(words))
    assert analysis.rooted(spaced) == spaced


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("İzmir", "izmir"),
        ("Пётр їде", "петр їде"),
        ("Ки\u0301їв", "київ"),
        ("Άννα", "αννα"),  # noqa: RUF001
        ("ọ̀rọ̀", "oro"),
        ("مُحَمَّد", "محمد"),
        ("שָׁלוֹם", "שלום"),
    ],
)
def test_accents_and_points_do_not_tell_words_apart(one: str, other: str) -> None:
    cut = [analysis.spaced(analysis.normalise(text)) for text in (one, other)]
    assert analysis.words(cut[0]) == analysis.words(cut[1])
    assert analysis.exact.analyze(cut[0]) == analysis.exact.analyze(cut[1])


@pytest.mark.parametrize("text", ["प्रिया", "राम", "মেঘনা", "தமிழ்", "มี", "が", "й", "ї"])
def test_a_word_of_any_script_is_one_word_in_every_way(text: str) -> None:
    spaced = analysis.spaced(analysis.normalise(text))
    assert analysis.words(spaced) == analysis.exact.analyze(spaced) == [spaced.strip()]


def test_what_tells_letters_apart_is_no_accent() -> None:
    told = [analysis.spaced(each) for each in ("мій", "мии", "か", "が", "їх", "іх")]  # noqa: RUF001
    assert len(set(told)) == len(told)


def test_words_with_humps_have_parts() -> None:
    told = "calls calculateVatRate in HTTPServer, iOS and IDs of OpenAI, not of MAX or utf8"
    assert analysis.humps(told) == [
        ["calculate", "vat", "rate"],
        ["http", "server"],
        ["i", "os"],
        ["open", "ai"],
    ]


def test_words_of_any_letters_have_humps_and_parts_as_texts_have_words() -> None:
    told = "calculerQuantite\u0301Totale, préféréÀCôté, посчитатьСуммуЗаказа, ЁлкаЙод, istGrößerAls, Łódź"
    assert analysis.humps(told) == [
        ["calculer", "quantite", "totale"],
        ["prefere", "a", "cote"],
        ["посчитать", "сумму", "заказа"],
        ["елка", "йод"],
        ["ist", "grosser", "als"],
    ]


def test_what_is_kept_apart_within_a_word_has_parts() -> None:
    told = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645, \u200cx\u200c y"
    assert analysis.humps(told) == [["\u0645\u06cc", "\u062e\u0648\u0627\u0647\u0645"]]


@given(st.text("aqZX1_. "))
def test_words_have_the_same_humps_whatever_letters_stand_beside_them(text: str) -> None:
    assert analysis.humps(text) == analysis.humps(f"{text} \u00e9")


@pytest.mark.parametrize(
    ("letters", "parts"), [("x", 0), ("X", 0), ("xX", 500_001), ("Xx", 500_000)]
)
def test_a_word_of_any_length_is_cut_at_its_humps_in_one_go(letters: str, parts: int) -> None:
    """Looked for from each of its letters on, they would take an hour."""
    long = letters * (1_000_000 // len(letters))
    found = [part for word in analysis.humps(long) for part in word]
    assert len(found) == parts
    assert "".join(found) == (long.lower() if parts else "")


def test_words_that_repeat_are_named_once_and_stop_words_never() -> None:
    words = analysis.words("the dog saw the other dog, and the cat saw the dog")
    assert analysis.repeated(words) == "dog saw"


def test_trigrams_are_distinct_and_in_order() -> None:
    assert analysis.trigrams("banana") == ["ban", "ana", "nan"]
    assert analysis.trigrams("ab") == []
