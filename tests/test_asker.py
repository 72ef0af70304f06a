"""Who asks a question: the user, of whom facts are told in the third person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memlog.settings import Mode
from projections.search.asker import of_the_user
from tests.service import Client, client_on, remembering


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("Who do I work for?", "Who do User work for?"),
        ("What's my job?", "What's User's job?"),
        ("My shoe size", "User's shoe size"),
        ("where am i from", "where am User from"),
        ("what i should buy", "what User should buy"),
        ("I was told", "User was told"),
        ("I've moved (I think); is it for me?", "User've moved (User think); is it for User?"),
        ("I\u2019m Maria\u2019s guest", "User\u2019m Maria\u2019s guest"),
    ],
)
def test_who_asks_is_the_user(asked: str, told: str) -> None:
    assert of_the_user(asked) == told


@pytest.mark.parametrize(
    "query",
    [
        "",
        "Where does the user live?",
        "tell me who maintains the gateway",
        "errors of I/O on my-service, in my.cnf and my_table",
        "World War I",
        "the treaty after King Charles I died",
        "me@example.com",
        "hva gjorde Kari i Oslo",
        "I Bergen regner det",
        "Marta i Piotr",
        "i libri di Marta",
    ],
)
def test_what_only_looks_like_who_asks_stays(query: str) -> None:
    assert of_the_user(query) == query


FACTS = [
    "User grew up in Gdansk",
    "User's laptop is a Framework 13",
    "Dr Bakker is User's general practitioner",
    "User had the appendix removed in 2009",
    "Marta is a nurse at the university hospital",
    "Marta drives a red Toyota Yaris",
    "Piotr works as a carpenter in Toronto",
    "Noor is the best friend of Lena",
    "The boiler was serviced in November",
    "The bins are collected on Monday",
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with remembering(tmp_path_factory.mktemp("user"), FACTS) as opened:
        yield opened


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        ("where am I from originally", FACTS[0]),
        ("which computer do I own?", FACTS[1]),
        ("Who is my GP?", FACTS[2]),
        ("Have I had any surgery?", FACTS[3]),
    ],
)
def test_facts_about_the_user_are_found_by_who_asks(client: Client, query: str, fact: str) -> None:
    found = client("search_memories", query=query)["memories"]
    assert found and found[0]["content"] == fact
    assert fact in client("recall", query=query)["text"]


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
def test_where_no_text_spoke_of_a_user_who_asks_is_nobody(tmp_path: Path, mode: Mode) -> None:
    query = "Have I had any surgery?"
    with client_on(tmp_path, embedder="minilm") as opened:
        opened("create_entities", entities=[_person("Marta", "had her appendix removed")])
        before = opened("search_nodes", query=query, mode=mode)
        position = opened("recall", query="appendix")["position"]
        opened("create_entities", entities=[_person("User", "prefers short answers")])
        assert opened("search_nodes", query=query, mode=mode, asOf=position) == before
        searcher = opened.service.open("default").searcher
        asked, told = (
            {hit.ref: hit.cosine for hit in searcher.search(each, mode=mode).hits}
            for each in (query, "Have User had any surgery?")
        )
    assert asked
    assert asked.items() <= told.items()


def _person(name: str, fact: str) -> dict[str, object]:
    return {"name": name, "entityType": "person", "observations": [fact]}
