"""Everything but the log may be lost, cut, overwritten or locked: the server starts, answers, and mends it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from projections import check, embeddings
from projections.follow import PROJECTIONS
from tests.damaged import garble
from tests.embedder_by_hash import opened_by_hash
from tests.served import run_memlog, served
from tests.service import Client, Refused, client_on


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["entities"]]


@pytest.fixture(autouse=True)
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A memory with every index on disk."""
    folder = tmp_path / "data"
    with client_on(folder, embedder="minilm") as client:
        client("create_entities", entities=[entity(f"n{number:02}") for number in range(40)])
        client("search_nodes", query="fact", mode="hybrid")
        client("get_analytics")
        client("store_memory", content="a fact that is read")
        client("list_recent_memories")
        projections = client.service.open("default").projections
        for name in PROJECTIONS:
            projections.caught_up(name)
        projections.vectors().save()
    return folder


def lose(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def on_files(change: Callable[[Path], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not file.name.endswith(("lock", ".managed.json")):
                change(file)

    return damage


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 3)


def scribble(file: Path) -> None:
    file.write_bytes(b"this is something else\n" * 300)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "lost": lose,
    "emptied": on_files(lambda file: os.truncate(file, 0)),
    "cut": on_files(cut),
    "overwritten": on_files(scribble),
}
FORM_AT = 20
"""Where an LMDB file says which form it has."""
INDEXES = {
    "text": "projects/*/text-v*",
    "analytics": "projects/*/analytics-v*",
    "vectors": "projects/*/vectors-v*",
    "embeddings": "embeddings/*.mdb",
    "catalog": "catalog.mdb",
    "usage": "usage.mdb",
}


def require_well(client: Client) -> None:
    """Answers as ever, and every index is as one built anew."""
    assert names(client("search_nodes", query="n07", mode="text"))[:1] == ["n07"]
    assert names(client("search_nodes", query="n07: fact of n07", mode="semantic"))[:1] == ["n07"]
    assert len(client("list_recent_memories")["memories"]) == 1
    client("create_entities", entities=[entity("new")])
    opened = client.service.open("default")
    for name in PROJECTIONS:
        assert check.compare(opened.projections, name), name


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("index", INDEXES)
def test_whatever_happened_to_an_index_it_is_there_again_by_itself(
    data_dir: Path, index: str, damage: str
) -> None:
    (path,) = data_dir.glob(INDEXES[index])
    DAMAGES[damage](path)
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)


@pytest.mark.parametrize("form", [2, 3, 5])  # LMDB never released, LMDB 1.0, none
@pytest.mark.parametrize("index", ["analytics", "embeddings", "catalog", "usage"])
def test_a_file_that_says_of_itself_that_it_has_another_form_is_there_again_by_itself(
    data_dir: Path, index: str, form: int
) -> None:
    (path,) = data_dir.glob(INDEXES[index])
    for file in path.glob("*.mdb") if path.is_dir() else [path]:
        with file.open("r+b") as damaged:
            damaged.seek(FORM_AT)
            damaged.write(bytes([form]))
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)


def test_files_have_the_form_that_is_known_whichever_lmdb_is_told_to_prefer(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    file.write_text(json.dumps({"type": "entity", "name": "Jon", "entityType": "person"}))
    for command in (["import", file], ["verify"]):
        done = run_memlog(*command, data_dir=tmp_path / "data", LMDB_DEFAULT_LIB_VERSION="1")
        assert done.returncode == 0, done.stderr
    assert "whole" in done.stdout


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("index", INDEXES)
def test_whatever_happens_to_an_index_while_it_is_open_it_is_there_again_by_itself(
    data_dir: Path, index: str, damage: str
) -> None:
    with client_on(data_dir, embedder="minilm") as client:
        client.service.store.create("other")
        client("search_nodes", query="fact", mode="hybrid")
        client("get_analytics")
        (path,) = data_dir.glob(INDEXES[index])
        DAMAGES[damage](path)
        client("create_entities", entities=[entity("newer")])
        assert names(client("search_nodes", query="newer", mode="text")) == ["newer"]
        assert len(client("get_analytics")["recent_changes"]) == 10
        assert {each["name"] for each in client("list_projects")["projects"]} == {
            "default",
            "other",
        }
        require_well(client)


@pytest.mark.parametrize(
    ("tool", "others", "empty"),
    [
        ("get_history", {}, "events"),
        ("query_nodes", {}, "entities"),
        ("get_observation_history", {"entityName": "n07"}, "history"),
    ],
)
def test_what_only_says_more_about_a_thread_by_the_analytics_answers_without_them(
    data_dir: Path, tool: str, others: dict[str, str], empty: str
) -> None:
    (path,) = data_dir.glob(INDEXES["analytics"])
    lose(path)
    path.touch()  # where a folder is to be made
    with client_on(data_dir) as client:
        with pytest.raises(Refused, match="STORAGE_ERROR"):
            client("get_analytics")
        answer = client(tool, {**others, "threadId": "planning-2026"})
    assert answer == {"project": "default", empty: []}


def test_entities_of_a_thread_are_told_also_where_no_text_can_be_indexed(data_dir: Path) -> None:
    with client_on(data_dir) as client:
        client("create_entities", entities=[entity("n07")], ifExists="merge", threadId="here")
        client("create_entities", entities=[entity("new")], threadId="here")
    (path,) = data_dir.glob(INDEXES["text"])
    lose(path)
    path.touch()  # where a folder is to be made
    with client_on(data_dir) as client:
        with pytest.raises(Refused, match="STORAGE_ERROR"):
            client("search_nodes", query="n07", mode="text")
        assert names(client("query_nodes", threadId="here")) == ["new"]


def test_an_index_of_another_version_or_embedder_is_put_away_or_left_alone(
    data_dir: Path,
) -> None:
    (text,) = data_dir.glob(INDEXES["text"])
    text.rename(text.with_name("text-v0"))
    (vectors,) = data_dir.glob(INDEXES["vectors"])
    vectors.rename(vectors.with_name("vectors-v1-another-model"))
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)
    assert not list(data_dir.glob("projects/*/text-v0"))


def test_an_index_that_reaches_beyond_its_log_is_built_anew(data_dir: Path) -> None:
    """As after somebody put back an older log by hand."""
    (log,) = data_dir.glob("projects/*/log.mdb")
    shutil.copy(log, log.with_name("older"))
    with client_on(data_dir, embedder="minilm") as client:
        client("create_entities", entities=[entity("ghost")])
        client("search_nodes", query="ghost", mode="hybrid")
        client.service.open("default").projections.caught_up("analytics")
        client.service.open("default").projections.vectors().save()
    os.replace(log.with_name("older"), log)
    log.with_name("log.mdb-lock").unlink()
    with client_on(data_dir, embedder="minilm") as client:
        assert names(client("search_nodes", query="ghost", mode="hybrid")) != ["ghost"]
        client.service.open("default").projections.caught_up("analytics")
        require_well(client)


def gone_on_with(data_dir: Path, name: str) -> None:
    with client_on(data_dir, embedder="minilm") as client:
        client("create_entities", entities=[entity(name)])
        projections = client.service.open("default").projections
        for each in PROJECTIONS:
            projections.caught_up(each)
        projections.vectors().save()


def test_indexes_beside_a_log_that_parted_from_theirs_are_built_anew(
    data_dir: Path, tmp_path: Path
) -> None:
    """As where a memory was continued on two machines, and the log of one was copied to the other."""
    other = tmp_path / "other"
    shutil.copytree(data_dir, other)
    gone_on_with(data_dir, "here")
    gone_on_with(other, "there")
    (log,), (from_there,) = (each.glob("projects/*/log.mdb") for each in (data_dir, other))
    os.replace(from_there, log)
    with client_on(data_dir, embedder="minilm") as client:
        for mode in ("text", "hybrid"):
            found = names(client("search_nodes", query="fact of there", mode=mode))
            assert found[0] == "there"
            assert "here" not in found
        require_well(client)
    with client_on(data_dir, embedder="minilm") as client:  # they are known to be of this log
        require_well(client)


@pytest.mark.parametrize("known", [None, b"", b"cut"], ids=["lost", "empty", "cut"])
def test_an_index_of_which_nobody_knows_its_log_counts(
    data_dir: Path, known: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """As one of a version that noted none."""
    origins = list(data_dir.glob("projects/*/*/origin"))
    assert len(origins) == len(PROJECTIONS)
    for each in origins:
        each.unlink() if known is None else each.write_bytes(known)
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)
    assert not [each.message for each in caplog.records if "built anew" in each.message]


def test_an_index_that_is_noted_to_be_of_another_log_is_built_anew(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for each in data_dir.glob("projects/*/*/origin"):
        each.write_bytes(bytes(40))
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)
    anew = [each for each in caplog.records if "of another log and is built anew" in each.message]
    assert len(anew) == len(PROJECTIONS)


def test_damage_that_shows_only_in_use_is_mended_by_the_search_that_meets_it(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with client_on(data_dir, embedder="minilm") as client:
        client("search_nodes", query="n01", mode="text")
        for path in next(data_dir.glob(INDEXES["text"])).glob("*.idx"):
            garble(path)
        for query in ("n07", '"fact of n07"', "n07*", "fact of n07"):
            assert names(client("search_nodes", query=query, mode="text"))[:1] == ["n07"], query
        assert any("text is built anew" in record.message for record in caplog.records)
        require_well(client)


@pytest.mark.parametrize("index", ["text", "analytics", "vectors"])
def test_an_index_that_is_thrown_away_while_it_is_open_is_there_again_by_itself(
    data_dir: Path, index: str
) -> None:
    """As by a purge of another process that then met a full disk."""
    with client_on(data_dir, embedder="minilm") as client:
        require_well(client)
        (path,) = data_dir.glob(INDEXES[index])
        path.rename(data_dir / "thrown away")
        client("create_entities", entities=[entity("newer")])
        assert names(client("search_nodes", query="newer", mode="text")) == ["newer"]
        require_well(client)


def is_immutable(path: Path, on: bool) -> bool:
    """The one mode that binds root too, where the file system has it."""
    done = subprocess.run(
        ["chattr", "-R", "+i" if on else "-i", str(path)], capture_output=True, check=False
    )
    return done.returncode == 0


def test_an_index_that_cannot_be_written_is_told_and_the_graph_still_read(data_dir: Path) -> None:
    (path,) = data_dir.glob(INDEXES["text"])
    if shutil.which("chattr") is None or not is_immutable(path, True):
        pytest.skip("this file system has no immutable files")
    try:
        with client_on(data_dir) as client:
            client("create_entities", entities=[entity("new")])
            assert len(names(client("read_graph", limit=50))) == 41
    finally:
        is_immutable(path, False)


def test_the_doctor_tells_what_was_built_anew_and_a_server_logs_it(data_dir: Path) -> None:
    (text,) = data_dir.glob(INDEXES["text"])
    on_files(scribble)(text)
    told = run_memlog("doctor", "--json", data_dir=data_dir)
    assert told.returncode == 0, told.stderr
    assert "cannot be read, starting it anew" in told.stderr
    report = json.loads(told.stdout)["projects"]["default"]
    assert report["projections"]["text"] == report["head"]
    on_files(scribble)(text)
    with served(data_dir) as server:
        assert names(server("search_nodes", query="n07"))[:1] == ["n07"]
        server.close_stdin()
        code, stderr = server.end()
    assert code == 0
    assert "starting it anew" in stderr
