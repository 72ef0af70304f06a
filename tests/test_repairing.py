"""Without a backup: what is whole of a damaged log takes its place, and nothing is removed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import lmdb
import msgspec
import pytest
from hypothesis import Phase, example, given, settings

from memlog import codec
from memlog.backup import back_up, restore
from memlog.commands import CreateEntities, NewEntity, StoreMemory
from memlog.context import Context
from memlog.damage import noted
from memlog.errors import Conflict, DamagedLog, ProjectNotFound, StorageError
from memlog.log import Damage
from memlog.project import LOG_FILE, Origin, Project
from memlog.purging import Target
from memlog.repairing import Repair, repair
from memlog.store import Store
from memlog.tables import place
from memlog.verifying import verify_file
from tests.command_line import CommandLine, holding_lines
from tests.served import run_memlog, served
from tests.service import Refused
from tests.simulated_faults import Fault, dies
from tests.test_damage import PAGE, cut, damaged, flips, wiped

ENTITIES = 60


def remember(project: Project, name: str, *facts: str) -> None:
    entity = NewEntity(name=name, entity_type="thing", observations=list(facts))
    project.execute(CreateEntities(entities=[entity]), Context(), lambda _: None)


def fact(number: int) -> str:
    return f"fact {number} " + "x" * (number * 37 % 3_000)


class Sound:
    """A data directory with one project, some of whose entries were erased, and what its log told at each
    position."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = Store(folder)
        self.id = store.create("default").id
        for number in range(ENTITIES):
            remember(store.project("default"), f"n{number}", fact(number))
            if number == ENTITIES // 2:
                store.purge("default", Target(("n7", "n8"), ()))
        project = store.project("default")
        self.generation = project.generation
        with project.snapshot() as (log, state_at):
            self.stored = dict(log.stored())
            self.times = [each.time_us for each in log.read()]
            self.names = [
                {each.name for each in state_at(position).entities()}
                for position in range(len(self.stored) + 1)
            ]
        self.head = len(self.stored)
        store.close()
        self.file = folder / "projects" / self.id / LOG_FILE
        self.bytes = self.file.read_bytes()

    def damaged(self, data: bytes, folder: Path) -> Path:
        """The log of a copy of the data directory, with this in it."""
        shutil.rmtree(folder / "projects", ignore_errors=True)
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        file = folder / self.file.relative_to(self.folder)
        file.write_bytes(data)
        return file

    def changed(self, position: int, offset: int = codec.CHAIN_END + 5) -> bytes:
        """The file with one bit flipped in what is stored at a position."""
        data = bytearray(self.bytes)
        at = data.index(self.stored[position])
        data[at + offset] ^= 4
        return bytes(data)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    return Sound(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("damaged")
    yield made
    shutil.rmtree(made)


def assert_goes_on(data_dir: Path, sound: Sound, done: Repair) -> None:
    """The project is what it was at the position that was kept, and takes writes."""
    store = Store(data_dir)
    (row,) = store.projects("all")
    project = store.project("default")
    assert (row.id, row.status, project.damage) == (sound.id, "active", None)
    assert list(project.verify()) == list(range(1, done.position + 1))
    with project.read() as state:
        assert {each.name for each in state.entities()} == sound.names[done.position]
    assert project.digest() == project.digest_rebuilt()
    remember(project, "what came after")
    assert project.head() == done.position + 1
    store.close()
    file = data_dir / sound.file.relative_to(sound.folder)
    assert not [each for each in verify_file(file) if isinstance(each, Damage)]


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.generate])
@example(flips=None, cut=-PAGE, wiped=None)
@example(flips=None, cut=None, wiped=(0, b"\0"))
@example(flips=None, cut=None, wiped=(1, b"\xff"))
@example(flips=[(70_000, 3)], cut=None, wiped=None)
@given(flips=flips, cut=cut, wiped=wiped)
def test_whatever_the_damage_what_is_whole_goes_on_and_the_rest_is_told(
    sound: Sound,
    tmp_path_factory: pytest.TempPathFactory,
    flips: Any,
    cut: Any,
    wiped: Any,
) -> None:
    data_dir = tmp_path_factory.mktemp("damaged")
    data = damaged(sound.bytes, flips, cut, wiped)
    file = sound.damaged(data, data_dir)
    damages = [each for each in verify_file(file) if isinstance(each, Damage)]
    store = Store(data_dir)
    try:
        done = repair(store, "default")
    except (Conflict, DamagedLog) as refused:
        assert isinstance(refused, Conflict) != bool(damages)
        assert file.read_bytes() == data
        return
    finally:
        store.close()
        if not damages:
            shutil.rmtree(data_dir)
    assert damages
    assert done.position >= damages[0].position - 1
    assert done.aside is not None
    assert (Path(done.aside) / LOG_FILE).read_bytes() == data
    if not flips:
        assert done.time_us == sound.times[done.position - 1]
        assert done.position <= done.lost.position <= sound.head
        assert not done.lost.all or done.lost.position == sound.head
        assert done.lost.time_us in (None, *sound.times[done.position :])
    assert_goes_on(data_dir, sound, done)
    shutil.rmtree(data_dir)


def test_a_flipped_bit_costs_what_came_after_it_and_all_of_that_is_told(
    sound: Sound, folder: Path
) -> None:
    sound.damaged(sound.changed(40), folder)
    store = Store(folder)
    told = repair(store, "default", rehearse=True)
    assert (told.position, told.time_us) == (39, sound.times[38])
    assert (told.lost.position, told.lost.all) == (sound.head, True)
    assert told.lost.time_us == sound.times[-1]
    assert told.problem == "position 40: its content does not match the chain of hashes"
    assert told.aside is None and not (folder / "replaced").exists()
    done = repair(store, "default")
    assert store.project("default").generation == sound.generation + 1
    store.close()
    assert msgspec.structs.replace(done, aside=None) == told
    assert_goes_on(folder, sound, done)


@pytest.mark.parametrize(
    "offset", [0, codec.DIGEST_END], ids=["its kind", "the time of one that was erased"]
)
def test_what_the_chain_does_not_cover_is_mended_and_costs_nothing(
    sound: Sound, folder: Path, offset: int
) -> None:
    erased = [at for at, value in sound.stored.items() if value[0] == codec.ERASED]
    position = erased[0] if offset else 40
    sound.damaged(sound.changed(position, offset), folder)
    store = Store(folder)
    done = repair(store, "default")
    store.close()
    assert (done.position, done.lost.position, done.lost.all) == (sound.head, sound.head, True)
    assert_goes_on(folder, sound, done)


def test_nothing_is_changed_where_there_is_nothing_to_repair_or_nothing_left(
    sound: Sound, folder: Path
) -> None:
    file = sound.damaged(sound.bytes, folder)
    store = Store(folder)
    with pytest.raises(Conflict, match="is not damaged"):
        repair(store, "default")
    with pytest.raises(ProjectNotFound, match="defualt"):
        repair(store, "defualt")
    store.close()
    for data in (b"", sound.bytes[:100], sound.changed(1)):
        file.write_bytes(data)
        store = Store(folder)
        with pytest.raises(DamagedLog, match="not whole from its first entry on") as refused:
            repair(store, "default")
        assert "memlog repair" not in str(refused.value.suggestion)
        assert [row.name for row in store.projects()] == ["default"]
        assert file.read_bytes() == data
        store.close()
    assert not (folder / "replaced").exists()


def test_an_entry_of_a_newer_memlog_is_not_thrown_away(tmp_path: Path) -> None:
    """The chain proves it: this memlog is too old to read it."""
    store = Store(tmp_path)
    store.create("default")
    remember(store.project("default"), "n")
    file = store.project("default").folder / LOG_FILE
    with store.project("default").stored() as (log, _):
        before = log.chain_at(log.position())
        position = log.position() + 1
    store.close()
    body = msgspec.msgpack.encode([2**50, "cmd", None, None, {"type": "dreamt.v1"}])
    link = codec.chain(before, position, codec.digest(b"\0" * codec.CHAIN_END + body))
    with (
        lmdb.open(str(file), subdir=False, max_dbs=5) as environment,
        environment.begin(write=True) as transaction,
    ):
        value = bytes([codec.WRITTEN]) + link + body
        transaction.put(place(position), value, db=environment.open_db(b"log", transaction))
    data = file.read_bytes()
    store = Store(tmp_path)
    with pytest.raises(StorageError, match="cannot be read") as refused:
        repair(store, "default")
    assert "newer memlog" in str(refused.value.suggestion)
    store.close()
    assert file.read_bytes() == data


def test_wherever_it_crashes_the_project_is_there_and_the_next_repair_goes_well(
    sound: Sound, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = sound.changed(40)
    folder = tmp_path_factory.mktemp("crashed")
    seen = set()
    for at in count():
        shutil.rmtree(folder)
        sound.damaged(data, folder)
        if not dies(lambda: repair(Store(folder), "default"), Fault("crash", at, "before")):
            break
        store = Store(folder)
        assert [row.name for row in store.projects()] == ["default"]
        project = store.project("default")
        seen.add(project.damage is None)
        if project.head() > 39:
            repair(store, "default")
        store.close()
        asides = [path.read_bytes() for path in (folder / "replaced").glob(f"*/{LOG_FILE}")]
        assert asides == [data]
        store = Store(folder)
        project = store.project("default")
        assert list(project.verify()) == list(range(1, 40))
        assert project.digest() == project.digest_rebuilt()
        remember(project, "what came after")
        assert [row.name for row in store.projects("all")] == ["default"]
        store.close()
    assert seen == {True, False}


def test_a_command_is_neither_done_twice_nor_answered_as_if_its_entries_were_there(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    store.create("default")
    project = store.project("default")
    commands = {name: StoreMemory(content=name) for name in ("kept", "xyzzy")}
    for name, command in commands.items():
        project.execute(command, Context(), lambda _: "told", Origin(f"of {name}"))
    file = project.folder / LOG_FILE
    store.close()
    file.write_bytes(file.read_bytes().replace(b"xyzzy", b"xyzzz"))
    store = Store(tmp_path)
    assert repair(store, "default").position == 2
    project = store.project("default")
    for name, command in commands.items():
        with pytest.raises(Conflict, match="was used before"):
            project.execute(command, Context(), lambda _: "anew", Origin(f"of {name}"))
    project.execute(commands["xyzzy"], Context(), lambda _: "anew", Origin("a fresh one"))
    assert project.head() == 3
    store.close()


def test_a_backup_that_has_more_is_not_cut_to_what_was_repaired(sound: Sound, folder: Path) -> None:
    sound.damaged(sound.bytes, folder)
    store = Store(folder)
    back_up(store, folder / "backup")
    store.close()
    sound.damaged(sound.changed(40), folder)
    store = Store(folder)
    repair(store, "default")
    with pytest.raises(Conflict, match=f"reaches to position {sound.head}; the project ends at 39"):
        back_up(store, folder / "backup")
    remember(store.project("default"), "what came after")
    (back,) = restore(store, folder / "backup", replace=True)
    assert (back.how, back.position) == ("replaced", sound.head)
    store.close()


def test_an_archived_project_stays_archived_where_its_log_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    project_id = store.create("old").id
    for number in range(3):
        remember(store.project("old"), f"n{number}", fact(number))
    store.archive("old")
    store.restore("old")
    remember(store.project("old"), "xyzzy")
    store.archive("old")
    store.close()
    file = tmp_path / "archive" / project_id / LOG_FILE
    file.write_bytes(file.read_bytes().replace(b"xyzzy", b"xyzzz"))
    store = Store(tmp_path)
    repair(store, "old")
    assert [row.status for row in store.projects("all")] == ["active"]
    assert (tmp_path / "projects" / project_id / LOG_FILE).exists()
    store.close()


def test_a_damage_met_in_a_log_that_was_replaced_meanwhile_is_not_noted_beside_the_new_one(
    tmp_path: Path,
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    held = Project(log.parent)
    with pytest.raises(DamagedLog), held.snapshot() as (entries, _):
        assert memlog("repair", "default", "--yes").code == 0
        with served(tmp_path / "data") as server:
            for number in range(20):  # commits that the snapshot is before
                server("store_memory", content=f"a new fact {number}")
        list(entries.read())
    held.close()
    assert noted(str(log)) is None
    assert memlog("verify").code == 0


def test_who_waits_while_a_log_is_repaired_that_was_cut_under_it_reads_the_repaired_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    store = Store(tmp_path / "data")
    project = store.project("default")
    os.truncate(log, log.stat().st_size - PAGE)
    with pytest.raises(StorageError, match="cut"):
        project.head()
    lock = store._lock

    def waited() -> Any:
        monkeypatch.undo()
        ended = run_memlog("repair", "default", "--yes", data_dir=tmp_path / "data")
        assert ended.returncode == 0, ended.stderr
        return lock()

    monkeypatch.setattr(store, "_lock", waited)
    remember(store.project("default"), "what came after")
    store.close()


# -- on the command line, and beside a server


def test_a_server_goes_on_with_the_repaired_log_without_a_restart(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
        server("store_memory", content="what came after")
        assert len(server("search_memories", query="said")["memories"]) == 1
        log.write_bytes(log.read_bytes().replace(b"xyzzy", b"xyzzz"))
        ended = memlog("repair", "default", "--yes")
        assert ended.code == 0, ended.stderr
        assert "Kept: positions 1 to 9," in ended.stdout
        assert "Lost: positions 10 to 11, the last of" in ended.stdout
        assert server("list_recent_memories")["memories"] == []
        assert len(server("read_graph")["entities"]) == 3
        server("store_memory", content="said again")
        found = server("search_memories", query="said")["memories"]
        assert [each["content"] for each in found] == ["said again"]
    for check in (["verify"], ["doctor"], ["replay", "--check"]):
        ended = memlog(*check)
        assert ended.code == 0, ended.stdout + ended.stderr
    (aside,) = (tmp_path / "data" / "replaced").glob(f"*/{LOG_FILE}")
    assert b"what came after" in aside.read_bytes()
    assert not list((tmp_path / "data").glob("salvaged/*"))


def test_a_server_on_a_cut_log_writes_again_after_the_repair_it_named(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    with served(tmp_path / "data") as server:
        with pytest.raises(Refused, match="whole up to position") as refused:
            server("store_memory", content="a new fact")
        assert "`memlog repair PROJECT`" in refused.value.error["suggestion"]
        assert "`memlog repair PROJECT`" in memlog("doctor").stdout
        assert "memlog repair 'default'" in memlog("verify").stdout
        assert memlog("repair", "default", "--yes").code == 0
        server("store_memory", content="a new fact")
        assert server("read_graph")["entities"][0]["name"] == "Jon"
    assert memlog("verify").code == 0
    assert not list((tmp_path / "data").glob("salvaged/*"))


def test_the_command_tells_asks_and_changes_nothing_on_no(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    data = log.read_bytes()
    for answer in ("n\n", ""):
        ended = memlog("repair", "default", stdin=answer)
        assert ended.code == 1
        assert "Lost: positions " in ended.stdout
        assert "Go on with what is kept?" in ended.stderr
    told = memlog("repair", "default", "--json")
    assert (told.code, told.json["aside"]) == (1, None)
    assert "--yes" in told.stderr
    assert log.read_bytes() == data and not (tmp_path / "data" / "replaced").exists()
    done = memlog("repair", "default", "--json", "--yes")
    assert (done.code, done.stderr) == (0, "")
    aside = done.json["aside"]
    assert done.json == {**told.json, "aside": aside}
    assert (Path(aside) / LOG_FILE).read_bytes() == data
    kept, lost = done.json["kept"]["position"], done.json["lost"]["entries"]
    assert (kept + lost, done.json["lost"]["all"]) == (9, True)
    again = memlog("repair", "default", "--yes")
    assert (again.code, again.stdout) == (1, "")
    assert "is not damaged" in again.stderr


def test_what_the_graph_still_tells_of_the_lost_part_can_be_kept(tmp_path: Path) -> None:
    """A bit of an entry says nothing of the state, which was evolved from what was written."""
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    entry = re.compile(rb"(observation_added\.v1.{1,120}was a b)anker", re.DOTALL)
    log.write_bytes(entry.sub(rb"\1unker", log.read_bytes()))
    before = memlog("export").stdout
    assert memlog("export", tmp_path / "still.jsonl").code == 0
    assert memlog("repair", "default", "--yes").code == 0
    assert memlog("export").stdout != before
    assert memlog("import", tmp_path / "still.jsonl").code == 0
    assert sorted(memlog("export").stdout.splitlines()) == sorted(before.splitlines())
