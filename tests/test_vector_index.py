from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.vectors.codes import ERRORS, LEVELS, Codes, Steps
from projections.vectors.columns import Ids
from projections.vectors.index import DEVIATIONS, STEPS_MAX, VectorIndex, Vectors, accepted
from projections.vectors.rows import Selection

ROWS = 15_000
DIMENSIONS = 384
QUERIES = 100

ROUNDING = DEVIATIONS / STEPS_MAX / (12 * DIMENSIONS) ** 0.5
"""The standard deviation of what rounding to a byte adds to a cosine."""


def clustered(count: int, seed: int, dimensions: int = DIMENSIONS) -> Vectors:
    """Unit vectors around 200 centres that every seed shares, as texts gather around topics."""
    centres = np.random.default_rng(0).normal(size=(200, dimensions))
    drawn = np.random.default_rng(seed)
    vectors = centres[drawn.integers(0, 200, count)] + 0.5 * drawn.normal(size=(count, dimensions))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return accepted(vectors, count, dimensions)


def alike(share: float) -> Callable[[int, int, int], Vectors]:
    """As `clustered`, but that of each vector `share`, squared, is the same in all."""

    def vectors(count: int, seed: int, dimensions: int) -> Vectors:
        common = np.random.default_rng(4).normal(size=dimensions)
        common /= np.linalg.norm(common)
        mixed = share**0.5 * common + (1 - share) ** 0.5 * clustered(count, seed, dimensions)
        return accepted(mixed / np.linalg.norm(mixed, axis=1, keepdims=True), count, dimensions)

    return vectors


def everything(count: int) -> Selection:
    return Selection(np.ones(count, np.bool_))


def best(index: VectorIndex, query: Vectors, selection: Selection, limit: int) -> list[int]:
    rows, _ = index.nearest(index.asked(query), selection, limit)
    return [int(row) for row in rows]


def recall(
    index: VectorIndex,
    selection: Selection,
    limit: int,
    drawn: Callable[[int, int, int], Vectors] = clustered,
) -> float:
    """The part of what is nearest in the selection, as it is stored, that the index finds, over all queries."""
    hits = 0
    for query in drawn(QUERIES, 2, index.dimensions):
        cosines = index.cosines(index.asked(query), selection.rows)
        truth = selection.rows[np.argsort(-cosines)[:limit]]
        hits += len(set(best(index, query, selection, limit)) & set(truth.tolist()))
    return hits / (limit * QUERIES)


def filled(vectors: Vectors) -> VectorIndex:
    index = VectorIndex(vectors.shape[1])
    index.add(vectors)
    return index


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return clustered(ROWS, seed=1)


@pytest.fixture(scope="module")
def index(vectors: Vectors) -> VectorIndex:
    return filled(vectors)


@pytest.mark.parametrize("retired_share", [0.0, 0.2, 0.95])
def test_what_lives_is_found_however_much_has_died(
    index: VectorIndex, retired_share: float
) -> None:
    selection = Selection(np.random.default_rng(3).random(ROWS) >= retired_share)

    assert recall(index, selection, limit=10) >= 0.98


@pytest.mark.parametrize(
    ("dimensions", "least"),
    [(17, 0.96), (127, 0.98), (128, 0.98), (383, 0.98), (386, 0.88), (1_536, 0.88)],
)
def test_vectors_of_any_length_are_found(dimensions: int, least: float) -> None:
    """From few numbers, each of which has more bits in the codes, to many; what does not fill its last code, too."""
    index = filled(clustered(4_000, 1, dimensions))

    assert recall(index, everything(4_000), limit=10) >= 0.98
    assert recall(index, everything(4_000), limit=50) >= least


@pytest.mark.parametrize(
    ("dimensions", "share", "least"),
    [(64, 0.95, 0.998), (128, 0.8, 0.97), (384, 0.5, 0.87)],
)
def test_the_direction_that_all_vectors_share_counts_as_far_as_codes_can_tell_of_it(
    dimensions: int, share: float, least: float
) -> None:
    """0.997, 0.956 and 0.845 where it counts nothing, 0.995, 0.907 and 0.850 where it counts whole."""
    index = filled(alike(share)(4_000, 1, dimensions))

    assert recall(index, everything(4_000), 50, alike(share)) >= least


def test_first_rows_that_are_all_alike_do_no_harm(vectors: Vectors) -> None:
    index = filled(np.concatenate([np.tile(vectors[0], (300, 1)), vectors[:4_000]]))

    assert recall(index, everything(4_300), limit=10) >= 0.98
    assert recall(index, everything(4_300), limit=50) >= 0.88


def test_the_rest_of_a_long_list_is_found_too(index: VectorIndex) -> None:
    assert recall(index, everything(ROWS), limit=100) >= 0.95


def test_rows_that_are_not_selected_are_never_found(index: VectorIndex, vectors: Vectors) -> None:
    selection = Selection(np.arange(ROWS) % 5 != 0)

    found = [best(index, query, selection, 50) for query in vectors[:300:5]]

    assert all(len(rows) == 50 for rows in found)
    assert all(row % 5 for rows in found for row in rows)


def test_many_equal_vectors_do_not_hide_the_others() -> None:
    """Of the equal ones alone so many would be proposed as are compared, where their code is a little too good."""
    drawn = np.random.default_rng(6).normal(size=(QUERIES + 4_000, DIMENSIONS))
    vectors = accepted(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), *drawn.shape)
    reached = []
    for query in vectors[4_000:]:
        among = vectors[:4_000].copy()
        among[2_100:3_600] = among[np.argsort(-(among @ query))[40]]
        index = filled(among)
        tenth = np.sort(index.cosines(index.asked(query), np.arange(4_000)))[-10]
        found = best(index, query, everything(4_000), 10)
        reached.append(index.cosines(index.asked(query), np.array(found)) >= tenth)
    assert np.mean(reached) >= 0.95  # 0.72 where no more are compared


def test_of_few_rows_nothing_is_missed_but_what_ties_in_a_byte_a_number(vectors: Vectors) -> None:
    index = filled(vectors[:600])

    for query in clustered(QUERIES, seed=2):
        truth = np.sort(vectors[:600] @ query)[-100]
        found = vectors[best(index, query, everything(600), 100)] @ query
        assert found.min() >= truth - 6 * ROUNDING


def test_a_cosine_is_as_right_as_a_byte_a_number_can_be(
    index: VectorIndex, vectors: Vectors
) -> None:
    query = clustered(1, seed=2)[0]

    errors = index.cosines(index.asked(query), np.arange(ROWS)) - vectors @ query

    assert 0.5 * ROUNDING < errors.std() < 1.2 * ROUNDING
    assert abs(errors.mean()) < 0.1 * ROUNDING


@pytest.mark.parametrize("bits", LEVELS)
def test_the_levels_are_those_that_lose_least_of_a_normal_distribution(bits: int) -> None:
    """Lloyd's conditions: a level is the mean of what is nearest to it."""
    levels = np.array([*(-np.array(LEVELS[bits][::-1])), *LEVELS[bits]])
    drawn = np.random.default_rng(7).normal(size=1_000_000)
    nearest = np.abs(drawn[:, np.newaxis] - levels).argmin(axis=1)

    means = np.bincount(nearest, weights=drawn) / np.bincount(nearest)

    assert len(levels) == 2**bits
    assert np.abs(means - levels).max() < 0.02
    assert np.square(drawn - levels[nearest]).mean() == pytest.approx(ERRORS[bits], rel=0.01)


def large_in_one(drawn: np.random.Generator) -> NDArray[Any]:
    vectors = drawn.normal(scale=384**-0.5, size=(2_000, 384))
    vectors[:, 7] = -2
    return vectors


def mostly_empty(drawn: np.random.Generator) -> NDArray[Any]:
    vectors = np.zeros((2_000, 384))
    for vector in vectors:
        vector[drawn.choice(384, 5, replace=False)] = drawn.normal(size=5)
    return vectors


@pytest.mark.parametrize("kind", [large_in_one, mostly_empty])
def test_vectors_of_odd_embedders_are_kept_and_found_as_well_as_others(
    kind: Callable[[np.random.Generator], NDArray[Any]],
) -> None:
    """Some have a dimension that holds more than half of each vector's length, some leave most empty."""
    vectors = kind(np.random.default_rng(5))
    vectors = accepted(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2_000, 384)
    index = VectorIndex(384)
    index.add(vectors)

    missed = 0
    for query in vectors[:100]:
        stored = index.cosines(index.asked(query), np.arange(2_000))
        assert np.abs(stored - vectors @ query).max() < 0.004
        nearest = {int(row) for row in np.argsort(-stored)[:10] if stored[row] > 0.25}
        missed += len(nearest.difference(best(index, query, everything(2_000), 60)))
    assert missed <= 80  # of 1,000; 170 where the errors along what all have in common count


def test_a_step_does_not_depend_on_which_vector_came_first(vectors: Vectors) -> None:
    there, back = VectorIndex(DIMENSIONS), VectorIndex(DIMENSIONS)
    there.add(vectors[:50])
    back.add(vectors[49::-1])

    query = clustered(1, seed=2)[0]
    forth = there.cosines(there.asked(query), np.arange(50)).tolist()
    assert forth == back.cosines(back.asked(query), np.arange(49, -1, -1)).tolist()


@pytest.mark.parametrize("stored_after", [0, 1, 2, 3])
def test_the_index_depends_on_the_rows_alone(vectors: Vectors, stored_after: int) -> None:
    """Whatever batches they came in, and stored and loaded once on the way."""
    whole, parts = filled(vectors[:3_000]), VectorIndex(DIMENSIONS)
    for batch, (start, end) in enumerate(pairwise([0, 900, 1_600, 1_601, 2_500, 3_000])):
        parts.add(vectors[start:end])
        if batch == stored_after:
            numbers, codes = parts.numbers_bytes(parts.count), parts.codes_bytes()
            parts = VectorIndex.restored(DIMENSIONS, numbers, codes)

    assert whole.codes_bytes() == parts.codes_bytes() != b""
    assert whole.numbers_bytes(3_000) == parts.numbers_bytes(3_000)


def test_codes_that_cannot_be_read_or_are_of_other_rows_are_made_anew(vectors: Vectors) -> None:
    whole = filled(vectors[:2_500])
    others = (filled(vectors[:1_000]), filled(clustered(2_500, 1, 64)))

    for codes in (b"no codes at all", *(other.codes_bytes() for other in others), b""):
        index = VectorIndex.restored(DIMENSIONS, whole.numbers_bytes(2_500), codes)
        assert index.codes_bytes() == whole.codes_bytes()


def test_an_addition_that_failed_is_made_good_by_the_next(
    vectors: Vectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Codes.add

    def exhausted(codes: Codes, rows: Steps) -> None:
        add(codes, rows[:100])
        raise MemoryError

    index = filled(vectors[:400])
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(Codes, "add", exhausted)
        index.add(vectors[400:700])
    assert index.count == 400
    assert best(index, vectors[7], everything(400), 1) == [7]
    assert best(index, vectors[450], everything(400), 1)[0] < 400
    index.add(vectors[400:500])

    assert index.numbers_bytes(500) == filled(vectors[:500]).numbers_bytes(500)
    assert index.codes_bytes() == filled(vectors[:500]).codes_bytes()


def test_a_cosine_does_not_depend_on_what_is_asked_with_it(
    index: VectorIndex, vectors: Vectors
) -> None:
    query = clustered(1, seed=2)[0]
    rows: Ids = np.random.default_rng(4).permutation(ROWS)[:257]

    together = index.cosines(index.asked(query), rows)

    alone = [float(index.cosines(index.asked(query), rows[n : n + 1])[0]) for n in range(len(rows))]
    assert together.tolist() == alone


def test_vectors_survive_the_snapshot_bit_for_bit(vectors: Vectors) -> None:
    index = filled(vectors[:100])

    loaded = VectorIndex.restored(DIMENSIONS, index.numbers_bytes(100), index.codes_bytes())

    query, rows = clustered(1, seed=2)[0], np.arange(100)
    assert (
        loaded.cosines(loaded.asked(query), rows).tolist()
        == index.cosines(index.asked(query), rows).tolist()
    )


def test_bytes_that_are_no_vectors_are_refused() -> None:
    for count in (31, 70):
        with pytest.raises(ValueError, match=f"{count} bytes are no vectors of 32"):
            VectorIndex.restored(32, bytes(count), b"")


def test_the_vector_zero_is_near_to_nothing_and_hides_nothing(vectors: Vectors) -> None:
    nothing = np.zeros((1_000, DIMENSIONS), np.float32)
    index = filled(nothing)
    _, cosines = index.nearest(index.asked(vectors[0]), everything(1_000), 3)
    assert not cosines.any()
    index.add(vectors[:2])
    read = VectorIndex.restored(DIMENSIONS, index.numbers_bytes(1_002), b"")
    for each in (index, read):
        assert best(each, vectors[1], everything(1_002), 1) == [1_001]
        rows, cosines = each.nearest(each.asked(nothing[0]), everything(1_002), 1_002)
        assert len(rows) == 1_002 and not cosines.any()
