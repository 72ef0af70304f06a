"""What a model with a small context is given: an answer near 8,000 tokens, and a word on whatever is not in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from server.answering.cutting import ANSWER_CHARACTERS, PORTION_CHARACTERS
from server.performing import perform
from server.registry import Call
from tests.served import served
from tests.service import Client, Refused, client_on

NEAR = ANSWER_CHARACTERS * 1.1
FACTS = [f"fact number {n:04} " + "word " * 50 for n in range(600)]
RECORDS = pytest.mark.parametrize(
    ("tool", "query"), [("memory_list", {}), ("memory_search", {"query": "tea"})]
)
LEAVES = [f"leaf{n:03}" for n in range(500)]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as client:
        yield client


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A project with an entity of 600 long facts, and one with 500 relations and a single fact."""
    with client_on(tmp_path_factory.mktemp("long")) as client:
        client("create_entities", entities=[entity("big", *FACTS), entity("hub", "is central")])
        client("create_relations", relations=[edge("hub", leaf) for leaf in LEAVES])
        client("create_relations", relations=[edge("big", "hub")])
        client("create_entities", entities=[entity(f"small{n}", f"little {n}") for n in range(5)])
        yield client


def entity(name: str, *facts: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": list(facts)}


def edge(source: str, target: str) -> dict[str, Any]:
    return {"from": source, "to": target, "relationType": "knows"}


def size(answer: dict[str, Any]) -> int:
    return len(json.dumps(answer, separators=(",", ":")))


def pages(client: Client, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """Every page of an answer, each of them near the size of an answer."""
    found = [client(tool, **arguments)]
    while "nextCursor" in found[-1]:
        found.append(client(tool, **arguments, cursor=found[-1]["nextCursor"]))
    assert all(size(page) <= NEAR for page in found)
    return found


# -- one entity that is too long


def test_an_entity_opened_alone_is_told_from_its_newest_facts_on_to_the_end(client: Client) -> None:
    told = pages(client, "open_nodes", names=["big"])
    (first,) = told[0]["entities"]
    assert first["observations"] == FACTS[-len(first["observations"]) :]
    assert first["observationsLeftOut"] == len(FACTS) - len(first["observations"])
    assert f"{first['observationsLeftOut']:,} facts left out" in told[0]["notice"]
    assert "nextCursor" in told[0]["notice"]
    parts = [page["entities"][0]["observations"] for page in reversed(told)]
    assert [fact for part in parts for fact in part] == FACTS
    assert [edge["to"] for page in told for edge in page["relations"]] == ["hub"]
    assert {page["entities"][0]["updatedAt"] for page in told} == {first["updatedAt"]}


def test_all_relations_of_a_hub_are_told_once_beside_its_facts(client: Client) -> None:
    told = pages(client, "open_nodes", names=["hub"])
    assert told[0]["entities"][0]["observations"] == ["is central"]
    assert told[0]["entities"][0]["relationsLeftOut"] > 0
    ids = [edge["id"] for page in reversed(told) for edge in page["relations"]]
    assert len(ids) == len(LEAVES) + 1
    assert all(one < other for one, other in pairwise(ids))


def test_pages_of_an_entity_are_those_of_the_moment_of_the_first(empty: Client) -> None:
    empty("create_entities", entities=[entity("big", *FACTS)])
    first = empty("open_nodes", names=["big"])
    empty("add_observations", observations=[{"entityName": "big", "contents": ["is new"]}])
    second = empty("open_nodes", names=["big"], cursor=first["nextCursor"])
    shown = [*second["entities"][0]["observations"], *first["entities"][0]["observations"]]
    assert shown == FACTS[-len(shown) :]


def test_each_page_of_an_entity_counts_what_is_still_to_come(client: Client) -> None:
    for name, count, left_out in (
        ("big", len(FACTS), "observationsLeftOut"),
        ("hub", len(LEAVES) + 1, "relationsLeftOut"),
    ):
        *before, last = told = pages(client, "open_nodes", names=[name])
        left = count
        for page in told:
            shown = page["entities"][0]["observations"] if name == "big" else page["relations"]
            left -= len(shown)
            assert page["entities"][0].get(left_out, 0) == left
        assert left == 0
        assert all("nextCursor" in page["notice"] for page in before)
        assert "notice" not in last


def test_with_provenance_the_pages_are_no_longer(client: Client) -> None:
    told = pages(client, "open_nodes", names=["big"], provenance=True)
    parts = [page["entities"][0]["observations"] for page in reversed(told)]
    assert [fact for part in parts for fact in part] == FACTS


def test_beside_others_it_leaves_them_room(client: Client) -> None:
    names = ["small0", "big", "small1", "hub", "small2"]
    answer = client("open_nodes", names=names)
    assert [each["name"] for each in answer["entities"]] == names
    assert "nextCursor" not in answer
    big = answer["entities"][1]
    assert size(big) <= PORTION_CHARACTERS
    assert big["observations"][-1] == FACTS[-1]
    assert big["observationsLeftOut"] + len(big["observations"]) == len(FACTS)
    assert "'big' and 1 more" in answer["notice"]
    assert "alone" in answer["notice"]
    assert not {"observationsLeftOut", "relationsLeftOut"} & set(answer["entities"][0])


def test_a_search_tells_the_fact_that_it_found_before_the_newest(client: Client) -> None:
    answer = client("search_nodes", query='"number 0003"')
    (big,) = answer["entities"]
    assert (big["observations"][0], big["observations"][-1]) == (FACTS[3], FACTS[-1])
    assert big["observationsLeftOut"] > 0
    assert "left out" in answer["notice"]
    assert size(answer) <= NEAR


@pytest.mark.parametrize("limit", [None, 1, 1_000])
@pytest.mark.parametrize("tool", ["read_graph", "query_nodes"])
def test_a_list_of_entities_says_that_one_is_not_whole(
    client: Client, tool: str, limit: int | None
) -> None:
    answer = client(tool, limit=limit)
    big = answer["entities"][0]
    assert big["observationsLeftOut"] == len(FACTS) - len(big["observations"])
    assert "open_nodes" in answer["notice"]


def test_of_many_former_names_the_last_are_told_and_the_others_counted(empty: Client) -> None:
    former = [f"name {n:03} " + "x" * 480 for n in range(150)]
    empty("create_entities", entities=[entity("hub", "is central"), entity("small", "is little")])
    empty("create_entities", entities=[entity(name) for name in former])
    answers = [
        empty("merge_entities", names=former, into="hub"),
        empty("create_entities", entities=[entity("hub", "more")], ifExists="merge"),
        *(empty(tool) for tool in ("read_graph", "query_nodes")),
        empty("search_nodes", query="central"),
        empty("open_nodes", names=["hub", "small"]),
        empty("open_nodes", names=["hub"]),
    ]
    for answer in answers:
        hub = answer["entity"] if "entity" in answer else answer["entities"][0]
        assert hub["aliases"] == former[-len(hub["aliases"]) :]
        assert hub["aliasesLeftOut"] + len(hub["aliases"]) == len(former)
        assert f"{hub['aliasesLeftOut']:,} former names left out" in answer["notice"]
        assert "get_history" in answer["notice"] and "nextCursor" not in answer
        assert size(answer) <= PORTION_CHARACTERS * 1.1
    empty("add_observations", observations=[{"entityName": "hub", "contents": FACTS}])
    told = pages(empty, "open_nodes", names=[former[0]])
    parts = [page["entities"][0]["observations"] for page in reversed(told)]
    assert [fact for part in parts for fact in part] == ["is central", "more", *FACTS]
    history = pages(empty, "get_history", entityName="hub")
    says = " ".join(event["says"] for page in history for event in page["events"])
    assert all(name[:8] in says for name in former)
    gone = empty("delete_entities", entityNames=["hub"])
    assert gone["entities"][0]["aliasesLeftOut"] > 0 and size(gone) <= NEAR


def test_former_names_for_which_there_is_room_are_all_told(empty: Client) -> None:
    former = [f"name {n:03} " + "x" * 140 for n in range(30)]
    empty("create_entities", entities=[entity("hub"), *(entity(name) for name in former)])
    merged = empty("merge_entities", names=former, into="hub")
    assert merged["entity"]["aliases"] == former
    assert not {"aliasesLeftOut", "observationsLeftOut"} & set(merged["entity"])
    assert "notice" not in merged


def test_what_is_renamed_merged_or_added_to_is_told_in_part(empty: Client) -> None:
    empty("create_entities", entities=[entity("big", *FACTS), entity("twin", "extra")])
    renamed = empty("rename_entity", name="big", newName="large")
    merged = empty("merge_entities", names=["twin"], into="large")
    added = empty("create_entities", entities=[entity("large", "more")], ifExists="merge")
    assert added["entities"][0]["observations"][-1] == "more"
    for answer in (renamed, merged, added):
        assert size(answer) <= NEAR
        assert "left out" in answer["notice"]
    gone = empty("delete_entities", entityNames=["large"])
    assert gone["entities"][0]["observationsLeftOut"] > 0
    at = int(gone["notice"].partition("asOf=")[2].split()[0])
    again = empty("open_nodes", names=["large"], asOf=at)
    assert again["entities"][0]["observations"][-1] == "more"


# -- many


def test_many_names_are_each_answered_for_on_one_page(empty: Client) -> None:
    known = [f"known{n:03}" for n in range(300)]
    for start in range(0, 300, 100):
        part = known[start : start + 100]
        empty("create_entities", entities=[entity(name, "x" * 300) for name in part])
    empty("rename_entity", name="known000", newName="first")
    asked = [name for at, one in enumerate(known) for name in (one, f"missing{at}-" + "m" * 100)]
    told = pages(empty, "open_nodes", names=[*asked, "first"])
    assert [each["name"] for page in told for each in page["entities"]] == ["first", *known[1:]]
    assert [name for page in told for name in page["notFound"]] == asked[1::2]


def test_as_many_as_fit_are_opened_at_once_without_a_word_more(client: Client) -> None:
    answer = client("open_nodes", names=[f"small{n}" for n in range(5)] + ["none"])
    assert set(answer) == {"project", "entities", "relations", "notFound"}
    assert {len(each) for each in answer["entities"]} == {6}


def test_what_fits_an_answer_is_opened_whole_however_many_relations_are_shared(
    empty: Client,
) -> None:
    many = [f"e{n:03}" for n in range(74)]
    empty("create_entities", entities=[entity(name) for name in many])
    empty("create_relations", relations=[edge(*ends) for ends in pairwise(many)])
    answer = empty("open_nodes", names=many)
    assert ANSWER_CHARACTERS * 0.97 < size(answer) < ANSWER_CHARACTERS
    assert set(answer) == {"project", "entities", "relations", "notFound"}
    assert (len(answer["entities"]), len(answer["relations"])) == (74, 73)


def test_a_page_is_no_longer_than_what_copilot_shows_its_models(empty: Client) -> None:
    many = [f"e{n:03}" for n in range(150)]
    empty("create_entities", entities=[entity(name, "stands near the window") for name in many])
    empty("create_relations", relations=[edge(*ends) for ends in pairwise(many)])
    for tool, arguments in {
        "read_graph": {},
        "search_nodes": {"query": "window"},
        "open_nodes": {"names": many},
        "query_nodes": {},
        "get_history": {},
    }.items():
        empty(tool, arguments)
        assert len(empty.texts[-1].encode()) <= 20_480, tool


def test_the_versions_of_facts_come_in_pages(client: Client) -> None:
    told = pages(client, "get_observation_history", entityName="big")
    assert len(told) > 1
    assert [each["content"] for page in told for each in page["history"]] == FACTS
    three = client("get_observation_history", entityName="big", limit=3)
    assert [each["content"] for each in three["history"]] == FACTS[:3]


def test_retired_versions_stand_where_they_came_on_whatever_page(empty: Client) -> None:
    empty("create_entities", entities=[entity("big", *FACTS)])
    newer = {"content": "is new", "supersedes": FACTS[400]}
    empty("add_observations", observations=[{"entityName": "big", "contents": [newer]}])
    told = pages(empty, "get_observation_history", entityName="big")
    assert [each["content"] for page in told for each in page["history"]] == [*FACTS, "is new"]


def test_projects_come_in_pages_and_the_bare_text_says_so(empty: Client) -> None:
    for n in range(20):
        empty("create_project", name=f"p{n:02}", description="d" * 2_000)
    told = pages(empty, "list_projects")
    assert len(told) > 1
    assert [each["name"] for page in told for each in page["projects"]] == [
        f"p{n:02}" for n in range(20)
    ]
    answer = perform(empty.tools["list_projects"], Call(empty.session), {}).as_result()
    assert [content.text for content in answer.content[1:]] == [told[0]["notice"]]  # type: ignore[union-attr]
    assert told[0]["nextCursor"] in told[0]["notice"]


def test_threads_come_in_pages(empty: Client) -> None:
    threads = [f"thread{n:03}-" + "t" * 180 for n in range(150)]
    for thread in threads:
        empty("create_entities", entities=[entity(thread)], threadId=thread)
    told = pages(empty, "list_threads")
    assert [each["thread"] for page in told for each in page["threads"]] == threads[::-1]
    assert [page.get("leftOut", 0) for page in told] == [
        sum(len(later["threads"]) for later in told[at + 1 :]) for at in range(len(told))
    ]


@RECORDS
def test_records_come_in_pages_where_the_server_gives_many_unasked(
    tool: str, query: dict[str, str], tmp_path: Path
) -> None:
    tags = [f"t{number:02}:{'x' * 96}" for number in range(20)]
    with client_on(tmp_path, search_limit=100) as client:
        record = {"type": "n", "source": "s", "confidence": 0.5, "tags": tags}
        made = [
            client("memory_create", content=f"tea {number}", **record)["id"] for number in range(40)
        ]
        told = pages(client, tool, **query)
        assert len(told) > 1
        assert sorted(each["id"] for page in told for each in page["results"]) == made
        whole = client(tool, **query, limit=40)
        assert len(whole["results"]) == 40  # who asks for so many gets them


@RECORDS
def test_of_many_tags_that_no_record_has_the_first_are_told_and_all_are_counted(
    tool: str, query: dict[str, str], empty: Client
) -> None:
    tags = [f"t{number:03}:{'x' * 80}" for number in range(900)]
    unknown = empty(tool, **query, tags=tags)
    assert size(unknown) <= NEAR
    assert unknown["notice"].count("No record has the tag ") < 900
    assert unknown["notice"].endswith(" more that are unknown")
    record = {"type": "n", "source": "s", "confidence": 0.5}
    for start in range(0, 900, 20):
        empty("memory_create", content=f"tea {start}", **record, tags=tags[start : start + 20])
    apart = empty(tool, **query, tags=tags)
    assert size(apart) <= NEAR
    assert " more of these, though there are records with each of them." in apart["notice"]


# -- what is written


def test_what_was_written_is_counted_whole_and_told_in_part(empty: Client) -> None:
    many = [entity(f"e{n:03}", FACTS[n]) for n in range(300)]
    edges = [edge(each["name"], "nobody" * 50) for each in many]
    answers = [
        empty("create_entities", entities=many),
        empty("create_relations", relations=edges),
        empty("create_relations", relations=edges),
        empty(
            "add_observations",
            observations=[{"entityName": "e000", "contents": FACTS[1:]}],
        ),
        empty(
            "add_observations",
            observations=[
                {"entityName": f"e{n:03}", "contents": [f"{n} {fact}" for fact in FACTS[:40]]}
                for n in range(20)
            ],
        ),
        empty("undo", dryRun=True),
        empty(
            "delete_observations",
            deletions=[{"entityName": "e000", "observations": [*FACTS[:300], *"abc"]}],
        ),
        empty("delete_relations", relations=[*edges, *edges]),
        empty("delete_entities", entityNames=[each["name"] for each in many] + ["x" * 500] * 90),
    ]
    for answer in answers:
        assert size(answer) <= NEAR
        assert answer["notice"]
    created, _, existing, added, several, undone, facts, relations, gone = answers
    assert f"{300 - len(created['entities'])} of 300 entities" in created["notice"]
    assert len(existing["warnings"]) == 1
    assert "of 300 that were there already" in existing["notice"]
    (one,) = added["results"]
    assert one["leftOut"] == 599 - len(one["observations"]) > 0
    assert one["addedObservations"] == [each["content"] for each in one["observations"]]
    assert several["results"] and all(each["leftOut"] for each in several["results"])
    assert undone["leftOut"] == 800 - len(undone["undone"])
    assert f"{undone['leftOut']} of the 800 events" in undone["notice"]
    assert facts["deleted"] == 300
    assert facts["deletions"][0]["leftOut"] == 300 - len(facts["deletions"][0]["observations"])
    assert facts["notFound"] == [{"entityName": "e000", "observations": ["a", "b", "c"]}]
    assert (relations["deleted"], gone["deleted"]) == (300, 300)
    assert "names not found" in gone["notice"]


def test_facts_of_the_longest_kind_that_were_undone_do_not_fill_a_context(empty: Client) -> None:
    empty("create_entities", entities=[entity("e", *(f"{n}" + "x" * 9_000 for n in range(40)))])
    answer = empty("undo")
    assert size(answer) <= NEAR
    assert answer["leftOut"] + len(answer["undone"]) == 41


def test_a_list_of_warnings_ends_with_how_many_more_there_are(empty: Client) -> None:
    saved = [
        {
            "name": f"S{n}",
            "entityType": f"two words {n}",
            "observations": ["is a fact"],
            "relations": [{"targetEntity": f"S{(n + 1) % 300}", "relationType": "r"}],
        }
        for n in range(300)
    ]
    warnings = empty("save_memory", entities=saved, threadId="t")["warnings"]
    assert warnings[-1] == f"… and {600 - len(warnings) + 1} more warnings"


def test_of_many_problems_the_first_are_told_and_all_are_counted(empty: Client) -> None:
    empty("create_entities", entities=[entity("known")])
    wrong = [{"entityName": f"nobody{n}", "contents": ["x"]} for n in range(200)]
    with pytest.raises(Refused) as caught:
        empty("add_observations", observations=wrong)
    error = caught.value.error
    assert error["message"].startswith("200 problems")
    assert len(error["problems"]) == 50
    assert error["problems"][-1]["problem"] == "151 more problems"


def test_problems_that_are_long_do_not_fill_a_context(empty: Client) -> None:
    fact = "This is one clause of very many, and it goes on. " * 200
    saved = [
        {
            "name": f"S{n}",
            "entityType": "Thing",
            "observations": [fact],
            "relations": [{"targetEntity": "S0", "relationType": "r"}],
        }
        for n in range(100)
    ]
    result = perform(
        empty.tools["save_memory"], Call(empty.session), {"entities": saved, "threadId": "t"}
    ).as_result()
    answer = result.structured_content or {}
    assert answer["error"]["message"].startswith("200 problems")
    assert size(answer) <= NEAR
    assert answer["error"]["problems"][-1]["problem"].endswith("more problems")
    assert answer["validation_errors"][-1].endswith("more problems")


def test_an_id_of_any_length_that_is_not_found_is_told_in_part(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client("get_observation_history", entityName="big", observationId="x" * 1_000_000)
    assert refused.value.error["code"] == "OBSERVATION_NOT_FOUND"
    assert len(str(refused.value.error)) < 1_000


def test_a_name_of_any_length_is_given_as_an_example_in_part(empty: Client) -> None:
    others = {"entityType": "Thing", "observations": ["is one fact"]}
    alone = {"name": "S", "relations": [], **others}
    beside = {"name": "n" * 100_000, "relations": [{"targetEntity": "S", "relationType": "r"}]}
    with pytest.raises(Refused) as caught:
        empty("save_memory", entities=[alone, beside | others], threadId="t")
    assert len(str(caught.value.error)) < 3_000


def test_a_text_of_thousands_of_clauses_is_not_given_back_in_pieces(empty: Client) -> None:
    item = {
        "name": "S",
        "entityType": "Thing",
        "observations": ["is one fact. " * 20_000],
        "relations": [{"targetEntity": "S", "relationType": "r"}],
    }
    with pytest.raises(Refused) as caught:
        empty("save_memory", entities=[item], threadId="t")
    told = caught.value.error["problems"][0]["suggestion"]
    assert told.startswith("Split into 20000 observations: 1) 'is one fact', 2)")
    assert told.endswith("10) 'is one fact', …")


# -- as clients have it


def test_over_stdio_the_text_of_a_bare_answer_is_followed_by_what_it_lacks(tmp_path: Path) -> None:
    with served(tmp_path, era="2025-11-25") as server:
        many = [entity(f"e{n:03}", FACTS[n]) for n in range(300)]
        result = server.result("create_entities", entities=many)
        array, notice = (content["text"] for content in result["content"])
        assert json.loads(array) == result["structuredContent"]["entities"]
        assert notice == result["structuredContent"]["notice"]
        assert sum(len(content["text"]) for content in result["content"]) <= NEAR


def test_what_is_left_out_alone_is_told_in_the_singular(tmp_path: Path) -> None:
    facts = [f"{number} {'and so on ' * 600}" for number in range(2)]
    entity = {"name": "Ann", "entityType": "person", "observations": facts}
    knows = [{"from": "Ann", "to": f"Bob {n}", "relationType": "knows"} for n in range(300)]
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity])
        client("create_relations", relations=knows)
        assert "'Ann': 1 fact and " in client("search_nodes", query="Ann")["notice"]


def test_no_page_of_a_search_is_empty_where_there_is_more(empty: Client) -> None:
    little = [entity(f"small{n}", f"common sense {n} " + "word " * 50) for n in range(7)]
    empty("create_entities", entities=[entity("big", *(f"common fact {n}" for n in range(600)))])
    empty("create_entities", entities=little)
    told = pages(empty, "search_nodes", query="common", limit=5)
    assert all(page["entities"] for page in told[:-1])
    names = [each["name"] for page in told for each in page["entities"]]
    assert sorted(names) == ["big", *(f"small{n}" for n in range(7))]


def test_what_is_told_of_facts_that_were_brought_back_takes_its_room_from_the_answer(
    empty: Client,
) -> None:
    old, new = (
        [f"{word} {number} ".ljust(300, "o") for number in range(200)] for word in ("was", "is")
    )
    empty("create_entities", entities=[{"name": "Jon", "entityType": "t", "observations": old}])
    newer = [{"content": b, "supersedes": a} for a, b in zip(old, new, strict=True)]
    empty("add_observations", observations=[{"entityName": "Jon", "contents": newer}])
    answer = empty("add_observations", observations=[{"entityName": "Jon", "contents": old}])
    assert "more facts that were superseded" in answer["notice"]
    assert len(json.dumps(answer)) < ANSWER_CHARACTERS * 1.1
