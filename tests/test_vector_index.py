from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.vector_index import DEVIATIONS, STEPS_MAX, VectorIndex, Vectors, accepted
from projections.vector_rows import Ids, Selection

ROWS = 15_000
DIMENSIONS = 32
QUERIES = 100

ROUNDING = DEVIATIONS / STEPS_MAX / (12 * DIMENSIONS) ** 0.5
"""The standard deviation of what rounding to a byte adds to a cosine."""


def clustered(count: int, seed: int) -> Vectors:
    """Unit vectors around 200 centres that every seed shares, as texts gather around topics."""
    centres = np.random.default_rng(0).normal(size=(200, DIMENSIONS))
    drawn = np.random.default_rng(seed)
    vectors = centres[drawn.integers(0, 200, count)] + 0.5 * drawn.normal(size=(count, DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return accepted(vectors, count, DIMENSIONS)


def everything(count: int) -> Selection:
    return Selection(np.ones(count, np.bool_))


def best(index: VectorIndex, query: Vectors, selection: Selection, limit: int) -> list[int]:
    rows, cosines = index.nearest(index.asked(query), selection, limit)
    order = np.lexsort((rows, -cosines))[:limit]
    return [int(row) for row in rows[order]]


def recall(index: VectorIndex, selection: Selection, limit: int) -> float:
    """The part of what is nearest in the selection, as it is stored, that the index finds, over all queries."""
    hits = 0
    for query in clustered(QUERIES, seed=2):
        cosines = index.cosines(index.asked(query), selection.rows)
        truth = selection.rows[np.argsort(-cosines)[:limit]]
        hits += len(set(best(index, query, selection, limit)) & set(truth.tolist()))
    return hits / (limit * QUERIES)


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return clustered(ROWS, seed=1)


@pytest.fixture(scope="module")
def graph(vectors: Vectors) -> VectorIndex:
    index = VectorIndex(DIMENSIONS, graph_from_rows=ROWS)
    index.add(vectors)
    return index


def by_graph(index: VectorIndex, selection: Selection) -> bool:
    """Whether the graph is what answers; the tests of its recall would show nothing otherwise."""
    return index._by_graph(clustered(1, seed=2), selection, 52) is not None


@pytest.mark.parametrize(
    ("retired_share", "answered_by_graph"), [(0.0, True), (0.2, True), (0.95, False)]
)
def test_the_graph_finds_what_lives_however_much_has_died(
    graph: VectorIndex, retired_share: float, answered_by_graph: bool
) -> None:
    selection = Selection(np.random.default_rng(3).random(ROWS) >= retired_share)

    assert by_graph(graph, selection) is answered_by_graph
    assert recall(graph, selection, limit=10) >= 0.98


def test_the_graph_takes_more_steps_the_fewer_rows_are_selected(
    graph: VectorIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So few that comparing them is cheaper at this size; at ten times as many it is not."""
    selection = Selection(np.arange(ROWS) % 20 == 0)
    monkeypatch.setattr("projections.vector_index.ROWS_COMPARED_PER_STEP", 0)

    assert by_graph(graph, selection)
    assert recall(graph, selection, limit=10) >= 0.98


def test_the_graph_finds_the_rest_of_a_long_list_too(graph: VectorIndex) -> None:
    assert recall(graph, everything(ROWS), limit=100) >= 0.95


def test_rows_that_are_not_selected_are_never_found(graph: VectorIndex, vectors: Vectors) -> None:
    selection = Selection(np.arange(ROWS) % 5 != 0)

    found = [best(graph, query, selection, 50) for query in vectors[:300:5]]

    assert by_graph(graph, selection)
    assert all(row % 5 for rows in found for row in rows)


def test_many_equal_vectors_do_not_hide_the_others(vectors: Vectors) -> None:
    among = vectors[:6_000].copy()
    among[1_000:4_000] = among[5]
    index = VectorIndex(DIMENSIONS, graph_from_rows=6_000)
    index.add(among)

    reached = []
    for query in clustered(QUERIES, seed=2):
        tenth = np.sort(index.cosines(index.asked(query), np.arange(6_000)))[-10]
        found = best(index, query, everything(6_000), 10)
        reached.append(index.cosines(index.asked(query), np.array(found)) >= tenth)
    assert np.mean(reached) >= 0.95


def test_below_the_threshold_nothing_is_missed_but_what_ties_in_a_byte_a_number(
    vectors: Vectors,
) -> None:
    index = VectorIndex(DIMENSIONS, graph_from_rows=ROWS + 1)
    index.add(vectors)

    for query in clustered(QUERIES, seed=2):
        truth = np.sort(vectors @ query)[-100]
        found = vectors[best(index, query, everything(ROWS), 100)] @ query
        assert found.min() >= truth - 6 * ROUNDING


def test_a_cosine_is_as_right_as_a_byte_a_number_can_be(
    graph: VectorIndex, vectors: Vectors
) -> None:
    query = clustered(1, seed=2)[0]

    errors = graph.cosines(graph.asked(query), np.arange(ROWS)) - vectors @ query

    assert 0.5 * ROUNDING < errors.std() < 1.2 * ROUNDING
    assert abs(errors.mean()) < 0.1 * ROUNDING


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

    for query in vectors[:100]:
        stored = index.cosines(index.asked(query), np.arange(2_000))
        assert np.abs(stored - vectors @ query).max() < 0.004
        sixtieth = np.sort(stored)[-60]
        found = best(index, query, everything(2_000), 60)
        assert stored[found].min() >= sixtieth - 0.002


def test_a_step_does_not_depend_on_which_vector_came_first(vectors: Vectors) -> None:
    there, back = VectorIndex(DIMENSIONS), VectorIndex(DIMENSIONS)
    there.add(vectors[:50])
    back.add(vectors[49::-1])

    query = clustered(1, seed=2)[0]
    forth = there.cosines(there.asked(query), np.arange(50)).tolist()
    assert forth == back.cosines(back.asked(query), np.arange(49, -1, -1)).tolist()


def in_batches(vectors: Vectors, sizes: list[int], stored_after: int) -> VectorIndex:
    """An index of rows that came in batches, stored and loaded once on the way."""
    index = VectorIndex(DIMENSIONS, graph_from_rows=2_000)
    ends = np.cumsum([0, *sizes]).tolist()
    for batch, (start, end) in enumerate(pairwise(ends)):
        index.add(vectors[start:end])
        if batch == stored_after:
            index = VectorIndex.restored(
                DIMENSIONS,
                index.numbers_bytes(index.count),
                index.graph_bytes(),
                graph_from_rows=2_000,
            )
    return index


@pytest.mark.parametrize("stored_after", [0, 1, 2, 3])
def test_the_graph_depends_on_the_rows_alone(vectors: Vectors, stored_after: int) -> None:
    whole = VectorIndex(DIMENSIONS, graph_from_rows=2_000)
    whole.add(vectors[:3_000])

    parts = in_batches(vectors, [900, 700, 1, 899, 500], stored_after)

    assert whole.graph_bytes() == parts.graph_bytes() != b""
    assert whole.numbers_bytes(3_000) == parts.numbers_bytes(3_000)


def test_no_single_addition_pays_for_the_whole_graph(vectors: Vectors) -> None:
    index = VectorIndex(DIMENSIONS, graph_from_rows=1_000)
    index.add(vectors[:500])
    sizes = [len(index.graph_bytes())]
    for start in range(500, 1_000, 100):
        index.add(vectors[start : start + 100])
        sizes.append(len(index.graph_bytes()))

    growth = [after - before for before, after in pairwise(sizes)]
    assert sizes[0] == 0
    assert all(0.15 * sizes[-1] < size < 0.25 * sizes[-1] for size in growth)


def test_a_graph_that_cannot_be_read_or_is_of_other_rows_is_built_anew(vectors: Vectors) -> None:
    whole = VectorIndex(DIMENSIONS, graph_from_rows=2_000)
    whole.add(vectors[:2_500])
    smaller = VectorIndex(DIMENSIONS, graph_from_rows=1_000)
    smaller.add(vectors[:1_000])

    for graph in (b"no graph at all", smaller.graph_bytes(), b""):
        index = VectorIndex.restored(DIMENSIONS, whole.numbers_bytes(2_500), graph, 2_000)
        assert index.graph_bytes() == whole.graph_bytes()


def test_a_threshold_that_has_moved_since_the_snapshot_holds(vectors: Vectors) -> None:
    saved = VectorIndex(DIMENSIONS, graph_from_rows=2_000)
    saved.add(vectors[:3_000])

    for graph_from_rows in (100, 4_000, 10_000):
        fresh = VectorIndex(DIMENSIONS, graph_from_rows)
        fresh.add(vectors[:3_000])
        loaded = VectorIndex.restored(
            DIMENSIONS, saved.numbers_bytes(3_000), saved.graph_bytes(), graph_from_rows
        )
        for index in (fresh, loaded):
            index.add(vectors[3_000:5_000])
        assert loaded.graph_bytes() == fresh.graph_bytes()


def test_a_cosine_does_not_depend_on_what_is_asked_with_it(
    graph: VectorIndex, vectors: Vectors
) -> None:
    query = clustered(1, seed=2)[0]
    rows: Ids = np.random.default_rng(4).permutation(ROWS)[:257]

    together = graph.cosines(graph.asked(query), rows)

    alone = [float(graph.cosines(graph.asked(query), rows[n : n + 1])[0]) for n in range(len(rows))]
    assert together.tolist() == alone


def test_vectors_survive_the_snapshot_bit_for_bit(vectors: Vectors) -> None:
    index = VectorIndex(DIMENSIONS)
    index.add(vectors[:100])

    loaded = VectorIndex.restored(DIMENSIONS, index.numbers_bytes(100), b"")

    query, rows = clustered(1, seed=2)[0], np.arange(100)
    assert (
        loaded.cosines(loaded.asked(query), rows).tolist()
        == index.cosines(index.asked(query), rows).tolist()
    )


def test_bytes_that_are_no_vectors_are_refused() -> None:
    for count in (31, 70):
        with pytest.raises(ValueError, match=f"{count} bytes are no vectors of 32"):
            VectorIndex.restored(DIMENSIONS, bytes(count), b"")


def test_the_vector_zero_is_near_to_nothing_and_hides_nothing(vectors: Vectors) -> None:
    index = VectorIndex(DIMENSIONS, graph_from_rows=ROWS)
    nothing = np.zeros((3, DIMENSIONS), np.float32)
    index.add(nothing)
    _, cosines = index.nearest(index.asked(vectors[0]), everything(3), 3)
    assert not cosines.any()
    index.add(vectors[:2])
    read = VectorIndex.restored(DIMENSIONS, index.numbers_bytes(5), b"", ROWS)
    for each in (index, read):
        assert best(each, vectors[1], everything(5), 1) == [4]
        rows, cosines = each.nearest(each.asked(nothing[0]), everything(5), 5)
        assert len(rows) == 5 and not cosines.any()
