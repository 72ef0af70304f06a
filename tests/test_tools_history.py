"""Toolset `history` as a client sees it."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memlog.codec import Entry
from memlog.log import Log
from memlog.projects.project import clock_us
from memlog.times import iso
from tests.service import Client, Refused, client_on

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}
GINA = {"name": "Gina", "entityType": "person", "observations": ["runs a shop"]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def says(answer: dict[str, Any]) -> list[str]:
    return [event["says"] for event in answer["events"]]


def test_a_type_that_was_changed_is_found_told_and_taken_back(client: Client) -> None:
    client(
        "create_entities",
        entities=[{"name": "Tom", "entityType": "cat", "observations": ["purrs"]}],
    )
    entity = client("rename_entity", name="Tom", newType="tiger")["entity"]
    assert (entity["name"], entity["entityType"]) == ("Tom", "tiger")
    assert entity["observations"] == ["purrs"]
    assert [each["name"] for each in client("search_nodes", query="tiger")["entities"]] == ["Tom"]
    assert client("search_nodes", query="cat", mode="text")["entities"] == []
    told = client("get_history", entityName="Tom", limit=1)["events"][0]
    assert told["says"] == "'Tom' became a tiger"
    client("undo")
    assert client("open_nodes", names=["Tom"])["entities"][0]["entityType"] == "cat"


def test_history_reads_as_plain_sentences_newest_first(client: Client) -> None:
    client("create_entities", entities=[JON, GINA], threadId="planning")
    client(
        "update_observation",
        entityName="Jon",
        observation="was a banker",
        newContent="is a dancer",
    )
    answer = client("get_history", entityName="Jon")
    assert says(answer) == [
        "'Jon': 'was a banker' was superseded by 'is a dancer'",
        "'Jon': 'was a banker' was added",
        "'Jon' (person) was created",
    ]
    first = answer["events"][-1]
    assert (first["position"], first["thread"]) == (2, "planning")
    assert first["command"].startswith("cmd_")
    assert "thread" not in answer["events"][0]


def test_history_is_kept_of_what_was_deleted_and_renamed(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("rename_entity", name="Jon", newName="Jonathan")
    client("delete_entities", entityNames=["Jonathan"])
    for name in ("Jon", "Jonathan"):
        told = says(client("get_history", entityName=name))
        assert told[0] == "'Jonathan' was deleted"
        assert told[-1] == "'Jon' (person) was created"


def test_the_names_that_an_entity_ever_had_are_not_held_once_for_each_that_came_later(
    client: Client,
) -> None:
    names = [f"{number} " + "x" * 490 for number in range(150)]
    client("create_entities", entities=[JON | {"name": names[0]}])
    for name, new_name in pairwise(names):
        client("rename_entity", name=name, newName=new_name)
    client("get_history", entityName=names[0], limit=1)
    tracemalloc.start()
    try:
        told = client("get_history", entityName=names[0], limit=1)["events"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [event["position"] for event in told] == [len(names) + 2]
    assert most < 2_000_000


def test_history_follows_what_was_merged_until_it_is_split_again(client: Client) -> None:
    def created() -> set[str]:
        told = says(client("get_history", entityName="Jon"))
        return {each for each in told if each.endswith("was created")}

    client("create_entities", entities=[JON, GINA])
    client("create_entities", entities=[{"name": "Mia", "entityType": "person"}])
    before = created()
    assert before == {"'Jon' (person) was created"}
    client("merge_entities", names=["Mia"], into="Gina")
    client("merge_entities", names=["Gina"], into="Jon")
    assert created() == {f"'{name}' (person) was created" for name in ("Jon", "Gina", "Mia")}
    client("undo")
    assert created() == before


def test_history_is_narrowed_by_thread_and_time_and_paged(client: Client) -> None:
    client("create_entities", entities=[JON], threadId="a")
    position = client.service.open("default").project.head()
    client("create_entities", entities=[GINA], threadId="b")
    assert says(client("get_history", threadId="b"))[-1] == "'Gina' (person) was created"
    assert len(says(client("get_history", since=position))) == 2
    page = client("get_history", limit=2)
    rest = client("get_history", limit=10, cursor=page["nextCursor"])
    positions = [event["position"] for event in page["events"] + rest["events"]]
    assert positions == [5, 4, 3, 2, 1]
    assert "nextCursor" not in rest


def test_history_that_was_told_whole_has_no_cursor(client: Client) -> None:
    client("create_entities", entities=[JON], threadId="a")
    client("create_entities", entities=[GINA], threadId="b")
    for limit in (None, 2, 3):
        told = client("get_history", {"threadId": "b"} | ({"limit": limit} if limit else {}))
        assert len(told["events"]) == 2
        assert "nextCursor" not in told


def test_history_of_a_memory(client: Client) -> None:
    old = client("store_memory", content="lives in Seattle")["created"]["id"]
    new = client("store_memory", content="moved to Austin")["created"]["id"]
    client("supersede_memory", old_memory_id=old, new_memory_id=new)
    assert says(client("get_history", memoryId=old)) == [
        "fact 'lives in Seattle' was superseded by fact 'moved to Austin'",
        "fact 'lives in Seattle' was stored",
    ]


def test_a_memory_whose_storing_was_undone_has_its_history_and_whoever_looks_for_it_is_told(
    client: Client,
) -> None:
    memory_id = client("store_memory", content="lives in Seattle")["created"]["id"]
    client("undo")
    assert says(client("get_history", memoryId=memory_id)) == [
        "what position 2 changed was undone",
        "fact 'lives in Seattle' was stored",
    ]
    with pytest.raises(Refused) as refused:
        client("forget_memory", id=memory_id)
    advice = 'It was there until position 3: undo {"position": 3} brings it back.'
    assert refused.value.error["suggestion"] == advice
    client("undo", position=3)
    client("forget_memory", id=memory_id)


@pytest.mark.parametrize("since", ["yesterday", "2999-01-01", "9" * 5_000])
def test_a_moment_that_is_none_is_refused_under_the_name_of_its_argument(
    client: Client, since: str
) -> None:
    with pytest.raises(Refused) as caught:
        client("get_history", since=since)
    assert caught.value.error["message"].startswith("since: ")


def test_the_history_of_an_entity_and_of_a_memory_exclude_each_other(client: Client) -> None:
    client("create_entities", entities=[JON])
    stored = client("store_memory", content="lives in Seattle")["created"]["id"]
    with pytest.raises(Refused) as caught:
        client("get_history", entityName="Jon", memoryId=stored)
    assert caught.value.error["code"] == "INVALID_PARAMETER"


def test_of_what_was_deleted_is_said_until_when_it_was_there_and_how_it_comes_back(
    client: Client,
) -> None:
    client("create_entities", entities=[JON])
    client("delete_entities", entityNames=["Jon"])
    added = {"observations": [{"entityName": "Jon", "contents": ["is back"]}]}
    with pytest.raises(Refused, match="ENTITY_NOT_FOUND") as caught:
        client("add_observations", added)
    advised = re.search(r'until position \d+: undo ({"position": \d+})', str(caught.value.error))
    assert advised is not None
    with pytest.raises(Refused) as never:
        client("get_observation_history", entityName="Jon", asOf=1)
    assert "It was there" not in never.value.error["suggestion"]
    client("undo", json.loads(advised[1]))
    assert client("add_observations", added)["results"][0]["addedObservations"] == ["is back"]


def test_history_of_an_unknown_name_offers_the_nearest(client: Client) -> None:
    client("create_entities", entities=[GINA])
    with pytest.raises(Refused, match="ENTITY_NOT_FOUND") as caught:
        client("get_history", entityName="Ginna")
    assert "Gina" in caught.value.error["suggestion"]


def test_undo_tells_what_it_took_back_and_a_dry_run_changes_nothing(client: Client) -> None:
    client("create_entities", entities=[JON])
    head = client.service.open("default").project.head()
    rehearsed = client("undo", dryRun=True)
    assert [each["says"] for each in rehearsed["undone"]] == [
        "'Jon' (person) was created",
        "'Jon': 'was a banker' was added",
    ]
    assert rehearsed["position"] is None
    assert client.service.open("default").project.head() == head
    done = client("undo")
    assert client("open_nodes", names=["Jon"])["notFound"] == ["Jon"]
    assert client("search_nodes", query="banker")["entities"] == []
    client("undo", position=done["position"])
    assert client("search_nodes", query="banker")["entities"][0]["name"] == "Jon"


def test_undo_of_a_thread_leaves_the_others_alone(client: Client) -> None:
    client("create_entities", entities=[JON], threadId="a")
    client("create_entities", entities=[GINA], threadId="b")
    client("undo", threadId="a")
    assert [each["name"] for each in client("read_graph")["entities"]] == ["Gina"]


def test_undo_takes_back_several_commands(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("create_entities", entities=[GINA])
    client("undo", last=2)
    assert client("read_graph")["entities"] == []
    with pytest.raises(Refused, match="no command"):
        client("undo")


def test_no_time_tells_what_undo_is_to_take_back_that_was_written_while_the_clock_was_behind(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = clock_us()

    def hour(hours: float) -> str:
        time_us = now_us + int(hours * 3_600_000_000)
        monkeypatch.setattr("time.time_ns", lambda: time_us * 1_000)
        return iso(time_us)

    def write(hours: float, name: str) -> None:
        hour(hours)
        client("create_entities", entities=[{"name": name, "entityType": "person"}])

    write(0, "Jon")
    write(5, "Gina")  # five was wrong
    since = hour(0.5)
    hour(1)
    with pytest.raises(Refused, match="the clock was set back"):
        client("undo", since=since)
    write(1, "Mia")
    write(2, "Ann")
    since = hour(1.5)
    for hours in (3, 6):
        hour(hours)
        for dry_run in (True, False):
            with pytest.raises(Refused, match="the clock was set back") as refused:
                client("undo", since=since, dryRun=dry_run)
            assert "from position 3 on" in refused.value.error["message"]
    client("create_entities", entities=[GINA | {"name": "Zoe"}])
    since = hour(5.5)
    hour(7)
    client("undo", since=since)
    client("undo", since="4")
    assert [each["name"] for each in client("read_graph")["entities"]] == ["Jon", "Gina", "Mia"]


def test_since_a_time_at_which_all_was_written_there_is_nothing_to_undo(client: Client) -> None:
    client("create_entities", entities=[JON])
    with pytest.raises(Refused, match="There is no command after position"):
        client("undo", since=iso(clock_us()))


def test_undo_takes_back_all_since_a_position_or_a_time(client: Client) -> None:
    client("create_entities", entities=[JON])
    since = client("get_history")["events"][0]
    client("create_entities", entities=[GINA], threadId="b")
    client("add_observations", observations=[{"entityName": "Jon", "contents": ["a thief"]}])
    rehearsed = client("undo", since=since["position"], dryRun=True)["undone"]
    assert rehearsed[0]["says"] == "'Jon': 'a thief' was added"
    of_thread = client("undo", since=since["position"], threadId="b")["undone"]
    assert {each["thread"] for each in of_thread} == {"b"}
    client("undo", since=since["time"])
    (jon,) = client("read_graph")["entities"]
    assert (jon["name"], jon["observations"]) == ("Jon", JON["observations"])
    with pytest.raises(Refused, match="no command after position"):
        client("undo", since=since["position"])


@pytest.mark.parametrize(
    ("arguments", "path", "message"),
    [
        ({"position": 2, "since": 1}, "since", "position and since exclude each other"),
        ({"last": 2, "since": 1}, "since", "last and since exclude each other"),
        ({"position": 2, "last": 2}, "last", "position and last exclude each other"),
        ({"since": "2999-01-01"}, "since", "future"),
    ],
)
def test_undo_is_told_in_one_way_what_to_take_back(
    arguments: dict[str, Any], path: str, message: str, client: Client
) -> None:
    client("create_entities", entities=[JON])
    with pytest.raises(Refused, match=message) as refused:
        client("undo", **arguments)
    assert refused.value.error["problems"][0]["path"] == path


def test_undo_names_what_depends_on_it(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("add_observations", observations=[{"entityName": "Jon", "contents": ["later"]}])
    with pytest.raises(Refused, match="CONFLICT") as caught:
        client("undo", position=2)
    assert caught.value.error["problems"][0]["path"] == "position 4"
    client("undo", position=2, cascade=True)
    assert client("read_graph")["entities"] == []


def test_undo_names_a_command_once_however_much_of_it_depends(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("add_observations", observations=[{"entityName": "Jon", "contents": ["b", "c"]}])
    with pytest.raises(Refused, match="CONFLICT") as caught:
        client("undo", position=2)
    assert [each["path"] for each in caught.value.error["problems"]] == ["position 4"]


def test_undo_of_what_is_undone_already_says_that_there_is_nothing_to_undo(client: Client) -> None:
    client("create_entities", entities=[JON])
    assert client("undo")["notice"] is None
    again = client("undo", position=2)
    assert (again["undone"], again["position"]) == ([], None)
    assert again["notice"] == "Nothing to undo: it is as it was before already."


def test_undo_of_a_thread_whose_last_command_another_took_away_says_how_to_go_further_back(
    client: Client,
) -> None:
    first, second = [{"from": "Jon", "to": "Gina", "relationType": kind} for kind in ("a", "b")]
    client("create_relations", relations=[first], threadId="t1")
    client("create_relations", relations=[second], threadId="t1")
    client("delete_relations", relations=[second], threadId="t2")
    nothing = client("undo", threadId="t1")
    assert nothing["undone"] == []
    assert nothing["notice"] == (
        "Nothing to undo: it is as it was before already. Pass last=2 to go one command further back."
    )
    further = client("undo", threadId="t1", last=2)
    assert [each["position"] for each in further["undone"]] == [2]


def test_a_cascade_that_is_stuck_says_what_to_undo_first_and_that_helps(client: Client) -> None:
    client(
        "create_relations",
        relations=[{"from": "Jon", "to": "Gina Lee", "relationType": "knows"}],
    )
    client("create_entities", entities=[GINA, {"name": "Rome", "entityType": "city"}])
    position = client("get_history", entityName="Rome")["events"][0]["position"]
    rome = {"name": "Rome", "entityType": "city", "observations": ["Has seven hills"]}
    client("create_entities", entities=[JON, rome])
    client("rename_entity", name="Gina", newName="Gina Lee")
    client("delete_entities", entityNames=["Jon"])
    with pytest.raises(Refused, match="CONFLICT") as caught:
        client("undo", position=position, cascade=True)
    error = caught.value.error
    first = int(re.findall(r'Undo it first: {"position": (\d+)}', error["suggestion"])[0])
    assert first <= client("get_history")["events"][0]["position"]
    client("undo", position=first)
    client("undo", position=position, cascade=True)
    assert client("read_graph")["entities"] == []


def test_where_an_undo_stands_in_the_way_cascade_is_not_advised(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("rename_entity", name="Jon", newName="John")
    renamed_back = client("undo")["position"]
    gone = client("undo")["position"]
    for cascade in (False, True):
        with pytest.raises(Refused, match="CONFLICT") as caught:
            client("undo", position=renamed_back, cascade=cascade)
        assert caught.value.error["suggestion"].startswith("Cascade takes back no undo")
        assert [each["path"] for each in caught.value.error["problems"]] == [f"position {gone}"]
    client("undo", position=gone)
    client("undo", position=renamed_back)
    assert client("open_nodes", names=["John"])["entities"][0]["name"] == "John"


def test_merged_entities_are_one_under_all_their_names_until_undone(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[{"from": "Jon", "to": "Gina", "relationType": "knows"}])
    merged = client("merge_entities", names=["Gina"], into="Jon")["entity"]
    assert merged["aliases"] == ["Gina"]
    assert merged["relations"] == []
    assert client("open_nodes", names=["Gina"])["entities"][0]["name"] == "Jon"
    found = client("search_nodes", query="shop")["entities"]
    assert [each["name"] for each in found] == ["Jon"]
    client("undo")
    assert [each["name"] for each in client("read_graph")["entities"]] == ["Jon", "Gina"]
    found = client("search_nodes", query="shop")["entities"]
    assert [each["name"] for each in found] == ["Gina"]


@pytest.mark.parametrize("merging", [True, False])
def test_a_relation_that_would_lead_from_an_entity_to_itself_is_told_as_it_goes(
    client: Client, merging: bool
) -> None:
    """Where a relation waits for the new name of its own entity, a rename makes one of both ends, too."""
    client("create_entities", entities=[JON, GINA] if merging else [JON])
    knows = {"from": "Jon", "to": "Gina", "relationType": "knows"}
    client("create_relations", relations=[knows, {**knows, "relationType": "likes", "to": "Bo"}])
    if merging:
        answer = client("merge_entities", names=["Gina"], into="Jon")
    else:
        answer = client("rename_entity", name="Jon", newName="Gina")
    assert [each["to"] for each in answer["entity"]["relations"]] == ["Bo"]
    position = client("get_history")["events"][0]["position"]
    told, _, back = answer["notice"].partition(" To take it back: undo ")
    assert (
        told == "The relation 'Jon knows Gina' is no more: it would lead from the entity to itself."
    )
    undo = json.loads(back.rstrip("."))
    assert undo["position"] <= position
    client("undo", **undo)
    assert len(client("open_nodes", names=["Jon"])["relations"]) == 2


def test_a_fact_that_goes_over_to_another_entity_of_the_same_name_is_found_there(
    client: Client,
) -> None:
    client("create_entities", entities=[JON, GINA])
    client("merge_entities", names=["Gina"], into="Jon")
    client("rename_entity", name="Jon", newName="Gina")
    for _ in range(2):  # Gina's own, then Jon's who has her name
        undone = client("undo", last=2)["position"]
        found = client("search_nodes", query="shop")["entities"]
        assert [each["name"] for each in found] == ["Gina"]
        redone = client("undo", position=undone)["position"]
        found = client("search_nodes", query="shop")["entities"]
        assert [(each["name"], each["aliases"]) for each in found] == [("Gina", ["Jon"])]
        assert client("search_nodes", query="shop", asOf=redone)["entities"]


def test_every_item_says_which_event_brought_it_when_asked(client: Client) -> None:
    client("create_entities", entities=[JON, GINA], threadId="planning")
    client("create_relations", relations=[{"from": "Jon", "to": "Gina", "relationType": "knows"}])
    answer = client("search_nodes", query="banker", provenance=True)
    entity, fact = answer["entities"][0]["provenance"]
    assert (entity["position"], fact["position"], fact["thread"]) == (2, 3, "planning")
    assert fact["id"].startswith("obs_")
    assert answer["relations"][0]["provenance"]["position"] == 6
    assert "provenance" not in client("search_nodes", query="banker")["entities"][0]
    listed = client("query_nodes", threadId="planning", provenance=True)["entities"]
    assert [each["provenance"][1]["position"] for each in listed] == [3, 5]


def test_every_memory_says_which_event_brought_it_when_asked(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("store_memory", content="Lives in Seattle", threadId="planning")
    record = {"type": "note", "content": {"says": "Lives in Seattle"}, "source": "chat"}
    client("memory_create", **record, confidence=0.9, tags=["a"], threadId="records")
    client("memory_create", **record, confidence=0.9, tags=["b"], threadId="again")
    asked = {
        "search_memories": ("memories", {"query": "Seattle"}),
        "list_recent_memories": ("memories", {}),
        "memory_search": ("results", {"query": "Seattle"}),
        "memory_list": ("results", {}),
    }
    for tool, (key, arguments) in asked.items():
        for moment in ({}, {"asOf": 5}):
            rows = client(tool, **arguments, **moment, provenance=True)[key]
            assert {row["provenance"]["id"] for row in rows} == {row["id"] for row in rows}, tool
            brought = {row["provenance"]["position"]: row["provenance"] for row in rows}
            assert {at: each["thread"] for at, each in brought.items()} == {
                4: "planning",
                5: "records",
            }, tool
            for at, each in brought.items():
                (event,) = client("get_history", since=at - 1, limit=50)["events"][-1:]
                assert (each["command"], each["time"]) == (event["command"], event["time"])
        assert all("provenance" not in row for row in client(tool, **arguments)[key]), tool


def test_a_fact_is_updated_by_its_text_in_any_normal_form(client: Client) -> None:
    composed, apart = "Likes caf\u00e9s", "Likes cafe\u0301s"
    client("create_entities", entities=[{**JON, "observations": [composed]}])
    same = client("update_observation", entityName="Jon", observation=apart, newContent=apart)
    assert (same["content"], same["version"], same["supersedes"]) == (composed, 1, None)
    new = client("update_observation", entityName="Jon", observation=apart, newContent="Likes tea")
    assert (new["content"], new["version"], new["supersedes"]) == ("Likes tea", 2, same["id"])


def test_a_correction_sent_again_is_answered_alike(client: Client) -> None:
    client("create_entities", entities=[JON])
    sent = {"entityName": "Jon", "observation": JON["observations"][0], "newContent": "dances"}
    assert client("update_observation", sent) == client("update_observation", sent)
    assert len(client("get_observation_history", entityName="Jon")["history"]) == 2


def test_threads_are_listed_with_counts_and_times(client: Client) -> None:
    client("create_entities", entities=[JON], threadId="a")
    client("create_entities", entities=[GINA], threadId="b")
    client("store_memory", content="x", threadId="b")
    threads = client("list_threads")["threads"]
    assert [(each["thread"], each["events"], each["commands"]) for each in threads] == [
        ("b", 3, 2),
        ("a", 2, 1),
    ]
    assert threads[0]["first"] <= threads[0]["last"]


def test_a_thread_that_writes_between_two_pages_is_told_once_as_the_first_page_met_it(
    client: Client,
) -> None:
    for name in ("a", "b", "c"):
        client("store_memory", content=name, threadId=name)
    before = client("list_threads")["threads"]
    first = client("list_threads", limit=1)
    assert first["leftOut"] == 2
    client("store_memory", content="x", threadId="a")
    client("store_memory", content="x", threadId="d")
    second = client("list_threads", limit=1, cursor=first["nextCursor"])
    third = client("list_threads", cursor=second["nextCursor"])
    assert first["threads"] + second["threads"] + third["threads"] == before
    assert "nextCursor" not in third
    assert [each["thread"] for each in client("list_threads")["threads"]] == ["d", "a", "c", "b"]


def test_a_forgotten_memory_is_out_of_every_list_until_undone(client: Client) -> None:
    stored = client("store_memory", content="lives in Seattle")["created"]["id"]
    client("forget_memory", id=stored)
    assert client("list_recent_memories")["memories"] == []
    assert client("search_memories", query="Seattle")["memories"] == []
    client("undo")
    assert client("search_memories", query="Seattle")["memories"][0]["id"] == stored


def test_of_a_thread_no_more_of_the_log_is_read_than_it_wrote_in(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def store(count: int, thread: str) -> None:
        for number in range(count):
            client("store_memory", content=f"{thread} {number}", threadId=thread)

    read, read_back = [], Log.read_back

    def counted(log: Log, before: int) -> Iterator[Entry]:
        for entry in read_back(log, before):
            read.append(entry.position)
            yield entry

    store(40, "early")
    store(3, "mine")
    store(1, "other")
    store(2, "mine")
    store(40, "late")
    monkeypatch.setattr(Log, "read_back", counted)
    events = client("get_history", threadId="mine")["events"]
    assert [each["says"].split("'")[1] for each in events] == [
        "mine 1",
        "mine 0",
        "mine 2",
        "mine 1",
        "mine 0",
    ]
    assert len(read) <= 6 + 1
    read.clear()
    assert client("get_history", threadId="nobody")["events"] == []
    assert read == []
    page = client("get_history", threadId="mine", limit=2)
    rest = client("get_history", threadId="mine", limit=9, cursor=page["nextCursor"])
    assert page["events"] + rest["events"] == events
    half = events[2]["position"]
    assert client("get_history", threadId="mine", since=half)["events"] == events[:2]


def test_the_undo_of_a_thread_that_never_wrote_is_refused_before_the_log_is_searched(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("create_entities", entities=[JON], threadId="planning")
    with monkeypatch.context() as patch:
        patch.setattr("memlog.decisions.undoing.undo", lambda *_: pytest.fail("it was searched"))
        for dry_run in (True, False):
            with pytest.raises(Refused, match="Did you mean 'planning'") as refused:
                client("undo", threadId="planing", dryRun=dry_run)
    assert refused.value.error["problems"][0]["path"] == "threadId"
    assert client("undo", threadId="planning")["undone"]


def test_forgetting_what_superseded_another_memory_tells_how_that_comes_back(
    client: Client,
) -> None:
    rome, oslo, bonn = (
        client("store_memory", content=f"User lives in {city}")["created"]["id"]
        for city in ("Rome", "Oslo", "Bonn")
    )
    client("supersede_memory", old_memory_id=rome, new_memory_id=oslo)
    client("supersede_memory", old_memory_id=oslo, new_memory_id=bonn)
    told = client("forget_memory", id=bonn)["message"]
    assert told == (
        f"Memory {bonn} was forgotten. Memory {oslo}, which it had superseded, stays outdated: "
        'undo {"position": 6} brings that back.'
    )
    client("undo", position=6)
    found = client("search_memories", query="User lives")["memories"]
    assert [each["content"] for each in found] == ["User lives in Oslo"]
    client("undo", position=8)  # outdated again
    for gone in (oslo, rome):
        assert client("forget_memory", id=gone)["message"] == f"Memory {gone} was forgotten"
    assert client("forget_memory", id=bonn)["message"] == f"Memory {bonn} was forgotten before"
