"""The disk is full, the locks are gone, the readers are too many: refused in words, and well again after.

The failures come from the fault layer of the simulation, which stands at the boundaries of the product;
a full disk for real is in `test_full_disk`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import lmdb
import pytest
import uuid_utils
from filelock import FileLock
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from memlog.commands import CreateEntities, NewEntity, StoreMemory
from memlog.context import Context
from memlog.errors import StorageError
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.storage import environment, gates
from memlog.storage.environment import Environment
from memlog.storage.errors import storage_error
from memlog.storage.structure import stamp
from projections import embeddings
from server import service
from server.refusals import refusing
from tests.embedder_by_hash import opened_by_hash
from tests.idle_follower import Idle
from tests.served import FOLLOWED_S, run_memlog
from tests.service import Client, Refused, client_on
from tests.simulated_faults import Fault, Faults, installed


@pytest.fixture
def faults() -> Iterator[Faults]:
    watched = Faults()
    with installed(watched):
        yield watched


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["entities"]]


def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        client(tool, **arguments)
    return caught.value.error


ALWAYS = {
    "a full disk, seen at the commit": "before commit of log.mdb",
    "a lock that cannot be had": "before a write to log.mdb",
    "more readers than there is room for": "snapshot",
}
"""What goes on failing, and at which boundary."""


@pytest.mark.parametrize("cause", ALWAYS)
def test_a_write_that_cannot_be_kept_is_refused_and_goes_well_once_the_cause_is_gone(
    tmp_path: Path, faults: Faults, cause: str
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("before")])
        faults.plan(Fault("failures", 0, ALWAYS[cause]))
        for _ in range(3):
            error = refused(client, "create_entities", entities=[entity("lost")])
            assert error["code"] == "STORAGE_ERROR"
            assert error["suggestion"]
        faults.plan(None)
        assert names(client("read_graph")) == ["before"]
        client("create_entities", entities=[entity("after")])
        assert set(names(client("search_nodes", query="fact", mode="text"))) == {"before", "after"}
        project = client.service.store.project("default")
        assert list(project.verify()) == list(range(1, project.head() + 1))
        assert project.is_as_rebuilt()


def failing(*_: object) -> Any:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_a_turn_at_writing_that_the_system_does_not_give_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("before")])
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", failing)
            error = refused(client, "create_entities", entities=[entity("lost")])
        assert (error["code"], error["message"]) == (
            "STORAGE_ERROR",
            "log.mdb: No locks available",
        )
        assert error["suggestion"].startswith("Keep the data directory on a local disk")
        client("create_entities", entities=[entity("after")])
        assert names(client("read_graph")) == ["before", "after"]


def test_a_file_of_which_the_system_says_nothing_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        for where, what in ((os, "fstat"), (environment, "identity_of")):
            with monkeypatch.context() as patched:
                patched.setattr(where, what, failing)
                error = refused(client, "create_entities", entities=[entity("lost")])
            assert error["code"] == "STORAGE_ERROR"
        assert names(client("read_graph")) == ["Jon"]


@pytest.mark.parametrize("tool", ["archive_project", "delete_project", "switch_project"])
def test_where_the_system_does_not_say_whether_a_project_is_there_it_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    stat = os.stat

    def of_no_log(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("/log.mdb"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return stat(path, **options)

    with client_on(tmp_path) as client:
        client("create_project", name="one")
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", of_no_log)
            error = refused(client, tool, name="one")
        (log,) = tmp_path.glob("projects/*/log.mdb")
        assert (error["code"], error["message"]) == (
            "STORAGE_ERROR",
            f"{log.relative_to(tmp_path)}: Input/output error",
        )
        client(tool, name="one")


@pytest.mark.parametrize("failing_look", range(1, 9))
def test_a_log_is_not_taken_for_damaged_because_the_system_once_did_not_tell_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_look: int
) -> None:
    stat, looks = os.stat, count(1)

    def failing_once(path: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("/log.mdb") and next(looks) == failing_look:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **options)

    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", failing_once)
            with suppress(Refused):
                client("restore_project", name="default")
        assert client.service.store.project("default").damage is None
        client("create_entities", entities=[entity("Gina")])


def test_a_write_that_was_committed_is_told_whatever_the_system_says_of_the_file_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Environment(tmp_path / "log.mdb", ("rows",))
    with closing(file), monkeypatch.context() as patched:

        def body(transaction: lmdb.Transaction) -> str:
            transaction.put(b"key", b"value", db=file.databases["rows"])
            patched.setattr(os, "fstat", failing)
            return "kept"

        file._known.ours = stamp(file._turn.stat())  # as where it was looked through
        assert file.write(body) == "kept"


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "Free some space"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "the quota on this disk: remove some"),
        (lmdb.Error("mdb_txn_commit: Disk quota exceeded"), "the quota on this disk: remove some"),
        (lmdb.DiskError("mdb_txn_commit: No space left on device"), "Free some space"),
        (lmdb.Error("mdb_txn_commit: Input/output error"), "Free some space .* it is failing"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "^The disk is failing"),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "Raise the limit of open files"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "mount it for writing"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "of a snapshot, copy the data directory"),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), "Give this user"),
    ],
    ids=str,
)
def test_what_is_advised_is_what_mends_the_cause(error: Exception, advised: str) -> None:
    assert re.search(advised, storage_error(Path("/data/log.mdb"), error).suggestion or "")


def test_reads_go_on_while_nothing_can_be_written(tmp_path: Path, faults: Faults) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon", mode="text")
        faults.plan(Fault("failures", 0, "before"))
        assert refused(client, "create_entities", entities=[entity("Gina")])
        assert names(client("read_graph")) == ["Jon"]
        assert names(client("search_nodes", query="Jon", mode="text")) == ["Jon"]


def test_a_full_map_is_made_larger_and_nobody_notices(tmp_path: Path, faults: Faults) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        for boundary in ("row of log.mdb", "before commit of log.mdb"):
            faults.plan(Fault("failure", 0 if boundary.startswith("row") else 1, boundary))
            client("create_entities", entities=[entity(boundary)])
        faults.plan(None)
        assert len(names(client("read_graph"))) == 3


def test_a_project_that_could_not_be_opened_is_opened_by_the_next_call(
    tmp_path: Path, faults: Faults
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
    with client_on(tmp_path) as client:
        faults.plan(Fault("failures", 0, "snapshot log.mdb"))
        assert refused(client, "read_graph")["code"] == "STORAGE_ERROR"
        faults.plan(None)
        assert names(client("read_graph")) == ["Jon"]


@pytest.mark.parametrize("tool", ["create_project", "archive_project", "delete_project"])
def test_a_life_that_cannot_be_locked_is_refused_in_words(
    tmp_path: Path, faults: Faults, tool: str
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        faults.plan(Fault("failures", 0, "a lock"))
        name = "other" if tool == "create_project" else "default"
        assert refused(client, tool, name=name)["code"] == "STORAGE_ERROR"
        faults.plan(None)
        client(tool, name=name)


def test_a_deletion_whose_bookkeeping_failed_is_finished_by_the_next_look(
    tmp_path: Path, faults: Faults
) -> None:
    """The log says it is deleted, and the list of projects could not be written."""
    with client_on(tmp_path) as client:
        client("create_project", name="doomed")
        faults.plan(Fault("failures", 1, "before a write to catalog.mdb"))
        assert refused(client, "delete_project", name="doomed")["code"] == "STORAGE_ERROR"
        faults.plan(None)
        listed = client("list_projects", status="all")["projects"]
        assert "doomed" not in [each["name"] for each in listed]
        client("create_project", name="doomed")


@pytest.mark.parametrize(
    ("tool", "name", "seen"),
    [
        ("create_project", "new", "active"),
        ("archive_project", "default", "archived"),
        ("delete_project", "default", None),
    ],
)
def test_a_change_of_a_project_that_the_disk_kept_from_the_list_is_told_as_done(
    tmp_path: Path, faults: Faults, tool: str, name: str, seen: str | None
) -> None:
    """It is in the log, so that nothing was written would be wrong, and a second call is refused."""
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        faults.plan(Fault("failures", 1, "before a write to catalog.mdb"))
        error = refused(client, tool, name=name)
        assert error["code"] == "STORAGE_ERROR"
        assert error["message"].startswith("The change is done, but the list")
        assert "nothing was written" not in str(error)
        faults.plan(None)
        listed = client("list_projects", status="all")["projects"]
        assert {each["name"]: each["status"] for each in listed}.get(name) == seen


def test_what_was_to_follow_the_making_of_a_project_is_not_told_as_done_with_it(
    tmp_path: Path, faults: Faults
) -> None:
    """The first call makes its project, and where the list has no room for that it ends there."""
    with client_on(tmp_path) as client:
        faults.plan(Fault("failures", 1, "before a write to catalog.mdb"))
        error = refused(client, "create_entities", entities=[entity("Jon")])
        assert error["code"] == "STORAGE_ERROR"
        assert error["message"].startswith("Project 'default' was made, but the list of projects")
        assert error["message"].endswith("; nothing else was done")
        assert error["suggestion"].endswith("then call again.")
        faults.plan(None)
        client("create_entities", entities=[entity("Jon")])
        assert names(client("read_graph")) == ["Jon"]
        assert len(client("list_projects", status="all")["projects"]) == 1


def test_a_folder_that_was_taken_away_gets_no_more_acknowledged_writes(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        folder = client.service.store.project("default").folder
        folder.rename(tmp_path / "elsewhere")
        error = refused(client, "create_entities", project="default", entities=[entity("Gina")])
        assert error["code"] in ("PROJECT_NOT_FOUND", "STORAGE_ERROR")


@pytest.mark.parametrize("gone", ["the directory", "all that was in it"])
def test_a_data_directory_that_goes_away_is_told_and_no_other_begun_in_its_place(
    tmp_path: Path, gone: str
) -> None:
    """It was moved, or its disk is not mounted any more."""
    data_dir, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    with client_on(data_dir) as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon")
        data_dir.rename(elsewhere)
        if gone == "all that was in it":
            data_dir.mkdir()
        for tool, arguments in (
            ("create_entities", {"entities": [entity("Gina")]}),
            ("create_project", {"name": "default"}),
            ("search_nodes", {"query": "Jon"}),
            ("list_projects", {}),
        ):
            error = refused(client, tool, **arguments)
            assert error["code"] == "STORAGE_ERROR"
            assert "The data directory is not there any more" in error["message"]
            assert str(tmp_path) not in str(error)
        client.service.usage.count("saved")
        client.service.usage.flush()
        if gone == "all that was in it":
            shutil.rmtree(data_dir)
        elsewhere.rename(data_dir)
        client("create_entities", entities=[entity("Gina")])
        assert names(client("read_graph")) == ["Jon", "Gina"]


def test_a_clock_before_1970_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        with monkeypatch.context() as patched:
            patched.setattr("memlog.ids.time.time", lambda: -1.0)
            error = refused(client, "create_entities", entities=[entity("Gina")])
        assert (error["code"], error["suggestion"]) == (
            "CONFLICT",
            "Set the clock, then call again.",
        )
        assert names(client("read_graph")) == ["Jon"]


def test_what_is_written_after_the_clock_was_set_back_is_still_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is where a machine without a battery for its clock starts, and the network tells the time later."""
    uuid7, begun_ns, order = uuid_utils.uuid7, time.time_ns(), ("Jon", "Gina", "Ann", "Bob")
    for name, hours in zip(order, (0, -2, -1, 1), strict=True):
        clock = partial(next, count(begun_ns + hours * 3_600 * 10**9, 10**6))
        monkeypatch.setattr("memlog.projects.project.time.time_ns", clock)
        monkeypatch.setattr(
            "memlog.ids.uuid_utils.uuid7", lambda clock=clock: uuid7(nanoseconds=clock())
        )
        with client_on(tmp_path) as client:
            client("create_entities", entities=[entity(name)])
            client("create_entities", entities=[entity(f"{name} the second")])
            edges = [{"from": "Jon", "to": f"{name} {x}", "relationType": "knows"} for x in "abc"]
            client("create_relations", relations=edges)
    with client_on(tmp_path) as client:
        made = [f"{name}{which}" for name in order for which in ("", " the second")]
        assert names(client("read_graph")) == made
        assert names(client("query_nodes")) == made
        told = [edge["to"] for edge in client("open_nodes", names=["Jon"])["relations"]]
        assert told == [f"{name} {x}" for name in order for x in "abc"]


def test_a_lock_that_another_process_keeps_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gates, "WAIT_SECONDS_MAX", 0.05)
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        with FileLock(tmp_path / "catalog.lock"):  # as by a process that was stopped
            error = refused(client, "create_project", name="other")
            assert error["code"] == "STORAGE_ERROR"
            assert "catalog.lock" in error["message"]
            assert "`fg`" in error["suggestion"]
            assert str(tmp_path) not in str(error)
            assert names(client("read_graph")) == ["Jon"]
        client("create_project", name="other")


@pytest.mark.parametrize(
    ("index", "tool", "arguments"),
    [
        ("text", "search_nodes", {"query": "fact", "mode": "text"}),
        ("analytics", "get_analytics", {}),
    ],
)
def test_an_index_that_another_process_keeps_locked_is_told_by_the_name_of_its_lock(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    index: str,
    tool: str,
    arguments: dict[str, Any],
) -> None:
    monkeypatch.setattr(gates, "WAIT_SECONDS_MAX", 0.05)
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client.service._follower.stop()
        (log,) = tmp_path.rglob("log.mdb")
    with client_on(tmp_path) as client:
        with FileLock(log.with_name(f"{index}.lock")):  # as by a replay that was stopped
            error = refused(client, tool, **arguments)
            assert error["code"] == "STORAGE_ERROR"
            assert f"{index}.lock" in error["message"]
            assert "`fg`" in error["suggestion"]
            assert names(client("read_graph")) == ["Jon"]
        client(tool, **arguments)


def test_a_search_waits_once_for_an_index_that_another_process_keeps_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not first for what it can have at hand and then for the rest."""
    monkeypatch.setattr(gates, "WAIT_SECONDS_MAX", 0.05)
    waited: list[Path] = []
    said = gates.held_too_long

    def counted(lock: Path) -> StorageError:
        waited.append(lock)
        return said(lock)

    monkeypatch.setattr(gates, "held_too_long", counted)
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client.service._follower.stop()
        (log,) = tmp_path.rglob("log.mdb")
    with client_on(tmp_path) as client, FileLock(log.with_name("text.lock")):
        refused(client, "search_nodes", query="fact", mode="text")
    assert len(waited) == 1


def test_a_lock_file_that_was_lost_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Locks that nobody holds are made anew; LMDB's own, which processes share, at the next start."""
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon", mode="text")
        for lock in [*tmp_path.rglob("*.lock")]:
            lock.unlink()
        client("create_entities", entities=[entity("Gina")])
        assert set(names(client("search_nodes", query="fact", mode="text"))) == {"Jon", "Gina"}
    for lock in [*tmp_path.rglob("*.lock"), *tmp_path.rglob("*-lock")]:
        lock.unlink()
    with client_on(tmp_path) as client:
        assert set(names(client("search_nodes", query="fact", mode="text"))) == {"Jon", "Gina"}
        client("create_project", name="other")


def test_a_failing_embedder_leaves_writes_and_words_alone(tmp_path: Path, faults: Faults) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[entity("Jon")])
        faults.plan(Fault("failures", 0, "before embedder"))
        client("create_entities", entities=[entity("Gina")])
        found = client("search_nodes", query="Gina", mode="hybrid")
        assert names(found)[0] == "Gina"
        assert "words only" in found["notice"]
        assert refused(client, "search_nodes", query="x", mode="semantic")["code"] == (
            "EMBEDDING_ERROR"
        )
        faults.plan(None)
        assert "notice" not in client("search_nodes", query="Gina", mode="hybrid")


def test_a_purge_that_the_disk_refuses_is_refused_in_words_and_done_by_the_next(
    tmp_path: Path, faults: Faults
) -> None:
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon")
        for boundary in ("a sync", "a lock"):
            faults.plan(Fault("failures", 0, boundary))
            with pytest.raises(StorageError) as refused:
                client.service.purge("default", Target(("Jon",)))
            assert refused.value.suggestion
        faults.plan(None)
        client.service.purge("default", Target(("Jon",)))
        assert client("read_graph")["entities"] == []


def test_what_the_disk_refuses_is_told_without_telling_where_it_is(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "Follower", Idle)  # it would write what is removed here
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon", mode="text")
        (index,) = tmp_path.glob("projects/*/text-v*")
        shutil.rmtree(index)
        index.write_text("no folder")
        client("create_entities", entities=[entity("Gina")])
        said = refused(client, "search_nodes", query="Gina", mode="text")
        assert said["code"] == "STORAGE_ERROR"
        assert str(tmp_path) not in str(said)


def test_a_disk_that_refuses_what_is_counted_does_not_end_what_brings_indexes_up_to_date(
    tmp_path: Path, faults: Faults
) -> None:
    with client_on(tmp_path) as client:
        client("store_memory", content="Jon lost his job", source="explicit")
        projections = client.service.open("default").projections
        faults.plan(Fault("failures", 0, "before a write to usage.mdb"))
        client("search_memories", query="job")
        client("store_memory", content="Gina dances", source="explicit")
        wait_until(lambda: bool(faults.struck))
        faults.plan(None)
        client("store_memory", content="Jon dances", source="explicit")
        wait_until(lambda: projections.positions().get("text") == projections.head())


def test_a_purge_that_is_done_says_so_where_the_caches_cannot_be_written(
    tmp_path: Path, faults: Faults
) -> None:
    with client_on(tmp_path) as client:
        stored = client("store_memory", content="swordfish", source="explicit")["created"]["id"]
        faults.plan(Fault("failures", 0, "before a write to usage.mdb"))
        with pytest.raises(StorageError, match="It is erased from the log, but vectors") as failed:
            client.service.purge("default", Target((), (stored,)))
        assert "There is nothing to purge again" in (failed.value.suggestion or "")
        faults.plan(None)
        assert client("list_recent_memories")["memories"] == []


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + FOLLOWED_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


handles_by_number = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="handles by number: Linux only"
)


@contextmanager
def no_room_for_what_ends_a_commit(file: Path) -> Iterator[None]:
    """LMDB's writes to the first two pages of `file`, in this process, meet a full disk."""
    with open("/dev/full", "wb") as full:
        writers = [
            each for each in map(int, os.listdir("/proc/self/fd")) if ends_commits(each, file)
        ]
        kept = {each: os.dup(each) for each in writers}
        assert kept
        for each in kept:
            os.dup2(full.fileno(), each)
        yield
        for each, copy in kept.items():
            os.dup2(copy, each)
            os.close(copy)


def ends_commits(handle: int, file: Path) -> bool:
    with suppress(OSError):
        synced = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DSYNC
        return bool(synced) and os.path.samestat(os.fstat(handle), file.stat())
    return False


REFUSED_WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "projects/*/log.mdb": ("create_entities", {"entities": [entity("lost")]}),
    "catalog.mdb": ("create_project", {"name": "lost"}),
}
"""For each file a call that writes to it."""


@handles_by_number
@pytest.mark.parametrize("file", REFUSED_WRITES)
def test_a_commit_whose_end_the_disk_refuses_is_no_damage_and_the_next_goes_well(
    tmp_path: Path, file: str
) -> None:
    tool, arguments = REFUSED_WRITES[file]
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("before")])
        (path,) = tmp_path.glob(file)
        with no_room_for_what_ends_a_commit(path):
            error = refused(client, tool, **arguments)
        assert "No space left" in error["message"]
        client("create_entities", entities=[entity("after")])
        assert set(names(client("search_nodes", query="fact", mode="text"))) == {"before", "after"}
        client("create_project", name="other")
        known = client("list_projects")["projects"]
        assert [each["name"] for each in known] == ["default", "other"]


@handles_by_number
def test_a_commit_whose_end_the_disk_refuses_is_no_damage_of_a_project_that_came_from_the_archive(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("before")])
        client("archive_project", name="default")
    with client_on(tmp_path) as client:  # which opens it where it is archived, and moves it
        client("restore_project", name="default")
        (path,) = tmp_path.glob("projects/*/log.mdb")
        with no_room_for_what_ends_a_commit(path):
            refused(client, "create_entities", entities=[entity("lost")])
        client("create_entities", entities=[entity("after")])
        assert set(names(client("read_graph"))) == {"before", "after"}


@handles_by_number
def test_a_log_that_another_process_moves_after_a_commit_failed_is_not_taken_for_damaged(
    tmp_path: Path,
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("before")])
        project = client.service.store.project("default")
        with no_room_for_what_ends_a_commit(project.folder / "log.mdb"):
            refused(client, "create_entities", entities=[entity("lost")])
        elsewhere = project.folder.rename(tmp_path / "elsewhere")
        with pytest.raises(StorageError):
            project.head()
        elsewhere.rename(project.folder)
        client("create_entities", entities=[entity("after")])
        assert set(names(client("read_graph"))) == {"before", "after"}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="handles by number: Linux only")
def test_a_log_that_another_process_erased_from_after_a_commit_failed_is_opened_as_another(
    tmp_path: Path,
) -> None:
    """What was derived from the one before is void."""
    with closing(Store(tmp_path)) as store:
        store.create("default")
        project = store.project("default")
        command = CreateEntities(entities=[NewEntity(name="before", entity_type="thing")])
        project.execute(command, Context(), lambda _: None)
        with (
            no_room_for_what_ends_a_commit(project.folder / "log.mdb"),
            pytest.raises(StorageError),
        ):
            project.execute(StoreMemory(content="lost"), Context(), lambda _: None)
        purged = run_memlog("purge", "default", "--entity", "before", "--yes", data_dir=tmp_path)
        assert purged.returncode == 0, purged.stderr
        with pytest.raises(StorageError):
            project.head()
        assert project.replaced
        assert store.project("default").generation == 1


HANDLES_MAX = 8
"""With so many more a project that is open is searched."""


def test_an_index_that_no_handle_is_left_to_open_is_kept_and_what_to_raise_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon")])
        client.service.open("default").projections.rebuild("text")
    with client_on(tmp_path) as client:
        client("read_graph")
        told = []
        for free in range(HANDLES_MAX):
            with handles_left(free):
                try:
                    client("search_nodes", query="Jon", mode="text")
                except Refused as refusal:
                    told.append(refusal.error)
        assert told
        for error in told:
            assert "Too many open files" in error["message"]
            assert "ulimit -n" in error["suggestion"]
        assert "starting it anew" not in caplog.text
        assert names(client("search_nodes", query="Jon", mode="text")) == ["Jon"]


@handles_by_number
def test_what_was_just_written_is_found_by_meaning_though_no_handle_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    monkeypatch.setattr(service, "Follower", Idle)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_entities", entities=[entity("Jon")])
        client("search_nodes", query="Jon", mode="semantic")
        client("create_entities", entities=[entity("Gina")])
        fact = "Gina: fact of Gina"  # which is what the embedder is given
        with handles_left(0):
            found = client("search_nodes", query=fact, mode="semantic")
        assert names(found) == ["Gina"]


def test_a_resource_too_is_told_what_the_process_has_too_little_of(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        with pytest.raises(MCPError) as caught, refusing(client.session, uri="mem://recent"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        assert caught.value.error.code == INTERNAL_ERROR
        assert "Too many open files" in caught.value.error.message
        assert "ulimit -n" in caught.value.error.message
        with pytest.raises(FileNotFoundError), refusing(client.session):
            raise FileNotFoundError("it is nobody's shortage")


@contextmanager
def handles_left(free: int) -> Iterator[None]:
    """This process may open so many files more."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0) for _ in range(free + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for each in taken:
            os.close(each)


def test_a_map_that_finds_no_room_to_grow_is_there_again_once_there_is_room(tmp_path: Path) -> None:
    """LMDB closes a file whose map it cannot make larger."""
    rows = Environment(tmp_path / "rows.mdb", ("rows",), map_bytes=1 << 20)
    large = bytes(2 * 1 << 20)

    def put(value: bytes) -> None:
        rows.write(lambda transaction: transaction.put(b"1", value, db=rows.databases["rows"]))

    put(b"before")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, limits[1]))
    try:
        with pytest.raises(StorageError, match="Cannot allocate memory"):
            put(large)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    with rows.read() as transaction:
        assert transaction.get(b"1", db=rows.databases["rows"]) == b"before"
    put(large)
    rows.close()
