from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from memlog.errors import EmbeddingError, StorageError
from projections.documents import Born, Died, Document, Kind, Scope, Written
from projections.vectors.index import VectorIndex, Vectors
from projections.vectors.projector import VectorProjector
from projections.vectors.talks import Talks
from tests.vectors_by_hash import (
    DIMENSIONS,
    ROUNDING,
    batch,
    cosines,
    document,
    embed,
    found,
    nearest,
    numbered,
    opened,
    query,
)

# -- what a search finds


def test_a_document_is_found_by_its_own_text_with_cosine_one(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(
        batch(
            2,
            Born(document("obs_1", "tea", 1, entity="ent_7")),
            Born(document("mem_1", "rain", 2, kind="memory", entity="")),
        )
    )

    [hit] = nearest(projector, query("tea"), limit=1)

    assert (hit.ref, hit.kind, hit.entity) == ("obs_1", "observation", "ent_7")
    assert hit.cosine == pytest.approx(1.0, abs=ROUNDING)
    assert projector.position == 2


def test_a_dead_document_is_found_only_at_positions_where_it_lived(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(3, Born(document("obs_1", "tea", 3))))
    assert found(projector, "tea") == ["obs_1"]
    projector.apply(batch(7, Died("obs_1", 7)))
    projector.apply(batch(9))

    assert [found(projector, "tea", at=at) for at in (2, 3, 6, 7)] == [[], ["obs_1"], ["obs_1"], []]
    assert found(projector, "tea") == []


def test_what_was_asked_at_a_position_is_looked_for_anew_after_a_change(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(3, Born(document("obs_1", "tea", 3))))
    for _ in range(2):
        assert (found(projector, "tea", at=9), found(projector, "tea")) == (["obs_1"], ["obs_1"])
    projector.apply(batch(5, Born(document("obs_2", "tea", 5))))
    assert found(projector, "tea", at=9) == ["obs_1", "obs_2"]
    projector.apply(batch(7, Died("obs_1", 7)))
    assert (found(projector, "tea", at=9), found(projector, "tea")) == (["obs_2"], ["obs_2"])
    assert [found(projector, "tea", at=at) for at in range(40)][2:8] == [
        [],
        ["obs_1"],
        ["obs_1"],
        ["obs_1", "obs_2"],
        ["obs_1", "obs_2"],
        ["obs_2"],
    ]


def test_each_life_of_a_ref_is_found_in_its_own_time(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(1, Born(document("ent_1", "Jon (person)", 1))))
    projector.apply(batch(5, Died("ent_1", 5), Born(document("ent_1", "John (person)", 5))))

    then = nearest(projector, query("Jon (person)"), Scope(4), limit=5)
    now = nearest(projector, query("Jon (person)"), limit=5)

    assert [hit.ref for hit in then] == [hit.ref for hit in now] == ["ent_1"]
    assert then[0].cosine == pytest.approx(1.0, abs=ROUNDING)
    assert now[0].cosine < 0.9
    assert cosines(projector, query("Jon (person)"), ["ent_1"], 4) == {"ent_1": then[0].cosine}
    assert cosines(projector, query("Jon (person)"), ["ent_1"]) == {"ent_1": now[0].cosine}


def test_a_birth_ends_the_life_that_was_not_ended(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(1, Born(document("ent_1", "old", 1))))
    projector.apply(batch(2, Born(document("ent_1", "new", 2))))

    assert len(nearest(projector, query("old"), limit=5)) == 1


def test_labels_must_all_be_borne_and_kinds_are_alternatives(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(
        batch(
            4,
            Born(document("mem_1", "a", 1, kind="memory", labels=("type:note", "tag:x"))),
            Born(document("mem_2", "b", 2, kind="memory", labels=("type:note",))),
            Born(document("obs_1", "c", 3, labels=("tag:x", "tag:y"))),
            Born(document("ent_1", "d", 4, kind="entity")),
        )
    )

    def refs(kinds: frozenset[Kind] | None, *labels: str) -> set[str]:
        hits = nearest(projector, query("a"), Scope(kinds=kinds, labels=labels), limit=9)
        return {hit.ref for hit in hits}

    assert refs(None, "type:note") == {"mem_1", "mem_2"}
    assert refs(None, "tag:x", "type:note") == {"mem_1"}
    assert refs(None, "tag:unknown", "type:note") == set()
    assert refs(frozenset({"memory", "entity"})) == {"mem_1", "mem_2", "ent_1"}
    assert refs(frozenset({"observation"}), "tag:x") == {"obs_1"}
    assert refs(frozenset()) == set()


def test_equal_texts_come_in_the_order_in_which_they_were_born(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    refs = [f"obs_{n}" for n in (5, 2, 9, 1, 7)]
    projector.apply(batch(5, *(Born(document(ref, "same", 1)) for ref in refs)))

    assert found(projector, "same") == refs


def test_a_long_text_is_found_once_by_any_of_its_passages(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    long = document("obs_long", "".join(f"said on day {day}. " for day in range(300)), 1)
    projector.apply(batch(1, Born(long)))
    for first in range(2, 2_000, 100):  # enough of them for short codes
        projector.apply(numbered(first, first + 100))

    for passage in long.passages:
        best, *others = nearest(projector, query(passage), limit=2_500)
        assert best.ref == "obs_long"
        assert best.cosine == pytest.approx(1.0, abs=ROUNDING)
        assert "obs_long" not in {hit.ref for hit in others}
        assert cosines(projector, query(passage), ["obs_long"]) == {"obs_long": best.cosine}

    beside = {hit.ref for hit in others}
    projector.apply(batch(projector.position + 1, Died("obs_long", projector.position + 1)))
    for passage in long.passages:
        assert {hit.ref for hit in nearest(projector, query(passage), limit=2_500)} == beside


def test_texts_are_alike_as_far_as_either_says_what_the_other_does(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    said = ["".join(f"said on day {day}{of}. " for day in range(100)) for of in ("", " of may")]
    long, other = (document(f"obs_{n}", text, 1) for n, text in enumerate(said))
    begins = document("obs_2", long.passages[0], 1)
    projector.apply(batch(1, *map(Born, (long, other, begins))))

    def alike(passages: list[str]) -> dict[str, float]:
        return {hit.ref: hit.cosine for hit in projector.alike(embed(passages), limit=9)}

    def expected(ours: Document, theirs: Document) -> float:
        cosines = embed(ours.passages) @ embed(theirs.passages).T
        return float(min(cosines.max(axis=1).mean(), cosines.max(axis=0).mean()))

    for each in (long, other, begins):
        found = alike(each.passages)
        assert found[each.ref] == pytest.approx(1.0, abs=ROUNDING)
        for ours, theirs in ((each, known) for known in (long, other, begins)):
            assert found[theirs.ref] == pytest.approx(expected(ours, theirs), abs=ROUNDING)
    assert alike(long.passages)["obs_2"] < 0.5
    assert opened(tmp_path / "none").alike(embed(["x"]), limit=9) == []


def test_as_many_documents_come_as_are_wanted_where_all_are_long(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    for number in range(100):
        text = f"of week {number}: " + "nothing of note was told. " * 1_000
        projector.apply(batch(number + 1, Born(document(f"obs_{number}", text, number + 1))))

    assert projector.rows > 60 * 100
    assert len(nearest(projector, query("anything"), limit=60)) == 60


def test_cosines_name_only_the_living(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(2, Born(document("obs_1", "a", 1)), Born(document("obs_2", "b", 2))))
    projector.apply(batch(3, Died("obs_1", 3)))

    assert set(cosines(projector, query("a"), ["obs_1", "obs_2", "obs_none"])) == {"obs_2"}
    assert set(cosines(projector, query("a"), ["obs_1", "obs_2"], at=1)) == {"obs_1"}
    assert cosines(projector, query("a"), []) == {}


def test_a_query_of_other_dimensions_is_refused_in_words(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")

    with pytest.raises(EmbeddingError, match=r"shape \(3,\).*64 dimensions"):
        nearest(projector, np.ones(3, dtype=np.float32), limit=1)


# -- following the log


def test_changes_up_to_the_position_are_skipped(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))

    projector.apply(numbered(2, 6))
    projector.apply(numbered(1, 3))

    assert projector.position == 5
    assert len(nearest(projector, query("x"), limit=99)) == 5


def test_a_death_that_is_read_again_does_not_end_the_next_life(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(batch(2, Born(document("obs_1", "tea", 1)), Died("obs_1", 2)))
    projector.apply(batch(3, Born(document("obs_1", "tea", 3))))

    projector.apply(batch(4, Died("obs_1", 2)))

    assert found(projector, "tea") == ["obs_1"]


def test_when_embedding_fails_nothing_changes(tmp_path: Path) -> None:
    failing: list[bool] = []

    def unsteady(texts: Sequence[str]) -> Vectors:
        if failing:
            raise EmbeddingError("no model")
        return embed(texts)

    projector = VectorProjector(tmp_path / "vectors", unsteady, DIMENSIONS)
    projector.apply(batch(1, Born(document("obs_1", "tea", 1))))
    failing.append(True)
    second = batch(3, Died("obs_1", 2), Born(document("obs_2", "rain", 3)))

    with pytest.raises(EmbeddingError, match="no model"):
        projector.apply(second)

    assert (projector.position, found(projector, "tea")) == (1, ["obs_1"])
    failing.clear()
    projector.apply(second)
    assert (projector.position, found(projector, "tea")) == (3, ["obs_2"])


@pytest.mark.parametrize(
    "wrong", [np.ones((2, 3), np.float32), np.full((1, DIMENSIONS), np.nan, np.float32)]
)
def test_vectors_that_are_none_are_refused_and_nothing_changes(
    tmp_path: Path, wrong: Vectors
) -> None:
    projector = VectorProjector(tmp_path / "vectors", lambda texts: wrong, DIMENSIONS)

    with pytest.raises(EmbeddingError, match="The embedder returned"):
        projector.apply(batch(1, Born(document("obs_1", "tea", 1))))

    assert (projector.position, found(projector, "tea")) == (0, [])


def test_a_batch_is_embedded_in_one_call_and_one_without_births_in_none(tmp_path: Path) -> None:
    calls: list[int] = []

    def counting(texts: Sequence[str]) -> Vectors:
        calls.append(len(texts))
        return embed(texts)

    projector = VectorProjector(tmp_path / "vectors", counting, DIMENSIONS)
    projector.apply(numbered(1, 51))
    projector.apply(batch(51, Died("obs_000001", 51)))

    assert (calls, projector.position) == ([50], 51)


def test_a_batch_that_broke_off_in_the_index_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector, rebuilt = opened(tmp_path / "vectors"), opened(tmp_path / "rebuilt")
    projector.apply(numbered(1, 11))
    monkeypatch.setattr("projections.vectors.projector.ROWS_PER_TURN", 16)
    add, additions = VectorIndex.add, list[int]()

    def exhausted(index: VectorIndex, vectors: Vectors) -> None:
        if additions:
            raise MemoryError
        additions.append(len(vectors))
        add(index, vectors)

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(VectorIndex, "add", exhausted)
        projector.apply(numbered(11, 61))

    assert (additions, projector.position) == ([16], 10)
    assert len(nearest(projector, query("x"), limit=99)) == 10
    projector.apply(numbered(11, 15))
    assert len(nearest(projector, query("x"), limit=99)) == 14
    projector.apply(numbered(15, 61))
    rebuilt.apply(numbered(1, 61))
    assert nearest(projector, query("x"), limit=99) == nearest(rebuilt, query("x"), limit=99)


def test_a_batch_that_broke_off_among_the_rows_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector, rebuilt = opened(tmp_path / "vectors"), opened(tmp_path / "rebuilt")
    projector.apply(numbered(1, 11))
    add, room = Talks.add, iter([True, True, False])

    def exhausted(talks: Talks, previous: int, written: Written | None) -> None:
        if not next(room):
            raise MemoryError
        add(talks, previous, written)

    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(Talks, "add", exhausted)
        projector.apply(numbered(11, 61))

    projector.apply(numbered(projector.position + 1, 61))
    rebuilt.apply(numbered(1, 61))
    assert projector.digest() == rebuilt.digest()
    assert nearest(projector, query("x"), limit=99) == nearest(rebuilt, query("x"), limit=99)


def test_close_keeps_what_was_saved(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))
    projector.save()

    projector.close()

    assert projector.position == 0
    assert opened(tmp_path / "vectors").position == 3


def test_reset_throws_away_what_is_in_memory_and_on_disk(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))
    projector.save()

    projector.reset()

    assert (projector.position, found(projector, "text 1")) == (0, [])
    assert opened(tmp_path / "vectors").position == 0


def test_a_snapshot_that_cannot_be_removed_is_none_after_a_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))
    projector.save()

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refused)
        projector.reset()

        assert opened(tmp_path / "vectors").position == 0
    assert opened(tmp_path / "vectors").position == 0


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No folder can be looked into, until this is undone."""

    def refused(path: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("projections.vectors.snapshot.os.listdir", refused)
        yield patched


def test_a_folder_that_cannot_be_looked_into_keeps_no_text_from_being_found(
    tmp_path: Path, unlisted: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    projector = opened(tmp_path / "vectors")
    projector.refresh()
    projector.apply(numbered(1, 4))

    assert found(projector, "text 1")[0] == "obs_000001"
    assert "vectors cannot be looked for: [Errno 13] Permission denied" in caplog.text


def test_a_reset_is_refused_where_it_is_not_known_what_would_stay(
    tmp_path: Path, unlisted: pytest.MonkeyPatch
) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 4))
    projector.save()

    with pytest.raises(StorageError, match="Permission denied") as caught:
        projector.reset()
    unlisted.undo()
    projector.reset()

    assert (caught.value.suggestion or "").startswith("Give this user")
    assert opened(tmp_path / "vectors").position == 0


# -- threads


def test_a_search_does_not_wait_for_the_embedder(tmp_path: Path) -> None:
    answers: list[list[str]] = []

    def searching(texts: Sequence[str]) -> Vectors:
        if projector.position:
            searcher = threading.Thread(
                target=lambda: answers.append(found(projector, "text 1")), daemon=True
            )
            searcher.start()
            searcher.join(timeout=30)
        return embed(texts)

    projector = VectorProjector(tmp_path / "vectors", searching, DIMENSIONS)
    projector.apply(numbered(1, 4))
    projector.apply(numbered(4, 8))

    assert [set(refs) for refs in answers] == [{"obs_000001", "obs_000002", "obs_000003"}]


def test_rows_are_added_a_few_at_a_time_while_nobody_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector = opened(tmp_path / "vectors")
    add, additions = VectorIndex.add, list[tuple[int, bool]]()

    def watched(index: VectorIndex, vectors: Vectors) -> None:
        additions.append((len(vectors), projector._turns._writing))
        add(index, vectors)

    monkeypatch.setattr(VectorIndex, "add", watched)
    monkeypatch.setattr("projections.vectors.projector.ROWS_PER_TURN", 16)
    projector.apply(numbered(1, 41))

    assert additions == [(16, True), (16, True), (8, True)]


def test_searches_see_whole_batches_while_they_are_applied(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    projector.apply(numbered(1, 101))
    past = nearest(projector, query("text 7"), Scope(100), limit=20)
    begun, finished = threading.Event(), threading.Event()
    wrong: list[object] = []

    def search() -> None:
        while not finished.is_set():
            if nearest(projector, query("text 7"), Scope(100), limit=20) != past:
                wrong.append("the past changed")
            seen = len(nearest(projector, query("text 7"), limit=2_000))
            if seen % 100:
                wrong.append(seen)
            begun.set()

    searchers = [threading.Thread(target=search, daemon=True) for _ in range(3)]
    for searcher in searchers:
        searcher.start()
    assert begun.wait(60)
    for first in range(101, 1_001, 100):
        projector.apply(numbered(first, first + 100))
    finished.set()
    for searcher in searchers:
        searcher.join(timeout=30)

    assert not any(searcher.is_alive() for searcher in searchers)
    assert wrong == []
    assert len(nearest(projector, query("x"), limit=2_000)) == 1_000
