"""`memlog serve`: the MCP server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memlog.settings import load


@click.command("serve")
@click.option("--transport", type=click.Choice(["stdio"]), default="stdio", show_default=True)
@click.option("--toolsets", help="Toolsets to offer, e.g. graph,projects.  [env: MEMLOG_TOOLSETS]")
@click.option("--project", help='Active project at the start; "" for none.  [env: MEMLOG_PROJECT]')
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the logs and indexes.  [env: MEMLOG_DATA_DIR]",
)
@click.option(
    "--read-only",
    is_flag=True,
    default=None,
    help="Offer no tool that writes.  [env: MEMLOG_READ_ONLY]",
)
@click.option(
    "--embedder",
    help="minilm, openai, fastembed or none.  [env: MEMLOG_EMBEDDER]",
)
@click.option("--log-level", help="debug, info, warn or error.  [env: MEMLOG_LOG_LEVEL]")
def serve_command(transport: str, **flags: Any) -> None:
    """Serve MCP to one client over stdin and stdout.

    \b
    Example: memlog serve --toolsets graph,projects --project my-app
    """
    from server.answers import Answers
    from server.cli.common import log_to_stderr
    from server.prelude import Prelude
    from server.startup import collector_at_rest, switch_quickly

    switch_quickly()
    settings, _ = load(flags)
    log_to_stderr(settings.log_level)
    prelude = Prelude(Answers.of(settings))
    with collector_at_rest():
        from server.dispatch import build_server
        from server.registry import tools
        from server.service import Service
        from server.session import Session
        from server.transport import run_stdio

    service = Service(settings)
    server = build_server(
        Session(service, settings.project),
        tools(settings.toolsets, read_only=settings.read_only),
        on_first_answer=service.warm_up,
    )
    run_stdio(server, on_close=service.close, prelude=prelude)
