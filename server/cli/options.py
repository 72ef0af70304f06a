"""What may be typed behind a command: kinds of arguments, and the options that several commands have."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Command = Callable[..., Any]

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for other programs.")


class Number(click.FloatRange):
    """A number in a range; none that is not a number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number.", param, ctx)
        return number


INTEGER = click.IntRange(1, 2**63 - 1)
"""A number of entries, or a position: as large as a log knows them."""


class NamedPath(click.Path):
    """A path that is named: an empty text, as a variable that is not set gives it, would be the folder that the command
    was started in, or the usual file. `advice` tells what to do instead."""

    def __init__(
        self,
        advice: str,
        *,
        file_okay: bool = True,
        dir_okay: bool = True,
        allow_dash: bool = False,
    ) -> None:
        super().__init__(
            path_type=Path, file_okay=file_okay, dir_okay=dir_okay, allow_dash=allow_dash
        )
        self._advice = advice

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail(f"it is empty. {self._advice}", param, ctx)
        return super().convert(value, param, ctx)


class Named(click.types.StringParamType):
    """A text that names something: an empty one would be the default, or all there are."""

    def __init__(self, advice: str) -> None:
        self._advice = advice

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.strip():
            self.fail(f"it is empty. {self._advice}", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = NamedPath("Name a folder; . is the one you are in.", file_okay=False)
PROJECT = Named("Name a project (`memlog projects` lists them), or leave it out.")
THIS_PROJECT = Named("Name a project; `memlog projects` lists them.")
"""Of a command that goes by no default."""
ENTITY = Named("Name an entity; `memlog search` finds them.")
HOST = Named("Name an address (0.0.0.0 is all of this machine), or leave it out.")


class ToRead(click.File):
    """A file, or - for stdin, which is none where the caller has closed it."""

    def __init__(self) -> None:
        super().__init__("rb")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("stdin is closed. Name a file, or give it something to read.", param, ctx)
        return super().convert(value, param, ctx)


class Helpful(click.Group):
    """Commands, with `help` as one of them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`memlog help search` is `memlog search --help`."""
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)


data_dir_option = click.option(
    "--data-dir",
    type=FOLDER,
    help="Folder of the logs and indexes.  [env: MEMLOG_DATA_DIR]",
)


def said_before(option: str) -> Any:
    """What this option was given before the name of a command within a group; None where there is no such group."""
    group = click.get_current_context().parent
    return group.params.get(option) if group else None


project_option = click.option(
    "--project",
    "-p",
    type=PROJECT,
    help="Project to work in.  [env: MEMLOG_PROJECT; default: default]",
)


def project_argument(command: Command) -> Command:
    """The project behind the command, or as the option that other commands have."""

    @click.argument("project", type=PROJECT, required=False)
    @click.option("--project", "-p", "named", type=PROJECT, help="The same as PROJECT.")
    @functools.wraps(command)
    def run(*, project: str | None, named: str | None, **arguments: Any) -> Any:
        if project is not None and named is not None:
            raise click.UsageError("The project is named twice: leave out --project.")
        return command(project=named if project is None else project, **arguments)

    return run


def address_options(command: Command) -> Command:
    """Where HTTP is served, as settings."""
    for option in (
        click.option(
            "--tls-cert",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="Certificate chain, for HTTPS.  [env: MEMLOG_TLS_CERT]",
        ),
        click.option(
            "--port", "http_port", type=int, help="Port for HTTP.  [env: MEMLOG_HTTP_PORT]"
        ),
        click.option(
            "--host", "http_host", type=HOST, help="Address for HTTP.  [env: MEMLOG_HTTP_HOST]"
        ),
    ):
        command = option(command)
    return command
