"""A server that is killed at any moment: nothing acknowledged is lost, and the next start needs no help."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memlog.projects.store import Store
from projections import check, embeddings
from projections.follow import PROJECTIONS
from tests.embedder_by_hash import opened_by_hash
from tests.served import DEADLINE_S, REPOSITORY, Pipe, run_memlog, served
from tests.service import Client, client_on

KILLS = 8
WRITES_PER_LIFE = 60


def entity(name: str) -> dict[str, Any]:
    return {"name": name, "entityType": "thing", "observations": [f"fact of {name}"]}


def names(answer: dict[str, Any]) -> list[str]:
    return [each["name"] for each in answer["entities"]]


def require_sound_log(data_dir: Path) -> None:
    """The chain is whole, positions are dense, the state is what the log says."""
    store = Store(data_dir)
    try:
        for row in store.projects("active"):
            project = store.project(row.name)
            assert list(project.verify()) == list(range(1, project.head() + 1))
            assert project.is_as_rebuilt()
    finally:
        store.close()


# -- kills at random moments


def live_and_be_killed(server: Pipe, life: int, dice: random.Random) -> list[str]:
    """Writes and searches under way, a random number of answers, the kill; what was acknowledged."""
    sent: dict[int, str] = {}
    for number in range(WRITES_PER_LIFE):
        name = f"life{life}n{number:02}"
        sent[server.send_call("create_entities", entities=[entity(name)])] = name
        if dice.random() < 0.3:
            server.send_call("search_nodes", query=name, mode="text")
    answered = []
    for _ in range(dice.randrange(WRITES_PER_LIFE)):
        answered.append(server.read())
    server.kill()
    while (answer := server.read()) is not None:
        answered.append(answer)
    assert all(answer and not answer["result"]["isError"] for answer in answered)
    return [sent[answer["id"]] for answer in answered if answer and answer["id"] in sent]


def test_what_was_acknowledged_is_found_after_kills_at_random_moments(tmp_path: Path) -> None:
    dice = random.Random(8)
    acknowledged: list[str] = []
    for life in range(KILLS):
        with served(tmp_path) as server:
            last = acknowledged[-5:]
            assert server("open_nodes", names=last)["notFound"] == []
            for name in last:
                assert names(server("search_nodes", query=name, mode="text"))[:1] == [name]
            acknowledged += live_and_be_killed(server, life, dice)
        require_sound_log(tmp_path)
    assert len(acknowledged) > KILLS
    with served(tmp_path) as server:
        assert server("open_nodes", names=acknowledged)["notFound"] == []
        for name in acknowledged:
            assert names(server("search_nodes", query=name, mode="text"))[:1] == [name]
    checked = run_memlog("replay", "--check", "--json", data_dir=tmp_path, MEMLOG_EMBEDDER="minilm")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["default"] == dict.fromkeys(["state", *PROJECTIONS], "equal")


def test_a_killed_process_leaves_no_lock_to_those_that_live(tmp_path: Path) -> None:
    dice = random.Random(3)
    with served(tmp_path) as survivor:
        for life in range(3):
            with served(tmp_path) as victim:
                acknowledged = live_and_be_killed(victim, life, dice)
            name = f"after {life}"
            survivor("create_entities", entities=[entity(name)])
            for each in [name, *acknowledged[-3:]]:
                assert names(survivor("search_nodes", query=each, mode="text"))[0] == each
        survivor.close_stdin()
        assert survivor.end() == (0, "")
    require_sound_log(tmp_path)


LIFE = [
    ("create_project", "active"),
    ("archive_project", "archived"),
    ("restore_project", "active"),
    ("archive_project", "archived"),
    ("delete_project", "gone"),
]


def change_lives_and_be_killed(server: Pipe, life: int, dice: random.Random) -> dict[str, int]:
    """Takes projects through LIFE until the kill; the last acknowledged step of each."""
    reached: dict[str, int] = {}
    for number in range(20):
        name = f"life{life} project{number}"
        for step, (tool, _) in enumerate(LIFE):
            server.send_call(tool, name=name)
            if dice.random() < 0.1:
                server.kill()
                return reached
            answer = server.read()
            assert answer is not None
            assert not answer["result"]["isError"], answer
            reached[name] = step
    return reached


def test_a_project_is_where_its_last_acknowledged_change_left_it_or_one_step_further(
    tmp_path: Path,
) -> None:
    dice = random.Random(5)
    for life in range(3):
        with served(tmp_path) as server:
            reached = change_lives_and_be_killed(server, life, dice)
        assert reached
        with served(tmp_path) as server:
            rows = server("list_projects", status="all")["projects"]
            known = {row["name"]: row["status"] for row in rows}
            for name, step in reached.items():
                assert known.get(name, "gone") in {status for _, status in LIFE[step : step + 2]}
            for name, status in known.items():
                if status == "active":
                    assert server("read_graph", project=name)["entities"] == []
        require_sound_log(tmp_path)


# -- crashes between two steps

PRELUDE = """
import os, sys, threading
from pathlib import Path
import memlog.storage.environment, memlog.projects.project, memlog.projects.rebuilding, memlog.state
import projections.embeddings, projections.follow, projections.text.projector, projections.text.schema
import projections.vectors.projector, projections.vectors.snapshot, projections.embedding.store
from projections.text.projector import TextProjector
from projections.vectors.projector import VectorProjector
from projections.vectors.snapshot import SnapshotFolder
from projections.embedding.store import VectorCache
from memlog.storage.environment import Environment
from tests.embedder_by_hash import opened_by_hash
from tests.service import client_on

projections.embeddings.open_embedder = opened_by_hash

dying = threading.Lock()

def die():
    dying.acquire()  # two threads may come to the end in the same moment
    sys.stdout.write("died")
    sys.stdout.flush()
    os._exit(9)

def dies_before(owner, name):
    setattr(owner, name, lambda *arguments, **options: die())

def dies_after(owner, name):
    step = getattr(owner, name)
    def step_and_die(*arguments, **options):
        step(*arguments, **options)
        die()
    setattr(owner, name, step_and_die)

def dies_before_the_commit():
    def write_once(self, body):
        with self._env.begin(write=True) as transaction:
            body(transaction)
            die()
    Environment._write_once = write_once

def dies_after_the_commit():
    write_once = Environment._write_once
    def written(self, body):
        write_once(self, body)
        if self.path.name == "log.mdb":
            die()
    Environment._write_once = written

def dies_after_a_commit_of_text():
    open_writer = TextProjector._writer
    class Writer:
        def __init__(self, writer):
            self.writer = writer
        def __getattr__(self, name):
            return getattr(self.writer, name)
        def commit(self):
            self.writer.commit()
            die()
    TextProjector._writer = lambda self, changes: Writer(open_writer(self, changes))

def remember(name):
    fact = {"name": name, "entityType": "thing", "observations": ["fact of " + name]}
    client("create_entities", entities=[fact])

def search(name):
    client("search_nodes", query=name, mode="hybrid")
    client.service.open("default").projections.text()

with client_on(Path(sys.argv[1]), embedder="minilm") as client:
"""

BEFORE = """
    remember("first")
    search("first")
    projections_ = client.service.open("default").projections
    projections_.vectors().save()
"""

THEN = """
    remember("second")
    search("second")
    projections_.vectors().save()
"""

CRASHES = {
    "in a write, before its commit": ("dies_before_the_commit()", THEN, False),
    "in a write, after its commit": ("dies_after_the_commit()", THEN, True),
    "after text is searched ahead": ("dies_after(TextProjector, 'look_ahead')", THEN, True),
    "before text is indexed": ("dies_before(TextProjector, 'apply')", THEN, True),
    "before text is committed": ("dies_after(projections.text.projector, 'fill')", THEN, True),
    "after a commit of text": ("dies_after_a_commit_of_text()", THEN, True),
    "before the writer of text is let go": ("dies_before(TextProjector, '_release')", THEN, True),
    "after text is indexed": ("dies_after(TextProjector, 'apply')", THEN, True),
    "before vectors are added": ("dies_before(VectorProjector, 'apply')", THEN, True),
    "after vectors are added": ("dies_after(VectorProjector, 'apply')", THEN, True),
    "before a vector is kept": ("dies_before(VectorCache, 'put_many')", THEN, True),
    "after a vector is kept": ("dies_after(VectorCache, 'put_many')", THEN, True),
    "before vectors are saved": ("dies_before(VectorProjector, 'save')", THEN, True),
    "before a snapshot has its name": ("dies_before(SnapshotFolder, 'publish')", THEN, True),
    "after vectors are saved": ("dies_after(VectorProjector, 'save')", THEN, True),
    "after text was thrown away": (
        "dies_after(TextProjector, 'reset')",
        "\n    projections_.rebuild('text')\n",
        False,
    ),
    "after vectors were thrown away": (
        "dies_after(VectorProjector, 'reset')",
        "\n    projections_.rebuild('vectors')\n",
        False,
    ),
    "in the middle of a replay of the state": (
        "dies_after(memlog.projects.rebuilding, 'evolve')",
        "\n    client.service.open('default').project.rebuild()\n",
        False,
    ),
}
"""Where the process dies; what it was doing; whether what it was doing was acknowledged or on disk."""

FIRST_CRASHES = {
    "before the text index has its settings": "dies_before(projections.text.schema.os, 'replace')",
    "after the text index was made": "dies_after(projections.text.projector, 'create')",
    "before the first text is committed": "dies_after(projections.text.projector, 'fill')",
    "before the first vector is kept": "dies_before(VectorCache, 'put_many')",
}
"""Deaths at the very first search, while the indexes come into being."""


def run_and_die(data_dir: Path, code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, str(data_dir)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (9, "died"), done.stderr


def require_answers(client: Client, name: str) -> None:
    """It is opened and found by words and by meaning."""
    assert names(client("open_nodes", names=[name])) == [name]
    assert names(client("search_nodes", query=f"fact of {name}", mode="text"))[0] == name
    exact = f"{name}: fact of {name}"
    assert names(client("search_nodes", query=exact, mode="semantic"))[0] == name


def require_as_rebuilt(client: Client) -> None:
    opened = client.service.open("default")
    assert opened.project.is_as_rebuilt()
    for name in PROJECTIONS:
        assert check.compare(opened.projections, name), name


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_between_two_steps_is_answered_right_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    patch, action, written = CRASHES[crash]
    run_and_die(tmp_path, f"{BEFORE}\n    {patch}\n{action}")
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        require_answers(client, "first")
        assert names(client("read_graph")) == ["first", "second"][: 1 + written]
        if written:
            require_answers(client, "second")
        client("create_entities", entities=[entity("third")])
        require_answers(client, "third")
        require_as_rebuilt(client)
    require_sound_log(tmp_path)


@pytest.mark.parametrize("crash", FIRST_CRASHES)
def test_a_crash_while_the_indexes_come_into_being_is_answered_right_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    run_and_die(
        tmp_path, f"\n    {FIRST_CRASHES[crash]}\n    remember('first')\n    search('first')"
    )
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        require_answers(client, "first")
        require_as_rebuilt(client)


def test_an_import_that_is_killed_is_simply_repeated(tmp_path: Path) -> None:
    file = tmp_path / "memory.jsonl"
    lines = [{"type": "entity", **entity(f"e{n:03}")} for n in range(600)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    data_dir = tmp_path / "data"
    code = f"""
    execute, calls = memlog.projects.project.Project.execute, []
    def third_time_dies(*arguments, **options):
        calls.append(1)
        answer = execute(*arguments, **options)
        if len(calls) == 3:
            die()
        return answer
    memlog.projects.project.Project.execute = third_time_dies
    from server.cli import cli
    os.environ |= {{"MEMLOG_DATA_DIR": {str(data_dir)!r}, "MEMLOG_EMBEDDER": "none"}}
    cli.main(["import", {str(file)!r}], standalone_mode=False)
"""
    run_and_die(tmp_path / "unused", code)
    again = run_memlog("import", file, "--json", data_dir=data_dir)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["events"] == 2 * 400, "the project and 200 were there already"
    exported = run_memlog("export", data_dir=data_dir)
    assert [json.loads(line) for line in exported.stdout.splitlines()] == lines
    require_sound_log(data_dir)
