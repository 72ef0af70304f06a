"""What the text index answers: which documents match a query, how they are scored, and in what order."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.documents import Born, Died, Document, Kind, Scope
from projections.protocol import Batch
from projections.query import parse
from projections.text import on_disk, snapshot
from projections.text.leaves import MISSPELT_LETTERS_MAX, TERMS_MAX
from projections.text.part import CHECKED_MAX, part_score
from projections.text.projector import TextProjector
from projections.text.rows import LENGTH_MAX, size, weight
from projections.things import TextHit
from tests.texts import texts_of

FACTS = {
    "banker": "Jon: lost his job as a banker",
    "studio": "Jon: opens a dance studio, and teaches dance there",
    "shop": "Gina: sells clothes in her own shop",
    "ticket": "Gina: the fix for X-4471-b is in src/auth/login.py",
    "b4471": "Gina: box 4471 holds b-sides",
    "cafe": "Gina: met Jon at the Café Straße",
    "cjk": "我在北京吃烤鸭",
    "short": "ab",
    "tiny": "的",
}


def born(name: str, text: str, position: int, **more: object) -> Born:
    fields = {"kind": "observation", "entity": "ent_x", "labels": ()} | more
    return Born(Document(ref=name, text=text, born=position, **fields))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextProjector]:
    projector = TextProjector(tmp_path_factory.mktemp("text") / "facts")
    changes = [born(name, text, at, entity="") for at, (name, text) in enumerate(FACTS.items(), 1)]
    projector.apply(Batch(len(changes), changes))
    yield projector
    projector.close()


def index_of(folder: Path, changes: Sequence[Born | Died], position: int) -> TextProjector:
    projector = TextProjector(folder / "text")
    projector.apply(Batch(position, changes))
    return projector


def names(hits: list[TextHit]) -> list[str]:
    return [hit.ref for hit in hits]


def by_words(projector: TextProjector, query: str, at: int | None = None) -> list[str]:
    return names(texts_of(projector).search(parse(query), Scope(at), limit=50))


def by_part(projector: TextProjector, needle: str, at: int | None = None) -> list[str]:
    return names(texts_of(projector).substring(needle, Scope(at), limit=50))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("jobs", {"banker"}),
        ("JON opened", {"banker", "studio", "cafe"}),
        ("jon AND dancing", {"studio"}),
        ("jon NOT dance", {"banker", "cafe"}),
        ("jon AND NOT (dance OR banker)", {"cafe"}),
        ("clothes OR banker", {"shop", "banker"}),
        ('"dance studio"', {"studio"}),
        ('"studio dance"', set()),
        ('"his jobs"', set()),
        ("bank*", {"banker"}),
        ("src/auth/log*", {"ticket"}),
        ("src/aut*", {"ticket"}),
        ("auth/src/log*", set()),
        ('"café strasse"', {"cafe"}),
        ("cafe", {"cafe"}),
        ("北京", {"cjk"}),
        ("京吃", {"cjk"}),
        ("京北", set()),
        ("jon AND the", {"banker", "studio", "cafe"}),
        ("banker AND ++", {"banker"}),
        ("++ OR -", set()),
        ("NOT jon", {"shop", "ticket", "b4471", "cjk", "short", "tiny"}),
        ("shop OR NOT gina", {"banker", "studio", "shop", "cjk", "short", "tiny"}),
        ("unknown", set()),
        ("", set()),
        ('""', set()),
    ],
)
def test_a_query_finds_the_documents_that_it_describes(
    facts: TextProjector, query: str, found: set[str]
) -> None:
    assert set(by_words(facts, query)) == found


def test_an_identifier_finds_what_has_its_words_and_first_what_has_them_together(
    facts: TextProjector,
) -> None:
    assert by_words(facts, "X-4471-b") == ["ticket", "b4471"]


def test_stop_words_count_only_where_there_is_nothing_else(facts: TextProjector) -> None:
    assert by_words(facts, "what is the shop") == ["shop"]
    assert set(by_words(facts, "is the")) == {"ticket", "cafe"}


def test_more_of_the_words_is_better_and_so_is_a_word_that_occurs_again(
    facts: TextProjector,
) -> None:
    assert by_words(facts, "jon banker")[0] == "banker"
    assert by_words(facts, "dance gina")[0] == "studio"


def test_a_word_that_few_documents_have_weighs_more(tmp_path: Path) -> None:
    texts = ["common thing"] * 9 + ["rare thing"]
    changes = [born(f"d{at}", text, at) for at, text in enumerate(texts, 1)]
    projector = index_of(tmp_path, changes, 10)
    assert by_words(projector, "common rare")[0] == "d10"


def test_a_score_is_the_documented_formula(tmp_path: Path) -> None:
    changes = [born("d1", "alpha beta beta", 1), born("d2", "gamma delta", 2)]
    projector = index_of(tmp_path, changes, 2)
    (hit,) = texts_of(projector).search(parse("beta"), limit=5)
    idf = 0.6931  # ln(1 + (2 - 1 + 0.5) / (1 + 0.5))
    assert hit.score == pytest.approx(idf * (1 + 1 / 3) * 100 / 103, rel=0.002)


@given(st.integers(0, 3 * LENGTH_MAX), st.sampled_from([2, 3, 10, 1_000]), st.text(), st.text())
def test_more_words_never_weigh_more(few: int, more: int, ref: str, other_ref: str) -> None:
    if few < LENGTH_MAX - 1:
        assert weight(ref, few) > weight(other_ref, few + more)
    assert weight(ref, few) >= 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.text(), st.text())
def test_candidates_are_ordered_by_length_first(one: int, other: int, a: str, b: str) -> None:
    assert one == other or (size(a, one) < size(b, other)) == (one < other)
    assert 0 <= size(a, one) < 2**63


def test_equal_documents_are_cut_the_same_whatever_their_order(tmp_path: Path) -> None:
    candidates = [f"obs_{number:06}" for number in range(200_000)]
    refs = [ref for ref in candidates if weight(ref, 4) == weight(candidates[0], 4)]
    assert len(refs) > 50
    found = []
    for name, order in (("a", refs), ("b", refs[::-1])):
        changes = [born(ref, "one and the same", at) for at, ref in enumerate(order, 1)]
        projector = index_of(tmp_path / name, changes, len(refs))
        found.append(names(texts_of(projector).search(parse("same"), limit=20)))
        found.append(names(texts_of(projector).substring("one", limit=20)))
    assert found[0] == found[2] == refs[:20]
    assert found[1] == found[3]


def test_documents_are_found_only_at_positions_where_they_lived(tmp_path: Path) -> None:
    changes: list[Born | Died] = [
        born("d1", "first life", 2),
        Died("d1", 5),
        born("d1", "second life", 7),
    ]
    projector = index_of(tmp_path, changes, 8)
    for find in (by_words, by_part):
        lived = {at: find(projector, "first", at) for at in range(1, 9)}
        assert [at for at, found in lived.items() if found] == [2, 3, 4]
        assert [at for at in range(1, 9) if find(projector, "second", at)] == [7, 8]
        assert find(projector, "life") == ["d1"]
        assert find(projector, "first") == []
    assert by_words(projector, "NOT first", 3) == []


def test_a_search_is_narrowed_to_kinds_and_to_documents_with_every_label(tmp_path: Path) -> None:
    changes: list[Born | Died] = [
        born("m1", "a note", 1, kind="memory", labels=("type:note", "tag:project:alpha")),
        born("m2", "a note", 2, kind="memory", labels=("type:note",)),
        born("e1", "note (thing)", 3, kind="entity", entity="e1"),
    ]
    projector = index_of(tmp_path, changes, 3)

    def found(kinds: set[Kind] | None, *labels: str) -> set[str]:
        scope = Scope(kinds=None if kinds is None else frozenset(kinds), labels=labels)
        query = parse("note")
        hits = texts_of(projector).search(query, scope, limit=9)
        parts = texts_of(projector).substring("not", scope, limit=9)
        assert set(names(hits)) == set(names(parts))
        return set(names(hits))

    assert found(None) == {"m1", "m2", "e1"}
    assert found({"memory"}) == {"m1", "m2"}
    assert found({"entity", "observation"}) == {"e1"}
    assert found(set()) == set()
    assert found(None, "type:note") == {"m1", "m2"}
    assert found(None, "type:note", "tag:project:alpha") == {"m1"}
    assert found(None, "tag:project") == set()


def test_a_search_is_narrowed_to_what_was_born_after_a_position(tmp_path: Path) -> None:
    changes: list[Born | Died] = [
        born("d1", "a note", 1, entity=""),
        born("d2", "a note", 3, entity=""),
        Died("d2", 5),
        born("d2", "a note of another life", 5, entity=""),
        born("d3", "a note", 6, entity=""),
    ]
    committed = index_of(tmp_path / "committed", changes, 6)
    ahead = index_of(tmp_path / "ahead", changes[:1], 1)
    ahead.look_ahead(6, lambda after: changes[1:])
    assert ahead.is_ahead
    for projector in (committed, ahead):

        def found(since: int, at: int | None = None, texts: TextProjector = projector) -> set[str]:
            scope = Scope(at, since=since)
            parts = texts_of(texts).substring("not", scope, limit=9)
            found = set(names(texts_of(texts).search(parse("note"), scope, limit=9)))
            assert found == set(names(parts))
            return found

        assert found(0) == {"d1", "d2", "d3"}
        assert found(1) == {"d2", "d3"}
        assert found(5) == {"d3"}
        assert found(6) == set()
        assert found(1, at=4) == {"d2"}
        assert found(3, at=4) == set()
        assert found(3, at=5) == {"d2"}
        operators = texts_of(projector).search(parse("note AND NOT life"), Scope(since=1), limit=9)
        assert names(operators) == ["d3"]


def test_a_search_leaves_out_the_things_that_it_is_told_to(tmp_path: Path) -> None:
    changes: list[Born | Died] = [
        born("ent_1", "note (thing)", 1, kind="entity", entity="ent_1"),
        born("obs_1", "a note", 2, entity="ent_1"),
        born("obs_2", "a note", 3, entity="ent_2"),
        born("mem_1", "a note", 4, kind="memory", entity=""),
        born("mem_2", "a note", 5, kind="memory", entity=""),
    ]
    committed = index_of(tmp_path / "committed", changes, 5)
    ahead = index_of(tmp_path / "ahead", changes[:2], 2)
    ahead.look_ahead(5, lambda after: changes[2:])
    assert ahead.is_ahead
    for projector in (committed, ahead):
        for at in (None, 5):
            scope = Scope(at, but=frozenset({"ent_1", "mem_1"}))
            for query in ("note", "note AND NOT life"):
                found = texts_of(projector).search(parse(query), scope, limit=9)
                assert set(names(found)) == {"mem_2", "obs_2"}
            assert set(names(texts_of(projector).substring("not", scope, limit=9))) == {
                "mem_2",
                "obs_2",
            }


def test_a_hit_says_what_was_found(tmp_path: Path) -> None:
    projector = index_of(tmp_path, [born("e1", "Jon (person)", 1, kind="entity", entity="e1")], 1)
    (hit,) = texts_of(projector).substring("jon (person)", limit=5)
    assert hit == TextHit("e1", "entity", "e1", 1.0)


@pytest.mark.parametrize(
    ("needle", "found"),
    [
        ("ohn", set()),
        ("ANKE", {"banker"}),
        ("dance stu", {"studio"}),
        ("X-4471-B", {"ticket"}),
        ("4471", {"ticket", "b4471"}),
        ("strasse", {"cafe"}),
        ("的", {"tiny"}),
        ("鸭", {"cjk"}),
        ("北京吃", {"cjk"}),
        ("ab", {"short"}),
        ("b", {"short", "banker", "ticket", "b4471"}),
        (".py", {"ticket"}),
        ("y", {"ticket"}),
        ("  lost \t his ", {"banker"}),
        ("", set()),
        (" ", set()),
        ("is a job", set()),
    ],
)
def test_a_part_of_any_length_finds_the_texts_that_hold_it(
    facts: TextProjector, needle: str, found: set[str]
) -> None:
    assert set(by_part(facts, needle)) == found


@given(st.data())
def test_every_part_of_every_text_finds_it(facts: TextProjector, data: st.DataObject) -> None:
    name, text = data.draw(st.sampled_from(list(FACTS.items())))
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : data.draw(st.integers(start + 1, len(text)))]
    if part.strip():
        assert name in by_part(facts, part)


def test_of_more_texts_with_a_part_than_are_wanted_the_best_are_found_and_not_the_shortest(
    tmp_path: Path,
) -> None:
    texts = ["xohnx", "ohn is a name", "a john", "xohnxx"]
    projector = index_of(
        tmp_path, [born(text, text, at) for at, text in enumerate(texts, 1)], len(texts)
    )
    best = ["ohn is a name", "a john", "xohnx", "xohnxx"]
    for limit in range(1, 5):
        assert names(texts_of(projector).substring("ohn", Scope(), limit=limit)) == best[:limit]


def test_a_needle_far_longer_than_any_text_finds_nothing(facts: TextProjector) -> None:
    assert by_part(facts, "lost his job " * 5_000) == []


def test_a_part_is_looked_for_beyond_the_first_page_of_candidates(tmp_path: Path) -> None:
    decoys = [born(f"d{at:04}", "is x is i", at) for at in range(1, 400)]
    projector = index_of(tmp_path, [*decoys, born("here", "and this is is it", 400)], 400)
    assert names(texts_of(projector).substring("is is", limit=1)) == ["here"]
    assert CHECKED_MAX > 400


@pytest.mark.parametrize(
    ("needle", "text", "score"),
    [
        ("jon", "jon", 1.0),
        ("jon", "jon (x)", 0.5 * 3 / 7 + 0.45),
        ("on", "jon (x)", 0.5 * 2 / 7 + 0.15),
        ("jo", "jon (x)", 0.5 * 2 / 7 + 0.3),
        ("o", "jon (x)", 0.5 * 1 / 7),
        ("on", "jon on", 0.5 * 2 / 6 + 0.45),
        ("jon", "jon x", 0.5 * 3 / 5 + 0.45),
        ("gina", "jon (x)", 0.0),
    ],
)
def test_a_part_scores_by_its_share_and_by_the_words_it_begins_and_ends_with(
    needle: str, text: str, score: float
) -> None:
    assert part_score(needle, text) == pytest.approx(score)


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_part_scores_between_nothing_and_the_whole(needle: str, text: str) -> None:
    score = part_score(needle, text)
    assert (score == 1) == (needle == text)
    assert (score > 0) == (needle in text)
    assert score <= 1


@given(st.text() | st.text("AND ORNOT()\"*ab'X-4. 的", max_size=40))
def test_no_query_and_no_needle_raises(facts: TextProjector, query: str) -> None:
    assert isinstance(by_words(facts, query), list)
    assert isinstance(by_words(facts, f'"{query}" OR {query}*'), list)
    assert isinstance(by_part(facts, query), list)


@pytest.mark.parametrize("long", ["a" * 100_000, "ab " * 50_000, "北" * 10_000])
def test_queries_of_any_length_are_answered(facts: TextProjector, long: str) -> None:
    assert by_words(facts, f'banker OR "{long}"') == ["banker"]
    assert "banker" in by_words(facts, f"banker {long}")
    assert "banker" in by_words(facts, f"banker OR {long.strip()}*")
    assert by_part(facts, long) == []


def test_in_a_text_of_any_length_the_words_that_someone_said_are_looked_up(
    facts: TextProjector,
) -> None:
    many = " ".join(f"w{number} v-{number}" for number in range(10 * TERMS_MAX))
    assert by_words(facts, f"{many} banker") == ["banker"]
    assert by_words(facts, f"{many}, and what was X-4471-b?")[0] == "ticket"
    assert by_words(facts, f"studio AND (teaches {many}, of what is told of dance)") == ["studio"]


def test_of_too_many_words_the_rarest_are_looked_up(tmp_path: Path) -> None:
    said = [f"w{number}" for number in range(2 * TERMS_MAX)]
    projector = TextProjector(tmp_path / "text")
    common = [born(f"c{number}", " ".join(said[:TERMS_MAX]), number + 1) for number in range(3)]
    rare = born("rare", " ".join(said[TERMS_MAX:]), 4)
    projector.apply(Batch(4, [*common, rare]))
    assert by_words(projector, " ".join(said)) == ["rare"]
    projector.close()


def test_a_word_that_only_a_dead_text_has_may_be_a_typing_error(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    there = (
        born("wrong", "lives in Seatle", 1),
        Died("wrong", 2),
        born("right", "lives in Seattle", 2),
    )
    projector.apply(Batch(2, there))
    assert by_words(projector, "Seatle") == ["right"]
    assert by_words(projector, "Seatle", at=1) == by_words(projector, "Seattle", at=1) == ["wrong"]
    projector.close()


def test_a_word_that_no_text_has_is_found_within_longer_ones_in_texts_of_any_length(
    tmp_path: Path,
) -> None:
    """Trigrams alone would find what has them all in other words."""
    texts = {
        "lock": "der wohnungsschlüssel liegt beim hausmeister",
        "long": "der wohnungsschlüssel " * 500,
        "apart": "tasch chlor kohlümer flüsig süsses wessel",
    }
    changes = [born(name, text, at) for at, (name, text) in enumerate(texts.items(), 1)]
    projector = index_of(tmp_path, changes, len(changes))
    assert by_words(projector, "garten schlüssel") == ["lock", "long"]
    assert by_words(projector, "(Schlüssel), Garten", at=1) == ["lock"]
    assert by_words(projector, "schlüsselX") == []
    projector.close()


@pytest.mark.parametrize("query", ["garten schlüssel", "用schlüssel写 garten"])
def test_a_word_is_found_within_a_longer_one_that_stands_in_a_text_without_spaces(
    tmp_path: Path, query: str
) -> None:
    projector = index_of(tmp_path, [born("key", "我找到了Wohnungsschlüssel在北京", 1)], 1)
    assert by_words(projector, query) == ["key"]
    projector.close()


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("книгами", ["book"]),
        ("kirjassa", ["kirja"]),
        ("kitaplardan", ["kitap"]),
        ("kirjoittaa", []),
        ("kirvi", []),
    ],
)
def test_a_word_that_no_text_has_is_found_in_another_of_its_forms(
    tmp_path: Path, word: str, found: list[str]
) -> None:
    """Six tenths of its letters are alike, and four at least."""
    texts = {
        "book": "нова книга на полиці",
        "kirja": "uusi kirjasto on täällä",
        "kitap": "kitaplar rafta",
    }
    changes = [born(name, text, at) for at, (name, text) in enumerate(texts.items(), 1)]
    projector = index_of(tmp_path, changes, len(changes))
    assert by_words(projector, word) == found
    assert by_words(projector, f"abracadabra {word}") == found
    projector.close()


def test_other_forms_of_a_word_come_after_the_word_itself(tmp_path: Path) -> None:
    texts = {
        "form": "hyvässä kirjassa",
        "word": "pöydällä on kirja jonka Matti jätti siihen eilen",
        "none": "hyvä kissa",
    }
    changes = [born(name, text, at) for at, (name, text) in enumerate(texts.items(), 1)]
    projector = index_of(tmp_path, changes, len(changes))
    assert by_words(projector, "kirja") == ["word", "form"]
    projector.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("parent OR rent", ["one"]),
        ("lives NOT rent", ["one", "two"]),
        ("lives AND party", ["two"]),
        ("lives NOT party", ["one"]),
        ("lives parties", ["one", "two"]),
    ],
)
def test_operators_take_words_as_they_are_asked_for_and_no_longer_ones(
    tmp_path: Path, query: str, found: list[str]
) -> None:
    texts = {"one": "lives with parents and partners", "two": "lives alone, gives a party"}
    changes = [
        born(name, text, at, entity=name) for at, (name, text) in enumerate(texts.items(), 1)
    ]
    projector = index_of(tmp_path, changes, len(changes))
    assert sorted(by_words(projector, query)) == found
    projector.close()


def test_of_more_beginnings_than_are_looked_up_one_by_one_none_is_missed(tmp_path: Path) -> None:
    changes = [born(f"n{at}", f"vor{at}", at) for at in range(1, 2 * on_disk.TERMS_FEW)]
    projector = index_of(tmp_path, changes, len(changes))
    assert len(texts_of(projector).search(parse("vor*"), limit=len(changes))) == len(changes)
    assert len(texts_of(projector).search(parse("vor15*"), limit=len(changes))) == 11
    projector.close()


def test_a_word_within_a_longer_one_is_found_in_the_newest_texts_as_it_is_when_they_are_on_disk(
    tmp_path: Path,
) -> None:
    """All the short ones have its trigrams, in other words."""
    texts = [f"school book {at}" for at in range(120)] + ["the webhook of the book at the school"]
    changes = [born(f"d{at}", text, at) for at, text in enumerate(texts, 1)]
    projector = index_of(tmp_path, changes[:1], 1)
    projector.look_ahead(len(changes), lambda after: changes[after:])
    assert projector.is_ahead
    ahead = texts_of(projector).search(parse("hook zebra"), limit=9)
    projector.apply(Batch(len(changes), changes[1:]))
    assert texts_of(projector).search(parse("hook zebra"), limit=9) == ahead
    assert texts_of(projector).search(parse("hook zebra"), Scope(len(changes)), limit=9) == ahead
    projector.close()


def test_words_of_which_many_begin_alike_are_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def listing(texts: on_disk.OnDisk, prefix: str) -> list[str]:
        listed.append(prefix)
        return words_beginning(texts, prefix)

    words_beginning = on_disk.OnDisk._words_beginning
    monkeypatch.setattr(on_disk.OnDisk, "_words_beginning", listing)
    changes = [born(f"n{at}", f"order{at}", at) for at in range(1, 2 * on_disk.TERMS_FEW)]
    projector = index_of(tmp_path, changes, len(changes))
    for query in ("orders", "orde*", "orders of tea"):
        assert len(texts_of(projector).search(parse(query), limit=len(changes))) == len(changes)
    assert listed == ["orde"]
    projector.close()


def test_what_has_a_word_within_a_longer_one_comes_before_what_is_one_letter_away(
    tmp_path: Path,
) -> None:
    texts = {"cart": "karre kaputt", "card": "die krankenversicherungskarte ist abgelaufen"}
    changes = [born(name, text, at) for at, (name, text) in enumerate(texts.items(), 1)]
    projector = index_of(tmp_path, changes, len(changes))
    assert by_words(projector, "karte frist") == ["card", "cart"]
    projector.close()


def test_a_limit_is_kept_and_none_wanted_is_none_found(facts: TextProjector) -> None:
    assert len(texts_of(facts).search(parse("jon"), limit=2)) == 2
    assert texts_of(facts).search(parse("jon"), limit=0) == []
    assert texts_of(facts).substring("jon", limit=0) == []


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextProjector]:
    told = {
        "jon": ["Jon (person)", "Jon: was a banker", "Jon: drinks coffee"],
        "gina": ["Gina (person)", "Gina: sells clothes", "Gina: drinks coffee", "Gina: loves tea"],
        "acme": ["Acme (company)", "Acme: employs a banker"],
    }
    texts = [
        (f"{entity}{number}", text, entity)
        for entity, all_of_it in told.items()
        for number, text in enumerate(all_of_it)
    ]
    changes = [born(ref, text, at, entity=of) for at, (ref, text, of) in enumerate(texts, 1)]
    projector = TextProjector(tmp_path_factory.mktemp("text") / "people")
    projector.apply(Batch(len(changes), changes))
    yield projector
    projector.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("person NOT banker", {"gina0"}),
        ("person AND banker", {"jon0", "jon1"}),
        ("coffee AND tea", {"gina2", "gina3"}),
        ("coffee AND NOT tea", {"jon2"}),
        ("NOT person", {"acme0", "acme1"}),
        ("(coffee AND tea) OR company", {"gina2", "gina3", "acme0"}),
        ("banker NOT (tea OR company)", {"jon1"}),
        ("person NOT the", {"jon0", "gina0"}),
    ],
)
def test_operators_are_about_entities_with_all_their_texts(
    people: TextProjector, query: str, found: set[str]
) -> None:
    assert set(by_words(people, query)) == found


def test_things_that_fit_are_found_behind_many_that_do_not(tmp_path: Path) -> None:
    many = [born(f"many{at}", f"alpha many{at}", at, entity=f"many{at}") for at in range(1, 41)]
    few = born("few", "alpha gamma delta epsilon and more words", 41, entity="few")
    projector = index_of(tmp_path, [*many, few], 41)
    hits = texts_of(projector).search(parse("alpha AND NOT many*"), limit=1)
    assert names(hits) == ["few"]


def test_the_beginning_of_a_word_in_a_phrase_may_stand_for_any_number_of_words(
    tmp_path: Path,
) -> None:
    """tantivy refuses more than 16,384 of them."""
    many = " ".join(f"foo-a{number:05}" for number in range(17_000))
    changes = [born("many", many, 1), born("one", "bar-a00001, foo", 2), born("foo", "foo a", 3)]
    projector = index_of(tmp_path, changes, 3)
    assert set(by_words(projector, "foo-a*")) == {"foo", "many"}
    assert by_words(projector, "foo-a16*") == ["many"]
    assert by_words(projector, "bar-a*") == ["one"]
    projector.close()


def test_the_end_of_a_pair_in_a_phrase_may_stand_for_any_number_of_pairs(tmp_path: Path) -> None:
    """Likewise."""
    many = "\u7684".join(map(chr, range(0x4E00, 0x9FFF)))
    changes = [born("many", many, 1), born("one", "\u6211\u7684React\u9879\u76ee", 2)]
    projector = index_of(tmp_path, changes, 2)
    assert by_words(projector, '"\u7684React"') == ["one"]
    assert by_words(projector, "\u7684Re*") == ["one"]
    assert by_words(projector, '"\u6211React"') == []
    projector.close()


def test_a_word_that_is_longer_than_any_is_looked_for_as_it_stands(tmp_path: Path) -> None:
    longest, longer = "a" * MISSPELT_LETTERS_MAX, "b" * 10_000
    projector = index_of(tmp_path, [born("longest", longest, 1), born("longer", longer, 2)], 2)
    assert by_words(projector, longest[:-1] + "b") == ["longest"]
    assert by_words(projector, longer[:-1] + "a") == []
    projector.close()


def test_the_words_of_a_phrase_that_are_too_many_are_split_into_as_few_expressions_as_hold_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_disk, "PHRASE_WORDS_MAX", 4)
    words = ["w", *(f"w{each}" for each in "abcd"), *(f"we{each}" for each in "fghij"), "wk", "wl"]
    patterns = [*on_disk._patterns("w", words)]
    assert patterns == ["w", "w[a-d].*", "we[f-i].*", "we[j-j].*", "w[k-l].*"]
    assert [sum(bool(re.fullmatch(each, word)) for each in patterns) for word in words] == [1] * 12


def test_a_state_that_is_always_asked_for_other_words_keeps_little_of_them(
    facts: TextProjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the index of a project is to which nobody writes any more."""
    monkeypatch.setattr(on_disk, "COUNTS_KEPT_MAX", 100)
    monkeypatch.setattr(snapshot, "WORDS_KEPT_MAX", 100)

    def ask_for_others(first: int) -> None:
        for number in range(first, first + 2_000, 50):
            words = [f"word{each}" for each in range(number, number + 50)]
            assert by_words(facts, f"{' '.join(words)} banker") == ["banker"]
            assert {texts_of(facts).rarity(word) > 0 for word in words} == {True}

    ask_for_others(0)
    tracemalloc.start()
    try:
        ask_for_others(2_000)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200_000
