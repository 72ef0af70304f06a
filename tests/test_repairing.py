"""Without a backup: what is whole of a damaged log takes its place, and nothing is removed."""

from __future__ import annotations

import os
import re
import shlex
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
from memlog.commands import (
    AddObservations,
    CreateEntities,
    EntityObservations,
    NewEntity,
    StoreMemory,
)
from memlog.context import Context
from memlog.copies.backup import back_up
from memlog.copies.taking_in import restore
from memlog.errors import Conflict, DamagedLog, InvalidParameter, ProjectNotFound, StorageError
from memlog.events import EntityCreated, Erased, ObservationAdded
from memlog.log import Damage
from memlog.projects.meta import STATE_VERSION
from memlog.projects.project import LOG_FILE, Origin, Project
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.repair.damage import noted
from memlog.repair.mending import Changed
from memlog.repair.repairing import Repair, repair
from memlog.repair.verifying import verify_file
from memlog.storage.pages import HEADER, Pages
from memlog.storage.tables import place
from tests.command_line import LINES, ODD, CommandLine, holding_lines, written
from tests.damaged import overwrite
from tests.served import run_memlog, served
from tests.service import Refused
from tests.simulated_faults import Fault, dies
from tests.test_damage import PAGE, cut, damaged, flips, wiped
from tests.whole_state import flaws

ENTITIES = 60


def remember(project: Project, name: str, *facts: str) -> None:
    entity = NewEntity(name=name, entity_type="thing", observations=list(facts))
    project.execute(CreateEntities(entities=[entity]), Context(), lambda _: None)


def fact(number: int) -> str:
    return f"fact {number} " + "x" * (number * 37 % 3_000)


def garbled(value: bytes) -> bytes:
    """An entry as it is stored, with nothing to be read in it but its chain."""
    return value[: codec.CHAIN_END] + b"\xc1" * (len(value) - codec.CHAIN_END)


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
            self.events = [each.event for each in log.read()]
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
        """The file with one bit flipped in what is stored at a position, wherever it stands."""
        value = bytearray(self.stored[position])
        value[offset] ^= 4
        return self.bytes.replace(self.stored[position], bytes(value))

    def without(self, *positions: int) -> bytes:
        """The file with nothing to be read in what is stored at these positions but the chain."""
        data = self.bytes
        for position in positions:
            data = data.replace(self.stored[position], garbled(self.stored[position]))
        return data


def untold(data: bytes) -> bytes:
    """A file whose tables nobody can read: they are of an earlier version."""
    version = b"state_version" + STATE_VERSION.to_bytes(2, "big")
    assert version in data
    return data.replace(version, b"state_version\0\0")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    return Sound(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("damaged")
    yield made
    shutil.rmtree(made)


def assert_goes_on(data_dir: Path, sound: Sound, done: Repair, *, exact: bool = True) -> None:
    """The project is what it was at the position that was kept, but for what the repair told, and takes writes.

    Not `exact` are tables that may be damaged themselves.
    """
    store = Store(data_dir)
    (row,) = store.projects("all")
    project = store.project("default")
    assert (row.id, row.status, project.damage) == (sound.id, "active", None)
    assert list(project.verify()) == list(range(1, done.position + 1))
    changed = done.changed
    with project.snapshot() as (log, state_at):
        for entry in log.read():
            if entry.position in (*changed.lost, *changed.unfit):
                assert entry.event == Erased(lost=True)
            elif entry.position not in changed.stood_in and (
                exact or entry.position not in changed.retold
            ):
                assert entry.event == sound.events[entry.position - 1]
        if exact and not (changed.lost or changed.unfit or changed.stood_in):
            names = {each.name for each in state_at(done.position).entities()}
            assert names == sound.names[done.position]
        assert flaws(state_at(done.position)) == []
    assert project.is_as_rebuilt()
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
        if not done.changed.lost:
            assert done.time_us == sound.times[done.position - 1]
        assert done.position <= done.lost.position <= sound.head
        assert not done.lost.all or done.lost.position == sound.head
        assert done.lost.time_us in (None, *sound.times[done.position :])
    assert_goes_on(data_dir, sound, done, exact=not flips)
    shutil.rmtree(data_dir)


@pytest.mark.parametrize("data", ["one bit", "the chain", "all of it", "all of its command"])
def test_a_damaged_entry_costs_nothing_where_the_chain_or_the_tables_know_it(
    sound: Sound, folder: Path, data: str
) -> None:
    damages = {
        "one bit": untold(sound.changed(40)),
        "the chain": untold(sound.changed(40, offset=7)),
        "all of it": sound.without(40),
        "all of its command": sound.without(40, 41),
    }
    sound.damaged(damages[data], folder)
    store = Store(folder)
    told = repair(store, "default", rehearse=True)
    assert (told.position, told.time_us) == (sound.head, sound.times[-1])
    assert (told.lost.position, told.lost.all) == (sound.head, True)
    assert told.problem == "position 40: its content does not match the chain of hashes"
    assert told.changed == Changed(retold=(40, 41) if data == "all of its command" else ())
    assert told.aside is None and not (folder / "replaced").exists()
    done = repair(store, "default")
    project = store.project("default")
    assert project.generation == sound.generation + 1
    with project.snapshot() as (log, _):
        assert [each.event for each in log.read()] == sound.events
        assert [each.time_us for each in log.read()] == sound.times
    store.close()
    assert msgspec.structs.replace(done, aside=None) == told
    assert_goes_on(folder, sound, done)


def test_what_nobody_knows_is_lost_alone_and_what_speaks_of_it_set_aside(
    sound: Sound, folder: Path
) -> None:
    """Of each entity its creation and one fact, a position each."""
    creations = [at for at, each in enumerate(sound.events, 1) if isinstance(each, EntityCreated)]
    creation, fact_of_another = creations[10], creations[20] + 1
    sound.damaged(untold(sound.without(creation, fact_of_another)), folder)
    store = Store(folder)
    done = repair(store, "default")
    assert done.changed == Changed(stood_in=(creation,), lost=(fact_of_another,))
    with store.project("default").read() as state:
        created = sound.events[creation - 1]
        assert isinstance(created, EntityCreated)
        entity = state.entity(created.entity_id)
        assert entity is not None and entity.name == f"lost {created.entity_id}"
        (kept,) = state.observations(entity.id)
        said = sound.events[creation]
        assert isinstance(said, ObservationAdded) and kept.content == said.content
    store.close()
    assert_goes_on(folder, sound, done)


def test_what_was_lost_is_put_back_when_a_backup_turns_up(sound: Sound, folder: Path) -> None:
    sound.damaged(sound.bytes, folder)
    store = Store(folder)
    back_up(store, folder / "backup")
    store.close()
    creation = 1 + [isinstance(each, EntityCreated) for each in sound.events].index(True)
    sound.damaged(untold(sound.without(creation, 41, sound.head)), folder)
    store = Store(folder)
    done = repair(store, "default")
    assert (done.position, done.changed.stood_in) == (sound.head - 1, (creation,))
    remember(store.project("default"), "what came after")
    with pytest.raises(Conflict, match=f"has 2 entries that its log lost .* position {creation}$"):
        back_up(store, folder / "backup")
    with pytest.raises(InvalidParameter, match="has no copy of project 'default'"):
        repair(store, "default", backup=folder)
    told = repair(store, "default", backup=folder / "backup", rehearse=True)
    remember(store.project("default"), "a rehearsal stops nobody")
    done = repair(store, "default", backup=folder / "backup")
    assert told.changed == done.changed == Changed()
    with store.project("default").snapshot() as (log, state_at):
        events = [each.event for each in log.read()]
        assert events[: sound.head - 1] == sound.events[:-1]
        assert state_at(log.position()).entity_named("a rehearsal stops nobody") is not None
    with pytest.raises(Conflict, match="is not damaged"):
        repair(store, "default", backup=folder / "backup")
    store.close()


def test_a_backup_from_the_midst_of_what_was_lost_puts_back_what_it_has(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.create("default")
    remember(store.project("default"), "Jon")
    back_up(store, tmp_path / "backup")
    for content in ("is lost", "is kept", "is kept too"):
        facts = [EntityObservations(entity_name="Jon", contents=[content])]
        add = AddObservations(observations=facts)
        store.project("default").execute(add, Context(), lambda _: None)
    with store.project("default").snapshot() as (log, _):
        stored = dict(log.stored())
    file = store.project("default").folder / LOG_FILE
    store.close()
    data = untold(file.read_bytes())
    for value in (stored[2], stored[3]):
        data = data.replace(value, garbled(value))
    file.write_bytes(data)
    store = Store(tmp_path / "data")
    assert repair(store, "default").changed == Changed(stood_in=(3,), lost=(2,))
    done = repair(store, "default", backup=tmp_path / "backup")
    assert done.changed == Changed(unfit=(3,))
    with store.project("default").read() as state:
        (jon,) = state.entities()
        assert (jon.name, state.entity_named("Jon")) == ("Jon", jon)
        assert [each.content for each in state.said(jon.id)] == ["is kept", "is kept too"]
    with pytest.raises(Conflict, match="is not damaged"):
        repair(store, "default", backup=tmp_path / "backup")
    store.close()


def test_what_was_purged_does_not_come_back_from_an_older_backup(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.create("default")
    for name in ("secret", "known", "later"):
        remember(store.project("default"), name, f"a fact about {name}")
    back_up(store, tmp_path / "backup")
    store.purge("default", Target(("secret",), ()))
    with store.project("default").snapshot() as (log, _):
        stored = dict(log.stored())
    file = store.project("default").folder / LOG_FILE
    store.close()
    whole = file.read_bytes()
    for position in (4, 2):  # an entry that was kept, and one that was erased
        value = stored[position]
        file.write_bytes(untold(whole).replace(value, garbled(value)))
        store = Store(tmp_path / "data")
        with pytest.raises(Conflict, match="older than the last purge"):
            repair(store, "default", backup=tmp_path / "backup")
        store.close()
    store = Store(tmp_path / "data")
    repair(store, "default")
    assert b"secret" not in (tmp_path / file.relative_to(tmp_path)).read_bytes()
    store.close()


def test_a_backup_gives_what_a_damage_took_at_once(sound: Sound, folder: Path) -> None:
    sound.damaged(sound.bytes, folder)
    store = Store(folder)
    back_up(store, folder / "backup")
    store.close()
    for data in (untold(sound.without(3, 40, sound.head)), b"", sound.bytes[:100]):
        sound.damaged(data, folder)
        store = Store(folder)
        done = repair(store, "default", backup=folder / "backup")
        assert (done.position, done.changed) == (sound.head, Changed())
        assert store.project("default").generation == sound.generation + 1
        back_up(store, folder / "another")
        shutil.rmtree(folder / "another")
        store.close()
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


@pytest.mark.parametrize("wrong", [1, 8, 32])
def test_one_wrong_bit_in_the_length_of_what_was_erased_costs_nothing(
    sound: Sound, folder: Path, wrong: int
) -> None:
    position = next(at for at, value in sound.stored.items() if value[0] == codec.ERASED)
    value = sound.stored[position]
    said, other = (each.to_bytes(2, "little") for each in (len(value), len(value) ^ wrong))
    behind = b"\0\0\0\0\x08\0" + place(position) + value
    assert said + behind in sound.bytes
    sound.damaged(sound.bytes.replace(said + behind, other + behind), folder)
    store = Store(folder)
    with store.project("default").snapshot() as (log, _):  # meanwhile what is whole is served
        assert [each.event for each in log.read()] == sound.events
    done = repair(store, "default")
    store.close()
    assert (done.position, done.lost.position, done.lost.all) == (sound.head, sound.head, True)
    assert done.changed == Changed()
    assert_goes_on(folder, sound, done)


@pytest.mark.parametrize("bit", [0, 4, 15])
def test_one_wrong_bit_in_the_size_of_a_page_costs_nothing(
    sound: Sound, folder: Path, bit: int
) -> None:
    pages = Pages(sound.file)
    newest = pages.transaction % 2 * PAGE + HEADER.size + 24
    pages.close()
    size, wrong = (each.to_bytes(4, "little") for each in (PAGE, PAGE ^ 1 << bit))
    assert sound.bytes.startswith(size, newest)
    sound.damaged(sound.bytes[:newest] + wrong + sound.bytes[newest + len(wrong) :], folder)
    store = Store(folder)
    done = repair(store, "default")
    store.close()
    assert (done.position, done.lost.all) == (sound.head, False)
    assert_goes_on(folder, sound, done)


@pytest.mark.parametrize("wiped", [b"\0", b"\xff"])
def test_what_stands_behind_the_pages_that_say_where_all_is_costs_nothing_with_both_gone(
    sound: Sound, folder: Path, wiped: bytes
) -> None:
    sound.damaged(wiped * 2 * PAGE + sound.bytes[2 * PAGE :], folder)
    store = Store(folder)
    done = repair(store, "default")
    store.close()
    assert (done.position, done.lost.all) == (sound.head, False)
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
    for data in (b"", sound.bytes[:100], sound.without(*sound.stored)):
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
    data = untold(sound.without(40))
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
        if project.damage is not None:
            repair(store, "default")
        store.close()
        asides = [path.read_bytes() for path in (folder / "replaced").glob(f"*/{LOG_FILE}")]
        assert asides == [data]
        store = Store(folder)
        project = store.project("default")
        assert list(project.verify()) == list(range(1, sound.head + 1))
        assert project.is_as_rebuilt()
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
    file.write_bytes(untold(file.read_bytes()).replace(b"xyzzy", b"\xc1" * 5))
    store = Store(tmp_path)
    assert repair(store, "default").position == 2
    project = store.project("default")
    for name, command in commands.items():
        with pytest.raises(Conflict, match="was used before"):
            project.execute(command, Context(), lambda _: "anew", Origin(f"of {name}"))
    project.execute(commands["xyzzy"], Context(), lambda _: "anew", Origin("a fresh one"))
    assert project.head() == 3
    store.close()


def test_a_command_is_not_done_twice_where_the_way_to_the_receipts_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("default")
    project = store.project("default")
    command = StoreMemory(content="kept")
    project.execute(command, Context(), lambda _: "told", Origin("once"))
    file = project.folder / LOG_FILE
    store.close()
    overwrite(file, b"\0" * 2 * PAGE + file.read_bytes()[2 * PAGE :])
    store = Store(tmp_path)
    repair(store, "default")
    with pytest.raises(Conflict, match="was used before"):
        store.project("default").execute(command, Context(), lambda _: "told", Origin("once"))
    store.close()


def test_a_backup_that_has_more_is_not_cut_to_what_was_repaired(sound: Sound, folder: Path) -> None:
    sound.damaged(sound.bytes, folder)
    store = Store(folder)
    back_up(store, folder / "backup")
    store.close()
    sound.damaged(untold(sound.without(*range(40, sound.head + 1))), folder)
    store = Store(folder)
    repair(store, "default")
    with pytest.raises(Conflict, match=f"reaches to position {sound.head}; the project ends at 39"):
        back_up(store, folder / "backup")
    remember(store.project("default"), "what came after")
    (back,) = restore(store, folder / "backup", replace=True)
    assert (back.how, back.position) == ("replaced", sound.head)
    store.close()


def test_what_a_repair_found_lost_is_not_taken_for_there_when_a_backup_is_restored(
    sound: Sound, folder: Path
) -> None:
    sound.damaged(sound.bytes, folder)
    store = Store(folder)
    back_up(store, folder / "backup")
    store.close()
    sound.damaged(untold(sound.without(41)), folder)
    store = Store(folder)
    repair(store, "default")
    with pytest.raises(Conflict, match=r"damage: 1, the first of position 41$") as refused:
        restore(store, folder / "backup")
    assert "`memlog repair --backup FOLDER default`" in str(refused.value.suggestion)
    (back,) = restore(store, folder / "backup", replace=True)
    assert (back.how, store.project("default").head()) == ("replaced", sound.head)
    (same,) = restore(store, folder / "backup")
    assert (same.how, same.erased) == ("already there", 0)
    store.close()


@pytest.mark.parametrize(("before_last", "status"), [(0, "active"), (1, "archived")])
def test_an_archived_project_stays_archived_where_its_log_says_so(
    tmp_path: Path, before_last: int, status: str
) -> None:
    """What is lost is that it was archived, or that it was restored before."""
    store = Store(tmp_path)
    project_id = store.create("old").id
    for number in range(3):
        remember(store.project("old"), f"n{number}", fact(number))
    store.archive("old")
    store.restore("old")
    store.archive("old")
    with store.by_id(project_id).snapshot() as (log, _):
        value = dict(log.stored())[log.position() - before_last]
    store.close()
    file = tmp_path / "archive" / project_id / LOG_FILE
    file.write_bytes(untold(file.read_bytes()).replace(value, garbled(value)))
    store = Store(tmp_path)
    repair(store, "old")
    assert [row.status for row in store.projects("all")] == [status]
    home = "archive" if status == "archived" else "projects"
    assert (tmp_path / home / project_id / LOG_FILE).exists()
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
    assert noted(log) is None
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
    lock = store._open._excluding_processes

    def waited() -> Any:
        monkeypatch.undo()
        ended = run_memlog("repair", "default", "--yes", data_dir=tmp_path / "data")
        assert ended.returncode == 0, ended.stderr
        return lock()

    monkeypatch.setattr(store._open, "_excluding_processes", waited)
    remember(store.project("default"), "what came after")
    store.close()


# -- on the command line, and beside a server


def test_one_entry_that_is_lost_at_the_end_is_told_as_one(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
        overwrite(log, untold(log.read_bytes()).replace(b"xyzzy", b"\xc1" * 5))
        ended = memlog("repair", "default", "--yes")
    assert ended.code == 0, ended.stderr
    assert "Kept: positions 1 to 9," in ended.stdout
    assert "Lost: position 10" in ended.stdout


def test_what_was_lost_at_the_end_comes_back_with_a_restore_and_the_repair_says_so(
    tmp_path: Path,
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    assert memlog("backup", tmp_path / "before").code == 0
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
        assert memlog("backup", tmp_path / "after").code == 0
        overwrite(log, untold(log.read_bytes()).replace(b"xyzzy", b"\xc1" * 5))
        assert memlog("repair", "default", "--yes").code == 0
        for folder, told in (("before", False), ("after", True)):
            refused = memlog("repair", "default", "--backup", tmp_path / folder, "--yes")
            assert (refused.code, "nothing to repair" in refused.stderr) == (1, True)
            assert ("`memlog restore --replace FOLDER default`" in refused.stderr) is told
        assert memlog("restore", "--replace", tmp_path / "after", "default").code == 0
        (kept,) = server("list_recent_memories")["memories"]
        assert kept["content"] == "xyzzy was said"


def test_a_server_goes_on_with_the_repaired_log_without_a_restart(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
        server("store_memory", content="what came after")
        assert len(server("search_memories", query="said")["memories"]) == 1
        overwrite(log, untold(log.read_bytes()).replace(b"xyzzy", b"\xc1" * 5))
        ended = memlog("repair", "default", "--yes")
        assert ended.code == 0, ended.stderr
        assert "Kept: positions 1 to 11," in ended.stdout
        assert "Lost: position 10\n" in ended.stdout
        (kept,) = server("list_recent_memories")["memories"]
        assert kept["content"] == "what came after"
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
        assert "`memlog repair default`" in refused.value.error["suggestion"]
        assert "`memlog repair default`" in memlog("doctor").stdout
        assert "memlog repair default" in memlog("verify").stdout
        assert memlog("repair", "default", "--yes").code == 0
        server("store_memory", content="a new fact")
        assert server("read_graph")["entities"][0]["name"] == "Jon"
    assert memlog("verify").code == 0
    assert not list((tmp_path / "data").glob("salvaged/*"))


def test_the_command_tells_asks_and_changes_nothing_on_no(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(untold(log.read_bytes()).replace(b"was a banker", b"\xc1" * 12))
    data = log.read_bytes()
    for answer in ("n\n", ""):
        ended = memlog("repair", "default", stdin=answer)
        assert ended.code == 1
        assert "Lost: position 3\n" in ended.stdout
        assert "Is there a backup?" in ended.stdout
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
    kept, lost = done.json["kept"], done.json["lost"]
    assert (kept["entries"] + lost["entries"], kept["position"]) == (9, 9)
    assert (lost["positions"], lost["setAside"], lost["all"]) == ([3], [], True)
    shown = memlog("log").stdout
    assert "what happened here was lost with a damage" in shown
    again = memlog("repair", "default", "--yes")
    assert (again.code, again.stdout) == (1, "")
    assert "is not damaged" in again.stderr


def test_the_command_puts_back_what_a_backup_has(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    before = memlog("export").stdout
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(untold(log.read_bytes()).replace(b"was a banker", b"\xc1" * 12))
    assert memlog("repair", "default", "--yes").code == 0
    assert memlog("export").stdout != before
    refused = memlog("backup", tmp_path / "backup")
    assert refused.code == 1
    advice = f"`memlog repair --backup {tmp_path / 'backup'} default`"
    assert advice in refused.stderr.replace("\n", "")
    ended = memlog("repair", "default", "--backup", tmp_path / "backup", "--yes")
    assert ended.code == 0, ended.stderr
    assert memlog("export").stdout == before
    assert memlog("backup", tmp_path / "backup").code == 0


def test_what_is_written_while_the_command_asks_is_not_set_aside_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    backup = tmp_path / "backup"
    repair_it = ("repair", "default", "--backup", backup)
    with served(tmp_path / "data") as server:
        server("delete_entities", entityNames=[ODD["name"]])
        server("store_memory", content="what came after")
    assert memlog("backup", backup).code == 0
    log = next((tmp_path / "data").rglob(LOG_FILE))
    deleted = re.compile(rb"entity_deleted")
    log.write_bytes(deleted.sub(b"\xc1" * 14, untold(log.read_bytes())))
    assert memlog("repair", "default", "--yes").code == 0
    with served(tmp_path / "data") as server:

        def written_meanwhile(_: str) -> None:
            fact = {"entityName": ODD["name"], "contents": ["it is there, it seems"]}
            server("add_observations", observations=[fact])

        with monkeypatch.context() as asking:
            asking.setattr("server.cli.repair.confirm", written_meanwhile)
            refused = memlog(*repair_it)
        assert (refused.code, "Set aside" in refused.stdout) == (1, False)
        assert refused.stderr == (
            "error: Project 'default' changed meanwhile: 1 entry would be lost or set aside that nobody was told of; "
            "nothing was changed\nhint: Run the command again, and look at what it tells.\n"
        )
        assert "it is there, it seems" in str(server("open_nodes", names=[ODD["name"]]))
        server("store_memory", content="who was refused stops nobody")
    again = memlog(*repair_it, stdin="y\n")
    assert (again.code, "Set aside, for it speaks of what is lost" in again.stdout) == (0, True)


@pytest.mark.parametrize("name", ["it's", "my app", "-x", "--yes", "$HOME"])
def test_what_is_advised_for_a_damaged_log_can_be_copied_into_a_shell(
    tmp_path: Path, name: str
) -> None:
    memlog, backup = CommandLine(tmp_path / "data"), tmp_path / "my backup's"

    def advised(told: str, command: str) -> list[str]:
        """The arguments of the first command that begins so."""
        line = told[told.index(command) :].splitlines()[0].partition("`")[0]
        return shlex.split(line)[1:]

    assert memlog("projects", "create", "--", name).code == 0
    lines = written(tmp_path / "lines.jsonl", LINES)
    assert memlog("import", lines, f"--project={name}").code == 0
    assert memlog("backup", backup).code == 0
    (log,) = (tmp_path / "data" / "projects").rglob(LOG_FILE)
    log.write_bytes(untold(log.read_bytes()).replace(b"was a banker", b"\xc1" * 12))
    repair_it = advised(memlog("verify").stdout, "memlog repair")
    command, *rest = repair_it
    rehearsed = memlog(*repair_it, stdin="n\n").stdout
    exported = advised(rehearsed, "memlog export FILE")
    assert exported == ["export", "FILE", "--project", name]
    assert "Exported 5 lines" in memlog(*exported[:1], tmp_path / "graph", *exported[2:]).stdout
    added = rehearsed[rehearsed.index("`memlog import") + 1 :].partition("`")[0]
    assert shlex.split(added)[1:] == ["import", "FILE", "--project", name]
    assert memlog(command, "--yes", *rest).code == 0
    puts_back = advised(memlog("backup", backup).stderr, "memlog repair")
    assert memlog(puts_back[0], "--yes", *puts_back[1:]).code == 0
    assert memlog("verify").stdout == f"{name}: 9 entries, whole.\n"
    assert memlog("projects", "archive", "--", name).code == 0
    hint = memlog("stats", f"--project={name}").stderr
    assert memlog(*advised(hint, "memlog projects restore")).code == 0


@pytest.mark.parametrize("left", [b"", b"x" * 100])
def test_verify_advises_to_restore_a_log_of_which_nothing_is_left(
    tmp_path: Path, left: bytes
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(left)
    told = memlog("verify")
    assert (told.code, "memlog repair" in told.stdout) == (1, False)
    advice = [line.rpartition(": ")[2] for line in told.stdout.splitlines()[-2:]]
    assert advice == [
        "memlog restore --replace FOLDER default",
        "memlog projects delete default",
    ]
    assert memlog("repair", "default", "--yes").code == 1
    assert memlog("restore", "--replace", tmp_path / "backup", "default").code == 0
    assert memlog("verify").stdout == "default: 9 entries, whole.\n"


def test_verify_tells_what_a_repair_could_not_bring_back(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    backup = tmp_path / "backup"
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
    assert memlog("backup", backup).code == 0
    log = next((tmp_path / "data").rglob(LOG_FILE))
    data = log.read_bytes()
    log.write_bytes(untold(data).replace(b"was a banker", b"\xc1" * 12))
    repaired = memlog("repair", "default", "--yes", "--json").json
    lost = repaired["lost"]["positions"] + repaired["lost"]["setAside"]
    told = memlog("verify")
    assert (told.code, told.stderr) == (0, "")
    assert told.stdout == (
        "default: 10 entries, whole but for what it had lost before it was repaired.\n"
        "  Lost, 1: position 3\n"
        "  Put back what a backup has of it: memlog repair --backup FOLDER default\n"
    )
    report = {"positions": 10, "damages": [], "lost": lost, "retold": [], "copies": []}
    assert memlog("verify", "--json").json == {"default": report}
    assert memlog("repair", "default", "--backup", backup, "--yes").code == 0
    assert memlog("verify").stdout == "default: 10 entries, whole.\n"


def test_verify_tells_what_a_repair_has_from_the_state_alone(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
    log = next((tmp_path / "data").rglob(LOG_FILE))
    entry = re.compile(rb"(memory_stored\.v1.{1,60})xyzzy", re.DOTALL)
    log.write_bytes(entry.sub(lambda found: found[1] + b"\xc1" * 5, log.read_bytes()))
    assert memlog("repair", "default", "--yes").code == 0
    told = memlog("verify")
    assert told.code == 0
    assert (
        "  Told by the state or by what follows, which nothing proves, 1: position 10\n"
        in told.stdout
    )
    assert "Lost" not in told.stdout
    assert memlog("verify", "--json").json["default"]["retold"] == [10]


def test_what_the_state_tells_of_a_lost_command_is_there_again(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    with served(tmp_path / "data") as server:
        server("store_memory", content="xyzzy was said")
    before = memlog("search", "xyzzy").stdout
    log = next((tmp_path / "data").rglob(LOG_FILE))
    entry = re.compile(rb"(memory_stored\.v1.{1,60})xyzzy", re.DOTALL)
    log.write_bytes(entry.sub(lambda found: found[1] + b"\xc1" * 5, log.read_bytes()))
    ended = memlog("repair", "default", "--yes")
    assert (ended.code, "which nothing proves: position 10\n" in ended.stdout) == (0, True)
    assert memlog("search", "xyzzy").stdout == before != ""
