"""What docs/migration.md tells of bringing along what another server keeps: its commands, SQL and script are run."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

from tests.served import environment, run_memlog, served

PAGE = Path(__file__).parents[1] / "docs" / "migration.md"
JON = {
    "type": "entity",
    "name": "Jon\n東京",
    "entityType": "a/b",
    "observations": ['"q"', "Likes\ndancing"],
}
BARE = {"type": "entity", "name": "studio", "entityType": "place", "observations": []}
OWNS = {"type": "relation", "from": "Jon\n東京", "to": "studio", "relationType": "owns"}
GRAPH = """
CREATE TABLE entities (name TEXT PRIMARY KEY, entity_type TEXT NOT NULL, created_at DATETIME);
CREATE TABLE observations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, entity_name TEXT NOT NULL, content TEXT NOT NULL, created_at DATETIME
);
CREATE TABLE relations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, source TEXT NOT NULL, target TEXT NOT NULL, relation_type TEXT NOT NULL
);
"""
"""The tables of mcp-memory-libsql 0.0.17."""
TEXTS = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content_hash TEXT UNIQUE NOT NULL, content TEXT NOT NULL, tags TEXT,
    memory_type TEXT, created_at REAL, deleted_at REAL DEFAULT NULL
);
"""
"""Of mcp-memory-service 12.4.0, without the columns that the script does not read."""


def shown(language: str) -> str:
    """The one block of the page in this language."""
    (block,) = re.findall(rf"```{language}\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    return str(block)


def exported(data_dir: Path) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in run_memlog("export", data_dir=data_dir).stdout.splitlines()
    ]


def as_lines(lines: Iterable[object]) -> str:
    return "\n".join(json.dumps(line) for line in lines)


def test_the_sql_of_the_page_gives_the_lines_of_a_graph_in_a_database(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "memory-tool.db")) as database:
        database.executescript(GRAPH)
        for entity in (JON, BARE):
            name = entity["name"]
            database.execute(
                "INSERT INTO entities VALUES (?, ?, NULL)", (name, entity["entityType"])
            )
            facts = [(name, fact) for fact in entity["observations"]]
            database.executemany(
                "INSERT INTO observations (entity_name, content) VALUES (?, ?)", facts
            )
        edge = (OWNS["from"], OWNS["to"], OWNS["relationType"])
        database.execute(
            "INSERT INTO relations (source, target, relation_type) VALUES (?, ?, ?)", edge
        )
        asked = shown("sql").split(";")[:-1]
        lines = [line for query in asked for (line,) in database.execute(query)]
    file = tmp_path / "memory.jsonl"
    file.write_text("\n".join(lines))
    done = run_memlog("import", file, data_dir=tmp_path / "data")
    assert (done.returncode, done.stderr) == (0, "")
    assert exported(tmp_path / "data") == [JON, BARE, OWNS]


def test_the_script_of_the_page_brings_texts_out_of_a_database_once(tmp_path: Path) -> None:
    file = tmp_path / "sqlite_vec.db"
    rows = [
        ("1", "Deploys on Fridays\nare frozen", "API Key, Tag:x,", "decision", 2.0, None),
        ("2", "Ünï 東京", None, None, 1.0, None),
        ("3", "gone", "x", "note", 3.0, 4.0),
        ("4", "bell \x07", "", "note", 5.0, None),
    ]
    with closing(sqlite3.connect(file)) as database:
        database.executescript(TEXTS)
        database.executemany(
            "INSERT INTO memories (content_hash, content, tags, memory_type, created_at, deleted_at) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            rows,
        )
        database.commit()
    script = tmp_path / "bring.py"
    script.write_text(shown("python"))
    data_dir = tmp_path / "data"
    serve = [sys.executable, "-m", "memlog", "serve", "--embedder", "none"]
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, script, file, *serve, "--data-dir", data_dir],
            env=environment(),
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.startswith("'bell \\x07' content: ")
        assert len(ran.stdout.splitlines()) == 1
    with served(data_dir, MEMLOG_EMBEDDER="none") as memlog:
        found = memlog("memory_list")["results"]
        kept = [(each["type"], each["tags"]) for each in found]
        assert kept == [
            ("note", []),
            ("decision", ["api-key", "tag:x"]),
        ]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_filter_of_the_page_takes_the_texts_of_observations_and_leaves_out_empty_ones(
    tmp_path: Path,
) -> None:
    told = [
        {"id": "obs_1", "content": "Likes\ndancing", "version": 2},
        {"id": "obs_0", "content": "hates it", "version": 1, "superseded_by": "obs_1"},
        {"content": " "},
        "",
        "hums",
    ]
    program, file = tmp_path / "texts.jq", tmp_path / "memory.jsonl"
    program.write_text(shown("jq"))
    file.write_text(as_lines([JON | {"observations": told}, BARE, OWNS]))
    assert run_memlog("import", file, data_dir=tmp_path / "data").returncode == 1
    ran = subprocess.run(["jq", "-c", "-f", program, file], capture_output=True, check=True)
    file.write_bytes(ran.stdout)
    assert run_memlog("import", file, data_dir=tmp_path / "data").returncode == 0
    kept = JON | {"observations": ["Likes\ndancing", "hums"]}
    assert exported(tmp_path / "data") == [kept, BARE, OWNS]


def test_the_mark_before_the_lines_of_another_server_is_left_out_as_the_page_says(
    tmp_path: Path,
) -> None:
    mark = {"type": "_aim", "source": "mcp-knowledge-graph"}
    file = tmp_path / "memory.jsonl"
    file.write_text(as_lines([mark, JON, BARE, OWNS]))
    refused = run_memlog("import", file, data_dir=tmp_path / "data")
    assert refused.returncode == 1
    assert "line 1: " in refused.stderr
    assert "tail -n +2 memory.jsonl" in PAGE.read_text()
    rest = subprocess.run(["tail", "-n", "+2", file], capture_output=True, check=True).stdout
    file.write_bytes(rest)
    assert run_memlog("import", file, data_dir=tmp_path / "data").returncode == 0
    assert exported(tmp_path / "data") == [JON, BARE, OWNS]
