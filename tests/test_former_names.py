"""Questions that call an entity by a name that it, or one that it took over, had before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import Client, client_on

FACTS = {
    "Nordwind": ["CEO is Karla Voss", "Founded in 1998", "Employs 120 people"],
    "Brightleaf": ["CEO is Theo Thal", "Founded in 2005", "Employs 900 people"],
    "Ostkraft": ["CEO is Dana Lenz", "Founded in 1961", "Employs 4,000 people"],
}
QUESTIONS = ["Who is the CEO of {}?", "When was {} founded?", "How many people does {} employ?"]
NOW = {"Nordwind": "Apex Analytics", "Brightleaf": "Brightleaf", "Ostkraft": "Harbour Group"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client_on(tmp_path_factory.mktemp("names"), embedder="minilm") as opened:
        made = [{"name": "Harbour Group", "entityType": "firm", "observations": ["Owns a port"]}]
        made += [
            {"name": name, "entityType": "firm", "observations": facts}
            for name, facts in FACTS.items()
        ]
        opened("create_entities", entities=made)
        opened("rename_entity", name="Nordwind", newName="Apex Analytics")
        opened("merge_entities", names=["Ostkraft"], into="Harbour Group")
        yield opened


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize(("number", "question"), [*enumerate(QUESTIONS)])
def test_what_is_asked_by_a_former_name_is_answered_of_the_entity_that_had_it(
    client: Client, name: str, number: int, question: str
) -> None:
    query = question.format(name)
    [found] = client("search_nodes", query=query, limit=1)["entities"]
    assert found["name"] == NOW[name]
    assert f"1. {FACTS[name][number]}" in client("recall", query=query)["text"].split("\n")


def test_what_comes_later_to_an_entity_that_was_renamed_is_asked_for_by_its_name_before(
    client: Client,
) -> None:
    added = [{"entityName": "Apex Analytics", "contents": ["Pays within 30 days"]}]
    added += [{"entityName": "Brightleaf", "contents": ["Pays within 14 days"]}]
    client("add_observations", observations=added)
    told = client("recall", query="How fast does Nordwind pay?")["text"].split("\n")
    assert "1. Pays within 30 days" in told


def test_what_an_entity_said_before_it_took_over_another_is_asked_for_by_the_name_of_that(
    tmp_path: Path,
) -> None:
    firms = [
        "Kestrel",
        "Nordwind",
        "Weststern",
        "Lakeview",
        "Ironclad",
        "Sunfield",
        "Halcyon",
        "Ovation",
    ]
    with client_on(tmp_path, embedder="minilm") as opened:
        made = [
            {"name": name, "entityType": "firm", "observations": [f"Employs {number}00 people"]}
            for number, name in enumerate(firms, 1)
        ]
        made.append({"name": "Ostkraft", "entityType": "firm", "observations": ["Founded in 1961"]})
        opened("create_entities", entities=made)

        def told(**scope: object) -> list[str]:
            query = "How many people does Ostkraft employ?"
            text: str = opened("recall", query=query, **scope)["text"]
            return text.split("\n")

        before = opened("get_history")["events"][0]["position"]
        then = told()
        opened("merge_entities", names=["Ostkraft"], into="Kestrel")
        assert "1. Employs 100 people" in told()
        assert told(asOf=before) == then
