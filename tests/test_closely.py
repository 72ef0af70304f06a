"""Looking closely at what was found: with vectors, without some, without any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.documents import Document
from projections.search import questions
from projections.search import searcher as search
from projections.search.candidates import Candidates
from projections.search.closely import ordered
from projections.search.ranking import LENT_SHARE, Features, scores, shown
from projections.text.analysis import name_words
from projections.things import TextHit
from projections.vectors.rows import Rows
from tests.idle_follower import Idle
from tests.service import Client, client_on

TOLD = {
    "one": ["Which festival did you go to last summer?", "Glastonbury, it rained all week"],
    "two": ["I sold the old piano", "Someone from Leeds took it"],
}


def tell(client: Client) -> None:
    names = ("Ann", "Bob")
    client("create_entities", entities=[{"name": name, "entityType": "person"} for name in names])
    for thread, texts in TOLD.items():
        for name, text in zip(names, texts, strict=True):
            observations = [{"entityName": name, "contents": [text]}]
            client("add_observations", observations=observations, threadId=thread)


def found(client: Client, query: str, at: int | None = None) -> list[str]:
    """The facts, best first."""
    opened = client.service.open("default")
    hits = opened.searcher.search(query, at=at, kinds=frozenset({"observation"})).hits
    with opened.project.read(at) as state:
        rows = [state.observation(hit.ref) for hit in hits]
    return [row.content for row in rows if row is not None]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path, embedder="minilm") as opened:
        tell(opened)
        yield opened


def test_an_answer_without_a_word_of_the_question_comes_with_what_it_answers(
    client: Client,
) -> None:
    assert TOLD["one"][1] in found(client, "festival")[:2]
    assert TOLD["two"][1] in found(client, "who has the piano now?")[:2]


def test_what_asks_stands_behind_what_tells(client: Client) -> None:
    for text in ("Is the cellar damp?", "The cellar is damp."):
        client("add_observations", observations=[{"entityName": "Ann", "contents": [text]}])
    assert found(client, "damp cellar")[0] == "The cellar is damp."


def test_facts_of_whom_the_question_names_come_first(client: Client) -> None:
    for name in ("Ann", "Bob"):
        observations = [{"entityName": name, "contents": ["wrote a letter to the other one"]}]
        client("add_observations", observations=observations)
    opened = client.service.open("default")
    hits = opened.searcher.search(
        "what letter did Bob write?", kinds=frozenset({"observation"})
    ).hits
    with opened.project.read() as state:
        bob = state.entity_id_of("Bob")
    assert hits[0].entity == bob


def test_the_past_is_searched_as_it_was(client: Client) -> None:
    before = client.service.open("default").project.head()
    was = found(client, "festival")
    client(
        "delete_observations",
        deletions=[{"entityName": "Bob", "observations": [TOLD["one"][1]]}],
    )
    assert TOLD["one"][1] not in found(client, "festival")
    assert found(client, "festival", at=before) == was


def test_what_is_not_embedded_yet_is_found_by_words_and_the_answer_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        monkeypatch.setattr(client.service, "_follower", Idle())
        tell(client)
        opened = client.service.open("default")
        opened.projections.caught_up("vectors")
        monkeypatch.setitem(questions.PATIENCE_SECONDS, "hybrid", 0.0)
        observations = [{"entityName": "Ann", "contents": ["bought a kayak", "bought a canoe"]}]
        client("add_observations", observations=observations)
        answer = opened.searcher.search("who bought a kayak?")
        assert answer.notice is not None and answer.notice.startswith("The newest 2 events")
        assert found(client, "who bought a kayak?")[0] == "bought a kayak"
        opened.projections.caught_up("vectors")
        assert opened.searcher.search("who bought a kayak?").notice is None


def test_what_has_all_the_words_stands_first_before_it_is_embedded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was embedded and has half of them was looked at closely, and it was not."""
    with client_on(tmp_path, embedder="minilm") as client:
        monkeypatch.setattr(client.service, "_follower", Idle())
        named = [f"Vola {name}" for name in ("Bisit", "Cat", "Minos", "Zer")]
        named += [f"{name} Gena" for name in ("Dibun", "Pepis", "Beso", "Hain")]
        client("create_entities", entities=[{"name": n, "entityType": "place"} for n in named])
        opened = client.service.open("default")
        opened.projections.caught_up("vectors")
        monkeypatch.setitem(questions.PATIENCE_SECONDS, "hybrid", 0.0)
        client("create_entities", entities=[{"name": "Vola Gena", "entityType": "place"}])
        answer = client("search_nodes", query="Vola Gena")
        assert answer["notice"].startswith("The newest event is searched by words only")
        assert answer["entities"][0]["name"] == "Vola Gena"


def test_without_the_pieces_a_search_goes_by_the_rest(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="minilm", piece_vectors=False) as client:
        tell(client)
        assert TOLD["one"][1] in found(client, "festival")[:2]
        hits = client.service.open("default").searcher.search("festival").hits
        assert hits and all(hit.late == 0 for hit in hits)
        folders = [path.name for path in tmp_path.rglob("vectors-v*")]
        assert folders and not any("pieces" in name for name in folders)


def test_without_the_pieces_of_texts_a_question_means_what_it_does_with_them(
    tmp_path: Path,
) -> None:
    found_with, found_without = (
        meant(tmp_path / str(kept), piece_vectors=kept) for kept in (True, False)
    )
    assert found_with
    assert found_without == found_with


def meant(folder: Path, *, piece_vectors: bool) -> list[tuple[str, float]]:
    """The facts that are found by meaning alone, and how near they are."""
    with client_on(folder, embedder="minilm", piece_vectors=piece_vectors) as client:
        tell(client)
        opened = client.service.open("default")
        hits = opened.searcher.search(
            "what was there to see at the festival?", mode="semantic"
        ).hits
        with opened.project.read() as state:
            said = [state.observation(hit.ref) for hit in hits]
        return [
            (fact.content, round(hit.cosine, 2))
            for fact, hit in zip(said, hits, strict=True)
            if fact is not None
        ]


def test_a_score_is_at_most_1_and_missing_features_stand_for_nothing_bad() -> None:
    everything = Features(
        bm25=np.array([9, 1], np.float32),
        cosine=np.array([1, 0], np.float32),
        part=np.array([1, 0], np.float32),
        late=np.array([1, 0], np.float32),
        close=np.array([True, True]),
        beside={
            -1: np.array([0, 0]),
            1: np.array([0, 1]),
            -2: np.array([0, 0]),
            2: np.array([0, 0]),
        },
        named=np.array([True, False]),
        asking=np.array([0, 1], np.float32),
    )
    best, worst = scores(everything).tolist()
    assert best == pytest.approx(1, abs=1e-6) and worst < best
    unknown = Features(
        bm25=np.array([9, 9, 1], np.float32),
        cosine=np.array([np.nan, 0.2, 0.9], np.float32),
        part=np.zeros(3, np.float32),
    )
    first, second, third = scores(unknown).tolist()
    assert first > third and first > second


def test_of_what_stands_beside_a_thing_the_best_lends_a_share_and_the_others_nothing() -> None:
    def found(*beside: int) -> float:
        """The score of the first of four, beside which these stand."""
        places = [np.array([at, -1, -1, -1]) for at in (*beside, -1, -1, -1, -1)[:4]]
        features = asked([0.2, 0.9, 0.6, 0.5], [0.2, 0.9, 0.6, 0.5])
        around = dict(zip((-1, 1, -2, 2), places, strict=True))
        return float(scores(msgspec.structs.replace(features, beside=around))[0])

    alone, best = scores(asked([0.2, 0.9, 0.6, 0.5], [0.2, 0.9, 0.6, 0.5]))[:2].tolist()
    assert found() == pytest.approx(alone)
    assert found(1) == pytest.approx(alone + LENT_SHARE * best)
    assert found(2, 3) < found(1) == found(2, 1, 3)


def test_what_is_worth_less_than_nothing_takes_nothing_of_what_stands_beside_it() -> None:
    features = asked([0.9, 0.1], [0.9, 0.1])
    beside = {side: np.array([1, 0]) for side in (-1, 1, -2, 2)}
    asking = np.array([0, 9], np.float32)
    pair = msgspec.structs.replace(features, beside=beside, asking=asking)
    alone = msgspec.structs.replace(features, asking=asking)
    assert scores(pair)[0] == pytest.approx(scores(alone)[0])


def asked(cosine: list[float], late: list[float]) -> Features:
    """Candidates that have the same words of the question, all looked at closely."""
    count = len(cosine)
    column = np.array([cosine, late], np.float32)
    same, close = np.full((2, count), [[2], [0]], np.float32), np.ones(count, bool)
    return Features(bm25=same[0], cosine=column[0], part=same[1], late=column[1], close=close)


def test_what_is_found_alone_scores_about_as_well_as_before_much_that_is_poorer() -> None:
    (alone,) = scores(asked([0.6], [0.8]))
    best, *_ = scores(asked([0.6, 0.1, 0.2], [0.8, 0.1, 0.4]))
    assert 0.75 * best < alone < best
    (poor,) = scores(asked([0.2], [0.3]))
    assert poor < 0.6 * alone


@given(
    st.lists(st.tuples(st.floats(0.1, 1), st.floats(0, 1)), min_size=1, max_size=8),
    st.floats(0.01, 1),
)
def test_candidates_stand_in_one_order_however_close_together_they_lie(
    near: list[tuple[float, float]], shrunk: float
) -> None:
    """Within the least range they differ by what they do, and nobody scores beyond its bounds."""
    cosine, late = (np.array(each) for each in zip(*near, strict=True))
    found = scores(asked(list(cosine * shrunk), list(late * shrunk)))
    assert (found >= -1e-6).all()
    assert (found <= 1).all()
    better = (cosine[:, None] >= cosine) & (late[:, None] >= late)
    assert (found[:, None] >= found - 1e-6)[better].all()


def test_a_score_is_told_as_it_is_where_it_says_more_than_the_cosine() -> None:
    ordered = np.array([0.5, 0.2, 0.01, -0.05, -0.1], np.float32)
    told = shown(ordered, np.array([0.4, 0.0, 0.9, 0.5, 0.7])).tolist()
    assert told[:2] == pytest.approx([0.5, 0.2])
    assert told[2] > told[3] == told[4] > 0


def test_vectors_of_an_older_version_are_removed(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        tell(client)
        assert found(client, "festival")
        older = client.service.open("default").project.folder / "vectors-v1-all-minilm"
        older.mkdir()
    with client_on(tmp_path, embedder="minilm") as client:
        assert found(client, "festival")
        assert not older.exists()


@settings(max_examples=200)
@given(
    worded=st.dictionaries(st.integers(0, 20), st.floats(0.125, 30, width=32)),
    parts=st.dictionaries(st.integers(0, 20), st.floats(0.125, 1, width=32)),
)
def test_without_meaning_the_order_is_that_of_the_columns(
    worded: dict[int, float], parts: dict[int, float]
) -> None:
    def hits(scores: dict[int, float]) -> list[TextHit]:
        found = [TextHit(f"obs_{n:02}", "observation", "ent", s) for n, s in scores.items()]
        return sorted(found, key=lambda hit: (-hit.score, hit.ref))

    candidates = Candidates()
    candidates.add_worded(hits(worded))
    candidates.add_parts(hits(parts))
    columns = search._hits(candidates, ordered(candidates))

    quick = search._hits_by_words(search._Worded(hits(worded), hits(parts), deeper=False))

    assert {hit.ref: hit.bm25 for hit in quick} == {hit.ref: hit.bm25 for hit in columns}
    assert {hit.ref: hit.part for hit in quick} == {hit.ref: hit.part for hit in columns}
    scored = {hit.ref: hit.score for hit in columns}
    assert all(hit.score == pytest.approx(scored[hit.ref], abs=1e-6) for hit in quick)
    assert [hit.score for hit in quick] == sorted((hit.score for hit in quick), reverse=True)


PEOPLE = ("Jon Harper", "Gina Lopez", "Duke of Venn")
MACHINES = ("db-prod-1", "db-prod-2")


def shares(query: str, names: tuple[str, ...]) -> dict[str, float]:
    """How much of each name counts for a query, of those of which anything does."""
    table = Rows()
    for born, name in enumerate(names, 1):
        table.add(Document("entity", name, name, name, (), born, (name,)))
    counting = table.named(np.arange(len(table)), name_words(query), None).tolist()
    return {name: share for name, share in zip(names, counting, strict=True) if share}


@pytest.mark.parametrize(
    ("query", "counting"),
    [
        ("what does jon like", {"Jon Harper": 1.0}),
        ("jon harper and gina", {"Jon Harper": 1.0, "Gina Lopez": 0.5}),
        ("what does the lord of venn ride", {"Duke of Venn": 1.0}),
        ("who is of it", {}),
        ("the disk of db-prod-2", {"db-prod-2": 1.0}),
        ("disks of db", {"db-prod-1": 1.0, "db-prod-2": 1.0}),
    ],
)
def test_a_part_of_a_name_counts_where_no_other_has_it_in_full(
    query: str, counting: dict[str, float]
) -> None:
    assert shares(query, (*PEOPLE, *MACHINES)) == counting


def test_who_is_asked_for_by_a_first_name_comes_before_those_who_are_not(tmp_path: Path) -> None:
    facts = {
        "Jon Harper": "Has porridge in the morning",
        "Gina Lopez": "Eats toast for breakfast",
        "Ada Brandt": "Breakfast is what she skips",
    }
    with client_on(tmp_path, embedder="minilm") as opened:
        entities = [
            {"name": name, "entityType": "person", "observations": [fact]}
            for name, fact in facts.items()
        ]
        opened("create_entities", entities=entities)
        assert found(opened, "What does Jon eat for breakfast?")[0] == facts["Jon Harper"]
