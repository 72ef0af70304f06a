"""Every benchmark runs, tiny: so that none rots. What they measure is nobody's business here."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, cast
from xml.etree.ElementTree import fromstring

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from bench import corpus, memories, report
from bench.__main__ import main
from bench.footprint import Resident, disk_megabytes
from bench.importing import generated
from bench.machine import describe
from bench.registry import BENCHMARKS, run
from bench.replay import goals_of
from bench.rows import Row, Section, Skipped, at_most_ms, floor, percentile_ns, row
from bench.scale import PLOTTED
from bench.timing import Step, beside
from bench.wire import SERVE, Server, environment, result_of
from bench.world import TINY, World
from memlog.copies import transfer
from memlog.settings import VARIABLES
from projections.embedding import VectorCache

MS = 1_000_000
SVG = "{http://www.w3.org/2000/svg}"
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Section]]:
    folder = tmp_path_factory.mktemp("bench")
    memory = folder / "memory.json"
    memory.write_bytes(generated(corpus.entities(1_000, 3)))
    names = [benchmark.name for benchmark in BENCHMARKS]
    with World(folder, TINY, Console(quiet=True), memory) as world:
        return [(benchmark.name, section) for benchmark, section in run(world, names)]


def rows(measured: list[tuple[str, Section]]) -> Iterator[tuple[Section, Row]]:
    for _, section in measured:
        for each in section.rows:
            yield section, each


def test_every_benchmark_measures_something_and_skips_nothing(
    measured: list[tuple[str, Section]],
) -> None:
    assert {name for name, _ in measured} == {benchmark.name for benchmark in BENCHMARKS}
    for name, section in measured:
        if name == "peers" and section.skipped:
            continue  # where npm is missing; the tests of the drop-in skip by that name, too
        assert section.skipped == []
        assert section.sizes or any(not each.is_floor for each in section.rows), section.title


def test_every_row_has_times_that_can_be(measured: list[tuple[str, Section]]) -> None:
    for section, each in rows(measured):
        assert each.n >= 1, (section.title, each.name)
        assert 0 < each.p50_ms <= each.p99_ms < math.inf, (section.title, each.name)


def test_every_size_is_something_and_stands_beside_another(
    measured: list[tuple[str, Section]],
) -> None:
    sizes = [size for _, section in measured for size in section.sizes]
    assert {"resident memory of the server", "on disk: log", "on disk: text"} <= {
        size.name for size in sizes
    }
    for each in sizes:
        assert 0 < each.megabytes < 10_000 and each.floor_megabytes > 0, each.name
        assert each.ratio == pytest.approx(each.megabytes / each.floor_megabytes)


def test_every_row_stands_on_floors_of_its_own_section(
    measured: list[tuple[str, Section]],
) -> None:
    for section, each in rows(measured):
        if each.is_floor:
            continue
        floors = {other.name for other in section.rows if other.is_floor}
        assert {part.split(" × ")[-1] for part in each.floor.split(" + ")} <= floors
        assert each.floor_p50_ms is not None and each.floor_p50_ms > 0
        assert each.ratio == pytest.approx(each.p50_ms / each.floor_p50_ms)


def test_every_goal_of_the_project_is_judged(measured: list[tuple[str, Section]]) -> None:
    judged = {name for name, section in measured for each in section.rows if each.met is not None}
    judged_when_large = {"replay"}
    promised = {benchmark.name for benchmark in BENCHMARKS} - {"import", "peers"}
    assert judged == promised - judged_when_large


def test_a_replay_is_judged_by_its_share_of_a_million_events() -> None:
    assert [goal.limit_ms for goal in goals_of("state", 1_000_000)] == [20_000]
    assert [goal.limit_ms for goal in goals_of("analytics", 100_000)] == [1_500]
    assert goals_of("text", 1_000) == []


def test_the_targets_of_the_seed_stand_beside_the_four_tools_they_are_for(
    measured: list[tuple[str, Section]],
) -> None:
    said = {
        row.name: [goal.says for goal in row.goals if goal.says.startswith("seed:")]
        for name, section in measured
        if name == "memories"
        for row in section.rows
    }
    assert {name: goals for name, goals in said.items() if goals} == {
        "store_memory": ["seed: ≤ 500 ms"],
        "search_memories": ["seed: ≤ 200 ms"],
        "supersede_memory": ["seed: ≤ 100 ms"],
        "list_recent_memories": ["seed: ≤ 100 ms"],
    }


class Counted:
    """In place of a server: answers every call alike, and counts what it is asked, each tool by itself."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        return tool.encode()

    def ask(self, tool: bytes) -> bytes:
        self.asked[tool.decode()] += 1
        return b'{"result": {"structuredContent": {"created": {"id": "mem_1"}}}}'


def test_each_sample_of_a_tool_of_facts_is_a_call_of_that_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Counted()
    with World(tmp_path, TINY, Console(quiet=True)) as world:
        monkeypatch.setattr(world, "no_op", server)
        list(memories._measured(world, cast(Server, server)))
    stored_before = TINY.calls + 1
    assert server.asked == {
        **dict.fromkeys([*memories.GOALS, "nothing"], TINY.calls),
        "store_memory": stored_before + TINY.calls,
    }


def test_every_headline_is_the_last_row_of_its_name(measured: list[tuple[str, Section]]) -> None:
    found = [(row.name, section.title) for section, row in report.headline_rows(measured)]
    assert [name for name, _ in found] == [
        name for benchmark in BENCHMARKS for name in benchmark.headlines
    ]
    *_, largest = (section.title for name, section in measured if name == "scale")
    assert largest in {title for _, title in found}


def test_what_scale_measured_is_plotted_at_each_size(measured: list[tuple[str, Section]]) -> None:
    drawn = fromstring(report.plotted([section for _, section in measured]))
    lines = [line for line in drawn.iter(f"{SVG}g") if [*line.iter(f"{SVG}title")]]
    assert len(lines) == 2 * len(PLOTTED)
    for line in lines:
        told = [title.text or "" for title in line.iter(f"{SVG}title")]
        assert [text.split(" observations")[0].split()[-1] for text in told] == ["12", "24"]
        assert told[0].startswith(tuple(PLOTTED))


def test_the_rows_are_shown_and_written_whole(
    measured: list[tuple[str, Section]], tmp_path: Path
) -> None:
    machine = describe(tmp_path)
    shown = StringIO()
    console = Console(file=shown, width=400)
    page = report.page(machine, measured)
    document = report.Document(machine, [section for _, section in measured])
    again = json.loads(msgspec.json.encode(document))
    assert len(again["sections"]) == len(measured)
    for _, section in measured:
        for table in report.tables(section):
            console.print(table)
        for size in section.sizes:
            assert size.name in shown.getvalue() and size.name in page
    for section, each in rows(measured):
        assert section.title in shown.getvalue() and section.title in page
        assert each.name in shown.getvalue() and each.name in page


def test_the_page_in_the_documentation_has_every_benchmark() -> None:
    page = PAGE.read_text()
    for benchmark in BENCHMARKS:
        assert f"## {benchmark.name}\n\n{benchmark.about}\n" in page


@pytest.mark.parametrize("peer", ["true", "cat", "/no/such/server"])
def test_a_peer_that_is_no_memory_server_is_named(
    peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process keeps its own
    ran = CliRunner().invoke(main, ["--tiny", "--only", "peers", "--peer", peer])
    assert ran.exit_code == 2
    assert f"Error: {peer} is no memory server over stdio: " in ran.output


def test_a_peer_that_remembers_something_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    peer = [*SERVE, "--data-dir", str(tmp_path), "--embedder", "none"]
    known = {"name": "Jon", "entityType": "person", "observations": ["dances"]}
    with Server(peer) as server:
        result_of(server.ask(server.call("create_entities", {"entities": [known]})))
    ran = CliRunner().invoke(main, ["--tiny", "--only", "peers", "--peer", shlex.join(peer)])
    assert ran.exit_code == 2
    assert "remembers 1 entity already" in ran.output
    with Server(peer) as server:
        graph = result_of(server.ask(server.call("read_graph", {})))["structuredContent"]
    assert [each["name"] for each in graph["entities"]] == ["Jon"]


def test_a_server_that_is_measured_has_no_settings_of_the_callers_shell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "5")
    kept = {name for name in VARIABLES if environment({}).get(name) == "5"}
    assert kept == {"MEMLOG_MODEL_DIR"}


def test_what_was_measured_is_kept_in_folders_that_were_not_there(tmp_path: Path) -> None:
    rows, vectors = tmp_path / "new" / "deep" / "rows.json", tmp_path / "vectors" / "kept"
    options = ["--json", str(rows), "--vectors", str(vectors)]

    ran = CliRunner().invoke(main, ["--tiny", "--only", "append", *options])

    assert ran.exit_code == 0, ran.output
    assert json.loads(rows.read_bytes())["sections"]
    assert vectors.is_dir()


@pytest.mark.parametrize("option", ["--json", "--plot", "--vectors"])
def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(
    option: str, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_bytes(b"")

    ran = CliRunner().invoke(main, ["--tiny", "--only", "scale", option, f"{in_the_way}/new/it"])

    assert ran.exit_code == 2
    assert f"{option}': the folder {in_the_way}/new" in ran.output
    assert "cannot be made: Not a directory" in ran.output


@pytest.mark.parametrize("options", [["--all"], ["--only", "append", "--json", "rows.json"]])
def test_what_may_not_be_written_is_refused_before_anything_is_measured(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    monkeypatch.setattr("bench.__main__.run", lambda *_: pytest.fail("it was measured"))

    ran = CliRunner().invoke(main, options)

    assert ran.exit_code == 2, ran.output
    assert " may not" in ran.output


def test_what_was_measured_before_one_failed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)  # this process keeps its own
    rows = tmp_path / "rows.json"
    options = ["--only", "append", "--only", "peers", "--peer", "cat", "--json", str(rows)]

    ran = CliRunner().invoke(main, ["--tiny", *options])

    assert ran.exit_code == 2, ran.output
    (section,) = json.loads(rows.read_bytes())["sections"]
    assert section["title"] == "One observation made durable, in process"


@pytest.mark.parametrize(
    ("option", "name"), [("--plot", "scale"), ("--memory", "import"), ("--peer", "peers")]
)
def test_an_option_of_a_benchmark_that_is_left_out_is_refused(
    option: str, name: str, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_bytes(b"")
    ran = CliRunner().invoke(main, ["--tiny", "--only", "append", option, str(given)])
    assert ran.exit_code == 2
    assert f"{option} is for `{name}`, which is left out; add --only {name}" in ran.output


def test_what_was_skipped_is_said_with_the_reason(tmp_path: Path) -> None:
    section = Section("Import", [], [Skipped("import", "no file was named")])
    page = report.page(describe(tmp_path), [("import", section)])
    assert "Skipped, import: no file was named" in page
    assert report.verdict([section]) == "0 of 0 rows with a goal met it; 1 skipped."


def test_a_percentile_is_a_sample_by_nearest_rank() -> None:
    times = list(range(100, 0, -1))
    assert percentile_ns(times, 0.50) == 50
    assert percentile_ns(times, 0.99) == 99
    assert percentile_ns([7], 0.99) == 7


def test_a_row_stands_on_the_sum_of_its_floors() -> None:
    sync, call = floor("sync", [1 * MS]), floor("call", [2 * MS])
    made = row("write", [10 * MS], [call, call, sync], goals=[at_most_ms(9)])
    assert made.floor == "2 × call + sync"
    assert (made.floor_p50_ms, made.ratio, made.met) == (5, 2, False)
    assert row("write", [10 * MS], [sync], goals=[at_most_ms(10)]).met is True
    assert row("write", [10 * MS], [sync]).met is None


def test_a_goal_is_judged_at_its_percentile_and_all_must_be_met() -> None:
    sync = floor("sync", [1 * MS])
    times = [1 * MS] * 98 + [20 * MS] * 2
    made = row("write", times, [sync], goals=[at_most_ms(5), at_most_ms(10, 0.99)])
    assert [(goal.says, goal.met) for goal in made.goals] == [
        ("≤ 5 ms", True),
        ("p99 ≤ 10 ms", False),
    ]
    assert made.met is False


def test_steps_take_turns_and_the_warm_up_is_forgotten() -> None:
    seen: list[tuple[str, int]] = []
    steps = {name: Step(run=seen.append, before=partial(_pair, name)) for name in ("a", "b")}
    times = beside(3, steps, warm_up=1, block=2)
    assert seen == [(name, n) for block in ((0, 1), (2, 3)) for name in "ab" for n in block]
    assert {name: len(taken) for name, taken in times.items()} == {"a": 3, "b": 3}


def _pair(name: str, number: int) -> tuple[str, int]:
    return name, number


def test_the_corpus_is_the_same_each_time_and_its_names_are_distinct() -> None:
    assert corpus.entities(5, 3) == corpus.entities(0, 8)[5:]
    assert len({corpus.entity(number).name for number in range(20_000)}) == 20_000


def test_the_few_most_frequent_words_make_up_half_of_the_corpus() -> None:
    words = [
        word
        for each in corpus.entities(0, 1_000)
        for fact in each.observations
        for word in fact.lower().split()
    ]
    frequent = set(corpus.vocabulary()[:150])
    assert 0.4 < sum(word in frequent for word in words) / len(words) < 0.7
    assert len(set(words)) > 3_000


def test_queries_are_distinct_and_made_of_the_words_of_one_fact() -> None:
    known = corpus.entities(0, 50)
    facts = [set(fact.lower().split()) for each in known for fact in each.observations]
    queries = corpus.queries(known, 40)
    assert len(set(queries)) == 40
    for query in queries:
        assert any(set(query.split()) <= fact for fact in facts)


@pytest.mark.parametrize("fact", ["four words that differ", "no word of it is long"])
def test_more_queries_than_the_facts_have_words_for_are_refused(fact: str) -> None:
    with pytest.raises(
        click.UsageError, match="for 30 queries that differ: choose a larger --size"
    ):
        corpus.queries_of([fact], 30)


def test_a_query_tells_which_fact_its_words_are_of() -> None:
    facts = [record.summary for record in corpus.records(20)]
    for query, number in corpus.queries_of(facts, 30):
        assert set(query.split()) <= set(facts[number].lower().split())


def test_vectors_that_were_kept_serve_the_next_run_but_not_what_it_writes(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for folder in (kept, tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
    with World(tmp_path / "first", TINY, Console(quiet=True), vectors=kept) as world:
        texts = world.prepared(12).texts
    with World(tmp_path / "second", TINY, Console(quiet=True), vectors=kept) as world:
        drawn = [fact for entity in world.draw(3) for fact in entity.observations]
        cache = VectorCache(world.vectors_file)
        known = cache.get_many(texts)
        fresh = cache.get_many(drawn)
        cache.close()
        assert all(vector is not None for vector in known)
        assert all(vector is None for vector in fresh)
        assert world.prepared(12).texts == texts


def test_the_memory_of_a_process_and_the_disk_of_a_project_are_told(tmp_path: Path) -> None:
    (tmp_path / "text-v3").mkdir()
    (tmp_path / "text-v3" / "segment").write_bytes(bytes(3_000_000))
    (tmp_path / "log.mdb").write_bytes(bytes(1_000_000))
    (tmp_path / "log.mdb-lock").write_bytes(bytes(500_000))
    assert disk_megabytes(tmp_path) == {"log": 1.5, "text": 3.0}
    resident = Resident.of(os.getpid())
    if resident is None:
        pytest.skip("this system has no /proc")
    assert 1 < resident.anonymous_megabytes <= resident.megabytes


def test_a_generated_file_is_one_that_the_import_reads() -> None:
    lines = transfer.read(generated(corpus.entities(0, 4)))
    assert len(lines) == 8
