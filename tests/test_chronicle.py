"""The whole history as lines of JSON: out and in again, equal to the last digest, or refused whole."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import tracemalloc
from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlog import codec
from memlog.commands import CreateMemory, StoreMemory
from memlog.context import Context
from memlog.copies import chronicle
from memlog.copies.taking_in import take_in
from memlog.errors import InvalidParameter, MemlogError, ProjectExists, StorageError
from memlog.events import EntityCreated, MemoryStored
from memlog.projects.contents import DATABASES
from memlog.projects.project import LOG_FILE, Origin, Project
from memlog.projects.purging import Target
from memlog.projects.store import Store
from memlog.repair.damage import noted
from memlog.storage.environment import Environment
from memlog.storage.filling import fill
from memlog.storage.tables import place
from memlog.times import LATEST_US
from tests.command_line import JON, CommandLine, holding_lines
from tests.command_line import written as written_lines
from tests.simulated_commands import Draw


def history(folder: Path, seed: int, commands: int = 40) -> Store:
    """A store with one project in which everything happened that can."""
    store = Store(folder)
    store.create("default", "what happened")
    draw, memories = Draw(random.Random(seed)), list[str]()
    for number in range(commands):
        try:
            store.project("default").execute(
                draw.command(memories, number),
                Context(),
                lambda outcome: memories.extend(
                    entry.event.memory_id
                    for entry in outcome.entries
                    if isinstance(entry.event, MemoryStored)
                ),
                Origin(thread="one"),
            )
        except MemlogError:
            continue
    return store


def written(project: Project) -> bytes:
    return b"".join(chronicle.write(project))


def read(data: bytes) -> list[tuple[int, bytes]]:
    _, entries = chronicle.read(data)
    return list(entries)


def digests(project: Project) -> tuple[int, bytes, str]:
    with project.stored() as (log, _):
        chain = log.chain_at(log.position())
    return project.head(), chain, project.digest()


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), purged=st.booleans())
def test_a_history_comes_back_with_equal_digests(
    tmp_path_factory: pytest.TempPathFactory, seed: int, purged: bool
) -> None:
    folder = tmp_path_factory.mktemp("history")
    store = history(folder / "here", seed)
    if purged:
        with store.project("default").read() as state:
            names = tuple(entity.name for entity in state.entities())[:1]
        if names:
            store.purge("default", Target(names, ()))
    lines = written(store.project("default"))
    heading, entries = chronicle.read(lines)
    there = Store(folder / "there")
    done = take_in(there, heading.project, heading.generation, entries)
    assert (done.how, done.name) == ("restored", "default")
    assert digests(there.project("default")) == digests(store.project("default"))
    assert written(there.project("default")) == lines
    for each in (store, there):
        each.close()
    shutil.rmtree(folder)


def test_it_reads_well(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("default")
    store.project("default").execute(
        StoreMemory(content="Ann lives in 東京"),
        Context(),
        lambda _: None,
        Origin("c1", "t1", "me"),
    )
    heading, first, second = (
        json.loads(each) for each in written(store.project("default")).splitlines()
    )
    assert heading["memlog"] == "history"
    assert first["event"]["type"] == "project_created.v1"
    assert (second["position"], second["command"], second["thread"]) == (2, "c1", "t1")
    assert second["event"]["content"] == "Ann lives in 東京"


@pytest.mark.parametrize("mended", [False, True])
def test_an_entry_that_json_cannot_say_to_the_byte_carries_its_bytes(
    tmp_path: Path, mended: bool
) -> None:
    """As one has that was stored, or put by a repair, before its event had all the fields of today. What was exported
    then is taken, too."""
    store = Store(tmp_path / "here")
    store.create("default")
    folder = store.project("default").folder
    head, chain, _ = digests(store.project("default"))
    time_us = store.find("default").created_us + 1
    store.close()
    body = msgspec.msgpack.encode(
        [time_us, "cmd_old", None, None, ["entity_created.v1", "ent_1", "Jon", "person"]]
    )
    link = codec.chain(chain, head + 1, sha256(body).digest())
    value = bytes([codec.WRITTEN]) + link + body
    if mended:
        seal = sha256(place(head + 1) + link + body).digest()
        value = bytes([codec.MENDED]) + link + seal + body
    environment = Environment(folder / LOG_FILE, DATABASES)
    fill(environment, "log", [(place(head + 1), value)])
    environment.close()
    store = Store(tmp_path / "here")
    store.project("default").rebuild()
    lines = written(store.project("default"))
    *before, last = lines.splitlines()
    of_today = json.loads(last)
    assert of_today.pop("stored")
    of_then = of_today | {"event": dict(list(of_today["event"].items())[:4])}
    for number, exported in enumerate((last, json.dumps(of_then).encode())):
        there = Store(tmp_path / f"there_{number}")
        heading, entries = chronicle.read(b"\n".join([*before, exported]))
        take_in(there, heading.project, heading.generation, entries)
        assert digests(there.project("default")) == digests(store.project("default"))


@pytest.mark.parametrize("known", [False, True])
def test_what_stands_in_for_a_lost_entry_is_readable_and_comes_back(
    tmp_path: Path, known: bool
) -> None:
    store = Store(tmp_path / "here")
    row = store.create("default")
    event = EntityCreated("ent_1", "Jon", "person") if known else None
    folder = store.project("default").folder
    value = codec.mend(2, sha256(b"lost").digest(), row.created_us, event=event)
    store.close()
    environment = Environment(folder / LOG_FILE, DATABASES)
    fill(environment, "log", [(place(2), value)])
    environment.close()
    store = Store(tmp_path / "here")
    store.project("default").rebuild()
    lines = written(store.project("default"))
    last = json.loads(lines.splitlines()[-1])
    assert (last["mended"], "stored" in last) == (True, False)
    assert last.get("event", {}).get("name") == ("Jon" if known else None)
    heading, entries = chronicle.read(lines)
    there = Store(tmp_path / "there")
    take_in(there, heading.project, heading.generation, entries)
    assert digests(there.project("default")) == digests(store.project("default"))


def without(line: bytes, field: str) -> bytes:
    return json.dumps(
        {key: said for key, said in json.loads(line).items() if key != field}
    ).encode()


DAMAGES: dict[str, tuple[str, Any]] = {
    "a text was changed": (
        "line 3: .*does not match",
        lambda lines: lines[2].replace(b"Jon", b"Jom"),
    ),
    "a time was changed": (
        "line 3: ",
        lambda lines: lines[2].replace(b'"time_us":1', b'"time_us":2'),
    ),
    "no JSON": ("line 3: ", lambda lines: lines[2][:-5]),
    "an unknown event": ("line 3: ", lambda lines: lines[2].replace(b"created.v1", b"created.v9")),
    "an event that is a list": (
        "line 3: .*is not known",
        lambda lines: lines[2].replace(b'"entity_created.v1"', b'["entity_created.v1"]'),
    ),
    "deeper than can be read": (
        "line 3: .*recursion",
        lambda lines: lines[2].replace(b'"Jon"', b"[" * 20_000 + b"]" * 20_000),
    ),
    "another line": ("line 3: ", lambda lines: lines[3]),
    "nothing": ("line 3: ", lambda lines: b"{}"),
    "an event without a field": (
        "line 3: .*lacks its field 'name'",
        lambda lines: lines[2].replace(b'"name":"Jon",', b""),
    ),
    "an event without a field that others follow": (
        "line 3: .*lacks its field 'confidence'",
        lambda lines: lines[2].replace(b'"confidence":1.0,', b""),
    ),
    "no event": ("line 3: .*has an event and a command", lambda lines: without(lines[2], "event")),
    "no command": (
        "line 3: .*has an event and a command",
        lambda lines: without(lines[2], "command"),
    ),
    "an empty event": (
        "line 3: ",
        lambda lines: lines[2].replace(b'"event":{', b'"event":{"x":1,'),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_not_as_it_was_written_is_refused_whole(tmp_path: Path, damage: str) -> None:
    memlog = holding_lines(tmp_path)
    lines = memlog("export", "--full").stdout.encode().splitlines()
    said, change = DAMAGES[damage]
    lines[2] = change(lines)
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(b"\n".join(lines))
    other = CommandLine(tmp_path / "other")
    ended = other("import", file)
    assert ended.code == 1
    with pytest.raises(InvalidParameter, match=said):
        try:
            read(file.read_bytes())
        except InvalidParameter as error:
            raise InvalidParameter(f"{error.problems[0].path}: {error.message}") from error
    assert other("projects").stdout.count("default") == 0


def test_an_entry_whose_bytes_are_deeper_than_can_be_read_is_refused() -> None:
    body = b"\x95\x01\xa1c\xc0\xc0\x96\xb0memory_stored.v1\xa1m\xa1t" + b"\x81\xa1k" * 20_000
    chain = codec.chain(codec.GENESIS, 1, sha256(body).digest()).hex()
    stored = base64.b64encode(body).decode()
    heading = {"memlog": "history", "version": 1, "project": "prj_" + "0" * 26}
    entry = {"position": 1, "time_us": 1, "chain": chain, "stored": stored}
    lines = [json.dumps(each).encode() for each in (heading, entry)]
    with pytest.raises(InvalidParameter, match=r"position 1 cannot be read: .*recursion"):
        read(b"\n".join(lines))


@pytest.mark.parametrize(
    "event",
    [
        ["entity_deleted.v1", "ent_none"],
        ["observation_added.v1", "obs_1", "ent_none", "Likes dancing"],
        ["command_undone.v1", -1, 1],
        ["command_undone.v1", 1, 2],
    ],
)
def test_events_that_cannot_have_happened_are_refused(tmp_path: Path, event: list[Any]) -> None:
    store = Store(tmp_path)
    project_id = "prj_" + "0" * 26
    before, entries = codec.GENESIS, []
    for position, each in enumerate((["project_created.v1", project_id, "default", ""], event), 1):
        body = msgspec.msgpack.encode([1, "cmd_1", None, None, each])
        before = codec.chain(before, position, sha256(body).digest())
        entries.append((position, bytes([codec.WRITTEN]) + before + body))
    with pytest.raises(InvalidParameter, match="cannot have happened one after another"):
        take_in(store, project_id, 0, entries)
    assert store.projects("all") == []
    assert not list(tmp_path.rglob("prj_*"))


def test_a_history_is_read_back_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(history(tmp_path / "here", 1)) as here:
        heading, entries = chronicle.read(written(here.project("default")))

    def fill_otherwise(
        environment: Environment, name: str, rows: Iterable[tuple[bytes, bytes]], **how: bool
    ) -> None:
        fill(environment, name, ((key, value[:-1] + b"?") for key, value in rows), **how)

    monkeypatch.setattr("memlog.copies.backup.fill", fill_otherwise)
    with closing(Store(tmp_path / "there")) as there:
        with pytest.raises(StorageError, match="is damaged at position 1"):
            take_in(there, heading.project, heading.generation, entries)
        assert there.projects("all") == []


def test_a_large_history_is_not_held_again_while_it_is_read(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.create("default")
        for number in range(300):
            fact = StoreMemory(content=f"{number} " + "x" * 9_000)
            store.project("default").execute(fact, Context(), lambda _: None)
        data = written(store.project("default"))
    tracemalloc.start()
    try:
        _, entries = chronicle.read(data)
        assert sum(1 for _ in entries) == 301
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < len(data) / 10


def test_an_entry_of_a_time_before_that_of_the_entry_ahead_of_it_is_refused(tmp_path: Path) -> None:
    """Positions are looked up by time."""
    data = holding_lines(tmp_path)("export", "--full").stdout.encode()
    position, value = read(data)[-1]
    *before, last = data.splitlines()
    ahead, line = json.loads(before[-1]), json.loads(last)
    early_us = ahead["time_us"] - 1
    told = codec.decode(position, value)
    said: Any = (told.command_id, told.thread, told.actor, told.event)
    entry, _ = codec.encode(bytes.fromhex(ahead["chain"]), position, early_us, *said)
    line |= {"time_us": early_us, "chain": entry.chain.hex()}
    with pytest.raises(InvalidParameter, match="its time is before that of the entry ahead of it"):
        read(b"\n".join([*before, json.dumps(line).encode()]))


def test_an_entry_of_a_time_that_has_no_date_is_refused(tmp_path: Path) -> None:
    times = [LATEST_US, LATEST_US + 1]
    store = Store(tmp_path / "here", clock=lambda: times[0])
    store.create("default")
    read(written(store.project("default")))
    times.pop(0)
    fact = StoreMemory(content="It is late")
    store.project("default").execute(fact, Context(), lambda _: None)
    file = tmp_path / "late.jsonl"
    file.write_bytes(written(store.project("default")))
    there = CommandLine(tmp_path / "there")
    ended = there("import", file)
    assert (ended.code, "line 3: " in ended.stderr) == (1, True)
    assert "beyond the year 9999" in ended.stderr
    assert "default" not in there("projects").stdout


def test_on_the_command_line_a_history_becomes_the_project_it_was(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    file = tmp_path / "history.jsonl"
    assert memlog("export", "--full", file).stdout == f"Exported 10 lines to {file}.\n"
    other = CommandLine(tmp_path / "other")
    assert (
        other("import", file).stdout == "The history of project 'default': restored, 9 entries.\n"
    )
    assert other("export").stdout == memlog("export").stdout
    assert "already there" in other("import", file).stdout
    assert other("verify").code == 0
    assert memlog("projects", "create", "new").code == 0
    short = tmp_path / "short.jsonl"
    assert memlog("export", "--full", short, "--project", "new").code == 0
    assert other("import", short).stdout == "The history of project 'new': restored, 1 entry.\n"
    third = CommandLine(tmp_path / "third")
    assert third("import", written_lines(tmp_path / "jon.jsonl", [JON])).code == 0
    refused = third("import", file)
    assert (refused.code, "--replace" in refused.stderr) == (1, False)
    keep, delete = map(refused.stderr.find, ("memlog export --full", "memlog projects delete"))
    assert 0 < keep < delete
    fourth = CommandLine(tmp_path / "fourth")
    assert fourth("projects", "create", "default").code == 0
    assert "restored, 9 entries" in fourth("import", file).stdout  # nothing was in there


def test_a_history_takes_the_place_of_no_project_that_is_behind_it_or_went_another_way(
    tmp_path: Path,
) -> None:
    memlog, other = holding_lines(tmp_path), CommandLine(tmp_path / "other")
    early, later = tmp_path / "early.jsonl", tmp_path / "later.jsonl"
    ann = written_lines(tmp_path / "ann.jsonl", [{**JON, "name": "Ann"}])
    bob = written_lines(tmp_path / "bob.jsonl", [{**JON, "name": "Bob"}])
    assert memlog("export", "--full", early).code == 0
    assert memlog("import", ann).code == 0
    assert memlog("export", "--full", later).code == 0
    assert other("import", early).code == 0
    for said in ("is there, and behind: it ends at position 9 of ", "exists already"):
        there = other("export", "--full").stdout
        refused = other("import", later)
        assert (refused.code, said in refused.stderr) == (1, True), refused.stderr
        assert other("export", "--full").stdout == there
        assert not list((tmp_path / "other" / "replaced").glob("*"))
        assert other("import", bob).code == 0


@pytest.mark.parametrize("known", [False, True])
def test_a_history_with_an_entry_that_was_changed_is_not_exported_and_the_file_stays(
    tmp_path: Path, known: bool
) -> None:
    memlog, file = holding_lines(tmp_path), tmp_path / "history.jsonl"
    assert memlog("export", "--full", file).code == 0
    before = file.read_bytes()
    log = next(memlog.data_dir.rglob(LOG_FILE))
    log.write_bytes(log.read_bytes().replace(b"was a banker", b"was a bunker"))
    if known:
        assert memlog("verify").code == 1
    refused = memlog("export", "--full", file)
    assert (refused.code, refused.stdout) == (1, "")
    assert "whole up to position 2: position 3: its content does not match" in refused.stderr
    assert "A history goes out whole or not at all" in refused.stderr
    assert file.read_bytes() == before
    assert noted(log) is not None


def test_of_a_log_that_cannot_be_opened_a_history_is_exported_once_it_is_repaired(
    tmp_path: Path,
) -> None:
    memlog, file = holding_lines(tmp_path), tmp_path / "history.jsonl"
    log = next(memlog.data_dir.rglob(LOG_FILE))
    os.truncate(log, log.stat().st_size // 3)
    file.write_text("an earlier one")
    refused = memlog("export", "--full", file)
    assert (refused.code, refused.stdout, file.read_text()) == (1, "", "an earlier one")
    assert "`memlog repair default`" in refused.stderr
    assert "repair the log first" in refused.stderr
    assert memlog("repair", "default", "--yes").code == 0
    assert memlog("export", "--full", file).code == 0
    other = CommandLine(tmp_path / "other")
    assert other("import", file).code == 0
    assert other("export").stdout == memlog("export").stdout


@pytest.mark.parametrize("kept", [1, 2, 9])
def test_a_history_that_was_cut_at_the_end_of_a_line_is_refused(tmp_path: Path, kept: int) -> None:
    memlog = holding_lines(tmp_path)
    lines = memlog("export", "--full").stdout.splitlines(keepends=True)
    other = CommandLine(tmp_path / "other")
    ended = other("import", "-", "--data-dir", other.data_dir, stdin="".join(lines[:kept]))
    assert (ended.code, "--data-dir" in ended.stderr) == (1, False)
    assert f"line {kept}: the file ends after entry {kept - 1} of 9" in ended.stderr
    assert other("projects", "--json").json == []


def test_a_history_of_before_its_entries_were_counted_is_taken(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    text = memlog("export", "--full").stdout.replace(',"entries":9}', "}", 1)
    other = CommandLine(tmp_path / "other")
    assert other("import", "-", stdin=text).code == 0
    assert other("export").stdout == memlog("export").stdout


def test_a_history_of_which_nothing_could_be_erased_any_more_is_refused(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.create("default")
        lines = written(store.project("default"))
    most = lines.replace(b'"generation":0', b'"generation":%d' % (2**31 - 1), 1)
    assert len(read(most)) == 1
    with pytest.raises(InvalidParameter, match="no heading of a history"):
        read(lines.replace(b'"generation":0', b'"generation":%d' % (2**32 - 1), 1))


def test_a_name_that_is_taken_is_not_taken_over(tmp_path: Path) -> None:
    store = history(tmp_path / "here", 1)
    other = Store(tmp_path / "other")
    other.create("default")
    other.project("default").execute(
        CreateMemory(memory_type="note", content="mine", source="me", confidence=1.0),
        Context(),
        lambda _: None,
    )
    heading, entries = chronicle.read(written(store.project("default")))
    with pytest.raises(ProjectExists):
        take_in(other, heading.project, heading.generation, entries)
    assert other.project("default").head() == 2
