"""A damaged log: whatever is wrong with the file, `verify` comes back and names positions, and nobody dies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog.commands import CreateEntities, NewEntity
from memlog.context import Context
from memlog.log import Damage
from memlog.pages import Pages
from memlog.project import LOG_FILE
from memlog.store import Store
from memlog.verifying import verify_file
from tests.command_line import CommandLine, holding_lines
from tests.served import REPOSITORY, environment, served
from tests.service import Refused

PAGE = 4096


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


def values(path: Path) -> dict[bytes, bytes]:
    """What can be read of the log."""
    pages = Pages(path)
    table = pages.table(b"log")
    rows = [] if table is None else [row for row in pages.rows(table) if len(row) == 2]
    pages.close()
    return dict(rows)


def test_a_sound_file_is_read_as_lmdb_reads_it(sound: Path) -> None:
    assert list(verify_file(sound)) == list(range(1, 362))
    assert [int.from_bytes(key, "big") for key in values(sound)] == list(range(1, 362))
    pages = Pages(sound)
    assert pages.whole()
    pages.close()


flips = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 7)), min_size=1, max_size=4)
cut = st.integers(0, 2**31)
wiped = st.tuples(st.integers(0, 2**31), st.sampled_from([b"\0", b"\xff"]))


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
    data = bytearray(sound.read_bytes())
    for at, bit in flips or ():
        data[at % len(data)] ^= 1 << bit
    if wiped is not None:
        start = wiped[0] % (len(data) // PAGE) * PAGE
        data[start : start + PAGE] = wiped[1] * PAGE
    file.write_bytes(data if cut is None else data[: cut % len(data)])
    told = list(verify_file(file))
    was, now = values(sound), values(file)
    changed = [int.from_bytes(key, "big") for key in was if now.get(key) != was[key]]
    if changed or set(now) - set(was):
        damages = [each.position for each in told if isinstance(each, Damage)]
        assert damages
        assert not changed or damages[0] <= changed[0]
        assert not set(changed) & {each for each in told if isinstance(each, int)}
    shutil.rmtree(file.parent)


OPEN = """
import sys
from pathlib import Path
from memlog.errors import StorageError
from memlog.project import Project

try:
    project = Project(Path(sys.argv[1]))
    list(project.verify())
    print(project.digest() == project.digest_rebuilt())
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


def test_a_file_that_lacks_only_pages_nobody_wrote_is_opened(sound: Path, tmp_path: Path) -> None:
    """LMDB may count a page in that it never wrote; a copy without holes at the end lacks it."""
    from memlog.environment import Environment
    from memlog.project import DATABASES

    file = tmp_path / LOG_FILE
    data = bytearray(sound.read_bytes())
    for page in (0, 1):  # both metas say that there is one page more
        at = page * PAGE + 16 + 24 + 96
        last = int.from_bytes(data[at : at + 8], "little")
        data[at : at + 8] = (len(data) // PAGE).to_bytes(8, "little") if last else data[at : at + 8]
    file.write_bytes(data)
    opened = Environment(file, DATABASES)
    assert file.stat().st_size == len(data) + PAGE
    opened.close()


def test_verify_on_the_command_line_tells_of_a_cut_and_how_to_restore(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next((tmp_path / "data").rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    ended = memlog("verify")
    assert ended.code == 1
    assert "position " in ended.stdout
    assert "memlog restore FOLDER 'default' --replace" in ended.stdout


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
        for tool, arguments in (
            ("read_graph", {}),
            ("search_nodes", {"query": "banker"}),
            ("store_memory", {"content": "a new fact"}),
        ):
            with pytest.raises(Refused) as refused:
                server(tool, project="default", **arguments)
            assert refused.value.error["code"] == "STORAGE_ERROR"
            assert "memlog restore" in refused.value.error["suggestion"]
        assert server("read_graph", project="other")["entities"][0]["name"] == "Ann"
        back = memlog("restore", tmp_path / "backup", "default", "--replace")
        assert back.code == 0, back.stderr
        assert len(server("read_graph", project="default")["entities"]) == 3


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
        assert "memlog restore" in refused.value.error["suggestion"]
        assert len(server("read_graph")["entities"]) == 3
        assert memlog("restore", tmp_path / "backup", "--replace").code == 0
        server("store_memory", content="a new fact")
    assert memlog("verify").code == 0
