"""The data directory: lives of projects, and a catalogue that follows their logs."""

from __future__ import annotations

import errno
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from weakref import ref

import msgspec
import pytest

from memlog.commands import CreateEntities, NewEntity
from memlog.context import Context
from memlog.errors import (
    InvalidParameter,
    ProjectArchived,
    ProjectExists,
    ProjectNotFound,
    StorageError,
)
from memlog.log import Damage, Log
from memlog.projects.catalog import Catalog
from memlog.projects.contents import DATABASES
from memlog.projects.meta import STATE_VERSION, VERSION_KEY
from memlog.projects.project import LOG_FILE, Origin, Project
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.repair.damage import mark
from memlog.rows import text_key
from memlog.state import State
from memlog.storage import environment, files, filling, proving
from memlog.storage.environment import Environment
from tests.served import DEADLINE_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


def remember(project: Project, name: str) -> int:
    entity = NewEntity(name=name, entity_type="person")
    command = CreateEntities(entities=[entity])
    return project.execute(command, Context(), lambda outcome: len(outcome.entries))


def known(store: Store, name: str) -> list[str]:
    with store.project(name).read() as state:
        return [entity.name for entity in state.entities()]


def statuses(store: Store) -> dict[str, str]:
    return {row.name: row.status for row in store.projects("all")}


def test_projects_are_isolated(store: Store) -> None:
    store.create("one")
    store.create("two", "the second")
    remember(store.project("one"), "Jon")
    assert (known(store, "one"), known(store, "two")) == (["Jon"], [])
    assert [(row.name, row.description) for row in store.projects()] == [
        ("one", ""),
        ("two", "the second"),
    ]


def test_a_name_is_taken_once_also_by_an_archived_project(store: Store) -> None:
    store.create("one")
    store.archive("one")
    with pytest.raises(ProjectExists, match="one"):
        store.create("one")
    assert len(store.projects("all")) == 1


def test_who_makes_a_project_again_by_the_same_command_is_told_that_it_was_archived(
    store: Store,
) -> None:
    origin = Origin(command_id="make-one")
    assert store.create("one", origin=origin) == store.create("one", origin=origin)
    store.archive("one")
    with pytest.raises(ProjectExists) as refused:
        store.create("one", origin=origin)
    assert "restore_project" in (refused.value.suggestion or "")


def test_a_missing_project_offers_the_nearest_names(store: Store) -> None:
    store.create("shop-frontend")
    with pytest.raises(ProjectNotFound) as caught:
        store.project("shop-fronted")
    assert caught.value.suggestion == "Did you mean 'shop-frontend'?"


def test_archiving_moves_the_folder_and_restoring_brings_everything_back(
    store: Store, tmp_path: Path
) -> None:
    row = store.create("one")
    remember(store.project("one"), "Jon")
    assert store.archive("one").status == "archived"
    assert (tmp_path / "archive" / row.id / "log.mdb").exists()
    assert not (tmp_path / "projects" / row.id).exists()
    with pytest.raises(ProjectArchived):
        store.project("one")
    assert store.restore("one").status == "active"
    assert known(store, "one") == ["Jon"]


def test_whoever_has_an_archived_project_open_may_not_touch_it(store: Store) -> None:
    store.create("one")
    held = store.project("one")
    store.archive("one")
    with pytest.raises(ProjectArchived), held.read():
        pass
    with pytest.raises(ProjectArchived):
        remember(held, "Jon")
    store.restore("one")
    assert remember(held, "Jon") == 1


def test_a_deleted_project_is_gone_and_its_name_free(store: Store, tmp_path: Path) -> None:
    row = store.create("one")
    remember(store.project("one"), "Jon")
    store.delete("one")
    assert list(tmp_path.glob(f"*/{row.id}")) == []
    assert statuses(store) == {}
    assert not store.knows("one")
    store.create("one")
    assert known(store, "one") == []


def told_anywhere(folder: Path, text: str) -> list[Path]:
    return [
        each for each in folder.rglob("*") if each.is_file() and text.encode() in each.read_bytes()
    ]


def test_no_file_holds_a_byte_of_what_a_deleted_project_was_called(
    store: Store, tmp_path: Path
) -> None:
    store.create("one")
    store.create("xyzzy", "plugh of old")
    store.archive("xyzzy")
    assert told_anywhere(tmp_path, "plugh") != []
    store.delete("xyzzy")
    assert told_anywhere(tmp_path, "xyzzy") == told_anywhere(tmp_path, "plugh") == []
    assert statuses(store) == {"one": "active"}
    store.create("xyzzy")
    assert statuses(store) == {"one": "active", "xyzzy": "active"}


def test_what_a_project_was_called_is_gone_also_where_its_deletion_was_cut_short(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("xyzzy", "plugh of old")

    def die(_: Catalog) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(Catalog, "clear", die)
        with pytest.raises(KeyboardInterrupt):
            store.delete("xyzzy")
    store.close()
    assert told_anywhere(tmp_path, "plugh") != []
    Store(tmp_path).close()
    assert told_anywhere(tmp_path, "xyzzy") == told_anywhere(tmp_path, "plugh") == []


def test_where_the_disk_is_full_a_deletion_is_done_and_what_the_project_was_called_goes_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another process has the log open, so that no room is made."""
    store.create("one")
    store.create("xyzzy", "plugh of old")

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(filling, "fill", no_room)
        assert store.delete("xyzzy").name == "xyzzy"
        assert statuses(store) == {"one": "active"}
        with pytest.raises(ProjectExists):
            store.create("one")
        assert store.archive("one").status == "archived"
    assert told_anywhere(tmp_path, "plugh") != []
    assert statuses(store) == {"one": "archived"}
    assert told_anywhere(tmp_path, "xyzzy") == told_anywhere(tmp_path, "plugh") == []


def test_a_project_for_whose_log_the_disk_had_no_room_is_not_there_as_a_damaged_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_it = environment.Environment.__init__

    def half_made(_: object, path: Path, *arguments: object, **options: object) -> None:
        monkeypatch.setattr(environment.Environment, "__init__", open_it)
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(4096))
        raise StorageError("No space left on device")

    monkeypatch.setattr(environment.Environment, "__init__", half_made)
    with pytest.raises(StorageError, match="No space left"):
        store.create("one")
    assert statuses(store) == {}
    assert list((tmp_path / "projects").iterdir()) == []
    assert store.create("one").name == "one"


@pytest.mark.parametrize("how", ["delete", "purge"])
def test_a_file_that_is_removed_for_good_is_let_go_of(store: Store, how: str) -> None:
    """What was in it would be on the disk as long as this process has it open."""
    store.create("one")
    remember(store.project("one"), "Jon")
    held = ref(store.project("one"))
    if how == "delete":
        store.delete("one")
    else:
        store.purge("one", Target(("Jon",)))
    assert held() is None


def test_what_is_derived_while_a_project_is_purged_goes_too(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, from the log that is about to be replaced."""
    store.create("one")
    remember(store.project("one"), "Jon")
    derived = store.project("one").folder / "text-v0"
    erase = Project.erase

    def erase_while_another_derives(
        project: Project, chosen: Callable[[Log, State], Collection[int]]
    ) -> None:
        erase(project, chosen)
        derived.mkdir()

    monkeypatch.setattr(Project, "erase", erase_while_another_derives)
    store.purge("one", Target(("Jon",)))
    assert not derived.exists()


def test_a_project_that_another_process_is_moving_is_found(store: Store, tmp_path: Path) -> None:
    row = store.create("one")
    folder, elsewhere = tmp_path / "projects" / row.id, tmp_path / "elsewhere"
    found: list[object] = []
    with store._open.locked():
        folder.rename(elsewhere)
        finder = threading.Thread(target=lambda: found.append(store.find("one")))
        finder.start()
        finder.join(0.1)  # it waits for the lock, or, were there none, has not found the project
        elsewhere.rename(folder)
    finder.join()
    assert found == [row]


def test_after_a_deletion_nobody_waits_for_who_is_at_another_project(
    store: Store, tmp_path: Path
) -> None:
    store.create("one")
    store.create("two")
    project = store.project("one")
    assert _run_in_child(tmp_path, "store.delete('two')") == ""
    with ThreadPoolExecutor() as threads, store._open.locked("a third"):
        assert threads.submit(store.project, "one").result(DEADLINE_S) is project


def test_a_project_whose_folder_is_away_stays_known_while_another_is_deleted(
    store: Store, tmp_path: Path
) -> None:
    row = store.create("one")
    store.create("two")
    folder, elsewhere = tmp_path / "projects" / row.id, tmp_path / "elsewhere"
    folder.rename(elsewhere)
    store.delete("two")
    assert store.knows("one")
    elsewhere.rename(folder)
    assert statuses(store) == {"one": "active"}


def test_who_wrote_nothing_in_the_end_goes_on_behind_what_another_process_wrote(
    store: Store, tmp_path: Path
) -> None:
    """At the very position that its own entry would have had."""
    store.create("one")
    project = store.project("one")
    ann = CreateEntities(entities=[NewEntity(name="Ann", entity_type="person")])
    project.rehearse(ann, Context(), lambda outcome: None)
    writes = (
        "from memlog.commands import CreateEntities, NewEntity; from memlog.context import Context;"
        "jon = CreateEntities(entities=[NewEntity(name='Jon', entity_type='person')]);"
        "store.project('one').execute(jon, Context(), lambda outcome: None)"
    )
    assert _run_in_child(tmp_path, writes) == ""
    remember(project, "Ann")
    assert list(project.verify()) == [1, 2, 3]
    assert known(store, "one") == ["Jon", "Ann"]


def test_a_folder_that_bears_the_id_of_another_project_is_not_taken_in(
    store: Store, tmp_path: Path
) -> None:
    with closing(Store(tmp_path / "other")) as other:
        row = other.create("two")
    misnamed = (tmp_path / "other" / "projects" / row.id).rename(tmp_path / "prj_1")
    with pytest.raises(InvalidParameter, match="prj_1 holds no project of this id"):
        store.adopt(misnamed)
    assert statuses(store) == {}
    assert misnamed.exists()


def test_two_stores_on_one_directory_see_each_other(store: Store, tmp_path: Path) -> None:
    store.create("one")
    child = _run_in_child(tmp_path, "store.create('two'); store.archive('one')")
    assert child == ""
    assert statuses(store) == {"one": "archived", "two": "active"}
    with pytest.raises(ProjectArchived):
        store.project("one")


def test_the_catalogue_is_rebuilt_when_it_is_lost(store: Store, tmp_path: Path) -> None:
    store.create("one", "first")
    store.create("two")
    store.archive("two")
    before = store.projects("all")
    store.close()
    (tmp_path / "catalog.mdb").unlink()
    again = Store(tmp_path)
    assert again.projects("all") == before
    again.close()


def test_a_catalogue_that_says_what_no_log_does_is_rebuilt_when_that_is_asked_for(
    store: Store, tmp_path: Path
) -> None:
    """Whoever opens the data directory compares which projects there are, and looks into no log for that."""
    store.create("one", "first")
    archived = store.create("two").id
    store.archive("two")
    told = store.projects("all")
    for row in told:
        store._catalog.write(row.id, msgspec.structs.replace(row, name=f"not {row.name}"))
    home = (tmp_path / "archive" / archived).rename(tmp_path / "projects" / archived)
    store.close()
    with closing(Store(tmp_path)) as again:
        assert [row.name for row in again.projects("all")] == ["not one", "not two"]
        again.rebuild_catalog()
        assert again.projects("all") == told
    assert not home.exists() and (tmp_path / "archive" / archived).exists()


@pytest.mark.parametrize("again", ["by this process", "by another"])
def test_a_catalogue_that_is_lost_while_it_is_open_is_there_again_for_all(
    store: Store, tmp_path: Path, again: str
) -> None:
    store.create("one")
    store.create("two")
    store.archive("two")
    (tmp_path / "catalog.mdb").unlink()
    if again == "by another":
        assert _run_in_child(tmp_path, "store.create('three')") == ""
    store.create("four")
    assert _run_in_child(tmp_path, "print([row.name for row in store.projects('all')])") == (
        f"{[row.name for row in store.projects('all')]}\n"
    )
    assert store.find("four").status == "active"
    for name in statuses(store):
        with pytest.raises(ProjectExists):
            store.create(name)
    assert {"one": "active", "two": "archived"}.items() <= statuses(store).items()


def test_a_project_that_no_list_has_keeps_its_name(store: Store, tmp_path: Path) -> None:
    """A server made it that had another catalogue."""
    row = store.create("one")
    store._catalog.write(row.id, None)
    with pytest.raises(ProjectExists):
        store.create("one")
    assert store.projects() == [row]


def test_a_data_directory_that_is_replaced_by_a_copy_is_read_from_then_on(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    first = Store(data_dir)
    first.create("one")
    shutil.copytree(data_dir, tmp_path / "copy")
    first.create("two")
    data_dir.rename(tmp_path / "before")
    (tmp_path / "copy").rename(data_dir)
    assert list(statuses(first)) == ["one"]
    first.create("two")
    assert _run_in_child(data_dir, "print(store.find('two').id)") == f"{first.find('two').id}\n"
    first.close()


def test_a_folder_that_was_taken_away_leaves_the_catalogue(store: Store, tmp_path: Path) -> None:
    row = store.create("one")
    store.close()
    shutil.rmtree(tmp_path / "projects" / row.id)
    again = Store(tmp_path)
    assert again.projects("all") == []
    again.close()


def test_a_folder_that_is_taken_away_meanwhile_leaves_the_list_and_its_name_is_free(
    store: Store, tmp_path: Path
) -> None:
    kept, gone = store.create("kept"), store.create("gone")
    shutil.rmtree(tmp_path / "projects" / gone.id)
    assert store.projects("all") == [kept]
    made = store.create("gone")
    assert made.id != gone.id
    assert store.projects("all") == [kept, made]


def test_of_two_projects_of_one_name_the_one_that_is_known_stays_and_the_other_is_told(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody copied the folder of a project out of another data directory."""
    store.create("one")
    remember(store.project("one"), "Jon")
    store.close()
    copied = []
    for number in range(4):  # so that it is no chance who stays
        other = Store(tmp_path / f"other{number}")
        row = other.create("one")
        other.close()
        shutil.move(tmp_path / f"other{number}" / "projects" / row.id, tmp_path / "projects")
        copied.append(row.id)
    for catalog in ("as it was", "begun anew"):
        if catalog == "begun anew":
            (tmp_path / "catalog.mdb").unlink()
        caplog.clear()
        again = Store(tmp_path)
        assert known(again, "one") == ["Jon"]
        again.close()
        assert all(f"{each} is left out" in caplog.text for each in copied)

    again = Store(tmp_path)
    again.delete("one")
    again.close()
    again = Store(tmp_path)
    assert [row.id for row in again.projects("all")] == [min(copied)]
    again.close()


def test_of_two_projects_of_one_name_the_one_that_holds_only_its_creation_gives_way(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log was elsewhere for a while, and a server made its usual project meanwhile."""
    full = store.create("one")
    remember(store.project("one"), "Jon")
    store.close()
    shutil.move(tmp_path / "projects" / full.id, tmp_path / full.id)
    again = Store(tmp_path)
    empty = again.create("one")
    again.close()
    shutil.move(tmp_path / full.id, tmp_path / "projects" / full.id)
    for _ in range(2):
        again = Store(tmp_path)
        assert [row.id for row in again.projects("all")] == [full.id]
        assert known(again, "one") == ["Jon"]
        again.close()
        assert f"{empty.id} is left out" in caplog.text
        assert f"{full.id} is left out" not in caplog.text


def test_a_project_of_which_only_its_creation_can_be_read_gives_way_to_no_other_of_its_name(
    store: Store, tmp_path: Path
) -> None:
    damaged = store.create("one")
    file = store.file(damaged.id)
    store.close()
    mark(file, [Damage(2, "missing: the log ends before it")])
    other = Store(tmp_path / "other")
    full = other.create("one")
    remember(other.project("one"), "Jon")
    other.close()
    shutil.move(tmp_path / "other" / "projects" / full.id, tmp_path / "projects")
    with closing(Store(tmp_path)) as again:
        assert [row.id for row in again.projects("all")] == [damaged.id]


def test_a_row_of_the_catalogue_that_is_damaged_comes_back_from_the_log(
    store: Store, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        store.create(name)
        remember(store.project(name), "Jon")
    catalog = store._catalog._environment
    database = catalog.databases["projects"]
    catalog.write(lambda transaction: transaction.put(text_key("one"), b"\xc1", db=database))
    store.close()
    with closing(Store(tmp_path)) as again:
        assert statuses(again) == {"one": "active", "two": "active"}
        assert known(again, "one") == ["Jon"]


def test_a_project_whose_folder_cannot_be_moved_keeps_nobody_from_the_others(
    store: Store, tmp_path: Path
) -> None:
    for name in ("stuck", "other"):
        store.create(name)
        remember(store.project(name), "Jon")
    (tmp_path / "archive").write_bytes(b"")  # where a folder should be
    with pytest.raises(StorageError, match="The change is done"):
        store.archive("stuck")
    store.close()
    with closing(Store(tmp_path)) as again:
        assert known(again, "other") == ["Jon"]
        assert set(statuses(again)) == {"stuck", "other"}
        (tmp_path / "archive").unlink()
        assert statuses(again) == {"stuck": "archived", "other": "active"}


def test_a_project_that_is_archived_is_so_though_its_readers_cannot_be_sent_away(
    store: Store,
) -> None:
    store.create("one")

    def failing() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(StorageError, match="The change is done"):
        store.archive("one", let_go=failing)
    assert statuses(store) == {"one": "archived"}


@pytest.mark.parametrize("lost", ["nothing", "the catalogue"])
def test_a_project_of_a_newer_memlog_keeps_nobody_from_the_others(
    store: Store, tmp_path: Path, lost: str
) -> None:
    for name in ("newer", "other"):
        store.create(name)
        remember(store.project(name), "Jon")
    environment = store.project("newer")._environment
    version = (STATE_VERSION + 1).to_bytes(2, "big")
    meta = environment.databases["meta"]
    environment.write(lambda transaction: transaction.put(VERSION_KEY, version, db=meta))
    store.close()
    older = Store(tmp_path)
    for change in (older.archive, older.delete):  # what was begun cannot be settled
        with pytest.raises(StorageError, match="newer memlog"):
            change("newer")
    older.close()
    if lost == "the catalogue":
        (tmp_path / "catalog.mdb").unlink()

    again = Store(tmp_path)
    assert known(again, "other") == ["Jon"]
    assert again.archive("other").status == "archived"
    again.close()

    (log,) = tmp_path.glob("projects/*/log.mdb")  # where it was, for the newer one
    environment = Environment(log, DATABASES)
    version = STATE_VERSION.to_bytes(2, "big")
    meta = environment.databases["meta"]
    environment.write(lambda transaction: transaction.put(VERSION_KEY, version, db=meta))
    environment.close()
    newer = Store(tmp_path)
    assert known(newer, "newer") == ["Jon"]
    assert {row.name: row.status for row in newer.projects("all")} == {
        "newer": "active",
        "other": "archived",
    }
    newer.close()


def test_a_project_that_is_open_is_had_while_another_is_being_opened(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("open")
    row = store.create("older")
    environment = store.project("older")._environment
    version = (STATE_VERSION - 1).to_bytes(2, "big")
    meta = environment.databases["meta"]
    environment.write(lambda transaction: transaction.put(VERSION_KEY, version, db=meta))
    store.close()
    rebuild = Project.rebuild
    rebuilding, asked = threading.Event(), threading.Event()

    def waiting(project: Project) -> None:
        rebuilding.set()
        assert asked.wait(DEADLINE_S), "nobody gets the project that is open"
        rebuild(project)

    again = Store(tmp_path)
    held = again.project("open")
    monkeypatch.setattr(Project, "rebuild", waiting)
    with ThreadPoolExecutor() as threads:
        opening = threads.submit(again.by_id, row.id)
        assert rebuilding.wait(DEADLINE_S)
        assert threads.submit(again.project, "open").result() is held
        assert not opening.done()
        asked.set()
        assert opening.result(DEADLINE_S) is again.project("older")
    again.close()


def test_whoever_wants_a_project_while_its_life_changes_has_it_when_that_is_done(
    store: Store, tmp_path: Path
) -> None:
    """Else he would make indexes in a folder that is about to go. Another project is had at once."""
    rows = [store.create(name) for name in ("one", "other")]
    folders: list[Future[Path]] = []

    def folder_of(project_id: str) -> Path:
        return store.by_id(project_id).folder

    with ThreadPoolExecutor() as threads:

        def let_go() -> None:
            folders.extend(threads.submit(folder_of, row.id) for row in rows)
            assert folders[1].result(DEADLINE_S) == tmp_path / "projects" / rows[1].id

        store.archive("one", let_go=let_go)
        assert folders[0].result(DEADLINE_S) == tmp_path / "archive" / rows[0].id


CRASHES = {
    "archive, after the event": (
        "crash_in(Settling, 'settle'); store.archive('one')",
        {"one": "archived"},
    ),
    "archive, after the move": (
        "crash_in(Catalog, 'write'); store.archive('one')",
        {"one": "archived"},
    ),
    "create, after the log": (
        "crash_in(Settling, 'settle'); store.create('two')",
        {"one": "active", "two": "active"},
    ),
    "create, before the row": (
        "crash_in(Catalog, 'write'); store.create('two')",
        {"one": "active", "two": "active"},
    ),
    "delete, after the mark": ("crash_in(Settling, 'settle'); store.delete('one')", {}),
    "delete, before the row": ("crash_in(Catalog, 'write'); store.delete('one')", {}),
    "delete, after the files": ("crash_in(Catalog, 'settled'); store.delete('one')", {}),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_inside_a_change_of_life_is_mended_at_the_next_start(
    tmp_path: Path, crash: str
) -> None:
    code, expected = CRASHES[crash]
    first = Store(tmp_path)
    first.create("one")
    remember(first.project("one"), "Jon")
    first.close()

    assert "crashed" in _run_in_child(tmp_path, code)

    again = Store(tmp_path)
    assert statuses(again) == expected
    homes = {
        row.id: "archive" if row.status == "archived" else "projects"
        for row in again.projects("all")
    }
    for project_id, home in homes.items():
        assert (tmp_path / home / project_id / "log.mdb").exists()
    if expected.get("one") == "active":
        assert known(again, "one") == ["Jon"]
    again.close()


@pytest.mark.parametrize("written", [0, 100, 4096])
def test_of_a_project_that_was_being_made_when_the_power_was_lost_nothing_is_left(
    tmp_path: Path, written: int
) -> None:
    """Its file may have its length by then, and only a part of what was written into it."""
    with closing(Store(tmp_path)) as first:
        made = first.create("one")
    assert "crashed" in _run_in_child(tmp_path, "crash_in(Project, 'execute'); store.create('two')")
    (log,) = {*tmp_path.rglob(LOG_FILE)} - {tmp_path / "projects" / made.id / LOG_FILE}
    content = log.read_bytes()
    log.write_bytes(content[:written].ljust(len(content), b"\0"))
    with closing(Store(tmp_path)) as again:
        assert statuses(again) == {"one": "active"}
        assert not log.parent.exists()
        again.create("two")
        assert statuses(again) == {"one": "active", "two": "active"}


def _run_in_child(data_dir: Path, code: str) -> str:
    """Runs `code` in another process on the same directory; what it printed."""
    import subprocess
    import sys

    setup = f"""
import os
from pathlib import Path
from memlog.projects.catalog import Catalog
from memlog.projects.project import Project
from memlog.projects.settling import Settling
from memlog.projects.store import Store

def crash_in(owner, name):
    def crash(self, *arguments):
        print("crashed", flush=True)
        os._exit(1)
    setattr(owner, name, crash)

store = Store(Path({str(data_dir)!r}))
{code}
"""
    done = subprocess.run(
        [sys.executable, "-c", setup], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout


def test_who_is_interrupted_while_a_log_is_opened_has_let_go_of_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CLOSING_SECONDS_MAX", 0.0)
    with monkeypatch.context() as opening:
        opening.setattr(proving, "is_sealed", lambda path: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt) as kept:  # with all that it went through
            store.create("one")
    assert store.create("one").name == "one"
    assert kept.traceback


def test_what_a_killed_process_was_removing_is_removed_by_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "trash" / "prj_1" / "log.mdb"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of a deleted project")
    Store(tmp_path).close()
    assert not left.exists()
