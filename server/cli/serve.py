"""`memlog serve`: the MCP server."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any, NoReturn, get_args

import click

from memlog.configuration import PLACEHOLDER, load, unknown
from memlog.errors import InvalidParameter
from memlog.settings import Embedder, LogLevel, Settings
from server.cli.options import address_options, data_dir_option
from server.cli.printing import say
from server.cli.running import LEVELS, log_to_stderr

logger = logging.getLogger(__name__)

TO_A_PERSON = "Speaks MCP with a client on stdin and stdout: README.md tells how to name it to one. Ctrl-C ends it."
OF_HTTP = ("http_host", "http_port", "http_path", "tls_cert", "tls_key")
OPEN_BOTH = "Start it with both open, as clients do, or serve over HTTP: --transport http."


@click.command("serve")
@click.option(
    "--transport", type=click.Choice(["stdio", "http"]), default="stdio", show_default=True
)
@click.option("--toolsets", help="Toolsets to offer, e.g. graph,projects.  [env: MEMLOG_TOOLSETS]")
@click.option("--project", help='Active project at the start; "" for none.  [env: MEMLOG_PROJECT]')
@data_dir_option
@click.option(
    "--read-only",
    is_flag=True,
    default=None,
    help="Offer no tool that writes.  [env: MEMLOG_READ_ONLY]",
)
@click.option(
    "--embedder",
    help=f"One of {', '.join(get_args(Embedder))}.  [env: MEMLOG_EMBEDDER]",
)
@click.option(
    "--log-level", help=f"One of {', '.join(get_args(LogLevel))}.  [env: MEMLOG_LOG_LEVEL]"
)
@address_options
@click.option("--path", "http_path", help="Path of MCP.  [env: MEMLOG_HTTP_PATH]")
@click.option(
    "--stateless",
    "http_stateless",
    is_flag=True,
    default=None,
    help="Keep no sessions, for gateways that share one.  [env: MEMLOG_HTTP_STATELESS]",
)
@click.option(
    "--tls-key",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Key of the certificate.  [env: MEMLOG_TLS_KEY]",
)
def serve_command(transport: str, **flags: Any) -> None:
    """Serve MCP: to one client over stdin and stdout, or to many over HTTP.

    HTTP is for this machine unless there are tokens (`memlog token`) and MEMLOG_ALLOWED_HOSTS;
    docs/security.md tells how to let in others.

    \b
    Example: memlog serve --toolsets graph,projects --project my-app
    Example: memlog serve --transport http --port 8081
    """
    from server.starting.startup import ended_by_interrupts

    if transport == "stdio":
        _require_none_of_http(flags)
    settings, _ = load(flags)
    _require_a_name(settings.project)
    with ended_by_interrupts():
        if transport == "http":
            _serve_http(settings)
        else:
            _serve_stdio(settings)


def _require_a_name(project: str) -> None:
    """All that a client that knows no such variable serves would share one project. Raises InvalidParameter."""
    if variable := PLACEHOLDER.search(project):
        raise InvalidParameter(
            f"Nobody put its value in place of {variable[0]} in the project '{project}'",
            suggestion="Write the name out, or leave the project to the client: switch_project.",
        )


def _require_none_of_http(flags: dict[str, Any]) -> None:
    """Who says where HTTP is to be served wants it served. Raises UsageError."""
    options = click.get_current_context().command.params
    given = [
        each.opts[0] for each in options if each.name in OF_HTTP and flags[each.name] is not None
    ]
    if given:
        raise click.UsageError(
            f"There is no use for {', '.join(given)} over stdio: add --transport http, or leave it out."
        )


def _serve_stdio(settings: Settings) -> NoReturn:
    from server.starting.answers import Answers
    from server.starting.prelude import Prelude
    from server.starting.startup import collector_at_rest, switch_quickly

    for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout)):
        if stream is None:
            raise InvalidParameter(
                f"{name} is closed, over which a client is served", suggestion=OPEN_BOTH
            )
    switch_quickly()
    log_to_stderr(settings.log_level)
    _warn_of_what_does_nothing()
    if sys.stdin.isatty():
        say(TO_A_PERSON, err=True)
    prelude = Prelude(Answers.of(settings))
    with collector_at_rest():
        from memlog.storage.resident import share_heaps
        from server.dispatch import build_server
        from server.registry import tools
        from server.service import Service
        from server.session import Session
        from server.stdio.direct import Direct
        from server.stdio.transport import run_stdio

    share_heaps()
    service = Service(settings)
    session = Session(service, settings.project, lasting=not settings.http_stateless)
    offered = tools(settings.toolsets, read_only=settings.read_only)
    server = build_server(session, offered, on_answer=service.warm_up, in_order=True)
    direct = Direct(session, offered, on_first_answer=service.warm_up)
    run_stdio(server, direct, on_close=service.close, prelude=prelude)


def _serve_http(settings: Settings) -> NoReturn:
    from server.starting.startup import collector_at_rest, switch_quickly

    switch_quickly()
    with collector_at_rest():
        from memlog.storage.resident import share_heaps
        from server.http.logs import log_json_to_stderr
        from server.http.serving import run_http

    share_heaps()
    log_json_to_stderr(LEVELS[settings.log_level])
    _warn_of_what_does_nothing()
    run_http(settings)


def _warn_of_what_does_nothing() -> None:
    """Variables that somebody took for settings: `memlog doctor` does not see the environment that a client gives its
    server. DATABASE_URL most often is meant for other software."""
    for variable, hint in unknown().items():
        if variable != "DATABASE_URL":
            logger.warning("%s is no setting and does nothing. %s", variable, hint)
