"""`memlog demo`: a real server in a temporary data directory, and a real client talking to it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from memlog.configuration import load
from memlog.errors import counted
from memlog.settings import SETTINGS, Settings
from server.cli.printing import open_console
from server.cli.running import service_of

if TYPE_CHECKING:
    from mcp import ClientSession

console = open_console()

EMBEDDING = frozenset(
    {"embedder", "embedder_model", "embedder_url", "embedder_key", "embedder_retries", "model_dir"}
)
"""The settings that the demo goes by: which embedder is to be had here. By others it would show something else."""

ASKED = ("editors dark", "who can bake bread?", "ohn")

PEOPLE = [
    {
        "name": "john-doe",
        "entityType": "person",
        "observations": ["Prefers dark mode in editors", "Lives in Seattle"],
    },
    {
        "name": "mary",
        "entityType": "person",
        "observations": ["Runs a small bakery", "Wakes up at four in the morning"],
    },
    {"name": "techcorp", "entityType": "organization", "observations": ["Makes text editors"]},
]


@click.command("demo")
def demo_command() -> None:
    """Show what memlog does: a real server, a real client, a temporary folder.

    \b
    Example: memlog demo
    """
    with tempfile.TemporaryDirectory(prefix="memlog-demo-") as folder:
        chosen, _ = load({"data_dir": Path(folder)})
        embedding = {field: getattr(chosen, field) for field in EMBEDDING}
        before = _run(_converse, Path(folder))
        _from_the_log(Settings(data_dir=Path(folder), **embedding))
        after = _run(_ask_again, Path(folder))
    if before != after:
        console.print("[red]The answers differ after the replay.[/]")
        sys.exit(1)
    console.print("[green]After the replay the same questions have the same answers.[/]")
    console.print(
        "\nTo give this memory to your agent, see README.md: Claude Code, Codex, Cursor, VS Code and others."
    )


def _run(talk: Callable[[Path], Awaitable[list[Any]]], folder: Path) -> list[Any]:
    """What `talk` returns. Raises what ended it, without the groups of the tasks that it ended."""
    from mcp import MCPError

    try:
        return anyio.run(talk, folder)
    except BaseException as error:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, MCPError):
            raise click.ClickException(f"the server of the demo did not answer: {error}") from error
        raise error from None


async def _converse(folder: Path) -> list[Any]:
    async with _client(folder) as client:
        tools = (await client.list_tools()).tools
        console.print(f"[bold]A server with {len(tools)} tools answers over stdio.[/]\n")

        await _say(client, "create_entities", {"entities": PEOPLE})
        works_for = {"from": "john-doe", "to": "techcorp", "relationType": "works_for"}
        await _say(client, "create_relations", {"relations": [works_for]})

        console.print("[bold]A fact changes: the old one is retired, not lost.[/]")
        moved = {**PEOPLE[0], "observations": ["Prefers dark mode in editors", "Moved to Austin"]}
        await _say(client, "create_entities", {"entities": [moved]})

        console.print("[bold]Found by words in any order, by meaning, and by a part of a name.[/]")
        for query in ASKED:
            await _search(client, query)

        console.print("[bold]Deleting takes relations along, and out of every search at once.[/]")
        await _say(client, "delete_entities", {"entityNames": ["techcorp"]})
        return await _answers(client)


async def _ask_again(folder: Path) -> list[Any]:
    async with _client(folder) as client:
        return await _answers(client)


async def _answers(client: ClientSession) -> list[Any]:
    """What the demo compares before and after the replay."""
    graph = await _call(client, "read_graph", {})
    return [graph, *[await _call(client, "search_nodes", {"query": query}) for query in ASKED]]


async def _say(client: ClientSession, tool: str, arguments: dict[str, Any]) -> None:
    answer = await _call(client, tool, arguments)
    console.print(f"  [cyan]{tool}[/] → {_summary(answer)}\n")


async def _search(client: ClientSession, query: str) -> None:
    answer = await _call(client, "search_nodes", {"query": query})
    first = answer["entities"][0] if answer["entities"] else None
    shown = f"{first['name']}: {'; '.join(first['observations'])}" if first else "nothing"
    console.print(f"  [cyan]search_nodes[/] {query!r} → {shown}\n")


def _summary(answer: dict[str, Any]) -> str:
    if "message" in answer:
        return f"{answer['message']}: {', '.join(each['name'] for each in answer['entities'])}"
    if "relations" in answer:
        return ", ".join(
            f"{each['from']} —{each['relationType']}→ {each['to']}" for each in answer["relations"]
        )
    said = []
    for each in answer["entities"]:
        retired = f", {each['replaced']} retired" if each.get("replaced") else ""
        said.append(f"{each['name']} ({counted(len(each['observations']), 'facts')}{retired})")
    return ", ".join(said)


async def _call(client: ClientSession, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    answer: dict[str, Any] | None = result.structured_content
    if result.is_error or answer is None:
        raise click.ClickException(f"the server refused a call of the demo: {answer}")
    return answer


@asynccontextmanager
async def _client(folder: Path) -> AsyncIterator[ClientSession]:
    """Of a server of its own. The SDK is imported here, for `memlog --help` imports this module."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    others = {name for each in SETTINGS if each.field not in EMBEDDING for name in each.variables}
    environment = {name: value for name, value in os.environ.items() if name not in others}
    environment |= {"MEMLOG_DATA_DIR": str(folder), "MEMLOG_LOG_LEVEL": "warn"}
    # `-m` would take a module of the folder that the demo is called from for one of memlog's.
    alone = "-I" if sys.flags.isolated else "-P"
    found_as_here = f"import sys; sys.path[:] = {sys.path!r}"
    run = f"{found_as_here}; from memlog.__main__ import serve; serve()"
    frozen = getattr(sys, "frozen", False)  # into one program, which takes no arguments of Python's
    arguments = ["serve"] if frozen else [alone, "-c", run]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        yield client


def _from_the_log(settings: Settings) -> None:
    """Shows the log, throws away everything derived from it, and builds it again."""
    from memlog.sentences import sentence

    with service_of(settings) as service:
        opened = service.open("default")
        console.print("[bold]Every change is an event in the log:[/]")
        with opened.project.snapshot() as (log, state_at):
            for entry in log.read():
                console.print(f"  [cyan]{entry.position:>3}[/] {sentence(entry, state_at)}")
        opened.project.rebuild()
        opened.projections.rebuild("text")
        if not service.embeddings.switched_off:
            opened.projections.rebuild("vectors")
        console.print("\n[bold]State and indexes were thrown away and replayed.[/]")
