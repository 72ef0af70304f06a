"""A damaged log: whatever is wrong with the file, `verify` comes back and names positions, and nobody dies."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import lmdb
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from mcp_types import TextContent

from memlog.commands import CreateEntities, NewEntity, StoreMemory
from memlog.context import Context
from memlog.errors import StorageError
from memlog.events import ProjectCreated
from memlog.ids import new_id
from memlog.log import Damage
from memlog.projects.contents import DATABASES
from memlog.projects.folders import Folders
from memlog.projects.meta import STATE_VERSION, VERSION_KEY
from memlog.projects.project import LOG_FILE, clock_us
from memlog.projects.store import Store
from memlog.repair import salvaging
from memlog.repair.damage import DAMAGED, damages_in, mark, noted
from memlog.repair.salvaging import salvage
from memlog.repair.verifying import verify_file
from memlog.storage import proving
from memlog.storage.environment import Environment
from memlog.storage.files import lock_file
from memlog.storage.gates import Turn
from memlog.storage.pages import TREE, Pages
from memlog.storage.structure import SEAL, is_sealed, problem
from server.answering.findings import findings
from server.performing import perform
from server.registry import Call
from tests.command_line import CommandLine, holding_lines, lines_of
from tests.served import DEADLINE_S, REPOSITORY, environment, served
from tests.service import Refused, client_on

PAGE = mmap.PAGESIZE
"""Of LMDB, which takes the system's: 16 KB on a Mac."""
NO_TEXT = b"\xff\xfe"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some hundred entries, small and large, grown by many commits."""
    folder = tmp_path_factory.mktemp("sound")
    store = Store(folder)
    store.create("default")
    for number in range(120):
        texts = [f"fact {number} " + "x" * (number * 37 % 6_000), "short"]
        entity = NewEntity(name=f"n{number}", entity_type="thing", observations=texts)
        command = CreateEntities(entities=[entity])
        store.project("default").execute(command, Context(), lambda _: None)
    store.close()
    return next(folder.rglob(LOG_FILE))


def rows(path: Path) -> list[tuple[bytes, bytes]]:
    """What can be read of the log; of a damaged one, a key may stand there twice."""
    pages = Pages(path)
    table = pages.table(b"log")
    found = [] if table is None else [row for row in pages.rows(table) if len(row) == 2]
    pages.close()
    return found


def test_a_sound_file_is_read_as_lmdb_reads_it(sound: Path) -> None:
    assert list(verify_file(sound)) == list(range(1, 362))
    assert [int.from_bytes(key, "big") for key, _ in rows(sound)] == list(range(1, 362))
    pages = Pages(sound)
    assert problem(pages) is None
    pages.close()


@pytest.mark.parametrize("page", [0, 1])
def test_where_a_page_that_says_where_the_log_ends_is_lost_entries_are_perhaps_missing(
    sound: Path, tmp_path: Path, page: int
) -> None:
    file = tmp_path / LOG_FILE
    file.write_bytes(damaged(sound.read_bytes(), None, None, (page, b"\0")))
    *whole, found = verify_file(file)
    assert whole == list(range(1, len(whole) + 1))
    assert isinstance(found, Damage) and found.position == len(whole) + 1
    assert found.problem.startswith("perhaps missing")


def test_damage_beside_the_log_is_told_behind_its_last_position_as_no_loss(
    sound: Path, tmp_path: Path
) -> None:
    pages = Pages(sound)
    table = pages.table(b"now")
    pages.close()
    assert table is not None
    file = tmp_path / LOG_FILE
    file.write_bytes(damaged(sound.read_bytes(), None, None, (table.root, b"\0")))
    *whole, found = verify_file(file)
    assert whole == list(range(1, 362))
    assert isinstance(found, Damage) and found.position == 362
    assert found.problem.startswith("no entry is missing, the file is damaged elsewhere")


def stored_tables(pages: Pages) -> dict[bytes, bytes]:
    return {row[0]: row[1] for row in pages.rows(pages.main) if len(row) == 2}


def free_and_in_use(pages: Pages) -> tuple[bytes, bytes]:
    used, (count, *listed) = pages.main.root, free_pages(pages)
    nearest = min(range(count), key=lambda at: abs(listed[at] - used))
    return list_of(count, *listed), list_of(count, *listed[:nearest], used, *listed[nearest + 1 :])


def free_beyond_the_end(pages: Pages) -> tuple[bytes, bytes]:
    count, first, *others = free_pages(pages)
    return list_of(count, first, *others), list_of(count, pages.last_page + 1, *others)


def more_free_than_listed(pages: Pages) -> tuple[bytes, bytes]:
    count, *listed = free_pages(pages)
    return list_of(count, *listed), list_of(len(listed) + 1, *listed)


def free_in_no_order(pages: Pages) -> tuple[bytes, bytes]:
    count, first, second, *others = free_pages(pages)
    return list_of(count, first, second, *others), list_of(count, second, first, *others)


def used_twice(pages: Pages) -> tuple[bytes, bytes]:
    tables = stored_tables(pages)
    return tables[b"past"], tables[b"now"]


def a_row_too_few(pages: Pages) -> tuple[bytes, bytes]:
    stored = stored_tables(pages)[b"now"]
    *others, rows, root = TREE.unpack(stored)
    return stored, TREE.pack(*others, rows + 1, root)


def free_pages(pages: Pages) -> tuple[int, ...]:
    """One of the lists of them: how many, which, and what else has room there."""
    stored = max(row[1] for row in pages.rows(pages.free) if len(row) == 2)
    return struct.unpack(f"<{len(stored) // 8}Q", stored)


def list_of(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (free_and_in_use, "a page is free and in use"),
        (free_beyond_the_end, "a page is free that is none"),
        (more_free_than_listed, "a list of free pages is longer than its room"),
        (free_in_no_order, "a list of free pages is not in order"),
        (used_twice, "has two uses"),
        (a_row_too_few, r"a table has \d+ rows and should have \d+"),
    ],
)
def test_pages_that_lmdb_would_write_over_or_not_find_are_a_damage(
    sound: Path, tmp_path: Path, change: Callable[[Pages], tuple[bytes, bytes]], told: str
) -> None:
    data = sound.read_bytes()
    with closing(Pages(sound)) as pages:
        stored, changed = change(pages)
    assert stored in data
    log = tmp_path / LOG_FILE
    log.write_bytes(data.replace(stored, changed))
    (found,) = (each for each in verify_file(log) if isinstance(each, Damage))
    assert re.search(f"{told}$", found.problem)


flips = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 7)), min_size=1, max_size=4)
cut = st.integers(0, 2**31)
wiped = st.tuples(st.integers(0, 2**31), st.sampled_from([b"\0", b"\xff"]))


def damaged(
    sound: bytes,
    flips: list[tuple[int, int]] | None,
    cut: int | None,
    wiped: tuple[int, bytes] | None,
) -> bytes:
    data = bytearray(sound)
    for at, bit in flips or ():
        data[at % len(data)] ^= 1 << bit
    if wiped is not None:
        start = wiped[0] % (len(data) // PAGE) * PAGE
        data[start : start + PAGE] = wiped[1] * PAGE
    return bytes(data if cut is None else data[: cut % len(data)])


@settings(max_examples=300)
@given(flips=flips | st.none(), cut=cut | st.none(), wiped=wiped | st.none())
def test_every_damage_to_the_log_is_found_by_position(
    sound: Path,
    tmp_path_factory: pytest.TempPathFactory,
    flips: list[tuple[int, int]] | None,
    cut: int | None,
    wiped: tuple[int, bytes] | None,
) -> None:
    file = tmp_path_factory.mktemp("damaged") / LOG_FILE
    file.write_bytes(damaged(sound.read_bytes(), flips, cut, wiped))
    told = list(verify_file(file))
    was, now = rows(sound), set(rows(file))
    changed = [int.from_bytes(row[0], "big") for row in was if row not in now]
    if changed or now - set(was):
        damages = [each.position for each in told if isinstance(each, Damage)]
        assert damages
        assert not changed or damages[0] <= changed[0]
        assert not set(changed) & {each for each in told if isinstance(each, int)}
    shutil.rmtree(file.parent)


def in_a_process(serve: Callable[[], Any]) -> Any:
    """What `serve` gives back, run where it may die. Raises AssertionError where it did."""
    source, target = os.pipe()
    with warnings.catch_warnings():
        # Of a fork beside threads, which each process of scripts/test has; this child asks nothing of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os.write(target, json.dumps(serve()).encode())
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    os.close(target)
    with open(source, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the process ended with {status}"
    return json.loads(told)


ASKED: list[tuple[str, dict[str, Any]]] = [
    ("search_nodes", {"query": "short", "mode": "text", "limit": 100}),
    ("read_graph", {"limit": 1000}),
    ("open_nodes", {"names": ["n0"]}),
    ("get_history", {"entityName": "n0"}),
    ("store_memory", {"content": "a new fact"}),
]


def answered(data_dir: Path) -> dict[str, Any]:
    """What a server over it says to each call: an answer, an error, or what the tool raised, which is told
    without the server ending, too."""
    told: dict[str, Any] = {}
    with client_on(data_dir) as client:
        for tool, arguments in ASKED:
            try:
                told[tool] = client(tool, **arguments)
            except Refused as refused:
                told[tool] = refused.error
            except Exception as error:
                told[tool] = {"raised": repr(error)}
    return told


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.generate])
@example(flips=None, cut=0, wiped=None)
@example(flips=None, cut=-PAGE, wiped=None)
@example(flips=None, cut=None, wiped=(1, b"\xff"))
@given(flips=flips | st.none(), cut=cut | st.none(), wiped=wiped | st.none())
def test_no_damage_ends_a_server_and_what_is_whole_is_read(
    sound: Path,
    tmp_path_factory: pytest.TempPathFactory,
    flips: list[tuple[int, int]] | None,
    cut: int | None,
    wiped: tuple[int, bytes] | None,
) -> None:
    data_dir = tmp_path_factory.mktemp("damaged")
    shutil.copytree(sound.parents[2], data_dir, dirs_exist_ok=True)
    file = data_dir / sound.relative_to(sound.parents[2])
    file.write_bytes(damaged(sound.read_bytes(), flips, cut, wiped))
    damages = [each for each in verify_file(file) if isinstance(each, Damage)]
    told = in_a_process(lambda: answered(data_dir))
    shutil.rmtree(data_dir)
    if not damages:
        return
    error = told["store_memory"]
    assert error["code"] == "STORAGE_ERROR", told
    nothing_left = "`memlog restore --replace FOLDER default`" in error["suggestion"]
    assert ("`memlog repair default`" in error["suggestion"]) != nothing_left
    found = re.search(r"whole up to position (\d+)", error["message"])
    whole = int(found[1]) if found else 0
    assert found or "not whole from its first entry on" in error["message"]
    assert whole >= damages[0].position - 1
    if not any(each.problem.startswith("its content") for each in damages):
        assert not whole or "entities" in told["read_graph"], told["read_graph"]
    if "entities" in told["read_graph"]:  # else its rows are damaged, too
        names = {each["name"] for each in told["read_graph"]["entities"]}
        assert names >= {f"n{number}" for number in range((whole - 1) // 3)}


OPEN = """
import sys
from pathlib import Path
from memlog.errors import StorageError
from memlog.projects.project import Project

try:
    project = Project(Path(sys.argv[1]))
    list(project.verify())
    print(project.is_as_rebuilt())
except StorageError as error:
    print(error.message)
"""


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.95])
def test_a_log_that_was_cut_is_refused_and_does_not_end_the_process(
    sound: Path, tmp_path: Path, share: float
) -> None:
    shutil.copy(sound, tmp_path / LOG_FILE)
    os.truncate(tmp_path / LOG_FILE, int(sound.stat().st_size * share))
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(tmp_path)],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(LOG_FILE)


def lacking_a_page(sound: Path) -> bytes:
    """The file, both of whose metas say that there is one page more."""
    data = bytearray(sound.read_bytes())
    for page in (0, 1):
        at = page * PAGE + 16 + 24 + 96
        last = int.from_bytes(data[at : at + 8], "little")
        data[at : at + 8] = (len(data) // PAGE).to_bytes(8, "little") if last else data[at : at + 8]
    return bytes(data)


def test_a_file_that_lacks_only_pages_nobody_wrote_is_opened(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB may count a page in that it never wrote; a copy without holes at the end lacks it."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "posix_fallocate", raising=False)  # macOS has none
    file = tmp_path / LOG_FILE
    data = lacking_a_page(sound)
    file.write_bytes(data)
    opened = Environment(file, DATABASES)
    assert file.stat().st_size == len(data) + PAGE
    opened.close()


def test_a_log_that_this_process_has_open_is_looked_through_while_nobody_writes(
    tmp_path: Path,
) -> None:
    """LMDB opens a file once in a process, so nothing else keeps the pages that are read from being used again."""
    with closing(Store(tmp_path)) as store:
        store.create("default")
        project = store.project("default")

        def write() -> None:
            for number in range(50):
                fact = StoreMemory(content=f"fact {number}")
                project.execute(fact, Context(), lambda _: None)

        write()
        looking, head = verify_file(project.folder / LOG_FILE), project.head()
        found = [next(looking)]
        writing = threading.Thread(target=write)
        writing.start()
        writing.join(0.5)  # as far as it comes
        found += looking
        writing.join()
        assert found == list(range(1, head + 1))


def test_a_log_that_somebody_else_changed_is_not_sealed_by_who_had_it_open(
    sound: Path, tmp_path: Path
) -> None:
    """Else nobody looked through what was changed, and LMDB would trust it."""
    file = tmp_path / LOG_FILE
    shutil.copy(sound, file)
    for changed in (False, True):
        opened = Environment(file, DATABASES, proven=True)
        if changed:
            with file.open("ab") as other:
                other.write(bytes(PAGE))
        opened.write(lambda transaction: transaction.put(b"written", b"after it was opened"))
        opened.close()
        assert is_sealed(file) is not changed


def test_a_copy_that_brings_its_times_and_its_seal_along_is_not_taken_for_what_was_sealed(
    sound: Path, tmp_path: Path
) -> None:
    """As `cp -a` puts one back that it took while the first write came: half of what is in it is older."""
    file = tmp_path / LOG_FILE
    shutil.copy(sound, file)
    Environment(file, DATABASES, proven=True).close()
    assert is_sealed(file)
    before = file.stat()
    with file.open("r+b") as other:
        other.seek(-PAGE, os.SEEK_END)
        other.write(bytes(PAGE))
    until = time.monotonic() + DEADLINE_S
    changed = False
    while not changed and time.monotonic() < until:  # the system counts some milliseconds as one
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        changed = file.stat().st_ctime_ns != before.st_ctime_ns
    assert changed
    assert not is_sealed(file)


@pytest.mark.parametrize("renamed", [True, False])
def test_a_copy_put_in_the_place_of_a_log_in_use_is_not_written_to_from_a_commit_that_is_not_its_newest(
    renamed: bool, tmp_path: Path
) -> None:
    """LMDB's lock file says which meta page is the newest, and says it of the former file while that is open."""
    memlog = holding_lines(tmp_path)
    log, copy = log_of(memlog), tmp_path / "copy"
    with served(memlog.data_dir) as one, served(memlog.data_dir) as other:
        one("store_memory", content="the last of the copy")
        shutil.copy(log, copy)
        for number in range(3):
            other("store_memory", content=f"lost with the former file, {number}")
        if renamed:
            copy.replace(log)
        else:
            # Were it emptied first, who looks just then would take it for cut.
            with log.open("r+b") as opened:
                opened.write(copy.read_bytes())
        with pytest.raises(Refused, match="another file was put in its place"):
            one("store_memory", content="from another commit")
        for server in (one, other):
            server.close_stdin()
            server.end()
    with served(memlog.data_dir) as anew:
        anew("store_memory", content="behind the last of the copy")
        found = [each["content"] for each in anew("list_recent_memories")["memories"]]
    assert found[:2] == ["behind the last of the copy", "the last of the copy"]
    assert memlog("verify").code == 0


def test_an_older_copy_that_was_written_over_a_log_in_use_is_verified(tmp_path: Path) -> None:
    """LMDB's lock file tells of a commit that the copy does not have, as long as a server has it open."""
    memlog = holding_lines(tmp_path)
    log, copy = log_of(memlog), tmp_path / "copy"
    with served(memlog.data_dir) as server:
        server("store_memory", content="the last of the copy")
        shutil.copy(log, copy)
        entries = memlog("verify").stdout
        for number in range(3):
            server("store_memory", content=f"lost with the former file, {number}")
        with log.open("r+b") as opened:
            opened.write(copy.read_bytes())
        told = memlog("verify")
        assert (told.code, told.stdout, told.stderr) == (0, entries, "")


def test_what_another_wrote_since_the_lock_file_was_removed_is_not_written_over(
    tmp_path: Path,
) -> None:
    """The lock file that is still open knows nothing of it, were it a single commit."""
    memlog = holding_lines(tmp_path)
    with served(memlog.data_dir) as one:
        one("store_memory", content="first")
        lock_file(log_of(memlog)).unlink()
        with served(memlog.data_dir) as other:
            other("store_memory", content="acknowledged")
            with pytest.raises(
                Refused, match=r"the lock file beside it was removed.*another machine wrote"
            ):
                one("store_memory", content="refused")
    with served(memlog.data_dir) as anew:
        found = [each["content"] for each in anew("list_recent_memories")["memories"]]
    assert found[:2] == ["acknowledged", "first"]
    assert memlog("verify").code == 0


def test_a_log_that_was_found_damaged_is_not_sealed(sound: Path, tmp_path: Path) -> None:
    file = tmp_path / LOG_FILE
    shutil.copy(sound, file)
    opened = Environment(file, DATABASES, proven=True)
    opened.told(lmdb.CorruptedError("as it says of a page that is none"))
    opened.close()
    assert not is_sealed(file)


def test_what_looks_damaged_while_others_write_is_looked_at_again_while_nobody_does(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / LOG_FILE
    file.write_bytes(lacking_a_page(sound))
    half_written = iter(["page 9 is not what it should be"])
    monkeypatch.setattr(proving, "problem", lambda pages: next(half_written, problem(pages)))
    Environment(file, DATABASES).close()
    assert next(half_written, None) is None


def test_nobody_writes_to_a_damaged_log_while_what_is_whole_of_it_is_looked_for(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else more would seem damaged than is, and be noted so."""
    created = ProjectCreated(f"prj_{0:026}", "default", "")
    source = tmp_path / created.project_id / LOG_FILE
    source.parent.mkdir()
    shutil.copy(sound, source)

    def looked(pages: Pages) -> list[Damage]:
        with source.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return damages_in(pages)

    monkeypatch.setattr(salvaging, "damages_in", looked)
    salvage(source, tmp_path / "salvaged", clock_us, created).close()


def test_whoever_else_has_a_damaged_log_open_finds_noted_that_it_is(
    sound: Path, tmp_path: Path
) -> None:
    """Else what is written behind the damage is lost where the log is brought back from a backup."""
    created = ProjectCreated(f"prj_{0:026}", "default", "")
    source = tmp_path / created.project_id / LOG_FILE
    source.parent.mkdir()
    data = sound.read_bytes()
    source.write_bytes(data.replace(b"fact 7 ", b"fact 8 "))
    with closing(salvage(source, tmp_path / "salvaged", clock_us, created)) as salvaged:
        found = noted(source)
        assert found is not None and salvaged.damage is not None
        assert found.message.startswith("The log of this project is damaged")


def test_who_reads_the_note_of_a_damage_reads_all_of_it(tmp_path: Path) -> None:
    mark(tmp_path / LOG_FILE, [Damage(7, "cut")])
    with (tmp_path / f"{LOG_FILE}{DAMAGED}").open() as note:
        mark(tmp_path / LOG_FILE, [Damage(1, "gone")])
        assert json.load(note) == [{"position": 7, "problem": "cut"}]
    found = noted(tmp_path / LOG_FILE)
    assert found is not None and found.problem == "position 1: gone"


def test_verify_on_the_command_line_tells_of_a_cut_and_how_to_restore(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    ended = memlog("verify")
    assert ended.code == 1
    assert "position " in ended.stdout
    assert "memlog repair --backup FOLDER default" in ended.stdout


def test_verify_looks_at_what_is_archived_too(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    assert memlog("projects", "create", "other").code == 0
    assert memlog("projects", "archive", "default").code == 0
    assert memlog("verify").stdout.splitlines() == [
        "default: 10 entries, whole.",
        "other: 1 entry, whole.",
    ]
    (log,) = (tmp_path / "data" / "archive").rglob(LOG_FILE)
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"\xc1" * 12))
    ended = memlog("verify")
    assert (ended.code, "default: DAMAGED" in ended.stdout) == (1, True)
    assert memlog("repair", "default", "--yes").code == 0
    assert memlog("verify").code == 0
    assert memlog("projects", "list", "--status", "archived", "--json").json[0]["name"] == "default"


@pytest.mark.parametrize("status", ["active", "archived"])
def test_the_doctor_names_a_project_whose_log_was_cut(tmp_path: Path, status: str) -> None:
    memlog = holding_lines(tmp_path)
    if status == "archived":
        assert memlog("projects", "archive", "default").code == 0
    assert memlog("doctor").code == 0
    (log,) = (tmp_path / "data").rglob(LOG_FILE)
    os.truncate(log, log.stat().st_size // 3)
    ended = memlog("doctor", "--json")
    told = ended.json["projects"]["default"]
    assert (ended.code, told["status"]) == (1, status)
    assert "damaged" in told["error"] and "`memlog repair default`" in told["hint"]


def test_what_is_left_of_a_log_that_was_cut_moves_no_folder_and_renames_nothing(
    tmp_path: Path,
) -> None:
    """That the project was archived stood at the end of its log."""
    holding_lines(tmp_path)
    with closing(Store(tmp_path / "data")) as store:
        known = store.archive("default")
    (log,) = (tmp_path / "data").rglob(LOG_FILE)
    os.truncate(log, log.stat().st_size // 3)
    with closing(Store(tmp_path / "data")) as store:
        store.rebuild_catalog()
        assert store.projects("all") == [known]
        assert store.by_id(known.id).damage is not None
    assert log.exists()


def test_a_server_on_a_cut_log_says_so_and_serves_the_other_projects(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    with served(tmp_path / "data") as server:
        server("create_project", name="other")
        server("create_entities", entities=[{"name": "Ann", "entityType": "person"}])
    log = next(
        path for path in (tmp_path / "data").rglob(LOG_FILE) if b"banker" in path.read_bytes()
    )
    os.truncate(log, log.stat().st_size // 3)
    with served(tmp_path / "data") as server:
        found = server("search_nodes", project="default", query="banker", mode="text")
        assert [each["name"] for each in found["entities"]] == ["Jon"]
        assert "whole up to position" in found["notice"]
        assert server("read_graph", project="default")["entities"][0]["name"] == "Jon"
        with pytest.raises(Refused, match="whole up to position") as refused:
            server("store_memory", project="default", content="a new fact")
        assert refused.value.error["code"] == "STORAGE_ERROR"
        assert "`memlog repair default`" in refused.value.error["suggestion"]
        assert memlog("doctor").code == 1
        assert memlog("backup", tmp_path / "backup").code == 1
        assert server("read_graph", project="other")["entities"][0]["name"] == "Ann"
        back = memlog("restore", tmp_path / "backup", "default", "--replace")
        assert back.code == 0, back.stderr
        assert len(server("read_graph", project="default")["entities"]) == 3
        server("store_memory", project="default", content="a new fact")
    assert memlog("doctor").code == 0
    assert not list((tmp_path / "data").glob("salvaged/*"))


def test_what_was_salvaged_goes_also_where_an_index_is_written_into_it(tmp_path: Path) -> None:
    """As of a server that goes on with what it had begun when the log was restored."""
    folders = Folders(tmp_path, new_id)
    index = folders.salvaged / "1-2-3" / "prj_1" / "text"
    index.mkdir(parents=True)
    over = threading.Event()

    def write() -> None:
        for number in count():
            if over.is_set() or not index.exists():
                return
            with suppress(FileNotFoundError):
                (index / f"{number}.store").touch()

    writers = [threading.Thread(target=write) for _ in range(4)]
    for writer in writers:
        writer.start()
    folders.forget_salvaged("prj_1")
    left = list(folders.salvaged.iterdir())
    over.set()
    for writer in writers:
        writer.join()
    assert not left


@pytest.mark.parametrize("left", [1 / 3, 0], ids=["cut", "empty"])
@pytest.mark.parametrize("status", ["active", "archived"])
def test_a_damaged_project_can_be_deleted_and_nothing_of_it_is_left(
    tmp_path: Path, left: float, status: str
) -> None:
    memlog = holding_lines(tmp_path)
    if status == "archived":
        assert memlog("projects", "archive", "default").code == 0
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, int(log.stat().st_size * left))
    with client_on(tmp_path / "data", project="") as client:
        if status == "active" and left:
            assert client("read_graph", project="default")["entities"][0]["name"] == "Jon"
        told = client.as_command("d1", "delete_project", {"name": "default"})
        assert told["message"] == "Deleted project 'default' and all its data"
        assert client("list_projects", status="all")["projects"] == []
        client("create_project", name="default")
        assert client("read_graph", project="default")["entities"] == []
        assert client.as_command("d1", "delete_project", {"name": "default"}) == told
        assert client("list_projects")["projects"][0]["id"] != told["id"]
    held = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert not [path for path in held if b"banker" in path.read_bytes()]
    assert not list((tmp_path / "data").glob("salvaged/*"))


READING: dict[str, dict[str, Any]] = {
    "read_graph": {},
    "search_nodes": {"query": "banker", "mode": "text"},
    "open_nodes": {"names": ["Jon"]},
    "query_nodes": {},
    "search_memories": {"query": "banker"},
    "list_recent_memories": {},
    "memory_list": {},
    "memory_search": {"query": "banker"},
    "get_history": {},
    "changes_since": {"since": 0},
    "list_threads": {},
    "recall": {"query": "banker"},
    "get_analytics": {},
    "get_observation_history": {"entityName": "Jon"},
    "find_relation_path": {"from": "Jon", "to": "Jon"},
}


def test_a_damaged_project_that_was_deleted_is_gone_after_a_loss_of_power_too(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log takes no mark that it was deleted: that it stands nowhere any more is all there is."""
    home = tmp_path / "projects" / sound.parent.name
    home.mkdir(parents=True)
    shutil.copy(sound, home)
    os.truncate(home / LOG_FILE, sound.stat().st_size // 3)
    synced: list[Path] = []
    monkeypatch.setattr("memlog.projects.folders.sync_folder", synced.append)
    with closing(Store(tmp_path)) as store:
        (row,) = store.projects("all")
        store.delete(row.name)
        assert not home.exists()
    assert home.parent in synced


def test_every_tool_that_reads_a_damaged_log_says_once_that_this_is_not_all(tmp_path: Path) -> None:
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with client_on(tmp_path / "data") as client:
        for tool, arguments in READING.items():
            assert "damaged" not in str(
                perform(client.tools[tool], Call(client.session), arguments).as_result()
            )
    os.truncate(log, log.stat().st_size // 3)
    with client_on(tmp_path / "data") as client:
        offered = {tool for tool, each in client.tools.items() if not each.writes}
        assert offered - {"list_projects", "get_current_project", "switch_project"} == set(READING)
        for tool, arguments in READING.items():
            result = perform(client.tools[tool], Call(client.session), arguments).as_result()
            answer: dict[str, Any] = result.structured_content or {}
            assert answer["notice"].count("whole up to position") == 1, tool
            assert not [each for each in result.content[1:] if isinstance(each, TextContent)], tool


def test_a_search_of_a_damaged_log_says_also_what_else_it_has_to_say(tmp_path: Path) -> None:
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    away = {"embedder": "openai", "embedder_url": "http://127.0.0.1:9/v1", "embedder_retries": 0}
    with client_on(tmp_path / "data", **away) as client:
        notice = client("search_nodes", query="banker", mode="hybrid")["notice"]
        found = findings(client.service.open("default"), "banker", "hybrid", 1)
    for said in (notice, found.notice or ""):
        assert said.count("whole up to position") == 1
        assert "Searched by words only: " in said


def test_a_log_that_is_cut_under_a_server_does_not_end_it(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with served(tmp_path / "data") as server:
        assert len(server("read_graph")["entities"]) == 3
        os.truncate(log, log.stat().st_size - PAGE)
        with pytest.raises(Refused, match="cut"):
            server("read_graph")
        assert server("read_graph")["entities"][0]["name"] == "Jon"
        with pytest.raises(Refused, match="whole up to position"):
            server("store_memory", content="a new fact")
    assert memlog("verify").code == 1


def test_a_log_in_which_lmdb_met_damage_is_not_read_by_it_again(tmp_path: Path) -> None:
    """It might end the process at the next page."""
    store = Store(tmp_path)
    store.create("default")
    project = store.project("default")
    with pytest.raises(StorageError), project.read():
        raise lmdb.CorruptedError("mdb_get")
    with pytest.raises(StorageError):
        project.head()
    assert store.project("default") is not project
    store.close()


def test_a_log_whose_damage_has_passed_when_it_is_looked_through_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a disk of the network was away for a moment."""
    holding_lines(tmp_path)
    seen = iter([lmdb.CorruptedError("mdb_get")])

    def require_once(*file: Any) -> None:
        for error in seen:
            raise error
        proving.require_sound(*file)

    monkeypatch.setattr("memlog.storage.environment.require_sound", require_once)
    with client_on(tmp_path / "data") as client:
        client("store_memory", content="a new fact")
        assert client("list_recent_memories")["memories"][0]["content"] == "a new fact"
    assert not list((tmp_path / "data" / "salvaged").glob("*/*/log.mdb"))


def test_a_file_that_grows_while_another_thread_looks_is_not_taken_for_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(tmp_path / LOG_FILE, DATABASES, proven=True)
    look = Turn.stat

    def grown_meanwhile(turn: Turn) -> os.stat_result:
        seen = look(turn)
        environment._bytes = seen.st_size + PAGE  # as the other thread, which looked after this one
        return seen

    monkeypatch.setattr(Turn, "stat", grown_meanwhile)
    with environment.read():
        pass
    assert not environment.damaged
    monkeypatch.undo()
    environment.close()


def test_a_damaged_log_keeps_no_server_from_starting_where_the_catalogue_is_lost(
    tmp_path: Path,
) -> None:
    for share in (0, 0.5):
        (tmp_path / str(share)).mkdir()
        holding_lines(tmp_path / str(share))
        data_dir = tmp_path / str(share) / "data"
        log = next(data_dir.rglob(LOG_FILE))
        os.truncate(log, int(log.stat().st_size * share) or 100)
        (data_dir / "catalog.mdb").unlink()
        with served(data_dir) as server:
            server("create_project", name="other")
            listed = [each["name"] for each in server("list_projects")["projects"]]
            assert listed == ["default" if share else log.parent.name, "other"]
        assert log.exists()


def test_an_entry_that_was_changed_is_told_by_whoever_reads_it_first(tmp_path: Path) -> None:
    """A server notices by itself, and what does not need the entry is still read."""
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    at = next(entry["position"] for entry in entries(memlog) if "banker" in json.dumps(entry))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    with served(tmp_path / "data") as server:
        with pytest.raises(Refused, match=f"whole up to position {at - 1}: position {at}"):
            server("get_history", entityName="Jon")
        with pytest.raises(Refused, match=f"whole up to position {at - 1}") as refused:
            server("store_memory", content="a new fact")
        assert refused.value.error["code"] == "STORAGE_ERROR"
        assert len(server("read_graph")["entities"]) == 3
        assert "whole up to" in server("search_nodes", query="x", mode="text")["notice"]
    assert memlog("doctor").code == 1
    assert memlog("verify").code == 1


def test_recall_answers_beside_an_entry_that_was_changed_and_tells_of_the_damage(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    texts = ("paints in oil", "bakes bread", "repairs clocks")
    with client_on(data_dir) as client:
        for text in texts:
            made = {"name": text.upper(), "entityType": "person", "observations": [text]}
            client("create_entities", entities=[made])
        client.service.open("default").projections.text()
    change(data_dir, b"bakes bread", b"bakes broad")
    with client_on(data_dir) as client:
        for text in ("paints in oil", "repairs clocks"):
            answer = client("recall", query=text)
            assert text in answer["text"]
            assert answer["notice"].count("damaged, it is whole up to position 4: position 5") == 1
        shown = client("open_nodes", names=["BAKES BREAD", "PAINTS IN OIL"], provenance=True)
        brought = [len(each["provenance"]) for each in shown["entities"]]
        assert (brought, "is damaged" in shown["notice"]) == ([1, 2], True)


def change(data_dir: Path, text: bytes, to: bytes) -> None:
    """In each entry of the log that holds the text, and in no row of the state."""
    (file,) = data_dir.rglob(LOG_FILE)
    content = file.read_bytes()
    for key, value in rows(file):
        if text in value:
            assert content.count(value) >= 1, key
            content = content.replace(value, value.replace(text, to))
    file.write_bytes(content)


@pytest.mark.parametrize("known", [False, True])
def test_a_fact_whose_entry_was_changed_is_shown_with_its_position_and_that_it_is_damaged(
    tmp_path: Path, known: bool
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    change(memlog.data_dir, b"was a banker", b"was a bunker")
    if known:
        assert memlog("verify").code == 1
    for options in ((), ("--json",)):
        ended = memlog("show", "Jon", *options)
        assert (ended.code, "was a banker" in ended.stdout) == (1, True)
        assert ended.stderr.count("is damaged, it is whole up to position 2") == 1
        assert "`memlog repair default`" in ended.stderr
        memlog("verify") if known else log_of(memlog).with_name(f"{LOG_FILE}{DAMAGED}").unlink()
    damaged = json.loads(ended.stdout)["damaged"]
    assert [each["position"] for each in damaged] == [3]
    told = memlog("show", "Jon").stdout.splitlines()
    assert told[1] == "  · was a banker  (position 3, which is damaged)"
    assert "(position 2, 2" in told[0]
    assert memlog("show", "Mia").code == 0


def test_where_an_entry_and_a_row_of_the_state_are_damaged_the_repair_is_named_that_helps(
    tmp_path: Path,
) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = log_of(memlog)
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a b\xff\xffker"))
    told = memlog("export", "-")
    assert (told.code, told.stdout) == (1, "")
    assert "`memlog repair default` goes on with what is whole of one that is not." in told.stderr
    with client_on(memlog.data_dir) as client:
        with pytest.raises(Refused) as refused:
            client("open_nodes", names=["Jon"], project="default")
        assert "`memlog repair default`" in refused.value.error["suggestion"]
    assert memlog("repair", "default", "--yes").code == 0
    assert "Mia" in memlog("export", "-").stdout


def log_of(memlog: CommandLine) -> Path:
    return next(memlog.data_dir.rglob(LOG_FILE))


def entries(memlog: CommandLine) -> list[dict[str, Any]]:
    return list(memlog("log", "--json").json)


def test_a_log_that_verify_found_damaged_is_read_and_written_to_no_more(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    assert memlog("backup", tmp_path / "backup").code == 0
    log = next((tmp_path / "data").rglob(LOG_FILE))
    sound_bytes = log.read_bytes()
    log.write_bytes(sound_bytes.replace(b"was a banker", b"was a bunker"))
    with served(tmp_path / "data") as server:
        server("store_memory", content="nobody knows of the damage yet")
        assert memlog("verify").code == 1
        with pytest.raises(Refused, match="is damaged") as refused:
            server("store_memory", content="a new fact")
        assert refused.value.error["code"] == "STORAGE_ERROR"
        assert "`memlog repair default`" in refused.value.error["suggestion"]
        assert len(server("read_graph")["entities"]) == 3
        assert memlog("restore", tmp_path / "backup", "--replace").code == 0
        server("store_memory", content="a new fact")
    assert memlog("verify").code == 0


def test_what_is_whole_of_a_damaged_log_is_read_where_its_state_is_to_be_evolved_anew(
    tmp_path: Path,
) -> None:
    """By a newer memlog, which meets the damage at that."""
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    with closing(Environment(log, ("meta",))) as environment:
        meta = environment.databases["meta"]
        version = (STATE_VERSION - 1).to_bytes(2, "big")
        environment.write(lambda transaction: transaction.put(VERSION_KEY, version, db=meta))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    with client_on(tmp_path / "data") as client:
        told = client("read_graph")
        assert [each["name"] for each in told["entities"]] == ["Jon", "東京 🙂", "Mia"]
        assert "position 3: its content does not match" in told["notice"]


def test_a_log_is_not_called_whole_where_what_is_damaged_is_told_by_the_rest_of_it(
    tmp_path: Path,
) -> None:
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    with client_on(tmp_path / "data") as client:
        notice = client("read_graph")["notice"]
    said = re.search(r"it (is|can be made) whole up to position (\d+): position (\d+)", notice)
    assert said
    assert (said[1] == "is") == (int(said[2]) < int(said[3]))


def test_who_finds_nothing_in_a_damaged_log_is_told_so_too(tmp_path: Path) -> None:
    """What is not found may be what was lost."""
    holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    with client_on(tmp_path / "data") as client:

        def told(tool: str, **arguments: Any) -> str:
            result = perform(client.tools[tool], Call(client.session), arguments).as_result()
            assert result.is_error
            return " ".join(each.text for each in result.content if isinstance(each, TextContent))

        for tool in ("get_history", "get_observation_history"):
            answer = told(tool, entityName="Nobody")
            assert "Entity with name Nobody not found" in answer
            assert answer.count("whole up to position") == 1
        assert told("undo").count("whole up to position") == 1


@pytest.mark.parametrize("tool", ["archive_project", "search_nodes"])
def test_what_a_damaged_log_advises_names_the_project_that_the_call_was_about(
    tmp_path: Path, tool: str
) -> None:
    holding_lines(tmp_path)
    os.truncate(next((tmp_path / "data").rglob(LOG_FILE)), 0)
    about = (
        {"name": "default"} if tool == "archive_project" else {"project": "default", "query": "x"}
    )
    with client_on(tmp_path / "data", project="other") as client:
        with pytest.raises(Refused) as refused:
            client(tool, **about)
        assert "default`" in refused.value.error["suggestion"]
        assert "other" not in refused.value.error["suggestion"]


def test_commands_that_read_a_damaged_log_say_that_it_is_not_all(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    assert memlog("verify").code == 1
    for command in ("stats", "show Mia", "log --limit 2", "diff --from 1", "search Mia"):
        ended = memlog(*command.split())
        assert (ended.code, ended.stdout == "") == (0, False), command
        assert "is damaged" in ended.stderr + ended.stdout, command
        assert memlog(*command.split(), "--json").json
    for target in (tmp_path / "out.jsonl", "-"):
        ended = memlog("export", target)
        assert ended.code == 1
        assert "error: The log of this project is damaged" in ended.stderr
        assert "`memlog repair default`" in ended.stderr
    assert lines_of((tmp_path / "out.jsonl").read_text()) == lines_of(ended.stdout)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("part", ["state", "text", "analytics"])
def test_no_part_of_a_damaged_log_is_told_as_rebuilt_or_equal_to_a_rebuild(
    tmp_path: Path, part: str, known: bool
) -> None:
    memlog = holding_lines(tmp_path)
    change(memlog.data_dir, b"was a banker", b"was a bunker")
    if known:
        assert memlog("verify").code == 1
    for options in ([], ["--check"]):
        ended = memlog("replay", "--only", part, *options)
        assert (ended.code, ended.stdout) == (1, "")
        assert "error: The log of this project is damaged" in ended.stderr
        assert "`memlog repair default`" in ended.stderr


def test_a_damaged_log_keeps_no_other_project_from_being_replayed(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = log_of(memlog)
    for name in ("log", "whole"):
        assert memlog("projects", "create", name).code == 0
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    for options in ([], ["--check"]):
        ended = memlog("replay", "--all", "--json", *options)
        assert (ended.code, set(ended.json)) == (1, {"log", "whole"})
        assert "error: default: The log of this project is damaged" in ended.stderr
        assert "`memlog repair default`" in ended.stderr
        assert "Done all the same: log, whole." in ended.stderr


def test_what_stands_beside_a_log_may_be_damaged_too(tmp_path: Path) -> None:
    memlog: CommandLine = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    Path(f"{log}{SEAL}").write_bytes(NO_TEXT)
    assert memlog("log", "--json").code == 0
    assert is_sealed(log)
    Path(f"{log}{DAMAGED}").write_bytes(b'[{"position":1,"problem":"%b"}]' % NO_TEXT)
    assert memlog("log", "--json").code == 0
    refused = memlog("undo")
    assert refused.code == 1
    assert "the note cannot be read" in refused.stderr
    assert memlog("verify").code == 0
    assert memlog("undo").code == 0
