"""The text index on disk: commits, checkpoints, crashes, damage, and that growing equals rebuilding."""

from __future__ import annotations

import fcntl
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import tantivy
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog.commands import (
    CreateEntities,
    CreateProject,
    DeleteEntities,
    DeleteObservations,
    NewEntity,
    ObservationDeletion,
    RenameEntity,
    Undo,
)
from memlog.errors import PutAway, StorageError
from memlog.projects.project import Project
from memlog.rows import Observation
from memlog.state import State
from projections.batches import advance
from projections.documents import Born, Change, Died, Document, Scope, changes
from projections.protocol import Batch
from projections.query import parse
from projections.text import filling as text_filling
from projections.text import projector as text
from projections.text.left_over import META_LOCK, remove_left_over
from projections.text.newest import Newest
from projections.text.projector import TextProjector
from projections.text.rows import Row
from projections.text.schema import BLOCK_BYTES
from projections.things import TextHit
from tests.counted import do
from tests.damaged import garble
from tests.test_mending import made_of, project_of, repaired_before
from tests.texts import texts_of

QUERIES = ["alpha", "beta gamma", "alpha AND NOT beta", '"alpha beta"', "gam*", "NOT alpha"]
PARTS = ["alpha", "a b", "et", "g", "x"]


def born(ref: str, words: str, position: int) -> Born:
    return Born(Document("observation", ref, "ent_x", words, ("type:fact",), position))


def batch(position: int, *changes: Change) -> Batch:
    return Batch(position, changes)


def found(projector: TextProjector, query: str, at: int | None = None) -> list[str]:
    return [hit.ref for hit in texts_of(projector).search(parse(query), Scope(at), limit=50)]


def answers(projector: TextProjector, positions: Sequence[int]) -> list[list[TextHit]]:
    """Everything that a caller can learn from the index."""
    asked: list[list[TextHit]] = []
    for at in (None, *positions):
        asked += [texts_of(projector).search(parse(query), Scope(at), limit=3) for query in QUERIES]
        asked += [texts_of(projector).substring(part, Scope(at), limit=3) for part in PARTS]
    return asked


def copy_of(folder: Path, into: Path) -> Path:
    shutil.copytree(folder, into)
    return into


# -- a projection of the log


def test_a_batch_and_its_checkpoint_are_there_when_the_index_is_opened_again(
    tmp_path: Path,
) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(3, born("d1", "alpha", 2), born("d2", "alpha", 3)))
    projector.close()
    again = TextProjector(tmp_path / "text")
    assert again.position == 3
    assert set(found(again, "alpha")) == {"d1", "d2"}


def test_a_batch_without_changes_still_moves_the_checkpoint(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(7))
    assert projector.position == 7
    assert found(projector, "NOT alpha") == []


def test_a_batch_seen_before_changes_nothing(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    first = batch(2, born("d1", "alpha", 1), Died("d1", 2))
    projector.apply(first)
    projector.apply(batch(3, born("d1", "alpha again", 3)))
    before = answers(projector, [1, 2, 3])
    projector.apply(first)
    assert projector.position == 3
    assert answers(projector, [1, 2, 3]) == before


def test_of_a_batch_that_begins_before_the_checkpoint_only_the_rest_is_applied(
    tmp_path: Path,
) -> None:
    changes: list[Change] = [
        born("d1", "alpha", 1),
        Died("d1", 2),
        born("d1", "alpha beta", 3),
        born("d2", "gamma", 4),
    ]
    whole = TextProjector(tmp_path / "whole")
    whole.apply(batch(4, *changes))
    overlapping = TextProjector(tmp_path / "overlapping")
    overlapping.apply(batch(3, *changes[:3]))
    overlapping.apply(batch(4, *changes[1:]))
    assert answers(overlapping, [1, 2, 3, 4]) == answers(whole, [1, 2, 3, 4])


def test_a_death_where_nothing_lives_changes_nothing(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(2, born("d1", "alpha", 1), Died("nobody", 2)))
    projector.apply(batch(3, Died("d1", 3), Died("d1", 3)))
    assert found(projector, "alpha") == []
    assert found(projector, "alpha", 2) == ["d1"]


def test_a_death_in_another_batch_keeps_the_kind_the_entity_and_the_labels(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    (before,) = texts_of(projector).search(parse("alpha"), Scope(1, labels=("type:fact",)), limit=1)
    projector.apply(batch(2, Died("d1", 2)))
    (after,) = texts_of(projector).search(parse("alpha"), Scope(1, labels=("type:fact",)), limit=1)
    assert before == after


def test_reset_throws_everything_away(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    projector.reset()
    assert projector.position == 0
    assert found(projector, "alpha") == found(projector, "alpha", 1) == []
    projector.apply(batch(1, born("d1", "beta", 1)))
    assert found(projector, "beta") == ["d1"]


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Documents of a few refs that are born and die, some of them several times."""
    living: set[str] = set()
    changes: list[Change] = []
    words = st.lists(st.sampled_from(["alpha", "beta", "gamma", "gamble"]), min_size=1, max_size=6)
    for position in range(1, draw(st.integers(1, 24)) + 1):
        ref = draw(st.sampled_from([f"obs_{number}" for number in range(6)]))
        if ref in living:
            changes.append(Died(ref, position))
            living.discard(ref)
        if ref not in living and draw(st.booleans()):
            changes.append(born(ref, " ".join(draw(words)), position))
            living.add(ref)
    return changes


@given(histories(), st.data())
@settings(max_examples=25)
def test_an_index_that_grew_answers_as_one_rebuilt(
    changes: list[Change], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(1, 24), max_size=12, unique=True).map(sorted))
    positions = data.draw(st.lists(st.integers(1, 24), max_size=3))
    waiting_max = data.draw(st.sampled_from([1, 2, text_filling.WAITING_MAX]))
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(text_filling, "WAITING_MAX", waiting_max),
    ):
        grown, rebuilt = TextProjector(Path(folder, "grown")), TextProjector(Path(folder, "new"))
        after = 0
        for upto in (*cuts, 24):
            within = [change for change in changes if after < place(change) <= upto]
            grown.apply(batch(upto, *within))
            after = upto
        rebuilt.apply(batch(24, *changes))
        assert answers(grown, positions) == answers(rebuilt, positions)
        assert grown.digest() == rebuilt.digest()
        grown.close()
        rebuilt.close()


@given(histories())
@settings(max_examples=25)
def test_a_search_as_of_a_position_is_answered_as_it_was_then(changes: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        projector, then = TextProjector(Path(folder, "text")), {}
        words = "alpha", "gamble", "none"
        for position in range(1, 25):
            within = [change for change in changes if place(change) == position]
            projector.apply(batch(position, *within))
            told = answers(projector, [])
            then[position] = told, [texts_of(projector).rarity(word) for word in words]
        for position, (told, rarities) in then.items():
            assert answers(projector, [position])[len(QUERIES) + len(PARTS) :] == told
            assert [texts_of(projector).rarity(word, position) for word in words] == rarities
        projector.close()


@given(histories(), st.data())
@settings(max_examples=25)
def test_what_is_searched_ahead_of_a_commit_answers_as_what_is_committed(
    changes: list[Change], data: st.DataObject
) -> None:
    steps = data.draw(
        st.lists(
            st.tuples(st.integers(1, 24), st.booleans()), max_size=8, unique_by=lambda at: at[0]
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        ahead, committed = TextProjector(Path(folder, "ahead")), TextProjector(Path(folder, "new"))
        for upto, is_commit in sorted(steps):
            within = batch(upto, *(change for change in changes if place(change) <= upto))
            committed.apply(within)
            if is_commit:
                ahead.apply(within)
            else:
                look_ahead(ahead, upto, changes)
            assert answers(ahead, [upto - 1]) == answers(committed, [upto - 1])
            assert [texts_of(ahead).rarity(word) for word in ("alpha", "none")] == [
                texts_of(committed).rarity(word) for word in ("alpha", "none")
            ]
        ahead.close()
        committed.close()


def look_ahead(projector: TextProjector, head: int, changes: Sequence[Change]) -> None:
    projector.look_ahead(head, lambda after: [c for c in changes if after < place(c) <= head])


def place(change: Change) -> int:
    return change.document.born if isinstance(change, Born) else change.position


# -- how rare a word is


def test_a_word_that_no_text_has_counts_half_of_what_the_rarest_would(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(20, *(born(f"obs_{at}", f"alpha number{at}", at) for at in range(1, 21))))
    everywhere, once, never = (
        texts_of(projector).rarity(word) for word in ("alpha", "number7", "please")
    )
    assert everywhere < never < once
    assert never == pytest.approx(math.log(1 + 20.5 / 0.5) / 2)
    projector.close()


# -- ahead of a commit


def test_what_is_searched_ahead_is_not_on_disk_and_goes_with_a_reset(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    look_ahead(projector, 1, [born("d1", "alpha", 1)])
    assert (found(projector, "alpha"), projector.position) == (["d1"], 0)
    assert TextProjector(tmp_path / "text").position == 0
    projector.reset()
    assert found(projector, "alpha") == []


def test_changes_that_cannot_be_taken_are_not_taken_by_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Newest.add

    def failing(newest: Newest, row: Row, slot: str, died: int) -> None:
        if row.ref == "d4":
            raise MemoryError
        add(newest, row, slot, died)

    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    look_ahead(projector, 2, [born("d2", "alpha", 2)])
    beyond: list[Change] = [Died("d1", 3), born("d3", "alpha", 3), born("d4", "alpha", 4)]
    with monkeypatch.context() as full, pytest.raises(MemoryError):
        full.setattr(Newest, "add", failing)
        look_ahead(projector, 4, beyond)
    assert set(found(projector, "alpha")) == {"d1", "d2"}
    look_ahead(projector, 4, [born("d2", "alpha", 2), born("d4", "alpha", 4)])
    assert set(found(projector, "alpha")) == {"d1", "d2", "d4"}


def test_a_search_ahead_does_not_wait_for_a_batch_that_is_being_applied(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    changes = [born("d1", "alpha", 1), born("d2", "alpha", 2)]
    applying, looked = threading.Event(), threading.Event()

    def slowly() -> Iterator[Change]:
        applying.set()
        assert looked.wait(60)
        yield changes[0]

    follower = threading.Thread(target=projector.apply, args=(Batch(1, slowly()),))
    follower.start()
    assert applying.wait(60)
    look_ahead(projector, 2, changes)
    assert set(found(projector, "alpha")) == {"d1", "d2"}
    looked.set()
    follower.join()
    assert (set(found(projector, "alpha")), projector.position) == ({"d1", "d2"}, 1)


def test_what_another_process_has_committed_meanwhile_is_not_indexed_again(tmp_path: Path) -> None:
    one, other = TextProjector(tmp_path / "text"), TextProjector(tmp_path / "text")
    changes = [born(f"d{at}", "alpha", at) for at in range(1, 5)]
    look_ahead(one, 1, changes)
    other.apply(batch(3, *changes[:3]))
    asked: list[int] = []

    def beyond(after: int) -> list[Born]:
        asked.append(after)
        return changes[after:]

    one.look_ahead(4, beyond)
    assert (asked, one.position) == ([3], 3)
    assert set(found(one, "alpha")) == {"d1", "d2", "d3", "d4"}


# -- several threads and processes


def test_another_projector_of_the_index_sees_what_was_committed_once_it_looks(
    tmp_path: Path,
) -> None:
    one, other = TextProjector(tmp_path / "text"), TextProjector(tmp_path / "text")
    one.apply(batch(1, born("d1", "alpha", 1)))
    assert other.position == 0
    other.refresh()
    assert (other.position, found(other, "alpha")) == (1, ["d1"])


def test_two_projectors_that_take_turns_without_looking_do_not_undo_each_other(
    tmp_path: Path,
) -> None:
    both = TextProjector(tmp_path / "text"), TextProjector(tmp_path / "text")
    for position in range(1, 21):
        both[position % 2].apply(batch(position, born(f"d{position}", "alpha", position)))
        both[(position + 1) % 2].apply(batch(position, born("twice", "alpha", position)))
    both[0].refresh()
    assert set(found(both[0], "alpha")) == {f"d{position}" for position in range(1, 21)}


def test_a_search_runs_on_one_state_while_another_thread_applies(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(2, born("d1", "alpha", 1), born("d2", "alpha", 2)))
    counts: set[int] = set()
    begun, done = threading.Event(), threading.Event()

    def search() -> None:
        while not done.is_set():
            counts.add(len(found(projector, "alpha")))
            begun.set()

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    for position in range(3, 20, 2):  # always two of them, never one and never three
        changes = Died("d1", position), born("d1", f"alpha {position}", position)
        projector.apply(batch(position, *changes))
    done.set()
    for thread in threads:
        thread.join()
    assert counts == {2}


def test_a_writer_elsewhere_that_does_not_let_go_is_an_error_and_not_a_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "WRITER_WAIT_SECONDS", 0.05)
    projector = TextProjector(tmp_path / "text")
    holder = tantivy.Index.open(str(tmp_path / "text")).writer(15_000_000, 1)
    with pytest.raises(StorageError, match="LockBusy"):
        projector.apply(batch(1, born("d1", "alpha", 1)))
    holder.wait_merging_threads()
    projector.apply(batch(1, born("d1", "alpha", 1)))
    assert found(projector, "alpha") == ["d1"]


def test_a_batch_that_fails_leaves_the_state_before_it_and_no_lock(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    unstorable = msgspec.structs.replace(born("d3", "alpha", 3).document, labels=("\ud800",))
    with pytest.raises(StorageError) as raised:
        projector.apply(batch(3, Died("d1", 2), born("d2", "alpha", 2), Born(unstorable)))
    assert (projector.position, found(projector, "alpha")) == (1, ["d1"])
    assert raised.value.suggestion is not None
    assert raised.tb is not None  # it refers to the frames that had the writer
    projector.apply(batch(2, born("d2", "alpha", 2)))
    assert set(found(projector, "alpha")) == {"d1", "d2"}


@pytest.mark.parametrize("back", [True, False])
def test_a_batch_whose_folder_was_moved_is_indexed_once_that_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """As where another process archives the project, and restores it at once."""
    project, elsewhere = tmp_path / "project", tmp_path / "archived"
    projector = TextProjector(project / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    fill, abandon, moves = text_filling.fill, text._abandon, iter([True])

    def moved(*arguments: Any) -> None:
        if next(moves, False):
            project.rename(elsewhere)
        fill(*arguments)

    def moved_back(writer: tantivy.IndexWriter) -> None:
        abandon(writer)
        if back:
            elsewhere.rename(project)

    monkeypatch.setattr(text, "fill", moved)
    monkeypatch.setattr(text, "_abandon", moved_back)
    changes = batch(2, born("d2", "alpha", 2))
    if not back:
        with pytest.raises(PutAway):
            projector.apply(changes)
        elsewhere.rename(project)
    projector.apply(changes)
    assert set(found(projector, "alpha")) == {"d1", "d2"}


def test_a_batch_that_is_begun_again_is_indexed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk is full for a moment, and the log was read by then."""
    project = Project(tmp_path / "prj_1")
    do(project, CreateProject(name="one"))
    do(project, CreateEntities(entities=[NewEntity(name="Ann", entity_type="person")]))
    projector = TextProjector(tmp_path / "text")
    fill, fails = text_filling.fill, iter([True])

    def killed_once(*arguments: Any) -> None:
        fill(*arguments)
        if next(fails, False):
            raise ValueError("An index writer was killed..")

    monkeypatch.setattr(text, "fill", killed_once)
    advance(project, projector, project.head())
    assert projector.position == project.head()
    assert found(projector, "Ann")


APPLY_FOR_EVER = """
import sys
from pathlib import Path
from projections.documents import Born, Died, Document
from projections.protocol import Batch
from projections.text.projector import TextProjector
from projections.text.newest import Newest
from projections.text.rows import Row

projector = TextProjector(Path(sys.argv[1]))
for position in range(projector.position + 1, 10**6):
    ref = f"obs_{position % 5}"
    document = Document("observation", ref, "", f"alpha at {position}", (), position)
    projector.apply(Batch(position, (Died(ref, position), Born(document))))
    print(position, flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_a_state_that_was_committed(tmp_path: Path) -> None:
    folder = tmp_path / "text"
    for commits in (1, 3, 9, 12):
        child = subprocess.Popen(
            [sys.executable, "-c", APPLY_FOR_EVER, str(folder)],
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(commits)][-1]
        child.send_signal(signal.SIGKILL)
        child.stdout.read()
        child.wait()
        child.stdout.close()
        projector = TextProjector(folder)
        position = projector.position
        assert position >= told
        for at in range(1, position + 1):
            texts = {f"obs_{one % 5}" for one in range(max(1, at - 4), at + 1)}
            assert set(found(projector, "alpha", at)) == texts
        assert found(projector, "alpha") == found(projector, "alpha", position)
        projector.close()


# -- damage


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(2, born("d1", "alpha beta", 1), born("d2", "alpha", 2)))
    projector.apply(batch(3, Died("d2", 3)))
    projector.close()
    return tmp_path / "text"


def is_of_the_index(path: Path) -> bool:
    return path.name == "meta.json" or path.suffix not in (".json", ".lock")


def test_an_index_that_lost_a_file_or_part_of_one_is_found_empty_and_can_be_filled(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = [path.name for path in folder.iterdir() if is_of_the_index(path)]
    assert len(files) > 10
    for number, name in enumerate(files):
        for damage in ("lost", "emptied", "halved"):
            copy = copy_of(folder, tmp_path / f"{number}-{damage}")
            path = copy / name
            path.rename(path.with_name("elsewhere")) if damage == "lost" else os.truncate(
                path, path.stat().st_size // 2 if damage == "halved" else 0
            )
            caplog.clear()
            projector = TextProjector(copy)
            assert projector.position == 0, (name, damage)
            assert [(one.name, one.levelno) for one in caplog.records] == [
                ("memlog.text", logging.WARNING)
            ]
            projector.apply(batch(1, born("d1", "alpha", 1)))
            assert found(projector, "alpha") == ["d1"]


def test_an_index_of_another_schema_is_found_empty(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("slot", stored=True)
    tantivy.Index(builder.build(), path=str(tmp_path / "text"))
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    assert (projector.position, found(projector, "alpha")) == (1, ["d1"])


def test_damage_that_shows_only_in_use_is_an_error_with_a_way_out(folder: Path) -> None:
    projector = TextProjector(folder)
    for path in folder.glob("*.idx"):
        garble(path)
    with pytest.raises(StorageError) as raised, projector.asked() as texts:
        for query in QUERIES:
            texts.search(parse(query), limit=5)
    assert "replay --only text" in str(raised.value.suggestion)
    projector.reset()
    projector.apply(batch(1, born("d1", "alpha", 1)))
    assert found(projector, "alpha") == ["d1"]


def test_an_index_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match="Not a directory"):
        TextProjector(tmp_path / "file" / "text")


def test_rows_are_stored_in_small_blocks_without_compression(folder: Path) -> None:
    meta = msgspec.json.decode((folder / "meta.json").read_bytes())
    stored = {"docstore_compression": "none", "docstore_blocksize": BLOCK_BYTES}
    assert meta["index_settings"] == stored


def test_what_a_killed_commit_left_behind_does_not_stand_in_the_way(tmp_path: Path) -> None:
    """The list of deletions of a commit that never came has the name that the next one wants."""
    folder = tmp_path / "index"
    projector = TextProjector(folder)
    projector.apply(batch(1, born("a", "alpha", 1), born("b", "beta", 1)))
    projector.close()
    meta = msgspec.json.decode((folder / "meta.json").read_bytes())
    for segment in meta["segments"]:
        for number in range(meta["opstamp"] + 1, meta["opstamp"] + 20):
            (folder / f"{segment['segment_id'].replace('-', '')}.{number}.del").touch()
    projector = TextProjector(folder)
    projector.apply(batch(2, Died("a", 2)))
    assert found(projector, "alpha OR beta") == ["b"]
    projector.close()


def test_what_fails_before_anything_is_written_keeps_nobody_from_writing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "WRITER_WAIT_SECONDS", 0.0)
    projector = TextProjector(folder)
    in_the_way = folder / f"{'0' * 32}.{2**32}.del"
    in_the_way.mkdir()
    with pytest.raises(StorageError) as kept:  # with all that it went through
        projector.apply(batch(4, born("d3", "alpha", 4)))
    in_the_way.rmdir()
    projector.apply(batch(4, born("d3", "alpha", 4)))
    assert found(projector, "alpha") == ["d3", "d1"]
    assert kept.value.suggestion is not None
    projector.close()


def test_what_a_repair_left_without_its_entity_is_born_once_when_that_is_there_again(
    tmp_path: Path,
) -> None:
    jon = NewEntity(name="Jon", entity_type="person", observations=["dances"])
    deletion = DeleteEntities(entity_names=["Jon"])
    history = made_of(tmp_path, CreateEntities(entities=[jon]), deletion)
    living: list[str] = []
    with project_of(repaired_before(history)) as project:
        do(project, Undo(position=len(history.entries)))
        do(project, deletion)
        do(project, CreateEntities(entities=[jon]))
        with project.snapshot() as (log, state_at):
            for change in changes(log.read(), state_at):
                if isinstance(change, Born):
                    assert change.document.ref not in living
                    living.append(change.document.ref)
                elif change.ref in living:
                    living.remove(change.ref)
    assert len(living) == 2


def test_an_undo_reads_all_facts_of_an_entity_only_where_its_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [f"fact {number}" for number in range(20)]
    deletion = ObservationDeletion(entity_name="Jon", observations=facts[:5])
    read: list[str] = []
    whole = State.observations

    def counted(state: State, entity_id: str) -> list[Observation]:
        read.append(entity_id)
        return whole(state, entity_id)

    project = Project(tmp_path / "prj_1")
    do(project, CreateProject(name="one"))
    jon = NewEntity(name="Jon", entity_type="person", observations=facts)
    do(project, CreateEntities(entities=[jon]))
    do(project, RenameEntity(name="Jon", new_name="John"))
    do(project, DeleteObservations(deletions=[deletion]))
    monkeypatch.setattr(State, "observations", counted)

    def brought() -> list[Change]:
        before = project.head()
        do(project, Undo())
        with project.snapshot() as (log, state_at):
            return [*changes(log.read(before), state_at)]

    assert [each.document.text for each in brought() if isinstance(each, Born)] == [
        f"John: {fact}" for fact in facts[:5]
    ]
    assert not read
    assert len(brought()) == 2 * (1 + len(facts)), "each document ended, and one began for it"
    assert len(read) == 2, "before the undo and after it"
    project.close()


def test_an_index_keeps_no_file_of_processes_that_came_and_went_beside_one_that_stays(
    tmp_path: Path,
) -> None:
    folder, position = tmp_path / "text", count(1)

    def write(projector: TextProjector) -> None:
        at = next(position)
        projector.refresh()
        projector.apply(batch(at, born(f"d{at}", "alpha", at)))

    stays = TextProjector(folder)
    for _ in range(12):
        comes = TextProjector(folder)
        for projector in (comes, stays, comes, stays):
            write(projector)
        comes.close()
    (folder / ".tmpAbCdEf").write_bytes(b"half of a meta.json")
    left = outside_the_commit(folder)
    assert left
    write(stays)
    stays.close()
    assert not left & outside_the_commit(folder)
    assert len(found(stays, "alpha")) == 49


def outside_the_commit(folder: Path) -> set[str]:
    """The files of segments that the last commit has not, and half-written ones."""
    commit = msgspec.json.decode((folder / "meta.json").read_bytes())
    living = {each["segment_id"].replace("-", "") for each in commit["segments"]}
    names = {path.name for path in folder.glob("?" * 32 + ".*")}
    return {name for name in names if name.split(".")[0] not in living} | {
        path.name for path in folder.glob(".tmp*")
    }


def test_files_that_are_left_over_wait_for_who_opens_a_commit(tmp_path: Path) -> None:
    projector = TextProjector(tmp_path / "text")
    projector.apply(batch(1, born("d1", "alpha", 1)))
    left = tmp_path / "text" / f"{'0' * 32}.store"
    left.touch()
    with open(tmp_path / "text" / META_LOCK, "ab") as opening:
        fcntl.flock(opening, fcntl.LOCK_EX)
        remove_left_over(tmp_path / "text")
        assert left.exists()
    remove_left_over(tmp_path / "text")
    assert not left.exists()
    assert found(projector, "alpha") == ["d1"]
    projector.close()


HISTORY = [
    batch(1, *(born(f"m{number}", "beta", 1) for number in range(20))),
    *(batch(at, born(f"a{at}", "alpha", at), born(f"b{at}", "beta", at)) for at in range(2, 9)),
]
"""Each a segment, the first the largest: so many are merged."""


def test_what_dies_first_after_a_killed_merge_is_not_kept_alive_by_the_next(tmp_path: Path) -> None:
    """tantivy counts the first deletion of a writer as one of the commit before, and so of what its merges have."""
    folder, last = unmerged(tmp_path), batch(9, Died("a7", 9), born("a9", "alpha", 9))
    for projector in (TextProjector(folder), rebuilt := TextProjector(tmp_path / "rebuilt")):
        for each in [last] if projector is not rebuilt else [*HISTORY, last]:
            projector.apply(each)
        projector.close()
    merged = TextProjector(folder)
    assert len(commit_of(folder)["segments"]) < len(HISTORY)
    assert sorted(found(merged, "alpha")) == ["a2", "a3", "a4", "a5", "a6", "a8", "a9"]
    assert merged.digest() == rebuilt.digest()
    merged.close()


def unmerged(parent: Path) -> Path:
    """The index of HISTORY as a kill leaves it that comes before the merge. All segments but the last are put aside
    while one more is written, so that there are none to be merged."""
    folder, aside = parent / "unmerged", parent / "aside"
    projector = TextProjector(folder)
    for each in HISTORY[:-1]:
        projector.apply(each)
    projector.close()
    commit = commit_of(folder)
    shutil.copytree(folder, aside)
    last = next(each for each in commit["segments"] if each["deletes"] is None)
    put_commit(folder, commit | {"segments": [last]})
    projector = TextProjector(folder)
    projector.apply(HISTORY[-1])
    projector.close()
    commit["segments"].remove(last)
    shutil.copytree(aside, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.json"))
    newest = commit_of(folder)
    segments = commit["segments"] + newest["segments"]
    assert len(segments) == len(HISTORY)
    put_commit(folder, newest | {"segments": segments})
    return folder


def commit_of(folder: Path) -> Any:
    return msgspec.json.decode((folder / "meta.json").read_bytes())


def put_commit(folder: Path, commit: Any) -> None:
    (folder / "meta.json").write_bytes(msgspec.json.encode(commit))
