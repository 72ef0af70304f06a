"""The incremental index equals a rebuilt one, and both equal the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, groupby
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.documents import NEVER, Born, Change, Died, Document, Kind, Scope
from projections.passages import passages
from projections.vectors.index import Vectors
from projections.vectors.projector import VectorHit, VectorProjector
from tests.vectors_by_hash import ROUNDING, batch, cosines, embed, nearest, opened, query

KINDS: tuple[Kind, ...] = ("entity", "observation", "memory")


class Life:
    """A document's life as the definition sees it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.vectors = embed(document.passages)
        self.died = NEVER


LABELS = ("type:note", "tag:x", "tag:y")
LONG, LONGER = "tea in Austin. " * 60, "rain on a banker. " * 120
steps = st.lists(
    st.tuples(
        st.integers(0, 11),  # which ref
        st.sampled_from(["tea", "rain", "Jon", "a banker", "Austin", LONG, LONGER]),
        st.sampled_from(KINDS),
        st.sets(st.sampled_from(LABELS)),
        st.integers(0, 2),  # positions since the change before
        st.sampled_from(["change", "rename"]),
    ),
    max_size=60,
)


def history(drawn: Sequence[tuple[int, str, Kind, set[str], int, str]]) -> list[Change]:
    position, living, changes = 1, set[str](), list[Change]()
    for number, text, kind, labels, gap, step in drawn:
        position += gap
        ref = f"ref_{number:02}"
        was_living = ref in living
        if was_living:
            living.remove(ref)
            changes.append(Died(ref, position))
        if not was_living or step == "rename":
            living.add(ref)
            entity = f"ent_{number % 3}"
            changes.append(Born(Document(kind, ref, entity, text, tuple(sorted(labels)), position)))
    return changes


def lives_of(changes: Sequence[Change]) -> list[Life]:
    lives: list[Life] = []
    for change in changes:
        if isinstance(change, Born):
            lives.append(Life(change.document))
            continue
        last = [life for life in lives if life.document.ref == change.ref][-1]
        last.died = change.position
    return lives


def expected(
    lives: Sequence[Life], vector: Vectors, at: int, chosen: Callable[[Document], bool]
) -> list[VectorHit]:
    hits = [
        VectorHit(
            life.document.ref,
            life.document.kind,
            life.document.entity,
            float(np.clip((life.vectors * vector).sum(axis=1), -1, 1).max()),
        )
        for life in lives
        if life.document.born <= at < life.died and chosen(life.document)
    ]
    return sorted(hits, key=lambda hit: -hit.cosine)  # of equals the older one


@settings(max_examples=60)
@given(
    drawn=steps,
    cuts=st.lists(st.sampled_from(["no", "no", "apply", "save"]), min_size=1),
    text=st.sampled_from(["tea", "Jon", "unseen", *passages(LONG), passages(LONGER)[2]]),
    kinds=st.none() | st.frozensets(st.sampled_from(KINDS)),
    labels=st.frozensets(st.sampled_from(LABELS), max_size=2),
    since=st.integers(0, 6),
    but=st.frozensets(st.sampled_from(["ent_1", "ref_01", "ref_02"]), max_size=2),
    limit=st.integers(0, 15),
)
def test_an_incremental_index_equals_a_rebuilt_one_and_the_definition_at_every_position(
    drawn: Sequence[tuple[int, str, Kind, set[str], int, str]],
    cuts: Sequence[str],
    text: str,
    kinds: frozenset[Kind] | None,
    labels: frozenset[str],
    since: int,
    but: frozenset[str],
    limit: int,
) -> None:
    changes, vector = history(drawn), query(text)
    head = changes[-1].position if changes else 1

    def chosen(document: Document) -> bool:
        if kinds is not None and document.kind not in kinds:
            return False
        if not but.isdisjoint((document.entity, document.ref)):
            return False
        return labels <= set(document.labels) and document.born > since

    def hits(projector: VectorProjector, at: int | None) -> list[VectorHit]:
        scope = Scope(at, kinds, tuple(labels), since, but)
        return nearest(projector, vector, scope, limit=limit)

    with TemporaryDirectory() as folder:
        kept = Path(folder, "incremental")
        incremental = opened(kept)
        waiting: list[Change] = []
        for (position, at_once), cut in zip(
            groupby(changes, key=attrgetter("position")), cycle(cuts), strict=False
        ):
            waiting += at_once
            if cut == "no":
                continue
            incremental.apply(batch(position, *waiting))
            waiting = []
            if cut == "save":
                incremental.save()
                incremental = opened(kept)
            assert incremental.position == position
            assert hits(incremental, None) == hits(incremental, position)
        incremental.apply(batch(head, *waiting))
        rebuilt = opened(Path(folder, "rebuilt"))
        rebuilt.apply(batch(head, *changes))
        assert incremental.position == rebuilt.position == head

        lives = lives_of(changes)
        for at in (None, *range(head + 2)):
            truth = expected(lives, vector, head if at is None else at, chosen)
            found = hits(incremental, at)
            assert found == hits(rebuilt, at)
            assert [hit.ref for hit in found] == [hit.ref for hit in truth[:limit]]
            near = {hit.ref: pytest.approx(hit.cosine, abs=ROUNDING) for hit in truth}
            assert all(hit.cosine == near[hit.ref] for hit in found)
            assert cosines(incremental, vector, list(near), at) == near
