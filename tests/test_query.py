"""The query language: what is syntax, what is words, and that nothing whatever raises."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.query import (
    DEPTH_MAX,
    ITEMS_MAX,
    And,
    Node,
    Not,
    Or,
    Phrase,
    Prefix,
    Query,
    Words,
    parse,
)

SYNTAX = st.sampled_from(
    [
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        '"',
        "*",
        " ",
        "jon",
        "and",
        "C++",
        "lost*",
        'x"y',
        "f(x)",
        "北京",
    ]
)


@given(st.text())
def test_no_text_raises(query: str) -> None:
    assert isinstance(parse(query), Query)


@given(st.lists(SYNTAX).map(" ".join) | st.lists(SYNTAX).map("".join))
def test_no_arrangement_of_syntax_raises(query: str) -> None:
    parsed = parse(query)
    assert parsed.is_plain == isinstance(parsed.root, Words)


@given(st.lists(st.from_regex(r"[a-z0-9äß北+_/.:'-]+", fullmatch=True)).map(" ".join))
def test_words_alone_are_plain_and_their_text_is_kept(query: str) -> None:
    assert parse(query) == Query(Words(query), query)


@pytest.mark.parametrize(
    "word",
    [
        "X-4471-b",
        "src/auth/login.py",
        "foo_bar",
        "C++",
        "title:foo",
        'print("hello")',
        "f(x)",
        "a*b",
    ],
)
def test_an_identifier_is_a_word(word: str) -> None:
    assert parse(word).root == Words(word)
    assert parse(f"({word} OR other)").root == Or((Words(word), Words("other")))


@pytest.mark.parametrize(
    ("query", "root"),
    [
        ("jon AND gina", And((Words("jon"), Words("gina")))),
        ("jon OR gina", Or((Words("jon"), Words("gina")))),
        ("jon NOT gina", And((Words("jon"), Not(Words("gina"))))),
        ("jon AND NOT gina", And((Words("jon"), Not(Words("gina"))))),
        ('"lost his job"', Phrase("lost his job")),
        ("danc*", Prefix("danc")),
        ("auth/log*", Prefix("auth/log")),
        ("NOT dance studio", And((Not(Words("dance")), Words("studio")))),
        ("dance studio AND jon", And((Words("dance studio"), Words("jon")))),
        ("danc* studio", And((Prefix("danc"), Words("studio")))),
        ("NOT NOT danc*", Prefix("danc")),
        ("(a OR b) c d", And((Or((Words("a"), Words("b"))), Words("c d")))),
        ("((a OR b))", Or((Words("a"), Words("b")))),
        ('NOT (a OR "b c")', Not(Or((Words("a"), Phrase("b c"))))),
    ],
)
def test_operators_phrases_prefixes_and_groups_are_understood(query: str, root: Node) -> None:
    parsed = parse(query)
    assert parsed.root == root
    assert not parsed.is_plain


def test_and_binds_closer_than_or() -> None:
    assert parse("a OR b AND c").root == Or((Words("a"), And((Words("b"), Words("c")))))
    assert parse("(a OR b) AND c").root == And((Or((Words("a"), Words("b"))), Words("c")))


@pytest.mark.parametrize("query", ["jon and gina", "Not now", "either or", "nOT"])
def test_operators_in_small_letters_are_words(query: str) -> None:
    assert parse(query).is_plain


@pytest.mark.parametrize(
    "query",
    [
        "jon AND",
        "OR jon",
        "NOT",
        "AND",
        "jon OR OR gina",
        '"lost',
        "(jon AND gina",
        "jon AND gina)",
        "()",
        "jon AND ()",
        "*",
        'say "hi" AND "',
        "( AND )",
        "a OR )b(",
    ],
)
def test_what_cannot_be_parsed_is_plain_words_from_end_to_end(query: str) -> None:
    assert parse(query) == Query(Words(query), query)


@pytest.mark.parametrize("query", ["Jon (person)", "the API (v2) limit", "(jon)", ":-)"])
def test_parentheses_without_other_syntax_are_only_punctuation(query: str) -> None:
    assert parse(query) == Query(Words(query), query)


@pytest.mark.parametrize(
    "query",
    [
        'File "src/auth/login.py", line 54, in issue_token',
        '409 Conflict {"code": "TAKEN", "detail": "NOT available"}',
        'pull of "harbour:v2.13.4": not found',
        'it said "10:42"\nand then NOT a word AND nothing*',
        'SELECT * FROM users WHERE name = "Ann" AND NOT deleted',
        "WHERE email IS NOT NULL AND active",
        "users email NOT NULL, name NOT NULL;",
        "CREATE TABLE IF NOT EXISTS users (id INT NOT NULL)",
    ],
)
def test_what_was_pasted_is_plain_words_from_end_to_end(query: str) -> None:
    assert parse(query) == Query(Words(query), query)


def test_white_space_around_a_query_makes_no_lines_of_it() -> None:
    assert parse('\n"lost job" OR danc*\n').root == Or((Phrase("lost job"), Prefix("danc")))


@pytest.mark.parametrize(
    "query",
    ["Do NOT deploy on Fridays", "does the user NOT like cilantro?", "Why do we NOT restart pods?"],
)
def test_an_emphasis_in_a_sentence_is_no_operator(query: str) -> None:
    assert parse(query) == Query(Words(query), query)


@pytest.mark.parametrize(
    "query",
    [
        "person NOT banker",
        "be AND not NOT that",
        'the NOT "banker"',
        "sql AND NULL",
        "where AND select",
    ],
)
def test_beside_other_syntax_or_no_stop_words_an_operator_is_one(query: str) -> None:
    assert not parse(query).is_plain


def test_in_a_sentence_the_words_besides_a_phrase_may_be_missing() -> None:
    asked = parse('who said "it works" and "on gas"?')
    first, second = Phrase("it works"), Phrase("on gas")
    # The question mark stands right behind a phrase, and is a word of its own.
    assert asked.root == And((first, second, Or((first, Words("who said and ?")))))
    assert parse('banker "it works"').root == And((Words("banker"), Phrase("it works")))


def test_the_text_of_a_query_leaves_out_its_syntax_and_what_is_not_wanted() -> None:
    assert parse('jon AND ("lost job" OR danc*) NOT gina').text == "jon lost job danc"


def test_what_is_kept_out_of_what_is_kept_out_is_wanted() -> None:
    assert parse('NOT (gina OR NOT ("lost job" NOT danc*))').text == "lost job"


def test_nesting_beyond_the_limit_is_plain_words() -> None:
    def nested(depth: int) -> str:
        return "(" * depth + "a AND b" + ")" * depth

    assert not parse(nested(DEPTH_MAX)).is_plain
    assert parse(nested(DEPTH_MAX + 1)).is_plain
    assert parse(nested(100_000)).is_plain


def test_a_query_longer_than_the_limit_is_plain_words() -> None:
    assert not parse(" OR ".join(["a"] * (ITEMS_MAX // 2))).is_plain
    assert parse(" OR ".join(["a"] * ITEMS_MAX)).is_plain
