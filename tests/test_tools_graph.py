"""Toolset `graph` as a client sees it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from memlog.settings import TOOLSETS
from memlog.state import Known, State
from server.answering.cursors import ARGUMENT_BYTES, FREE, MARK_BYTES
from server.registry import tools
from tests.served import served
from tests.service import Client, Refused, client_on

JON = {
    "name": "Jon",
    "entityType": "person",
    "observations": ["was a banker", "likes dark mode in editors"],
}
GINA = {"name": "Gina", "entityType": "person", "observations": ["runs a clothing store"]}
KNOWS = {"from": "Jon", "to": "Gina", "relationType": "knows"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def names(answer: dict[str, Any]) -> list[str]:
    return [entity["name"] for entity in answer["entities"]]


def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        client(tool, **arguments)
    return caught.value.error


def test_what_was_created_is_read_back_with_ids_and_times(client: Client) -> None:
    answer = client("create_entities", entities=[JON, GINA])
    assert answer["project"] == "default"
    first = answer["entities"][0]
    assert first["id"].startswith("ent_")
    assert first["createdAt"].endswith("Z")
    assert {key: first[key] for key in JON} == JON
    assert "replaced" not in first
    assert json.loads(client.texts[-1]) == answer["entities"]


def test_an_overwrite_says_how_many_observations_it_retired(client: Client) -> None:
    client("create_entities", entities=[JON])
    answer = client("create_entities", entities=[{**JON, "observations": ["is a dancer"]}])
    assert answer["entities"][0]["replaced"] == 2
    assert client("open_nodes", names=["Jon"])["entities"][0]["observations"] == ["is a dancer"]


def test_skipping_answers_like_the_reference_server_with_new_entities_only(tmp_path: Path) -> None:
    with client_on(tmp_path, if_exists="skip") as client:
        client("create_entities", entities=[JON])
        assert names(client("create_entities", entities=[JON, GINA])) == ["Gina"]


def test_arguments_are_taken_in_either_case(client: Client) -> None:
    client("create_entities", entities=[{"name": "Jon", "entity_type": "person"}])
    client("add_observations", observations=[{"entity_name": "Jon", "contents": ["x"]}])
    assert client("delete_entities", names=["Jon"])["deleted"] == 1


def test_a_misspelt_key_is_an_error_that_offers_the_right_one(client: Client) -> None:
    error = refused(client, "create_entities", entities=[{**GINA, "observation": ["x"]}])
    assert error["code"] == "INVALID_PARAMETER"
    assert "observations" in json.dumps(error)
    assert client("read_graph")["entities"] == []


def test_relations_are_listed_once_and_loose_ends_are_warned_of(client: Client) -> None:
    client("create_entities", entities=[JON])
    answer = client("create_relations", relations=[KNOWS, KNOWS])
    assert [edge["to"] for edge in answer["relations"]] == ["Gina"]
    assert answer["warnings"] == ["Entity with name Gina not found: the relation waits for it"]
    again = client("create_relations", relations=[KNOWS])
    assert again["relations"] == []
    assert [edge["from"] for edge in again["existing"]] == ["Jon"]
    assert json.loads(client.texts[-1]) == []


def test_who_sees_the_texts_only_is_warned_of_loose_ends_beside_the_bare_relations(
    client: Client,
) -> None:
    client("create_entities", entities=[JON])
    warnings = client("create_relations", relations=[KNOWS])["warnings"]
    assert [edge["to"] for edge in json.loads(client.texts[-1])] == ["Gina"]
    assert client.beside == [f"Warning: {each}" for each in warnings] != []
    client("create_entities", entities=[GINA])
    client("create_relations", relations=[{**KNOWS, "relationType": "likes"}])
    assert client.beside == []


def test_who_sees_the_texts_only_is_told_of_relations_that_were_there_and_of_nearest_names(
    client: Client,
) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    client("create_relations", relations=[KNOWS])
    assert json.loads(client.texts[-1]) == []
    assert client.beside == ["There already: 1 relation"]
    both = [KNOWS, {**KNOWS, "relationType": "likes"}]
    client("create_relations", relations=both)
    client("create_relations", relations=both)
    assert client.beside == ["There already: 2 relations"]
    client("create_relations", relations=[{**KNOWS, "to": "Gyna"}])
    assert client.beside == [
        "Warning: Entity with name Gyna not found: the relation waits for it; the nearest name is 'Gina'"
    ]


def test_relations_that_remain_at_a_name_that_is_no_entity_are_told_when_it_is_deleted(
    client: Client,
) -> None:
    client("create_entities", entities=[JON])
    client("create_relations", relations=[KNOWS])
    answer = client("delete_entities", entityNames=["Gina", "Mia"])
    assert answer["notFound"] == ["Gina", "Mia"]
    assert answer["notice"] == (
        "The relation 'Jon knows Gina' remains. To delete such a relation: delete_relations."
    )
    assert client("delete_entities", entityNames=["Jon", "Gina"])["notice"] is None


def test_added_observations_are_answered_per_entity(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    answer = client(
        "add_observations",
        observations=[
            {"entityName": "Jon", "contents": ["was a banker", "new"]},
            {
                "entityName": "Gina",
                "contents": [{"content": "x", "supersedes": "runs a clothing store"}],
            },
        ],
    )
    jon, gina = answer["results"]
    assert jon["addedObservations"] == ["new"]
    assert gina["observations"][0]["version"] == 2
    assert gina["observations"][0]["supersedes"].startswith("obs_")
    assert json.loads(client.texts[-1]) == answer["results"]


@pytest.mark.parametrize("form", [str, lambda text: {"content": text}])
def test_a_fact_whose_text_is_the_id_of_another_is_stored(client: Client, form: Any) -> None:
    client("create_entities", entities=[JON])
    known, *_ = client("get_observation_history", entityName=JON["name"])["history"]
    contents = [form(known["id"])]
    told = client(
        "add_observations", observations=[{"entityName": JON["name"], "contents": contents}]
    )
    assert told["results"][0]["addedObservations"] == [known["id"]]


def test_an_observation_for_a_missing_entity_is_refused_in_the_reference_servers_words(
    client: Client,
) -> None:
    client("create_entities", entities=[GINA])
    error = refused(
        client, "add_observations", observations=[{"entityName": "Gena", "contents": ["x"]}]
    )
    assert error["code"] == "ENTITY_NOT_FOUND"
    assert error["message"] == "Entity with name Gena not found"
    assert error["suggestion"] == "Did you mean 'Gina'?"


def test_deletions_answer_with_what_was_there_and_what_was_not(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    answer = client(
        "delete_observations",
        deletions=[
            {"entityName": "Jon", "observations": ["was a banker", "never"]},
            {"entityName": "Mia", "observations": ["x"]},
        ],
    )
    assert answer["deletions"] == [{"entityName": "Jon", "observations": ["was a banker"]}]
    assert answer["notFound"] == [
        {"entityName": "Jon", "observations": ["never"]},
        {"entityName": "Mia", "observations": ["x"]},
    ]
    gone = client("delete_entities", entityNames=["Gina", "Mia"])
    assert (gone["success"], gone["deleted"], gone["notFound"]) == (True, 1, ["Mia"])
    assert gone["entities"][0]["observations"] == GINA["observations"]
    edges = client("delete_relations", relations=[KNOWS])
    assert (edges["deleted"], edges["notFound"]) == (0, [KNOWS])


def test_of_a_relation_with_two_importances_in_one_request_the_one_that_counts_is_told(
    client: Client,
) -> None:
    client("create_entities", entities=[JON, GINA])
    answer = client("create_relations", relations=[KNOWS, {**KNOWS, "importance": 0.1}])
    assert (len(answer["relations"]), answer["existing"]) == (1, [])
    assert answer["warnings"] == [
        "'Jon knows Gina' stands more than once in this request: its first importance, 0.7, counts"
    ]
    assert client("create_relations", relations=[KNOWS, KNOWS])["warnings"] == []


def test_an_importance_that_a_relation_that_is_there_does_not_take_is_told(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[{**KNOWS, "importance": 0.2}])
    for given in (0.9, 0.7):  # the one for new relations too, where it was given
        answer = client("create_relations", relations=[{**KNOWS, "importance": given}])
        assert len(answer["existing"]) == 1
        assert answer["warnings"] == [
            f"'Jon knows Gina' exists with importance 0.2, which it keeps; {given} was given. "
            "To change it, delete the relation and create it again"
        ]
    for kept in (KNOWS, {**KNOWS, "importance": 0.2}):
        assert client("create_relations", relations=[kept])["warnings"] == []


def test_ratings_that_a_fact_that_is_there_does_not_take_are_told(client: Client) -> None:
    def add(*contents: Any) -> dict[str, Any]:
        items = [{"entityName": "Jon", "contents": contents}]
        return client("add_observations", observations=items)

    client("create_entities", entities=[{**JON, "observations": ["Likes tea"]}])
    told = add({"content": "Likes tea", "importance": 1, "confidence": 0.1})
    assert told["results"][0]["addedObservations"] == []
    assert told["notice"] == (
        "'Likes tea' of 'Jon' keeps confidence 1, 0.1 was given, and importance 0.5, 1 was given. "
        "To rate a fact anew, delete it and add it again."
    )
    same = add({"content": "Likes tea", "supersedes": "Likes tea", "importance": 0.7})
    assert "keeps importance 0.5, 0.7 was given" in same["notice"]
    for kept in (
        "Likes tea",
        {"content": "Likes tea"},
        {"content": "Likes tea", "importance": 0.5},
    ):
        assert "notice" not in add(kept)
    assert "notice" not in add({"content": "Likes milk", "importance": 0.9})
    again = add("Likes milk", {"content": "Likes milk", "importance": 0.5, "confidence": 1.0})
    assert "keeps importance 0.9, 0.5 was given" in again["notice"]


def test_an_entity_that_is_added_to_says_that_it_keeps_its_type(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    others = [{**JON, "entityType": "dancer"}, GINA]
    assert "notice" not in client("create_entities", entities=others, ifExists="skip")
    notice = client("create_entities", entities=others, ifExists="merge")["notice"]
    kept = f"'Jon' is of type '{JON['entityType']}' still, not 'dancer'."
    assert notice == f"{kept} rename_entity with newType changes a type."
    assert "notice" not in client("create_entities", entities=others)
    assert client("open_nodes", names=["Jon"])["entities"][0]["entityType"] == "dancer"


def test_the_importance_of_a_relation_is_told_where_it_is_not_that_of_most(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    heavy = {**KNOWS, "relationType": "trusts", "importance": 0.95}
    made = client("create_relations", relations=[KNOWS, heavy])["relations"]
    for told in (
        made,
        client("open_nodes", names=["Jon"])["relations"],
        client("search_nodes", query="Gina")["relations"],
        client("read_graph")["relations"],
    ):
        assert {each["relationType"]: each.get("importance") for each in told} == {
            "knows": None,
            "trusts": 0.95,
        }


@pytest.mark.parametrize(
    ("tool", "key", "there", "missing", "things"),
    [
        ("delete_entities", "entityNames", "Jon", "Joan", "Entities"),
        ("delete_relations", "relations", KNOWS, {**KNOWS, "relationType": "likes"}, "Relations"),
        (
            "delete_observations",
            "deletions",
            {"entityName": "Jon", "observations": ["was a banker"]},
            {"entityName": "Jon", "observations": ["Was a banker"]},
            "Observations",
        ),
    ],
)
def test_a_deletion_is_said_to_be_done_as_far_as_it_is(
    client: Client, tool: str, key: str, there: Any, missing: Any, things: str
) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    nothing = client(tool, {key: [missing]})
    assert (nothing["success"], nothing["deleted"]) == (True, 0)
    assert nothing["message"] == f"No {things.lower()} deleted: none was found"
    some = client(tool, {key: [there, missing]})
    assert some["message"] == f"{things} deleted successfully"
    assert some["deleted"] == len(some["notFound"]) == 1
    client("undo")
    assert client(tool, {key: [there]})["message"] == f"{things} deleted successfully"


def test_what_is_deleted_by_a_former_name_is_not_said_to_be_missing(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    client("rename_entity", name="Jon", newName="Jonathan")
    edges = client("delete_relations", relations=[KNOWS])
    assert (edges["deleted"], edges["notFound"]) == (1, [])
    gone = client("delete_entities", entityNames=["Jon", "Jonathan", "Mia"])
    assert (gone["deleted"], gone["notFound"]) == (1, ["Mia"])


def test_an_entity_that_is_named_by_two_names_is_answered_once(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("rename_entity", name="Jon", newName="Jonathan")
    answer = client("create_entities", entities=[JON, {**JON, "name": "Jonathan"}])
    assert names(answer) == ["Jonathan"]


def test_a_fact_that_two_are_to_supersede_at_once_is_refused(client: Client) -> None:
    client("create_entities", entities=[JON])
    newer = [
        {"content": text, "supersedes": "was a banker"} for text in ("is a dancer", "is a singer")
    ]
    item = {"entityName": "Jon", "contents": newer}
    error = refused(client, "add_observations", observations=[item])
    assert (error["code"], error["problems"][0]["path"]) == (
        "CONFLICT",
        "observations[0].contents[1].supersedes",
    )
    assert "'is a dancer'" in error["message"]
    kept = client("open_nodes", names=["Jon"])["entities"][0]["observations"]
    assert kept == JON["observations"]


def test_of_two_facts_that_one_is_to_supersede_only_what_lives_is_told(client: Client) -> None:
    client("create_entities", entities=[{**JON, "observations": ["A", "B"]}])
    contents = [{"content": "C", "supersedes": old} for old in "AB"]
    (told,) = client(
        "add_observations", observations=[{"entityName": "Jon", "contents": contents}]
    )["results"]
    assert told["addedObservations"] == ["C"]
    history = client("get_observation_history", entityName="Jon")["history"]
    living = [row["id"] for row in history if not {"deleted_at", "superseded_by"} & set(row)]
    assert [row["id"] for row in told["observations"]] == living


def test_a_fact_that_two_items_delete_is_told_once(client: Client) -> None:
    client("create_entities", entities=[JON])
    (fact, *_) = JON["observations"]
    known, *_ = client("get_observation_history", entityName="Jon")["history"]
    items = [
        {"entityName": "Jon", "observations": texts} for texts in ([fact, fact], [known["id"]])
    ]
    answer = client("delete_observations", deletions=items)
    assert answer["deleted"] == 1
    assert answer["deletions"] == [{"entityName": "Jon", "observations": [fact]}]
    assert answer["notFound"] == []


def test_a_supersession_sent_again_has_nothing_to_do(client: Client) -> None:
    client("create_entities", entities=[JON])
    newer = {"content": "is a dancer", "supersedes": "was a banker"}
    sent = {"observations": [{"entityName": "Jon", "contents": [newer]}]}
    assert client("add_observations", sent)["results"][0]["addedObservations"] == ["is a dancer"]
    (again,) = client("add_observations", sent)["results"]
    assert again == {"entityName": "Jon", "addedObservations": [], "observations": []}


BROUGHT_BACK = "'was a banker' of 'Jon' was superseded by 'dances' and stands beside it now: delete what is outdated"


def superseding(client: Client) -> None:
    """Jon once was a banker, then a dancer, then he dances."""
    client("create_entities", entities=[JON])
    for old, new in (("was a banker", "is a dancer"), ("is a dancer", "dances")):
        newer = {"content": new, "supersedes": old}
        client("add_observations", observations=[{"entityName": "Jon", "contents": [newer]}])


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        (
            "add_observations",
            {"observations": [{"entityName": "Jon", "contents": ["was a banker", "sings"]}]},
            "notice",
        ),
        ("create_entities", {"entities": [JON], "ifExists": "merge"}, "notice"),
        (
            "save_memory",
            {
                "threadId": "t",
                "entities": [
                    {
                        "name": "Jon",
                        "entityType": "Person",
                        "observations": ["was a banker"],
                        "relations": [{"targetEntity": "Jon", "relationType": "knows"}],
                    }
                ],
            },
            "warnings",
        ),
    ],
)
def test_who_adds_a_fact_that_was_superseded_is_told_what_is_there_in_its_place(
    client: Client, tool: str, arguments: dict[str, Any], field: str
) -> None:
    superseding(client)
    assert BROUGHT_BACK in client(tool, arguments)[field]
    facts = client("open_nodes", names=["Jon"])["entities"][0]["observations"]
    assert {"was a banker", "dances"} <= {*facts}


def test_what_an_entity_gave_up_before_it_was_merged_is_told_of_whoever_adds_it_to_the_other(
    client: Client,
) -> None:
    superseding(client)
    client("create_entities", entities=[GINA])
    client("merge_entities", names=["Jon"], into="Gina")
    for name in ("Jon", "Gina"):
        item = {"entityName": name, "contents": ["was a banker"]}
        answer = client("add_observations", observations=[item])
        assert answer["notice"] == BROUGHT_BACK.replace("Jon", "Gina")
        client("undo")


def test_what_changed_back_or_was_deleted_or_is_of_another_is_added_without_a_word(
    client: Client,
) -> None:
    superseding(client)
    client("create_entities", entities=[GINA])
    client(
        "delete_observations",
        deletions=[{"entityName": "Jon", "observations": [JON["observations"][1]]}],
    )
    changed_back = {"content": "is a dancer", "supersedes": "dances"}
    items = [
        {"entityName": "Gina", "contents": ["was a banker"]},
        {"entityName": "Jon", "contents": [JON["observations"][1], changed_back]},
    ]
    assert "notice" not in client("add_observations", observations=items)
    client(
        "delete_observations", deletions=[{"entityName": "Jon", "observations": ["is a dancer"]}]
    )
    again = {"entityName": "Jon", "contents": ["was a banker"]}
    assert "notice" not in client("add_observations", observations=[again])


def test_what_stands_beside_its_successor_takes_its_place_again_when_it_is_told_to(
    client: Client,
) -> None:
    superseding(client)
    client("add_observations", observations=[{"entityName": "Jon", "contents": ["was a banker"]}])
    back = {"content": "was a banker", "supersedes": "dances"}
    answer = client("add_observations", observations=[{"entityName": "Jon", "contents": [back]}])
    assert "notice" not in answer
    facts = client("open_nodes", names=["Jon"])["entities"][0]["observations"]
    assert sorted(facts) == ["likes dark mode in editors", "was a banker"]


def test_deleting_a_fact_that_was_superseded_offers_its_newest_version(client: Client) -> None:
    client("create_entities", entities=[{**JON, "observations": ["was a banker", "was a bank"]}])
    newer = {"content": "dances", "supersedes": "was a banker"}
    client("add_observations", observations=[{"entityName": "Jon", "contents": [newer]}])
    old, *_ = client("get_observation_history", entityName="Jon")["history"]
    for wanted in ("was a banker", old["id"]):
        answer = client(
            "delete_observations", deletions=[{"entityName": "Jon", "observations": [wanted]}]
        )
        assert answer["notFound"] == [{"entityName": "Jon", "observations": [wanted]}]
        assert answer["suggestions"] == {wanted: ["dances"]}


def test_a_deleted_entity_is_out_of_every_read_and_search_at_once(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    client("delete_entities", entityNames=["Gina"])
    graph = client("read_graph")
    assert (names(graph), graph["relations"]) == (["Jon"], [])
    assert names(client("search_nodes", query="clothing")) == []
    opened = client("open_nodes", names=["Gina"])
    assert opened["notFound"] == ["Gina"]


@pytest.mark.parametrize(
    "query",
    [
        "editors dark",
        "DARK",
        "dark AND editors",
        "banker NOT store",
        '"dark mode"',
        "edit*",
        "(banker OR store) AND Jon",
        "NOT (NOT banker)",
        "NOT (store OR NOT banker)",
        "on",
        "anke",
        "mode in ed",
        "person jon",
    ],
)
def test_search_finds_by_words_operators_and_parts(client: Client, query: str) -> None:
    client("create_entities", entities=[JON, GINA])
    assert names(client("search_nodes", query=query))[:1] == ["Jon"]


@pytest.mark.parametrize("query", ["zebra", "", "   ", "the", "xyzzy AND banker", '"mode dark"'])
def test_what_is_not_relevant_is_not_returned(client: Client, query: str) -> None:
    client("create_entities", entities=[JON, GINA])
    assert names(client("search_nodes", query=query)) == []


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("xyzzy AND banker", True),
        ('column "mode dark" does not exist', True),
        ("zebr*", True),
        ("zebra", False),
        ('"dark mode"', False),
    ],
)
def test_a_search_that_finds_nothing_says_so_where_its_operators_forbid_more(
    client: Client, query: str, told: bool
) -> None:
    client("create_entities", entities=[JON, GINA])
    notice = client("search_nodes", query=query).get("notice", "")
    assert ("Without these, any of its words is enough" in notice) == told


@pytest.mark.parametrize(
    ("query", "told"),
    [("*", True), ("", True), ("…", True), ("C++ +", False), ("zebra", False), ("_", False)],
)
def test_a_search_without_a_word_says_that_it_does_not_list(
    client: Client, query: str, told: bool
) -> None:
    client("create_entities", entities=[JON, GINA, {"name": "snake_case", "entityType": "Style"}])
    notice = client("search_nodes", query=query).get("notice", "")
    assert notice.startswith("The query has no word to search by.") == told


@pytest.mark.parametrize(
    "query",
    ['"', "((", "AND", "NOT", "* OR )", "a AND", "\\", "title:x", "[1 TO", "^2", "+-", "a\tb"],
)
def test_no_query_raises(client: Client, query: str) -> None:
    client("create_entities", entities=[JON])
    client("search_nodes", query=query)


def test_relations_with_one_end_among_the_found_come_along(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("create_relations", relations=[KNOWS])
    for answer in (client("search_nodes", query="banker"), client("open_nodes", names=["Jon"])):
        assert names(answer) == ["Jon"]
        assert [edge["to"] for edge in answer["relations"]] == ["Gina"]


def test_a_long_graph_is_paged_without_loss_or_repetition_while_others_write(
    client: Client,
) -> None:
    many = [{"name": f"e{n}", "entityType": "t", "observations": ["x" * 900]} for n in range(100)]
    client("create_entities", entities=many)
    edges = [{"from": f"e{n}", "to": f"e{n + 1}", "relationType": "r"} for n in range(99)]
    client("create_relations", relations=edges)
    found: list[str] = []
    relations = 0
    page = client("read_graph")
    assert len(client.texts[-1]) < 40_000
    client("delete_entities", entityNames=["e99"])
    while True:
        found += names(page)
        relations += len(page["relations"])
        if "nextCursor" not in page:
            break
        page = client("read_graph", cursor=page["nextCursor"])
    assert found == [f"e{n}" for n in range(100)]
    assert relations == 99


@pytest.mark.parametrize(
    "query", ["Zephyrine", "what is Zephyrine?", "zephyr", "Zephyrine AND mail"]
)
def test_an_entity_is_found_by_a_name_that_it_had_before(client: Client, query: str) -> None:
    mailer = {"name": "Zephyrine", "entityType": "Service", "observations": ["Sends mail"]}
    client("create_entities", entities=[mailer, {"name": "Quoxalot", "entityType": "Service"}])
    client("rename_entity", name="Zephyrine", newName="Mailer")
    client("merge_entities", names=["Quoxalot"], into="Mailer")
    for asked in (query, query.replace("Zephyrine", "Quoxalot").replace("zephyr", "quoxa")):
        assert names(client("search_nodes", query=asked, mode="text")) == ["Mailer"]
    client("undo", last=2)
    assert names(client("search_nodes", query="Zephyrine", mode="text")) == ["Zephyrine"]
    assert names(client("search_nodes", query="Quoxalot", mode="text")) == ["Quoxalot"]


def test_a_limit_is_kept_and_search_pages_on(client: Client) -> None:
    many = [{"name": f"e{n}", "entityType": "t", "observations": ["common"]} for n in range(30)]
    client("create_entities", entities=many)
    found: list[str] = []
    page = client("search_nodes", query="common", limit=7)
    assert len(page["entities"]) == 7
    while "nextCursor" in page:
        found += names(page)
        page = client("search_nodes", query="common", limit=7, cursor=page["nextCursor"])
    found += names(page)
    assert sorted(found) == sorted(f"e{n}" for n in range(30))


def test_a_search_by_part_pages_through_everything_that_has_it(client: Client) -> None:
    client("create_entities", entities=[{"name": f"e{n}🍣", "entityType": "t"} for n in range(600)])
    found: list[str] = []
    page = client("search_nodes", query="🍣", limit=100)
    while "nextCursor" in page:
        found += names(page)
        page = client("search_nodes", query="🍣", limit=100, cursor=page["nextCursor"])
    found += names(page)
    assert sorted(found) == sorted(f"e{n}🍣" for n in range(600))


def test_a_cursor_of_ones_own_making_is_refused(client: Client) -> None:
    client("create_entities", entities=[JON])
    assert refused(client, "read_graph", cursor="next")["code"] == "INVALID_PARAMETER"


def test_a_cursor_of_another_tool_or_project_is_refused(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    pages = {
        "read_graph": {},
        "search_nodes": {"query": "jon OR gina OR banker OR clothing"},
        "query_nodes": {},
        "get_history": {},
    }
    cursors = {
        tool: client(tool, limit=1, **arguments)["nextCursor"] for tool, arguments in pages.items()
    }
    client("create_project", name="other")
    client("create_entities", entities=[JON, GINA])
    for tool, arguments in pages.items():
        for origin, cursor in cursors.items():
            error = refused(client, tool, cursor=cursor, **arguments)
            assert error["message"].startswith("cursor: not a cursor that an answer of this tool")
            if origin == tool:
                assert client(tool, cursor=cursor, project="default", **arguments)
            else:
                refused(client, tool, cursor=cursor, project="default", **arguments)


PAGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "read_graph": ({}, {"asOf": 3}),
    "search_nodes": ({"query": "jon OR gina"}, {"query": "banker", "mode": "text", "asOf": 3}),
    "query_nodes": ({"minImportance": 0}, {"minImportance": 0.1, "entityType": "person"}),
    "get_history": ({"threadId": "a"}, {"threadId": "b", "since": 1, "entityName": "Jon"}),
    "get_observation_history": ({"entityName": "Jon"}, {"entityName": "Gina", "threadId": "b"}),
    "memory_list": ({"tags": ["x"]}, {"tags": ["x", "y"], "type": "note", "asOf": 3}),
    "memory_search": (
        {"query": "note", "tags": ["x"]},
        {"query": "notes", "tags": [], "type": "note", "threadId": "b", "asOf": 3},
    ),
    "search_memories": ({"query": "note"}, {"query": "notes", "threadId": "b", "asOf": 3}),
    "list_recent_memories": ({}, {"threadId": "b", "asOf": 3}),
    "list_projects": ({}, {"status": "all"}),
}
"""The arguments of a first page, and others."""


@pytest.mark.parametrize("tool", PAGED)
def test_a_cursor_sent_with_other_arguments_is_refused_by_the_name_of_each(
    client: Client, tool: str
) -> None:
    jon = {**JON, "observations": ["is a banker", "likes dancing"]}
    client("create_entities", entities=[jon, {**GINA, "observations": ["sells"]}], threadId="a")
    for number in range(3):
        note = {"type": "note", "source": "s", "confidence": 1, "tags": ["x"]}
        client("memory_create", content=f"note {number}", **note)
    client("create_project", name="other")
    client("switch_project", name="default")
    arguments, others = PAGED[tool]
    cursor = client(tool, **arguments, limit=1)["nextCursor"]
    for name, value in others.items():
        error = refused(client, tool, **{**arguments, name: value, "cursor": cursor})
        assert error["code"] == "INVALID_PARAMETER"
        assert (
            error["message"] == f"{name} is not what it was in the call that gave out this cursor"
        )
        assert "leave the cursor out" in error["suggestion"]
        assert [problem["path"] for problem in error["problems"]] == [name]
    every = refused(client, tool, **{**arguments, **others, "cursor": cursor})
    assert {problem["path"] for problem in every["problems"]} == set(others)
    for limit in (1, 2):
        assert client(tool, {**arguments, "cursor": cursor, "limit": limit})


ODD = (-7, -1, 0, 1, 10**12, 2**63 - 1, 2**63, "e" * 600, None)


def forged(cursor: str, tool: str) -> Iterator[str]:
    """The cursor with each of the things it says replaced by others."""
    data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    fields = tools(TOOLSETS)[tool].arguments.__struct_fields__
    said = MARK_BYTES + ARGUMENT_BYTES * sum(name not in FREE for name in fields)
    values = msgspec.msgpack.decode(data[said:])
    for place, odd in product(range(len(values)), ODD):
        other = data[:said] + msgspec.msgpack.encode([*values[:place], odd, *values[place + 1 :]])
        yield base64.urlsafe_b64encode(other).decode().rstrip("=")


@pytest.mark.parametrize("tool", PAGED)
def test_a_cursor_that_nobody_gave_out_is_answered_or_refused(client: Client, tool: str) -> None:
    jon = {**JON, "observations": ["is a banker", "likes dancing"]}
    client("create_entities", entities=[jon, GINA], threadId="a")
    for number in range(3):
        note = {"type": "note", "source": "s", "confidence": 1, "tags": ["x"]}
        client("memory_create", content=f"note {number}", **note)
    client("create_project", name="other")
    client("switch_project", name="default")
    arguments, _ = PAGED[tool]
    cursor = client(tool, **arguments, limit=1)["nextCursor"]
    for other in forged(cursor, tool):
        try:
            client(tool, **arguments, limit=1, cursor=other)
        except Refused as refusal:
            assert refusal.error["code"] in {"INVALID_PARAMETER", "ENTITY_NOT_FOUND"}


def test_a_cursor_goes_on_where_defaults_are_spelt_out_or_what_it_knows_is_left_out(
    client: Client,
) -> None:
    client("create_entities", entities=[JON, GINA])
    query = {"query": "jon OR gina"}
    for first, then in (
        ({}, {"mode": "hybrid", "as_of": None, "provenance": False, "project": "default"}),
        ({"mode": "hybrid", "project": "default"}, {}),
        ({"asOf": 6}, {}),
        ({"asOf": 6}, {"asOf": 6, "provenance": True}),
    ):
        page = client("search_nodes", {**query, **first, "limit": 1})
        rest = client("search_nodes", {**query, **then, "cursor": page["nextCursor"]})
        assert {*names(page), *names(rest)} == {"Jon", "Gina"}


def test_the_graph_can_be_read_and_searched_as_of_an_earlier_position(client: Client) -> None:
    client("create_entities", entities=[JON])
    client("create_entities", entities=[{**JON, "observations": ["is a dancer"]}])
    then = client("open_nodes", names=["Jon"], asOf=4)
    assert then["entities"][0]["observations"] == JON["observations"]
    assert names(client("search_nodes", query="banker")) == []
    assert names(client("search_nodes", query="banker", asOf=4)) == ["Jon"]
    assert client("read_graph", asOf="1999-01-01")["entities"] == []
    assert refused(client, "read_graph", asOf="2999-01-01")["code"] == "INVALID_PARAMETER"
    assert refused(client, "read_graph", asOf=99)["code"] == "INVALID_PARAMETER"


def test_a_retry_with_the_same_command_id_is_answered_alike_and_done_once(client: Client) -> None:
    arguments = {"entities": [JON]}
    first = client.as_command("retry-1", "create_entities", arguments)
    assert client.as_command("retry-1", "create_entities", arguments) == first
    with pytest.raises(Refused, match="CONFLICT"):
        client.as_command("retry-1", "create_entities", {"entities": [GINA]})
    assert names(client("read_graph")) == ["Jon"]


def test_a_call_may_name_its_project(client: Client) -> None:
    client("create_project", name="other")
    client("create_entities", entities=[JON], project="default")
    assert client("read_graph")["entities"] == []
    answer = client("read_graph", project="default")
    assert (answer["project"], names(answer)) == ("default", ["Jon"])


def test_every_problem_of_a_batch_is_named_and_nothing_of_it_written(client: Client) -> None:
    error = refused(
        client,
        "create_entities",
        entities=[JON, {"name": "", "entityType": "t"}, {"name": "x" * 1_000_000, "entityType": 5}],
    )
    paths = [problem["path"] for problem in error["problems"]]
    assert paths == ["entities[1].name", "entities[2].name", "entities[2].entityType"]
    assert len(json.dumps(error)) < 3_000
    assert client("read_graph")["entities"] == []


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "a/b\\c", "..", "名前", "🙂", "a" * 500, " x "]
)
def test_any_name_is_just_a_name(client: Client, name: str) -> None:
    client("create_entities", entities=[{"name": name, "entityType": "t", "observations": ["x"]}])
    client("create_relations", relations=[{"from": name, "to": name, "relationType": name[:200]}])
    answer = client("open_nodes", names=[name])
    assert names(answer) == [name]
    assert len(answer["relations"]) == 1
    assert names(client("search_nodes", query=name)) == [name]


def test_more_items_than_a_call_may_carry_are_refused_with_the_limit(client: Client) -> None:
    many = [{"name": f"e{n}", "entityType": "t"} for n in range(10_000)]
    error = refused(client, "create_entities", entities=many)
    assert error["code"] == "LIMIT_EXCEEDED"
    assert "1000" in json.dumps(error)


def test_everything_that_matches_is_reached_however_much_it_is(client: Client) -> None:
    many = [{"name": f"e{n}", "entityType": "t", "observations": ["common"]} for n in range(450)]
    client("create_entities", entities=many)
    assert len(client("search_nodes", query="common", limit=1000)["entities"]) == 450
    found: set[str] = set()
    page = client("search_nodes", query="common")
    while True:
        found |= set(names(page))
        if "nextCursor" not in page:
            break
        page = client("search_nodes", query="common", cursor=page["nextCursor"])
    assert found == {f"e{n}" for n in range(450)}


def test_a_search_reads_no_more_entities_than_are_wanted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    known = State.known

    def counting(state: State, entity_ids: Iterable[str]) -> Iterator[Known | None]:
        wanted = list(entity_ids)
        read.extend(wanted)
        return known(state, wanted)

    entities = [{"name": f"tea {n}", "entityType": "drink"} for n in range(20)]
    client("create_entities", entities=entities)
    monkeypatch.setattr(State, "known", counting)

    assert len(names(client("search_nodes", query="tea", limit=1))) == len(read) == 1
    read.clear()
    assert len(names(client("search_nodes", query="tea", limit=10))) == 10 <= len(read) < 20


def test_an_entity_that_is_deleted_by_a_former_name_is_told_and_how_it_is_taken_back(
    client: Client,
) -> None:
    client("create_entities", entities=[JON, GINA])
    client("merge_entities", names=["Gina"], into="Jon")
    client("rename_entity", name="Jon", newName="Robert")
    answer = client("delete_entities", entityNames=["Jon", "nobody"])
    assert names(answer) == ["Robert"]
    told, back = answer["notice"].split(" To take it back: undo ")
    assert told == "'Jon' is a former name of 'Robert', which was deleted."
    client("undo", json.loads(back.removesuffix(".")))
    assert client("delete_entities", entityNames=["Robert", "Gina"])["notice"] is None


def test_who_is_not_offered_undo_is_not_told_of_it(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[JON])
        client("rename_entity", name="Jon", newName="Robert")
    with client_on(tmp_path, toolsets=("graph",)) as client:
        notice = client("delete_entities", entityNames=["Jon"])["notice"]
    assert notice == "'Jon' is a former name of 'Robert', which was deleted."


def test_a_relation_between_two_names_of_one_entity_is_warned_of(client: Client) -> None:
    client("create_entities", entities=[JON, GINA])
    client("merge_entities", names=["Gina"], into="Jon")
    assert client("create_relations", relations=[KNOWS])["warnings"] == [
        "'Jon' and 'Gina' are names of one entity by now, 'Jon': the relation leads from it to itself"
    ]
    itself = {"from": "Jon", "to": "Jon", "relationType": "knows"}
    assert client("create_relations", relations=[itself])["warnings"] == []


def test_a_name_twice_in_a_request_is_one_entity_and_retires_only_what_was_there(
    client: Client,
) -> None:
    twice = [{"name": "Jon", "entityType": "person", "observations": [fact]} for fact in ("a", "b")]
    (made,) = client("create_entities", entities=twice)["entities"]
    assert (made["observations"], made.get("replaced")) == (["a", "b"], None)
    others = [{**item, "observations": [fact]} for item, fact in zip(twice, "bc", strict=True)]
    (again,) = client("create_entities", entities=others)["entities"]
    assert (again["observations"], again["replaced"]) == (["b", "c"], 1)


@pytest.mark.parametrize("if_exists", ["replace", "merge"])
def test_of_two_types_in_a_request_the_first_counts_and_that_is_told(
    client: Client, if_exists: str
) -> None:
    twice = [{"name": "Jon", "entityType": kind} for kind in ("person", "robot")]
    for _ in range(2):
        made = client("create_entities", entities=twice, ifExists=if_exists)
        assert made["notice"] == (
            "'Jon' stands more than once in this request: its first type, 'person', counts, not 'robot'. "
            "rename_entity with newType changes a type."
        )
        assert made["entities"][0]["entityType"] == "person"


@pytest.mark.parametrize("if_exists", ["replace", "merge"])
def test_an_entity_that_is_written_to_by_a_former_name_is_told_with_its_name_of_now(
    client: Client, if_exists: str
) -> None:
    client("create_entities", entities=[JON])
    client("rename_entity", name="Jon", newName="Jonathan")
    made = client("create_entities", entities=[{**JON, "observations": ["x1"]}], ifExists=if_exists)
    assert made["notice"] == (
        "'Jon' is a former name of 'Jonathan': its facts were added to it, nothing was replaced."
    )
    assert made["entities"][0]["observations"] == [*JON["observations"], "x1"]
    both = [JON, {**JON, "name": "Jonathan"}]
    assert "notice" not in client("create_entities", entities=both, ifExists=if_exists)


@pytest.mark.parametrize("between", ["\x00", "\x1b", "\x7f", "\x85", "\ud800", " \x08 "])
@pytest.mark.parametrize("tool", ["search_nodes", "search_memories", "memory_search", "recall"])
def test_what_no_text_may_hold_separates_words_in_a_query(
    client: Client, tool: str, between: str
) -> None:
    client("create_entities", entities=[{"name": "Jon Bell", "entityType": "person"}])
    client("store_memory", content="the phone of Jon Bell is broken")
    found = client(tool, query=f"Jon{between}Bell")
    assert any(found.get(key) for key in ("entities", "memories", "results"))


def test_a_query_over_stdio_may_hold_control_characters(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        server("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
        found = server("search_nodes", query="\x00\x1b Jon \x7f")["entities"]
        assert [each["name"] for each in found] == ["Jon"]
        assert server("search_nodes", query="\x00")["entities"] == []
        with pytest.raises(Refused, match="contains the control character"):
            server("open_nodes", names=["\x00"])
