"""What was written down beside what, and what a search makes of it."""

from __future__ import annotations

from pathlib import Path

from projections.documents import Born, Died, Kind, Scope, Written
from projections.vectors.projector import VectorProjector
from tests.vectors_by_hash import batch, document, opened, query

HOUR_US = 3_600_000_000


def said(
    ref: str, position: int, thread: str | None = "one", time_us: int = 0, **more: object
) -> Born:
    return Born(document(ref, f"text {ref}", position, written=Written(time_us, thread), **more))


class Around:
    """What is told of the surroundings of some documents, by their refs."""

    def __init__(
        self,
        projector: VectorProjector,
        *refs: str,
        leading: int = 0,
        at: int | None = None,
        words: frozenset[str] = frozenset(),
        kinds: frozenset[Kind] | None = None,
        labels: tuple[str, ...] = (),
    ) -> None:
        look = projector.look(query("any"), Scope(at, kinds, labels))
        self.found = look.surroundings(look.rows_of(refs), leading=leading, reach=2, words=words)
        self.refs = list(look.described(self.found.rows).refs)


def beside(around: Around, ref: str) -> dict[int, str]:
    place = around.refs.index(ref)
    return {
        distance: around.refs[places[place]]
        for distance, places in around.found.beside.items()
        if places[place] >= 0
    }


def test_neighbours_are_of_one_thread_however_the_threads_mix(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    threads = {"a": "one", "x": "two", "b": "one", "y": "two", "c": "one"}
    changes = [said(ref, at, thread) for at, (ref, thread) in enumerate(threads.items(), 1)]
    projector.apply(batch(5, *changes))
    found = Around(projector, *threads)
    assert beside(found, "b") == {-1: "a", 1: "c"}
    assert beside(found, "a") == {1: "b", 2: "c"}
    assert beside(found, "x") == {1: "y"}


def test_a_pause_of_more_than_an_hour_parts_a_thread(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    times = {"a": 0, "b": HOUR_US, "c": 2 * HOUR_US + 1}
    changes = [said(ref, at, "one", time) for at, (ref, time) in enumerate(times.items(), 1)]
    projector.apply(batch(3, *changes))
    found = Around(projector, *times)
    assert beside(found, "b") == {-1: "a"}
    assert beside(found, "c") == {}


def test_what_stands_beside_the_leading_ones_comes_in_where_the_thread_has_a_name(
    tmp_path: Path,
) -> None:
    projector = opened(tmp_path / "vectors")
    changes = [said(ref, at) for at, ref in enumerate("abc", 1)]
    changes += [said(ref, at, None) for at, ref in enumerate("xyz", 4)]
    projector.apply(batch(6, *changes))
    found = Around(projector, "b", "y", leading=2)
    assert found.refs == ["b", "y", "a", "c"]
    assert found.refs[-found.found.new :] == ["a", "c"]
    assert [found.refs[place] for place in found.found.close] == ["b", "y", "a", "c"]
    assert Around(projector, "b", leading=0).refs == ["b"]


def test_only_what_lives_and_is_of_the_kind_comes_in(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    kinds = {"a": "memory", "b": "observation", "c": "observation"}
    changes = [said(ref, at, kind=kind) for at, (ref, kind) in enumerate(kinds.items(), 1)]
    projector.apply(batch(4, *changes, Died("c", 4)))
    assert Around(projector, "b", leading=1).refs == ["b", "a"]
    assert Around(projector, "b", leading=1, kinds=frozenset({"observation"})).refs == ["b"]
    assert Around(projector, "b", leading=1, labels=("type:fact",)).refs == ["b"]
    assert set(Around(projector, "b", leading=1, at=3).refs) == {"a", "b", "c"}
    assert Around(projector, "a", leading=1, at=1).refs == ["a"]
    assert Around(projector, "c").refs == []


def test_a_thing_that_is_born_again_keeps_its_place(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    renamed = Born(document("a", "new name: text", 4))
    changes = [said(ref, at) for at, ref in enumerate("abc", 1)]
    projector.apply(batch(4, *changes, Died("a", 4), renamed))
    assert beside(Around(projector, "a", "b", "c"), "b") == {-1: "a", 1: "c"}
    assert beside(Around(projector, "a", "b", "c", at=3), "a") == {1: "b", 2: "c"}


def test_neighbours_names_and_questions_outlive_a_snapshot(tmp_path: Path) -> None:
    projector = opened(tmp_path / "vectors")
    asking = Born(document("q", "Ann Lee: who? I do.", 4, names=("A. L. Moor", "Ann Lee")))
    projector.apply(batch(4, said("a", 1), said("x", 2, None), said("b", 3), asking))
    projector.save()
    again = opened(tmp_path / "vectors")
    assert again.position == 4
    again.apply(batch(5, said("c", 5)))
    found = Around(again, *"abcqx", words=frozenset({"lee", "ann", "and"}))
    assert beside(found, "b") == {-1: "a", 1: "c"}
    asked, named = (
        dict(zip(found.refs, found.found.asking, strict=True)),
        found.found.named.tolist(),
    )
    assert [name for name, yes in zip(found.refs, named, strict=True) if yes] == ["q"]
    assert 0.4 < asked["q"] < 0.6 and asked["a"] == 0
    projector.apply(batch(5, said("c", 5)))
    assert projector.digest() == again.digest()
