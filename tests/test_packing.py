"""Ranked items in, a bounded text out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.answering.packing import (
    BYTES_PER_TOKEN,
    HEADING_BYTES_MAX,
    Item,
    ItemKind,
    clipped,
    pack,
    shortened,
    tokens,
)

ENTITIES = ["ent_1", "ent_2", "ent_3"]
WORDS = st.text("ab c…1.茶ж", min_size=1, max_size=60).map(
    lambda text: " ".join(text.split()) or "x"
)


@st.composite
def ranked(draw: st.DrawFn) -> list[Item]:
    items = []
    for number in range(draw(st.integers(0, 30))):
        kind: ItemKind = draw(st.sampled_from(("entity", "observation", "relation", "memory")))
        lone = {"memory": ["Memories"], "relation": ["Relations", *ENTITIES]}
        group = draw(st.sampled_from(lone.get(kind, ENTITIES)))
        heading = f"{group} (person)" if group in ENTITIES else group
        ref = group if kind == "entity" else f"{kind}_{group}_{draw(st.integers(0, number))}"
        line = "" if kind == "entity" else draw(WORDS)
        extra = kind != "entity" and draw(st.booleans())
        items.append(Item(kind, ref, group, heading, line, extra))
    return items


@given(ranked(), st.integers(1, 300), st.booleans())
def test_the_text_never_exceeds_the_budget_and_every_line_is_whole(
    items: list[Item], budget_tokens: int, more: bool
) -> None:
    packed = pack(items, budget_tokens, more=more)
    assert len(packed.text.encode()) <= budget_tokens * BYTES_PER_TOKEN
    assert tokens(packed.text) <= budget_tokens
    lines = packed.text.split("\n") if packed.text else []
    footer = lines.pop() if lines and lines[-1].startswith("… ") else None
    headings = {item.heading for item in items}
    told = [line for line in lines if line not in headings]
    assert len(lines) - len(told) == len(packed.groups)
    assert len(told) == len(packed.refs)
    known = {(item.ref, item.line) for item in items}
    for number, (line, ref) in enumerate(zip(told, packed.refs, strict=True), start=1):
        start = f"{number}. "
        assert line.startswith(start)
        assert (ref, line.removeprefix(start)) in known
    assert footer is None or any(packed.left_out.values()) or more
    assert footer is None or footer.endswith("there may be more") == more


@given(ranked(), st.integers(40, 300), st.booleans())
def test_what_was_left_out_is_said_and_nothing_else_is(
    items: list[Item], budget_tokens: int, more: bool
) -> None:
    packed = pack(items, budget_tokens, more=more)
    last = packed.text.rpartition("\n")[2]
    assert last.startswith("… ") == (more or any(packed.left_out.values()))


@given(ranked(), st.integers(1, 300))
def test_nothing_is_told_twice_and_the_same_items_give_the_same_text(
    items: list[Item], budget_tokens: int
) -> None:
    packed = pack(items, budget_tokens)
    assert len(set(packed.refs)) == len(packed.refs)
    assert len(set(packed.groups)) == len(packed.groups)
    assert pack(list(items), budget_tokens) == packed


@given(ranked())
def test_with_room_for_everything_nothing_is_left_out(items: list[Item]) -> None:
    packed = pack(items, 20_000)
    assert not any(packed.left_out.values())
    assert "left out" not in packed.text
    assert {item.group for item in items} == set(packed.groups)


def fact(number: int, text: str, group: str = "ent_1") -> Item:
    return Item("observation", f"obs_{number}", group, f"{group} (person)", text)


def test_lines_stand_under_the_heading_of_their_best_fact_in_the_order_of_rank() -> None:
    items = [fact(1, "best", "ent_2"), fact(2, "second"), fact(3, "third", "ent_2")]
    packed = pack(items, 100)
    assert packed.text == "ent_2 (person)\n1. best\n2. third\nent_1 (person)\n3. second"
    assert packed.refs == ("obs_1", "obs_3", "obs_2")
    assert packed.groups == ("ent_2", "ent_1")


def test_a_text_is_told_once_under_its_heading_whatever_its_id() -> None:
    items = [fact(1, "same"), fact(2, "same"), fact(3, "same", "ent_2")]
    packed = pack(items, 100)
    assert packed.text == "ent_1 (person)\n1. same\nent_2 (person)\n2. same"
    assert packed.refs == ("obs_1", "obs_3")


def test_what_fits_to_the_last_character_is_told_whole() -> None:
    text = f"ent_1 (person)\n1. {'x' * 10}"
    assert len(text) == 7 * BYTES_PER_TOKEN
    assert pack([fact(1, "x" * 10)], 7).text == text
    assert not pack([fact(1, "x" * 11)], 7).refs


def test_what_does_not_fit_gives_way_to_what_does_and_is_counted() -> None:
    items = [fact(1, "short"), fact(2, "long " * 40), fact(3, "also short")]
    packed = pack(items, 20)
    assert packed.text == "ent_1 (person)\n1. short\n2. also short\n… left out: 1 fact"
    assert packed.left_out["observation"] == 1


def test_an_entity_is_left_out_only_where_its_heading_is_missing() -> None:
    items = [
        fact(1, "short"),
        Item("entity", "ent_1", "ent_1", "ent_1 (person)"),
        Item("entity", "ent_2", "ent_2", "a heading " * 20),
    ]
    assert pack(items, 20).left_out["entity"] == 1


def test_what_belongs_to_no_entity_is_no_entity_that_was_left_out() -> None:
    lone = [
        Item("relation", "rel_1", "Relations", "Relations", "uses it " * 40),
        Item("memory", "mem_1", "Memories", "Memories", "likes it " * 40),
    ]
    packed = pack([fact(1, "short"), *lone], 20)
    assert packed.text == "ent_1 (person)\n1. short\n… left out: 1 relation, 1 memory"
    assert packed.left_out["entity"] == 0


def test_what_was_not_asked_for_is_not_missed() -> None:
    extra = Item("observation", "obs_2", "ent_2", "ent_2 (person)", "long " * 40, True)
    packed = pack([fact(1, "short"), extra], 20)
    assert packed.text == "ent_1 (person)\n1. short"
    assert not any(packed.left_out.values())


@given(st.text(min_size=1), st.integers(100, 400))
def test_a_clipped_text_is_one_line_that_fits_even_the_smallest_budget(
    text: str, budget_tokens: int
) -> None:
    line = clipped(text * 50, budget_tokens) or "x"
    assert "\n" not in line
    items = [fact(1, line, "e" * (HEADING_BYTES_MAX - 9)), fact(2, "y" * 5_000)]
    assert "obs_1" in pack(items, budget_tokens).refs


def test_a_long_text_is_cut_at_a_word_and_says_how_much_is_missing() -> None:
    assert shortened("some words\nin lines", 40) == "some words in lines"
    assert shortened("five " * 8, 39) == "five five five five five five five five"
    assert shortened("word " * 20, 42) == "word word word word … (+80 characters)"


def test_a_chinese_character_takes_as_much_of_the_budget_as_three_letters() -> None:
    assert pack([fact(1, "茶" * 10)], 12).refs == ("obs_1",)
    assert not pack([fact(1, "茶" * 11)], 12).refs


@given(st.text("茶ж a😀"), st.integers(32, 400))
def test_a_long_text_is_cut_between_two_characters(text: str, bytes_max: int) -> None:
    line = shortened(text * 20, bytes_max)
    assert len(line.encode()) <= bytes_max
    kept = line.partition(" … (+")[0]
    assert " ".join((text * 20).split()).startswith(kept)
