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
KEPT = """
CREATE TABLE context_items (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, value TEXT NOT NULL, category TEXT, channel TEXT DEFAULT 'general',
    created_at TIMESTAMP, sequence_number INTEGER DEFAULT 0
);
INSERT INTO context_items VALUES ('2', 'style', 'four blanks', NULL, 'general', '2026-11-02', 1);
INSERT INTO context_items VALUES ('1', 'db', 'Postgres', 'decision', 'My Branch', '2026-11-01', 1);
"""
"""Of mcp-memory-keeper 0.14.1, likewise."""
CHROMA = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE segments (id TEXT PRIMARY KEY, collection TEXT NOT NULL);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL);
CREATE TABLE embedding_metadata (
    id INTEGER, key TEXT NOT NULL, string_value TEXT, PRIMARY KEY (id, key)
);
INSERT INTO collections VALUES ('c', 'Work Notes');
INSERT INTO segments VALUES ('v', 'c'), ('m', 'c');
INSERT INTO embeddings VALUES (1, 'm', 'one'), (2, 'm', 'two');
INSERT INTO embedding_metadata VALUES (2, 'chroma:document', 'four blanks'), (2, 'lang', 'en');
INSERT INTO embedding_metadata VALUES (1, 'chroma:document', 'Postgres');
"""
"""Of chromadb 1.5.9, likewise."""
NOTES = {
    "coffee/Brewing.md": """---
title: 'Brewing: Ann''s way'
type: guide
permalink: main/coffee/brewing
tags:
- coffee
- My Tag
---

# Brewing: Ann's way

Notes, see [[Espresso]].
Two lines.

## 2026-10-03
- [tip] Grind fine #grind
  - finer for V60
1. pour

```sh
# no heading

- [[no link]]
```

## Relations
- relates_to [[espresso|the machine]]
- "made with" [[Burr Grinder]] (a good one)
- [[coffee/Index]]
""",
    "coffee/Index.md": "first",
    "trips/Index.md": "\ufeff---\r\ntags: [x, 'y z']\r\n---\r\nsecond: [[main/coffee/brewing#top]]\r\n",
    "Espresso.md": "",
    ".obsidian/hidden.md": "hidden",
}


def shown(language: str, number: int = 0) -> str:
    """A block of the page in this language."""
    found = re.findall(rf"^```{language}\n(.*?)\n```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found[number])


def brought(script: str, file: Path, data_dir: Path) -> str:
    """What the script for texts says as it brings those of a file."""
    program = file.with_name("bring.py")
    program.write_text(script)
    ran = subprocess.run(
        [sys.executable, program, file, sys.executable, "-m", "memlog", "serve"],
        env=environment(MEMLOG_DATA_DIR=str(data_dir)),
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return str(ran.stdout)


def records(data_dir: Path) -> list[tuple[str, str, str, list[str]]]:
    """Type, content, source and tags, newest first."""
    with served(data_dir, MEMLOG_EMBEDDER="none") as memlog:
        memories = memlog("list_recent_memories")["memories"]
        listed = {each["id"]: each for each in memlog("memory_list")["results"]}
    return [
        (listed[each["id"]]["type"], each["content"], each["source"], listed[each["id"]]["tags"])
        for each in memories
    ]


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
    data_dir = tmp_path / "data"
    for _ in range(2):
        said = brought(shown("python"), file, data_dir)
        assert said.startswith("'bell \\x07' content: ")
        assert len(said.splitlines()) == 1
    source = "mcp-memory-service"
    assert records(data_dir) == [
        ("note", "Ünï 東京", source, []),
        ("decision", "Deploys on Fridays\nare frozen", source, ["api-key", "tag:x"]),
    ]


def test_the_script_of_the_page_brings_what_mem0_answers_with_its_user(tmp_path: Path) -> None:
    memories = [
        {
            "id": "1",
            "memory": "Likes\ntea",
            "user_id": "Ann B",
            "metadata": {"k": 1},
            "score": None,
        },
        {"id": "2", "memory": "Lives in Rome", "user_id": "Ann B", "metadata": None},
    ]
    file = tmp_path / "mem0.json"
    file.write_text(json.dumps({"results": memories}))
    data_dir = tmp_path / "data"
    for _ in range(2):
        assert brought(shown("python"), file, data_dir) == ""
    assert records(data_dir) == [
        ("fact", "Lives in Rome", "mem0", ["user:ann-b"]),
        ("fact", "Likes\ntea", "mem0", ["user:ann-b"]),
    ]


@pytest.mark.parametrize(
    ("number", "server", "tables", "kept"),
    [
        (
            0,
            "mcp-memory-keeper",
            KEPT,
            [
                ("note", "style: four blanks", "mcp-memory-keeper", ["general"]),
                ("decision", "db: Postgres", "mcp-memory-keeper", ["my-branch"]),
            ],
        ),
        (
            1,
            "chroma",
            CHROMA,
            [
                ("note", "four blanks", "chroma", ["work-notes"]),
                ("note", "Postgres", "chroma", ["work-notes"]),
            ],
        ),
    ],
)
def test_with_another_query_of_the_page_the_script_brings_texts_out_of_another_database(
    tmp_path: Path, number: int, server: str, tables: str, kept: list[object]
) -> None:
    file = tmp_path / "texts.db"
    with closing(sqlite3.connect(file)) as database:
        database.executescript(tables)
    script = shown("python").replace("mcp-memory-service", server)
    asked = re.sub(r"(?m)^QUERY = .*", f'QUERY = """{shown("sqlite", number)}"""', script)
    assert asked != script
    assert brought(asked, file, tmp_path / "data") == ""
    assert records(tmp_path / "data") == kept


def test_the_script_of_the_page_makes_notes_in_markdown_a_graph(tmp_path: Path) -> None:
    for place, text in NOTES.items():
        file = tmp_path / "notes" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    script = tmp_path / "notes.py"
    script.write_text(shown("python", 1))
    lines = subprocess.run(
        [sys.executable, script, tmp_path / "notes"], capture_output=True, check=True
    ).stdout
    file = tmp_path / "notes.jsonl"
    file.write_bytes(lines)
    done = run_memlog("import", file, data_dir=tmp_path / "data")
    assert done.returncode == 0, done.stderr
    brewing = "Brewing: Ann's way"
    entities = {
        "Espresso": ("note", []),
        brewing: (
            "guide",
            [
                "Tags: coffee, My Tag",
                "Notes, see [[Espresso]].\nTwo lines.",
                "2026-10-03: [tip] Grind fine #grind\n  - finer for V60",
                "2026-10-03: 1. pour",
                "2026-10-03: ```sh\n# no heading\n\n- [[no link]]\n```",
                '"made with" [[Burr Grinder]] (a good one)',
            ],
        ),
        "Index": ("note", ["first"]),
        "trips/Index": ("note", ["Tags: x, y z", "second: [[main/coffee/brewing#top]]"]),
    }
    relations = [
        (brewing, "links_to", "Espresso"),
        (brewing, "relates_to", "Espresso"),
        (brewing, "made with", "Burr Grinder"),
        (brewing, "links_to", "Index"),
        ("trips/Index", "links_to", brewing),
    ]
    kept = exported(tmp_path / "data")
    assert {
        each["name"]: (each["entityType"], each["observations"])
        for each in kept
        if each["type"] == "entity"
    } == entities
    assert [
        (each["from"], each["relationType"], each["to"])
        for each in kept
        if each["type"] == "relation"
    ] == relations


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
