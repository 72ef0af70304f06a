"""Backups: made while servers run, continued, proved, restored; never cut and never mixed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import unicodedata
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from memlog.commands import CreateEntities, NewEntity, StoreMemory
from memlog.context import Context
from memlog.copies.backup import Copy, back_up
from memlog.copies.inventory import NOTE, inventory
from memlog.copies.taking_in import left, restore
from memlog.each import of_project
from memlog.errors import Conflict, InvalidParameter, ProjectExists, ProjectNotFound, StorageError
from memlog.log import Damage
from memlog.projects.project import LOG_FILE, Origin, Project
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.repair.damage import mark
from memlog.storage.environment import Environment
from memlog.storage.filling import BYTES_PER_COMMIT, fill
from tests.command_line import CommandLine, holding_lines, lines_of, written
from tests.served import run_memlog, served
from tests.simulated_faults import Fault, dies


def remember(
    store: Store, name: str, project: str = "default", command_id: str | None = None
) -> None:
    entity = NewEntity(name=name, entity_type="thing", observations=[f"fact of {name}"])
    store.project(project).execute(
        CreateEntities(entities=[entity]), Context(), lambda _: "told", Origin(command_id)
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "data")
    made.create("default")
    remember(made, "Jon", command_id="first")
    return made


def digest(folder: Path, name: str = "default") -> tuple[int, str]:
    store = Store(folder)
    try:
        project = store.project(name)
        assert list(project.verify()) == list(range(1, project.head() + 1))
        assert project.is_as_rebuilt()
        return project.head(), project.digest()
    finally:
        store.close()


def restored(backup: Path, folder: Path) -> Store:
    fresh = Store(folder)
    restore(fresh, backup)
    return fresh


def test_what_is_backed_up_comes_back_to_the_byte(store: Store, tmp_path: Path) -> None:
    store.create("old")
    store.archive("old")
    done = back_up(store, tmp_path / "backup")
    assert {(each.name, each.how) for each in done} == {("default", "whole"), ("old", "whole")}
    there = restored(tmp_path / "backup", tmp_path / "other")
    assert {row.name: row.status for row in there.projects("all")} == {
        "default": "active",
        "old": "archived",
    }
    assert there.project("default").digest() == store.project("default").digest()
    assert there.project("default").head() == store.project("default").head()


def test_a_retry_is_recognised_after_a_restore(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup")
    there = restored(tmp_path / "backup", tmp_path / "other")
    before = there.project("default").head()
    entity = NewEntity(name="Jon", entity_type="thing", observations=["fact of Jon"])
    command = CreateEntities(entities=[entity])
    answer = there.project("default").execute(
        command, Context(), lambda _: "made anew", Origin("first")
    )
    assert (answer, there.project("default").head()) == ("told", before)


def test_the_next_run_adds_what_is_new_and_nothing_else(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup")
    (unchanged,) = back_up(store, tmp_path / "backup")
    assert (unchanged.how, unchanged.added) == ("unchanged", 0)
    remember(store, "Gina", command_id="second")
    (continued,) = back_up(store, tmp_path / "backup")
    assert (continued.how, continued.added) == ("continued", 2)
    there = restored(tmp_path / "backup", tmp_path / "other")
    assert there.project("default").digest() == store.project("default").digest()


def test_a_backup_of_another_history_is_left_alone(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "early")
    remember(store, "Gina")
    back_up(store, tmp_path / "backup")
    behind = restored(tmp_path / "early", tmp_path / "other")
    with pytest.raises(Conflict, match="reaches to position 5; the project ends at 3"):
        back_up(behind, tmp_path / "backup")
    remember(behind, "Mia")
    with pytest.raises(Conflict, match="another history"):
        back_up(behind, tmp_path / "backup")
    again = restored(tmp_path / "backup", tmp_path / "third")
    assert again.project("default").head() == 5


def test_after_a_purge_the_backup_forgets_it_too(store: Store, tmp_path: Path) -> None:
    remember(store, "Gina")
    back_up(store, tmp_path / "backup")
    assert b"fact of Jon" in next((tmp_path / "backup").rglob(LOG_FILE)).read_bytes()
    store.purge("default", Target(("Jon",), ()))
    (anew,) = back_up(store, tmp_path / "backup")
    assert anew.how == "whole"
    assert b"fact of Jon" not in next((tmp_path / "backup").rglob(LOG_FILE)).read_bytes()
    assert {path.name for path in (tmp_path / "backup").iterdir()} == {anew.id, "backup.lock", NOTE}


def test_damage_is_found_and_does_not_reach_the_backup(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup")
    remember(store, "Gina" * 20)
    file = store.project("default").folder / LOG_FILE
    store.close()
    flip(file, b"fact of Gina")
    damaged = Store(tmp_path / "data")
    with pytest.raises(StorageError, match="damaged, it is whole up to position 4"):
        back_up(damaged, tmp_path / "backup")
    there = restored(tmp_path / "backup", tmp_path / "other")
    assert there.project("default").head() == 3


@pytest.mark.parametrize("more", [True, False], ids=["continued", "unchanged"])
def test_a_run_reads_back_what_earlier_ones_copied(
    store: Store, tmp_path: Path, more: bool
) -> None:
    remember(store, "Gina" * 20)
    back_up(store, tmp_path / "backup")
    flip(next((tmp_path / "backup").rglob(LOG_FILE)), b"fact of Gina")
    if more:
        remember(store, "Mia")
    with pytest.raises(StorageError, match="is damaged at position 5"):
        back_up(store, tmp_path / "backup")


def flip(file: Path, text: bytes) -> None:
    data = bytearray(file.read_bytes())
    at = data.find(text)
    while at >= 0:
        data[at] ^= 1
        at = data.find(text)
    file.write_bytes(data)


def test_a_project_is_restored_by_its_name_in_any_unicode_form(
    store: Store, tmp_path: Path
) -> None:
    store.create("café")
    back_up(store, tmp_path / "backup")
    fresh = Store(tmp_path / "other")
    apart = unicodedata.normalize("NFD", "café")
    assert [each.name for each in restore(fresh, tmp_path / "backup", names=[apart])] == ["café"]
    fresh.close()


def test_a_name_that_a_backup_does_not_have_is_told_beside_those_that_it_has(
    three: Store, tmp_path: Path
) -> None:
    there = Store(tmp_path / "other")
    with pytest.raises(ProjectNotFound, match="has no project 'fourth'") as caught:
        restore(there, tmp_path / "backup", names=["second", "fourth"])
    assert "It has default, second, third." in (caught.value.suggestion or "")
    assert [row.name for row in there.projects()] == ["second"]


def test_a_damaged_backup_is_not_restored(store: Store, tmp_path: Path) -> None:
    remember(store, "Gina" * 20)
    back_up(store, tmp_path / "backup")
    flip(next((tmp_path / "backup").rglob(LOG_FILE)), b"fact of Gina")
    with pytest.raises(StorageError, match="is damaged at position 5"):
        restored(tmp_path / "backup", tmp_path / "other")
    assert Store(tmp_path / "third").projects("all") == []


def test_what_is_there_is_replaced_only_when_asked_and_put_aside(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    (same,) = restore(store, tmp_path / "backup")
    assert same.how == "already there"
    remember(store, "Gina")
    (ahead,) = restore(store, tmp_path / "backup")
    assert (ahead.how, store.project("default").head()) == ("already there", 5)
    file = store.project("default").folder / LOG_FILE
    store.close()
    flip(file, b"fact of Jon")
    damaged = Store(tmp_path / "data")
    with pytest.raises(ProjectExists):
        restore(damaged, tmp_path / "backup")
    (replaced,) = restore(damaged, tmp_path / "backup", replace=True)
    assert replaced.how == "replaced"
    assert damaged.project("default").head() == 3
    (aside,) = (tmp_path / "data" / "replaced").iterdir()
    kept = Project(aside)
    assert kept.head() == 5
    kept.close()


def test_wherever_a_replacing_restore_crashes_the_project_is_there_as_it_was_or_as_restored(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    file = store.project("default").folder / LOG_FILE
    store.close()
    flip(file, b"fact of Jon")
    damaged = file.read_bytes()

    def replace() -> None:
        restore(Store(tmp_path / "again"), tmp_path / "backup", replace=True)

    seen = set()
    for at in count():
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.copytree(tmp_path / "data", tmp_path / "again")
        if not dies(replace, Fault("crash", at, "before")):
            break
        there = Store(tmp_path / "again")
        project = there.project("default")
        seen.add((project.folder / LOG_FILE).read_bytes() == damaged)
        assert project.head() == 3
        there.close()
        there = Store(tmp_path / "again")
        restore(there, tmp_path / "backup", replace=True)
        assert list(there.project("default").verify()) == [1, 2, 3]
        asides = list((tmp_path / "again" / "replaced").iterdir())
        assert [(each / LOG_FILE).read_bytes() == damaged for each in asides] == [True]
        there.close()
    assert seen == {True, False}


def test_a_restore_that_fails_half_way_leaves_what_was_there(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(store, tmp_path / "backup")
    remember(store, "Gina")
    file = store.project("default").folder / LOG_FILE
    store.close()
    flip(file, b"fact of Jon")
    there = Store(tmp_path / "data")
    rename = Path.rename

    def failing(path: Path, target: Path) -> Path:
        if path.parent.name == "restoring":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(StorageError, match="Input/output error"):
        restore(there, tmp_path / "backup", replace=True)
    assert there.project("default").head() == 5
    assert not list((tmp_path / "data" / "replaced").iterdir())
    monkeypatch.undo()
    (replaced,) = restore(there, tmp_path / "backup", replace=True)
    assert (replaced.how, there.project("default").head()) == ("replaced", 3)
    there.close()


def test_nobody_writes_into_a_log_that_is_being_replaced(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a turn meanwhile finds another file in its place."""
    back_up(store, tmp_path / "backup")
    file = store.project("default").folder / LOG_FILE
    flip(file, b"fact of Jon")
    rename, looked = Path.rename, []

    def watched(path: Path, target: Path) -> Path:
        moved = rename(path, target)
        if target.parent.name == "replaced":
            with open(target / LOG_FILE) as aside, pytest.raises(BlockingIOError):
                fcntl.flock(aside, fcntl.LOCK_EX | fcntl.LOCK_NB)
            looked.append(target)
        return moved

    monkeypatch.setattr(Path, "rename", watched)
    restore(store, tmp_path / "backup", replace=True)
    assert len(looked) == 1


def test_another_project_of_the_name_is_never_replaced(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup")
    other = Store(tmp_path / "other")
    other.create("default")
    remember(other, "Mia")
    with pytest.raises(ProjectExists):
        restore(other, tmp_path / "backup", replace=True)


def test_a_restore_takes_the_place_of_a_project_that_holds_only_its_creation(
    store: Store, tmp_path: Path
) -> None:
    """A server was started in the new data directory first, and made its usual project."""
    back_up(store, tmp_path / "backup")
    other = Store(tmp_path / "other")
    empty = other.create("default", "made on first use")
    still_open = other.project("default")
    (back,) = restore(other, tmp_path / "backup")
    assert (back.how, back.position) == ("restored", 3)
    assert [row.id for row in other.projects("all")] == [back.id]
    assert not list((tmp_path / "other").rglob(empty.id))
    with pytest.raises(ProjectNotFound):
        still_open.execute(StoreMemory(content="too late"), Context(), lambda _: None)


def test_a_project_that_holds_only_its_creation_for_all_that_can_be_read_is_not_taken_for_empty(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    other = Store(tmp_path / "other")
    row = other.create("default")
    file = other.file(row.id)
    other.close()
    mark(file, [Damage(2, "missing: the log ends before it")])
    again = Store(tmp_path / "other")
    with pytest.raises(ProjectExists):
        restore(again, tmp_path / "backup")
    assert file.exists()


def begun_again(tmp_path: Path) -> tuple[CommandLine, str, str]:
    """Two projects `default`, the first of which was deleted between two runs of a backup; and their ids."""
    memlog = CommandLine(tmp_path / "data")
    ids: list[str] = []
    for name in ("Old", "Current"):
        if ids:
            assert memlog("projects", "delete", "default", "--yes").code == 0
        line = {"type": "entity", "name": name, "entityType": "T"}
        assert memlog("import", written(tmp_path / f"{name}.jsonl", [line])).code == 0
        done = memlog("backup", tmp_path / "backup", "--json")
        ids.append(done.json[0]["id"])
    return memlog, ids[0], ids[1]


def entities(memlog: CommandLine) -> list[str]:
    return [line["name"] for line in lines_of(memlog("export").stdout)]


@pytest.mark.parametrize("noted", ["what the last run found", "nothing, as before it was"])
def test_of_projects_of_one_name_the_one_of_the_last_run_is_restored(
    tmp_path: Path, noted: str
) -> None:
    _, old, _ = begun_again(tmp_path)
    if noted != "what the last run found":
        (tmp_path / "backup" / NOTE).unlink()
    for names in ([], ["default"]):
        other = CommandLine(tmp_path / f"other{len(names)}")
        done = other("restore", tmp_path / "backup", *names)
        assert (done.code, entities(other)) == (0, ["Current"])
        assert (old in done.stdout) == (not names)
    another = CommandLine(tmp_path / "another")
    assert another("restore", tmp_path / "backup", old).code == 0
    assert entities(another) == ["Old"]


def test_the_last_run_decides_and_not_which_project_is_newer(tmp_path: Path) -> None:
    memlog, old, current = begun_again(tmp_path)
    assert memlog("projects", "delete", "default", "--yes").code == 0
    assert memlog("restore", tmp_path / "backup", old).code == 0
    assert memlog("backup", tmp_path / "backup").code == 0
    other = CommandLine(tmp_path / "other")
    told = other("restore", tmp_path / "backup", "--json")
    assert ([each["id"] for each in told.json], entities(other)) == ([old], ["Old"])
    assert f"`memlog restore {tmp_path / 'backup'} {current}` brings it back" in told.stderr


def test_what_was_deleted_is_kept_in_the_backup_and_told_by_each_run(tmp_path: Path) -> None:
    memlog, old, _ = begun_again(tmp_path)
    told = memlog("backup", tmp_path / "backup").stdout
    assert f"2 projects are in {tmp_path / 'backup'}.\nNot here any more, but kept" in told
    assert f"  default: `memlog restore {tmp_path / 'backup'} {old}` brings it back" in told


def test_a_run_over_an_empty_data_directory_leaves_what_the_one_before_noted(
    tmp_path: Path,
) -> None:
    memlog, _, current = begun_again(tmp_path)
    assert memlog("projects", "delete", "default", "--yes").code == 0
    told = memlog("backup", tmp_path / "backup").stdout
    assert told.startswith("2 projects are in")
    assert current in told
    assert memlog("restore", tmp_path / "backup").code == 0
    assert entities(memlog) == ["Current"]


def test_a_backup_with_copies_of_what_is_gone_alone_says_how_these_are_restored(
    tmp_path: Path,
) -> None:
    _, old, current = begun_again(tmp_path)
    shutil.rmtree(tmp_path / "backup" / current)
    refused = CommandLine(tmp_path / "other")("restore", tmp_path / "backup")
    assert refused.code == 1
    assert "found none of the projects that it has copies of" in refused.stderr
    assert f"default: `memlog restore {tmp_path / 'backup'} {old}`" in refused.stderr


def test_a_note_of_a_run_that_is_damaged_counts_as_none(tmp_path: Path) -> None:
    begun_again(tmp_path)
    (tmp_path / "backup" / NOTE).write_bytes(b"\xff{")
    other = CommandLine(tmp_path / "other")
    assert other("restore", tmp_path / "backup").code == 0
    assert entities(other) == ["Current"]


def test_what_is_deleted_while_a_run_goes_on_is_not_what_that_run_found(
    store: Store, tmp_path: Path
) -> None:
    store.create("going")
    back_up(store, tmp_path / "backup")

    def delete(_: str, done: int, of: int) -> None:
        if store.knows("going"):
            store.delete("going")

    done = back_up(store, tmp_path / "backup", delete)
    assert [each.name for each in done] == ["default"]
    held = {each.name: each.alive for each in inventory(tmp_path / "backup")}
    assert held == {"default": True, "going": False}


def test_a_folder_that_is_no_backup_is_not_written_to(store: Store, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"x")
    with pytest.raises(InvalidParameter, match="no backup"):
        back_up(store, tmp_path / "photos")
    with pytest.raises(InvalidParameter, match="its own backup"):
        back_up(store, tmp_path / "data")
    for folder in ("photos", "nowhere"):
        with pytest.raises(InvalidParameter, match="holds no backup") as refused:
            restore(store, tmp_path / folder)
        assert refused.value.suggestion == (
            "Name a folder to which a backup was made. Nothing was changed."
        )


def test_a_backup_that_broke_off_is_continued(store: Store, tmp_path: Path) -> None:
    """What a crash leaves is a beginning of the log, whole as far as it goes."""
    project = store.project("default")
    for number in range(5):
        remember(store, f"n{number}")
    copy = Copy(tmp_path / "backup" / project.folder.name)
    with project.stored() as (log, _):
        copy.add(list(log.stored())[:4], ())
    copy.close()
    (continued,) = back_up(store, tmp_path / "backup")
    assert (continued.how, continued.added) == ("continued", project.head() - 4)


def test_a_backup_that_broke_off_before_its_first_entry_is_of_whatever_log_is_copied_then(
    store: Store, tmp_path: Path
) -> None:
    """What was begun had something erased from it; what is copied now was restored from before that."""
    project = store.project("default")
    begun = Copy(tmp_path / "backup" / project.folder.name)
    begun.begin(project.generation + 1)
    begun.close()
    with pytest.raises(InvalidParameter, match="holds no project"):
        restore(Store(tmp_path / "other"), tmp_path / "backup")
    (made,) = back_up(store, tmp_path / "backup")
    assert (made.how, made.added) == ("whole", project.head())


@pytest.mark.parametrize("written", [0, 100, 4096])
def test_a_copy_that_a_loss_of_power_left_with_its_length_and_nothing_in_it_is_begun_anew(
    store: Store, tmp_path: Path, written: int
) -> None:
    project = store.project("default")
    Copy(tmp_path / "backup" / project.folder.name).close()
    copy = tmp_path / "backup" / project.folder.name / LOG_FILE
    content = copy.read_bytes()
    copy.write_bytes(content[:written].ljust(len(content), b"\0"))
    (made,) = back_up(store, tmp_path / "backup")
    assert (made.how, made.added) == ("whole", project.head())


def test_a_backup_is_made_while_servers_write_and_restored_on_the_command_line(
    tmp_path: Path,
) -> None:
    with served(tmp_path / "data") as server:
        sent = [
            server.send_call("store_memory", content=f"what was said as number {number}")
            for number in range(150)
        ]
        for _ in sent[:50]:
            server.read()
        made = run_memlog("backup", tmp_path / "backup", data_dir=tmp_path / "data")
        assert made.returncode == 0, made.stderr
        for _ in sent[50:]:
            server.read()
    first = restored(tmp_path / "backup", tmp_path / "then")
    assert 51 <= first.project("default").head() <= 151
    again = run_memlog("backup", tmp_path / "backup", data_dir=tmp_path / "data")
    assert "default: 151 entries" in again.stdout
    back = run_memlog("restore", tmp_path / "backup", data_dir=tmp_path / "other")
    assert back.stdout == "default: restored, 151 entries\n"
    assert digest(tmp_path / "data") == digest(tmp_path / "other")


def test_a_server_that_runs_serves_what_was_restored(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    with served(tmp_path / "data") as server:
        server("store_memory", content="what came after the backup")
        log = next((tmp_path / "data").rglob(LOG_FILE))
        shutil.copy(log, tmp_path / "kept.mdb")
        done = run_memlog(
            "restore", tmp_path / "backup", "default", "--replace", data_dir=tmp_path / "data"
        )
        assert done.stdout.startswith("default: already there"), done.stdout
        assert "It was not replaced. To go back to what the backup tells, undo" in done.stdout
        assert len(server("list_recent_memories")["memories"]) == 1


def test_a_restore_and_an_import_say_that_some_of_what_is_there_was_erased(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    assert memlog("export", "--full", tmp_path / "history").code == 0
    purged = memlog("purge", "default", "--entity", "Jon", "--yes").stdout
    number = int(purged.partition("Erased ")[2].split()[0])
    for command, source in (("restore", "backup"), ("import", "history")):
        done = memlog(command, tmp_path / source)
        assert (done.code, "already there" in done.stdout) == (0, True)
        assert f"{number} of them were erased for good there, and stay so." in done.stdout
    assert memlog("restore", tmp_path / "backup", "--json").json[0]["erased"] == number


def test_the_memory_of_a_store_that_was_restored_can_be_added_to(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    there = restored(tmp_path / "backup", tmp_path / "other")
    project = there.project("default")
    project.execute(StoreMemory(content="new"), Context(), lambda _: None)
    assert project.is_as_rebuilt()
    assert list(project.verify()) == list(range(1, project.head() + 1))


def test_a_folder_in_which_nothing_was_copied_yet_is_a_backup_too(tmp_path: Path) -> None:
    """There was no project yet, or the first run was killed."""
    empty = Store(tmp_path / "data")
    assert back_up(empty, tmp_path / "backup") == []
    empty.create("default")
    assert [each.how for each in back_up(empty, tmp_path / "backup")] == ["whole"]


def test_what_a_run_left_that_was_killed_over_its_first_copy_is_no_copy(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    (tmp_path / "backup" / NOTE).unlink()
    (tmp_path / "backup" / f"prj_{0:026}").mkdir()
    other = Store(tmp_path / "other")
    assert [each.how for each in restore(other, tmp_path / "backup")] == ["restored"]


def test_what_a_killed_run_left_of_what_was_erased_goes_with_the_next(
    store: Store, tmp_path: Path
) -> None:
    (made,) = back_up(store, tmp_path / "backup")
    (tmp_path / "backup" / made.id).rename(tmp_path / "backup" / f"{made.id}.erased")
    back_up(store, tmp_path / "backup")
    assert {path.name for path in (tmp_path / "backup").iterdir()} == {
        made.id,
        "backup.lock",
        NOTE,
    }


def purged(backup: Path, folder: Path, name: str) -> Store:
    """What is in the backup, restored into `folder`, without `name`."""
    there = restored(backup, folder)
    there.purge("default", Target((name,)))
    return there


def test_a_project_of_before_a_purge_does_not_bring_back_what_the_backup_forgot(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "early")
    store.purge("default", Target(("Jon",)))
    back_up(store, tmp_path / "backup")
    old = restored(tmp_path / "early", tmp_path / "other")
    with pytest.raises(Conflict, match="still has something that was erased from its backup"):
        back_up(old, tmp_path / "backup")
    assert b"fact of Jon" not in next((tmp_path / "backup").rglob(LOG_FILE)).read_bytes()


def test_a_purge_does_not_cut_a_backup_that_reaches_further_or_is_of_another_history(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "early")
    remember(store, "Gina")
    back_up(store, tmp_path / "backup")
    behind = purged(tmp_path / "early", tmp_path / "other", "Jon")
    with pytest.raises(Conflict, match="reaches to position 5; the project ends at 3"):
        back_up(behind, tmp_path / "backup")
    remember(behind, "Mia")
    with pytest.raises(Conflict, match="another history"):
        back_up(behind, tmp_path / "backup")
    assert restored(tmp_path / "backup", tmp_path / "third").project("default").head() == 5


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("a", "The log of this project is damaged", "a: The log of this project is damaged"),
        ("log", "The log of this project is damaged", "log: The log of this project is damaged"),
        ("a", "Project 'a' exists already", "Project 'a' exists already"),
        (f"prj_{0:026}", f"prj_{0:026}/log.mdb is gone", f"prj_{0:026}/log.mdb is gone"),
    ],
)
def test_what_failed_for_a_project_names_it_once(name: str, said: str, told: str) -> None:
    assert of_project(name, StorageError(said)).message == told


@pytest.fixture
def three(store: Store, tmp_path: Path) -> Store:
    """Three projects and a backup of them; the first is the one that comes first there."""
    for name in ("second", "third"):
        store.create(name)
        remember(store, f"{name} Gina", name)
    back_up(store, tmp_path / "backup")
    return store


def test_a_damaged_copy_keeps_no_other_project_from_being_restored(
    three: Store, tmp_path: Path
) -> None:
    flip(tmp_path / "backup" / three.find("default").id / LOG_FILE, b"fact of Jon")
    fresh = Store(tmp_path / "one")
    (third,) = restore(fresh, tmp_path / "backup", names=["third"])
    assert (third.how, [row.name for row in fresh.projects()]) == ("restored", ["third"])
    fresh = Store(tmp_path / "all")
    with pytest.raises(StorageError, match="is damaged at position 3") as caught:
        restore(fresh, tmp_path / "backup")
    assert str(tmp_path / "backup" / three.find("default").id) in caught.value.message
    assert "Done all the same: second, third." in (caught.value.suggestion or "")
    assert [row.name for row in fresh.projects()] == ["second", "third"]
    with pytest.raises(StorageError, match="is damaged at position 3"):  # it may be this one
        restore(fresh, tmp_path / "backup", names=["default"])


def test_a_name_that_is_taken_keeps_no_other_project_from_being_restored(
    three: Store, tmp_path: Path
) -> None:
    """A server was started in the new data directory first, and somebody told it something."""
    fresh = Store(tmp_path / "other")
    fresh.create("default")
    remember(fresh, "Mia")
    with pytest.raises(ProjectExists) as caught:
        restore(fresh, tmp_path / "backup")
    assert "Done all the same: second, third." in (caught.value.suggestion or "")
    assert {row.name for row in fresh.projects()} == {"default", "second", "third"}


def test_a_damaged_log_keeps_no_other_project_from_being_backed_up(
    three: Store, tmp_path: Path
) -> None:
    remember(three, "Mia", "third")
    file = three.project("default").folder / LOG_FILE
    three.close()
    flip(file, b"fact of Jon")
    damaged = Store(tmp_path / "data")
    with pytest.raises(StorageError, match="damaged") as caught:
        back_up(damaged, tmp_path / "new")
    assert caught.value.message.startswith("default: ")
    assert "Done all the same: second, third." in (caught.value.suggestion or "")
    there = Store(tmp_path / "other")
    with pytest.raises(InvalidParameter, match="holds no project"):  # nothing of it was copied
        restore(there, tmp_path / "new")
    assert {row.name: there.by_id(row.id).head() for row in there.projects()} == {
        "second": 3,
        "third": 5,
    }


def test_what_is_whole_of_a_log_that_was_cut_is_not_copied_for_the_log(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    assert memlog("stats").code == 0
    refused = memlog("backup", tmp_path / "backup")
    assert refused.code == 1
    assert "default: The log of this project is damaged" in refused.stderr
    assert not list((tmp_path / "backup").rglob(LOG_FILE))


def test_damage_that_a_backup_finds_is_noted_and_its_way_out_named(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    flip(next((tmp_path / "data").rglob(LOG_FILE)), b"was a banker")
    refused = memlog("backup", tmp_path / "backup")
    assert refused.code == 1
    assert (
        "default: The log of this project is damaged, it is whole up to position" in refused.stderr
    )
    assert "`memlog repair default` goes on with what is whole" in refused.stderr
    assert "`memlog restore` " not in refused.stderr
    written = memlog("import", tmp_path / "before.jsonl")
    assert (written.code, "is damaged" in written.stderr) == (1, True)
    assert memlog("backup", tmp_path / "backup").stderr == refused.stderr


def test_a_backup_whose_last_run_was_killed_over_a_purge_is_restored_without_what_was_erased(
    three: Store, tmp_path: Path
) -> None:
    backup, project_id = tmp_path / "backup", three.find("default").id
    shutil.copytree(backup / project_id, tmp_path / "old")
    three.purge("default", Target(("Jon",)))
    back_up(three, backup)
    shutil.copytree(tmp_path / "old", backup / f"{project_id}.erased")
    for killed in ("while the old copy was removed", "before the new one took its place"):
        if killed == "before the new one took its place":
            (backup / "beside").mkdir()
            (backup / project_id).rename(backup / "beside" / project_id)
        there = Store(tmp_path / killed)
        assert left(backup) == []
        assert {each.how for each in restore(there, backup)} == {"restored"}
        assert [row.name for row in there.projects()] == ["default", "second", "third"]
        assert not holds(tmp_path / killed, b"fact of Jon")
    assert {each.how for each in back_up(three, backup)} == {"unchanged"}
    assert not holds(backup, b"fact of Jon")


def holds(folder: Path, text: bytes) -> bool:
    return any(text in file.read_bytes() for file in folder.rglob("*") if file.is_file())


def test_a_restore_that_is_stopped_leaves_nothing_of_its_own(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(copy: Copy) -> None:
        raise KeyboardInterrupt

    back_up(store, tmp_path / "backup")
    monkeypatch.setattr(Copy, "verify", stopped)
    with pytest.raises(KeyboardInterrupt):
        restored(tmp_path / "backup", tmp_path / "other")
    assert not holds(tmp_path / "other", b"fact of Jon")


def test_what_a_killed_restore_left_keeps_no_other_from_going_well(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "backup")
    shutil.copytree(tmp_path / "backup", tmp_path / "other" / "restoring")
    restored(tmp_path / "backup", tmp_path / "other").close()
    assert not (tmp_path / "other" / "restoring").exists()


def test_what_a_killed_restore_left_goes_with_a_purge(store: Store, tmp_path: Path) -> None:
    back_up(store, tmp_path / "backup")
    shutil.copytree(tmp_path / "backup", tmp_path / "data" / "restoring")
    store.purge("default", Target(("Jon",)))
    assert not holds(tmp_path / "data", b"fact of Jon")


@pytest.mark.parametrize("name", ["projects", "archive", "restoring", "trash/mine"])
def test_what_memlog_keeps_its_own_files_in_is_no_place_for_a_backup(
    store: Store, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidParameter, match="keeps its own files"):
        back_up(store, tmp_path / "data" / name)
    assert not list((tmp_path / "data").rglob("backup.lock"))
    assert [each.how for each in back_up(store, tmp_path / "data" / "backup")] == ["whole"]


@pytest.mark.parametrize("page", [bytes(4096), b"\xff" * 4096])
def test_a_page_that_is_none_ends_neither_a_restore_nor_a_backup(
    store: Store, tmp_path: Path, page: bytes
) -> None:
    for number in range(40):
        remember(store, f"n{number}" * 20)
    back_up(store, tmp_path / "whole")
    store.close()
    for at in range(2, 12):
        backup = tmp_path / f"backup{at}"
        shutil.copytree(tmp_path / "whole", backup)
        with next(backup.rglob(LOG_FILE)).open("rb+") as file:
            file.seek(at * 4096)
            file.write(page)
        for command, folder in (("restore", f"other{at}"), ("backup", "data")):
            ended = run_memlog(command, backup, data_dir=tmp_path / folder)
            assert ended.returncode in (0, 1), (at, command, ended.stderr)
            if ended.returncode:
                assert f"the backup {backup}" in ended.stderr
                assert "is damaged" in ended.stderr


def test_a_restore_says_that_what_is_there_is_behind_the_backup_and_how_it_is_brought_up_to_it(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "older")
    remember(store, "Ann")
    back_up(store, tmp_path / "newer")
    store.close()
    memlog = CommandLine(tmp_path / "other")
    assert memlog("restore", tmp_path / "older").code == 0
    told = memlog("restore", tmp_path / "newer")
    assert told.code == 1
    assert told.stderr.startswith(
        "error: Project 'default' is there, and behind: it ends at position 3 of 5"
    )
    assert "Name it with --replace" in told.stderr
    assert memlog("restore", tmp_path / "newer", "default", "--replace").code == 0
    assert entities(memlog) == ["Jon", "Ann"]


def test_a_restore_says_of_another_history_that_it_is_there_and_not_that_it_is_behind(
    store: Store, tmp_path: Path
) -> None:
    back_up(store, tmp_path / "older")
    remember(store, "Ann")
    remember(store, "Kim")
    back_up(store, tmp_path / "newer")
    there = restored(tmp_path / "older", tmp_path / "other")
    remember(there, "Bob")
    with pytest.raises(ProjectExists, match="'default' exists already"):
        restore(there, tmp_path / "newer")


def test_a_restore_where_another_project_has_the_name_says_that_it_is_another_one(
    tmp_path: Path,
) -> None:
    for each in ("lost", "begun anew"):
        begun = Store(tmp_path / each)
        begun.create("shop")
        remember(begun, "Jon", "shop")
        begun.close()
    run_memlog("backup", tmp_path / "backup", data_dir=tmp_path / "lost")
    told = run_memlog(
        "restore", tmp_path / "backup", "shop", "--replace", data_dir=tmp_path / "begun anew"
    )
    assert told.returncode == 1
    assert told.stderr.startswith("error: Project 'shop' exists already, and is not the one to be")
    assert "deleted a moment ago" not in told.stderr
    assert "memlog export --full FILE --project shop" in told.stderr


def test_rows_that_are_large_are_committed_a_few_at_a_time(tmp_path: Path) -> None:
    sizes: list[int] = []
    environment = Environment(tmp_path / "rows.mdb", ("rows",))

    def rows() -> Iterator[tuple[bytes, bytes]]:
        for number in range(20):
            sizes.append(environment.path.stat().st_size)
            yield b"%02d" % number, b"x" * (BYTES_PER_COMMIT // 4)

    fill(environment, "rows", rows())
    assert sizes[-1] > 3 * BYTES_PER_COMMIT
    with environment.read() as transaction:
        assert transaction.stat(environment.databases["rows"])["entries"] == 20
    environment.close()
