"""Several server processes on one data directory: each sees what the others acknowledged, at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from memlog.projects import rebuilding
from memlog.projects.project import Project
from memlog.projects.store import Store
from memlog.storage.gates import excluding_processes
from projections.follow import Projections
from tests.command_line import CommandLine
from tests.connected import ERAS, Mode, joined, run
from tests.served import REPOSITORY, Pipe, all_facts, environment, run_memlog, served
from tests.service import Refused, client_on

Serve = Callable[..., Pipe]

MAP_BYTES = 256 * 1024
SMALL_MAPS = (str(REPOSITORY / "tests" / "servers" / "small_maps.py"), str(MAP_BYTES))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts one more server on the test's data directory."""
    with ExitStack() as stack:
        yield lambda *flags, **variables: stack.enter_context(
            served(tmp_path / "data", *flags, **variables)
        )


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def two(data_dir: Path) -> Iterator[tuple[Pipe, Pipe]]:
    with served(data_dir) as one, served(data_dir) as other:
        yield one, other


@pytest.fixture
def pair(two: tuple[Pipe, Pipe], request: pytest.FixtureRequest) -> tuple[Pipe, Pipe]:
    """Two servers on `data_dir`, with a project of the test's own active in both."""
    one, other = two
    name = request.node.name[:100]
    one("create_project", name=name)
    other("switch_project", name=name)
    return two


def entity(name: str, *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": list(observations)}


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["entities"]]


def code_of(server: Pipe, tool: str, **arguments: Any) -> str:
    with pytest.raises(Refused) as refused:
        server(tool, **arguments)
    code: str = refused.value.error["code"]
    return code


def end(*servers: Pipe) -> None:
    for server in servers:
        server.close_stdin()
    for server in servers:
        assert server.end() == (0, "")


def require_sound(project: Project) -> None:
    """Positions are dense, the chain is whole, and the state is what the log says."""
    found = list(project.verify())
    assert found == list(range(1, project.head() + 1))
    assert project.is_as_rebuilt()


# -- reading what another wrote


@pytest.mark.parametrize(
    ("mode", "embedder", "times"), [("text", "none", 500), ("hybrid", "minilm", 50)]
)
def test_what_one_process_stored_another_finds_at_once(
    serve: Serve, mode: str, embedder: str, times: int
) -> None:
    servers = [serve(MEMLOG_EMBEDDER=embedder) for _ in range(2)]
    if mode == "hybrid":  # which waits less long for a model that is being loaded
        for server in servers:
            server("create_entities", entities=[entity("first", "fact")], ifExists="skip")
            server("search_nodes", query="fact", mode="semantic")
    turns = cycle([(servers[0], servers[1]), (servers[1], servers[0])])
    for number, (writer, reader) in zip(range(times), turns, strict=False):
        writer("create_entities", entities=[entity(f"n{number:04}", f"fact zq{number:04}")])
        found = reader("search_nodes", query=f"zq{number:04}", mode=mode, limit=1)
        assert names(found) == [f"n{number:04}"]
        assert "notice" not in found
    end(*servers)


def test_what_one_process_changed_or_deleted_another_no_longer_finds(
    pair: tuple[Pipe, Pipe],
) -> None:
    one, other = pair
    one("create_entities", entities=[entity("Jon", "banker"), entity("Gina", "seller")])
    assert names(other("search_nodes", query="banker")) == ["Jon"]
    newer = {"content": "dancer", "supersedes": "banker"}
    other("add_observations", observations=[{"entityName": "Jon", "contents": [newer]}])
    assert names(one("search_nodes", query="banker")) == []
    assert names(one("search_nodes", query="dancer")) == ["Jon"]
    one("delete_entities", entityNames=["Jon"])
    assert names(other("search_nodes", query="dancer")) == []
    assert names(other("read_graph")) == ["Gina"]


def test_a_page_begun_in_one_process_is_continued_in_another(pair: tuple[Pipe, Pipe]) -> None:
    one, other = pair
    one("create_entities", entities=[entity(f"e{n}") for n in range(10)])
    page = one("read_graph", limit=4)
    other("create_entities", entities=[entity("late")])
    rest = other("read_graph", limit=20, cursor=page["nextCursor"])
    assert names(page) + names(rest) == [f"e{n}" for n in range(10)]


# -- writing at once


def test_writers_of_four_processes_lose_nothing_and_leave_no_gap(
    serve: Serve, tmp_path: Path
) -> None:
    servers = [serve() for _ in range(4)]
    wanted: set[str] = set()
    for who, server in enumerate(servers):
        for number in range(50):
            name = f"p{who}-{number}"
            wanted.add(name)
            shared = entity("shared", f"fact {name}")
            server.send_call(
                "create_entities",
                entities=[entity(name, f"fact of {name}"), shared],
                ifExists="merge",
            )
    for server in servers:
        for _ in range(50):
            answer = server.read()
            assert answer is not None
            assert not answer["result"]["isError"], answer
    for server in servers:
        found: list[str] = []
        page: dict[str, Any] = {"nextCursor": None}
        while "nextCursor" in page:
            page = server("read_graph", limit=150, cursor=page["nextCursor"])
            found += names(page)
        assert Counter(found) == Counter(wanted | {"shared"})
        assert names(server("search_nodes", query="p3-49", mode="text"))[0] == "p3-49"
    end(*servers)
    store = Store(tmp_path / "data")
    project = store.project("default")
    require_sound(project)
    assert project.head() == 1 + 4 * 50 * 3 + 1
    with project.read() as state:
        shared_entity = state.entity_named("shared")
        assert shared_entity is not None
        facts = {row.content for row in state.observations(shared_entity.id)}
    assert facts == {f"fact {name}" for name in wanted}
    store.close()


def test_a_file_that_one_process_grows_beyond_the_map_of_the_other_is_read_and_written_by_both(
    serve: Serve, tmp_path: Path
) -> None:
    one, other = serve(program=SMALL_MAPS), serve(program=SMALL_MAPS)
    for number in range(3):
        texts = [f"{number}-{n:03} " + "x" * 9_900 for n in range(100)]
        one("create_entities", entities=[entity(f"big{number}", *texts)])
        assert all_facts(other, f"big{number}") == texts
        other("create_entities", entities=[entity(f"small{number}")])
    assert len(names(one("open_nodes", names=[f"small{n}" for n in range(3)]))) == 3
    end(one, other)
    store = Store(tmp_path / "data")
    project = store.project("default")
    assert (project.folder / "log.mdb").stat().st_size > 8 * MAP_BYTES
    require_sound(project)
    store.close()


def test_what_is_stored_during_a_replay_in_another_process_is_found_at_once(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve()
    server("create_entities", entities=[entity(f"old{n}", f"fact {n}") for n in range(500)])
    replay = [sys.executable, "-m", "memlog", "replay", "--data-dir", str(tmp_path / "data")]
    count = 0
    for _ in range(2):
        with subprocess.Popen(replay, env=environment(), stdout=subprocess.PIPE) as replaying:
            while replaying.poll() is None:
                server("create_entities", entities=[entity(f"new{count}", f"zq{count}")])
                assert names(server("search_nodes", query=f"zq{count}")) == [f"new{count}"]
                assert names(server("search_nodes", query="old7", limit=1)) == ["old7"]
                count += 1
        assert replaying.returncode == 0
    assert count > 0
    end(server)
    checked = run_memlog("replay", "--check", "--json", data_dir=tmp_path / "data")
    assert checked.returncode == 0, checked.stdout


def test_processes_that_begin_at_once_share_one_default_project(serve: Serve) -> None:
    servers = [serve() for _ in range(4)]
    for who, server in enumerate(servers):
        server.send_call("create_entities", entities=[entity(f"by {who}")])
    for server in servers:
        answer = server.read()
        assert answer is not None
        assert not answer["result"]["isError"], answer
    for server in servers:
        assert set(names(server("read_graph"))) == {f"by {who}" for who in range(4)}
        assert len(server("list_projects", status="all")["projects"]) == 1


def test_of_processes_that_create_one_name_at_once_one_succeeds(
    pair: tuple[Pipe, Pipe],
) -> None:
    for number in range(20):
        for server in pair:
            server.send_call("create_project", name=f"p{number}")
        answers = [server.read() for server in pair]
        results = [answer["result"]["structuredContent"] for answer in answers if answer]
        refused = [each["error"]["code"] for each in results if "error" in each]
        assert refused == ["PROJECT_EXISTS"]
    for server in pair:
        known = Counter(row["name"] for row in server("list_projects")["projects"])
        assert all(known[f"p{n}"] == 1 for n in range(20))


# -- lives of projects


def test_a_project_created_in_one_process_is_there_in_the_other(pair: tuple[Pipe, Pipe]) -> None:
    one, other = pair
    created = one("create_project", name="fresh", description="of today")
    one("create_entities", entities=[entity("Jon", "banker")])
    rows = {row["name"]: row for row in other("list_projects")["projects"]}
    assert rows["fresh"]["id"] == created["id"]
    other("switch_project", name="fresh")
    assert names(other("search_nodes", query="banker")) == ["Jon"]
    assert code_of(other, "create_project", name="fresh") == "PROJECT_EXISTS"


def test_a_project_archived_in_one_process_is_archived_in_the_other_until_restored(
    pair: tuple[Pipe, Pipe], data_dir: Path
) -> None:
    one, other = pair
    project_id = one("create_project", name="shop")["id"]
    one("create_entities", entities=[entity("Jon", "banker")])
    other("switch_project", name="shop")
    assert names(other("search_nodes", query="banker")) == ["Jon"]

    one("archive_project", name="shop")
    assert code_of(other, "read_graph") == "PROJECT_ARCHIVED"
    assert code_of(other, "search_nodes", query="banker") == "PROJECT_ARCHIVED"
    assert code_of(other, "create_entities", entities=[entity("x")]) == "PROJECT_ARCHIVED"
    assert code_of(other, "switch_project", name="shop") == "PROJECT_ARCHIVED"

    other("restore_project", name="shop")
    for number, server in enumerate(pair):
        server("create_entities", entities=[entity(f"Gina {number}", "seller")], project="shop")
        for reader in pair:
            assert names(reader("search_nodes", query="banker", project="shop")) == ["Jon"]
            found = names(reader("search_nodes", query="seller", project="shop"))
            assert f"Gina {number}" in found
    assert not (data_dir / "archive" / project_id).exists(), "both index where the log is"


def test_a_project_deleted_in_one_process_is_gone_in_the_other_and_its_name_is_free(
    pair: tuple[Pipe, Pipe],
) -> None:
    one, other = pair
    one("create_project", name="stall")
    one("create_entities", entities=[entity("Jon", "banker")])
    other("switch_project", name="stall")
    assert names(other("search_nodes", query="banker")) == ["Jon"]

    one("delete_project", name="stall")
    assert code_of(other, "read_graph") == "PROJECT_NOT_FOUND"
    assert code_of(other, "search_nodes", query="banker") == "PROJECT_NOT_FOUND"
    assert code_of(other, "create_entities", entities=[entity("x")]) == "PROJECT_NOT_FOUND"

    one("create_project", name="stall")
    assert names(other("read_graph")) == []
    assert names(other("search_nodes", query="banker")) == []
    other("create_entities", entities=[entity("Gina", "seller")])
    assert names(one("search_nodes", query="seller")) == ["Gina"]


def test_a_project_whose_folder_was_away_is_there_again_when_the_folder_is(
    serve: Serve, tmp_path: Path
) -> None:
    server = serve()
    server("create_entities", entities=[entity("Jon", "banker")])
    assert names(server("search_nodes", query="banker")) == ["Jon"]
    (folder,) = (tmp_path / "data" / "projects").iterdir()
    folder.rename(tmp_path / "away")
    assert code_of(server, "read_graph") == "PROJECT_NOT_FOUND"
    assert server("list_projects")["projects"] == []
    (tmp_path / "away").rename(folder)
    assert [each["name"] for each in server("list_projects")["projects"]] == ["default"]
    server("create_entities", entities=[entity("Gina", "seller")])
    assert names(server("search_nodes", query="seller")) == ["Gina"]
    assert names(server("read_graph")) == ["Jon", "Gina"]


def test_a_check_of_what_is_derived_holds_while_another_process_writes(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    told = iter(range(1_000))

    def then_more(work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any, **named: Any) -> Any:
            answer = work(*given, **named)
            server("create_entities", entities=[entity(f"e{next(told)}", "came amid the check")])
            server("get_analytics")
            return answer

        return done

    server("create_entities", entities=[entity("Jon", "banker")])
    monkeypatch.setattr("memlog.projects.project.digest", then_more(rebuilding.digest))
    monkeypatch.setattr(Projections, "drive", then_more(Projections.drive))
    checked = CommandLine(tmp_path / "data")("replay", "--check", "--json")
    assert next(told) >= 3
    assert (checked.code, set(checked.json["default"].values())) == (0, {"equal", "switched off"})


def purged_amid_a_read(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the next read, once it has opened the log; the list is empty by then."""
    present, to_purge = Project._require_present, ["Ann"]

    def after_a_purge(project: Project, *rest: Any) -> None:
        # The follower holds what a purge waits for.
        if to_purge and threading.current_thread().name != "follower":
            which = ("default", "--entity", to_purge.pop())
            assert run_memlog("purge", *which, "--yes", data_dir=data_dir).returncode == 0
        present(project, *rest)

    monkeypatch.setattr(Project, "_require_present", after_a_purge)
    return to_purge


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("open_nodes", {"names": ["Jon"]}),
        ("search_nodes", {"query": "banker", "mode": "text"}),
        ("get_history", {"entityName": "Jon"}),
    ],
)
def test_a_read_whose_log_is_purged_while_it_looks_looks_again(
    tool: str, arguments: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client_on(tmp_path) as client:
        client("create_entities", entities=[entity("Jon", "banker"), entity("Ann", "banker")])
        client(tool, **arguments)
        to_purge = purged_amid_a_read(tmp_path, monkeypatch)
        told = json.dumps(client(tool, **arguments))
        assert (to_purge, "Jon" in told, "Ann" in told) == ([], True, False)


@ERAS
def test_a_resource_whose_log_is_purged_while_it_is_read_is_read_again(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with joined(tmp_path, mode) as server:
            entities = [entity("Jon", "banker"), entity("Ann", "banker")]
            await server.call("create_entities", entities=entities)
            to_purge = purged_amid_a_read(tmp_path, monkeypatch)
            told = await server.read("memory://knowledge-graph")
            assert (to_purge, "Jon" in told, "Ann" in told) == ([], True, False)

    run(scenario)


def test_the_usual_project_is_made_on_first_use_and_not_after_another_process_deleted_it(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as one, served(tmp_path) as other:
        one("create_entities", entities=[entity("Jon")])
        assert other("read_graph")["entities"]
        one("delete_project", name="default")
        assert code_of(other, "read_graph") == "PROJECT_NOT_FOUND"
        assert code_of(other, "get_current_project") == "PROJECT_NOT_FOUND"
        assert other("list_projects")["projects"] == []
        one("create_project", name="default")
        assert other("read_graph")["entities"] == []


@pytest.mark.parametrize("ending", ["delete_project", "archive_project"])
def test_calls_under_way_while_a_project_ends_are_answered_or_told_why(
    pair: tuple[Pipe, Pipe], ending: str
) -> None:
    one, other = pair
    told = {"delete_project": "PROJECT_NOT_FOUND", "archive_project": "PROJECT_ARCHIVED"}[ending]
    for number in range(4):
        name = f"{ending} {number}"
        one("create_project", name=name)
        one("create_entities", entities=[entity(f"e{n}", "x y z") for n in range(10)])
        sent = {one: 0, other: 0}
        for turn in range(10):
            for server in pair:
                server.send_call("search_nodes", query="x", project=name)
                server.send_call("read_graph", project=name)
                server.send_call("create_entities", entities=[entity(f"{turn}")], project=name)
                sent[server] += 3
            if turn == 4:
                one.send_call(ending, name=name)
                sent[one] += 1
        for server in pair:
            answers = [server.read() for _ in range(sent[server])]
            results = [answer.get("result") for answer in answers if answer]
            assert None not in results, server.stderr()
            errors = [each["structuredContent"].get("error") for each in results if each]
            codes = {error["code"] for error in errors if error}
            assert codes <= {told, "PROJECT_NOT_FOUND"}, errors  # "put away a moment ago"
        assert code_of(other, "read_graph", project=name) == told


def test_a_lock_that_was_let_go_is_there_for_who_waits_for_it(tmp_path: Path) -> None:
    """Who had opened it would have it beside another process that finds none and makes one."""
    lock = tmp_path / "any.lock"
    with excluding_processes(lock):
        held = lock.stat().st_ino
    assert lock.stat().st_ino == held
