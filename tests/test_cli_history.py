"""The commands that look back: log, show, diff, undo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memlog.errors import Conflict, EntityNotFound, InvalidParameter
from memlog.projects.project import Origin, Project
from memlog.projects.store import Store
from server.cli import COMMANDS, cli
from server.performing import perform
from server.registry import Call
from server.service import Service
from tests.command_line import CommandLine
from tests.service import client_on

Run = Callable[..., Result]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Positions 2 and 3: Jon and a fact; 4 and 5: Gina and a fact, of a thread; 6: they know each other;
    7: Jon's new name; 8: another fact."""
    with client_on(tmp_path) as client:
        client("create_entities", entities=[jon("Jon", "was a banker")])
        client("create_entities", entities=[jon("Gina", "runs a shop")], threadId="planning")
        client(
            "create_relations",
            relations=[{"from": "Jon", "to": "Gina", "relationType": "knows"}],
        )
        client("rename_entity", name="Jon", newName="Jonathan")
        client(
            "add_observations",
            observations=[{"entityName": "Jonathan", "contents": ["dances"]}],
            threadId="planning",
        )
    return tmp_path


def jon(name: str, *observations: str) -> dict[str, Any]:
    return {"name": name, "entityType": "person", "observations": list(observations)}


@pytest.fixture
def run(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line on the data directory; raises what it was refused with."""
    monkeypatch.setenv("MEMLOG_EMBEDDER", "none")

    def invoke(*arguments: str) -> Result:
        line = [*arguments, "--data-dir", str(data_dir)]
        result = CliRunner().invoke(cli, line, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result

    return invoke


@pytest.fixture
def project(data_dir: Path) -> Iterator[Callable[[], Project]]:
    """The project as it stands when asked: a file is opened once at a time in a process."""
    stores: list[Store] = []

    def opened() -> Project:
        stores.append(Store(data_dir))
        return stores[-1].project("default")

    yield opened
    for store in stores:
        store.close()


def positions(result: Result) -> list[int]:
    return [line["position"] for line in json.loads(result.output)]


# -- log


def test_the_log_of_an_entity_holds_what_touched_it_under_whatever_name(run: Run) -> None:
    for name in ("Jon", "Jonathan"):
        assert positions(run("log", "--entity", name, "--json")) == [2, 3, 6, 7, 8]
    assert positions(run("log", "--entity", "Gina", "--before", "6", "--json")) == [4, 5]


def test_the_log_of_a_thread_holds_what_it_did(run: Run) -> None:
    assert positions(run("log", "--thread", "planning", "--json")) == [4, 5, 8]
    both = run("log", "--thread", "planning", "--entity", "Jonathan", "--json")
    assert positions(both) == [8]


def test_the_log_says_who_did_something_where_it_is_known_and_in_which_thread(run: Run) -> None:
    run("undo")
    created, *_, taken_back = run("log").output.splitlines()
    assert " · by " not in created
    assert taken_back.endswith(" · by memlog undo · what position 8 changed was undone")
    assert " · thread planning · 'Jonathan': 'dances' was added" in run("log").output


def test_the_log_of_nobody_is_refused_with_the_nearest_name(run: Run) -> None:
    with pytest.raises(EntityNotFound) as caught:
        run("log", "--entity", "Jonatan")
    assert "Jonathan" in (caught.value.suggestion or "")


# -- show


def test_an_entity_is_shown_with_its_parts_and_where_each_came_from(run: Run) -> None:
    lines = run("show", "Jon").output.splitlines()
    assert lines[0].startswith("Jonathan (person)  (position 2, ")
    assert lines[1] == "  also Jon"
    assert lines[2].startswith("  · was a banker  (position 3, ")
    assert lines[3].startswith("  · dances  (position 8, ")
    assert "thread planning" in lines[3]
    assert lines[4].startswith("  → Jonathan knows Gina  (position 6, ")
    assert "cmd_" in lines[4]


def test_an_entity_is_shown_with_who_wrote_each_part(run: Run, data_dir: Path) -> None:
    with client_on(data_dir) as client:
        by_phone = Call(client.session, Origin(actor="phone"))
        added = {"observations": [{"entityName": "Jon", "contents": ["sings"]}]}
        perform(client.tools["add_observations"], by_phone, added)
    dances, sings = run("show", "Jon").output.splitlines()[3:5]
    assert sings.startswith("  · sings  (position 9, ")
    assert "Z, by phone, cmd_" in sings
    assert " by " not in dances


def test_an_entity_is_shown_as_it_was(run: Run) -> None:
    shown = json.loads(run("show", "Jon", "--as-of", "5", "--json").output)
    assert shown["entity"]["name"] == "Jon"
    assert shown["entity"]["observations"] == ["was a banker"]
    assert shown["relations"] == []
    with pytest.raises(EntityNotFound) as refused:
        run("show", "Jonathan", "--as-of", "5")
    assert refused.value.suggestion == "It came later, at position 7: ask as of then."


# -- diff


def test_a_diff_tells_what_came_went_and_changed(run: Run) -> None:
    assert run("diff", "--from", "5", "--to", "8").output.splitlines() == [
        "position 5 to 8",
        "~ entity Jon (person) → Jonathan (person)",
        "+ observation Jonathan: dances",
        "+ relation Jonathan knows Gina",
    ]
    backwards = run("diff", "--from", "8", "--to", "5").output.splitlines()
    assert backwards[1:] == [
        "~ entity Jonathan (person) → Jon (person)",
        "- observation Jonathan: dances",
        "- relation Jonathan knows Gina",
    ]


def test_a_diff_takes_times_and_ends_now_unless_told(run: Run) -> None:
    found = json.loads(run("diff", "--from", "1970-01-01", "--json").output)
    assert (found["from"], found["to"]) == (0, 8)
    assert {each["how"] for each in found["differences"]} == {"added"}
    assert [each["kind"] for each in found["differences"]] == [
        *["entity"] * 2,
        *["observation"] * 3,
        "relation",
    ]


def test_a_moment_that_is_none_is_refused_under_the_name_of_its_option(data_dir: Path) -> None:
    where = ["--data-dir", str(data_dir)]
    for option, arguments in (
        ("--as-of", ["show", "Gina", "--as-of"]),
        ("--from", ["diff", "--from"]),
        ("--to", ["diff", "--from", "1", "--to"]),
    ):
        done = CliRunner().invoke(cli, [*arguments, "yesterday", *where])
        assert isinstance(done.exception, InvalidParameter)
        assert done.exception.message == f"{option}: 'yesterday' is not a time"


def test_between_a_moment_and_itself_nothing_is_different(run: Run) -> None:
    assert "Nothing is different." in run("diff", "--from", "8").output
    with pytest.raises(InvalidParameter):
        run("diff", "--from", "9")


# -- undo


def test_a_dry_run_tells_and_changes_nothing(run: Run, project: Callable[[], Project]) -> None:
    assert run("undo", "--dry-run").output == "Would undo: 8 · 'Jonathan': 'dances' was added\n"
    assert project().head() == 8


def test_an_undo_that_is_stopped_when_it_is_done_does_not_only_say_that_it_was_aborted(
    data_dir: Path, project: Callable[[], Project], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Service.execute

    def stop(*arguments: Any) -> None:
        done(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Service, "execute", stop)
    ended = CommandLine(data_dir)("undo", "--project", "default", "--data-dir", data_dir)
    assert (ended.code, ended.stdout) == (1, "")
    log = f"`memlog log --data-dir {data_dir} --project default`"
    assert ended.stderr.split("\n")[1:] == [
        f"It may be undone already, and another undo takes back one command more: {log} tells.",
        "",
        "Aborted!",
        "",
    ]
    assert project().head() == 9


def test_an_undo_of_a_thread_that_never_wrote_names_the_nearest_that_did(run: Run) -> None:
    before = positions(run("log", "--json"))
    with pytest.raises(InvalidParameter, match="Did you mean 'planning'") as refused:
        run("undo", "--thread", "planing")
    advice = refused.value.suggestion or ""
    assert advice.startswith("Run `memlog log") and advice.endswith(": it names the threads.")
    assert positions(run("log", "--json")) == before


def test_undo_takes_back_the_last_command_and_of_a_thread_its_last(
    run: Run, project: Callable[[], Project]
) -> None:
    assert run("undo").output.startswith("Undone: 8 · ")
    with pytest.raises(Conflict):
        run("undo", "--thread", "planning")
    undone = json.loads(run("undo", "--thread", "planning", "--cascade", "--json").output)
    assert [each["position"] for each in undone["undone"]] == [7, 6, 4, 5]
    with project().read() as state:
        assert [row.name for row in state.entities()] == ["Jon"]


def test_the_log_and_an_undo_tell_apart_who_did_it_and_since_when(
    run: Run, project: Callable[[], Project]
) -> None:
    run("undo")
    mine = ("--since", "6", "--actor", "memlog undo")
    assert positions(run("log", *mine, "--json")) == [9]
    assert positions(run("log", "--since", "6", "--json")) == [7, 8, 9]
    assert (
        run("undo", *mine, "--dry-run").output
        == "Would undo: 9 · what position 8 changed was undone\n"
    )
    run("undo", "--since", "6", "--dry-run")
    run("undo", *mine)
    with project().read() as state:
        jon = state.entity_named("Jonathan")
        assert jon is not None
        assert "dances" in [row.content for row in state.observations(jon.id)]


def test_an_undo_of_all_since_a_moment_goes_back_to_what_was_there(
    run: Run, project: Callable[[], Project]
) -> None:
    run("undo", "--since", "5")
    found = project()
    with found.read() as now, found.read(5) as then:
        assert list(now.entities()) == list(then.entities())
        assert list(now.relations()) == []


def test_an_undo_of_all_since_a_moment_made_again_says_that_there_is_nothing_to_undo(
    run: Run,
) -> None:
    run("undo", "--since", "5")
    with pytest.raises(InvalidParameter, match="no command after position 5 to undo"):
        run("undo", "--since", "5")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--position", "3", "--since", "2"), "--position names one command"),
        (("--position", "3", "--actor", "phone"), "--position names one command"),
        (("--position", "3", "--thread", ""), "--position names one command"),
        (("--last", "3", "--since", "2"), "leave out --last"),
    ],
)
def test_an_undo_is_told_in_one_way_what_to_take_back(
    given: tuple[str, ...], said: str, data_dir: Path
) -> None:
    result = CliRunner().invoke(cli, ["undo", *given, "--data-dir", str(data_dir)])
    assert result.exit_code == 2
    assert said in result.output


def test_an_undo_of_what_another_took_away_says_how_to_go_further_back(
    data_dir: Path, run: Run
) -> None:
    edge = {"from": "Gina", "to": "Jonathan", "relationType": "employs"}
    with client_on(data_dir) as client:
        client("create_relations", relations=[edge], threadId="hiring")
        client("delete_relations", relations=[edge])
    said = run("undo", "--thread", "hiring").output
    assert said.rstrip().endswith("Pass --last 2 to go one command further back.")
    assert "further back" not in run("undo", "--position", "9").output


def test_undo_by_position_with_what_depends_on_it(run: Run, project: Callable[[], Project]) -> None:
    run("undo", "--position", "2", "--cascade")
    with project().read() as state:
        assert [row.name for row in state.entities()] == ["Gina"]
        assert list(state.relations()) == []


def test_a_position_and_a_thread_exclude_each_other(data_dir: Path) -> None:
    line = ["undo", "--position", "2", "--thread", "planning", "--data-dir", str(data_dir)]
    result = CliRunner().invoke(cli, line)
    assert result.exit_code == 2
    assert "leave out" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"Example: memlog {name}" in result.output
