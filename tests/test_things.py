"""Queries with operators: which things fit, and how many are looked at to know."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projections.query import And, Leaf, Node, Not, Or, Words, wanted
from projections.things import TextHit, best_of_things, satisfied_by_nothing, satisfying

STOP_WORD = "the"
SAID = {
    "one": frozenset({"ant"}),
    "two": frozenset({"ant", "bee"}),
    "three": frozenset({"bee", "cat"}),
    "four": frozenset[str](),
}
ALL = frozenset(SAID)

LEAVES = st.sampled_from(["ant", "bee", "cat", "dog", STOP_WORD]).map(Words)
NODES: st.SearchStrategy[Node] = st.recursive(
    LEAVES,
    lambda nodes: st.one_of(
        st.lists(nodes, min_size=1, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(nodes, min_size=1, max_size=3).map(lambda parts: Or(tuple(parts))),
        nodes.map(Not),
    ),
    max_leaves=8,
)


class Texts:
    """What things say, and how often somebody looked whether one has a word."""

    def __init__(self) -> None:
        self.looked = 0

    def having(self, leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
        if leaf.text == STOP_WORD:
            return None
        self.looked += len(things)
        return frozenset(each for each in things if leaf.text in SAID[each])


def fits(node: Node, thing: str) -> bool | None:
    """The rule for one thing; None where the query says nothing."""
    match node:
        case And(parts) | Or(parts):
            told = [each for part in parts if (each := fits(part, thing)) is not None]
            return (all if isinstance(node, And) else any)(told) if told else None
        case Not(part):
            kept_out = fits(part, thing)
            return None if kept_out is None else not kept_out
        case _:
            return None if node.text == STOP_WORD else node.text in SAID[thing]


@given(NODES)
def test_the_things_that_fit_are_those_of_which_each_fits_for_itself(query: Node) -> None:
    told = {thing: fits(query, thing) for thing in ALL}
    says_nothing = None in told.values()
    fitting = frozenset(thing for thing in ALL if told[thing])
    assert satisfying(query, ALL, Texts().having) == (None if says_nothing else fitting)


def test_a_word_among_many_is_looked_for_only_where_all_before_it_were_found() -> None:
    texts = Texts()
    query = And((Words("cat"), Words("ant"), *[Words("bee")] * 100))
    assert satisfying(query, ALL, texts.having) == frozenset()
    assert texts.looked == len(ALL) + 1


def test_an_alternative_is_looked_for_only_where_none_before_it_was_found() -> None:
    texts = Texts()
    query = Or((Words("ant"), Words("bee"), Not(Words("dog")), *[Words("dog")] * 100))
    assert satisfying(query, ALL, texts.having) == ALL
    assert texts.looked == len(ALL) + 2 + 1


def test_what_is_asked_for_twice_is_looked_for_once() -> None:
    texts = Texts()
    assert satisfying(And((Words("ant"),) * 100), ALL, texts.having) == frozenset({"one", "two"})
    assert satisfying(Or((Words("dog"),) * 100), ALL, texts.having) == frozenset()
    assert texts.looked == 2 * len(ALL)


class Told:
    """Texts of things, each a few words, the best first; and how many texts somebody looked at."""

    def __init__(self, texts: list[tuple[str, frozenset[str]]], query: Node) -> None:
        self.texts = texts
        self.looked = 0
        said = {leaf.text for leaf in wanted(query)} - {STOP_WORD}
        every = satisfied_by_nothing(query, lambda leaf: leaf.text == STOP_WORD)
        self._any = [at for at, (_, words) in enumerate(texts) if every or words & said]

    def best(self, limit: int, things: frozenset[str] | None = None) -> list[TextHit]:
        found = [at for at in self._any if things is None or self.texts[at][0] in things][:limit]
        self.looked += len(found)
        return [TextHit(f"{at}", "observation", self.texts[at][0], -at) for at in found]

    def having(self, leaf: Leaf, things: frozenset[str]) -> frozenset[str] | None:
        return None if leaf.text == STOP_WORD else self.things(leaf) & things

    def count(self, leaf: Leaf) -> int | None:
        return (
            None if leaf.text == STOP_WORD else sum(leaf.text in words for _, words in self.texts)
        )

    def things(self, leaf: Leaf) -> frozenset[str]:
        return frozenset(thing for thing, words in self.texts if leaf.text in words)


TEXTS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "three", "four"]),
        st.frozensets(st.sampled_from(["ant", "bee", "cat"]), max_size=3),
    ),
    max_size=30,
)


@given(NODES, TEXTS, st.integers(1, 8))
def test_the_best_texts_of_things_that_fit_are_found_however_few_fit(
    query: Node, texts: list[tuple[str, frozenset[str]]], limit: int
) -> None:
    told = Told(texts, query)
    every = told.best(len(texts))
    fitting = satisfying(query, frozenset(hit.thing for hit in every), told.having)
    right = [hit for hit in every if fitting is None or hit.thing in fitting]
    assert best_of_things(query, told, limit) == right[:limit]


def test_where_hardly_anything_fits_what_has_the_rarest_word_is_all_that_is_looked_at() -> None:
    common = [(f"common{number}", frozenset({"ant"})) for number in range(1_000)]
    rare = [(f"rare{number}", frozenset({"bee"})) for number in range(20)]
    query = And((Words("ant"), Words("bee")))
    told = Told([*common, *rare, ("both", frozenset({"ant", "bee"}))], query)
    assert [hit.thing for hit in best_of_things(query, told, 10)] == ["both"]
    assert told.looked <= 2 * len(rare)
