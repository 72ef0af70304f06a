"""Toolset `projects` as a client sees it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from filelock import FileLock

from memlog.errors import ProjectArchived
from memlog.settings import Mode
from memlog.storage import environment, files
from projections import embeddings
from projections.analytics.projector import AnalyticsProjector
from projections.follow import Projections
from projections.vectors.index import Vectors
from tests.embedder_by_hash import ByHash, opened_by_hash
from tests.served import DEADLINE_S
from tests.service import Client, Refused, client_on

JON = {"name": "Jon", "entityType": "person", "observations": ["was a banker"]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def refused(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        client(tool, arguments)
    return caught.value.error


def listed(client: Client, status: str = "all") -> dict[str, str]:
    answer = client("list_projects", status=status)
    return {project["name"]: project["status"] for project in answer["projects"]}


def test_a_created_project_is_active_at_once_and_isolated(client: Client) -> None:
    client("create_entities", entities=[JON])
    made = client("create_project", name="shop", description="the front end")
    assert (made["name"], made["status"], made["project"]) == ("shop", "active", "shop")
    assert made["id"].startswith("prj_")
    assert client("get_current_project")["current"]["description"] == "the front end"
    assert client("read_graph")["entities"] == []
    client("switch_project", name="default")
    assert len(client("read_graph")["entities"]) == 1


def test_projects_are_listed_by_status_as_a_bare_array(client: Client) -> None:
    client("create_project", name="one")
    client("create_project", name="two")
    client("archive_project", name="one")
    assert listed(client, "active") == {"two": "active"}
    assert listed(client, "archived") == {"one": "archived"}
    assert listed(client) == {"one": "archived", "two": "active"}
    shown = json.loads(client.texts[-1])
    assert set(shown[0]) == {"id", "name", "description", "status", "created_at", "updated_at"}


def test_an_archived_project_is_read_and_written_by_nobody_until_restored(client: Client) -> None:
    client("create_project", name="one")
    client("create_entities", entities=[JON])
    client("archive_project", name="one")
    assert refused(client, "read_graph", project="one")["code"] == "PROJECT_ARCHIVED"
    assert refused(client, "create_entities", entities=[JON], project="one")["code"] == (
        "PROJECT_ARCHIVED"
    )
    assert refused(client, "switch_project", name="one")["code"] == "PROJECT_ARCHIVED"
    client("restore_project", name="one")
    client("switch_project", name="one")
    assert client("read_graph")["entities"][0]["observations"] == ["was a banker"]
    assert client("search_nodes", query="banker")["entities"][0]["name"] == "Jon"


def test_a_call_in_flight_learns_that_its_project_was_archived_and_never_that_it_is_gone(
    client: Client, tmp_path: Path
) -> None:
    client("create_project", name="one")
    client("create_entities", project="one", entities=[JON])
    opened = client.service.open("one")
    opened.projections.caught_up("text")
    elsewhere = Client(client.service)
    archiving = Thread(target=elsewhere, args=("archive_project",), kwargs={"name": "one"})
    with FileLock(tmp_path / "catalog.lock"):  # as if another process changed a life just now
        archiving.start()
        for _ in range(500):
            opened.projections.caught_up("text")
            opened.searcher.search("banker")
    archiving.join(DEADLINE_S)
    assert not archiving.is_alive()
    for _ in range(2):
        with pytest.raises(ProjectArchived):
            opened.projections.caught_up("text")
        with pytest.raises(ProjectArchived):
            opened.searcher.search("banker")


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "text"])
def test_a_search_in_flight_learns_that_its_project_was_archived_by_whichever_way_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode
) -> None:
    monkeypatch.setattr(embeddings, "open_embedder", opened_by_hash)
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_project", name="one")
        client("create_entities", project="one", entities=[JON])
        client("search_nodes", project="one", query="banker")
        opened = client.service.open("one")
        client("archive_project", name="one")
        for query in ("banker", "who was never asked for"):
            with pytest.raises(ProjectArchived):
                opened.searcher.search(query, mode=mode)


def test_a_call_on_its_way_while_a_project_is_archived_leaves_no_index_behind_for_when_it_is_restored(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("create_project", name="one")
    client("create_entities", project="one", entities=[JON])
    project = client.service.store.project("one")
    client("archive_project", name="one")
    with monkeypatch.context() as on_its_way:
        on_its_way.setattr(client.service.store, "project", lambda _: project)
        client.service.open("one").searcher.search("banker")
    client("restore_project", name="one")
    found = client("search_nodes", project="one", query="banker")
    assert found["entities"][0]["name"] == "Jon"


@pytest.mark.parametrize("tool", ["get_analytics", "list_threads"])
@pytest.mark.parametrize("restored", [False, True])
def test_a_call_whose_project_is_put_away_before_it_reads_says_so_or_has_it_anew(
    client: Client, monkeypatch: pytest.MonkeyPatch, tool: str, restored: bool
) -> None:
    client("create_project", name="one")
    client("create_entities", project="one", entities=[JON], threadId="t")
    expected = client(tool, project="one")
    lives = iter(["archive_project", "restore_project"][: 2 if restored else 1])
    found = Projections.analytics

    def put_away_then(self: Projections) -> AnalyticsProjector:
        projector = found(self)
        for life in lives:
            Client(client.service)(life, name="one")
        return projector

    monkeypatch.setattr(Projections, "analytics", put_away_then)
    if restored:
        assert client(tool, project="one") == expected
    else:
        assert refused(client, tool, project="one")["code"] == "PROJECT_ARCHIVED"


def test_a_call_whose_folder_is_moved_while_an_index_is_opened_has_it_anew(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client("create_entities", entities=[JON], threadId="t")
    expected = client("list_threads")
    client.service.close_project("default")
    opened, moves = files.opened_alone, iter([True])

    def opened_elsewhere(path: Path, *more: Any) -> Any:
        if path.name != "analytics.mdb" or not next(moves, False):
            return opened(path, *more)
        folder = path.parent.parent
        away = folder.rename(folder.with_name("away"))
        try:
            return opened(path, *more)
        finally:
            away.rename(folder)

    monkeypatch.setattr(environment, "opened_alone", opened_elsewhere)
    assert client("list_threads") == expected
    assert next(moves, None) is None


@pytest.mark.parametrize("ending", ["archive_project", "delete_project"])
def test_a_project_is_put_away_while_an_endpoint_keeps_its_texts_and_calls_of_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    asked, answered = Event(), Event()
    embedded: list[str] = []

    class Hanging(ByHash):
        def embed(self, texts: Sequence[str]) -> Vectors:
            asked.set()
            answered.wait(DEADLINE_S)
            embedded.extend(texts)
            return super().embed(texts)

    monkeypatch.setattr(embeddings, "open_embedder", lambda spec: Hanging())
    with client_on(tmp_path, embedder="minilm") as client:
        client("create_project", name="one")
        client("create_entities", project="one", entities=[JON])
        assert asked.wait(DEADLINE_S)
        client(ending, name="one")
        client("create_project", name="two")
        assert embedded == []
        answered.set()
        if ending == "archive_project":
            client("restore_project", name="one")
            vectors = client.service.open("one").projections.vectors()
            assert vectors.position == client.service.open("one").project.head()
            found = client("search_nodes", project="one", query="banker")
            assert found["entities"][0]["name"] == "Jon"


def test_archiving_the_active_project_leaves_none_active(client: Client) -> None:
    client("create_project", name="one")
    client("archive_project", name="one")
    error = refused(client, "read_graph")
    assert error["code"] == "NO_ACTIVE_PROJECT"
    assert error["message"] == "No active project. Use switch_project to select one."
    assert client("get_current_project")["current"] is None


def test_archiving_a_project_again_is_done_and_says_nothing_new(client: Client) -> None:
    client("create_project", name="one")
    other = Client(client.service)
    other("switch_project", name="one")
    archived = client("archive_project", name="one")
    assert client("archive_project", name="one") == archived
    assert other("archive_project", name="one") == archived
    assert other("get_current_project")["current"] is None
    client("restore_project", name="one")
    says = [event["says"] for event in client("get_history", project="one")["events"]]
    assert says.count("the project was archived") == 1


def test_another_connection_learns_that_its_project_was_archived(client: Client) -> None:
    client("create_project", name="one")
    other = Client(client.service)
    other("switch_project", name="one")
    client("archive_project", name="one")
    assert refused(other, "read_graph")["code"] == "PROJECT_ARCHIVED"


def test_a_deleted_project_is_gone_for_good(client: Client) -> None:
    client("create_project", name="one")
    client("create_entities", entities=[JON])
    client("delete_project", name="one")
    assert listed(client) == {}
    assert refused(client, "switch_project", name="one")["code"] == "PROJECT_NOT_FOUND"
    client("create_project", name="one")
    assert client("read_graph")["entities"] == []
    assert client("search_nodes", query="banker")["entities"] == []


def test_who_deletes_a_project_is_told_where_it_may_stand_still(
    client: Client, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        client("create_project", name=name)
    assert client("delete_project", name="one")["message"] == (
        "Deleted project 'one' and all its data"
    )
    aside = tmp_path / "replaced" / "prj_1"
    aside.mkdir(parents=True)
    (aside / "log.mdb").touch()
    message = client("delete_project", name="two")["message"]
    assert message.startswith("Deleted project 'two' and all its data, but for what logs hold")
    assert "`replaced`" in message


@pytest.mark.parametrize("tool", ["read_graph", "get_current_project", "switch_project"])
def test_the_usual_project_that_somebody_deleted_does_not_come_back_by_a_look(
    client: Client, tool: str
) -> None:
    asked = {"name": "default"} if tool == "switch_project" else {}
    client("create_entities", entities=[JON])
    other = Client(client.service)
    other("delete_project", name="default")
    error = refused(client, tool, **asked)
    assert (error["code"], error["message"]) == (
        "PROJECT_NOT_FOUND",
        "Project 'default' was deleted",
    )
    assert "create_project" in error["suggestion"]
    assert listed(client) == {}
    made = other("create_project", name="default")
    assert client(tool, **asked)["project"] == "default"
    assert client("get_current_project")["current"]["id"] == made["id"]


def test_a_project_whose_folder_was_taken_away_is_not_found_by_any_tool_and_its_name_is_said(
    client: Client, tmp_path: Path
) -> None:
    client("create_entities", entities=[JON])
    made = client("create_project", name="shop")
    client("create_entities", entities=[JON])
    shutil.rmtree(tmp_path / "projects" / made["id"])
    for tool in ("read_graph", "get_current_project"):
        error = refused(client, tool)
        assert (error["code"], error["message"]) == (
            "PROJECT_NOT_FOUND",
            "Project 'shop' not found",
        )
        assert "list_projects" in error["suggestion"]
    for tool in ("switch_project", "archive_project", "restore_project", "delete_project"):
        assert refused(client, tool, name="shop")["message"] == "Project 'shop' not found"
    assert listed(client) == {"default": "active"}


def test_a_project_is_one_in_either_unicode_form_of_its_name(client: Client) -> None:
    """Its indexes are opened once: a file of LMDB cannot be opened twice."""
    forms = ["caf\u00e9", "cafe\u0301"]
    client("create_project", name=forms[0])
    client("create_entities", entities=[JON])
    for form in forms:
        assert client("get_analytics", project=form)["recent_changes"]
    assert len(client.service.opened()) == 1
    client("archive_project", name=forms[1])
    assert client.service.opened() == []


def test_archiving_leaves_no_project_active_however_its_name_is_spelt(tmp_path: Path) -> None:
    with client_on(tmp_path, project="caf\u00e9") as client:
        client("create_entities", entities=[JON])
    with client_on(tmp_path, project="cafe\u0301") as client:
        client("archive_project", name="caf\u00e9")
        assert client("get_current_project")["current"] is None


def test_a_failure_names_the_project_in_which_something_is_missing(client: Client) -> None:
    """Else what is in another would be made a second time in this one, as the error advises."""
    client("create_entities", entities=[JON])
    client("create_project", name="other")
    addition = {"entityName": "Jon", "contents": ["likes tea"]}
    error = refused(client, "add_observations", observations=[addition])
    assert error["code"] == "ENTITY_NOT_FOUND"
    assert json.loads(client.texts[-1])["project"] == "other"
    refused(client, "get_history", entityName="Joan", project="default")
    assert json.loads(client.texts[-1])["project"] == "default"


def test_a_failure_of_a_call_that_came_into_no_project_names_none(client: Client) -> None:
    for arguments in ({"names": ["Jon"], "project": "othr"}, {"nams": ["Jon"]}):
        refused(client, "open_nodes", **arguments)
        assert "project" not in json.loads(client.texts[-1])


def test_names_are_unique_and_missing_ones_offer_the_nearest(client: Client) -> None:
    client("create_project", name="frontend")
    assert refused(client, "create_project", name="frontend")["code"] == "PROJECT_EXISTS"
    error = refused(client, "switch_project", name="frontedn")
    assert error["suggestion"] == "Did you mean 'frontend'?"


def test_a_name_that_differs_by_case_alone_is_told_beside_the_new_one(client: Client) -> None:
    client("create_project", name="shop-api")
    told = client("create_project", name="Shop-API")
    assert (told["name"], client("get_current_project")["project"]) == ("Shop-API", "Shop-API")
    assert told["message"] == (
        "Created project 'Shop-API' and switched to it. Its name differs by case alone from 'shop-api'"
    )
    assert (
        client("create_project", name="web")["message"]
        == "Created project 'web' and switched to it"
    )


def test_without_an_active_project_a_list_names_none_as_the_active_one(tmp_path: Path) -> None:
    with client_on(tmp_path, project="") as client:
        assert client("list_projects")["project"] is None
        assert client("get_current_project")["project"] is None


def test_a_name_that_an_archived_project_has_is_refused_with_the_way_to_bring_it_back(
    client: Client,
) -> None:
    client("create_project", name="old")
    client("archive_project", name="old")
    with pytest.raises(Refused) as caught:
        client("create_project", name="old")
    assert caught.value.error["code"] == "PROJECT_EXISTS"
    assert 'restore_project with {"name": "old"}' in caught.value.error["suggestion"]


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "café"])
def test_arguments_that_are_advised_for_an_archived_project_can_be_sent_as_they_stand(
    client: Client, name: str
) -> None:
    client("create_project", name=name)
    client("archive_project", name=name)
    for tool, arguments in (("create_project", {"name": name}), ("read_graph", {"project": name})):
        with pytest.raises(Refused) as caught:
            client(tool, arguments)
        advised = re.search(r"restore_project with (\{.*\}),", caught.value.error["suggestion"])
        assert advised is not None and json.loads(advised[1]) == {"name": name}


def test_a_creation_that_is_sent_again_with_its_command_id_is_answered_alike(
    client: Client,
) -> None:
    wanted = {"name": "new", "description": "a shop"}
    made = client.as_command("c1", "create_project", wanted)
    assert client.as_command("c1", "create_project", wanted) == made
    for command_id, code in (("c1", "CONFLICT"), ("c2", "PROJECT_EXISTS")):
        with pytest.raises(Refused) as caught:
            client.as_command(command_id, "create_project", {"name": "new"})
        assert caught.value.error["code"] == code


def test_without_an_active_project_every_tool_says_so(tmp_path: Path) -> None:
    with client_on(tmp_path, project="") as client:
        assert refused(client, "read_graph")["code"] == "NO_ACTIVE_PROJECT"
        assert listed(client) == {}


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "名前", "x" * 100, "CON", "a b"])
def test_any_name_is_safe_for_a_project(client: Client, tmp_path: Path, name: str) -> None:
    client("create_project", name=name)
    client("create_entities", entities=[JON])
    client("archive_project", name=name)
    client("restore_project", name=name)
    client("switch_project", name=name)
    assert len(client("read_graph")["entities"]) == 1
    outside = {path.name for path in tmp_path.parent.iterdir()} - {tmp_path.name}
    assert not any(entry.startswith(("x", "prj_")) for entry in outside)


@pytest.mark.parametrize("name", ["", "x" * 101, "a\x00b", 5, None, ["x"]])
def test_what_is_no_name_is_refused(client: Client, name: Any) -> None:
    assert refused(client, "create_project", name=name)["code"] in {
        "INVALID_PARAMETER",
        "LIMIT_EXCEEDED",
    }
