"""`get_analytics` as a client sees it, and `memlog stats` as a person does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memlog.commands import CreateProject, StoreMemory
from memlog.projects.project import Project
from memlog.times import parse_iso
from projections.analytics.projector import AnalyticsProjector
from projections.follow import Projections
from server import service
from server.cli import cli
from server.cli.stats import events_by_day, sparkline
from tests.counted import do
from tests.idle_follower import Idle
from tests.service import Client, Refused, client_on

PORTFOLIO: dict[str, Any] = {
    "entities": [
        {
            "name": "Andrii",
            "entityType": "Person",
            "observations": ["Works at Google", "Author of MCP Memory Server", "Uses Windows"],
            "relations": [
                {"targetEntity": "Python Scripts", "relationType": "created"},
                {"targetEntity": "Portfolio", "relationType": "updates for"},
            ],
            "importance": 1.0,
        },
        {
            "name": "Python Scripts",
            "entityType": "CodeArtifact",
            "observations": ["update_portfolio.py is main script", "Uses python-docx 1.2.0"],
            "relations": [{"targetEntity": "Andrii", "relationType": "created by"}],
            "importance": 0.6,
        },
        {
            "name": "Portfolio",
            "entityType": "Document",
            "observations": ["Contains 2 main tables"],
            "relations": [{"targetEntity": "Andrii", "relationType": "updated by"}],
            "importance": 0.9,
        },
    ],
    "threadId": "portfolio-update-2026",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def create(client: Client, *names: str, **more: Any) -> None:
    entities = [{"name": name, "entityType": "person"} for name in names]
    client("create_entities", entities=entities, **more)


def relate(client: Client, source: str, *targets: str, kind: str = "knows") -> None:
    edges = [{"from": source, "to": target, "relationType": kind} for target in targets]
    client("create_relations", relations=edges)


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [each["entityName"] for each in listed]


# -- get_analytics


def test_an_empty_project_has_nothing_to_tell(client: Client) -> None:
    assert client("get_analytics") == {
        "project": "default",
        "recent_changes": [],
        "top_important": [],
        "most_connected": [],
        "orphaned_entities": [],
    }


def test_the_answer_has_the_shapes_of_the_guide(client: Client) -> None:
    client("save_memory", PORTFOLIO)
    create(client, "Draft")
    client(
        "add_observations",
        observations=[{"entityName": "Portfolio", "contents": ["Total 21 records"]}],
    )
    answer = client("get_analytics", threadId="portfolio-update-2026")
    opened = client("open_nodes", names=["Andrii", "Portfolio"])["entities"]
    times = {each["name"]: each["updatedAt"] for each in opened}
    assert answer == {
        "project": "default",
        "recent_changes": [
            {
                "entityName": "Portfolio",
                "entityType": "Document",
                "lastModified": times["Portfolio"],
                "changeType": "updated",
            },
            {
                "entityName": "Python Scripts",
                "entityType": "CodeArtifact",
                "lastModified": times["Andrii"],
                "changeType": "created",
            },
            {
                "entityName": "Andrii",
                "entityType": "Person",
                "lastModified": times["Andrii"],
                "changeType": "created",
            },
        ],
        "top_important": [
            {
                "entityName": "Andrii",
                "entityType": "Person",
                "importance": 1.0,
                "observationCount": 3,
            },
            {
                "entityName": "Portfolio",
                "entityType": "Document",
                "importance": 0.9,
                "observationCount": 2,
            },
            {
                "entityName": "Python Scripts",
                "entityType": "CodeArtifact",
                "importance": 0.6,
                "observationCount": 2,
            },
        ],
        "most_connected": [
            {
                "entityName": "Andrii",
                "entityType": "Person",
                "relationCount": 4,
                "connectedTo": ["Python Scripts", "Portfolio"],
            },
            {
                "entityName": "Portfolio",
                "entityType": "Document",
                "relationCount": 2,
                "connectedTo": ["Andrii"],
            },
            {
                "entityName": "Python Scripts",
                "entityType": "CodeArtifact",
                "relationCount": 2,
                "connectedTo": ["Andrii"],
            },
        ],
        "orphaned_entities": [],
    }
    assert names(client("get_analytics")["recent_changes"])[:2] == ["Portfolio", "Draft"]


def test_orphans_come_with_the_reason_and_a_missing_end_is_no_connection(client: Client) -> None:
    create(client, "Jon", "Gina", "Tom")
    relate(client, "Jon", "Gina", "nobody")
    answer = client("get_analytics")
    assert answer["orphaned_entities"] == [
        {"entityName": "Tom", "entityType": "person", "reason": "no_relations"},
        {"entityName": "Jon", "entityType": "person", "reason": "broken_relation"},
    ]
    assert answer["most_connected"][1] == {
        "entityName": "Jon",
        "entityType": "person",
        "relationCount": 1,
        "connectedTo": ["Gina"],
    }


def test_a_hub_names_25_neighbours_and_counts_them_all(client: Client) -> None:
    others = [f"other {number}" for number in range(30)]
    create(client, "hub", *others)
    relate(client, "hub", "hub", *others)
    relate(client, "hub", "other 0", kind="likes")
    first = client("get_analytics", limit=1)["most_connected"][0]
    assert (first["entityName"], first["relationCount"]) == ("hub", 32)
    assert first["connectedTo"] == others[:25]


@pytest.mark.parametrize("neighbours", [25, 26])
def test_names_of_neighbours_that_are_left_out_are_told_of(client: Client, neighbours: int) -> None:
    others = [f"other {number}" for number in range(neighbours)]
    create(client, "hub", *others)
    relate(client, "hub", *others)
    answer = client("get_analytics", limit=1)
    assert len(answer["most_connected"][0]["connectedTo"]) == 25
    assert ("open_nodes" in answer.get("notice", "")) is (neighbours > 25)


def test_long_names_of_neighbours_that_are_left_out_are_told_of(client: Client) -> None:
    others = [f"{number} {'x' * 400}" for number in range(8)]
    create(client, "hub", *others)
    relate(client, "hub", *others)
    answer = client("get_analytics", limit=1)
    assert len(answer["most_connected"][0]["connectedTo"]) < 8
    assert answer["notice"].startswith("connectedTo leaves some out")


def test_the_limit_is_that_of_each_list_and_ten_where_none_is_given(client: Client) -> None:
    create(client, *(f"entity {number}" for number in range(12)))
    assert len(client("get_analytics")["orphaned_entities"]) == 10
    answer = client("get_analytics", limit=100)
    assert len(answer["recent_changes"]) == len(answer["orphaned_entities"]) == 12
    for wrong in (0, 101):
        with pytest.raises(Refused):
            client("get_analytics", limit=wrong)


def test_the_past_is_told_by_position_and_by_time(client: Client) -> None:
    create(client, "Jon")
    create(client, "Gina")
    before = client("read_graph")["entities"][-1]["createdAt"]
    relate(client, "Jon", "Gina")
    client("delete_entities", entityNames=["Gina"])
    create(client, "Tom")
    for moment in (3, before):
        answer = client("get_analytics", asOf=moment)
        assert names(answer["recent_changes"]) == ["Gina", "Jon"]
        assert names(answer["orphaned_entities"]) == ["Gina", "Jon"]
    assert client("get_analytics", asOf=4)["most_connected"][0]["connectedTo"] == ["Jon"]
    assert names(client("get_analytics")["recent_changes"]) == ["Tom", "Jon"]


@pytest.mark.parametrize("counted", [False, True])
def test_what_is_written_while_it_reads_is_counted_and_named_or_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    """Where the counts are of before the write and the state is not, and the other way round."""
    monkeypatch.setattr(service, "Follower", Idle)
    catch_up, read = Projections.analytics, AnalyticsProjector.read

    def catch_up_then_write(self: Projections) -> AnalyticsProjector:
        monkeypatch.setattr(Projections, "analytics", catch_up)
        analytics = self.analytics()
        relate(opened, "Jon", "Tom")
        return analytics

    def write_then_read(self: AnalyticsProjector, at: int | None = None) -> Any:
        monkeypatch.setattr(AnalyticsProjector, "read", read)
        relate(opened, "Jon", "Tom")
        opened.service.open("default").projections.analytics()
        return self.read(at)

    with client_on(tmp_path) as opened:
        create(opened, "Jon", "Gina", "Ann", "Tom")
        relate(opened, "Jon", "Gina", "Ann")
        if counted:
            monkeypatch.setattr(AnalyticsProjector, "read", write_then_read)
        else:
            monkeypatch.setattr(Projections, "analytics", catch_up_then_write)
        jon = opened("get_analytics", limit=1)["most_connected"][0]
    assert jon["relationCount"] == len(jon["connectedTo"])


def test_what_was_renamed_merged_or_undone_is_told_by_the_name_it_has(client: Client) -> None:
    create(client, "jon", "Gina", "John")
    relate(client, "Gina", "jon")
    client("rename_entity", name="Gina", newName="Regina")
    client("merge_entities", names=["jon"], into="John")
    answer = client("get_analytics")
    assert answer["most_connected"][0]["connectedTo"] == ["Regina"]
    assert sorted(names(answer["recent_changes"])) == ["John", "Regina"]
    client("undo", last=2)
    answer = client("get_analytics")
    assert answer["most_connected"][0]["connectedTo"] == ["jon"]
    assert sorted(names(answer["recent_changes"])) == ["Gina", "John", "jon"]


def test_each_project_has_its_own_analytics_before_and_after_it_was_archived(
    client: Client,
) -> None:
    create(client, "Jon")
    client("create_project", name="other")
    assert client("get_analytics", project="other")["recent_changes"] == []
    client("archive_project", name="default")
    client("restore_project", name="default")
    answer = client("get_analytics", project="default")
    assert (answer["project"], names(answer["recent_changes"])) == ("default", ["Jon"])


# -- the command line


def memlog(data_dir: Path, *arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments, "--data-dir", str(data_dir)])
    assert result.exit_code == 0, result.output
    return result.output


def test_analytics_are_rebuilt_and_checked_by_replay(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("save_memory", PORTFOLIO)
    assert "analytics equal" in memlog(tmp_path, "replay", "--only", "analytics", "--check")
    assert "rebuilt to position" in memlog(tmp_path, "replay", "--only", "analytics")
    assert "analytics equal" in memlog(tmp_path, "replay", "--only", "analytics", "--check")


def test_stats_tell_totals_and_metrics_with_their_targets(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("save_memory", PORTFOLIO)
        with pytest.raises(Refused):
            lonely = {"name": "Ann", "entityType": "Person", "observations": [], "relations": []}
            client("save_memory", entities=[lonely], threadId="other")
        with pytest.raises(Refused):
            client("save_memory", entities=[], threadId="other")
        wordy = {**PORTFOLIO["entities"][0], "observations": ["x" * 151]}
        for named in ({}, {"project": "default"}, {"project": "nowhere"}, {"project": 7}):
            with pytest.raises(Refused):
                client("save_memory", entities=[wordy], threadId="other", **named)
        create(client, "Draft", threadId="other")
        client(
            "add_observations",
            observations=[{"entityName": "Draft", "contents": ["x" * 151, "is short"]}],
        )
        client("store_memory", content="User moved to Austin")
        old, new = (
            client("store_memory", content=f"User lives in {city}")["created"]["id"]
            for city in ("Oslo", "Rome")
        )
        client("supersede_memory", old_memory_id=old, new_memory_id=new)
        client("forget_memory", id=new)
    report = json.loads(memlog(tmp_path, "stats", "--json"))
    assert report["totals"] == {
        "entities": 4,
        "observations": 8,
        "atomic": 7,
        "relations": 4,
        "related": 3,
        "orphaned": 1,
        "threads": 2,
        "memories_active": 1,
        "memories_superseded": 1,
        "memories_deleted": 1,
    }
    measured = {each["name"]: (each["value"], each["met"]) for each in report["metrics"]}
    assert measured == {
        "relation coverage": (75.0, False),
        "observation atomicity": (87.5, False),
        "save_memory error rate": (83.33, False),
        "relations per entity": (1.0, False),
    }
    assert [each["target"] for each in report["metrics"]] == ["100 %", "100 %", "< 10 %", "> 2.0"]
    assert report["threads"] == {"portfolio-update-2026": 3, "other": 1}
    assert report["entity_types"]["Person"] == 1
    assert report["memory_types"] == {"fact": {"active": 1, "superseded": 1, "deleted": 1}}
    assert len(report["days"]) == 30
    assert sum(report["days"].values()) == report["position"]


def test_stats_are_shown_as_a_picture(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        client("save_memory", PORTFOLIO)
        day = client("read_graph")["entities"][0]["createdAt"][:10]
    shown = memlog(tmp_path, "stats", "default")
    assert "3 entities, 6 observations, 4 relations, 0 orphans" in shown
    assert "relation coverage" in shown
    assert "✓" in shown
    assert day in shown
    assert "█" in shown
    assert "portfolio-update-2026" in shown


def test_stats_tell_of_one_as_of_one_and_of_thousands_with_commas(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        create(client, "Jon")
        for first in range(0, 1_200, 400):
            facts = [f"fact {number}" for number in range(first, first + 400)]
            said = [{"entityName": "Jon", "contents": facts}]
            client("add_observations", observations=said)
        relate(client, "Jon", "Jon")
    shown = memlog(tmp_path, "stats")
    assert "1 entity, 1,200 observations, 1 relation, " in shown


def test_stats_of_a_new_project_measure_nothing(tmp_path: Path) -> None:
    memlog(tmp_path, "projects", "create", "default")
    report = json.loads(memlog(tmp_path, "stats", "--json"))
    assert {each["value"] for each in report["metrics"]} == {None}
    assert "nothing yet" in memlog(tmp_path, "stats")


def test_events_are_counted_on_the_day_they_happened(tmp_path: Path) -> None:
    moments = [
        parse_iso(text, "moment")
        for text in ("2026-02-27T23:59:59.999999Z", "2026-02-28", "2026-03-01T12:00", "2026-03-01")
    ]
    clock = iter(moments)
    project = Project(tmp_path, clock=lambda: next(clock))
    do(project, CreateProject(name="one"))
    for _ in moments[1:]:
        do(project, StoreMemory(content="x"))
    days = events_by_day(project, moments[2])
    project.close()
    assert list(days)[-3:] == ["2026-02-27", "2026-02-28", "2026-03-01"]
    assert list(days.values()) == [*[0] * 27, 1, 1, 2]


def test_a_sparkline_is_blank_for_nothing_and_highest_for_the_most() -> None:
    assert sparkline([0, 1, 50, 100]) == " ▁▅█"
    assert sparkline([]) == ""
