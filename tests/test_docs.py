"""Every tool call and command that the documentation shows is made, in the order of the page, and what it
shows of an answer is looked for in the real one.

Above a block stands what it is: `<!-- tool: NAME -->` a call; with `refused: CODE` one that fails so; with
`id: mem_old` one whose new memory later blocks call `mem_old`; `<!-- answer -->` a part of the answer to
the call before; `<!-- terminal -->` commands; `<!-- printed -->` lines that the last of them printed.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from memlog.errors import MemlogError
from memlog.settings import TOOLSETS
from server.addresses import FORMS
from server.input.arguments import decode
from server.registry import tools
from tests.served import Pipe, environment, run_memlog, served
from tests.service import Client, Refused, client_on

REPOSITORY = Path(__file__).parents[1]
CONFIGURATIONS = {"mcpServers", "servers", "inputs", "mcp", "hooks"}
"""Keys of what pages have people put into files of their clients."""

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
TRIED = ["guide.md", "history.md", "migration.md"]
BLOCK = re.compile(r"<!-- (?P<says>[^>]+) -->\n```(?:json|sh|text)\n(?P<text>.*?)\n```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#]*)(?:#(?P<heading>[^)]+))?\)")


class Block(NamedTuple):
    says: dict[str, str]
    text: str


def blocks(page: Path) -> list[Block]:
    found = []
    for match in BLOCK.finditer(page.read_text()):
        words = match["says"].replace(":", "").split()
        assert len(words) == 1 or len(words) % 2 == 0, match["says"]
        says = dict(zip(words[::2], words[1::2], strict=False)) or {words[0]: ""}
        found.append(Block(says, match["text"]))
    return found


class Reader:
    """Somebody who tries out a page from the top."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.ids: dict[str, str] = {}
        self.last: dict[str, Any] = {}
        self.printed: list[str] = []

    def try_out(self, block: Block) -> None:
        if "terminal" in block.says:
            self.run(block.text)
        elif "printed" in block.says:
            assert set(block.text.splitlines()) <= set(self.printed), self.printed
        else:
            self.call(block)

    def run(self, commands: str) -> None:
        """As a user does, in another process than the server."""
        for line in commands.splitlines():
            memlog, *arguments = shlex.split(line)
            assert memlog == "memlog"
            done = run_memlog(*arguments, data_dir=self.client.service.settings.data_dir)
            assert done.returncode == 0, done.stderr
            self.printed = done.stdout.splitlines()

    def call(self, block: Block) -> None:
        text = block.text
        for name, real in self.ids.items():
            text = text.replace(name, real)
        shown = json.loads(text)
        if "tool" not in block.says:
            assert holds(self.last, shown), f"{block.text}\nis not in\n{json.dumps(self.last)}"
        elif code := block.says.get("refused"):
            with pytest.raises(Refused) as refused:
                self.client(block.says["tool"], shown)
            assert refused.value.error["code"] == code
            self.last = json.loads(json.dumps(refused.value.error))
        else:
            self.last = json.loads(json.dumps(self.client(block.says["tool"], shown)))
            if "id" in block.says:
                self.ids[block.says["id"]] = self.last["created"]["id"]


def holds(found: Any, shown: Any) -> bool:
    """Whether everything that is shown is in what was found; objects may have more keys."""
    if isinstance(shown, dict) and isinstance(found, dict):
        return all(key in found and holds(found[key], each) for key, each in shown.items())
    if isinstance(shown, list) and isinstance(found, list):
        return len(shown) == len(found) and all(map(holds, found, shown))
    return bool(found == shown)


@pytest.mark.parametrize("name", TRIED)
def test_the_calls_of_a_page_do_what_the_page_says(tmp_path: Path, name: str) -> None:
    found = blocks(REPOSITORY / "docs" / name)
    assert found
    with client_on(tmp_path, embedder="minilm") as client:
        reader = Reader(client)
        for block in found:
            reader.try_out(block)


def test_every_page_with_calls_is_tried() -> None:
    with_calls = [page.name for page in PAGES if "<!-- tool:" in page.read_text()]
    assert with_calls == TRIED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_json_in_a_page_is_a_call_an_answer_or_a_client_s_configuration(page: Path) -> None:
    text = page.read_text()
    fenced = re.findall(r"```json\n(.*?)\n```", text, re.DOTALL)
    said = [block.text for block in blocks(page)]
    for block in fenced:
        parsed = json.loads(block)
        assert block in said or parsed.keys() <= CONFIGURATIONS, block


OURS = "/path/to/memlog/scripts/memlog"


def commands_for_clients(readme: str) -> Iterator[list[str]]:
    """What the README has clients run: the end of a line that adds the server, and what stands in a configuration."""
    for block in re.findall(r"```sh\n(.*?)\n```", readme, re.DOTALL):
        for line in block.splitlines():
            if OURS in line:
                words = shlex.split(line)
                yield words[words.index(OURS) :]
    for block in re.findall(r"```json\n(.*?)\n```", readme, re.DOTALL):
        configuration = json.loads(block)
        configuration.pop("inputs", None)
        for servers in configuration.values():
            ours = servers["memlog"]
            command = ours.get("command", [""])  # none of one that is reached over HTTP
            words = [command] if isinstance(command, str) else command
            if words[0] == OURS:  # not the door from Windows
                yield words + ours.get("args", [])


def test_what_the_readme_has_each_client_run_is_a_server(tmp_path: Path) -> None:
    commands = list(commands_for_clients((REPOSITORY / "README.md").read_text()))
    assert len(commands) == 7
    for command in {tuple(each) for each in commands}:
        variables = environment(MEMLOG_DATA_DIR=str(tmp_path))
        server = Pipe([sys.executable, "-m", "memlog", *command[1:]], variables, "2025-06-18")
        try:
            assert server("list_projects")["project"] == "default"
        finally:
            server.release()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = list(LINK.finditer(text))
    assert len(links) == text.count("](") - text.count("](http")
    for match in links:
        target = page.parent / match["file"] if match["file"] else page
        assert target.exists(), match[0]
        if match["heading"]:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
            assert match["heading"] in slugs, match[0]


@pytest.mark.parametrize("name", sorted(tools(TOOLSETS)))
def test_the_example_in_a_description_is_a_call_of_the_tool(name: str) -> None:
    tool = tools(TOOLSETS)[name]
    example = tool.description.partition("Example: ")[2]
    arguments = msgspec.json.decode(example)
    assert isinstance(decode(arguments, tool.arguments), tool.arguments)


def test_the_example_of_save_memory_is_taken_by_an_empty_memory(tmp_path: Path) -> None:
    example = tools(TOOLSETS)["save_memory"].description.partition("Example: ")[2]
    with client_on(tmp_path) as client:
        assert client("save_memory", **msgspec.json.decode(example))["success"]


ARCHITECTURE = (REPOSITORY / "ARCHITECTURE.md").read_text()


@pytest.mark.parametrize(
    "room",
    [
        *["memlog", "projections", "server"],
        *(f"memlog/{each.parent.name}" for each in (REPOSITORY / "memlog").glob("*/__init__.py")),
        *re.findall(r"\n### `((?!memlog)[\w/]+)/`", ARCHITECTURE),
    ],
)
def test_the_architecture_names_the_files_of_each_room_and_no_other(room: str) -> None:
    part = re.split(r"\n##", ARCHITECTURE.partition(f"# `{room}/`")[2])[0]
    firsts = " ".join(row.split("|")[1] for row in part.splitlines() if row.startswith("|"))
    named = re.findall(r"`([^`]+)`", firsts)
    there = {
        f"{each.name}/" if each.is_dir() else each.name
        for each in (REPOSITORY / room).iterdir()
        if not each.name.startswith("__") and (each.is_dir() or each.suffix == ".py")
    }
    assert {name for name in named if not any(fnmatch(each, name) for each in there)} == set()
    assert {each for each in there if not any(fnmatch(each, name) for name in named)} == set()


def test_the_readme_names_every_tool_and_every_toolset() -> None:
    readme = (REPOSITORY / "README.md").read_text()
    for toolset in TOOLSETS:
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{toolset}` |"))
        told = sorted(re.findall(r"`(\w+)`", row)[1:])
        assert told == sorted(tools((toolset,))), "the table of the toolsets in README.md"


def test_each_tool_that_reads_takes_a_moment_or_is_named_where_the_history_tells_of_moments() -> (
    None
):
    page = (REPOSITORY / "docs" / "history.md").read_text()
    section = page.split("## Any answer as of any moment")[1].split("\n## ")[0]
    for name, tool in tools(TOOLSETS, read_only=True).items():
        if "as_of" not in tool.arguments.__struct_fields__:
            assert f"`{name}`" in section or f"`{tool.toolset}`" in section


def test_the_guide_names_every_code_of_an_error_and_every_resource() -> None:
    guide = (REPOSITORY / "docs" / "guide.md").read_text()
    told = [*codes(MemlogError), *FORMS]
    assert [each for each in told if f"`{each}" not in guide] == []


def test_the_guide_names_the_arguments_of_prompts_in_the_order_in_which_a_person_types_them(
    tmp_path: Path,
) -> None:
    guide = " ".join((REPOSITORY / "docs" / "guide.md").read_text().split())
    with served(tmp_path) as memlog:
        prompts = memlog.request("prompts/list")["result"]["prompts"]
    for prompt in prompts:
        arguments = ", ".join(f"`{each['name']}`" for each in prompt["arguments"])
        assert f"`{prompt['name']}` ({arguments})" in guide


def codes(error: type[MemlogError]) -> set[str]:
    return {error.code}.union(*map(codes, error.__subclasses__()))
