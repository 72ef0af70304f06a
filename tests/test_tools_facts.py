"""Toolset `facts` as a client sees it; how facts supersede each other is in `test_seeds`."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from memlog.commands import SupersedeMemory
from memlog.errors import Conflict
from memlog.events import MemoryStored, MemorySuperseded
from server.answering.memories import Similar, similar_facts
from server.opened import Opened
from server.tools import facts
from tests.service import Client, Refused, client_on, remembering
from tests.specs import Given


def advised(client: Client, old: str, new: str) -> str:
    """What a refused supersede_memory advises."""
    with pytest.raises(Refused, match="CONFLICT") as caught:
        client("supersede_memory", old_memory_id=old, new_memory_id=new)
    return str(caught.value.error["suggestion"])


def test_what_is_advised_where_a_fact_is_gone_is_not_refused_in_turn(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        oslo, rome, bonn, kiev = (
            client("store_memory", content=f"User moved to {city}")["created"]["id"]
            for city in ("Oslo", "Rome", "Bonn", "Kiev")
        )
        client("supersede_memory", old_memory_id=oslo, new_memory_id=rome)
        client("supersede_memory", old_memory_id=rome, new_memory_id=bonn)
        nothing = "It is out of every list and search already: there is nothing to do."
        again = "Store it again with store_memory first."
        assert advised(client, oslo, kiev) == f"Use its newest version instead: {bonn}."
        assert advised(client, oslo, bonn) == nothing
        client("forget_memory", id=bonn)
        assert advised(client, bonn, kiev) == nothing
        assert advised(client, kiev, bonn) == again
        deleted = f"Its newest version, {bonn}, was deleted."
        assert advised(client, oslo, kiev) == f"{deleted} {nothing}"
        assert advised(client, kiev, rome) == f"{deleted} {again}"


def test_who_stores_a_fact_again_that_was_outdated_is_told_the_way_round_that_keeps_the_newer(
    tmp_path: Path,
) -> None:
    paris, lyon, rome = (
        f"The user lives in {city} with a dog" for city in ("Paris", "Lyon", "Rome")
    )
    with remembering(tmp_path, []) as client:
        ids = [
            client("store_memory", content=each)["created"]["id"] for each in (paris, lyon, rome)
        ]
        for old, new in pairwise(ids):
            client("supersede_memory", old_memory_id=old, new_memory_id=new)
        again = client("store_memory", content=paris)
        stored, newer = again["created"]["id"], ids[-1]
        assert again["action_required"].startswith(f'Call supersede_memory("{newer}", "{stored}")')
        assert again["notice"] == (
            f"This was marked as outdated by {newer} before. If that one is true still, call instead "
            f'supersede_memory("{stored}", "{newer}").'
        )
        client("supersede_memory", old_memory_id=stored, new_memory_id=newer)
        listed = client("list_recent_memories")["memories"]
        assert [each["content"] for each in listed] == [rome]
        assert client("store_memory", content="The user lives in Bonn with a dog")["notice"] is None


@pytest.mark.parametrize("others", [1, 10])
def test_a_fact_that_was_stored_while_similar_ones_were_looked_for_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    with remembering(tmp_path, []) as client:
        look, come = similar_facts, iter(range(others))

        def overtaken(*arguments: Any) -> Similar:
            found = look(*arguments)
            with monkeypatch.context() as patched:
                patched.setattr(facts, "similar_facts", look)
                for number in islice(come, 1):
                    client("store_memory", content=f"User lives in Seattle, at number {number}")
            return found

        monkeypatch.setattr(facts, "similar_facts", overtaken)
        told = client("store_memory", content="User moved from Seattle to Austin last month")
        listed = [each["content"] for each in client("list_recent_memories")["memories"]]
    assert listed[0] == told["created"]["content"]
    looks = min(others, facts.LOOKS_MAX)
    assert len(listed) == 1 + looks
    if others == 1:
        assert [each["content"] for each in told["similar"]] == listed[1:]
        assert told["notice"] is None
    else:  # it is stored all the same
        assert {each["content"] for each in told["similar"]} == set(listed[2:])
        assert told["notice"] == facts.OVERTAKEN


def test_a_similar_fact_that_is_forgotten_before_the_new_one_is_stored_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with remembering(tmp_path, ["User lives in Seattle"]) as client:
        (old,) = client("list_recent_memories")["memories"]

        def forgotten(*arguments: Any) -> Similar:
            found = similar_facts(*arguments)
            client("forget_memory", id=old["id"])
            return found

        monkeypatch.setattr(facts, "similar_facts", forgotten)
        told = client("store_memory", content="User moved from Seattle to Austin last month")
    assert (told["similar"], told["action_required"]) == ([], None)


def test_where_nothing_similar_can_be_looked_for_a_fact_is_stored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        looks: list[str] = []

        def overtaken(opened: Opened, text: str, cosine_min: float) -> Similar:
            looks.append(text)
            if text == "one":
                client("store_memory", content="other")
            return similar_facts(opened, text, cosine_min)

        monkeypatch.setattr(facts, "similar_facts", overtaken)
        client("store_memory", content="one")
    assert looks == ["one", "other"]


def test_two_facts_that_supersede_each_other_since_a_repair_are_told_to_be_gone() -> None:
    """A repair by an earlier version could leave them so."""
    stored = [MemoryStored(f"mem_{each}", "fact", f"fact {each}", "s", 1.0) for each in (1, 2, 3)]
    round_again = [MemorySuperseded("mem_1", "mem_2"), MemorySuperseded("mem_2", "mem_1")]
    given = Given(*stored, *round_again)
    for old, new in (("mem_1", "mem_3"), ("mem_3", "mem_1")):
        given.when(SupersedeMemory(old_memory_id=old, new_memory_id=new)).refused(Conflict)


def test_facts_that_an_answer_does_not_hold_are_counted(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        for number in range(6):
            client("store_memory", content=f"tea {number} {'x' * 6_000}")
        listed = client("list_recent_memories", limit=5)
        assert len(listed["memories"]) == 3
        rest = "did not fit into the answer: nextCursor goes on with them."
        assert listed["notice"] == f"2 more {rest}"
        others = client("list_recent_memories", limit=5, cursor=listed["nextCursor"])
        found = client("search_memories", query="tea", limit=6)
        assert len(found["memories"]) == 3
        assert found["notice"].startswith(f"3 more {rest}")
        more = client("search_memories", query="tea", limit=6, cursor=found["nextCursor"])
        for pages in ([listed, others], [found, more]):
            told = {memory["id"] for page in pages for memory in page["memories"]}
            assert len(told) == 6
        assert "notice" not in client("list_recent_memories", limit=3)
