"""One project on disk: what is acknowledged is there, what is refused never was."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from unittest.mock import ANY

import lmdb
import pytest

from memlog import codec
from memlog.commands import (
    AddObservations,
    AnyCommand,
    CreateEntities,
    CreateMemory,
    CreateProject,
    CreateRelations,
    EntityObservations,
    ForgetMemory,
    NewEntity,
    NewRelation,
    RenameEntity,
    StoreMemory,
)
from memlog.context import Context
from memlog.errors import (
    Closed,
    Conflict,
    DamagedLog,
    EntityNotFound,
    InvalidParameter,
    ProjectNotFound,
    StorageError,
)
from memlog.log import Damage
from memlog.projects.contents import DATABASES
from memlog.projects.meta import STATE_VERSION, VERSION_KEY
from memlog.projects.project import Origin, Outcome, Project
from memlog.rows import alike_key, hashed
from memlog.storage.derived import derived
from memlog.storage.environment import Environment
from memlog.storage.files import READERS_MAX
from memlog.storage.gates import Turn
from memlog.storage.proving import require_sound
from memlog.storage.tables import place
from tests.served import DEADLINE_S

TINY_MAP_BYTES = 128 * 1024


def create(name: str, *observations: str) -> CreateEntities:
    entity = NewEntity(name=name, entity_type="person", observations=observations)
    return CreateEntities(entities=[entity])


def add(name: str, *contents: str) -> AddObservations:
    return AddObservations(observations=[EntityObservations(entity_name=name, contents=contents)])


def nothing(outcome: Outcome) -> None:
    return None


def run(project: Project, command: AnyCommand, origin: Origin = Origin()) -> list[int]:
    """Executes, and answers with the positions of what was appended."""
    return project.execute(
        command, Context(), lambda outcome: [entry.position for entry in outcome.entries], origin
    )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    opened = Project(tmp_path / "prj_1")
    run(opened, CreateProject(name="one"))
    yield opened
    opened.close()


def texts(project: Project, name: str, at: int | None = None) -> list[str]:
    with project.read(at) as state:
        entity = state.entity_named(name)
        return [row.content for row in state.observations(entity.id)] if entity else []


def spoil(
    project: Project, tables: bytes, spoilt: Callable[[bytes, bytes], tuple[bytes, bytes]]
) -> None:
    """Puts what `spoilt` makes of key and value in the place of each present row of these tables of the state."""
    now = project._environment.databases["now"]

    def body(transaction: lmdb.Transaction) -> None:
        with transaction.cursor(now) as cursor:
            rows = [(bytes(key), bytes(value)) for key, value in cursor if key[0] in tables]
        for key, value in rows:
            transaction.delete(key, db=now)
            transaction.put(*spoilt(key, value), db=now)

    project._environment.write(body)


def test_positions_are_dense_and_a_batch_takes_consecutive_ones(project: Project) -> None:
    assert run(project, create("Jon", "a", "b")) == [2, 3, 4]
    assert run(project, add("Jon", "c")) == [5]
    assert project.head() == 5


def test_a_row_of_the_state_that_is_none_is_told_to_readers_and_writers_with_the_way_out(
    project: Project,
) -> None:
    run(project, create("Jon", "a"))
    spoil(project, b"EP", lambda key, value: (key, value[:8] + b"\xc1"))

    for attempt in (lambda: texts(project, "Jon"), lambda: run(project, add("Jon", "b"))):
        with pytest.raises(StorageError, match="state cannot be read") as refused:
            attempt()
        assert "memlog replay --only state" in (refused.value.suggestion or "")
    assert project.head() == 3
    project.rebuild()
    run(project, add("Jon", "b"))
    assert texts(project, "Jon") == ["a", "b"]


@pytest.mark.parametrize(
    "command", [add("Jon", "b"), create("Jon", "b"), RenameEntity(name="Jon", new_name="Joe")]
)
def test_a_name_that_leads_to_no_entity_is_told_before_anything_is_written_about_it(
    project: Project, command: AnyCommand
) -> None:
    """A log that spoke of an entity that never was could not be replayed."""
    run(project, create("Jon", "a"))
    spoil(project, b"N", lambda key, value: (key, value[:-1] + b"?"))

    with pytest.raises(StorageError, match="state cannot be read"):
        run(project, command)
    assert project.head() == 3
    project.rebuild()
    run(project, add("Jon", "b"))
    assert texts(project, "Jon") == ["a", "b"]


def test_a_relation_listed_under_no_id_is_told_to_who_reads_it_with_the_way_out(
    project: Project,
) -> None:
    run(project, create("Jon"))
    knows = NewRelation(source="Jon", target="Gina", relation_type="knows")
    run(project, CreateRelations(relations=[knows]))
    spoil(project, b"T", lambda key, value: (key[:-1] + b"\xff", value))

    with (
        pytest.raises(StorageError, match="state cannot be read") as refused,
        project.read() as state,
    ):
        state.relations_touching("Jon")
    assert "memlog replay --only state" in (refused.value.suggestion or "")


def test_a_refused_command_writes_nothing(project: Project) -> None:
    run(project, create("Jon"))
    both = AddObservations(
        observations=[
            EntityObservations(entity_name="Jon", contents=["kept?"]),
            EntityObservations(entity_name="Mia", contents=["x"]),
        ]
    )
    with pytest.raises(EntityNotFound):
        run(project, both)
    assert project.head() == 2
    assert texts(project, "Jon") == []


def test_an_answer_that_fails_takes_its_command_back(project: Project) -> None:
    def fail(outcome: Outcome) -> None:
        raise RuntimeError("while answering")

    with pytest.raises(RuntimeError):
        project.execute(create("Jon"), Context(), fail)
    assert project.head() == 1


def test_the_same_command_id_gives_the_same_answer_and_appends_once(project: Project) -> None:
    origin = Origin(command_id="mine-1")
    assert run(project, create("Jon", "a"), origin) == [2, 3]
    assert run(project, create("Jon", "a"), origin) == [2, 3]
    assert project.head() == 3


def test_a_command_id_used_for_another_command_is_a_conflict(project: Project) -> None:
    origin = Origin(command_id="mine-1")
    run(project, create("Jon"), origin)
    with pytest.raises(Conflict, match="mine-1"):
        run(project, create("Mia"), origin)


def test_a_retry_is_recognised_after_the_file_was_closed(project: Project, tmp_path: Path) -> None:
    origin = Origin(command_id="mine-1")
    run(project, create("Jon"), origin)
    project.close()
    again = Project(tmp_path / "prj_1")
    assert run(again, create("Jon"), origin) == [2]
    assert again.head() == 2
    again.close()


def test_events_say_who_asked(project: Project) -> None:
    run(project, create("Jon"), Origin(thread="planning", actor="laptop"))
    with project.snapshot() as (log, _):
        entry = next(iter(log.read(1)))
    assert (entry.thread, entry.actor) == ("planning", "laptop")


def test_the_state_can_be_read_as_of_any_position(project: Project) -> None:
    run(project, create("Jon", "a"))
    run(project, add("Jon", "b"))
    assert [texts(project, "Jon", at) for at in (1, 2, 3, 4)] == [[], [], ["a"], ["a", "b"]]


def test_what_is_known_of_several_is_of_each_and_nothing_of_one_that_is_gone(
    project: Project,
) -> None:
    """As a search asks whose index is ahead of the state, or behind it."""
    run(project, create("Jon", "lives here"))
    run(project, create("Gina", "dances"))
    run(project, CreateRelations(relations=[NewRelation("Jon", "Gina", "knows")]))
    with project.read() as state:
        jon, gina = list(state.entities())
        known = list(state.known(["ent_gone", jon.id, "ent_gone", gina.id]))
        assert known == [None, ANY, None, ANY]
        for each, row in zip(filter(None, known), (jon, gina), strict=True):
            alone = state.known_of(row)
            assert each[:2] == alone[:2]
            assert list(each.relations) == list(alone.relations) != []
        assert [each.observations[0].content for each in known if each] == ["lives here", "dances"]


def test_a_position_that_is_not_there_yet_is_refused(project: Project) -> None:
    with pytest.raises(InvalidParameter, match="ends at 1"), project.read(at=2):
        pass


def test_time_never_runs_backwards_in_the_log(tmp_path: Path) -> None:
    times = iter([50, 40, 60])
    project = Project(tmp_path / "prj_1", clock=lambda: next(times))
    run(project, CreateProject(name="one"))
    run(project, create("Jon"))
    run(project, create("Mia"))
    with project.snapshot() as (log, _):
        assert [entry.time_us for entry in log.read()] == [50, 50, 60]
    assert [project.position_at(time) for time in (49, 50, 59, 60, 99)] == [0, 2, 2, 3, 3]
    project.close()


def test_state_rebuilt_from_the_log_is_the_same_to_the_byte(project: Project) -> None:
    run(project, create("Jon", "a", "b"))
    run(project, create("Jon", "b", "c"))
    before = project.digest()
    assert project.is_as_rebuilt()
    project.rebuild()
    assert project.digest() == before
    assert texts(project, "Jon", at=4) == ["a", "b"]


def test_tables_of_another_version_are_evolved_anew(project: Project, tmp_path: Path) -> None:
    run(project, create("Jon", "a"))
    digest = project.digest()
    project.close()
    environment = lmdb.open(str(tmp_path / "prj_1" / "log.mdb"), subdir=False, max_dbs=5)
    with environment.begin(write=True) as transaction:
        transaction.put(b"state_version", b"\0\0", db=environment.open_db(b"meta", transaction))
        transaction.put(b"Ejunk", b"junk", db=environment.open_db(b"now", transaction))
    environment.close()
    again = Project(tmp_path / "prj_1")
    assert again.digest() == digest
    again.close()


def test_a_fact_is_said_once_also_where_the_tables_list_what_is_said_by_longer_hashes(
    project: Project, tmp_path: Path
) -> None:
    run(project, create("Jon", "a"))
    digest = project.digest()
    project.close()
    environment = lmdb.open(str(tmp_path / "prj_1" / "log.mdb"), subdir=False, max_dbs=5)
    with environment.begin(write=True) as transaction:
        now = environment.open_db(b"now", transaction)
        said = next(key for key, _ in transaction.cursor(now) if key.startswith(b"C"))
        longer = said[:-16] + hashed("a") + said[-8:]
        transaction.put(longer, transaction.pop(said, db=now) or b"", db=now)
        meta = environment.open_db(b"meta", transaction)
        transaction.put(VERSION_KEY, (5).to_bytes(2, "big"), db=meta)
    environment.close()
    again = Project(tmp_path / "prj_1")
    assert again.digest() == digest
    assert run(again, add("Jon", "a")) == []
    again.close()


def test_a_record_is_found_again_also_where_the_tables_know_only_the_newest_that_says_so(
    project: Project, tmp_path: Path
) -> None:
    note = CreateMemory(memory_type="fact", content="tea", source="explicit", confidence=0.5)
    run(project, note)
    run(project, StoreMemory(content="tea"))
    with project.read() as state:
        newest, oldest = (memory.id for memory in state.memories())
    digest = project.digest()
    project.close()
    environment = lmdb.open(str(tmp_path / "prj_1" / "log.mdb"), subdir=False, max_dbs=5)
    with environment.begin(write=True) as transaction:
        now = environment.open_db(b"now", transaction)
        known = [key for key, _ in transaction.cursor(now) if key.startswith(b"X")]
        for key in known:
            transaction.delete(key, db=now)
        transaction.put(known[0][:17], place(3) + newest.encode(), db=now)
        meta = environment.open_db(b"meta", transaction)
        transaction.put(VERSION_KEY, (6).to_bytes(2, "big"), db=meta)
    environment.close()
    again = Project(tmp_path / "prj_1")
    assert again.digest() == digest
    run(again, ForgetMemory(id=newest))
    run(again, note)
    with again.read() as state:
        assert [memory.id for memory in state.memories()] == [oldest]
    again.close()


def test_a_record_is_found_again_also_where_the_tables_know_it_without_one_of_two_keys_alike(
    project: Project, tmp_path: Path
) -> None:
    content = {"\u00e9": 1, "e\u0301": 2}
    note = CreateMemory(memory_type="note", content=content, source="here", confidence=0.5)
    run(project, note)
    digest = project.digest()
    project.close()
    environment = lmdb.open(str(tmp_path / "prj_1" / "log.mdb"), subdir=False, max_dbs=5)
    with environment.begin(write=True) as transaction:
        now = environment.open_db(b"now", transaction)
        known = next(key for key, _ in transaction.cursor(now) if key.startswith(b"X"))
        one = alike_key("note", "here", {"\u00e9": 2})
        transaction.put(one + known[len(one) :], transaction.pop(known, db=now) or b"", db=now)
        meta = environment.open_db(b"meta", transaction)
        transaction.put(VERSION_KEY, (8).to_bytes(2, "big"), db=meta)
    environment.close()
    again = Project(tmp_path / "prj_1")
    assert again.digest() == digest
    run(again, note)
    with again.read() as state:
        assert len(list(state.memories())) == 1
    again.close()


def test_tables_of_another_layout_have_another_version(tmp_path: Path) -> None:
    numbers = count(1)
    context = Context(new_id=lambda prefix: f"{prefix}_{next(numbers):026}")
    project = Project(tmp_path / "prj_1", clock=lambda: 1_750_000_000_000_000)
    relation = NewRelation(source="Jon", target="Gina", relation_type="knows")
    for command in (
        CreateProject(name="one"),
        create("Jon", "a", "b"),
        create("Jon", "b", "c"),
        CreateRelations(relations=[relation]),
        RenameEntity(name="Jon", new_name="Jonathan"),
        CreateMemory(
            memory_type="note", content="text", source="here", confidence=0.5, tags=["tag"]
        ),
        StoreMemory(content="fact"),
        CreateMemory(
            memory_type="note",
            content={"\u00e9": 1, "e\u0301": 2.0, "E\u0301": ["e\u0301"]},
            source="here",
            confidence=0.5,
        ),
    ):
        project.execute(command, context, nothing)
    digest = project.digest()
    project.close()
    assert (STATE_VERSION, digest[:16]) == (9, "0a5fe968735db513"), (
        "what stands in a table is another: raise STATE_VERSION, and write both down here"
    )


def taken_over(project: Project) -> None:
    """A newer memlog has brought the state into a form of its own."""
    meta = project._environment.databases["meta"]
    project._environment.write(lambda t: t.put(b"state_version", b"\xff\0", db=meta))


@pytest.mark.parametrize("how", ["writes", "reads", "follows", "rebuilds"])
def test_what_a_newer_memlog_has_taken_over_is_left_alone_by_whoever_has_it_open(
    project: Project, how: str
) -> None:
    def read() -> None:
        with project.read():
            pass

    def follow() -> None:
        with project.snapshot():
            pass

    ways: dict[str, Callable[[], object]] = {
        "writes": lambda: run(project, create("Ann")),
        "reads": read,
        "follows": follow,
        "rebuilds": project.rebuild,
    }
    run(project, create("Jon", "a"))
    before = project.head(), project.digest()
    taken_over(project)
    with pytest.raises(StorageError, match="in use by a newer memlog"):
        ways[how]()
    assert (project.head(), project.digest()) == before


def test_what_a_newer_memlog_uses_is_not_opened(project: Project, tmp_path: Path) -> None:
    taken_over(project)
    project.close()
    with pytest.raises(StorageError, match="in use by a newer memlog"):
        Project(tmp_path / "prj_1")


def test_the_map_grows_when_it_is_full_and_nothing_is_lost(tmp_path: Path) -> None:
    project = Project(tmp_path / "prj_1", map_bytes=TINY_MAP_BYTES)
    run(project, CreateProject(name="one"))
    for number in range(40):
        run(project, create(f"e{number}", "x" * 9_000))
    assert project.head() == 81
    assert project.is_as_rebuilt()
    project.close()


def test_a_log_that_another_process_makes_larger_than_the_map_while_it_is_looked_through_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "prj_1"
    project = Project(folder, map_bytes=TINY_MAP_BYTES)
    run(project, CreateProject(name="one"))
    project.close()
    another = f"""
from pathlib import Path
from memlog.commands import CreateEntities, NewEntity
from memlog.context import Context
from memlog.projects.project import Project
project = Project(Path({str(folder)!r}))
item = NewEntity(name="Jon", entity_type="person", observations=["x" * 5_000 + str(n) for n in range(100)])
project.execute(CreateEntities(entities=[item]), Context(), lambda _: None)
project.close()
"""

    def meanwhile(path: Path, env: lmdb.Environment, turn: Turn) -> None:
        require_sound(path, env, turn)
        subprocess.run([sys.executable, "-c", another], check=True)

    monkeypatch.setattr("memlog.storage.environment.require_sound", meanwhile)
    project = Project(folder, map_bytes=TINY_MAP_BYTES)
    with project.read() as state:
        assert state.entity_named("Jon") is not None
    assert (folder / "log.mdb").stat().st_size > TINY_MAP_BYTES
    project.close()


def test_a_log_becomes_large_while_somebody_reads_who_takes_his_time(tmp_path: Path) -> None:
    project = Project(tmp_path / "prj_1")
    run(project, CreateProject(name="one"))

    def write() -> None:
        for number in range(8):
            item = NewEntity(name=f"e{number}", entity_type="thing", observations=large)
            run(project, CreateEntities(entities=[item]))

    large = [f"{number} " + "x" * 9_000 for number in range(300)]
    with project.read() as state:
        writing = threading.Thread(target=write)
        writing.start()
        writing.join(60)
        assert not writing.is_alive()
        assert list(state.entities()) == []
    assert (tmp_path / "prj_1" / "log.mdb").stat().st_size > 32 * 1024**2
    project.close()


def test_the_map_grows_while_other_threads_read(tmp_path: Path) -> None:
    project = Project(tmp_path / "prj_1", map_bytes=TINY_MAP_BYTES)
    run(project, CreateProject(name="one"))
    stop, failures = threading.Event(), list[Exception]()

    def read() -> None:
        while not stop.wait(0.001):  # lets the others have the interpreter
            try:
                with project.read() as state:
                    assert all(state.observations(entity.id) for entity in state.entities())
            except Exception as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(40):
        run(project, create(f"e{number}", "x" * 9_000))
    stop.set()
    for reader in readers:
        reader.join(timeout=30)
    assert not any(reader.is_alive() for reader in readers)
    assert failures == []
    project.close()


def test_a_removed_project_refuses_reads_and_writes_of_whoever_has_it_open(
    project: Project,
) -> None:
    project.remove()
    with pytest.raises(ProjectNotFound):
        run(project, create("Jon"))
    with pytest.raises(ProjectNotFound), project.read():
        pass
    assert project.status() is None


@pytest.mark.parametrize("how", ["opens", "rebuilds", "erases"])
def test_a_removed_project_does_not_come_back_by_whoever_has_it_open(
    project: Project, tmp_path: Path, how: str
) -> None:
    run(project, create("Jon", "a"))
    project.remove()
    if how == "rebuilds":
        project.rebuild()
    elif how == "erases":
        with pytest.raises(ProjectNotFound):
            project.erase(lambda log, state: {2})
    project.close()
    again = Project(tmp_path / "prj_1")
    assert again.status() is None
    with pytest.raises(ProjectNotFound):
        run(again, create("Ann"))
    again.close()


def damage(project: Project, path: Path, position: int, change: Callable[[bytes], bytes]) -> None:
    """Changes the stored bytes of one entry behind memlog's back."""
    project.close()
    environment = Environment(path / "log.mdb", ("log", "now", "past", "receipts", "meta"))

    def body(transaction: lmdb.Transaction) -> None:
        key, log = position.to_bytes(8, "big"), environment.databases["log"]
        value = bytes(transaction.get(key, b"", db=log))
        changed = change(value)
        if changed:
            transaction.put(key, changed, db=log)
        else:
            transaction.delete(key, db=log)

    environment.write(body)
    environment.close()


@pytest.mark.parametrize("offset", [1, 20, 40, -1])
def test_verify_names_the_position_of_a_changed_byte(
    project: Project, tmp_path: Path, offset: int
) -> None:
    run(project, create("Jon", "a", "b"))

    def flip(value: bytes) -> bytes:
        changed = bytearray(value)
        changed[offset] ^= 1
        return bytes(changed)

    damage(project, tmp_path / "prj_1", 3, flip)
    again = Project(tmp_path / "prj_1")
    damages = [found for found in again.verify() if isinstance(found, Damage)]
    assert damages[0].position == 3
    again.close()


def test_verify_names_a_missing_entry(project: Project, tmp_path: Path) -> None:
    run(project, create("Jon", "a", "b"))
    damage(project, tmp_path / "prj_1", 3, lambda _: b"")
    again = Project(tmp_path / "prj_1")
    damages = [found for found in again.verify() if isinstance(found, Damage)]
    assert damages[0] == Damage(3, "missing: the next entry is at position 4")
    again.close()


def test_verify_names_an_erased_entry_whose_time_was_changed(
    project: Project, tmp_path: Path
) -> None:
    """It is outside the chain of hashes; positions are looked up by it."""
    run(project, create("Jon", "a", "b"))
    damage(project, tmp_path / "prj_1", 3, lambda value: codec.erase(3, value, 1))
    again = Project(tmp_path / "prj_1")
    damages = [found for found in again.verify() if isinstance(found, Damage)]
    assert damages == [Damage(3, "its time is before that of the entry ahead of it")]
    again.close()


def test_who_has_read_the_end_of_a_log_is_told_of_damage_ahead_of_it(
    project: Project, tmp_path: Path
) -> None:
    run(project, create("Jon", "a", "b"))
    damage(project, tmp_path / "prj_1", 2, lambda value: value[:-1] + b"?")
    again = Project(tmp_path / "prj_1")
    with again.snapshot() as (log, _):
        assert [entry.position for entry in log.read(after=3)] == [4]
    with pytest.raises(DamagedLog, match="position 2"), again.snapshot() as (log, _):
        list(log.read())
    again.close()


def test_a_log_that_is_not_whole_is_not_written_anew(project: Project, tmp_path: Path) -> None:
    run(project, create("Jon", "a", "b"))
    damage(project, tmp_path / "prj_1", 3, lambda value: value[:-1] + b"?")
    again = Project(tmp_path / "prj_1")
    with pytest.raises(StorageError):
        again.erase(lambda log, state: {4})
    assert not again.replaced
    again.close()


def test_a_whole_log_verifies(project: Project) -> None:
    run(project, create("Jon", "a", "b"))
    assert list(project.verify()) == [1, 2, 3, 4]


def test_a_file_that_is_no_log_is_a_storage_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "prj_1").mkdir()
    (tmp_path / "prj_1" / "log.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(StorageError, match=r"log\.mdb"):
        Project(tmp_path / "prj_1")


def test_a_file_whose_last_reader_is_in_a_circle_is_opened_again(tmp_path: Path) -> None:
    """As the traceback of an exception makes one, which Python finds when it looks for circles."""
    gc.disable()
    try:
        environment = Environment(tmp_path / "log.mdb", DATABASES)
        circle: list[object] = [environment._env.begin()]
        circle.append(circle)
        del environment, circle
        Environment(tmp_path / "log.mdb", DATABASES).close()
    finally:
        gc.enable()


def test_readers_that_nobody_knows_any_more_give_up_their_places(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "log.mdb", DATABASES)
    gc.disable()
    try:
        for _ in range(READERS_MAX):
            circle: list[object] = [environment._env.begin()]
            circle.append(circle)
            del circle
        with environment.read() as transaction:
            assert transaction.stat(environment.databases["log"])["entries"] == 0
    finally:
        gc.enable()
        environment.close()


def test_a_file_that_another_thread_is_closing_is_opened_when_it_is_closed(tmp_path: Path) -> None:
    environment = Environment(tmp_path / "log.mdb", DATABASES)
    closing = threading.Timer(0.2, environment.close)
    closing.start()
    Environment(tmp_path / "log.mdb", DATABASES).close()
    closing.join()


@pytest.mark.parametrize("files", [0, 10])
def test_a_file_that_was_closed_says_so_also_where_another_has_its_number_by_now(
    tmp_path: Path, files: int
) -> None:
    file = derived(tmp_path / "counts.mdb", ("now",))
    file.close()
    told: list[str] = []

    def read() -> None:
        for use in (file.begin_reading, lambda: file.write(lambda _: None)):
            with pytest.raises(Closed) as caught:
                use()
            told.append(caught.value.message)

    with ExitStack() as others:
        for number in range(files):
            others.enter_context((tmp_path / f"{number}").open("w"))
        reading = threading.Thread(target=read, daemon=True)  # it might never end
        reading.start()
        reading.join(DEADLINE_S)
    assert len(told) == 2


def test_who_writes_while_a_file_is_let_go_of_writes_to_the_one_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = derived(tmp_path / "counts.mdb", ("now",))
    file.rewrite(lambda _, fresh: Environment(fresh, ("now",)).close())
    enter = file._gate.enter

    def enter_late() -> None:
        file.let_go()
        enter()

    monkeypatch.setattr(file._gate, "enter", enter_late)
    file.write(lambda transaction: transaction.put(b"a", b"1", db=file.databases["now"]))
    with file.read() as transaction:
        assert transaction.get(b"a", db=file.databases["now"]) == b"1"
    file.close()
