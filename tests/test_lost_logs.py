"""A project whose log is gone: told as damaged wherever one looks, and no empty one made in its place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from memlog.commands import StoreMemory
from memlog.context import Context
from memlog.errors import DamagedLog
from memlog.projects.project import LOG_FILE
from memlog.projects.store import Store
from tests.command_line import LINES, CommandLine, holding_lines, lines_of
from tests.served import served
from tests.service import Refused

WAYS = ["the file", "all that stood beside it", "the catalogue, too"]


def lose(data_dir: Path, way: str = "the file") -> Path:
    """Where the log was; it is kept under `kept.mdb` beside the data directory."""
    log = next(data_dir.rglob(LOG_FILE))
    shutil.copy(log, data_dir.parent / "kept.mdb")
    log.unlink()
    if way == "all that stood beside it":
        for beside in log.parent.glob(f"{LOG_FILE}*"):
            beside.unlink()
    if way == "the catalogue, too":
        (data_dir / "catalog.mdb").unlink()
    return log


@pytest.fixture
def memlog(tmp_path: Path) -> CommandLine:
    memlog = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    return memlog


@pytest.mark.parametrize("way", WAYS)
def test_a_project_without_its_log_is_told_by_whoever_looks_after_it(
    memlog: CommandLine, tmp_path: Path, way: str
) -> None:
    project_id = lose(memlog.data_dir, way).parent.name
    name = project_id if way == "the catalogue, too" else "default"
    for command in (["verify"], ["doctor"], ["backup", tmp_path / "backup"]):
        told = memlog(*command)
        assert told.code == 1
        said = told.stdout + told.stderr
        assert f"{project_id}/{LOG_FILE} is gone" in said
        assert f"memlog restore --replace FOLDER {name}" in said
        assert f"memlog projects delete {name}" in said


def test_a_log_in_whose_place_a_link_leads_in_a_circle_is_gone(memlog: CommandLine) -> None:
    log = lose(memlog.data_dir)
    log.symlink_to(log.name)
    told = memlog("verify")
    assert f"{log.parent.name}/{LOG_FILE} is gone" in told.stdout
    assert memlog("projects", "delete", "default", "--yes").code == 0


@pytest.mark.parametrize("way", WAYS)
def test_no_empty_project_is_made_beside_one_without_its_log(
    memlog: CommandLine, tmp_path: Path, way: str
) -> None:
    log = lose(memlog.data_dir, way)
    for command in (["stats"], ["import", tmp_path / "before.jsonl"]):
        assert memlog(*command).code == 1
    with served(memlog.data_dir) as server:
        server.send_call("read_graph")
        answer = server.read()
        assert answer is not None
        assert log.parent.name in str(answer)
    assert [each.name for each in (memlog.data_dir / "projects").iterdir()] == [log.parent.name]
    shutil.copy(tmp_path / "kept.mdb", log)  # it is found again
    assert memlog("verify").code == 0
    assert lines_of(memlog("export").stdout) == LINES


@pytest.mark.parametrize("way", WAYS)
def test_a_project_without_its_log_is_restored_or_deleted(
    memlog: CommandLine, tmp_path: Path, way: str
) -> None:
    project_id = lose(memlog.data_dir, way).parent.name
    shutil.copytree(memlog.data_dir, tmp_path / "another")
    back = memlog("restore", tmp_path / "backup", project_id, "--replace")
    assert (back.code, "What was there is in" in back.stdout) == (0, True)
    assert lines_of(memlog("export").stdout) == LINES
    assert memlog("verify").code == 0
    another = CommandLine(tmp_path / "another")
    name = project_id if way == "the catalogue, too" else "default"
    assert another("projects", "delete", name, "--yes").code == 0
    assert another("verify").stdout == "There are no projects yet.\n"
    assert another("import", tmp_path / "before.jsonl").code == 0


def test_an_archived_project_without_its_log_stays_archived(memlog: CommandLine) -> None:
    assert memlog("projects", "archive", "default").code == 0
    lose(memlog.data_dir, "the catalogue, too")
    assert memlog("verify").code == 1
    assert [row["status"] for row in memlog("projects", "--json").json] == ["archived"]


def test_nothing_is_written_to_a_log_that_is_gone_while_it_is_open(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    row = store.create("one")
    store.project("one").execute(StoreMemory(content="kept"), Context(), lambda _: None)
    store.close()
    store = Store(tmp_path / "data")
    assert store.project("one").head() == 2
    log = store.file(row.id)
    log.rename(tmp_path / "elsewhere")
    with pytest.raises(DamagedLog, match="is gone"):
        store.project("one")
    (tmp_path / "elsewhere").rename(log)
    assert store.project("one").head() == 2


def test_a_project_that_is_left_out_for_its_name_is_told_by_whoever_looks_after_it(
    memlog: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = holding_lines(tmp_path / "other")
    (folder,) = (other.data_dir / "projects").iterdir()
    shutil.copytree(folder, memlog.data_dir / "projects" / folder.name)
    for command in ("verify", "doctor"):
        told = memlog(command)
        assert told.code == 1
        assert f"{folder.name} is left out" in told.stdout
        assert "is called 'default', too" in told.stdout
        assert folder.name in memlog(command, "--json").stdout
    assert memlog("verify", "default").code == 0


def test_a_folder_that_somebody_renamed_is_told_by_whoever_looks_after_it(
    memlog: CommandLine,
) -> None:
    (folder,) = (memlog.data_dir / "projects").iterdir()
    renamed = folder.rename(folder.with_name("my project"))
    for command in ("verify", "doctor"):
        told = memlog(command)
        assert told.code == 1
        assert "'my project' in `projects` is left out" in told.stdout
        assert "my project" in memlog(command, "--json").stdout
    renamed.rename(folder)
    assert memlog("verify").stdout.startswith("default: ")
    assert memlog("doctor").code == 0


def test_what_is_left_of_a_deleted_project_or_of_one_being_made_is_no_damage(
    tmp_path: Path,
) -> None:
    """An index that another process wrote after the project was gone, and a lock that is there before the log."""
    memlog = holding_lines(tmp_path)
    home = next(memlog.data_dir.rglob(LOG_FILE)).parent
    assert memlog("projects", "delete", "default", "--yes").code == 0
    (home / "text-v6").mkdir(parents=True)
    being_made = home.with_name("prj_01h455vb4pex5vsknk084sn02q")
    being_made.mkdir()
    (being_made / f"{LOG_FILE}-lock").touch()
    for catalog in ("as it was", "begun anew"):
        if catalog == "begun anew":
            os.unlink(memlog.data_dir / "catalog.mdb")
        told = memlog("verify")
        assert (told.code, told.stdout) == (0, "There are no projects yet.\n")


def test_a_folder_whose_archived_log_stands_elsewhere_is_no_damage(memlog: CommandLine) -> None:
    """An index that another process wrote after the project was archived."""
    home = next(memlog.data_dir.rglob(LOG_FILE)).parent
    assert memlog("projects", "archive", "default").code == 0
    (home / "text-v6").mkdir(parents=True)
    (memlog.data_dir / "catalog.mdb").unlink()
    assert memlog("verify").code == 0


def test_what_was_put_aside_stays_there_where_the_folder_of_a_project_is_taken_away(
    memlog: CommandLine, tmp_path: Path
) -> None:
    log = lose(memlog.data_dir)
    log.write_bytes(b"damaged")
    assert memlog("restore", "--replace", tmp_path / "backup").code == 0
    aside = {*(memlog.data_dir / "replaced").rglob(LOG_FILE)}
    assert [each.read_bytes() for each in aside] == [b"damaged"]
    shutil.rmtree(log.parent)
    assert memlog("projects").code == 0
    assert {*(memlog.data_dir / "replaced").rglob(LOG_FILE)} == aside
    assert not list((memlog.data_dir / "projects").iterdir())


CONFLICTS = [
    "log.sync-conflict-20261128-192240-7LWDFDY.mdb",
    "log (laptop's conflicted copy 2026-11-28).mdb",
    "log.mdb..path1",
]
"""As Syncthing, Dropbox and rclone call what one of two machines wrote where both did."""


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_log_that_a_program_put_aside_for_another_is_told_by_whoever_looks_after_it(
    memlog: CommandLine, name: str
) -> None:
    log = next(memlog.data_dir.rglob(LOG_FILE))
    copy = log.with_name(name)
    shutil.copy(log, copy)
    (log.parent / ".syncthing.log.mdb.tmp").write_bytes(log.read_bytes())
    (log.parent / "log (1).txt").write_text("what somebody noted")
    for command in ("verify", "doctor"):
        told = memlog(command)
        assert told.code == 1
        assert told.stdout.count("has a log that is left out") == 1
        assert name in told.stdout
        assert f"{log.parent.name}/{name}" in memlog(command, "--json").stdout
    copy.unlink()
    assert memlog("verify").code == memlog("doctor").code == 0


@pytest.mark.parametrize("way", WAYS)
def test_where_only_copies_of_a_log_are_left_the_advice_is_to_go_on_with_one_of_them(
    memlog: CommandLine, tmp_path: Path, way: str
) -> None:
    """So rclone and git-annex leave it where both machines wrote: neither file keeps the name."""
    log = lose(memlog.data_dir, way)
    for beside in log.parent.glob(f"{LOG_FILE}*"):
        beside.unlink()
    copy = log.with_name("log.mdb..path2")
    shutil.copy(tmp_path / "kept.mdb", copy)
    for command in ("verify", "doctor"):
        told = memlog(command)
        assert told.code == 1
        assert f"a copy stands there, '{copy.name}'" in told.stdout
        assert "projects delete" not in told.stdout
    with served(memlog.data_dir) as server, pytest.raises(Refused, match="STORAGE_ERROR"):
        server("create_entities", entities=[{"name": "new", "entityType": "Thing"}])
    copy.rename(log)
    assert memlog("verify").code == 0
    assert lines_of(memlog("export").stdout) == LINES
