"""Toolset `knowledge` as a client sees it; what `save_memory` asks for is in `test_seeds`."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlog import errors
from memlog.decisions import saving
from server.answering import paths
from server.tools import querying
from tests.service import Client, Refused, client_on

CAFE = "café"
CAFE_APART = unicodedata.normalize("NFD", CAFE)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def test_a_path_is_found_whatever_the_unicode_form_of_names_and_relations(client: Client) -> None:
    leads = {"from": "Jon", "to": CAFE_APART, "relationType": "owns"}
    client("create_relations", relations=[leads])  # before there is any such entity
    client("create_entities", entities=[{"name": CAFE, "entityType": "place"}])
    client("create_entities", entities=[{"name": "Jon", "entityType": "person"}])
    for name in (CAFE, CAFE_APART):
        there = client("find_relation_path", **{"from": "Jon", "to": name})
        back = client("find_relation_path", **{"from": name, "to": "Jon"})
        assert (there["length"], back["length"]) == (1, 1)


def test_an_importance_that_a_relation_that_is_there_does_not_take_is_warned_of(
    client: Client,
) -> None:
    def save(**given: float) -> list[str]:
        works = {"targetEntity": "Acme", "relationType": "works at", **given}
        person = {"name": "Bo", "entityType": "Person", "observations": ["Works at Acme"]}
        saved = client("save_memory", threadId="t", entities=[{**person, "relations": [works]}])
        return list(saved["warnings"])

    client("create_entities", entities=[{"name": "Acme", "entityType": "Company"}])
    assert save(importance=0.1) == save(importance=0.1) == save() == []
    assert save(importance=0.7) == [
        "'Bo works at Acme' exists with importance 0.1, which it keeps; 0.7 was given. "
        "To change it, delete the relation and create it again"
    ]


@pytest.mark.parametrize("at_most", [0, 2, 2_000])
def test_entities_of_a_type_are_the_same_whether_they_are_looked_up_or_gone_through(
    client: Client, monkeypatch: pytest.MonkeyPatch, at_most: int
) -> None:
    monkeypatch.setattr(querying, "LOOKED_UP_MAX", at_most)
    kinds = {"Rex": "Dog", "Tom": "cat", "Fido": "DOG", "Ann": "Person", "Bello": "dog"}
    made = [{"name": name, "entityType": kind} for name, kind in kinds.items()]
    client("create_entities", entities=made)
    before = client.service.open("default").project.head()
    client("rename_entity", name="Tom", newName="Thomas", newType="dog")
    client("delete_entities", entityNames=["Fido"])

    def found(**arguments: Any) -> list[str]:
        return [each["name"] for each in client("query_nodes", **arguments)["entities"]]

    assert found(entityType="dog") == ["Rex", "Thomas", "Bello"]
    assert found(entityType="DOG", asOf=before) == ["Rex", "Fido", "Bello"]
    assert found(entityType="cat") == []
    assert found(entityType="Cat", asOf=before) == ["Tom"]


def hubs(client: Client, *names: str) -> None:
    """Entities of these names, each connected with ten of its own: those of Hub are Hub 0 to Hub 9."""
    spokes = [(name, f"{name} {number}") for name in names for number in range(10)]
    made = [*names, *(end for _, end in spokes), "Apart"]
    client("create_entities", entities=[{"name": each, "entityType": "t"} for each in made])
    edges = [{"from": hub, "to": end, "relationType": "r"} for hub, end in spokes]
    client("create_relations", relations=edges)


def test_a_neighbour_of_a_hub_is_found_however_many_it_has_and_a_search_that_was_cut_says_so(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "VISITED_MAX", 8)
    hubs(client, "Hub", "Far")
    client("create_relations", relations=[{"from": "Hub 9", "to": "Far 9", "relationType": "r"}])
    for end in ("Hub 0", "Hub 9"):
        assert client("find_relation_path", **{"from": "Hub", "to": end})["length"] == 1
        assert client("find_relation_path", **{"from": end, "to": "Hub"})["length"] == 1
    cut = client("find_relation_path", **{"from": "Hub", "to": "Far"})
    assert (cut["found"], cut["path"]) == (False, [])
    assert cut["notice"] == (
        "The search ended after 12 entities, so there may be a path all the same. "
        "Ask for a path to an entity between the two, and for one on from there."
    )
    near = client("find_relation_path", **{"from": "Hub", "to": "Far", "maxDepth": 1})
    assert not near["found"]
    looks = "maxDepth, up to 20, looks further."
    assert near["notice"] == (
        f"No path has 1 relation or fewer; there may be a longer one. {looks}"
    )


def test_a_path_is_looked_for_from_both_ends_so_that_a_hub_between_hides_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hubs(client, "Hub", "Far")
    edges = [("Hub 9", "Far 9"), ("Far", "Hub 0")]
    edges_of = [{"from": a, "to": b, "relationType": "likes"} for a, b in edges]
    client("create_relations", relations=edges_of)
    monkeypatch.setattr(paths, "VISITED_MAX", 20)
    there = client("find_relation_path", **{"from": "Hub 9", "to": "Far"})
    assert there["path"] == [
        {"from": "Hub 9", "relationType": "likes", "to": "Far 9", "direction": "forward"},
        {"from": "Far 9", "relationType": "r", "to": "Far", "direction": "backward"},
    ]
    back = client("find_relation_path", **{"from": "Far", "to": "Hub 9"})
    assert back["path"] == [
        {"from": "Far", "relationType": "r", "to": "Far 9", "direction": "forward"},
        {"from": "Far 9", "relationType": "likes", "to": "Hub 9", "direction": "backward"},
    ]
    monkeypatch.setattr(paths, "VISITED_MAX", 8)
    for ends in ({"from": "Apart", "to": "Hub"}, {"from": "Hub 1", "to": "Apart"}):
        apart = client("find_relation_path", ends)
        assert not apart["found"] and "notice" not in apart


def test_a_path_is_a_shortest_one_whatever_the_graph_and_has_at_most_as_many_relations_as_asked_for(
    client: Client,
) -> None:
    dice = random.Random(7)
    names = [f"n{number}" for number in range(40)]
    client("create_entities", entities=[{"name": each, "entityType": "t"} for each in names])
    edges = {(dice.choice(names), dice.choice(names[:25])) for _ in range(36)}
    made = [{"from": a, "to": b, "relationType": "r"} for a, b in sorted(edges) if a != b]
    client("create_relations", relations=made)
    joined = {(each["from"], each["to"]) for each in made}
    for start, end in (dice.sample(names, 2) for _ in range(200)):
        far, border, seen = 0, {start}, {start}
        while border and end not in seen:
            border = {b for a, b in joined | {(b, a) for a, b in joined} if a in border} - seen
            far, seen = far + 1, seen | border
        ends = {"from": start, "to": end, "maxDepth": 20}
        found = client("find_relation_path", ends)
        assert (found["found"], found["length"]) == ((True, far) if end in seen else (False, 0))
        at = start
        for step in found["path"]:
            edge = (step["from"], step["to"])
            assert (edge if step["direction"] == "forward" else edge[::-1]) in joined
            assert step["from"] == at
            at = step["to"]
        assert at == (end if found["found"] else start)
        if far > 1 and found["found"]:
            short = client("find_relation_path", {**ends, "maxDepth": far - 1})
            assert not short["found"] and "there may be a longer one" in short["notice"]


def test_a_path_leads_through_no_name_that_is_no_entity_at_the_moment_asked_for(
    client: Client,
) -> None:
    client("create_entities", entities=[{"name": each, "entityType": "t"} for each in "AB"])
    edges = [{"from": each, "to": "ghost", "relationType": "r"} for each in "AB"]
    client("create_relations", relations=edges)
    ends = {"from": "A", "to": "B"}
    assert client("find_relation_path", ends)["path"] == []
    before = client.service.open("default").project.head()
    client("create_entities", entities=[{"name": "ghost", "entityType": "t"}])
    assert client("find_relation_path", ends)["length"] == 2
    assert not client("find_relation_path", **ends, asOf=before)["found"]
    client("delete_entities", entityNames=["ghost"])
    assert not client("find_relation_path", ends)["found"]


def test_entities_are_listed_by_type_whatever_its_case_and_unicode_form(client: Client) -> None:
    client("create_entities", entities=[{"name": "Procope", "entityType": CAFE_APART}])
    for kind in (CAFE, CAFE_APART, CAFE.upper()):
        found = client("query_nodes", entityType=kind)["entities"]
        assert [entity["name"] for entity in found] == ["Procope"]


def test_a_type_that_no_entity_has_is_said_to_be_none(client: Client) -> None:
    client("create_entities", entities=[{"name": "Jon", "entityType": "Person"}])
    told = client("query_nodes", entityType="Persn")
    assert told["entities"] == []
    assert told["notice"] == "No entity has the type 'Persn'. Did you mean 'Person'?"
    assert "notice" not in client("query_nodes", entityType="person", minImportance=0.9)
    assert "notice" not in client("query_nodes", minImportance=0.9)


def test_a_least_value_above_the_greatest_is_said_to_let_nothing_fit(client: Client) -> None:
    told = client("query_nodes", minImportance=0.9, maxImportance=0.25)
    assert told["notice"] == "No entity can fit: minImportance 0.9 is above maxImportance 0.25."
    assert "notice" not in client("query_nodes", minConfidence=1, maxConfidence=1)


def test_entities_that_were_listed_whole_have_no_cursor(client: Client) -> None:
    kinds = {"Ann": "Person", "Bob": "Person", "Acme": "Org"}
    entities = [{"name": name, "entityType": kind} for name, kind in kinds.items()]
    client("create_entities", entities=entities)
    first = client("query_nodes", entityType="Person", limit=1)
    last = client("query_nodes", entityType="Person", limit=1, cursor=first["nextCursor"])
    assert [each["name"] for each in last["entities"]] == ["Bob"]
    assert "nextCursor" not in last
    assert "nextCursor" not in client("query_nodes", entityType="Person")


def saved(client: Client, **rating: float) -> tuple[float, float]:
    """The importance and confidence of Ann after she was saved so."""
    relations = [{"targetEntity": "Ann", "relationType": "is"}]
    ann = {"name": "Ann", "entityType": "Person", "observations": ["likes tea"]}
    client("save_memory", threadId="t", entities=[{**ann, "relations": relations, **rating}])
    row = client("query_nodes")["entities"][0]
    return row["importance"], row["confidence"]


def test_what_is_as_long_or_as_short_as_it_may_be_is_saved(client: Client) -> None:
    entity = {
        "name": "n" * 100,
        "entityType": "T" * 50,
        "observations": ["o" * 150, "five.", "Is one. Is two."],
        "relations": [{"targetEntity": "n" * 100, "relationType": "r" * 50}],
    }
    answer = client("save_memory", entities=[entity], threadId="t")
    assert answer["created"] == {"entities": 1, "relations": 1}


def test_saving_again_without_a_rating_leaves_the_one_that_is_there(client: Client) -> None:
    assert saved(client) == (0.5, 1.0)
    assert saved(client, importance=0.9) == (0.9, 1.0)
    assert saved(client, confidence=0.3) == (0.9, 0.3)
    assert saved(client) == (0.9, 0.3)
    assert saved(client, importance=0.5, confidence=1.0) == (0.5, 1.0)


def test_what_is_saved_first_with_a_rating_has_it_and_gives_it_to_its_facts(client: Client) -> None:
    assert saved(client, importance=0.9, confidence=0.3) == (0.9, 0.3)
    (fact,) = client("get_observation_history", entityName="Ann")["history"]
    assert (fact["importance"], fact["confidence"]) == (0.9, 0.3)


def test_every_version_tells_its_thread_also_where_there_was_none(client: Client) -> None:
    jon = {"name": "Jon", "entityType": "person", "observations": ["likes tea"]}
    client("create_entities", entities=[jon])
    added = [{"entityName": "Jon", "contents": ["likes jazz"]}]
    client("add_observations", observations=added, threadId="t")
    history = client("get_observation_history", entityName="Jon")["history"]
    assert [version["agentThreadId"] for version in history] == [None, "t"]


def test_the_versions_of_a_fact_are_told_as_of_any_moment_of_a_merge(client: Client) -> None:
    client("create_entities", entities=[{"name": "A", "entityType": "t", "observations": ["one"]}])
    client("create_entities", entities=[{"name": "B", "entityType": "t"}])
    change = {"entityName": "A", "observation": "one", "newContent": "two"}
    newest = client("update_observation", **change)["id"]
    moved = client.service.open("default").project.head() + 1
    client("merge_entities", names=["A"], into="B")
    for position in (moved, moved + 1):
        answer = client(
            "get_observation_history", entityName="B", observationId=newest, asOf=position
        )
        assert [version["content"] for version in answer["history"]] == ["one", "two"]


def test_an_entity_with_a_new_fact_was_updated_after_the_others(client: Client) -> None:
    names = ("Jon", "Gina")
    create = [{"name": name, "entityType": "person", "observations": ["a fact"]} for name in names]
    made = client("create_entities", entities=create)["entities"]
    client("add_observations", observations=[{"entityName": "Gina", "contents": ["a new one"]}])
    found = client("query_nodes", updatedAfter=made[0]["updatedAt"])["entities"]
    assert [each["name"] for each in found] == ["Gina"]
    assert found[0]["updatedAt"] > made[0]["updatedAt"] == found[0]["createdAt"]


def warned(client: Client, *named: tuple[str, str]) -> list[str]:
    """What saving entities of these names and types is warned of."""
    entities = [
        {
            "name": name,
            "entityType": kind,
            "observations": ["likes tea"],
            "relations": [{"targetEntity": name, "relationType": "is"}],
        }
        for name, kind in named
    ]
    told: list[str] = client("save_memory", threadId="t", entities=entities)["warnings"]
    return told


def test_another_type_for_an_entity_of_the_same_request_is_not_dropped_without_a_word(
    client: Client,
) -> None:
    kept = ["Entity 'Ann' exists with type 'Person', which it keeps"]
    assert warned(client, ("Ann", "Person"), ("Ann", "Robot"), ("Ann", "Person")) == kept
    assert client("open_nodes", names=["Ann"])["entities"][0]["entityType"] == "Person"


def test_the_history_of_a_deleted_entity_names_a_moment_as_of_which_it_is_told(
    client: Client,
) -> None:
    client("create_entities", entities=[{"name": "Jon", "entityType": "x", "observations": ["a"]}])
    client("delete_entities", entityNames=["Jon"])
    with pytest.raises(Refused) as refused:
        client("get_observation_history", entityName="Jon")
    advice = refused.value.error["suggestion"]
    assert advice.endswith(
        'undo {"position": 5} brings it back. Its facts until position 5 are told with "asOf": 4.'
    )
    told = client("get_observation_history", entityName="Jon", asOf=4)["history"]
    assert [row["content"] for row in told] == ["a"]


def test_an_entity_that_is_saved_by_a_former_name_is_told_with_its_name_of_now(
    client: Client,
) -> None:
    assert warned(client, ("Ann", "Person")) == []
    client("rename_entity", name="Ann", newName="Anne")
    assert warned(client, ("Ann", "Person")) == [
        "'Ann' is a former name of 'Anne': its facts were added to it"
    ]
    assert warned(client, ("Anne", "Person")) == []


def test_a_new_entity_that_is_only_written_otherwise_than_another_is_warned_of(
    client: Client,
) -> None:
    known = ("Auth Service", "PostgreSQL", "Zürich", "Release 1-11")
    assert warned(client, *((name, "Service") for name in known)) == []
    for given, meant in zip(
        ("auth-service", "postgresql", "Zurich", "release_1-11"), known, strict=True
    ):
        told = f"Entity '{given}' is nearly called '{meant}': did you mean '{meant}'?"
        assert warned(client, (given, "Service")) == [told]
        assert warned(client, (given, "Service")) == [], "it is there by now"
    for other in ("Auth Services", "PostgreSQL 2", "Release 11-1"):
        assert warned(client, (other, "Service")) == []


def test_a_type_is_said_to_be_stored_only_where_it_is(client: Client) -> None:
    kept = ["Entity 'Ann' exists with type 'Person', which it keeps"]
    stored = ["Entity type 'person' starts with a small letter: stored as 'Person'"]
    assert warned(client, ("Ann", "person")) == stored
    assert warned(client, ("Ann", "person")) == stored
    assert warned(client, ("Ann", "robot")) == kept
    assert warned(client, ("Ann", "Persn")) == kept
    client("create_entities", entities=[{"name": "Bob", "entityType": "person"}])
    assert warned(client, ("Bob", "Person")) == [
        "Entity 'Bob' exists with type 'person', which it keeps"
    ]


def test_a_type_is_never_said_to_be_nearly_one_that_would_not_be_stored_so(client: Client) -> None:
    client("create_entities", entities=[{"name": "R2", "entityType": "robot"}])
    stored = ["Entity type 'robot' starts with a small letter: stored as 'Robot'"]
    assert warned(client, ("C3", "Robot")) == []
    assert warned(client, ("C4", "robot")) == stored


def test_a_type_that_differs_from_one_in_use_by_case_alone_is_nearly_that(client: Client) -> None:
    for given, meant in (("PERSON", "Person"), ("Api", "API")):
        told = f"Entity type '{given}' is nearly '{meant}': did you mean '{meant}'?"
        assert warned(client, ("Ann", given)) == [told]
        client("delete_entities", entityNames=["Ann"])


def test_a_short_type_is_no_misspelling_of_another_word_but_of_its_own_letters(
    client: Client,
) -> None:
    for own in ("Node", "Film", "Mask", "Pool", "Box"):
        assert warned(client, ("Ann", own)) == []
        client("delete_entities", entityNames=["Ann"])
    told = "Entity type 'Taks' is nearly 'Task': did you mean 'Task'?"
    assert warned(client, ("Ann", "Taks")) == [told]


def test_an_entity_that_has_the_very_type_that_is_asked_for_is_not_said_to_keep_it(
    client: Client,
) -> None:
    kinds = {"Bob": "person", "Procope": CAFE.capitalize(), "Flore": CAFE}
    made = [{"name": name, "entityType": kind} for name, kind in kinds.items()]
    client("create_entities", entities=made)
    apart = [("Procope", CAFE_APART.capitalize()), ("Flore", CAFE_APART)]
    assert warned(client, ("Bob", "person"), *apart) == []


def test_a_save_for_a_project_with_half_a_character_in_its_name_is_refused(client: Client) -> None:
    relations = [{"targetEntity": "Ann", "relationType": "is"}]
    ann = {"name": "Ann", "entityType": "Person", "observations": ["likes tea"]}
    with pytest.raises(Refused, match="project: contains a lone surrogate"):
        client(
            "save_memory",
            threadId="t",
            project="\ud800",
            entities=[{**ann, "relations": relations}],
        )


def test_behind_so_many_problems_of_a_save_nothing_more_is_looked_at(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the project's only transaction that writes: all others wait while a million of them are told."""
    looked_at = 0

    def counted(text: str) -> int:
        nonlocal looked_at
        looked_at += 1
        return 1

    monkeypatch.setattr(errors, "COUNTED_MAX", 60)
    monkeypatch.setattr(saving, "sentence_count", counted)
    ann = {"name": "Ann", "entityType": "Person", "observations": ["tea"] * 1_000}
    relations = [{"targetEntity": "Ann", "relationType": "is"}]
    with pytest.raises(Refused, match="at least 60 problems, nothing was done") as refused:
        client("save_memory", threadId="t", entities=[{**ann, "relations": relations}])
    assert looked_at == 60
    assert refused.value.error["problems"][-1]["problem"] == "at least 11 more problems"
