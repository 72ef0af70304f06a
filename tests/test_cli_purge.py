"""No byte of what was purged is left in any file, and the command that purges says what it does."""

from __future__ import annotations

import json
import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from memlog.errors import StorageError
from memlog.projects.project import LOG_FILE
from memlog.projects.purging import Target
from memlog.projects.store import Store
from projections.embedding import VectorCache
from server.cli import cli
from tests.command_line import CommandLine, holding_lines
from tests.served import served
from tests.service import Client, Refused, client_on
from tests.test_kills import run_and_die
from tests.test_purging import assert_whole, memory_ids, told

SECRETS = ("Zürich-Xaver", "xyzzybank", "plughstreet", "qwoxtag", "frobnicate")

COMMAND_2 = (
    "add_observations",
    {"observations": [{"entityName": SECRETS[0], "contents": ["frobnicate at xyzzybank"]}]},
)


def searched(text: str) -> set[bytes]:
    """The spellings under which a text may stand in a file."""
    folded = [text, text.lower(), text.casefold(), *text.lower().replace("-", " ").split()]
    forms = [
        unicodedata.normalize(form, each) for each in folded for form in ("NFC", "NFD", "NFKC")
    ]
    return {form.encode(code) for form in forms for code in ("utf-8", "utf-16-le")}


def holding(folder: Path, texts: tuple[str, ...]) -> set[tuple[str, str]]:
    """Which texts stand in which files."""
    return {
        (text, str(path.relative_to(folder)))
        for path in folder.rglob("*")
        if path.is_file()
        for text in texts
        if any(form in path.read_bytes() for form in searched(text))
    }


def fill(client: Client) -> list[str]:
    """A project in which the secrets were kept, changed, deleted, undone; ids of the secret records."""
    client(
        "create_entities",
        entities=[
            {
                "name": SECRETS[0],
                "entityType": "person",
                "observations": ["worked at XyzzyBank until 2019", "lives at Plughstreet 7"],
            },
            {"name": "Gina", "entityType": "person", "observations": ["runs a shop"]},
        ],
    )
    client(
        "create_relations",
        relations=[{"from": SECRETS[0], "to": "Gina", "relationType": "frobnicates"}],
    )
    client(
        "delete_observations",
        deletions=[{"entityName": SECRETS[0], "observations": ["lives at Plughstreet 7"]}],
    )
    record = client(
        "memory_create",
        type="note",
        content={"summary": "the qwoxtag of it all"},
        source="chat://1",
        tags=["qwoxtag"],
        confidence=0.9,
    )
    for number in range(40):
        client(
            "create_entities",
            entities=[
                {
                    "name": f"Other {number}",
                    "entityType": "thing",
                    "observations": [f"fact {number} " + "of no import " * 20],
                }
            ],
        )
    client.as_command("cmd-1", "search_nodes", {"query": "xyzzybank"})
    client.as_command("cmd-2", *COMMAND_2)
    opened = client.service.open("default")
    opened.projections.text()
    opened.projections.analytics()
    return [record["id"]]


def test_a_server_under_way_goes_on_with_the_new_file_and_brings_nothing_back(
    tmp_path: Path,
) -> None:
    data_dir = tmp_path / "data"
    with served(data_dir) as server:
        made = [{"name": SECRETS[0], "entityType": "person", "observations": [SECRETS[2]]}]
        server("create_entities", entities=made)
        assert server("search_nodes", query=SECRETS[2])["entities"] != []
        store = Store(data_dir)
        store.purge("default", Target((SECRETS[0],)))
        assert server("search_nodes", query=SECRETS[2])["entities"] == []
        made = [{"name": "Gina", "entityType": "person", "observations": ["runs a shop"]}]
        server("create_entities", entities=made)
        assert server("search_nodes", query="shop")["entities"][0]["name"] == "Gina"
        with store.project("default").read() as state:
            assert told(state) == {"Gina", "Gina: runs a shop"}
        assert_whole(store.project("default"))
        store.close()
    assert holding(data_dir, SECRETS) == set()


def test_no_file_of_the_data_directory_holds_a_byte_of_what_was_purged(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with client_on(data_dir) as client:
        ids = fill(client)
    cache = VectorCache(data_dir / "embeddings" / "some-key.mdb")
    texts = [f"{SECRETS[0]} (person)", "Gina (person)"]
    cache.put_many(texts, np.ones((2, 4), np.float32))
    cache.close()
    assert {text for text, _ in holding(data_dir, SECRETS)} == set(SECRETS)
    arguments = ["purge", "default", "--entity", SECRETS[0], "--memory", ids[0], "--yes"]
    environment = {"MEMLOG_EMBEDDER": "none"}
    result = CliRunner().invoke(
        cli, [*arguments, "--data-dir", str(data_dir)], env=environment, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    assert holding(data_dir, SECRETS) == set()

    cache = VectorCache(data_dir / "embeddings" / "some-key.mdb")
    first, second = cache.get_many(texts)
    assert first is None and second is not None
    cache.close()
    for checking in (["verify"], ["replay", "default", "--check"]):
        result = CliRunner().invoke(
            cli, [*checking, "--data-dir", str(data_dir)], env=environment, catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
    with client_on(data_dir) as client:
        assert client("search_nodes", query="shop")["entities"][0]["name"] == "Gina"
        with pytest.raises(Refused, match="CONFLICT: Command id 'cmd-2' was used before"):
            client.as_command("cmd-2", *COMMAND_2)


def test_vectors_that_an_earlier_version_made_of_a_name_are_erased_too(tmp_path: Path) -> None:
    """It embedded an entity without the names that it had before."""
    with client_on(tmp_path) as client:
        made = [{"name": SECRETS[0], "entityType": "person"}]
        client("create_entities", entities=made)
        client("rename_entity", name=SECRETS[0], newName=SECRETS[1])
    texts = [f"{SECRETS[1]} (person)"]
    cache = VectorCache(tmp_path / "embeddings" / "some-key.mdb")
    cache.put_many(texts, np.ones((1, 4), np.float32))
    cache.close()
    purge = ("purge", "default", "--entity", SECRETS[1], "--yes")
    assert CommandLine(tmp_path)(*purge).code == 0
    cache = VectorCache(tmp_path / "embeddings" / "some-key.mdb")
    (left,) = cache.get_many(texts)
    assert left is None
    cache.close()


def test_a_purge_that_is_killed_once_the_log_is_written_anew_leaves_nothing_in_the_indexes(
    tmp_path: Path,
) -> None:
    """The log does not know of it any more, so nobody can ask for the rest."""
    with client_on(tmp_path) as client:
        fill(client)
    code = f"""
    from memlog.projects.purging import Target
    dies_after(memlog.projects.project.Project, "erase")
    client.service.purge("default", Target(({SECRETS[0]!r},)))
"""
    run_and_die(tmp_path, code)
    assert holding(tmp_path, SECRETS[:3]) == set()


def test_a_purge_whose_indexes_cannot_be_built_says_that_it_is_done(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        fill(client)
    (index,) = tmp_path.glob("projects/*/text-v*")
    index.with_name(f"{index.name}.1").write_text("no folder")
    arguments = ["purge", "default", "--entity", SECRETS[0], "--yes", "--data-dir", str(tmp_path)]
    result = CliRunner().invoke(cli, arguments, env={"MEMLOG_EMBEDDER": "none"})
    assert result.exit_code == 1
    assert isinstance(result.exception, StorageError)
    assert str(result.exception.suggestion).startswith("Erased 6 entries of project 'default'.")


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        (
            "server.cli.purge.indexed",
            "Erased 6 entries of project 'default'. Only the indexes are not there yet: the next search builds them, "
            "or `memlog replay --data-dir ",
        ),
        ("server.service.Usage.forget", "It may be erased already. Run the command again: "),
    ],
)
def test_a_purge_that_is_stopped_when_it_has_erased_does_not_only_say_that_it_was_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: str, said: str
) -> None:
    with client_on(tmp_path) as client:
        fill(client)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, stop)
    ended = CommandLine(tmp_path)(
        *("purge", "default", "--entity", SECRETS[0], "--yes", "--data-dir", tmp_path)
    )
    assert (ended.code, said in ended.stderr) == (1, True), ended.stderr
    assert ended.stderr.endswith("\nAborted!\n")
    with client_on(tmp_path) as client:
        assert SECRETS[0] not in str(client("read_graph"))


def test_the_command_tells_what_goes_asks_and_does_nothing_on_no(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with client_on(data_dir) as client:
        client(
            "create_entities", entities=[{"name": "Jon", "entityType": "p", "observations": ["a"]}]
        )
        client("store_memory", content="lives in Rome")
        (old,) = memory_ids(client.service.open("default").project)
        client("store_memory", content="lives in Oslo")
        new = memory_ids(client.service.open("default").project)[0]
        client("supersede_memory", oldMemoryId=old, newMemoryId=new)
    base = ["purge", "default", "--data-dir", str(data_dir), "--entity", "Jon", "--memory", new]
    environment = {"MEMLOG_EMBEDDER": "none"}
    result = CliRunner().invoke(cli, base, input="n\n", env=environment)
    assert result.exit_code == 1
    assert "Names: Jon" in result.output
    assert "1 entity created" in result.output
    assert "Positions: 2-3, 5-6" in result.output
    assert "lives in Rome' is there again" in result.output
    with client_on(data_dir) as client:
        assert client("open_nodes", names=["Jon"])["entities"] != []
    result = CliRunner().invoke(cli, [*base, "--json"], env=environment)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["positions"] == [2, 3, 5, 6]
    assert "Nothing was erased: --yes does it." in result.stderr
    with client_on(data_dir) as client:
        assert client("open_nodes", names=["Jon"])["entities"] != []
    result = CliRunner().invoke(cli, [*base, "--yes", "--json"], env=environment)
    report = json.loads(result.stdout)
    assert report["positions"] == [2, 3, 5, 6]
    assert report["names"] == ["Jon"]


def test_what_comes_in_while_the_command_asks_is_not_erased_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge = ("purge", "default", "--entity", "Jon")
    memlog = CommandLine(tmp_path)
    people = [
        {"name": name, "entityType": "person", "observations": ["dances"]}
        for name in ("Jon", "Gina")
    ]
    with served(tmp_path) as server:
        server("create_entities", entities=people)

        def merged_meanwhile(_: str) -> None:
            server("merge_entities", names=["Gina"], into="Jon")

        with monkeypatch.context() as asking:
            asking.setattr("server.cli.purge.confirm", merged_meanwhile)
            refused = memlog(*purge)
        assert refused.code == 1
        assert "Positions: 2-3\n" in refused.stdout
        assert refused.stderr == (
            "error: Project 'default' changed meanwhile: 4 entries would go that nobody was told of; nothing was "
            "erased\nhint: Run the command again, and look at what it tells.\n"
        )
        assert server("open_nodes", names=["Jon", "Gina"])["entities"] != []
    again = memlog(*purge, stdin="y\n")
    assert (again.code, "Erased 6 entries of project 'default'." in again.stdout) == (0, True)


def test_of_each_kind_of_event_that_goes_there_is_one_or_there_are_many(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        people = [
            {"name": "Jon", "entityType": "person", "observations": ["dances", "sings"]},
            {"name": "Mia", "entityType": "person", "observations": ["knows Jon"]},
        ]
        client("create_entities", entities=people)
    base = ["purge", "default", "--data-dir", str(tmp_path), "--entity", "Jon"]
    told = CliRunner().invoke(cli, base, input="n", env={"MEMLOG_EMBEDDER": "none"}).stdout
    assert told.splitlines()[1:3] == ["     2 observations added", "     1 entity created"]
    assert "A name stays in 1 other entry: " in told
    both = [*base, "--entity", "Mia"]
    told = CliRunner().invoke(cli, both, input="n", env={"MEMLOG_EMBEDDER": "none"}).stdout
    assert "     2 entities created" in told.splitlines()


def test_a_log_that_was_put_aside_is_named_since_it_still_holds_what_was_erased(
    tmp_path: Path,
) -> None:
    old, new, backup = tmp_path / "old", CommandLine(tmp_path / "new"), str(tmp_path / "backup")
    people = [f'{{"type":"entity","name":"{name}","entityType":"person"}}' for name in SECRETS]
    assert new("import", "-", stdin=people[0]).code == 0
    shutil.copytree(tmp_path / "new", old)
    assert new("import", "-", stdin=people[1]).code == new("backup", backup).code == 0
    memlog = CommandLine(old)
    assert memlog("restore", backup, "--replace").code == 0
    (aside,) = (old / "replaced").iterdir()
    purged = memlog("purge", "default", "--entity", SECRETS[0], "--yes")
    assert (purged.code, purged.stderr) == (
        0,
        f"Warning: {aside} is a log put aside, and may still hold it; it is yours to remove.\n",
    )
    deleted = CommandLine(tmp_path / "deleted")
    shutil.copytree(old, tmp_path / "deleted")
    named = purged.stderr.replace(str(old), str(tmp_path / "deleted"))
    assert deleted("projects", "delete", "default", "--yes").stderr == named
    shutil.rmtree(aside)
    assert holding(old, SECRETS[:1]) == set()
    assert memlog("purge", "default", "--entity", SECRETS[1], "--yes").stderr == ""
    assert memlog("projects", "delete", "default", "--yes").stderr == ""


def test_what_was_served_of_a_log_while_it_was_damaged_is_erased_too(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next(memlog.data_dir.rglob(LOG_FILE))
    whole = log.read_bytes()
    os.truncate(log, len(whole) // 3)
    assert memlog("stats").code == 0
    log.write_bytes(whole)
    assert memlog("verify").code == 0
    assert {path.split("/")[0] for _, path in holding(memlog.data_dir, ("banker",))} > {"salvaged"}
    assert memlog("purge", "default", "--entity", "Jon", "--yes").code == 0
    assert holding(memlog.data_dir, ("banker",)) == set()


def test_of_a_log_that_is_damaged_nothing_is_said_to_be_erased(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    log = next(memlog.data_dir.rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    refused = memlog("purge", "default", "--entity", "Jon", "--yes")
    assert refused.code == 1
    assert "The log of this project is damaged" in refused.stderr
