"""Which stored facts are offered as outdated, measured on pairs of sentences with the real model.

`pairs.json` was written for this: 40 updates or contradictions, 24 paraphrases, 30 pairs of one field
that are true side by side, 30 that have nothing in common. Sentences of different topics make more
pairs that should not be offered. What is asserted here is what `docs/guide.md` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from memlog.settings import Settings
from projections.embeddings import Embeddings
from projections.vectors.index import Vectors
from tests.embedder_by_hash import ByHash
from tests.service import client_on

PAIRS = json.loads((Path(__file__).parent / "pairs.json").read_text())
GUIDE = Path(__file__).parents[1] / "docs" / "guide.md"
CHOICES = (0.40, 0.45, 0.50, 0.55, 0.60)
CHOSEN = Settings(data_dir=Path()).similar_min
LABELS = ("update", "paraphrase", "related", "unrelated")

OF_PROCESSORS = 0.01
"""As far apart as the model's eight bits may put a cosine on two kinds of processors; up to 0.005 was seen."""


class Cosines(NamedTuple):
    by_label: dict[str, list[float]]
    other_topics: list[float]

    def offered(self, label: str, least: float) -> int:
        return sum(cosine >= least for cosine in self.by_label[label])


@pytest.fixture(scope="module")
def cosines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cosines]:
    embeddings = Embeddings(Settings(data_dir=tmp_path_factory.mktemp("pairs")))
    embedder = embeddings.get()
    vectors = {
        text: embedder.query_vector(text) for pair in PAIRS for text in (pair["a"], pair["b"])
    }

    def cosine(one: str, other: str) -> float:
        return float(vectors[one] @ vectors[other])

    by_label: dict[str, list[float]] = {label: [] for label in LABELS}
    for pair in PAIRS:
        by_label[pair["label"]].append(cosine(pair["a"], pair["b"]))
    topics = {pair[side]: pair["topic"] for pair in PAIRS if pair["topic"] for side in ("a", "b")}
    apart = [
        cosine(one, other) for one, other in combinations(topics, 2) if topics[one] != topics[other]
    ]
    yield Cosines(by_label, apart)
    embeddings.close()


def counted(found: Cosines, least: float) -> list[int]:
    return [
        *(found.offered(label, least) for label in LABELS),
        sum(cosine >= least for cosine in found.other_topics),
    ]


def row(found: Cosines, least: float) -> list[str]:
    """The cells of a line of the table in the guide."""
    *counts, apart = counted(found, least)
    wanted = counts[0] + counts[1]
    recall = wanted / len(found.by_label["update"] + found.by_label["paraphrase"])
    shares = [f"{wanted / sum(counts):.0%}", f"{recall:.0%}"]
    return [f"{least:.2f}", *map(str, counts), str(apart), *shares]


def test_there_are_pairs_enough_of_each_kind(cosines: Cosines) -> None:
    counts = {label: len(found) for label, found in cosines.by_label.items()}
    assert counts == {"update": 40, "paraphrase": 24, "related": 30, "unrelated": 30}
    assert len(cosines.other_topics) > 10_000


def test_what_was_replaced_or_said_before_is_mostly_offered(cosines: Cosines) -> None:
    assert cosines.offered("update", CHOSEN) >= 32
    assert cosines.offered("paraphrase", CHOSEN) == 24


def test_what_is_true_beside_the_new_fact_is_rarely_offered(cosines: Cosines) -> None:
    assert cosines.offered("related", CHOSEN) <= 4


def test_what_has_nothing_to_do_with_the_new_fact_is_not_offered(cosines: Cosines) -> None:
    assert cosines.offered("unrelated", CHOSEN) == 0
    apart = sum(cosine >= CHOSEN for cosine in cosines.other_topics)
    assert apart / len(cosines.other_topics) < 0.001


def test_the_table_in_the_guide_is_what_was_measured(cosines: Cosines) -> None:
    """But for pairs so near a limit that the kind of processor decides."""
    guide = GUIDE.read_text()
    for least in CHOICES:
        measured = row(cosines, least)
        (line,) = (line for line in guide.splitlines() if line.startswith(f"| {measured[0]} | "))
        told = line.strip("| ").split(" | ")
        fewest, most = (counted(cosines, least + by) for by in (OF_PROCESSORS, -OF_PROCESSORS))
        for few, said, many in zip(fewest, told[1:6], most, strict=True):
            assert few <= int(said) <= many, line
        for share, said in zip(measured[6:], told[6:], strict=True):
            assert abs(int(share[:-1]) - int(said[:-1])) <= 2, line
    assert f"{len(cosines.other_topics):,}" in guide
    assert f"{CHOSEN:.2f}" in guide


def test_what_the_tool_offers_is_what_the_cosines_say(tmp_path: Path) -> None:
    """The best first, and the call in `action_required` names it."""
    told = ["User lives in Seattle", "User's home is a flat in Seattle", "User has a dog named Rex"]
    with client_on(tmp_path, embedder="minilm") as client:
        ids = {text: client("store_memory", content=text)["created"]["id"] for text in told}
        answer = client("store_memory", content="User moved from Seattle to Austin")
    offered = [each["content"] for each in answer["similar"]]
    assert set(offered) == set(told[:2])
    scores = [each["relevance_score"] for each in answer["similar"]]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= CHOSEN
    assert answer["action_required"].startswith(f'Call supersede_memory("{ids[offered[0]]}", ')


def test_facts_that_the_model_cannot_read_are_not_alike(tmp_path: Path) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        client("store_memory", content="喜欢喝茶")
        answer = client("store_memory", content="สวัสดี")
        assert (answer["similar"], answer["action_required"]) == ([], None)


MINUTES = (
    "Weekly meeting of the platform team, room 4. Present were Maria, Jon, Ada and Karl, as always."
)
MATTERS = [
    "The budget for spring was agreed and the printer on the second floor is replaced.",
    "The rent goes up by four percent next year, and Jon writes to the landlord.",
    "The summer party is on a boat, so everybody should bring a jacket.",
    "Customers want their invoices as files, which takes two days of work.",
    "Boxes in the cellar are moved upstairs, and the archive is closed.",
    "Two interns begin in September and need desks, accounts and mentors.",
    "The database moved to the new cluster, and latency fell by a third.",
    "Rex, a small dog, was adopted from a shelter and comes along on Tuesdays.",
    "Ada found the bug in the scheduler, a race between two queues.",
    "Backups were restored as a test, for three hours instead of one.",
    "Support of the old protocol ends in March, as was announced.",
    "Karl presents the results at a conference in Lisbon.",
]


def test_a_long_fact_is_offered_where_most_of_it_is_told_again_and_not_where_a_part_is(
    tmp_path: Path,
) -> None:
    monday, tuesday = ([MINUTES, *MATTERS[start : start + 6] * 2] for start in (0, 6))
    with client_on(tmp_path, embedder="minilm") as client:

        def offered(sentences: Sequence[str]) -> list[str]:
            answer = client("store_memory", content=" ".join(sentences))
            return [each["content"] for each in answer["similar"]]

        assert offered(monday) == []
        assert offered(tuesday) == [], "they only begin alike"
        assert offered([MATTERS[7]]) == [], "one of many sentences"
        assert offered([*tuesday[:-1], "Karl has a cold."]) == [" ".join(tuesday)]


def test_what_is_stored_is_embedded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To find what is like it, and to be found by meaning itself."""
    embedded: list[str] = []

    class Counted(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            embedded.extend(texts)
            return super().embed(texts)

    monkeypatch.setattr("projections.embeddings.open_embedder", lambda spec: Counted())
    told = ["User lives in Seattle", "User has a dog named Rex"]
    with client_on(tmp_path, embedder="minilm") as client:
        for text in told:
            client("store_memory", content=text)
        client.session.open(None)[1].projections.vectors()
    assert [text for text in embedded if text in told] == told
