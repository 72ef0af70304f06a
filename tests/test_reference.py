"""In the place of the reference memory server: the same calls, and every answer of its has its like in ours.

The reference is a pinned release from npm, installed once into the user's cache. Without npm, or with
no way to its registry, these tests are skipped by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench import reference
from tests.reference_calls import DIFFERENCES, SCRIPT, Arguments
from tests.served import Era, Pipe, run_memlog, served

ERA: Era = "2025-11-25"


@pytest.fixture(scope="module")
def command() -> list[str]:
    try:
        return reference.command()
    except reference.Unavailable as reason:
        pytest.skip(str(reason))


def start_reference(command: list[str], file: Path) -> Pipe:
    return Pipe(command, {**os.environ, "MEMORY_FILE_PATH": str(file)}, ERA)


class Both(NamedTuple):
    """The two servers, each with an empty memory: the reference's a file, ours a project."""

    reference: Pipe
    memlog: Pipe
    file: Path
    data_dir: Path
    project: str


@pytest.fixture(scope="module")
def servers(
    command: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Pipe, Pipe, Path]]:
    folder = tmp_path_factory.mktemp("reference")
    reference = start_reference(command, folder / "memory.jsonl")
    as_the_reference = {"MEMLOG_IF_EXISTS": "skip", "MEMLOG_SEARCH_MODE": "text"}
    try:
        with served(folder / "data", era=ERA, **as_the_reference) as memlog:
            yield reference, memlog, folder
    finally:
        reference.release()


@pytest.fixture
def both(servers: tuple[Pipe, Pipe, Path], request: pytest.FixtureRequest) -> Both:
    reference, memlog, folder = servers
    file = folder / "memory.jsonl"
    file.unlink(missing_ok=True)  # the reference reads it anew at every call
    project = memlog("create_project", name=request.node.name[:100])["project"]
    return Both(reference, memlog, file, folder / "data", project)


# -- agreement


def contains(ours: Any, theirs: Any, tool: str) -> bool:
    """Whether everything in `theirs` is in `ours` with the same value. Ours may say more of a thing.

    Lists of search_nodes and open_nodes are compared as sets: the reference gives the order of its
    file, we the best first and the order asked for. A search may find more, by words.
    """
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and all(
            key in ours and contains(ours[key], value, tool) for key, value in theirs.items()
        )
    if not (isinstance(theirs, list) and isinstance(ours, list)):
        return bool(ours == theirs)
    if len(ours) != len(theirs) and tool != "search_nodes":
        return False
    if tool in ("search_nodes", "open_nodes") and any(isinstance(each, dict) for each in theirs):
        return all(any(contains(each, wanted, "") for each in ours) for wanted in theirs)
    return len(ours) >= len(theirs) and all(
        contains(one, other, tool) for one, other in zip(ours, theirs, strict=False)
    )


def parsed(result: dict[str, Any]) -> Any:
    """The text of a result, as JSON where it is JSON."""
    text = result["content"][0]["text"]
    try:
        return json.loads(text)
    except ValueError:
        return text


def ask_both(both: Both, tool: str, arguments: Arguments) -> tuple[dict[str, Any], dict[str, Any]]:
    return both.reference.result(tool, **arguments), both.memlog.result(tool, **arguments)


def test_the_same_calls_have_the_same_answers(both: Both) -> None:
    for tool, arguments in SCRIPT:
        theirs, ours = ask_both(both, tool, arguments)
        told = (tool, arguments, theirs, ours)
        assert bool(theirs.get("isError")) == bool(ours.get("isError")), told
        if theirs.get("isError"):
            assert parsed(theirs) in parsed(ours)["error"]["message"], told
            continue
        assert contains(ours["structuredContent"], theirs["structuredContent"], tool), told
        if isinstance(parsed(theirs), str):
            assert parsed(theirs) == parsed(ours)["message"], told
        else:
            assert contains(parsed(ours), parsed(theirs), tool), told


def test_the_same_tools_take_the_same_arguments(both: Both) -> None:
    theirs, ours = (
        {tool["name"]: tool for tool in server.request("tools/list")["result"]["tools"]}
        for server in (both.reference, both.memlog)
    )
    assert len(theirs) == 9
    for name, tool in theirs.items():
        known = ours[name]["inputSchema"]["properties"]
        wanted = tool["inputSchema"].get("properties", {})
        for argument, schema in wanted.items():
            assert known[argument]["type"] == schema["type"], (name, argument)
        answered = ours[name]["outputSchema"]["properties"]
        assert set(tool["outputSchema"]["properties"]) <= set(answered), name
        read_only = tool["annotations"]["readOnlyHint"]
        assert ours[name]["annotations"]["readOnlyHint"] == read_only


# -- where we differ, and why


def at(result: dict[str, Any], path: str) -> Any:
    if path == "isError":
        return bool(result.get("isError"))
    if path == "count":
        return len(result["structuredContent"]["entities"])
    if path == "content.text":
        return "no JSON" if isinstance(parsed(result), str) else "JSON"
    key, _, field = path.partition(".")
    there = result["structuredContent"][key]
    return [each[field] for each in there] if field else there


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_we_differ_where_it_is_said_and_in_nothing_else(both: Both, difference: str) -> None:
    _, before, (tool, arguments), path, theirs, ours = DIFFERENCES[difference]
    for each, given in before:
        ask_both(both, each, given)
    answers = ask_both(both, tool, arguments)
    assert [at(each, path) for each in answers] == [theirs, ours]


def test_every_match_of_the_reference_is_reached_page_by_page(both: Both) -> None:
    many = [{"name": f"e{n:03}", "entityType": "thing", "observations": []} for n in range(300)]
    ask_both(both, "create_entities", {"entities": many})
    found: set[str] = set()
    page: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in page:
        page = both.memlog("search_nodes", query="thing", cursor=page["nextCursor"])
        found |= {each["name"] for each in page["entities"]}
    theirs = both.reference("search_nodes", query="thing")
    assert found == {each["name"] for each in theirs["entities"]}


# -- the file


def graph_of(server: Pipe) -> dict[str, Any]:
    """The graph without what only we know of it."""
    graph = server("read_graph")
    kept = {"name", "entityType", "observations", "from", "to", "relationType"}
    return {
        part: [{key: each[key] for key in each if key in kept} for each in graph[part]]
        for part in ("entities", "relations")
    }


def test_a_file_that_the_reference_wrote_is_imported_whole(both: Both, tmp_path: Path) -> None:
    for tool, arguments in SCRIPT[:16]:
        both.reference.result(tool, **arguments)
    fresh = tmp_path / "fresh"
    done = run_memlog("import", both.file, data_dir=fresh)
    assert done.returncode == 0, done.stderr
    with served(fresh) as memlog:
        assert graph_of(memlog) == graph_of(both.reference)
        assert len(graph_of(memlog)["entities"]) == 4


def test_a_file_that_we_exported_is_read_by_the_reference(
    both: Both, command: list[str], tmp_path: Path
) -> None:
    for tool, arguments in SCRIPT[:16]:
        both.memlog.result(tool, **arguments)
    ours = graph_of(both.memlog)
    exported = tmp_path / "exported.jsonl"
    done = run_memlog("export", exported, "--project", both.project, data_dir=both.data_dir)
    assert done.returncode == 0, done.stderr
    assert len(ours["entities"]) == 4
    reference = start_reference(command, exported)
    try:
        assert graph_of(reference) == ours
    finally:
        reference.release()
