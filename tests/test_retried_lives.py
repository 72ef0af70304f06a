"""Commands about the lives of projects that are sent again under the id they had: answered alike, and done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memlog.errors import StorageError
from memlog.projects.deletions import KEPT_MAX
from memlog.projects.project import Origin
from memlog.projects.store import Store
from tests.command_line import holding_lines
from tests.service import Client, Refused, client_on
from tests.test_store import _run_in_child as run_in_child

PX = {"name": "px"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with client_on(tmp_path) as opened:
        yield opened


def refused(client: Client, command_id: str | None, tool: str, arguments: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as caught:
        client.as_command(command_id, tool, arguments)
    return caught.value.error


def active(client: Client) -> str | None:
    name: str | None = client("get_current_project")["project"]
    return name


def deleted_and_made_anew(client: Client) -> dict[str, Any]:
    """What the deletion of the first px was answered. The second one has a memory and is active."""
    client("create_project", name="px", description="the first")
    answer = client.as_command("d1", "delete_project", PX)
    client("create_project", PX)
    client("store_memory", content="of the second one")
    return answer


def test_a_deletion_sent_again_is_answered_alike_and_deletes_no_other_project_of_the_name(
    client: Client,
) -> None:
    first = deleted_and_made_anew(client)
    assert client.as_command("d1", "delete_project", PX) == first
    assert active(client) == "px"
    assert client("list_recent_memories")["memories"][0]["content"] == "of the second one"


def test_nor_does_it_after_a_restart(tmp_path: Path) -> None:
    with client_on(tmp_path) as client:
        first = deleted_and_made_anew(client)
    with client_on(tmp_path) as client:
        assert client.as_command("d1", "delete_project", PX) == first
        assert client("switch_project", PX)["id"] != first["id"]


def test_a_deletion_sent_again_is_answered_also_where_the_name_is_free(client: Client) -> None:
    client("create_project", PX)
    first = client.as_command("d1", "delete_project", PX)
    assert client.as_command("d1", "delete_project", PX) == first
    assert refused(client, None, "delete_project", PX)["code"] == "PROJECT_NOT_FOUND"
    assert refused(client, "d2", "delete_project", PX)["code"] == "PROJECT_NOT_FOUND"


def test_without_an_id_what_bears_the_name_is_deleted_each_time(client: Client) -> None:
    for _ in range(2):
        client("create_project", PX)
        client("delete_project", PX)
    assert client("list_projects", status="all")["projects"] == []


def test_an_id_that_deleted_one_project_is_refused_for_anything_else(client: Client) -> None:
    client("store_memory", content="a fact")
    deleted_and_made_anew(client)
    for tool, name in (
        ("delete_project", "default"),
        ("archive_project", "px"),
        ("restore_project", "px"),
        ("create_project", "new"),
    ):
        error = refused(client, "d1", tool, {"name": name})
        assert (error["code"], error["message"]) == (
            "CONFLICT",
            "Command id 'd1' was used before, for another command",
        )
    listed = client("list_projects", status="all")["projects"]
    assert {(row["name"], row["status"]) for row in listed} == {
        ("default", "active"),
        ("px", "active"),
    }


def test_an_id_that_wrote_to_a_project_does_not_delete_it(client: Client) -> None:
    client("create_project", PX)
    client.as_command("s1", "store_memory", {"content": "a fact"})
    assert refused(client, "s1", "delete_project", PX)["code"] == "CONFLICT"
    assert len(client("list_recent_memories")["memories"]) == 1


@pytest.mark.parametrize(
    "crash",
    ["crash_in(Settling, 'settle')", "crash_in(Deletions, 'keep')", "crash_in(Catalog, 'write')"],
)
def test_a_deletion_that_a_crash_cut_short_is_answered_when_it_is_sent_again(
    tmp_path: Path, crash: str
) -> None:
    store = Store(tmp_path)
    first = store.create("px")
    store.close()
    code = f"""
from memlog.projects.deletions import Deletions
from memlog.projects.project import Origin
from memlog.projects.settling import Settling
{crash}
store.delete("px", Origin("d1"))
"""
    assert "crashed" in run_in_child(tmp_path, code)
    store = Store(tmp_path)
    second = store.create("px")
    assert store.delete("px", Origin("d1")).id == first.id
    assert store.find("px") == second
    store.close()


def test_a_deletion_that_was_not_done_yet_when_a_process_was_killed_is_done_by_the_next_try(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    first = store.create("px")
    store.close()
    code = """
from memlog.projects.project import Origin, Project
crash_in(Project, "remove")
store.delete("px", Origin("d1"))
"""
    assert "crashed" in run_in_child(tmp_path, code)
    store = Store(tmp_path)
    assert store.delete("px", Origin("d1")) == first
    assert store.projects("all") == []
    store.close()


def test_no_more_deletions_are_kept_than_are_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlog.projects.deletions.KEPT_MAX", 2)
    store = Store(tmp_path)
    rows = []
    for number in range(3):
        rows.append(store.create("px"))
        store.delete("px", Origin(f"d{number}"))
    last = store.create("px")
    assert [store.delete("px", Origin(f"d{number}")) for number in (1, 2)] == rows[1:]
    assert store.delete("px", Origin("d0")) == last
    assert KEPT_MAX > 2
    store.close()


def test_no_id_can_be_read_where_deletions_are_noted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("px")
    store.delete("px", Origin("a-secret-id"))
    noted = (tmp_path / "deletions.json").read_text()
    assert "px" in noted
    assert "a-secret-id" not in noted
    store.close()


def test_where_deletions_cannot_be_read_one_with_an_id_is_refused_and_one_without_is_not(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    store.create("px")
    (tmp_path / "deletions.json").write_text("no JSON")
    with pytest.raises(StorageError, match=r"^deletions\.json cannot be read"):
        store.delete("px", Origin("d1"))
    store.delete("px")
    assert store.projects("all") == []
    store.close()


@pytest.mark.parametrize("how", ["no JSON", "no text", "a folder"])
def test_the_doctor_tells_that_deletions_cannot_be_read(tmp_path: Path, how: str) -> None:
    memlog = holding_lines(tmp_path)
    noted = memlog.data_dir / "deletions.json"
    if how == "a folder":
        noted.mkdir()
    else:
        noted.write_bytes(b"no JSON" if how == "no JSON" else b'["\xff"]')
    told = memlog("doctor")
    assert told.code == 1
    assert "deletions: deletions.json" in told.stdout
    assert memlog("doctor", "--json").json["deletions"]["error"].startswith("deletions.json")


def test_the_doctor_advises_commands_about_the_folder_that_was_named_to_it(tmp_path: Path) -> None:
    memlog = holding_lines(tmp_path)
    (memlog.data_dir / "deletions.json").mkdir()
    told = memlog("doctor", "--json", "--data-dir", memlog.data_dir).json["deletions"]
    assert f"`memlog doctor --data-dir {memlog.data_dir}`" in told["hint"]


def test_an_archiving_sent_again_is_answered_alike_and_leaves_the_project_active(
    client: Client,
) -> None:
    client("create_project", name="py")
    first = client.as_command("a9", "archive_project", {"name": "py"})
    assert first["status"] == "archived"
    client("restore_project", name="py")
    client("switch_project", name="py")
    assert client.as_command("a9", "archive_project", {"name": "py"}) == first
    assert active(client) == "py"
    assert client("read_graph")["entities"] == []


def test_an_archiving_sent_again_leaves_none_active_while_it_is_archived(client: Client) -> None:
    client("create_project", name="py")
    other = Client(client.service)
    other("switch_project", name="py")
    first = client.as_command("a9", "archive_project", {"name": "py"})
    assert other.as_command("a9", "archive_project", {"name": "py"}) == first
    assert active(other) is None


def test_a_restoring_sent_again_is_answered_alike(client: Client) -> None:
    client("create_project", name="py")
    client("archive_project", name="py")
    first = client.as_command("r1", "restore_project", {"name": "py"})
    assert first["status"] == "active"
    client("archive_project", name="py")
    assert client.as_command("r1", "restore_project", {"name": "py"}) == first
    listed = client("list_projects", status="all")["projects"]
    assert [row["status"] for row in listed] == ["archived"]
