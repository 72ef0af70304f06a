"""Toolset `history`: recall and changes_since, as a client sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.locomo import Conversation, conversations
from bench.recalling import Shares, measured
from memlog.commands import (
    AnyCommand,
    CreateEntities,
    CreateRelations,
    NewEntity,
    NewRelation,
    StoreMemory,
    SupersedeMemory,
)
from memlog.context import Context
from memlog.projects.store import Store
from memlog.times import parse_iso
from projections.search.searcher import Found, Searcher
from server.listing import listed
from tests.service import Client, Refused, client_on

JON = {
    "name": "Jon",
    "entityType": "person",
    "observations": ["was a banker", "likes dark mode in editors"],
}
GINA = {"name": "Gina", "entityType": "person", "observations": ["runs a clothing store"]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        opened("create_entities", entities=[JON, GINA])
        relations = [
            {"from": "Jon", "to": "Gina", "relationType": "knows"},
            {"from": "Acme Bank", "to": "Jon", "relationType": "employs"},
        ]
        opened("create_relations", relations=relations)
        yield opened


def test_a_recall_since_a_moment_tells_what_is_new_and_nothing_beside_it(client: Client) -> None:
    head = client.service.open("default").project.head()
    add(client, "Jon", "was a banker in Leeds")
    client("create_relations", relations=[{"from": "Jon", "to": "Bob", "relationType": "meets"}])
    client("store_memory", content="The banker was Jon")
    answer = client("recall", query="Who was a banker?", since=head)
    assert {line.partition(". ")[2] for line in answer["text"].split("\n") if ". " in line} == {
        "was a banker in Leeds",
        "→ meets Bob",
        "The banker was Jon",
    }
    assert client("recall", query="Who was a banker?", since=head, asOf=head + 1)["ids"]
    everything = client("recall", query="Who was a banker?")
    assert client("recall", query="Who was a banker?", since=0) == everything
    now = client.service.open("default").project.head()
    assert client("recall", query="Who was a banker?", since=now)["text"] == ""


@pytest.mark.parametrize(
    ("moments", "said"),
    [
        ({"since": "2999-01-01"}, "lies in the future"),
        ({"since": 999}, "999"),
        ({"since": 3, "asOf": 2}, "nothing was written after 3 by then: asOf is position 2"),
        ({"since": "yesterday"}, "'yesterday' is not a time"),
    ],
)
def test_a_recall_since_a_moment_that_cannot_be_is_refused(
    client: Client, moments: dict[str, Any], said: str
) -> None:
    with pytest.raises(Refused, match=said) as caught:
        client("recall", query="banker", **moments)
    assert caught.value.error["problems"][0]["path"] == "since"


def loses_a_job(name: str) -> CreateEntities:
    told = [f"{name} lost a job yesterday"]
    entity = NewEntity(name=name, entity_type="person", observations=told)
    return CreateEntities(entities=[entity])


def add(client: Client, name: str, *contents: str) -> None:
    client("add_observations", observations=[{"entityName": name, "contents": list(contents)}])


def says(answer: dict[str, Any]) -> list[str]:
    return [line.partition(". ")[2] for line in lines(answer)]


def lines(answer: dict[str, Any]) -> list[str]:
    """Those of the changes themselves."""
    return [line for line in answer["text"].split("\n") if line and not line.startswith("…")]


def positions(answer: dict[str, Any]) -> list[int]:
    return [int(line.partition(". ")[0]) for line in lines(answer)]


# -- recall


def test_a_recall_tells_on_which_day_each_line_was_written(tmp_path: Path) -> None:
    """Of "lost his job yesterday" nobody could tell when that was."""
    knows = NewRelation(source="Jon", target="Gina", relation_type="knows")
    said: list[tuple[str, AnyCommand]] = [
        ("2023-05-08T23:59:59.999999Z", loses_a_job("Gina")),
        ("2023-05-08T23:59:59.999999Z", loses_a_job("Jon")),
        ("2023-05-09T00:00:00Z", CreateRelations(relations=[knows])),
        ("2023-06-01T12:00:00Z", StoreMemory(content="Jon dances")),
        ("2023-06-02T12:00:00Z", StoreMemory(content="Jon sings")),
    ]
    for moment, command in said:
        with closing(Store(tmp_path, clock=partial(parse_iso, moment, "moment"))) as store:
            if not store.knows("default"):
                store.create("default")
            store.project("default").execute(command, Context(), lambda outcome: None)
    with client_on(tmp_path) as client:
        answer = client("recall", query="Jon lost a job yesterday")
    told = dict(line.split(". ") for line in answer["text"].split("\n") if ". " in line)
    said_on = {
        day: {told[str(line)].strip("→← ") for line in lines}
        for day, lines in answer["days"].items()
    }
    assert said_on.pop("2023-05-09") & {"knows Gina", "Jon knows"}
    assert said_on == {
        "2023-05-08": {"Jon lost a job yesterday", "Gina lost a job yesterday"},
        "2023-06-01": {"Jon dances"},
        "2023-06-02": {"Jon sings"},
    }
    assert [*answer["days"]] == sorted(answer["days"])


def test_the_day_of_a_memory_that_replaced_another_is_that_on_which_it_was_written(
    tmp_path: Path,
) -> None:
    ids: list[str] = []
    commands: list[tuple[str, Callable[[], AnyCommand]]] = [
        ("2023-11-01T12:00:00Z", lambda: StoreMemory(content="User works at a bank")),
        ("2023-11-14T12:00:00Z", lambda: StoreMemory(content="User lost his job yesterday")),
        (
            "2023-11-29T12:00:00Z",
            lambda: SupersedeMemory(old_memory_id=ids[0], new_memory_id=ids[1]),
        ),
    ]
    for moment, command in commands:
        with closing(Store(tmp_path, clock=partial(parse_iso, moment, "moment"))) as store:
            if not store.knows("default"):
                store.create("default")
            store.project("default").execute(command(), Context(), lambda outcome: None)
            with store.project("default").read() as state:
                ids = sorted(state.memory_ids("mem"))
    with client_on(tmp_path) as client:
        answer = client("recall", query="Did the user lose his job?")
    assert answer["text"].endswith("1. User lost his job yesterday")
    assert answer["days"] == {"2023-11-14": [1]}


def test_facts_relations_and_memories_come_in_one_text_with_their_ids(client: Client) -> None:
    memory = client("store_memory", content="The user banks with Acme")["created"]["id"]
    answer = client("recall", query="Who was a banker?")
    lines = answer["text"].split("\n")
    assert lines[:2] == ["Jon (person)", "1. was a banker"]
    told = {line.partition(". ")[2]: line.partition(". ")[0] for line in lines if ". " in line}
    assert {"→ knows Gina", "← Acme Bank employs"} <= set(told)
    assert answer["ids"][0].startswith("obs_")
    assert answer["ids"][int(told["→ knows Gina"]) - 1].startswith("rel_")
    assert answer["ids"][int(told["The user banks with Acme"]) - 1] == memory
    assert len(answer["ids"]) == len(told)
    assert [*answer["days"].values()] == [[*range(1, len(told) + 1)]]
    assert answer["entities"]["Jon"].startswith("ent_")
    assert answer["tokens"] <= 1_500
    assert answer["position"] == client.service.open("default").project.head()


def test_a_relation_between_two_that_were_found_is_told_once(client: Client) -> None:
    text = client("recall", query="banker clothing store")["text"]
    assert "Jon (person)" in text and "Gina (person)" in text
    assert text.count("knows") == 1


def test_a_relation_reads_from_its_subject_to_its_object_under_either_of_them(
    client: Client,
) -> None:
    lily = {"name": "Lily", "entityType": "person", "observations": ["is seven years old"]}
    mara = {"name": "Mara", "entityType": "person", "observations": ["works as a midwife"]}
    client("create_entities", entities=[lily, mara])
    mother = {"from": "Mara", "to": "Lily", "relationType": "mother of"}
    client("create_relations", relations=[mother])
    under_lily = client("recall", query="seven years old")["text"]
    assert "← Mara mother of" in under_lily, "not: Lily, mother of Mara"
    assert "→ mother of Lily" in client("recall", query="midwife")["text"]


def test_a_relation_is_recalled_by_what_it_says_of_things_that_nothing_else_finds(
    client: Client,
) -> None:
    relations = [
        {"from": "Gina", "to": "Rex", "relationType": "is_allergic_to"},
        {"from": "Zoe", "to": "Rex", "relationType": "walksWith"},
    ]
    client("create_relations", relations=relations)

    def recalled(query: str) -> list[str]:
        text: str = client("recall", query=query)["text"]
        return text.split("\n")[:2]

    assert recalled("who is allergic?") == ["Gina (person)", "1. → is_allergic_to Rex"]
    assert recalled("walks") == recalled("walkswith") == ["Relations", "1. Zoe walksWith Rex"]
    client("rename_entity", name="Gina", newName="Regina")
    assert recalled("allergic") == ["Regina (person)", "1. → is_allergic_to Rex"]
    client("merge_entities", names=["Regina"], into="Jon")
    assert recalled("allergic") == ["Jon (person)", "1. → is_allergic_to Rex"]
    client("delete_entities", entityNames=["Jon"])
    assert recalled("allergic") == [""]
    client("undo")
    assert recalled("allergic") == ["Jon (person)", "1. → is_allergic_to Rex"]
    relations[0]["from"] = "Jon"
    client("delete_relations", relations=relations)
    assert recalled("allergic walks") == [""]


def test_relations_between_what_does_not_exist_stand_under_one_heading_and_count_as_relations(
    client: Client,
) -> None:
    client(
        "create_relations",
        relations=[
            {"from": f"job {number} of billing", "to": "a table", "relationType": "reads from"}
            for number in range(30)
        ],
    )
    answer = client("recall", query="reads from", budgetTokens=100)
    lines = answer["text"].split("\n")
    told = len(answer["ids"])
    assert lines[0] == "Relations" and lines.count("Relations") == 1 and told == len(lines) - 2
    assert lines[-1].startswith(f"… left out: {30 - told} relations")
    assert answer["leftOut"] == {
        "entities": 0,
        "observations": 0,
        "relations": 30 - told,
        "memories": 0,
    }


def test_a_search_of_the_graph_goes_by_names_types_and_facts(client: Client) -> None:
    """As in the reference server: a relation is told with its ends, and finds none of them."""
    assert client("search_nodes", query="employs")["entities"] == []


def test_a_small_budget_is_kept_and_what_is_left_out_is_said(client: Client) -> None:
    add(client, "Jon", *(f"was a banker in town number {number}" for number in range(60)))
    answer = client("recall", query="banker", budgetTokens=100)
    assert len(answer["text"]) <= 400
    assert answer["leftOut"]["observations"] > 0
    told = answer["text"].split("\n")[-1]
    assert told.startswith("… left out: ")
    assert f"{answer['leftOut']['observations']} facts" in told
    assert client("recall", query="banker", budgetTokens=100) == answer


def test_what_is_counted_as_left_out_is_not_said_to_be_all(client: Client) -> None:
    many = [{"name": f"zebra {n}", "entityType": "animal"} for n in range(200)]
    client("create_entities", entities=many)
    told = client("recall", query="zebra", budgetTokens=200)["text"].split("\n")[-1]
    assert told.startswith("… left out: ") and told.endswith(" entities, and there may be more")
    told = client("recall", query="zebra AND animal AND 7", budgetTokens=200)["text"]
    assert "more" not in told


def test_a_fact_too_long_for_the_budget_is_cut_rather_than_missed(client: Client) -> None:
    client("store_memory", content="zebra " + "and many more words " * 400)
    answer = client("recall", query="zebra", budgetTokens=100)
    assert "1. zebra and many" in answer["text"]
    assert "characters)" in answer["text"]


def test_what_was_written_down_beside_a_hit_comes_with_it(client: Client) -> None:
    add(client, "Gina", "which festival did you go to?")
    add(client, "Jon", "Glastonbury, in June")
    assert "Glastonbury" in client("recall", query="festival")["text"]


def test_what_was_said_in_another_conversation_does_not_come_with_it(client: Client) -> None:
    for thread, name, content in (
        ("one", "Gina", "which festival did you go to?"),
        ("two", "Jon", "Glastonbury, in June"),
    ):
        observations = [{"entityName": name, "contents": [content]}]
        client("add_observations", observations=observations, threadId=thread)
    assert "Glastonbury" not in client("recall", query="festival")["text"]


def test_the_past_is_recalled_as_it_was(client: Client) -> None:
    before = client("recall", query="banker")
    client(
        "add_observations",
        observations=[
            {
                "entityName": "Jon",
                "contents": [{"content": "is a banker no more", "supersedes": "was a banker"}],
            }
        ],
    )
    assert "1. is a banker no more" in client("recall", query="banker")["text"]
    assert "was a banker" not in client("recall", query="banker")["text"]
    assert client("recall", query="banker", asOf=before["position"]) == before


def test_what_is_written_while_it_searches_is_told_by_the_changes_since_its_position(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = Searcher.search

    def search_then_write(self: Searcher, *query: Any, **scope: Any) -> Found:
        found = searched(self, *query, **scope)
        add(client, "Jon", "is a banker again")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Searcher, "search", search_then_write)
        answer = client("recall", query="banker")
    assert "is a banker again" not in answer["text"]
    since = client("changes_since", since=answer["position"])
    assert says(since) == ["'Jon': 'is a banker again' was added"]


def test_what_is_superseded_while_it_searches_is_told_as_it_was_before(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = client("recall", query="banker")
    searched = Searcher.search

    def search_then_write(self: Searcher, *query: Any, **scope: Any) -> Found:
        found = searched(self, *query, **scope)
        observations = ["owns a studio"]
        client("create_entities", entities=[{**JON, "observations": observations}])
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Searcher, "search", search_then_write)
        assert client("recall", query="banker") == before


def test_what_begins_alike_and_is_cut_is_told_or_counted_each(client: Client) -> None:
    for end in ("and again", "and stays"):
        client("store_memory", content="User said it to zygotes, " * 20 + end)
    answer = client("recall", query="zygotes", budgetTokens=100)
    assert len(answer["ids"]) + answer["leftOut"]["memories"] == 2


def test_a_query_that_nothing_answers_gives_an_empty_text(client: Client) -> None:
    answer = client("recall", query="zygote")
    assert (answer["text"], answer["tokens"], answer["ids"]) == ("", 0, [])


# -- changes_since


def test_changes_are_told_from_one_answer_to_the_next_and_nothing_twice(client: Client) -> None:
    first = client("changes_since", since=0)
    assert first["more"] == 0
    assert says(first)[-1] == "relation 'Acme Bank' employs 'Jon' was added"
    assert positions(first)[-1] == first["position"]
    add(client, "Jon", "opened a dance studio")
    second = client("changes_since", since=first["position"])
    assert says(second) == ["'Jon': 'opened a dance studio' was added"]
    for since in (second["position"], second["commands"][0]["time"]):
        nothing = client("changes_since", since=since)
        assert (nothing["text"], nothing["commands"]) == ("", [])


def test_each_command_is_told_once_with_its_thread_and_the_budget_covers_all(
    client: Client,
) -> None:
    start = client("changes_since", since=0)["position"]
    for day in range(30):
        observations = [{"entityName": "Jon", "contents": [f"danced on {day}", f"slept on {day}"]}]
        client("add_observations", observations=observations, threadId=f"night {day}")
    told = client("changes_since", since=start, budgetTokens=300)
    assert len(told["text"]) + len(json.dumps(told["commands"], separators=(",", ":"))) <= 1_200
    assert [each["thread"] for each in told["commands"]][:2] == ["night 0", "night 1"]
    assert positions(told)[:4] == [start + 1, start + 2, start + 3, start + 4]
    assert [each["position"] for each in told["commands"]][:2] == [start + 1, start + 3]
    client("store_memory", content="Jon is tired", threadId="n" * 200)
    last = client("changes_since", since=start + 60, budgetTokens=100)
    assert (says(last), last["more"]) == (["fact 'Jon is tired' was stored"], 0)


def test_what_a_later_sentence_tells_is_not_told_before(client: Client) -> None:
    start = client("changes_since", since=0)["position"]
    old = client("store_memory", content="User lives in Seattle")["created"]["id"]
    new = client("store_memory", content="User moved to Austin")["created"]["id"]
    client("supersede_memory", old_memory_id=old, new_memory_id=new)
    assert says(client("changes_since", since=start)) == [
        "fact 'User lives in Seattle' was superseded by fact 'User moved to Austin'"
    ]


def test_what_begins_alike_and_is_cut_is_told_of_each(client: Client) -> None:
    start = client("changes_since", since=0)["position"]
    notes = [{"text": "User said it again, " * 20 + end} for end in ("and again", "and left")]
    for note in notes:
        client("memory_create", type="note", source="test", confidence=1.0, content=note)
    add(client, "Jon", *(note["text"] for note in notes))
    told = client("changes_since", since=start, budgetTokens=100)
    found = positions(told)
    while told["more"]:
        told = client("changes_since", since=told["position"], budgetTokens=100)
        found += positions(told)
    assert found == [start + 1, start + 2, start + 3, start + 4]


@pytest.mark.parametrize("characters", [130, 600, 6_000])
@pytest.mark.parametrize("budget", [100, 1_500])
def test_what_happened_to_a_long_text_is_told_however_much_of_it_is_cut(
    client: Client, characters: int, budget: int
) -> None:
    old, new = (f"{which} {'dance ' * (characters // 6)}".strip() for which in ("Old", "New"))
    facts = [client("store_memory", content=text)["created"]["id"] for text in (old, new)]
    add(client, "Jon", old)
    since, more, told = client("recall", query="Jon")["position"], 1, []
    client("update_observation", entityName="Jon", observation=old, newContent=new)
    client("delete_observations", deletions=[{"entityName": "Jon", "observations": [new]}])
    client("undo")
    client("supersede_memory", old_memory_id=facts[0], new_memory_id=facts[1])
    while more:
        answer = client("changes_since", since=since, budgetTokens=budget)
        told += says(answer)
        since, more = answer["position"], answer["more"]
    superseded, deleted, undone, outdated = told
    assert superseded.startswith("'Jon': 'Old dance ")
    assert " was superseded by 'New dance " in superseded
    assert deleted.startswith("'Jon': 'New dance ")
    assert deleted.endswith("' was deleted")
    assert "changed was undone: 'Jon': 'New dance " in undone
    assert undone.endswith("' was deleted")
    assert outdated.startswith("fact 'Old dance ")
    assert " was superseded by fact 'New dance " in outdated


def test_an_undo_is_told_with_what_it_took_back(client: Client) -> None:
    add(client, "Jon", "was late", *(f"danced on day {number}" for number in range(6)))
    seen = client("changes_since", since=0)["position"]
    undone = client("undo")["position"]
    client("undo", position=undone)
    span = f"what positions {seen - 6} to {seen} changed was undone"
    took = f"{span}: 'Jon': 'was late' was added; 'Jon': 'danced on day 0' was added; "
    first, second = says(client("changes_since", since=seen))
    assert first.startswith(took)
    assert first.endswith("; 'Jon': 'danced on day 3' was added; and 2 more")
    assert second == f"what position {undone} changed was undone: {first}"


def test_what_does_not_fit_is_continued_without_a_gap(client: Client) -> None:
    add(client, "Jon", *(f"danced on day number {number}" for number in range(60)))
    everything = says(client("changes_since", since=0, budgetTokens=20_000))
    told: list[str] = []
    since, more = 0, 1
    while more:
        answer = client("changes_since", since=since, budgetTokens=100)
        assert len(answer["text"]) <= 400
        assert answer["position"] > since
        told += says(answer)
        since, more = answer["position"], answer["more"]
        assert f"… {more} more: ask again with since={since}" in answer["text"] or not more
    assert told == everything


def test_the_thread_of_a_change_is_named(client: Client) -> None:
    start = client("changes_since", since=0)["position"]
    client("store_memory", content="User moved to Austin", threadId="one")
    (command,) = client("changes_since", since=start)["commands"]
    assert command["thread"] == "one"


@pytest.mark.parametrize("since", ["2999-01-01", "2999-01-01T00:00:00+02:00"])
def test_a_moment_that_has_not_come_is_said_to_lie_in_the_future(
    client: Client, since: str
) -> None:
    head = client("changes_since", since=0)
    assert head["notice"] is None
    answer = client("changes_since", since=since)
    assert (answer["commands"], answer["position"]) == ([], head["position"])
    assert f"{since} lies in the future: it is 2" in answer["notice"]


@pytest.mark.parametrize("since", [99, -1, "99", "soon"])
def test_a_moment_that_is_none_is_refused_by_name(client: Client, since: int | str) -> None:
    with pytest.raises(Refused) as caught:
        client("changes_since", since=since)
    assert caught.value.error["code"] == "INVALID_PARAMETER"
    assert caught.value.error["problems"][0]["path"] == "since"


# -- what they cost, and what they are worth


def test_the_two_tools_cost_little_to_list(client: Client) -> None:
    shown = [listed(client.tools[name]) for name in ("recall", "changes_since")]
    characters = sum(
        len(tool.name)
        + len(tool.description or "")
        + len(json.dumps(tool.input_schema, separators=(",", ":")))
        for tool in shown
    )
    assert characters / 4 < 380


def test_a_recall_holds_more_evidence_than_a_search_cut_to_its_length(tmp_path: Path) -> None:
    sample = {
        "sample_id": "made up",
        "conversation": {
            "session_1": [
                {
                    "dia_id": f"D1:{number}",
                    "speaker": ("Ann", "Bob")[number % 2],
                    "text": f"On day {number} we saw the {animal} of lot {number * 7}.",
                }
                for number in range(120)
                for animal in [f"{'aeiou'[number % 5]}{'bcdfgh'[number % 6]}o{'lmnp'[number % 4]}"]
            ]
        },
        "qa": [
            {"question": f"What was in lot {lot}?", "evidence": [f"D1:{lot // 7}"], "category": 1}
            for lot in (70, 350, 777)
        ]
        + [{"question": "Who is the queen?", "evidence": ["D1:1"], "category": 5}],
    }
    path = tmp_path / "made-up.json"
    path.write_text(json.dumps([sample]))
    (conversation,) = conversations(path)
    assert isinstance(conversation, Conversation)
    shares: Shares = {}
    with client_on(tmp_path / "data") as client:
        measured(client.service, conversation, (200,), shares)
    recalled, searched = shares["recall", 200], shares["search_nodes, cut", 200]
    assert recalled.questions == searched.questions == 3
    assert recalled.whole == 3
    assert searched.whole < 3


def test_code_is_told_without_its_line_breaks_and_the_description_says_so(client: Client) -> None:
    add(client, "Jon", "def paid(x):\n    if x:\n        return 1")
    answer = client("recall", query="def paid")
    assert "def paid(x): if x: return 1" in answer["text"]
    assert "Line breaks are lost" in client.tools["recall"].description
