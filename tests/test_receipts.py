"""After something was erased a command id that was used is known, and nothing tells what it was used for."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from memlog.commands import AnyCommand
from memlog.context import Context
from memlog.copies.backup import back_up
from memlog.copies.taking_in import restore
from memlog.errors import Conflict
from memlog.projects.project import LOG_FILE, Origin
from memlog.projects.purging import Target
from memlog.projects.store import Store
from tests.test_purging import create

ERASED_US = 1_795_000_000_000_000
JON = create("Jon", "was a banker")
GINA = create("Gina", "runs a shop")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Gina and Jon were written under ids of the client's, then Jon was purged."""
    opened = Store(tmp_path / "data", clock=lambda: ERASED_US)
    opened.create("one")
    send(opened, "id-jon", JON)
    send(opened, "id-gina", GINA)
    opened.purge("one", Target(("Jon",)))
    yield opened
    opened.close()


def send(store: Store, command_id: str, command: AnyCommand) -> str:
    project = store.project("one")
    return project.execute(command, Context(), lambda _: f"told {command_id}", Origin(command_id))


def assert_known(store: Store, command_id: str, command: AnyCommand) -> None:
    head, digest = store.project("one").head(), store.project("one").digest()
    with pytest.raises(Conflict) as refused:
        send(store, command_id, command)
    assert refused.value.message == (
        f"Command id {command_id!r} was used before 2026-11-18T11:06:40.000000Z, when something was "
        "erased from this project for good, or lost; what was answered then is not kept"
    )
    assert refused.value.suggestion
    assert "fresh command id" in refused.value.suggestion
    assert (store.project("one").head(), store.project("one").digest()) == (head, digest)


def test_a_retry_after_a_purge_is_told_so_and_writes_nothing(store: Store) -> None:
    assert_known(store, "id-jon", JON)
    assert_known(store, "id-gina", GINA)


def test_nor_does_another_command_under_an_id_that_was_used(store: Store) -> None:
    assert_known(store, "id-gina", create("Mia"))


def test_a_fresh_id_is_taken_and_its_retry_answered_as_ever(store: Store) -> None:
    assert send(store, "again", JON) == "told again"
    head = store.project("one").head()
    assert send(store, "again", JON) == "told again"
    assert store.project("one").head() == head


def test_no_digest_of_a_command_is_left_by_which_a_guess_could_be_proved(store: Store) -> None:
    send(store, "since then", create("Mia"))
    file = (store.project("one").folder / LOG_FILE).read_bytes()
    digests = [
        sha256(type(each).__name__.encode() + msgspec.msgpack.encode(each)).digest()
        for each in (JON, GINA, create("Mia"))
    ]
    assert [digest in file for digest in digests] == [False, False, True]
    assert b"id-jon" not in file and b"told id-gina" not in file and b"told since then" in file


def test_a_second_purge_leaves_since_when_an_answer_is_gone(tmp_path: Path) -> None:
    now = [ERASED_US]
    store = Store(tmp_path / "data", clock=lambda: now[0])
    store.create("one")
    send(store, "id-jon", JON)
    send(store, "id-gina", GINA)
    store.purge("one", Target(("Jon",)))
    now[0] += 1_000_000
    store.purge("one", Target(("Gina",)))
    assert_known(store, "id-jon", JON)
    store.close()


def test_a_project_that_comes_back_from_a_backup_knows_the_ids_of_before_the_purge(
    store: Store, tmp_path: Path
) -> None:
    send(store, "since then", create("Mia"))
    back_up(store, tmp_path / "backup")
    there = Store(tmp_path / "other", clock=lambda: ERASED_US)
    restore(there, tmp_path / "backup")
    assert_known(there, "id-jon", JON)
    assert send(there, "since then", create("Mia")) == "told since then"
    there.close()


@pytest.fixture
def copied_before(tmp_path: Path) -> Iterator[Store]:
    """One whose backup was made before Jon was purged."""
    opened = Store(tmp_path / "data", clock=lambda: ERASED_US)
    opened.create("one")
    send(opened, "id-jon", JON)
    back_up(opened, tmp_path / "backup")
    opened.purge("one", Target(("Jon",)))
    yield opened
    opened.close()


def test_a_backup_of_before_the_purge_knows_them_once_it_was_taken_further(
    copied_before: Store, tmp_path: Path
) -> None:
    back_up(copied_before, tmp_path / "backup")
    there = Store(tmp_path / "other", clock=lambda: ERASED_US)
    restore(there, tmp_path / "backup")
    assert_known(there, "id-jon", JON)
    there.close()


def test_restoring_a_backup_of_before_the_purge_changes_nothing_of_it(
    copied_before: Store, tmp_path: Path
) -> None:
    (restored,) = restore(copied_before, tmp_path / "backup", replace=True)
    assert restored.how == "already there"
    assert_known(copied_before, "id-jon", JON)
